//! Extended attributes of a node, kept in memory and counted against the room for inodes: each inode of
//! the limit stands for `BYTES_PER_NODE` bytes of nodes, names and values.

use super::Shared;
use crate::inode::ExtendedAttributes;
use crate::metadata::Timestamp;
use crate::tmpfs::Node;
use abi::Errno;
use abi::fs::XattrFlags;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::heap::tree;
use core::sync::atomic::Ordering;

/// What an inode counts for.
const BYTES_PER_NODE: u64 = 1024;
/// What a name and a value take besides their bytes.
const OVERHEAD: usize = 64;

/// Names and values. Guarded by the node's lock.
#[derive(Default)]
pub struct Attributes {
    values: BTreeMap<Vec<u8>, Arc<[u8]>>,
}

fn size(name: &[u8], value: &[u8]) -> u64 {
    (name.len() + value.len() + OVERHEAD) as u64
}

impl Attributes {
    /// Bytes that are counted for all of them.
    pub fn size(&self) -> u64 {
        self.values.iter().map(|(name, value)| size(name, value)).sum()
    }
}

impl Shared {
    /// Counts bytes in before they are allocated. `ENOSPC` when they do not fit beside the nodes.
    fn reserve_attributes(&self, bytes: u64) -> Result<(), Errno> {
        let limit = self.node_limit.load(Ordering::Relaxed).saturating_mul(BYTES_PER_NODE);
        let nodes = self.used_nodes.load(Ordering::Relaxed).saturating_mul(BYTES_PER_NODE);
        let before = self.attribute_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes).saturating_add(nodes) > limit {
            self.release_attributes(bytes);
            return Err(Errno::ENOSPC);
        }
        Ok(())
    }

    /// Gives bytes back.
    pub(super) fn release_attributes(&self, bytes: u64) {
        self.attribute_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

fn copied(bytes: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| Errno::ENOMEM)?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

impl ExtendedAttributes for Node {
    fn get(&self, name: &[u8]) -> Result<Arc<[u8]>, Errno> {
        let state = self.state.lock();
        let found = state.attributes.as_ref().and_then(|attributes| attributes.values.get(name));
        found.cloned().ok_or(Errno::ENODATA)
    }

    fn set(&self, name: &[u8], value: Option<&[u8]>, flags: XattrFlags) -> Result<(), Errno> {
        let new = match value {
            None => None,
            Some(value) => {
                self.shared.reserve_attributes(size(name, value))?;
                Some(NewValue { shared: &self.shared, size: size(name, value), value: Some(value) })
            }
        };
        let mut state = self.state.lock();
        let attributes = state.attributes.get_or_insert_default();
        let is_there = attributes.values.contains_key(name);
        if is_there && flags.contains(XattrFlags::CREATE) {
            return Err(Errno::EEXIST);
        }
        if !is_there && flags.contains(XattrFlags::REPLACE) {
            return Err(Errno::ENODATA);
        }
        let old = match new {
            Some(new) => {
                let name = copied(name)?;
                tree::insert(&mut attributes.values, name, new.keep()?)
            }
            None => attributes.values.remove(name),
        };
        state.changed = Timestamp::now();
        drop(state);
        if let Some(old) = old {
            self.shared.release_attributes(size(name, &old));
        }
        Ok(())
    }

    fn for_each_name(&self, see: &mut dyn FnMut(&[u8])) -> Result<(), Errno> {
        let state = self.state.lock();
        if let Some(attributes) = &state.attributes {
            attributes.values.keys().for_each(|name| see(name));
        }
        Ok(())
    }
}

/// A value that has been counted in, and is counted out again unless it is kept.
struct NewValue<'a> {
    shared: &'a Shared,
    size: u64,
    value: Option<&'a [u8]>,
}

impl NewValue<'_> {
    fn keep(mut self) -> Result<Arc<[u8]>, Errno> {
        let value = copied(self.value.unwrap_or_default())?;
        self.value = None;
        Ok(Arc::from(value))
    }
}

impl Drop for NewValue<'_> {
    fn drop(&mut self) {
        if self.value.is_some() {
            self.shared.release_attributes(self.size);
        }
    }
}
