//! The names of nodes: entries of directories, and where a node was seen last. Callers hold
//! `Shared::changes`, except `rename_entry`, which takes it.

use super::{LastPlace, Node};
use crate::inode::{Inode, NewContent, NewNode};
use crate::metadata::{InodeId, Timestamp};
use crate::tmpfs::directory::is_directory;
use abi::Errno;
use abi::fs::{NAME_MAX, RenameFlags};
use alloc::sync::Arc;

impl Node {
    pub(super) fn set_place(&self, parent: &Node, name: &Arc<[u8]>) {
        let mut state = self.state.lock();
        state.place =
            Some(LastPlace { parent: parent.me.clone(), name: name.clone(), removed: false });
    }

    /// One link less, and one inode less to count unless it was the last.
    pub(super) fn forget_link(&self) {
        let mut state = self.state.lock();
        if state.links > 1 && !is_directory(self) {
            self.shared.release_node();
        }
        state.links = state.links.saturating_sub(1);
    }

    /// One name less: the place is gone if it was this one.
    pub(super) fn unlinked(&self, parent: &Node, name: &[u8]) {
        self.forget_link();
        let mut state = self.state.lock();
        state.changed = Timestamp::now();
        if let Some(place) = &mut state.place
            && core::ptr::eq(place.parent.as_ptr(), parent)
            && *place.name == *name
        {
            place.removed = true;
        }
    }

    /// The directory gets an entry. `EEXIST`, or `ENOENT` when it has been removed itself.
    pub(super) fn add_entry(&self, name: &[u8], node: &Arc<Node>) -> Result<(), Errno> {
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let name: Arc<[u8]> = Arc::from(name);
        node.set_place(self, &name);
        let mut state = self.state.lock();
        let entries = state.entries()?;
        if entries.get(&name).is_some() {
            return Err(Errno::EEXIST);
        }
        if entries.is_dead {
            return Err(Errno::ENOENT);
        }
        entries.put(&name, node.clone());
        if is_directory(node) {
            state.links += 1;
        }
        state.touch();
        Ok(())
    }

    pub(super) fn check_entry(&self, name: &[u8], expected: InodeId) -> Result<Arc<Node>, Errno> {
        let mut state = self.state.lock();
        let node = state.entries()?.get(name).ok_or(Errno::ESTALE)?;
        if node.id == expected { Ok(node.clone()) } else { Err(Errno::ESTALE) }
    }

    pub(super) fn remove_entry(&self, name: &[u8], node: &Node) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let removed = state.entries()?.remove(name);
        if is_directory(node) {
            state.links = state.links.saturating_sub(1);
        }
        state.touch();
        // The last reference may go here; a node's end takes no lock of another node.
        drop(state);
        drop(removed);
        Ok(())
    }

    /// Marks an empty directory as removed. `ENOTEMPTY` otherwise.
    pub(super) fn kill_directory(&self) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let entries = state.entries()?;
        if !entries.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        entries.is_dead = true;
        state.links = 0;
        Ok(())
    }

    /// The node behind an inode of this file system; `EXDEV` for one of another.
    pub(super) fn node_of(inode: &Arc<dyn Inode>, device: u64) -> Result<Arc<Node>, Errno> {
        let node = inode.as_any().downcast_ref::<Node>().ok_or(Errno::EXDEV)?;
        if node.id.device != device {
            return Err(Errno::EXDEV);
        }
        node.me.upgrade().ok_or(Errno::ENOENT)
    }

    /// `Inode::rename`.
    pub(super) fn rename_entry(
        &self,
        old: &[u8],
        moved: InodeId,
        to: &Arc<dyn Inode>,
        new: &[u8],
        replaced: Option<InodeId>,
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        if new.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let to = Node::node_of(to, self.id.device)?;
        let _changing = self.shared.changes.lock();
        let moved = self.check_entry(old, moved)?;
        let replaced = match replaced {
            Some(id) => Some(to.check_entry(new, id)?),
            None if to.state.lock().entries()?.get(new).is_some() => return Err(Errno::ESTALE),
            None => None,
        };
        check_no_loop(&moved, &to)?;
        if to.state.lock().entries()?.is_dead {
            return Err(Errno::ENOENT);
        }
        let whiteout = match flags.contains(RenameFlags::WHITEOUT) {
            true => {
                let content = NewContent::CharacterDevice(0);
                let new = NewNode { content, mode: 0, user: 0, group: 0 };
                Some(Node::new(&self.shared, &new)?)
            }
            false => None,
        };
        let (old_name, new_name): (Arc<[u8]>, Arc<[u8]>) = (Arc::from(old), Arc::from(new));
        if flags.contains(RenameFlags::EXCHANGE) {
            let other = replaced.ok_or(Errno::ENOENT)?;
            let myself = self.me.upgrade().ok_or(Errno::ENOENT)?;
            check_no_loop(&other, &myself)?;
            exchange(&myself, &old_name, &moved, &to, &new_name, &other);
            return Ok(());
        }
        if let Some(victim) = &replaced {
            match (is_directory(&moved), is_directory(victim)) {
                (true, true) => victim.kill_directory()?,
                (true, false) => return Err(Errno::ENOTDIR),
                (false, true) => return Err(Errno::EISDIR),
                (false, false) => {}
            }
        }
        {
            let mut state = to.state.lock();
            let had = state.entries()?.put(&new_name, moved.clone());
            if is_directory(&moved) && !had.as_deref().is_some_and(is_directory) {
                state.links += 1;
            }
            state.touch();
        }
        if let Some(victim) = &replaced {
            victim.unlinked(&to, new);
        }
        self.remove_entry(old, &moved)?;
        if let Some(whiteout) = whiteout {
            self.add_entry(old, &whiteout)?;
        }
        moved.set_place(&to, &new_name);
        moved.state.lock().changed = Timestamp::now();
        Ok(())
    }
}

/// Refuses to put a directory into itself or below. The tree does not move while this looks.
fn check_no_loop(moved: &Arc<Node>, to: &Arc<Node>) -> Result<(), Errno> {
    let mut here = Some(to.clone());
    while let Some(node) = here {
        if Arc::ptr_eq(&node, moved) {
            return Err(Errno::EINVAL);
        }
        here = node.state.lock().place.as_ref().and_then(|place| place.parent.upgrade());
    }
    Ok(())
}

fn exchange(
    from: &Arc<Node>,
    old_name: &Arc<[u8]>,
    moved: &Arc<Node>,
    to: &Arc<Node>,
    new_name: &Arc<[u8]>,
    other: &Arc<Node>,
) {
    let put = |directory: &Arc<Node>, name, node: &Arc<Node>, was: &Arc<Node>| {
        let mut state = directory.state.lock();
        if let Ok(entries) = state.entries() {
            entries.put(name, node.clone());
        }
        match (is_directory(node), is_directory(was)) {
            (true, false) => state.links += 1,
            (false, true) => state.links = state.links.saturating_sub(1),
            _ => {}
        }
        state.touch();
    };
    put(to, new_name, moved, other);
    put(from, old_name, other, moved);
    moved.set_place(to, new_name);
    other.set_place(from, old_name);
    let now = Timestamp::now();
    moved.state.lock().changed = now;
    other.state.lock().changed = now;
}
