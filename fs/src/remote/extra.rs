//! What inodes have besides names and bytes in order: extended attributes, holes, and no name at all.

use super::content::{Arrival, PAGE};
use super::{Found, Node, Owner, Question};
use crate::inode::{ExtendedAttributes, NewNode};
use crate::mapped;
use crate::metadata::NodeKind;
use abi::Errno;
use abi::fs::{AllocateFlags, XattrFlags};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What changes the content of a range, not only where it is kept.
const REPLACES: AllocateFlags = AllocateFlags::PUNCH_HOLE.union(AllocateFlags::ZERO_RANGE);
/// What moves everything behind a range.
const MOVES: AllocateFlags = AllocateFlags::COLLAPSE_RANGE.union(AllocateFlags::INSERT_RANGE);

fn copied(bytes: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| Errno::ENOMEM)?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

impl ExtendedAttributes for Node {
    fn get(&self, name: &[u8]) -> Result<Arc<[u8]>, Errno> {
        let (handle, wanted) = (self.handle(), copied(name)?);
        let question = Question::Extended { node: self.number, name: wanted.clone() };
        let found = self.remote.ask(question, |server| async move {
            server.extended(&handle, &wanted).await.map(Found::Text)
        })?;
        let Found::Text(value) = found else { return Err(Errno::EIO) };
        Ok(Arc::from(value))
    }

    fn set(&self, name: &[u8], value: Option<&[u8]>, flags: XattrFlags) -> Result<(), Errno> {
        let (handle, name) = (self.handle(), copied(name)?);
        let value = value.map(copied).transpose()?;
        let question = Question::SetExtended {
            node: self.number,
            name: name.clone(),
            value: value.clone(),
            flags,
        };
        let found = self.remote.ask(question, |server| async move {
            server.set_extended(&handle, &name, value, flags).await?;
            server.attributes(&handle).await.map(Found::Attributes)
        })?;
        if let Found::Attributes(attributes) = found
            && attributes.number == self.number
        {
            self.found(None, &attributes);
        }
        Ok(())
    }

    fn for_each_name(&self, see: &mut dyn FnMut(&[u8])) -> Result<(), Errno> {
        let handle = self.handle();
        let question = Question::ExtendedNames { node: self.number };
        let found = self.remote.ask(question, |server| async move {
            server.extended_names(&handle).await.map(Found::Text)
        })?;
        let Found::Text(names) = found else { return Err(Errno::EIO) };
        names.split(|&byte| byte == 0).filter(|name| !name.is_empty()).for_each(see);
        Ok(())
    }
}

impl Node {
    /// A new regular file that no directory names.
    pub(super) fn make_nameless(
        &self,
        new: &NewNode<'_>,
        is_linkable: bool,
    ) -> Result<Arc<Node>, Errno> {
        let owner = Owner { mode: new.mode, user: new.user, group: new.group };
        let question = Question::CreateNameless { directory: self.number, owner, is_linkable };
        let found = self.remote.ask(question, |server| async move {
            let (handle, attributes) = server.make_nameless(owner, is_linkable).await?;
            Ok(Found::Made(handle, attributes, None))
        })?;
        let Found::Made(handle, attributes, _) = found else { return Err(Errno::EIO) };
        let node = self.remote.node_of(handle, &attributes);
        let parent = self.itself.upgrade().ok_or(Errno::EIO)?;
        let name: Arc<[u8]> = Arc::from(alloc::format!("#{}", node.number).into_bytes());
        self.remote.place(&node, &parent, &name)?;
        let mut state = node.state.lock();
        state.is_removed = true;
        state.metadata.links = 0;
        drop(state);
        Ok(node)
    }

    /// `Inode::allocate`, always the whole range.
    pub(super) fn change_range(
        &self,
        flags: AllocateFlags,
        offset: u64,
        length: u64,
    ) -> Result<u64, Errno> {
        if self.kind() != NodeKind::Regular {
            return Err(Errno::EINVAL);
        }
        let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
        let node = self.itself.upgrade().ok_or(Errno::EIO)?;
        let handle = self.handle();
        let available = self.remote.free_bytes();
        let question = Question::Allocate { node: self.number, flags, offset, length };
        let found = self.remote.ask(question, |server| async move {
            node.write_back().await?;
            node.written().await;
            server.allocate(&handle, flags, offset..end, available).await?;
            let attributes = server.attributes(&handle).await?;
            node.remote.count_free(&handle).await;
            Ok(Found::Attributes(attributes))
        })?;
        let Found::Attributes(attributes) = found else { return Err(Errno::EIO) };
        let mut state = self.state.lock();
        self.spoil(&mut state.content, 0..u64::MAX);
        state.content.version = (attributes.metadata.size, attributes.metadata.modified);
        let old = if flags.intersects(MOVES) {
            state.content.take_range(offset / PAGE..u64::MAX)
        } else if flags.intersects(REPLACES) {
            state.content.take_range(offset / PAGE..end.div_ceil(PAGE))
        } else {
            Default::default()
        };
        drop(state);
        self.remote.count_dirty(old.1);
        mapped::pages_replaced(self.id(), old.0);
        self.found(None, &attributes);
        Ok(length)
    }

    /// `Inode::seek_content`.
    pub(super) fn seek(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        let size = self.state.lock().metadata.size;
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        if !self.remote.server.knows_holes() {
            return Ok(if hole { size } else { offset });
        }
        // What was written is no hole, wherever it is.
        self.settle(Arrival::Mappings)?;
        let handle = self.handle();
        let question = Question::Seek { node: self.number, offset, hole };
        let found = self.remote.ask(question, |server| async move {
            server.seek(&handle, offset, hole).await.map(Found::Place)
        })?;
        let Found::Place(place) = found else { return Err(Errno::EIO) };
        Ok(place)
    }
}
