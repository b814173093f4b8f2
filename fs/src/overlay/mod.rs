//! Directories shown as one tree: an upper one, in memory, that takes all changes, over lower ones that are only read.
//!
//! ```text
//!  lookup ── upper: there? ── a file, or an opaque directory ──> that        a whiteout ──> ENOENT
//!     │                  └─ a directory ──> merged with those below
//!     └── the lower ones, from the top down, in the same way
//! ```
//!
//! A lower file is copied up when it is opened for writing or changed, with its attributes and extended attributes. A name that is
//! taken away and that a lower directory has is hidden by a whiteout, a character device 0:0 in the upper directory; a directory
//! made in place of a hidden one gets the attribute `trusted.overlay.opaque`. That is Linux's format: its layers can be mounted
//! here. A node with anything in the upper layer stays as long as its name does, so inode numbers do not change by a copy.
//!
//! Locks: the state of a node, and the table of nodes, for short steps; never while a layer is asked.
//!
//! Left out: upper layers on disks and shares, where each change has to be waited for; moving a directory that has a part in a
//! lower layer (`EXDEV`, as on Linux without `redirect_dir`, so `mv` copies it), exchanging names.

mod copy;
mod inode;
mod layers;

pub use layers::{Layers, check_option};

use crate::inode::{
    FileSystem, FileSystemStatistics, Inode, NewContent, NewNode, anonymous_device,
};
use crate::listing::{Entry, Listing};
use crate::metadata::{InodeId, NodeKind};
use crate::mount::{Location, Mount};
use crate::tmpfs::TmpFs;
use abi::Errno;
use abi::fs::XattrFlags;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use base::heap::tree;
use base::sync::{Mutex, Once, rank};
use core::sync::atomic::AtomicI32;

/// Magic number of the type.
const MAGIC: i64 = 0x794c_7630;
/// Inode numbers of what exists in the upper layer only begin here.
const FIRST_OWN_NUMBER: u64 = 1 << 61;
/// Bit of inode numbers where the number of the lower layer's device begins.
const DEVICE_SHIFT: u32 = 48;

/// The extended attribute of a directory that shows nothing of what lies below.
const OPAQUE: &[u8] = b"trusted.overlay.opaque";

type AnyInode = Arc<dyn Inode>;

struct Shared {
    device: u64,
    /// Devices of the lower layers, each once.
    devices: Vec<u64>,
    nodes: Mutex<Table>,
}

/// Nodes that exist, by the inodes that they show.
#[derive(Default)]
struct Table {
    by_lower: BTreeMap<InodeId, Weak<Node>>,
    by_upper: BTreeMap<InodeId, Weak<Node>>,
}

/// An inode as both layers together show it.
pub struct Node {
    shared: Arc<Shared>,
    itself: Weak<Node>,
    number: u64,
    kind: NodeKind,
    /// From the top down: of a directory all that are merged, of others one.
    lowers: Vec<AnyInode>,
    upper: Once<AnyInode>,
    writers: AtomicI32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    parent: Option<Arc<Node>>,
    name: Arc<[u8]>,
    is_removed: bool,
    /// Directory: nodes of its names that have something in the upper layer.
    kept: BTreeMap<Arc<[u8]>, Arc<Node>>,
    listing: Listing,
    /// The copy that is being made, and how many bytes it has.
    copy: Option<(AnyInode, u64)>,
    is_copying: bool,
}

/// See the module.
pub struct OverlayFs {
    layers: Layers,
    shared: Arc<Shared>,
    root: Arc<Node>,
}

impl OverlayFs {
    /// Shows `upper`, which must be empty, over `lower`.
    pub fn new(lower: &Arc<dyn FileSystem>, upper: Arc<TmpFs>) -> Arc<OverlayFs> {
        let upper: Arc<dyn FileSystem> = upper;
        let place = |file_system: &Arc<dyn FileSystem>| {
            Location::root_of(&Mount::detached(file_system.clone(), "none", 0))
        };
        let lowers = core::iter::once(place(lower)).collect();
        let options = String::from(",lowerdir=host");
        OverlayFs::of(Layers { lowers, upper: Some(place(&upper)), options })
    }

    /// Shows these layers.
    pub fn of(layers: Layers) -> Arc<OverlayFs> {
        let mut devices: Vec<u64> = Vec::new();
        for lower in &layers.lowers {
            let device = lower.inode.id().device;
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        let shared = Arc::new(Shared {
            device: anonymous_device(),
            devices,
            nodes: Mutex::new(&rank::REMOTE_FILES, Table::default()),
        });
        let lowers = layers.lowers.iter().map(|lower| lower.inode.clone()).collect();
        let upper = layers.upper.as_ref().map(|upper| upper.inode.clone());
        let root = shared.node(lowers, upper);
        Arc::new(OverlayFs { layers, shared, root })
    }
}

impl FileSystem for OverlayFs {
    fn type_name(&self) -> &'static str {
        "overlay"
    }

