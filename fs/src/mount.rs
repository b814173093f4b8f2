//! The tree of mounts: which file system is seen where.
//!
//! A `Location` is an inode as seen through a mount: the same inode may be seen through several
//! (bind mounts). There may be several trees (mount namespaces), each with a topmost mount that is attached
//! nowhere; a process sees the part of its tree that is under its root.
//!
//! All links between mounts live in one table under one lock (`TREE`); a mount itself holds only its
//! flags and the number of mounts on it, so that walking through directories that nothing is mounted
//! on takes no lock.

mod display;
mod frozen;
mod pivot;

pub use display::{MountLine, display_path, find_device, list, path_of};
pub use frozen::{freeze, has_writers};
pub use pivot::pivot;

use crate::inode::{FileSystem, Inode};
use crate::metadata::{InodeId, NodeKind};
use crate::notify;
use abi::Errno;
use abi::fs::mount::*;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::heap::tree;
use base::sync::{RwLock, rank};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use frozen::FROZEN;

/// One file system (or a part of it), seen at one place.
pub struct Mount {
    id: u64,
    file_system: Arc<dyn FileSystem>,
    root: Arc<dyn Inode>,
    source: String,
    flags: AtomicU64,
    mounts_on_it: AtomicUsize,
    /// Open files that may write to regular files through it.
    writers: AtomicUsize,
    /// It is the top of a tree that a descriptor holds and that is attached nowhere.
    is_loose: AtomicBool,
    /// 0, or 1 and how often it was entered since `umount2` marked it as unused.
    expiry: AtomicU32,
}

/// An inode as seen through a mount.
#[derive(Clone)]
pub struct Location {
    /// The mount.
    pub mount: Arc<Mount>,
    /// The inode.
    pub inode: Arc<dyn Inode>,
}

/// How access times are kept.
enum AccessTimes {
    /// Not at all.
    Never,
    /// When the last one is older than the last change, or than a day (`relatime`).
    WhenOld,
    /// With every access.
    Always,
}

/// Where a mount is attached.
struct Attachment {
    parent: Arc<Mount>,
    place: Arc<dyn Inode>,
    child: Arc<Mount>,
}

/// All attachments, by id of the child, and the children by where they are attached. The topmost of
/// several mounts on one place is attached to the root of the one below it.
struct Tree {
    by_child: BTreeMap<u64, Attachment>,
    by_place: BTreeMap<(u64, InodeId), u64>,
    /// The topmost mount of the first tree.
    root: Option<Arc<Mount>>,
}

static TREE: RwLock<Tree> = RwLock::new(
    &rank::MOUNTS,
    Tree { by_child: BTreeMap::new(), by_place: BTreeMap::new(), root: None },
);

/// Mount flags that a remount can change and that `statfs` shows.
const FLAG_MASK: u64 = MS_RDONLY
    | MS_NOSUID
    | MS_NODEV
    | MS_NOEXEC
    | MS_NOSYMFOLLOW
    | MS_NOATIME
    | MS_NODIRATIME
    | MS_RELATIME
    | MS_STRICTATIME;

impl Mount {
    /// A mount of a file system that is attached nowhere: the root of a tree, or the invisible home
    /// of pipes.
    pub fn detached(file_system: Arc<dyn FileSystem>, source: &str, flags: u64) -> Arc<Mount> {
        let root = file_system.root();
        let frozen = if file_system.is_read_only() { FROZEN } else { 0 };
        Mount::of_part(file_system, root, source, flags | frozen)
    }

