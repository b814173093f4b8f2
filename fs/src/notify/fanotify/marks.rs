//! The marks of all groups: which objects they are on, what they want, and what each user has.

use super::group::Group;
use crate::metadata::InodeId;
use abi::Errno;
use abi::fs::fanotify::{FileEvents, InitFlags, MarkFlags};
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use base::heap::tree;
use base::sync::{Mutex, MutexGuard, rank};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// `/proc/sys/fs/fanotify`.
pub struct Limits {
    /// Events that wait in one group.
    pub queued_events: AtomicU64,
    /// Groups of one user.
    pub groups: AtomicU64,
    /// Marks of one user.
    pub marks: AtomicU64,
}

/// The limits in force.
pub static LIMITS: Limits = Limits {
    queued_events: AtomicU64::new(16384),
    groups: AtomicU64::new(128),
    marks: AtomicU64::new(8192),
};

/// What a mark is on. A mark does not keep it alive. That on a mount lasts until the mount's number is of no use any more
/// to anybody, which costs nothing but its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// An inode.
    Inode(InodeId),
    /// The mount of a number.
    Mount(u64),
    /// The file system of a device number.
    FileSystem(u64),
}

impl Object {
    fn kind(&self) -> MarkFlags {
        match self {
            Object::Inode(_) => MarkFlags::empty(),
            Object::Mount(_) => MarkFlags::MOUNT,
            Object::FileSystem(_) => MarkFlags::FILESYSTEM,
        }
    }
}

/// One group's interest in one object.
#[derive(Clone)]
pub struct Mark {
    pub(super) group: Weak<Group>,
    /// Whose limits it counts for.
    user: u32,
    /// Events and options.
    pub wanted: FileEvents,
    /// Events that are not told whatever other marks of the group want, and options.
    pub ignored: FileEvents,
    /// Those of `MarkFlags::KEPT`.
    pub flags: MarkFlags,
}

impl Mark {
    fn is_of(&self, group: &Group) -> bool {
        core::ptr::eq(self.group.as_ptr(), group)
    }

    /// What is ignored, with the options that hold for it.
    pub(super) fn ignored_with_options(&self) -> FileEvents {
        if self.flags.contains(MarkFlags::IGNORE) {
            return self.ignored;
        }
        let on_child = self.wanted & FileEvents::EVENT_ON_CHILD;
        (self.ignored | FileEvents::ONDIR).difference(FileEvents::EVENT_ON_CHILD) | on_child
    }
}

#[derive(Default)]
struct Usage {
    groups: u64,
    marks: u64,
}

pub(super) struct Registry {
    pub(super) by_object: BTreeMap<Object, Vec<Mark>>,
    users: BTreeMap<u32, Usage>,
}

static REGISTRY: Mutex<Registry> =
    Mutex::new(&rank::FILE_MARKS, Registry { by_object: BTreeMap::new(), users: BTreeMap::new() });
/// Marks that exist.
static MARKS: AtomicUsize = AtomicUsize::new(0);
/// Marks that have asked for permission events since they were made.
static ASKING: AtomicUsize = AtomicUsize::new(0);

/// Whether there are marks at all.
#[inline]
pub fn is_used() -> bool {
    MARKS.load(Ordering::Relaxed) != 0
}

/// Whether somebody may have to be asked for permission.
#[inline]
pub fn may_ask() -> bool {
    ASKING.load(Ordering::Relaxed) != 0
}

pub(super) fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock()
}

pub(super) fn count_group(user: u32) -> Result<(), Errno> {
    let mut registry = REGISTRY.lock();
    let usage = tree::get_or_insert(&mut registry.users, user, Usage::default);
    if usage.groups >= LIMITS.groups.load(Ordering::Relaxed) {
        return Err(Errno::EMFILE);
    }
    usage.groups += 1;
    Ok(())
}

/// What is asked of a mark.
#[derive(Clone, Copy)]
pub struct Change {
    /// Flags of the call.
    pub flags: MarkFlags,
    /// Events and options.
    pub mask: FileEvents,
    /// Options that do not keep a mark when nothing else is left.
    pub weightless: FileEvents,
}