    fn device(&self) -> u64 {
        self.shared.device
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }

    fn statistics(&self) -> FileSystemStatistics {
        let below = self.layers.upper.as_ref().or(self.layers.lowers.first());
        let none = FileSystemStatistics {
            magic: MAGIC,
            block_size: 4096,
            blocks: 0,
            free_blocks: 0,
            inodes: 0,
            free_inodes: 0,
        };
        let statistics = below.map_or(none, |layer| layer.mount.file_system().statistics());
        FileSystemStatistics { magic: MAGIC, ..statistics }
    }

    fn is_read_only(&self) -> bool {
        self.layers.upper.is_none()
    }

    fn set_read_only(&self, is_read_only: bool) -> Result<(), Errno> {
        if is_read_only || self.layers.upper.is_some() { Ok(()) } else { Err(Errno::EROFS) }
    }

    fn options(&self) -> String {
        self.layers.options.clone()
    }
}

impl Shared {
    /// The node that shows these.
    fn node(self: &Arc<Shared>, lowers: Vec<AnyInode>, upper: Option<AnyInode>) -> Arc<Node> {
        let lower_id = lowers.first().map(|inode| inode.id());
        let upper_id = upper.as_ref().map(|inode| inode.id());
        let known = {
            let table = self.nodes.lock();
            let by_upper = upper_id.and_then(|id| table.by_upper.get(&id)?.upgrade());
            by_upper.or_else(|| lower_id.and_then(|id| table.by_lower.get(&id)?.upgrade()))
        };
        if let Some(node) = known {
            return node;
        }
        let kind = upper.as_ref().or(lowers.first()).map_or(NodeKind::Anonymous, |i| i.kind());
        let number = match (lower_id, upper_id) {
            (Some(id), _) => self.number_of(id),
            (None, Some(id)) => FIRST_OWN_NUMBER + id.number,
            (None, None) => FIRST_OWN_NUMBER,
        };
        let node = Arc::new_cyclic(|itself: &Weak<Node>| Node {
            shared: self.clone(),
            itself: itself.clone(),
            number,
            kind,
            lowers,
            upper: Once::new(),
            writers: AtomicI32::new(0),
            state: Mutex::new(&rank::INODE, State::default()),
        });
        if let Some(upper) = upper {
            // The node is fresh.
            let _ = node.upper.set(upper);
        }
        let mut table = self.nodes.lock();
        if let Some(id) = lower_id {
            tree::insert(&mut table.by_lower, id, Arc::downgrade(&node));
        }
        if let Some(id) = upper_id {
            tree::insert(&mut table.by_upper, id, Arc::downgrade(&node));
        }
        drop(table);
        node
    }
}

impl Shared {
    /// The number here of an inode of a lower layer.
    fn number_of(&self, id: InodeId) -> u64 {
        let index = self.devices.iter().position(|device| *device == id.device);
        id.number ^ (index.unwrap_or(self.devices.len()) as u64) << DEVICE_SHIFT
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let is_gone = |node: Option<&Weak<Node>>| node.is_some_and(|node| node.strong_count() == 0);
        let mut table = self.shared.nodes.lock();
        if let Some(id) = self.lowers.first().map(|inode| inode.id())
            && is_gone(table.by_lower.get(&id))
        {
            table.by_lower.remove(&id);
        }
        if let Some(id) = self.upper.get().map(|inode| inode.id())
            && is_gone(table.by_upper.get(&id))
        {
            table.by_upper.remove(&id);
        }
        drop(table);
        // A long path is let go of without recursion.
        let mut above = self.state.get_mut().parent.take();
        while let Some(mut parent) = above.and_then(Arc::into_inner) {
            above = parent.state.get_mut().parent.take();
        }
    }
}

impl Node {
    fn me(&self) -> Result<Arc<Node>, Errno> {
        self.itself.upgrade().ok_or(Errno::EIO)
    }

    fn own_id(&self) -> InodeId {
        InodeId { device: self.shared.device, number: self.number }
    }

    /// The inode that shows now what this one is.
    fn shown(&self) -> Result<&AnyInode, Errno> {
        self.upper.get().or(self.lowers.first()).ok_or(Errno::EIO)
    }

