//! A layer in memory over a tree that is only read: `ferry run --root host`.
//!
//! ```text
//!  lookup ── upper (a tmpfs): there? ──> that
//!     └── hidden by a whiteout? ──> ENOENT      └── lower: there? ──> that, seen through a node of ours
//! ```
//!
//! A file of the lower tree is copied up when it is opened for writing or changed. Directories of both are
//! merged. What is removed from the lower tree is hidden by a whiteout, which lies in the node of its
//! directory, because the upper layer does not outlive the machine; a directory made in place of a hidden
//! one shows nothing of it. A node with anything in the upper layer stays as long as its name does, so
//! inode numbers do not change by a copy.
//!
//! Locks: the state of a node, and the table of nodes, for short steps; never while a layer is asked.
//!
//! Left out: moving a directory that has a part in the lower tree (`EXDEV`, as on Linux, so `mv` copies it),
//! exchanging names, extended attributes of what was not copied.

mod inode;

use crate::identity::Identity;
use crate::inode::{
    AttributeChange, FileSystem, FileSystemStatistics, Inode, NewContent, NewNode, anonymous_device,
};
use crate::listing::{Entry, Listing};
use crate::metadata::{InodeId, Metadata, NodeKind, Permissions};
use crate::tmpfs::TmpFs;
use abi::Errno;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use base::heap::tree;
use base::sync::{Mutex, Once, rank};
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Magic number of the type.
const MAGIC: i64 = 0x794c_7630;
/// Inode numbers of what exists in the upper layer only begin here.
const FIRST_OWN_NUMBER: u64 = 1 << 61;
/// Bytes that are copied up before others get the core.
const COPY_AT_ONCE: usize = 1 << 20;

type AnyInode = Arc<dyn Inode>;

struct Shared {
    device: u64,
    next_number: AtomicU64,
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
    lower: Option<AnyInode>,
    upper: Once<AnyInode>,
    writers: AtomicI32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    parent: Option<Arc<Node>>,
    name: Arc<[u8]>,
    is_removed: bool,
    /// Directory: names of the lower one that are hidden.
    whiteouts: BTreeSet<Arc<[u8]>>,
    /// Directory: nodes of its names that have something in the upper layer.
    kept: BTreeMap<Arc<[u8]>, Arc<Node>>,
    listing: Listing,
    /// The copy that is being made, and how many bytes it has.
    copy: Option<(AnyInode, u64)>,
    is_copying: bool,
}

/// A tree in memory over one that is only read.
pub struct OverlayFs {
    upper: Arc<TmpFs>,
    shared: Arc<Shared>,
    root: Arc<Node>,
}

impl OverlayFs {
    /// Shows `upper`, which must be empty, over `lower`.
    pub fn new(lower: &Arc<dyn FileSystem>, upper: Arc<TmpFs>) -> Arc<OverlayFs> {
        let shared = Arc::new(Shared {
            device: anonymous_device(),
            next_number: AtomicU64::new(FIRST_OWN_NUMBER),
            nodes: Mutex::new(&rank::REMOTE_FILES, Table::default()),
        });
        let top: AnyInode = upper.root_node().clone();
        let root = shared.node(Some(lower.root()), Some(top));
        Arc::new(OverlayFs { upper, shared, root })
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
        FileSystemStatistics { magic: MAGIC, ..self.upper.statistics() }
    }

    fn options(&self) -> String {
        String::from(",lowerdir=host")
    }
}

