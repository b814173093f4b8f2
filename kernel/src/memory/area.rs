//! Areas: what is mapped where, with which rights, backed by what.
//!
//! `AreaMap` is the pure part of an address space: an ordered map from start addresses to areas that
//! never overlap, with splitting, joining, cutting out and searching for room. It knows neither page
//! tables nor locks, so all of it is tested on the host. Every address in here is page-aligned.

use abi::memory::Protection;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::heap::tree;
use bitflags::bitflags;
use core::ops::Range;

use super::attach::Attachment;
use super::layout::{PAGE, STACK_GUARD};
use super::placement::Placement;
use super::source::PageSource;

bitflags! {
    /// Properties of an area besides its protection.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct AreaFlags: u32 {
        /// Writes go to the source and are seen by all who map it.
        const SHARED = 1;
        /// Grows down when the page below it is touched.
        const GROWS_DOWN = 1 << 1;
        /// Counted against the limit of locked memory.
        const LOCKED = 1 << 2;
        /// Not counted as a promise of memory.
        const NO_RESERVE = 1 << 3;
        /// A child does not get it.
        const DONT_FORK = 1 << 4;
        /// A child gets it empty.
        const WIPE_ON_FORK = 1 << 5;
        /// Left out of a core dump.
        const DONT_DUMP = 1 << 6;
        /// The kernel put it there and it may not be resized or advised (`[vdso]`).
        const SPECIAL = 1 << 7;
        /// It may only be executed, not even read.
        const HIDDEN = 1 << 8;
        /// Its source has to know of a write to a page before it happens.
        const TRACKED = 1 << 9;
    }
}

/// A source that is mapped, with the name that `/proc/PID/maps` shows.
pub struct Object {
    /// Where pages come from.
    pub source: Arc<dyn PageSource>,
    /// Path of the file, or a name such as `[vdso]`.
    pub name: Vec<u8>,
}

/// What stands behind an area.
#[derive(Clone)]
pub enum Backing {
    /// Zero pages, private.
    Anonymous,
    /// Pages of a source.
    Object {
        /// The source.
        object: Arc<Object>,
        /// Page of the source that the first page of the area shows.
        first_page: u64,
    },
}

impl Backing {
    /// The backing as seen from `pages` further into the area.
    fn advanced(&self, pages: u64) -> Backing {
        match self {
            Backing::Anonymous => Backing::Anonymous,
            Backing::Object { object, first_page } => {
                Backing::Object { object: object.clone(), first_page: first_page + pages }
            }
        }
    }

    /// Whether `other`, `pages` further on, continues this backing.
    fn is_continued_by(&self, other: &Backing, pages: u64) -> bool {
        match (self, other) {
            (Backing::Anonymous, Backing::Anonymous) => true,
            (
                Backing::Object { object: a, first_page: at },
                Backing::Object { object: b, first_page: bt },
            ) => Arc::ptr_eq(a, b) && at + pages == *bt,
            _ => false,
        }
    }
}

/// One mapping; its start is its key in the `AreaMap`.
#[derive(Clone)]
pub struct Area {
    /// One past the last byte.
    pub end: u64,
    /// Rights of the program.
    pub protection: Protection,
    /// The most that `mprotect` may grant.
    pub allowed: Protection,
    /// Other properties.
    pub flags: AreaFlags,
    /// What stands behind it.
    pub backing: Backing,
    /// Counts the area as an attachment of a shared-memory segment.
    pub attachment: Option<Attachment>,
    /// On which nodes its pages shall lie; `None` for where the thread's policy says.
    pub placement: Option<Placement>,
}

impl Area {
    /// Whether writes are private to the address space.
    pub fn is_private(&self) -> bool {
        !self.flags.contains(AreaFlags::SHARED)
    }

    /// Whether a page that is mapped may be written to without asking the source, as far as the program may.
    pub fn is_freely_written(&self) -> bool {
        !self.is_private() && !self.flags.contains(AreaFlags::TRACKED)
    }

