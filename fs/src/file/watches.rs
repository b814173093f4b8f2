//! Who watches an open file until it is closed. Part of every open file; empty until it is watched.

use alloc::collections::BTreeMap;
use alloc::sync::Weak;
use base::heap::tree;
use base::sync::{Mutex, Once, rank};

/// What watches an open file and ends with it.
pub trait Watch: Send + Sync {
    /// The last descriptor of the file is closed. Called without a lock of this list.
    fn file_closed(&self);
}

/// The watches of one open file, by their numbers.
pub struct Watches(Once<Mutex<BTreeMap<u64, Weak<dyn Watch>>>>);

impl Watches {
    pub(super) const fn new() -> Watches {
        Watches(Once::new())
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.get().is_none_or(|list| list.lock().is_empty())
    }

    /// Adds a watch under a number that no other has.
    pub(crate) fn add(&self, number: u64, watch: Weak<dyn Watch>) {
        let list = self.0.call_once(|| Mutex::new(&rank::WATCHER, BTreeMap::new()));
        tree::insert(&mut list.lock(), number, watch);
    }

    /// Takes a watch out.
    pub(crate) fn remove(&self, number: u64) {
        if let Some(list) = self.0.get() {
            let removed = list.lock().remove(&number);
            drop(removed);
        }
    }

    /// The file is closed.
    pub(super) fn end(&mut self) {
        let Some(list) = self.0.get() else { return };
        let watches = core::mem::take(&mut *list.lock());
        for watch in watches.into_values().filter_map(|watch| watch.upgrade()) {
            watch.file_closed();
        }
    }
}
