//! Growing a `BTreeMap` when memory may be short.
//!
//! A tree that is unwound in the middle of an insertion is left broken, so the memory for the nodes is
//! found before the tree is touched: the magazines of this core get what an insertion can need at most,
//! and while the tree grows nobody else takes from them. Every insertion of the kernel goes through here.

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use core::alloc::Layout;

use super::class::Class;
use super::{MAGAZINES, injection, slab};

/// Levels of a tree that fits into memory, and a new root.
const MOST_NODES: usize = 8;
/// Pairs in a node, and children of an inner one.
const PAIRS: usize = 11;
const CHILDREN: usize = 12;

/// Finds memory for the nodes of one insertion, or unwinds as a failed allocation does.
fn make_room<K, V>() {
    let leaf = PAIRS * (size_of::<K>() + size_of::<V>()) + size_of::<usize>() + 4;
    let inner = leaf + CHILDREN * size_of::<usize>() + 4 * align_of::<(K, V, usize)>();
    let layout = |size| Layout::from_size_align(size, align_of::<(K, V, usize)>());
    let (Ok(leaf), Ok(inner)) = (layout(leaf), layout(inner)) else { return };
    if !cfg!(target_os = "none") {
        // The heap of the host is not ours.
        return;
    }
    let last = Class::of(inner).map_or(usize::MAX, Class::index);
    let first = Class::of(leaf).map_or(usize::MAX, Class::index);
    let is_there = Class::all()
        .filter(|class| (first..=last).contains(&class.index()))
        .all(|class| MAGAZINES.with(|magazines| fill(&mut magazines.0[class.index()], class)));
    if !is_there || injection::strikes() {
        alloc::alloc::handle_alloc_error(leaf);
    }
}

fn fill(magazine: &mut super::Magazine, class: Class) -> bool {
    while magazine.count < MOST_NODES {
        let before = magazine.count;
        slab::take(class, MOST_NODES - before, |object| magazine.push(object));
        if magazine.count == before {
            return false;
        }
    }
    true
}

/// `map.insert(key, value)`, whole or not at all.
///
/// # Panics
/// Unwinds as a failed allocation does when there is no memory; the map is as it was then.
pub fn insert<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: V) -> Option<V> {
    make_room::<K, V>();
    injection::paused(|| map.insert(key, value))
}

/// `set.insert(value)`; see `insert`.
pub fn insert_in_set<T: Ord>(set: &mut BTreeSet<T>, value: T) -> bool {
    make_room::<T, ()>();
    injection::paused(|| set.insert(value))
}

/// The value of a key, made when there is none; see `insert`.
pub fn get_or_insert<K: Ord, V>(
    map: &mut BTreeMap<K, V>,
    key: K,
    make: impl FnOnce() -> V,
) -> &mut V {
    match map.entry(key) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => {
            let value = make();
            make_room::<K, V>();
            injection::paused(|| entry.insert(value))
        }
    }
}

/// `map.split_off(key)`; see `insert`.
pub fn split_off<K: Ord, V>(map: &mut BTreeMap<K, V>, key: &K) -> BTreeMap<K, V> {
    make_room::<K, V>();
    injection::paused(|| map.split_off(key))
}