    /// Whether letting go of it may close a file or detach a segment.
    pub fn refers_to_something(&self) -> bool {
        self.attachment.is_some() || matches!(self.backing, Backing::Object { .. })
    }

    /// Whether it promises memory that may have to be found later.
    pub fn is_accounted(&self) -> bool {
        self.is_accounted_with(self.protection)
    }

    /// The same if it had these rights.
    pub fn is_accounted_with(&self, protection: Protection) -> bool {
        self.is_private()
            && protection.contains(Protection::WRITE)
            && !self.flags.contains(AreaFlags::NO_RESERVE)
    }

    /// The same area without what lies below `offset` bytes.
    fn tail(&self, offset: u64) -> Area {
        Area { backing: self.backing.advanced(offset / PAGE), ..self.clone() }
    }

    /// The source and page index behind the page at `offset` bytes into the area.
    pub fn object_page(&self, offset: u64) -> Option<(&Arc<Object>, u64)> {
        match &self.backing {
            Backing::Anonymous => None,
            Backing::Object { object, first_page } => Some((object, first_page + offset / PAGE)),
        }
    }

    fn is_joinable(&self, start: u64, next: &Area) -> bool {
        self.protection == next.protection
            && self.allowed == next.allowed
            && self.flags == next.flags
            && self.placement == next.placement
            && !self.flags.contains(AreaFlags::SPECIAL)
            && self.attachment.is_none()
            && next.attachment.is_none()
            && self.backing.is_continued_by(&next.backing, (self.end - start) / PAGE)
    }
}

/// Pages of all areas, by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AreaTotals {
    /// Areas that grow down.
    pub stack: u64,
    /// Private and writable, without the stack.
    pub data: u64,
    /// Executable, and none of the above.
    pub text: u64,
    /// Locked.
    pub locked: u64,
}

impl AreaTotals {
    fn add(&mut self, start: u64, area: &Area) {
        let pages = (area.end - start) / PAGE;
        self.each(area, |total| *total += pages);
    }

    fn subtract(&mut self, start: u64, area: &Area) {
        let pages = (area.end - start) / PAGE;
        self.each(area, |total| *total -= pages);
    }

    /// The totals in which an area counts.
    fn each(&mut self, area: &Area, count: impl Fn(&mut u64)) {
        if area.flags.contains(AreaFlags::GROWS_DOWN) {
            count(&mut self.stack);
        } else if area.is_private() && area.protection.contains(Protection::WRITE) {
            count(&mut self.data);
        } else if area.protection.contains(Protection::EXECUTE) {
            count(&mut self.text);
        }
        if area.flags.contains(AreaFlags::LOCKED) {
            count(&mut self.locked);
        }
    }
}

/// All areas of an address space.
#[derive(Clone, Default)]
pub struct AreaMap {
    map: BTreeMap<u64, Area>,
    /// Kept up to date by whatever adds, removes and changes areas; splits and joins leave them as they are.
    totals: AreaTotals,
}

impl AreaMap {
    /// An empty map.
    pub fn new() -> AreaMap {
        AreaMap::default()
    }

    /// Number of areas.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Pages by what they are for.
    pub fn totals(&self) -> AreaTotals {
        self.totals
    }