    fn sibling(&self, other: &AnyInode) -> Result<Arc<Node>, Errno> {
        let node = other.as_any().downcast_ref::<Node>().ok_or(Errno::EXDEV)?;
        if node.shared.device == self.shared.device { node.me() } else { Err(Errno::EXDEV) }
    }

    fn placed(&self, parent: &Arc<Node>, name: &[u8]) {
        let mut state = self.state.lock();
        let old = state.parent.replace(parent.clone());
        (state.name, state.is_removed) = (Arc::from(name), false);
        drop(state);
        drop(old);
    }

    /// What the upper layer has under a name, be it a whiteout.
    fn in_upper(&self, name: &[u8]) -> Result<Option<AnyInode>, Errno> {
        let Some(upper) = self.upper.get() else { return Ok(None) };
        found(upper.lookup(name))
    }

    /// What the lower layers show under a name: all directories that are merged, or one of something else.
    fn in_lower(&self, name: &[u8]) -> Result<Vec<AnyInode>, Errno> {
        let mut shown: Vec<AnyInode> = Vec::new();
        for (index, lower) in self.lowers.iter().enumerate() {
            let Some(inode) = found(lower.lookup(name))? else { continue };
            let is_directory = inode.kind() == NodeKind::Directory;
            if is_whiteout(&inode) || (!is_directory && !shown.is_empty()) {
                break;
            }
            let is_last = index + 1 == self.lowers.len();
            let ends = !is_directory || is_last || is_opaque(&inode)?;
            shown.push(inode);
            if ends {
                break;
            }
        }
        Ok(shown)
    }

    fn look_up(self: &Arc<Node>, name: &[u8]) -> Result<Arc<Node>, Errno> {
        if self.kind != NodeKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let upper = self.in_upper(name)?;
        if upper.as_ref().is_some_and(is_whiteout) {
            return Err(Errno::ENOENT);
        }
        if let Some(inode) = &upper {
            let known = self.shared.nodes.lock().by_upper.get(&inode.id()).and_then(Weak::upgrade);
            if let Some(node) = known {
                return Ok(node);
            }
        }
        let lowers = match &upper {
            Some(inode) if inode.kind() != NodeKind::Directory || is_opaque(inode)? => Vec::new(),
            Some(_) => {
                let mut lowers = self.in_lower(name)?;
                // What is no directory is hidden by one.
                lowers.retain(|inode| inode.kind() == NodeKind::Directory);
                lowers
            }
            None => self.in_lower(name)?,
        };
        if upper.is_none() && lowers.is_empty() {
            return Err(Errno::ENOENT);
        }
        let node = self.shared.node(lowers, upper);
        node.placed(self, name);
        Ok(node)
    }

    fn expected(self: &Arc<Node>, name: &[u8], expected: InodeId) -> Result<Arc<Node>, Errno> {
        let node = self.look_up(name)?;
        if node.own_id() == expected { Ok(node) } else { Err(Errno::ESTALE) }
    }

    /// It has something in the upper layer now, and stays as long as its name.
    fn risen(self: &Arc<Node>, upper: AnyInode) -> Result<(), Errno> {
        let id = upper.id();
        // Somebody else may have been as fast; then his copy stays.
        if self.upper.set(upper).is_ok() {
            tree::insert(&mut self.shared.nodes.lock().by_upper, id, Arc::downgrade(self));
        }
        let (parent, name) = {
            let state = self.state.lock();
            (state.parent.clone(), state.name.clone())
        };
        if let Some(parent) = parent {
            tree::insert(&mut parent.state.lock().kept, name, self.clone());
        }
        Ok(())
    }

    /// All names that the directory shows.
    fn merged(&self) -> Result<Vec<Entry>, Errno> {
        let mut names: BTreeMap<Arc<[u8]>, Entry> = BTreeMap::new();
        // From the bottom up: what lies above hides what lies below.
        for lower in self.lowers.iter().rev() {
            let number = |number| self.shared.number_of(InodeId { number, ..lower.id() });
            collect(lower, &mut names, number)?;
        }
        if let Some(upper) = self.upper.get() {
            collect(upper, &mut names, |number| FIRST_OWN_NUMBER + number)?;
        }
        let kept: Vec<_> = {
            let state = self.state.lock();
            state.kept.iter().map(|(name, node)| (name.clone(), node.number)).collect()
        };
        for (name, number) in kept {
            if let Some(entry) = names.get_mut(&name) {
                entry.number = number;
            }
        }
        Ok(names.into_values().collect())
    }

