//! `F_NOTIFY`: a process is told by signal of what happens in a directory that it has open.

use super::{Listener, MARKS, Mark, REGISTRY};
use crate::file::{OpenFile, Reason};
use abi::fs::notify::Events;
use alloc::sync::{Arc, Weak};
use base::heap::tree;
use core::sync::atomic::Ordering;

/// A directory that somebody watches through a descriptor.
pub struct DirectoryNotice {
    open: Weak<OpenFile>,
    open_id: u64,
    /// The table of descriptors through which it was asked for.
    files: u64,
    descriptor: i32,
}

impl DirectoryNotice {
    pub(super) fn signal(&self) {
        if let Some(open) = self.open.upgrade() {
            open.signal_owner(self.descriptor, Reason::Message);
        }
    }

    fn is_of(&self, open: &OpenFile, files: u64) -> bool {
        self.open_id == open.id() && self.files == files
    }
}

/// Asks for a signal when one of the events happens in a directory, or for no more of them when there
/// are none. What was asked for through the same description and table before is added to.
pub fn notify_of_directory(open: &Arc<OpenFile>, files: u64, descriptor: i32, wanted: Events) {
    if !wanted.intersects(Events::ALL) {
        forget(open, files);
        return;
    }
    open.note_directory_watch();
    let mut registry = REGISTRY.lock();
    let marks = tree::get_or_insert(&mut registry.by_inode, open.inode().id(), Default::default);
    let old = marks.iter_mut().find_map(|mark| match &mark.listener {
        Listener::Directory(notice) if notice.is_of(open, files) => Some(mark),
        _ => None,
    });
    let notice = Arc::new(DirectoryNotice {
        open: Arc::downgrade(open),
        open_id: open.id(),
        files,
        descriptor,
    });
    match old {
        Some(mark) => {
            mark.wanted |= wanted;
            mark.listener = Listener::Directory(notice);
        }
        None => {
            marks.push(Mark { listener: Listener::Directory(notice), wanted });
            MARKS.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn forget_those(open: &OpenFile, is_meant: impl Fn(&DirectoryNotice) -> bool) {
    let id = open.inode().id();
    let mut registry = REGISTRY.lock();
    let Some(marks) = registry.by_inode.get_mut(&id) else { return };
    let before = marks.len();
    marks.retain(|mark| !matches!(&mark.listener, Listener::Directory(notice) if is_meant(notice)));
    MARKS.fetch_sub(before - marks.len(), Ordering::Relaxed);
    if marks.is_empty() {
        registry.by_inode.remove(&id);
    }
}

/// A descriptor of a table is closed: it is told no more.
pub fn forget(open: &OpenFile, files: u64) {
    forget_those(open, |notice| notice.is_of(open, files));
}

/// The description is gone.
pub(crate) fn forget_description(open: &OpenFile) {
    forget_those(open, |notice| notice.open_id == open.id());
}