    fn of_part(
        file_system: Arc<dyn FileSystem>,
        root: Arc<dyn Inode>,
        source: &str,
        flags: u64,
    ) -> Arc<Mount> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Mount {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            file_system,
            root,
            source: String::from(source),
            flags: AtomicU64::new(flags & (FLAG_MASK | FROZEN)),
            mounts_on_it: AtomicUsize::new(0),
            writers: AtomicUsize::new(0),
            is_loose: AtomicBool::new(false),
            expiry: AtomicU32::new(0),
        })
    }

    /// Its number, unique.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The file system that it shows.
    pub fn file_system(&self) -> &Arc<dyn FileSystem> {
        &self.file_system
    }

    /// The inode that it shows at its place.
    pub fn root(&self) -> &Arc<dyn Inode> {
        &self.root
    }

    /// The `MS_` flags in force.
    pub fn flags(&self) -> u64 {
        match self.flags.load(Ordering::Relaxed) {
            flags if flags & FROZEN != 0 => flags & FLAG_MASK | MS_RDONLY,
            flags => flags,
        }
    }

    /// Whether nothing may be changed through it.
    pub fn is_read_only(&self) -> bool {
        self.flags() & MS_RDONLY != 0
    }

    /// Whether its file system takes no changes, through whatever mount.
    pub fn is_frozen(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & FROZEN != 0
    }

    /// How reading through it updates access times.
    fn access_times(&self, kind: NodeKind) -> AccessTimes {
        let flags = self.flags();
        let is_spared = flags & MS_NODIRATIME != 0 && kind == NodeKind::Directory;
        if flags & MS_RDONLY != 0 || is_spared {
            AccessTimes::Never
        } else if flags & MS_STRICTATIME != 0 {
            AccessTimes::Always
        } else if flags & MS_NOATIME != 0 {
            AccessTimes::Never
        } else {
            AccessTimes::WhenOld
        }
    }

    /// `EROFS` when nothing may be changed through it.
    pub fn check_writable(&self) -> Result<(), Errno> {
        if self.is_read_only() { Err(Errno::EROFS) } else { Ok(()) }
    }

    /// Changes the flags by a remount.
    pub fn set_flags(&self, flags: u64) {
        let change = |old: u64| Some(old & FROZEN | flags & FLAG_MASK);
        // The change is always possible.
        let _ = self.flags.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// Somebody opens a regular file for writing through it.
    pub(crate) fn add_writer(&self) {
        self.writers.fetch_add(1, Ordering::Relaxed);
    }

    /// Such a file was closed.
    pub(crate) fn remove_writer(&self) {
        self.writers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a regular file is open for writing through it.
    pub fn has_writers(&self) -> bool {
        self.writers.load(Ordering::Relaxed) > 0
    }

    /// It and what is mounted in it, from the top down.
    pub fn tree(self: &Arc<Mount>) -> Vec<Arc<Mount>> {
        let mut mounts: Vec<Arc<Mount>> = Vec::new();
        mounts.push(self.clone());
        let mut next = 0;
        while let Some(mount) = mounts.get(next).cloned() {
            next += 1;
            mounts.extend(mount.children().into_iter().map(|(_, child)| child));
        }
        mounts
    }

    /// Number of the topmost mount of the tree that it is in.
    fn top(self: &Arc<Mount>) -> u64 {
        let mut here = self.clone();
        while let Some(place) = here.attached_at() {
            here = place.mount;
        }
        here.id
    }

    /// Marks it as one that nobody uses. True when it was marked before and entered only once since,
    /// by who asks now.
    fn mark_unused(&self) -> bool {
        self.expiry.swap(1, Ordering::Relaxed) == 2
    }
}

impl Location {
    /// The root of a mount.
    pub fn root_of(mount: &Arc<Mount>) -> Location {
        Location { mount: mount.clone(), inode: mount.root.clone() }
    }

    /// It was read: notes the time of access as the mount says.
    pub fn note_access(&self) {
        match self.mount.access_times(self.inode.kind()) {
            AccessTimes::Never => {}
            AccessTimes::WhenOld => self.inode.note_access(false),
            AccessTimes::Always => self.inode.note_access(true),
        }
    }

    /// Whether both are the same inode seen through the same mount.
    pub fn is_same(&self, other: &Location) -> bool {
        self.mount.id == other.mount.id && self.inode.id() == other.inode.id()
    }

    /// Whether it is what its mount shows at its place.
    pub fn is_mount_root(&self) -> bool {
        self.inode.id() == self.mount.root.id()
    }

    /// Goes down into what is mounted here, if anything is.
    pub fn descend(self) -> Location {
        if self.mount.mounts_on_it.load(Ordering::Acquire) == 0 {
            return self;
        }
        let tree = TREE.read();
        let mut here = self;
        while let Some(child) = tree.mounted_at(&here) {
            if child.expiry.load(Ordering::Relaxed) != 0 {
                child.expiry.fetch_add(1, Ordering::Relaxed);
            }
            here = Location::root_of(child);
        }
        here
    }

    /// Whether something is mounted here.
    pub fn is_mount_point(&self) -> bool {
        self.mount.mounts_on_it.load(Ordering::Acquire) > 0
            && TREE.read().mounted_at(self).is_some()
    }

    /// The directory that holds this one, not past `root`; what is mounted there hides it.
    pub fn parent_within(&self, root: &Location) -> Location {
        let mut here = self.clone();
        while !here.is_same(root) {
            if here.is_mount_root() {
                match here.mount.attached_at() {
                    Some(place) => here = place,
                    None => return here,
                }
            } else {
                return match here.inode.parent() {
                    Some(inode) => Location { mount: here.mount, inode }.descend(),
                    None => here,
                };
            }
        }
        here
    }
}

impl Mount {
    /// Where it is attached.
    pub fn attached_at(&self) -> Option<Location> {
        TREE.read().by_child.get(&self.id).map(|attachment| Location {
            mount: attachment.parent.clone(),
            inode: attachment.place.clone(),
        })
    }
}

impl Tree {
    fn mounted_at(&self, place: &Location) -> Option<&Arc<Mount>> {
        let child = self.by_place.get(&(place.mount.id, place.inode.id()))?;
        self.by_child.get(child).map(|attachment| &attachment.child)
    }

    fn attach(&mut self, at: &Location, child: Arc<Mount>) {
        let attachment =
            Attachment { parent: at.mount.clone(), place: at.inode.clone(), child: child.clone() };
        tree::insert(&mut self.by_child, child.id, attachment);
        tree::insert(&mut self.by_place, (at.mount.id, at.inode.id()), child.id);
        at.mount.mounts_on_it.fetch_add(1, Ordering::Release);
    }

    fn detach(&mut self, child: u64) -> Option<Attachment> {
        let attachment = self.by_child.remove(&child)?;
        self.by_place.remove(&(attachment.parent.id, attachment.place.id()));
        attachment.parent.mounts_on_it.fetch_sub(1, Ordering::Release);
        Some(attachment)
    }
}

/// Mounts a file system on a directory (or on what is mounted there last).
pub fn mount(
    at: &Location,
    file_system: Arc<dyn FileSystem>,
    source: &str,
    flags: u64,
) -> Result<Arc<Mount>, Errno> {
    let child = Mount::detached(file_system, source, flags);
    attach_topmost(at, child.clone());
    Ok(child)
}

/// Shows the tree under `from` also at `at`, with the mounts in it when `recursive`.
pub fn bind(at: &Location, from: &Location, recursive: bool) -> Result<Arc<Mount>, Errno> {
    let child = copy(from, recursive);
    child.is_loose.store(false, Ordering::Relaxed);
    attach_topmost(at, child.clone());
    Ok(child)
}

/// A file system mounted nowhere yet: to be kept by a `LooseTree`.
pub fn loose(file_system: Arc<dyn FileSystem>, source: &str, flags: u64) -> Arc<Mount> {
    let mount = Mount::detached(file_system, source, flags);
    mount.is_loose.store(true, Ordering::Relaxed);
    mount
}

/// A copy of the tree of mounts under `from`, attached nowhere: to be kept by a `LooseTree`.
pub fn copy(from: &Location, recursive: bool) -> Arc<Mount> {
    let pairs = copy_pairs(from, recursive);
    // The first pair is that of the top.
    let top = pairs.first().map(|(_, twin)| twin.clone());
    top.unwrap_or_else(|| from.mount.clone())
}

/// Mounts, each with its copy.
pub type Copies = Vec<(Arc<Mount>, Arc<Mount>)>;

/// A copy of a whole tree, as the one of another namespace, for `end_tree`; and each mount with its copy.
pub fn copy_tree(top: &Arc<Mount>) -> (Arc<Mount>, Copies) {
    let pairs = copy_pairs(&Location::root_of(top), true);
    let copied = pairs.first().map_or_else(|| top.clone(), |(_, twin)| twin.clone());
    copied.is_loose.store(false, Ordering::Relaxed);
    (copied, pairs)
}

/// The mounts of a tree that `copy_tree` made end; who still uses one keeps it, detached.
pub fn end_tree(top: &Arc<Mount>) {
    let below = top.tree();
    let mut tree = TREE.write();
    let removed: Vec<Option<Attachment>> =
        below.iter().map(|mount| tree.detach(mount.id)).collect();
    drop(tree);
    drop(removed);
}

/// Copies a mount, and with `recursive` those below `from`. Each with its copy, the top first.
fn copy_pairs(from: &Location, recursive: bool) -> Copies {
    let copy = |location: &Location| {
        Mount::of_part(
            location.mount.file_system.clone(),
            location.inode.clone(),
            &location.mount.source,
            location.mount.flags.load(Ordering::Relaxed),
        )
    };
    let child = copy(from);
    child.is_loose.store(true, Ordering::Relaxed);
    let mut originals: Copies = Vec::new();
    originals.push((from.mount.clone(), child));
    if recursive {
        let mut next = 0;
        while let Some((original, twin)) = originals.get(next).cloned() {
            next += 1;
            for (place, below) in original.children() {
                let under = original.id != from.mount.id || is_below(&place, &from.inode);
                if under {
                    let below_twin = copy(&Location::root_of(&below));
                    let at = Location { mount: twin.clone(), inode: place };
                    TREE.write().attach(&at, below_twin.clone());
                    originals.push((below, below_twin));
                }
            }
        }
    }
    originals
}

/// The descriptor of a tree that was attached nowhere is closed: the mounts in it end, unless it is
/// attached now.
pub fn dissolve(mount: &Arc<Mount>) {
    if !mount.is_loose.swap(false, Ordering::Relaxed) {
        return;
    }
    let below = mount.tree();
    let mut tree = TREE.write();
    let removed: Vec<Option<Attachment>> =
        below.iter().map(|mount| tree.detach(mount.id)).collect();
    drop(tree);
    // What ends with it ends without the lock.
    drop(removed);
}

fn attach_topmost(at: &Location, child: Arc<Mount>) {
    let mut tree = TREE.write();
    let mut top = at.clone();
    while let Some(upper) = tree.mounted_at(&top) {
        top = Location::root_of(upper);
    }
    tree.attach(&top, child);
}

/// Says which mount is the root of the first tree. Once, at boot.
pub fn set_root(mount: &Arc<Mount>) {
    TREE.write().root = Some(mount.clone());
}

/// The top of the tree that a location is in.
pub fn root_of(location: &Location) -> Location {
    let mut mount = location.mount.clone();
    while let Some(place) = mount.attached_at() {
        mount = place.mount;
    }
    Location::root_of(&mount)
}

/// The mounts of the tree that show the file system of a device number.
fn shown(tree: &Tree, device: u64) -> impl Iterator<Item = &Arc<Mount>> {
    let mounts = tree.by_child.values().map(|attachment| &attachment.child).chain(&tree.root);
    mounts.filter(move |mount| mount.file_system.device() == device)
}

/// Whether a mount in the tree shows the file system of a device number.
pub fn is_mounted(device: u64) -> bool {
    let tree = TREE.read();
    shown(&tree, device).next().is_some()
}

/// Whether an inode is, or lies below, a directory of the same file system.
pub fn is_below(inode: &Arc<dyn Inode>, directory: &Arc<dyn Inode>) -> bool {
    let mut here = inode.clone();
    loop {
        if here.id() == directory.id() {
            return true;
        }
        match here.parent() {
            Some(parent) if parent.id() != here.id() => here = parent,
            _ => return false,
        }
    }
}

impl Mount {
    fn children(&self) -> Vec<(Arc<dyn Inode>, Arc<Mount>)> {
        let tree = TREE.read();
        tree.by_child
            .values()
            .filter(|attachment| attachment.parent.id == self.id)
            .map(|attachment| (attachment.place.clone(), attachment.child.clone()))
            .collect()
    }
}

/// Moves a mount to another place, or attaches a loose tree for the first time.
///
/// # Errors
/// `EINVAL` for the root of the tree, for what was detached, and for a place outside of the tree;
/// `ELOOP` into itself.
pub fn relocate(from: &Location, at: &Location, root: &Location) -> Result<(), Errno> {
    if !from.is_mount_root() || at.mount.top() != root.mount.top() {
        return Err(Errno::EINVAL);
    }
    let mut above = Some(at.clone());
    while let Some(location) = above {
        if location.mount.id == from.mount.id {
            return Err(Errno::ELOOP);
        }
        above = location.mount.attached_at();
    }
    if from.mount.is_loose.swap(false, Ordering::Relaxed) {
        attach_topmost(at, from.mount.clone());
        return Ok(());
    }
    let mut tree = TREE.write();
    let attachment = tree.detach(from.mount.id).ok_or(Errno::EINVAL)?;
    let mut top = at.clone();
    while let Some(upper) = tree.mounted_at(&top) {
        top = Location::root_of(upper);
    }
    tree.attach(&top, attachment.child);
    Ok(())
}

/// `umount2` with `MNT_EXPIRE`: unmounts what was not used since the attempt before.
///
/// # Errors
/// `EBUSY` while it is used, `EAGAIN` when this is the first attempt or it was entered meanwhile.
pub fn expire(location: Location) -> Result<(), Errno> {
    if !location.is_mount_root() {
        return Err(Errno::EINVAL);
    }
    let Location { mount, inode } = location;
    drop(inode);
    if mount.mounts_on_it.load(Ordering::Acquire) > 0 || Arc::strong_count(&mount) > 2 {
        return Err(Errno::EBUSY);
    }
    if !mount.mark_unused() {
        return Err(Errno::EAGAIN);
    }
    let inode = mount.root.clone();
    unmount(Location { mount, inode }, false)
}

/// Detaches the mount whose root the location is. `EINVAL` when it is no mount or the root of the
/// tree, `EBUSY` while something is mounted on it or somebody is in it, unless `detach`: then it
/// disappears from the tree with all that is mounted on it and lives on until its users are gone.
pub fn unmount(location: Location, detach: bool) -> Result<(), Errno> {
    if !location.is_mount_root() {
        return Err(Errno::EINVAL);
    }
    let Location { mount, inode } = location;
    drop(inode);
    let mut removed = Vec::new();
    let mut tree = TREE.write();
    if !tree.by_child.contains_key(&mount.id) {
        return Err(Errno::EINVAL);
    }
    if !detach {
        // One reference is the tree's, one is ours.
        let is_used =
            mount.mounts_on_it.load(Ordering::Acquire) > 0 || Arc::strong_count(&mount) > 2;
        if is_used {
            return Err(Errno::EBUSY);
        }
    }
    let mut doomed = Vec::new();
    doomed.push(mount.id);
    let mut next = 0;
    while let Some(&id) = doomed.get(next) {
        next += 1;
        doomed.extend(tree.by_child.values().filter(|a| a.parent.id == id).map(|a| a.child.id));
    }
    // What may find no memory comes before anything changes.
    removed.try_reserve_exact(doomed.len()).map_err(|_| Errno::ENOMEM)?;
    for id in doomed {
        removed.extend(tree.detach(id));
    }
    // What was removed is dropped after the lock: a file system may end with it.
    let is_shown = |device: u64| {
        tree.by_child.values().any(|attachment| attachment.child.file_system.device() == device)
    };
    let unseen: Vec<u64> = removed
        .iter()
        .map(|attachment: &Attachment| attachment.child.file_system.device())
        .filter(|&device| !is_shown(device))
        .collect();
    drop(tree);
    unseen.into_iter().for_each(notify::unmounted);
    drop(removed);
    Ok(())
}

impl Mount {
    fn options_text(&self) -> String {
        let flags = self.flags();
        let mut text = String::from(if flags & MS_RDONLY != 0 { "ro" } else { "rw" });
        let named = [(MS_NOSUID, ",nosuid"), (MS_NODEV, ",nodev"), (MS_NOEXEC, ",noexec")];
        for (flag, name) in named {
            if flags & flag != 0 {
                text.push_str(name);
            }
        }
        if flags & (MS_NOATIME | MS_STRICTATIME) == MS_NOATIME {
            text.push_str(",noatime");
        }
        if flags & MS_NOSYMFOLLOW != 0 {
            text.push_str(",nosymfollow");
        }
        if flags & MS_NODIRATIME != 0 {
            text.push_str(",nodiratime");
        }
        if flags & (MS_NOATIME | MS_STRICTATIME) == 0 {
            text.push_str(",relatime");
        }
        text.push_str(&self.file_system.options());
        text
    }
}

impl core::fmt::Debug for Location {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Location(mount {}, {:?})", self.mount.id, self.inode)
    }
}