/// Adds to a group's mark on an object, which is made if there is none.
///
/// # Errors
/// `ENOSPC` when the user has too many marks; `EEXIST` when the mark has flags that cannot be taken back.
pub fn add(group: &Arc<Group>, object: Object, change: Change) -> Result<(), Errno> {
    let mut registry = REGISTRY.lock();
    let registry = &mut *registry;
    let marks = tree::get_or_insert(&mut registry.by_object, object, Vec::new);
    if let Some(mark) = marks.iter_mut().find(|mark| mark.is_of(group)) {
        may_update(mark, change.flags)?;
        enlarge(mark, change);
        return Ok(());
    }
    let usage = tree::get_or_insert(&mut registry.users, group.user, Usage::default);
    let is_limited = !group.flags.contains(InitFlags::UNLIMITED_MARKS);
    let is_full = is_limited && usage.marks >= LIMITS.marks.load(Ordering::Relaxed);
    if is_full || marks.try_reserve(1).is_err() {
        if marks.is_empty() {
            registry.by_object.remove(&object);
        }
        return Err(if is_full { Errno::ENOSPC } else { Errno::ENOMEM });
    }
    usage.marks += 1;
    let mut mark = Mark {
        group: Arc::downgrade(group),
        user: group.user,
        wanted: FileEvents::empty(),
        ignored: FileEvents::empty(),
        flags: change.flags & MarkFlags::EVICTABLE,
    };
    enlarge(&mut mark, change);
    marks.push(mark);
    MARKS.fetch_add(1, Ordering::Relaxed);
    super::super::MARKS.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

fn may_update(mark: &Mark, flags: MarkFlags) -> Result<(), Errno> {
    let survives = MarkFlags::IGNORED_SURV_MODIFY;
    let becomes_evictable =
        flags.contains(MarkFlags::EVICTABLE) && !mark.flags.contains(MarkFlags::EVICTABLE);
    let loses_options =
        flags.contains(MarkFlags::IGNORED_MASK) && mark.flags.contains(MarkFlags::IGNORE);
    let survives_no_more = flags.contains(MarkFlags::IGNORE)
        && !flags.contains(survives)
        && mark.flags.contains(survives);
    let is_refused = becomes_evictable || loses_options || survives_no_more;
    if is_refused { Err(Errno::EEXIST) } else { Ok(()) }
}

fn enlarge(mark: &mut Mark, Change { flags, mask, .. }: Change) {
    if flags.intersects(MarkFlags::IGNORES) {
        mark.ignored |= mask;
        mark.flags |= flags & (MarkFlags::IGNORED_SURV_MODIFY | MarkFlags::IGNORE);
    } else {
        let asked_before = mark.wanted.intersects(FileEvents::PERMISSIONS);
        mark.wanted |= mask;
        let asks = mark.wanted.intersects(FileEvents::PERMISSIONS);
        ASKING.fetch_add(usize::from(asks && !asked_before), Ordering::Relaxed);
    }
    if !flags.contains(MarkFlags::EVICTABLE) {
        mark.flags -= MarkFlags::EVICTABLE;
    }
}

/// Takes from a group's mark on an object, which ends when nothing is left of it.
///
/// # Errors
/// `ENOENT` when there is none.
pub fn remove(group: &Group, object: Object, change: Change) -> Result<(), Errno> {
    let mut registry = REGISTRY.lock();
    let marks = registry.by_object.get_mut(&object).ok_or(Errno::ENOENT)?;
    let mark = marks.iter_mut().find(|mark| mark.is_of(group)).ok_or(Errno::ENOENT)?;
    let taken = change.mask - change.weightless;
    if change.flags.intersects(MarkFlags::IGNORES) {
        mark.ignored -= taken;
    } else {
        let asked_before = mark.wanted.intersects(FileEvents::PERMISSIONS);
        mark.wanted -= taken;
        let asks = mark.wanted.intersects(FileEvents::PERMISSIONS);
        ASKING.fetch_sub(usize::from(asked_before && !asks), Ordering::Relaxed);
    }
    if (mark.wanted | mark.ignored) - change.weightless == FileEvents::empty() {
        registry.end(|other, mark| *other == object && mark.is_of(group));
    }
    Ok(())
}

/// Ends all marks of a group on objects of one kind.
pub fn flush(group: &Group, kind: MarkFlags) {
    REGISTRY.lock().end(|object, mark| object.kind() == kind && mark.is_of(group));
}

pub(super) fn end_group(group: &Group) {
    let mut registry = REGISTRY.lock();
    registry.end(|_, mark| mark.is_of(group));
    if let Some(usage) = registry.users.get_mut(&group.user) {
        usage.groups = usage.groups.saturating_sub(1);
        if usage.groups == 0 && usage.marks == 0 {
            registry.users.remove(&group.user);
        }
    }
}

/// Ends the marks on an inode that is gone.
pub(super) fn inode_gone(id: InodeId) {
    let mut registry = REGISTRY.lock();
    if registry.by_object.contains_key(&Object::Inode(id)) {
        registry.end(|object, _| *object == Object::Inode(id));
    }
}

/// Ends the marks in a file system that is not mounted any more.
pub(super) fn file_system_gone(device: u64) {
    REGISTRY.lock().end(|object, _| match object {
        Object::Inode(id) => id.device == device,
        Object::FileSystem(of) => *of == device,
        Object::Mount(_) => false,
    });
}

/// The marks of a group.
pub(super) fn of_group(group: &Group) -> Vec<(Object, Mark)> {
    let registry = REGISTRY.lock();
    let mut found = Vec::new();
    for (object, marks) in &registry.by_object {
        found.extend(
            marks.iter().filter(|mark| mark.is_of(group)).map(|mark| (*object, mark.clone())),
        );
    }
    found
}

impl Registry {
    /// Ends the marks that are meant.
    fn end(&mut self, is_meant: impl Fn(&Object, &Mark) -> bool) {
        let Registry { by_object, users } = self;
        by_object.retain(|object, marks| {
            marks.retain(|mark| {
                let ends = is_meant(object, mark);
                if ends {
                    MARKS.fetch_sub(1, Ordering::Relaxed);
                    super::super::MARKS.fetch_sub(1, Ordering::Relaxed);
                    let asks = mark.wanted.intersects(FileEvents::PERMISSIONS);
                    ASKING.fetch_sub(usize::from(asks), Ordering::Relaxed);
                    if let Some(usage) = users.get_mut(&mark.user) {
                        usage.marks = usage.marks.saturating_sub(1);
                    }
                }
                !ends
            });
            !marks.is_empty()
        });
    }
}
