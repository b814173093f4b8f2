//! Numbers and keys of the objects of one kind.
//!
//! The number of an object is its index and, above that, a sequence number, so that the number of an
//! object that was removed finds nothing for a long time. Indices are given away in a circle that grows
//! with the number of objects; the sequence number rises whenever the circle begins again.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use base::heap::tree;

use abi::Errno;
use abi::ipc::{IPC_CREAT, IPC_EXCL, IPC_PRIVATE};

/// Bits of an index.
const INDEX_BITS: u32 = 15;
/// Most objects that the indices suffice for.
pub const MOST_OBJECTS: usize = 1 << INDEX_BITS;
/// Indices of the circle at least.
const SHORTEST_CIRCLE: usize = 64;
const SEQUENCES: i32 = i32::MAX >> INDEX_BITS;

/// The sequence number in the number of an object.
pub const fn sequence_of(id: i32) -> i32 {
    id >> INDEX_BITS
}

fn index_of(id: i32) -> Result<usize, Errno> {
    usize::try_from(id).map(|id| id % MOST_OBJECTS).map_err(|_| Errno::EINVAL)
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table::new()
    }
}

/// The objects of one kind.
pub struct Table<T> {
    objects: BTreeMap<usize, (i32, Arc<T>)>,
    keys: BTreeMap<i32, usize>,
    /// Index to begin at.
    next: usize,
    last: Option<usize>,
    sequence: i32,
    /// Number that the next object is to have, if it is free (`…_next_id`).
    wanted: Option<i32>,
}