    /// All areas, lowest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Area)> {
        self.map.iter().map(|(start, area)| (*start, area))
    }

    /// The area that `address` lies in.
    pub fn find(&self, address: u64) -> Option<(u64, &Area)> {
        let (start, area) = self.map.range(..=address).next_back()?;
        (address < area.end).then_some((*start, area))
    }

    /// The first area that starts above `address`.
    pub fn next_above(&self, address: u64) -> Option<(u64, &Area)> {
        let above = address.checked_add(1)?;
        self.map.range(above..).next().map(|(start, area)| (*start, area))
    }

    /// The last area that ends at or below `address`.
    pub fn last_below(&self, address: u64) -> Option<(u64, &Area)> {
        let (start, area) = self.map.range(..address).next_back()?;
        (area.end <= address).then_some((*start, area))
    }

    /// The areas that share a byte with `range`, lowest first.
    pub fn overlapping(
        &self,
        range: Range<u64>,
    ) -> impl DoubleEndedIterator<Item = (u64, &Area)> + Clone {
        let first = self.find(range.start).map_or(range.start, |(start, _)| start);
        let end = range.end.max(first);
        self.map.range(first..end).map(|(start, area)| (*start, area))
    }

    /// Whether `range` is free.
    pub fn is_free(&self, range: Range<u64>) -> bool {
        self.overlapping(range).next().is_none()
    }

    /// Whether every byte of `range` is in some area.
    pub fn is_covered(&self, range: Range<u64>) -> bool {
        let mut reached = range.start;
        for (start, area) in self.overlapping(range.clone()) {
            if start > reached {
                return false;
            }
            reached = area.end;
        }
        reached >= range.end
    }

    /// Makes `address` a boundary between areas, if it is inside one.
    pub fn split(&mut self, address: u64) {
        let Some((&start, area)) = self.map.range(..address).next_back() else { return };
        if area.end <= address {
            return;
        }
        let tail = area.tail(address - start);
        // What may find no memory comes first.
        tree::insert(&mut self.map, address, tail);
        if let Some(area) = self.map.get_mut(&start) {
            area.end = address;
        }
    }

    /// Cuts `range` out and returns what was there, lowest first.
    pub fn remove(&mut self, range: Range<u64>) -> Vec<(u64, Area)> {
        self.split(range.start);
        self.split(range.end);
        let mut removed = Vec::with_capacity(self.map.range(range.clone()).count());
        while let Some((&start, _)) = self.map.range(range.clone()).next() {
            if let Some(area) = self.map.remove(&start) {
                self.totals.subtract(start, &area);
                removed.push((start, area));
            }
        }
        removed
    }

    /// Lets go of up to `count` areas; whether some are left.
    pub fn drop_some(&mut self, count: usize) -> bool {
        for _ in 0..count {
            let Some((start, area)) = self.map.pop_first() else { break };
            self.totals.subtract(start, &area);
        }
        !self.map.is_empty()
    }

    /// Adds an area where nothing is, and joins it with its neighbours where they are alike.
    pub fn insert(&mut self, start: u64, area: Area) {
        debug_assert!(self.is_free(start..area.end));
        let end = area.end;
        let mut totals = self.totals;
        totals.add(start, &area);
        // What may find no memory comes first.
        tree::insert(&mut self.map, start, area);
        self.totals = totals;
        self.join_at(end);
        self.join_at(start);
    }

    /// Changes every area in `range` (which is split at its ends), and joins again.
    pub fn change(&mut self, range: Range<u64>, mut change: impl FnMut(u64, &mut Area)) {
        self.split(range.start);
        self.split(range.end);
        let mut boundaries = Vec::new();
        for (start, area) in self.map.range_mut(range.clone()) {
            self.totals.subtract(*start, area);
            change(*start, area);
            self.totals.add(*start, area);
            boundaries.push(*start);
        }
        boundaries.push(range.end);
        for boundary in boundaries.into_iter().rev() {
            self.join_at(boundary);
        }
    }

    /// Moves the start of the area at `start` down to `to`.
    pub fn grow_down(&mut self, start: u64, to: u64) {
        if let Some(area) = self.map.get(&start).cloned() {
            let mut totals = self.totals;
            totals.subtract(start, &area);
            totals.add(to, &area);
            tree::insert(&mut self.map, to, area);
            self.map.remove(&start);
            self.totals = totals;
        }
    }

    /// Moves the end of the area at `start` up to `end`.
    pub fn set_end(&mut self, start: u64, end: u64) {
        if let Some(area) = self.map.get_mut(&start) {
            self.totals.subtract(start, area);
            area.end = end;
            self.totals.add(start, area);
        }
        self.join_at(end);
    }

    fn join_at(&mut self, boundary: u64) {
        let Some(upper) = self.map.get(&boundary) else { return };
        let Some((&start, lower)) = self.map.range(..boundary).next_back() else { return };
        if lower.end != boundary || !lower.is_joinable(start, upper) {
            return;
        }
        let end = upper.end;
        self.map.remove(&boundary);
        if let Some(lower) = self.map.get_mut(&start) {
            lower.end = end;
        }
    }

    /// The highest start of `length` free bytes inside `within`. Room is left below areas that grow
    /// down. `None` when there is none.
    pub fn find_room_from_top(&self, length: u64, within: Range<u64>) -> Option<u64> {
        let mut ceiling = within.end;
        if let Some((start, area)) = self.map.range(within.end..).next() {
            ceiling = ceiling.min(guarded_start(*start, area));
        }
        for (start, area) in self.map.range(..within.end).rev() {
            let floor = area.end.max(within.start);
            if ceiling >= floor && ceiling - floor >= length {
                return Some(ceiling - length);
            }
            ceiling = ceiling.min(guarded_start(*start, area));
            if ceiling < within.start {
                return None;
            }
        }
        (ceiling >= within.start && ceiling - within.start >= length).then(|| ceiling - length)
    }

    /// The lowest start of `length` free bytes inside `within`.
    pub fn find_room_from_bottom(&self, length: u64, within: Range<u64>) -> Option<u64> {
        let mut floor = match self.find(within.start) {
            Some((_, area)) => area.end,
            None => within.start,
        };
        for (start, area) in self.map.range(within.start..within.end) {
            if *start >= floor && guarded_start(*start, area).saturating_sub(floor) >= length {
                return Some(floor);
            }
            floor = floor.max(area.end);
        }
        (within.end.saturating_sub(floor) >= length).then_some(floor)
    }
}