impl Shared {
    /// The node that shows these.
    fn node(self: &Arc<Shared>, lower: Option<AnyInode>, upper: Option<AnyInode>) -> Arc<Node> {
        let (lower_id, upper_id) = (lower.as_ref().map(|i| i.id()), upper.as_ref().map(|i| i.id()));
        let known = {
            let table = self.nodes.lock();
            let by_upper = upper_id.and_then(|id| table.by_upper.get(&id)?.upgrade());
            by_upper.or_else(|| lower_id.and_then(|id| table.by_lower.get(&id)?.upgrade()))
        };
        if let Some(node) = known {
            return node;
        }
        let kind = upper.as_ref().or(lower.as_ref()).map_or(NodeKind::Anonymous, |i| i.kind());
        let own = || self.next_number.fetch_add(1, Ordering::Relaxed);
        let node = Arc::new_cyclic(|itself: &Weak<Node>| Node {
            shared: self.clone(),
            itself: itself.clone(),
            number: lower_id.map_or_else(own, |id| id.number),
            kind,
            lower,
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

impl Drop for Node {
    fn drop(&mut self) {
        let is_gone = |node: Option<&Weak<Node>>| node.is_some_and(|node| node.strong_count() == 0);
        let mut table = self.shared.nodes.lock();
        if let Some(id) = self.lower.as_ref().map(|inode| inode.id())
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
        self.upper.get().or(self.lower.as_ref()).ok_or(Errno::EIO)
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

    fn in_upper(&self, name: &[u8]) -> Result<Option<AnyInode>, Errno> {
        let Some(upper) = self.upper.get() else { return Ok(None) };
        match upper.lookup(name) {
            Ok(inode) => Ok(Some(inode)),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the lower tree has under a name that is not hidden.
    fn in_lower(&self, name: &[u8]) -> Result<Option<AnyInode>, Errno> {
        let Some(lower) = &self.lower else { return Ok(None) };
        if self.state.lock().whiteouts.contains(name) {
            return Ok(None);
        }
        match lower.lookup(name) {
            Ok(inode) => Ok(Some(inode)),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn look_up(self: &Arc<Node>, name: &[u8]) -> Result<Arc<Node>, Errno> {
        if self.kind != NodeKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let upper = self.in_upper(name)?;
        if let Some(inode) = &upper {
            let known = self.shared.nodes.lock().by_upper.get(&inode.id()).and_then(Weak::upgrade);
            if let Some(node) = known {
                return Ok(node);
            }
        }
        let lower = if upper.is_some() { None } else { self.in_lower(name)? };
        if upper.is_none() && lower.is_none() {
            return Err(Errno::ENOENT);
        }
        let node = self.shared.node(lower, upper);
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

    /// What an inode in the upper layer has of this one.
    fn likeness<'a>(metadata: &Metadata, content: NewContent<'a>) -> NewNode<'a> {
        let Permissions { mode, user, group } = metadata.permissions;
        NewNode { content, mode, user, group }
    }

    fn copy_times(&self, upper: &AnyInode, metadata: &Metadata) -> Result<(), Errno> {
        upper.set_attributes(&AttributeChange {
            accessed: Some(metadata.accessed),
            modified: Some(metadata.modified),
            ..AttributeChange::default()
        })
    }

    /// The directory in the upper layer, made with all above it.
    fn upper_directory(self: &Arc<Node>) -> Result<AnyInode, Errno> {
        // From the first one above that is there, down: a path may be long.
        let mut missing: Vec<Arc<Node>> = Vec::new();
        let mut here = self.clone();
        while here.upper.get().is_none() {
            let parent = here.state.lock().parent.clone().ok_or(Errno::EIO)?;
            missing.push(here);
            here = parent;
        }
        for node in missing.into_iter().rev() {
            let (parent, name) = {
                let state = node.state.lock();
                (state.parent.clone().ok_or(Errno::EIO)?, state.name.clone())
            };
            let above = parent.upper.get().ok_or(Errno::EIO)?;
            let metadata = node.metadata();
            let upper = match above.create(&name, &Node::likeness(&metadata, NewContent::Directory))
            {
                Err(Errno::EEXIST) => above.lookup(&name)?,
                result => result?,
            };
            node.copy_times(&upper, &metadata)?;
            node.risen(upper)?;
        }
        self.upper.get().cloned().ok_or(Errno::EIO)
    }

    /// The inode in the upper layer, copied if need be; of a regular file `limit` bytes at most.
    fn copy_up(&self, limit: u64) -> Result<&AnyInode, Errno> {
        if let Some(upper) = self.upper.get() {
            return Ok(upper);
        }
        let node = self.me()?;
        if self.kind == NodeKind::Directory {
            node.upper_directory()?;
            return self.upper.get().ok_or(Errno::EIO);
        }
        let lower = self.lower.as_ref().ok_or(Errno::EIO)?;
        lower.refresh()?;
        let metadata = lower.metadata();
        let target;
        let content = match self.kind {
            NodeKind::Regular => NewContent::Regular,
            NodeKind::Symlink => {
                target = lower.read_link(&Identity::kernel())?;
                NewContent::Symlink(&target)
            }
            NodeKind::CharacterDevice => NewContent::CharacterDevice(metadata.represented_device),
            NodeKind::BlockDevice => NewContent::BlockDevice(metadata.represented_device),
            NodeKind::Fifo => NewContent::Fifo,
            NodeKind::Socket => NewContent::Socket,
            NodeKind::Directory | NodeKind::Anonymous => return Err(Errno::EIO),
        };
        let (parent, name) = {
            let state = self.state.lock();
            (state.parent.clone().ok_or(Errno::EIO)?, state.name.clone())
        };
        if self.state.lock().is_removed {
            return Err(Errno::EROFS);
        }
        let directory = parent.upper_directory()?;
        {
            let mut state = self.state.lock();
            if state.is_copying {
                // Another core is at it: ask again.
                return Err(Errno::EIOCBQUEUED);
            }
            state.is_copying = true;
        }
        let result = self.copy_more(lower, &metadata, &directory, &name, content, limit);
        self.state.lock().is_copying = false;
        let upper = result?;
        if self.kind != NodeKind::Symlink {
            self.copy_times(&upper, &metadata)?;
        }
        node.risen(upper)?;
        self.upper.get().ok_or(Errno::EIO)
    }

    /// A piece of a copy. `EIOCBQUEUED` while there is more to copy.
    fn copy_more(
        &self,
        lower: &AnyInode,
        metadata: &Metadata,
        directory: &AnyInode,
        name: &[u8],
        content: NewContent<'_>,
        limit: u64,
    ) -> Result<AnyInode, Errno> {
        let new = Node::likeness(metadata, content);
        if self.kind != NodeKind::Regular {
            return directory.create(name, &new);
        }
        let begun = self.state.lock().copy.take();
        let (upper, mut done) = match begun {
            Some(copy) => copy,
            None => (directory.create_nameless(&new, true)?, 0),
        };
        let size = metadata.size.min(limit);
        let mut result = Ok(());
        let mut buffer = Vec::new();
        let wanted = usize::try_from(size.saturating_sub(done)).unwrap_or(usize::MAX);
        let wanted = wanted.min(COPY_AT_ONCE);
        if buffer.try_reserve_exact(wanted).is_err() {
            result = Err(Errno::ENOMEM);
        }
        if wanted > 0 && result.is_ok() {
            buffer.resize(wanted, 0);
            let mut sink = buffer.as_mut_slice();
            result = match lower.read_at(done, &mut sink) {
                // It has become shorter.
                Ok(0) => Err(Errno::EIO),
                Ok(count) => {
                    let mut bytes = buffer.get(..count).unwrap_or_default();
                    upper.write_at(done, &mut bytes).map(|written| done += written as u64)
                }
                Err(error) => Err(error),
            };
            if result.is_ok() && done < size {
                result = Err(Errno::EIOCBQUEUED);
            }
        }
        match result {
            Ok(()) => {
                directory.link(name, &upper)?;
                Ok(upper)
            }
            Err(Errno::EIOCBQUEUED) => {
                self.state.lock().copy = Some((upper, done));
                Err(Errno::EIOCBQUEUED)
            }
            Err(error) => Err(error),
        }
    }

    /// All names that the directory shows.
    fn merged(&self) -> Result<Vec<Entry>, Errno> {
        let mut names: BTreeMap<Arc<[u8]>, Entry> = BTreeMap::new();
        let mut collect = |inode: &AnyInode, is_upper: bool, hidden: &BTreeSet<Arc<[u8]>>| {
            inode.read_directory(0, &mut |entry| {
                let is_dot = entry.name == b"." || entry.name == b"..";
                if !is_dot && !hidden.contains(entry.name) {
                    let name: Arc<[u8]> = Arc::from(entry.name);
                    let number = entry.number + if is_upper { FIRST_OWN_NUMBER } else { 0 };
                    let entry = Entry { name: name.clone(), number, kind: entry.kind };
                    tree::insert(&mut names, name, entry);
                }
                true
            })
        };
        let hidden = self.state.lock().whiteouts.clone();
        if let Some(lower) = &self.lower {
            collect(lower, false, &hidden)?;
        }
        if let Some(upper) = self.upper.get() {
            collect(upper, true, &BTreeSet::new())?;
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

    /// Takes a name away: from the upper layer, and from what shows of the lower one.
    fn take_away(self: &Arc<Node>, name: &[u8], node: &Arc<Node>) -> Result<(), Errno> {
        let is_directory = node.kind == NodeKind::Directory;
        let has_lower = self.in_lower(name)?.is_some();
        let directory = self.upper_directory()?;
        if let Some(inode) = self.in_upper(name)? {
            if is_directory {
                directory.remove_directory(name, inode.id())?;
            } else {
                directory.unlink(name, inode.id())?;
            }
        }
        let mut state = self.state.lock();
        if has_lower {
            tree::insert_in_set(&mut state.whiteouts, Arc::from(name));
        }
        let kept = state.kept.remove(name);
        drop(state);
        drop(kept);
        node.state.lock().is_removed = true;
        Ok(())
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

#[cfg(test)]
mod tests;
