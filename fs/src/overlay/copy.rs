//! Copies of lower files in the upper layer.

use super::{AnyInode, Node};
use crate::identity::Identity;
use crate::inode::{AttributeChange, Inode, NewContent, NewNode};
use crate::metadata::{Metadata, NodeKind, Permissions};
use abi::Errno;
use abi::fs::XattrFlags;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Bytes that are copied up before others get the core.
const COPY_AT_ONCE: usize = 1 << 20;
/// How the names of extended attributes begin that are the overlay's own.
const OWN: &[u8] = b"trusted.overlay.";

/// Gives a copy the extended attributes, as far as it can have them.
fn copy_extended(lower: &AnyInode, upper: &AnyInode) -> Result<(), Errno> {
    let (Some(from), Some(to)) = (lower.extended(), upper.extended()) else { return Ok(()) };
    let mut names: Vec<Vec<u8>> = Vec::new();
    from.for_each_name(&mut |name| names.push(name.to_vec()))?;
    for name in names.iter().filter(|name| !name.starts_with(OWN)) {
        let value = from.get(name)?;
        match to.set(name, Some(&value), XattrFlags::empty()) {
            // Of a kind of inode that has none.
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::EPERM) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Node {
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
    pub(super) fn upper_directory(self: &Arc<Node>) -> Result<AnyInode, Errno> {
        // From the first one above that is there, down: a path may be long.
        let mut missing: Vec<Arc<Node>> = Vec::new();
        let mut here = self.clone();
        while here.upper.get().is_none() {
            // Without an upper layer nothing can be changed.
            let parent = here.state.lock().parent.clone().ok_or(Errno::EROFS)?;
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
            if let Some(lower) = node.lowers.first() {
                copy_extended(lower, &upper)?;
            }
            node.copy_times(&upper, &metadata)?;
            node.risen(upper)?;
        }
        self.upper.get().cloned().ok_or(Errno::EIO)
    }

    /// The inode in the upper layer, copied if need be; of a regular file `limit` bytes at most.
    pub(super) fn copy_up(&self, limit: u64) -> Result<&AnyInode, Errno> {
        if let Some(upper) = self.upper.get() {
            return Ok(upper);
        }
        let node = self.me()?;
        if self.kind == NodeKind::Directory {
            node.upper_directory()?;
            return self.upper.get().ok_or(Errno::EIO);
        }
        let lower = self.lowers.first().ok_or(Errno::EIO)?;
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
        copy_extended(lower, &upper)?;
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
}