    /// Takes a name away: from the upper layer, and from what shows of the lower ones.
    fn take_away(self: &Arc<Node>, name: &[u8], node: &Arc<Node>) -> Result<(), Errno> {
        let has_lower = !self.in_lower(name)?.is_empty();
        let directory = self.upper_directory()?;
        if let Some(inode) = self.in_upper(name)? {
            if node.kind == NodeKind::Directory {
                remove_whiteouts(&inode)?;
                directory.remove_directory(name, inode.id())?;
            } else {
                directory.unlink(name, inode.id())?;
            }
        }
        if has_lower {
            make_whiteout(&directory, name)?;
        }
        let kept = self.state.lock().kept.remove(name);
        drop(kept);
        node.state.lock().is_removed = true;
        Ok(())
    }

    /// A new directory of the upper layer shows nothing of what the lower ones have under its name.
    fn hide_below(&self, name: &[u8], upper: &AnyInode) -> Result<(), Errno> {
        let below = self.in_lower(name)?;
        if !below.first().is_some_and(|inode| inode.kind() == NodeKind::Directory) {
            return Ok(());
        }
        let store = upper.extended().ok_or(Errno::EOPNOTSUPP)?;
        store.set(OPAQUE, Some(b"y"), XattrFlags::empty())
    }

    fn check_empty(&self) -> Result<(), Errno> {
        if self.merged()?.is_empty() { Ok(()) } else { Err(Errno::ENOTEMPTY) }
    }

    fn remove(&self, name: &[u8], expected: InodeId, is_directory: bool) -> Result<(), Errno> {
        let me = self.me()?;
        let node = me.expected(name, expected)?;
        if is_directory {
            node.check_empty()?;
        }
        me.take_away(name, &node)
    }

    /// Keeps the node of a name that leads to something in the upper layer.
    fn keep(self: &Arc<Node>, name: &[u8], node: &Arc<Node>) {
        node.placed(self, name);
        let old = tree::insert(&mut self.state.lock().kept, Arc::from(name), node.clone());
        drop(old);
    }
}

/// What a lookup in a layer found.
fn found(result: Result<AnyInode, Errno>) -> Result<Option<AnyInode>, Errno> {
    match result {
        Ok(inode) => Ok(Some(inode)),
        Err(Errno::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an inode of a layer hides what lies below.
fn is_whiteout(inode: &AnyInode) -> bool {
    inode.kind() == NodeKind::CharacterDevice && inode.metadata().represented_device == 0
}

/// Whether a directory of a layer hides what lies below.
fn is_opaque(inode: &AnyInode) -> Result<bool, Errno> {
    let Some(store) = inode.extended() else { return Ok(false) };
    match store.get(OPAQUE) {
        Ok(value) => Ok(*value == *b"y"),
        Err(Errno::EIOCBQUEUED) => Err(Errno::EIOCBQUEUED),
        Err(_) => Ok(false),
    }
}

fn make_whiteout(directory: &AnyInode, name: &[u8]) -> Result<(), Errno> {
    let content = NewContent::CharacterDevice(0);
    directory.create(name, &NewNode { content, mode: 0, user: 0, group: 0 }).map(|_| ())
}

/// Removes all whiteouts from a directory of the upper layer that shows nothing.
fn remove_whiteouts(directory: &AnyInode) -> Result<(), Errno> {
    let mut names: Vec<Arc<[u8]>> = Vec::new();
    directory.read_directory(0, &mut |entry| {
        if entry.kind == NodeKind::CharacterDevice {
            names.push(Arc::from(entry.name));
        }
        true
    })?;
    for name in names {
        let inode = directory.lookup(&name)?;
        if is_whiteout(&inode) {
            directory.unlink(&name, inode.id())?;
        }
    }
    Ok(())
}

/// Adds what a directory of a layer has to the names of those below, and takes away what it hides.
fn collect(
    directory: &AnyInode,
    names: &mut BTreeMap<Arc<[u8]>, Entry>,
    number: impl Fn(u64) -> u64,
) -> Result<(), Errno> {
    let mut devices: Vec<Arc<[u8]>> = Vec::new();
    directory.read_directory(0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            let name: Arc<[u8]> = Arc::from(entry.name);
            if entry.kind == NodeKind::CharacterDevice {
                devices.push(name.clone());
            }
            let entry =
                Entry { name: name.clone(), number: number(entry.number), kind: entry.kind };
            tree::insert(names, name, entry);
        }
        true
    })?;
    for name in devices {
        if found(directory.lookup(&name))?.as_ref().is_some_and(is_whiteout) {
            names.remove(&name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