/// Where the room below an area ends.
fn guarded_start(start: u64, area: &Area) -> u64 {
    if area.flags.contains(AreaFlags::GROWS_DOWN) {
        start.saturating_sub(STACK_GUARD)
    } else {
        start
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::SharedStore;
    use super::*;
    use alloc::vec;

    fn anonymous(end: u64, protection: Protection) -> Area {
        Area {
            end: end * PAGE,
            protection,
            allowed: Protection::all(),
            flags: AreaFlags::empty(),
            backing: Backing::Anonymous,
            attachment: None,
            placement: None,
        }
    }

    fn with(areas: &[(u64, u64)]) -> AreaMap {
        let mut map = AreaMap::new();
        for (index, (start, end)) in areas.iter().enumerate() {
            let protection = [Protection::READ, Protection::WRITE][index % 2];
            map.insert(start * PAGE, anonymous(*end, protection));
        }
        map
    }

    fn shape(map: &AreaMap) -> Vec<(u64, u64)> {
        map.iter().map(|(start, area)| (start / PAGE, area.end / PAGE)).collect()
    }

    #[test]
    fn neighbours_that_are_alike_are_joined() {
        let mut map = AreaMap::new();
        map.insert(PAGE, anonymous(2, Protection::READ));
        map.insert(3 * PAGE, anonymous(4, Protection::READ));
        map.insert(2 * PAGE, anonymous(3, Protection::READ));
        assert_eq!(shape(&map), [(1, 4)]);
    }

    #[test]
    fn neighbours_that_differ_stay_apart() {
        assert_eq!(shape(&with(&[(1, 2), (2, 3)])), [(1, 2), (2, 3)]);
    }

    #[test]
    fn cutting_out_splits_and_keeps_the_page_of_the_source() {
        let object = Arc::new(Object { source: SharedStore::new(10 * PAGE), name: vec![] });
        let backing = Backing::Object { object, first_page: 5 };
        let mut map = AreaMap::new();
        map.insert(10 * PAGE, Area { backing, ..anonymous(20, Protection::READ) });
        let removed = map.remove(12 * PAGE..15 * PAGE);
        assert_eq!(removed.len(), 1);
        assert_eq!(shape(&map), [(10, 12), (15, 20)]);
        let page_at = |address: u64| {
            let (start, area) = map.find(address * PAGE).unwrap();
            area.object_page(address * PAGE - start).unwrap().1
        };
        assert_eq!(page_at(11), 6);
        assert_eq!(page_at(15), 10);
        assert_eq!(page_at(19), 14);
    }

    #[test]
    fn a_change_splits_at_its_ends_and_undoing_it_joins() {
        let mut map = with(&[(1, 9)]);
        map.change(3 * PAGE..5 * PAGE, |_, area| area.protection = Protection::empty());
        assert_eq!(shape(&map), [(1, 3), (3, 5), (5, 9)]);
        map.change(3 * PAGE..5 * PAGE, |_, area| area.protection = Protection::READ);
        assert_eq!(shape(&map), [(1, 9)]);
    }

    #[test]
    fn coverage_sees_holes() {
        let map = with(&[(1, 3), (3, 4), (5, 6)]);
        assert!(map.is_covered(PAGE..4 * PAGE));
        assert!(!map.is_covered(PAGE..5 * PAGE));
        assert!(!map.is_covered(0..2 * PAGE));
        assert!(!map.is_covered(5 * PAGE..7 * PAGE));
    }

    #[test]
    fn room_is_found_from_the_top() {
        let map = with(&[(10, 12), (14, 20)]);
        let within = 4 * PAGE..18 * PAGE;
        assert_eq!(map.find_room_from_top(2 * PAGE, within.clone()), Some(12 * PAGE));
        assert_eq!(map.find_room_from_top(3 * PAGE, within.clone()), Some(7 * PAGE));
        assert_eq!(map.find_room_from_top(6 * PAGE, within.clone()), Some(4 * PAGE));
        assert_eq!(map.find_room_from_top(7 * PAGE, within), None);
        assert_eq!(map.find_room_from_top(PAGE, 4 * PAGE..30 * PAGE), Some(29 * PAGE));
    }

    #[test]
    fn room_is_found_from_the_bottom() {
        let map = with(&[(3, 6), (8, 20)]);
        let within = 4 * PAGE..30 * PAGE;
        assert_eq!(map.find_room_from_bottom(2 * PAGE, within.clone()), Some(6 * PAGE));
        assert_eq!(map.find_room_from_bottom(3 * PAGE, within.clone()), Some(20 * PAGE));
        assert_eq!(map.find_room_from_bottom(11 * PAGE, within), None);
    }

    #[test]
    fn room_leaves_a_guard_below_a_stack() {
        let mut map = AreaMap::new();
        let stack = Area { flags: AreaFlags::GROWS_DOWN, ..anonymous(1001, Protection::WRITE) };
        map.insert(1000 * PAGE, stack);
        let room = map.find_room_from_top(PAGE, 0..1001 * PAGE);
        assert_eq!(room, Some(1000 * PAGE - STACK_GUARD - PAGE));
    }

    #[test]
    fn random_operations_agree_with_a_page_map() {
        let mut map = AreaMap::new();
        let mut model = [None; 64];
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = move |bound: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % bound
        };
        for _ in 0..20_000 {
            let start = next(63);
            let end = start + 1 + next(64 - start - 1).min(8);
            let range = start * PAGE..end * PAGE;
            let pages = start as usize..end as usize;
            let protection = Protection::from_bits_truncate(next(4) as u32);
            match next(3) {
                0 => {
                    map.remove(range);
                    model[pages].fill(None);
                }
                1 => {
                    map.remove(range);
                    map.insert(start * PAGE, anonymous(end, protection));
                    model[pages].fill(Some(protection));
                }
                _ => {
                    map.change(range, |_, area| area.protection = protection);
                    model[pages].iter_mut().flatten().for_each(|page| *page = protection);
                }
            }
            let seen = core::array::from_fn(|page| {
                map.find(page as u64 * PAGE).map(|(_, area)| area.protection)
            });
            assert_eq!(model, seen);
        }
        let joined = map
            .iter()
            .zip(map.iter().skip(1))
            .all(|((_, a), (start, b))| a.end < start || a.protection != b.protection);
        assert!(joined, "alike neighbours were left apart");
    }
}
