//! Short lists of ranges of physical memory. Pure data, tested on the host.

/// Ranges that a list holds.
pub(crate) const MOST_RANGES: usize = 64;

/// A range of physical memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// A short list of ranges.
pub(crate) struct Ranges {
    list: [Range; MOST_RANGES],
    count: usize,
}

impl Ranges {
    pub(crate) const fn new() -> Self {
        Self { list: [Range { start: 0, end: 0 }; MOST_RANGES], count: 0 }
    }

    /// Appends; what does not fit is memory that goes unused.
    pub(crate) fn push(&mut self, range: Range) {
        if let Some(slot) = self.list.get_mut(self.count)
            && range.start < range.end
        {
            *slot = range;
            self.count += 1;
        }
    }

    pub(crate) fn as_slice(&self) -> &[Range] {
        &self.list[..self.count]
    }

    /// Takes `hole` out of all ranges.
    pub(crate) fn remove(&mut self, hole: Range) {
        if hole.start >= hole.end {
            return;
        }
        let mut left = Self::new();
        for range in self.as_slice() {
            left.push(Range { start: range.start, end: range.end.min(hole.start) });
            left.push(Range { start: range.start.max(hole.end), end: range.end });
        }
        *self = left;
    }

    /// Takes `size` bytes from the first range that has them below `limit`.
    pub(crate) fn take(&mut self, size: u64, limit: u64) -> Option<u64> {
        let range = self.list[..self.count]
            .iter_mut()
            .find(|range| range.end.min(limit).saturating_sub(range.start) >= size)?;
        let start = range.start;
        range.start += size;
        Some(start)
    }

    /// The ranges in ascending order, rounded outwards to multiples of `alignment`, a power of two;
    /// those that touch become one.
    pub(crate) fn rounded_out(&self, alignment: u64) -> Self {
        let mut sorted = self.list;
        let sorted = &mut sorted[..self.count];
        sorted.sort_unstable_by_key(|range| range.start);
        let mut rounded = Self::new();
        let mut current = Range::default();
        for range in sorted {
            let start = range.start & !(alignment - 1);
            let end = range.end.next_multiple_of(alignment);
            if start <= current.end {
                current.end = current.end.max(end);
            } else {
                rounded.push(current);
                current = Range { start, end };
            }
        }
        rounded.push(current);
        rounded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ranges: &[(u64, u64)]) -> Ranges {
        let mut list = Ranges::new();
        ranges.iter().for_each(|&(start, end)| list.push(Range { start, end }));
        list
    }

    fn pairs(list: &Ranges) -> Vec<(u64, u64)> {
        list.as_slice().iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn a_hole_splits_cuts_and_swallows() {
        let mut ranges = list(&[(0, 10), (20, 30), (40, 50)]);
        ranges.remove(Range { start: 3, end: 5 });
        ranges.remove(Range { start: 18, end: 45 });
        assert_eq!(pairs(&ranges), [(0, 3), (5, 10), (45, 50)]);
        ranges.remove(Range { start: 7, end: 7 });
        assert_eq!(pairs(&ranges), [(0, 3), (5, 10), (45, 50)]);
    }

    #[test]
    fn taking_respects_the_limit() {
        let mut ranges = list(&[(0, 10), (100, 200)]);
        assert_eq!(ranges.take(20, 115), None);
        assert_eq!(ranges.take(20, 120), Some(100));
        assert_eq!(ranges.take(10, 120), Some(0));
        assert_eq!(ranges.take(10, 120), None);
    }

    #[test]
    fn rounding_sorts_and_joins() {
        let ranges = list(&[(0x250, 0x300), (0, 0x10), (0x20, 0x90), (0x500, 0x501)]);
        assert_eq!(pairs(&ranges.rounded_out(0x100)), [(0, 0x100), (0x200, 0x300), (0x500, 0x600)]);
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let mut ranges = Ranges::new();
        (0..100).for_each(|index| ranges.push(Range { start: index * 2, end: index * 2 + 1 }));
        assert_eq!(ranges.as_slice().len(), MOST_RANGES);
    }
}
