//! Listings of directories that are kept elsewhere, with cursors that hold while entries come and go.

use crate::metadata::NodeKind;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::heap::tree;

/// Cursors up to this one stand for `.` and `..`.
pub const FIRST_CURSOR: u64 = 3;

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name.
    pub name: Arc<[u8]>,
    /// Number of the inode.
    pub number: u64,
    /// Kind.
    pub kind: NodeKind,
}

/// The entries of a directory, each with a cursor that never changes while the entry exists.
#[derive(Default)]
pub struct Listing {
    by_cursor: BTreeMap<u64, (Arc<[u8]>, u64, NodeKind)>,
    cursors: BTreeMap<Arc<[u8]>, u64>,
    next: u64,
    /// When it was fetched, in nanoseconds; `None` before.
    pub fetched_ns: Option<u64>,
}

impl Listing {
    /// Adds an entry, or changes what an entry leads to.
    pub fn put(&mut self, name: &Arc<[u8]>, number: u64, kind: NodeKind) {
        let cursor = match self.cursors.get(name) {
            Some(&cursor) => cursor,
            None => {
                self.next = self.next.max(FIRST_CURSOR) + 1;
                tree::insert(&mut self.cursors, name.clone(), self.next);
                self.next
            }
        };
        tree::insert(&mut self.by_cursor, cursor, (name.clone(), number, kind));
    }

    /// Removes an entry.
    pub fn remove(&mut self, name: &[u8]) {
        if let Some(cursor) = self.cursors.remove(name) {
            self.by_cursor.remove(&cursor);
        }
    }

    /// Makes it that of a directory with these entries.
    pub fn replace(&mut self, entries: Vec<Entry>) {
        let mut kept = BTreeMap::new();
        for entry in &entries {
            tree::insert(&mut kept, entry.name.clone(), ());
        }
        let gone: Vec<_> =
            self.cursors.keys().filter(|name| !kept.contains_key(*name)).cloned().collect();
        gone.iter().for_each(|name| self.remove(name));
        entries.iter().for_each(|entry| self.put(&entry.name, entry.number, entry.kind));
    }

    /// The entries after a cursor.
    pub fn after(&self, cursor: u64) -> impl Iterator<Item = (u64, &Arc<[u8]>, u64, NodeKind)> {
        let range = self.by_cursor.range(cursor.saturating_add(1)..);
        range.map(|(&cursor, (name, number, kind))| (cursor, name, *number, *kind))
    }
}