impl<T> Table<T> {
    /// No objects.
    pub const fn new() -> Table<T> {
        Table {
            objects: BTreeMap::new(),
            keys: BTreeMap::new(),
            next: 0,
            last: None,
            sequence: 0,
            wanted: None,
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.objects.len()
    }

    /// The highest index in use, or 0.
    pub fn highest(&self) -> u64 {
        self.objects.keys().next_back().map_or(0, |index| *index as u64)
    }

    /// All objects with their numbers, by index.
    pub fn iter(&self) -> impl Iterator<Item = (i32, &Arc<T>)> {
        self.objects.values().map(|(id, object)| (*id, object))
    }

    /// The object of a number; `EINVAL` when there is none.
    pub fn get(&self, id: i32) -> Result<Arc<T>, Errno> {
        match self.objects.get(&index_of(id)?) {
            Some((own, object)) if *own == id => Ok(object.clone()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The object of an index, and its number; `EINVAL` when there is none.
    pub fn at(&self, index: i32) -> Result<(i32, Arc<T>), Errno> {
        self.objects.get(&index_of(index)?).cloned().ok_or(Errno::EINVAL)
    }

    /// What `…get` finds or is to make: the object of a key, or `None` for a new one.
    ///
    /// # Errors
    /// `ENOENT` when there is none and none is to be made, `EEXIST` when there is one and it must not.
    pub fn look_up(&self, key: i32, flags: u32) -> Result<Option<(i32, Arc<T>)>, Errno> {
        if key == IPC_PRIVATE {
            return Ok(None);
        }
        let found = self.keys.get(&key).and_then(|index| self.objects.get(index));
        match found {
            None if flags & IPC_CREAT == 0 => Err(Errno::ENOENT),
            None => Ok(None),
            Some(_) if flags & (IPC_CREAT | IPC_EXCL) == IPC_CREAT | IPC_EXCL => Err(Errno::EEXIST),
            Some((id, object)) => Ok(Some((*id, object.clone()))),
        }
    }

    /// Adds an object that has no number yet, and gives it one.
    ///
    /// # Errors
    /// `ENOSPC` when there are `most` already.
    pub fn add(
        &mut self,
        key: i32,
        most: usize,
        make: impl FnOnce(i32) -> T,
    ) -> Result<i32, Errno> {
        if self.count() >= most.min(MOST_OBJECTS) {
            return Err(Errno::ENOSPC);
        }
        let (index, id) = match self.wanted.take() {
            Some(id) => {
                let index = index_of(id)?;
                if self.objects.contains_key(&index) {
                    return Err(Errno::ENOSPC);
                }
                (index, id)
            }
            None => self.next_number().ok_or(Errno::ENOSPC)?,
        };
        tree::insert(&mut self.objects, index, (id, Arc::new(make(id))));
        if key != IPC_PRIVATE {
            tree::insert(&mut self.keys, key, index);
        }
        Ok(id)
    }

    fn next_number(&mut self) -> Option<(usize, i32)> {
        let circle = (self.count() * 3 / 2).clamp(SHORTEST_CIRCLE, MOST_OBJECTS);
        let is_free = |index: &usize| !self.objects.contains_key(index);
        let index = (self.next..circle).find(is_free).or_else(|| (0..circle).find(is_free))?;
        if self.last.is_some_and(|last| index <= last) {
            self.sequence = (self.sequence + 1) % SEQUENCES;
        }
        self.last = Some(index);
        self.next = index + 1;
        Some((index, self.sequence << INDEX_BITS | i32::try_from(index).ok()?))
    }

    /// The key of an object finds nothing any more.
    pub fn forget_key(&mut self, key: i32) {
        self.keys.remove(&key);
    }

    /// Takes an object out.
    pub fn remove(&mut self, id: i32, key: i32) -> Option<Arc<T>> {
        let index = index_of(id).ok()?;
        if key != IPC_PRIVATE {
            self.keys.remove(&key);
        }
        self.objects.remove(&index).map(|(_, object)| object)
    }

    /// Number that the next object is to have, or -1.
    pub fn wanted(&self) -> i32 {
        self.wanted.unwrap_or(-1)
    }

    /// Sets it.
    pub fn set_wanted(&mut self, id: i32) {
        self.wanted = (id >= 0).then_some(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_not_given_away_twice_in_a_row() {
        let mut table = Table::new();
        let first = table.add(7, 9, |_| ()).unwrap();
        assert_eq!(first, 0);
        table.remove(first, 7);
        let second = table.add(7, 9, |_| ()).unwrap();
        assert_eq!(second, 1);
        assert_eq!(table.get(first).err(), Some(Errno::EINVAL));
        table.remove(second, 7);
        for _ in 0..SHORTEST_CIRCLE - 2 {
            let id = table.add(7, 9, |_| ()).unwrap();
            table.remove(id, 7);
        }
        let again = table.add(7, 9, |_| ()).unwrap();
        assert_eq!(again, 1 << INDEX_BITS);
        assert_eq!(sequence_of(again), 1);
        assert_eq!(table.get(0).err(), Some(Errno::EINVAL));
        assert!(table.get(again).is_ok());
        assert_eq!(table.at(0).map(|(id, _)| id), Ok(again));
    }

    #[test]
    fn keys_find_until_they_are_forgotten() {
        let mut table = Table::new();
        assert_eq!(table.look_up(5, 0).err(), Some(Errno::ENOENT));
        assert!(table.look_up(5, IPC_CREAT).unwrap().is_none());
        let id = table.add(5, 9, |_| ()).unwrap();
        assert_eq!(table.look_up(5, 0).unwrap().map(|(id, _)| id), Some(id));
        assert_eq!(table.look_up(5, IPC_CREAT | IPC_EXCL).err(), Some(Errno::EEXIST));
        table.forget_key(5);
        assert_eq!(table.look_up(5, 0).err(), Some(Errno::ENOENT));
        assert!(table.get(id).is_ok());
    }

    #[test]
    fn a_full_table_says_so() {
        let mut table = Table::new();
        for _ in 0..200 {
            table.add(IPC_PRIVATE, 200, |_| ()).unwrap();
        }
        assert_eq!(table.add(IPC_PRIVATE, 200, |_| ()), Err(Errno::ENOSPC));
    }

    #[test]
    fn the_next_number_may_be_chosen() {
        let mut table = Table::new();
        table.set_wanted(3 << INDEX_BITS | 9);
        assert_eq!(table.add(IPC_PRIVATE, 9, |_| ()), Ok(3 << INDEX_BITS | 9));
        assert_eq!(table.wanted(), -1);
    }
}
