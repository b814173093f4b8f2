//! What is asked of all address spaces about one file: when it is cut short, the pages that it lost are
//! taken out of every one, private copies included, so that the next touch is a fault and finds what
//! the file is then. Files are rarely cut short while they are mapped, so nothing remembers who maps
//! what: every process is asked. The same way, pages that were written back lose the right to be written
//! to without a fault, and pages that a cache gives up vanish.

use alloc::collections::BTreeMap;
use core::ops::Range;

use base::memory::Frame;
use fs::mapped::Observer;
use fs::metadata::InodeId;

use super::table;
use crate::memory::AddressSpace;

/// What files tell of their pages.
pub(super) const OBSERVER: Observer =
    Observer { gone: pages_gone, replaced: pages_replaced, protect };

/// A file has lost these pages.
fn pages_gone(inode: InodeId, pages: Range<u64>) {
    for_each_space(|space| space.drop_source_pages(inode.device, inode.number, pages.clone()));
}

/// These pages of a file are other frames from now on.
fn pages_replaced(inode: InodeId, pages: &BTreeMap<u64, Frame>) {
    for_each_space(|space| space.release_source_pages(inode, pages));
}

/// The next write to these pages through a shared mapping has to be seen.
fn protect(inode: InodeId, pages: &[u64]) {
    for_each_space(|space| space.protect_source_pages(inode, pages));
}

fn for_each_space(act: impl Fn(&AddressSpace)) {
    // A child that became known meanwhile was perhaps neither in the list nor a copy of its parent's any
    // more when the parent was asked. Who became known after that was asked with the parent.
    let mut known = 0;
    for _ in 0..2 {
        let before = table::counts().created;
        if before == known {
            return;
        }
        known = before;
        for process in table::processes() {
            if let Some(space) = process.find_thread(|thread| Some(thread.space())) {
                act(&space);
            }
        }
    }
}

/// Whether anybody may write to a file through a shared mapping.
pub fn is_mapped_for_writing(inode: InodeId) -> bool {
    table::processes().iter().any(|process| {
        let space = process.find_thread(|thread| Some(thread.space()));
        space.is_some_and(|space| space.may_write_source(inode.device, inode.number))
    })
}
