//! Giving tables back: those of ranges where nothing is mapped any more.
//!
//! ```text
//!  unlink ── cores in user mode are interrupted ──> recent ──> waiting ── no core walks them ──> spare ──> free
//!                                                      └──────────┴── new tables of this space ──┘
//! ```
//!
//! A core in the kernel that has the space's root loaded may walk a table on its own initiative until it
//! flushes, and it notes accesses there. So a table is kept until every core has forgotten it; until then it
//! may only be a table of the same space again, where such a note harms nothing and what the core cached is
//! flushed before it enters user mode. What waits is handed on in two groups, so that each has an end.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use hal::{Contract, Machine, PhysAddr, VirtAddr};

use super::{ENTRIES, INDEX_BITS, PAGE, PAGE_BITS, PageTable, TOP, entries, for_occupied, index};
use super::{find_occupied, lower_table};
use crate::memory::Frame;

/// In the first entry of a listed table beside the address of the next: there is one. Bit 0 is clear, so no
/// machine takes it for an entry.
const LINKED: u64 = 2;

/// Spare tables that a space keeps, so that mapping and unmapping one page need not ask for frames.
const MOST_SPARE: usize = 4;

/// Tables without entries; freed when it is dropped.
#[derive(Default)]
pub(crate) struct TableList {
    first: Option<PhysAddr>,
    length: usize,
}

impl TableList {
    fn link(table: PhysAddr) -> &'static AtomicU64 {
        // SAFETY: a listed table belongs to its list, and the reference is used at once.
        let [first, ..] = unsafe { entries(table) };
        first
    }

    /// Adds a table that has no entries and that nobody else has.
    fn push(&mut self, table: PhysAddr) {
        let next = self.first.map_or(0, |next| next.0 | LINKED);
        Self::link(table).store(next, Ordering::Relaxed);
        self.first = Some(table);
        self.length += 1;
    }

    /// A table, zeroed.
    fn pop(&mut self) -> Option<PhysAddr> {
        let table = self.first?;
        let next = Self::link(table).swap(0, Ordering::Relaxed);
        self.first = (next & LINKED != 0).then_some(PhysAddr(next & !(PAGE - 1)));
        self.length -= 1;
        Some(table)
    }

    /// Frees tables until `most` are left.
    fn shorten(&mut self, most: usize) -> usize {
        let mut freed = 0;
        while self.length > most
            && let Some(table) = self.pop()
        {
            // SAFETY: tables were made from frames, and this one is not used any more.
            drop(unsafe { Frame::from_address(table) });
            freed += 1;
        }
        freed
    }

    fn append(&mut self, other: &mut TableList) {
        while let Some(table) = other.pop() {
            self.push(table);
        }
    }
}

impl Drop for TableList {
    fn drop(&mut self) {
        self.shorten(0);
    }
}

/// Tables of a space that are linked nowhere.
#[derive(Default)]
pub(super) struct SpareTables {
    /// No core knows them.
    spare: TableList,
    /// Cores that know the space from this generation on do not know them.
    waiting: (TableList, u64),
    /// As `waiting`, and taken out later.
    recent: (TableList, u64),
}

impl SpareTables {
    /// A zeroed table for the same space.
    pub(super) fn take(&mut self) -> Option<PhysAddr> {
        self.spare.pop().or_else(|| self.waiting.0.pop()).or_else(|| self.recent.0.pop())
    }

    /// Whatever there is.
    pub(super) fn take_all(&mut self) -> TableList {
        let mut all = core::mem::take(&mut self.spare);
        all.append(&mut self.waiting.0);
        all.append(&mut self.recent.0);
        all
    }

    fn is_waiting(&self) -> bool {
        self.waiting.0.length + self.recent.0.length > 0
    }
}

impl PageTable {
    /// Gives back the tables of `range` that lie wholly in `hole`, where nothing is mapped. Takes as many
    /// steps as there are tables in `range`.
    pub fn trim(&mut self, range: Range<VirtAddr>, hole: Range<VirtAddr>) {
        let range = range.start.0..range.end.0.min(Machine::USER_END);
        let mut taken = TableList::default();
        if !range.is_empty() {
            unlink(self.root(), TOP, 0, &range, &(hole.start.0..hole.end.0), &mut taken);
        }
        if taken.length > 0 {
            let generation = self.space.forget_tables();
            self.spare.recent.0.append(&mut taken);
            self.spare.recent.1 = generation;
        }
        if self.spare.is_waiting() {
            self.sweep();
        }
    }

    /// Frees tables that no core knows any more.
    fn sweep(&mut self) {
        for _ in 0..2 {
            let SpareTables { spare, waiting, recent } = &mut self.spare;
            if waiting.0.length == 0 {
                core::mem::swap(waiting, recent);
            }
            if waiting.0.length == 0 || !self.space.have_cores_forgotten(waiting.1) {
                break;
            }
            spare.append(&mut waiting.0);
        }
        self.tables -= self.spare.spare.shorten(MOST_SPARE);
    }
}

/// Takes tables below `table`, of `level` and for addresses from `base` on, out of it.
fn unlink(
    table: PhysAddr,
    level: u32,
    base: u64,
    range: &Range<u64>,
    hole: &Range<u64>,
    taken: &mut TableList,
) {
    let span = 1_u64 << (PAGE_BITS + INDEX_BITS * level);
    let last_here = base + (span * ENTRIES as u64 - 1);
    let first = index(range.start.max(base), level);
    let last = index((range.end - 1).min(last_here), level);
    // SAFETY: tables of a space live while they are linked, and the caller has the space for itself.
    let here = unsafe { entries(table) };
    for_occupied(&here[first..=last], first, |at, place| {
        let Some(lower) = lower_table(place.load(Ordering::Relaxed)) else { return };
        let start = base + at as u64 * span;
        if level > 1 {
            unlink(lower, level - 1, start, range, hole, taken);
        }
        if hole.start <= start && start + span <= hole.end && is_empty(lower) {
            place.store(0, Ordering::Release);
            taken.push(lower);
        }
    });
}

fn is_empty(table: PhysAddr) -> bool {
    // SAFETY: as in `unlink`.
    find_occupied(unsafe { entries(table) }, 0, |_, _| Some(())).is_none()
}
