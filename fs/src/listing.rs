//! Listings of directories that are kept elsewhere, with cursors that hold while entries come and go.

use crate::inode::DirectoryEntry;
use crate::metadata::NodeKind;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::heap::tree;

/// Cursors up to this one stand for `.` and `..`.
const FIRST_CURSOR: u64 = 3;

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

/// Entries that are given under one hold of a directory's lock.
const BATCH: usize = 128;

/// Gives `emit` the entries of a directory behind a cursor: the directory itself and its parent, whose
/// numbers are given, and then the listing that `with` shows, a batch at a time: `emit` is not called
/// under the lock of the directory.
pub fn emit_all(
    [own, parent]: [u64; 2],
    cursor: u64,
    emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    with: impl Fn(&mut dyn FnMut(&Listing)),
) {
    for (next, name, number) in [(1, b".".as_slice(), own), (2, b"..".as_slice(), parent)] {
        let entry = DirectoryEntry { name, number, kind: NodeKind::Directory, next };
        if cursor < next && !emit(entry) {
            return;
        }
    }
    let mut cursor = cursor.max(FIRST_CURSOR);
    loop {
        let mut batch = Vec::new();
        with(&mut |listing| {
            let after = listing.after(cursor).take(BATCH);
            batch
                .extend(after.map(|(next, name, number, kind)| (next, name.clone(), number, kind)));
        });
        if batch.is_empty() {
            return;
        }
        for (next, name, number, kind) in batch {
            if !emit(DirectoryEntry { name: &name, number, kind, next }) {
                return;
            }
            cursor = next;
        }
    }
}
