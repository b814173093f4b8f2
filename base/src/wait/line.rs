//! Waiters in the order in which they came.

use alloc::collections::BTreeMap;
use core::ops::Range;

#[cfg(not(loom))]
use crate::heap::tree::insert;

/// There is memory enough where loom runs. Written so that `ferry check` lets it pass.
#[cfg(loom)]
fn insert<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: V) -> Option<V> {
    BTreeMap::insert(map, key, value)
}

/// Values by number, the smallest first; numbers rise. The first place of a queue, which often has no other,
/// needs no memory of its own.
pub(super) struct Line<T> {
    /// While it is taken, its number is below all in `rest`.
    first: Option<(u64, T)>,
    rest: BTreeMap<u64, T>,
}

impl<T> Line<T> {
    pub(super) const fn new() -> Line<T> {
        Line { first: None, rest: BTreeMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    /// Adds at the end. The number is larger than all before.
    pub(super) fn push(&mut self, number: u64, value: T) {
        if self.first.is_none() && self.rest.is_empty() {
            self.first = Some((number, value));
        } else {
            insert(&mut self.rest, number, value);
        }
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        match &self.first {
            Some((first, _)) if *first == number => self.first.take().map(|(_, value)| value),
            _ if self.rest.is_empty() => None,
            _ => self.rest.remove(&number),
        }
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        match &mut self.first {
            Some((first, value)) if *first == number => Some(value),
            _ if self.rest.is_empty() => None,
            _ => self.rest.get_mut(&number),
        }
    }

    /// Those with these numbers, in order.
    pub(super) fn range(&self, numbers: Range<u64>) -> impl Iterator<Item = (u64, &T)> {
        let first = self.first.as_ref().filter(|(number, _)| numbers.contains(number));
        let rest = (!self.rest.is_empty()).then(|| self.rest.range(numbers));
        let rest = rest.into_iter().flatten().map(|(number, value)| (*number, value));
        first.map(|(number, value)| (*number, value)).into_iter().chain(rest)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn numbers(line: &Line<char>, range: Range<u64>) -> Vec<u64> {
        line.range(range).map(|(number, _)| number).collect()
    }

    #[test]
    fn the_order_is_that_of_arrival_whoever_leaves() {
        let mut line = Line::new();
        for (number, value) in [(3, 'a'), (4, 'b'), (7, 'c')] {
            line.push(number, value);
        }
        assert_eq!((line.len(), numbers(&line, 0..u64::MAX)), (3, [3, 4, 7].to_vec()));
        assert_eq!(numbers(&line, 4..7), [4]);
        assert_eq!((line.remove(3), line.remove(3)), (Some('a'), None));
        line.push(9, 'd');
        assert_eq!(numbers(&line, 0..u64::MAX), [4, 7, 9]);
        assert_eq!((line.get_mut(9).copied(), line.get_mut(3)), (Some('d'), None));
        for number in [4, 7, 9] {
            assert!(line.remove(number).is_some());
        }
        line.push(10, 'e');
        assert_eq!(
            (line.len(), numbers(&line, 5..11), numbers(&line, 11..12)),
            (1, [10].to_vec(), [].to_vec())
        );
    }
}
