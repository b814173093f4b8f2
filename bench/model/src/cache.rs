//! A set-associative array with least-recently-used replacement: private caches and TLBs are made of it.

/// Says that an entry is in use.
const VALID: u64 = 1;
/// Says that this CPU alone may write the line.
const OWNED: u64 = 2;
const KEY_SHIFT: u32 = 2;

/// Keys, each perhaps marked as owned. Keys have at most 62 bits.
pub struct Array {
    /// `ways` entries per set, the most recently used first; 0 is an empty one.
    entries: Vec<u64>,
    ways: usize,
    /// Number of sets minus one; that number is a power of two.
    set_mask: u64,
}

/// What an insertion displaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Evicted {
    /// The key.
    pub key: u64,
    /// Whether it was owned.
    pub is_owned: bool,
}

impl Array {
    /// An empty one. `sets` is a power of two; the options see to that.
    pub fn new(sets: usize, ways: usize) -> Array {
        debug_assert!(sets.is_power_of_two() && ways > 0);
        Array { entries: vec![0; sets * ways], ways, set_mask: sets as u64 - 1 }
    }

    fn set(&mut self, key: u64) -> &mut [u64] {
        let first = (key & self.set_mask) as usize * self.ways;
        &mut self.entries[first..first + self.ways]
    }

    /// Uses a key that is there, and tells whether it is owned; `None` when it is missing.
    #[inline]
    pub fn touch(&mut self, key: u64) -> Option<bool> {
        let set = self.set(key);
        let wanted = key << KEY_SHIFT | VALID;
        let at = set.iter().position(|entry| entry & !OWNED == wanted)?;
        let entry = set[at];
        set.copy_within(0..at, 1);
        set[0] = entry;
        Some(entry & OWNED != 0)
    }

    /// Adds a key that is missing, as the most recently used one.
    pub fn insert(&mut self, key: u64, is_owned: bool) -> Option<Evicted> {
        let last = self.ways - 1;
        let set = self.set(key);
        let evicted = set[last];
        set.copy_within(0..last, 1);
        set[0] = key << KEY_SHIFT | VALID | if is_owned { OWNED } else { 0 };
        (evicted != 0)
            .then_some(Evicted { key: evicted >> KEY_SHIFT, is_owned: evicted & OWNED != 0 })
    }

    /// Marks a key as owned or not, where it is there.
    pub fn set_owned(&mut self, key: u64, is_owned: bool) {
        let wanted = key << KEY_SHIFT | VALID;
        if let Some(entry) = self.set(key).iter_mut().find(|entry| **entry & !OWNED == wanted) {
            *entry = wanted | if is_owned { OWNED } else { 0 };
        }
    }

    /// Forgets a key.
    pub fn remove(&mut self, key: u64) {
        let wanted = key << KEY_SHIFT | VALID;
        let set = self.set(key);
        if let Some(at) = set.iter().position(|entry| entry & !OWNED == wanted) {
            set.copy_within(at + 1.., at);
            if let Some(last) = set.last_mut() {
                *last = 0;
            }
        }
    }

    /// Forgets all keys but those that `keeps` wants.
    pub fn retain(&mut self, keeps: impl Fn(u64) -> bool) {
        for set in self.entries.chunks_mut(self.ways) {
            let mut kept = 0;
            for at in 0..set.len() {
                if set[at] != 0 && keeps(set[at] >> KEY_SHIFT) {
                    set[kept] = set[at];
                    kept += 1;
                }
            }
            set[kept..].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_key_is_displaced() {
        let mut array = Array::new(1, 2);
        assert_eq!((array.insert(1, false), array.insert(2, true)), (None, None));
        assert_eq!(array.touch(1), Some(false));
        assert_eq!(array.insert(3, false), Some(Evicted { key: 2, is_owned: true }));
        assert_eq!(
            (array.touch(1), array.touch(2), array.touch(3)),
            (Some(false), None, Some(false))
        );
    }

    #[test]
    fn sets_do_not_disturb_each_other() {
        let mut array = Array::new(2, 1);
        array.insert(4, false);
        assert_eq!(array.insert(5, false), None);
        assert_eq!(array.insert(6, false).map(|evicted| evicted.key), Some(4));
    }

    #[test]
    fn removed_keys_leave_room_and_the_order_of_the_others() {
        let mut array = Array::new(1, 3);
        for key in 1..=3 {
            array.insert(key, false);
        }
        array.remove(2);
        array.remove(9);
        assert_eq!(array.insert(4, false), None);
        assert_eq!(array.insert(5, false).map(|evicted| evicted.key), Some(1));
        array.retain(|key| key == 3);
        assert_eq!((array.touch(3), array.touch(4), array.touch(5)), (Some(false), None, None));
    }

    #[test]
    fn ownership_comes_and_goes() {
        let mut array = Array::new(1, 2);
        array.insert(7, false);
        array.set_owned(7, true);
        array.set_owned(8, true);
        assert_eq!((array.touch(7), array.touch(8)), (Some(true), None));
        array.set_owned(7, false);
        assert_eq!(array.touch(7), Some(false));
    }
}
