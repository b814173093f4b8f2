//! Page tables: the owner of what user space sees.
//!
//! A leaf entry owns one reference of its frame. The table tells the cores whenever translations that
//! they may have cached became wrong (`user::invalidate`), and lets go of a frame only after that: so a
//! frame is never freed or handed on while a core can still write to it. Methods on ranges do this
//! once, at their end. Tables themselves are given back when their range is empty (`spare.rs`), the others
//! with the space (`SpaceHandle`).
//!
//! Adding a page or a right needs no word to anybody: a core that still has the old answer faults, and
//! looks again.
//!
//! The hardware sets "accessed" and "dirty" at any time, so entries are atomics and changes of present
//! ones are exchanges.

use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use hal::contract::{Entry, PageRights};
use hal::{Contract, Machine, PAGE_SIZE, PhysAddr, VirtAddr};

mod ranges;
mod spare;
mod user_bytes;

use super::allocator::frames;
use super::{Frame, OutOfMemory};
use crate::cpu::CpuId;
use crate::task;
use crate::user::{SpaceHandle, invalidate};

use spare::SpareTables;
pub(crate) use spare::TableList;

const ENTRIES: usize = 512;
const PAGE: u64 = PAGE_SIZE as u64;
/// Bytes that one leaf table covers.
const LEAF_SPAN: u64 = PAGE * ENTRIES as u64;
const INDEX_BITS: u32 = 9;
const PAGE_BITS: u32 = 12;

/// What is mapped at a page.
#[derive(Debug)]
pub struct Mapping {
    /// The frame; one more owner of it.
    pub frame: Frame,
    /// Rights of user code.
    pub rights: PageRights,
    /// The page was read or written since this was cleared.
    pub accessed: bool,
    /// The page was written since this was cleared.
    pub dirty: bool,
    /// What the kernel noted with `map_marked`.
    pub software: u8,
}

/// What is known of a mapped page without becoming an owner of its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageState {
    /// Where the frame is; for identity only.
    pub frame: PhysAddr,
    /// Owners of the frame, this mapping included. When it is 1, this mapping is the only one.
    pub references: u32,
    /// Rights of user code.
    pub rights: PageRights,
    /// The page was read or written since this was cleared.
    pub accessed: bool,
    /// The page was written since this was cleared.
    pub dirty: bool,
    /// What the kernel noted with `map_marked`.
    pub software: u8,
}

/// How `share_range` shares pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShareMode {
    /// Both see the writes of both.
    Shared,
    /// Neither may write any more; the first who tries gets a copy from the fault handler.
    CopyOnWrite,
}

/// The user half of an address space. Rule: entries are changed only through `&mut self`, except for
/// "accessed" and "dirty", which the machine sets too.
pub struct PageTable {
    space: Arc<SpaceHandle>,
    /// Frames that the tables take, the root and spare ones among them.
    tables: usize,
    spare: SpareTables,
}

impl Drop for PageTable {
    fn drop(&mut self) {
        self.space.leave(self.spare.take_all());
    }
}

/// One space's tables may take this part of all frames.
const TABLE_SHARE: usize = 4;

/// The entries of a table.
///
/// # Safety
/// `table` is a page-table frame that lives at least as long as the result is used.
#[inline]
unsafe fn entries<'a>(table: PhysAddr) -> &'a [AtomicU64; ENTRIES] {
    // SAFETY: a page of RAM, by the caller's promise, which is accessed atomically only.
    unsafe { &*Machine::phys_to_virt(table).cast::<[AtomicU64; ENTRIES]>() }
}

#[inline]
const fn index(address: u64, level: u32) -> usize {
    (address >> (PAGE_BITS + INDEX_BITS * level)) as usize % ENTRIES
}

const TOP: u32 = Machine::TABLE_LEVELS - 1;

/// Shows the entries that are not zero, with their index counted from `first`, until one is wanted. Looks
/// at eight at a time: most tables are nearly empty.
#[inline(always)]
fn find_occupied<'a, T>(
    table: &'a [AtomicU64],
    first: usize,
    mut each: impl FnMut(usize, &'a AtomicU64) -> Option<T>,
) -> Option<T> {
    const GROUP: usize = 8;
    let (groups, rest) = table.as_chunks::<GROUP>();
    let mut start = first;
    let mut in_group = |group: &'a [AtomicU64], start: usize| {
        for (offset, entry) in group.iter().enumerate() {
            if entry.load(Ordering::Relaxed) != 0
                && let Some(found) = each(start + offset, entry)
            {
                return Some(found);
            }
        }
        None
    };
    for group in groups {
        let any = group.iter().fold(0, |all, entry| all | entry.load(Ordering::Relaxed));
        if any != 0
            && let Some(found) = in_group(group, start)
        {
            return Some(found);
        }
        start += GROUP;
    }
    in_group(rest, start)
}

/// Shows all entries that are not zero, as `find_occupied`.
#[inline(always)]
fn for_occupied<'a>(
    table: &'a [AtomicU64],
    first: usize,
    mut each: impl FnMut(usize, &'a AtomicU64),
) {
    let _ = find_occupied(table, first, |at, entry| {
        each(at, entry);
        None::<()>
    });
}

#[inline]
fn lower_table(raw: u64) -> Option<PhysAddr> {
    Machine::entry_frame(raw)
}

fn table_entry(frame: PhysAddr) -> u64 {
    let rights = PageRights { write: true, execute: true, user: true, hidden: false };
    let entry = Entry { frame, rights, accessed: false, dirty: false, software: 0 };
    Machine::encode_entry(entry, false)
}

/// Pages and tables that are freed in one go.
const FREED_AT_ONCE: usize = 512;

/// Frees all tables under a root, the root, and what they map: the first part at once, the rest by a task,
/// in turns.
///
/// # Safety
/// No core has the root loaded, and no `PageTable` with it exists.
pub(crate) unsafe fn free_tables(root: PhysAddr) {
    // SAFETY: by the caller's promise, now and in the task: nobody else knows the root.
    if unsafe { free_part(root) } {
        return;
    }
    // The host has nobody to run the task.
    let is_left_to_task = cfg!(target_os = "none")
        && task::spawn(CpuId::current(), async move {
            // SAFETY: as above.
            while !unsafe { free_part(root) } {
                task::yield_now().await;
            }
        })
        .is_ok();
    // SAFETY: as above.
    while !is_left_to_task && !unsafe { free_part(root) } {}
}

/// Frees a part of what is under a root; true when all is freed, and the root too.
///
/// # Safety
/// As for `free_tables`.
unsafe fn free_part(root: PhysAddr) -> bool {
    let users = index(Machine::USER_END - 1, TOP) + 1;
    let mut left = FREED_AT_ONCE;
    // SAFETY: the tables under a root belong to it; what is freed is taken out of them.
    let is_empty = unsafe { free_level(root, TOP, users, &mut left) };
    if is_empty {
        // SAFETY: the root was made from a frame, and is not used any more.
        drop(unsafe { Frame::from_address(root) });
    }
    is_empty
}

/// Takes out and frees what is below one table of `level`, in its first `count` entries, until `left` is used
/// up. True when nothing is below it any more.
///
/// # Safety
/// As for `free_tables`.
unsafe fn free_level(table: PhysAddr, level: u32, count: usize, left: &mut usize) -> bool {
    // SAFETY: the table is alive until the end of this function.
    let used = &unsafe { entries(table) }[..count.min(ENTRIES)];
    let stopped = find_occupied(used, 0, |_, entry| {
        if *left == 0 {
            return Some(());
        }
        let frame = Machine::entry_frame(entry.load(Ordering::Relaxed))?;
        // SAFETY: by the caller's promise.
        if level > 0 && !unsafe { free_level(frame, level - 1, ENTRIES, left) } {
            return Some(());
        }
        entry.store(0, Ordering::Relaxed);
        *left = left.saturating_sub(1);
        // SAFETY: a present leaf entry owns a reference, and an empty table is not used any more.
        drop(unsafe { Frame::from_address(frame) });
        None
    });
    stopped.is_none()
}

impl PageTable {
    /// An empty user half.
    pub fn new() -> Result<PageTable, OutOfMemory> {
        let root = Frame::zeroed()?.into_address();
        // SAFETY: the frame is fresh and zeroed.
        unsafe { Machine::prepare_root(root) };
        Ok(PageTable {
            space: Arc::new(SpaceHandle::new(root)),
            tables: 1,
            spare: SpareTables::default(),
        })
    }

    /// What `user::run` needs.
    pub fn handle(&self) -> &Arc<SpaceHandle> {
        &self.space
    }

    /// The root table.
    pub fn root(&self) -> PhysAddr {
        self.space.root()
    }

    /// The leaf table of an address, if there is one.
    #[inline]
    fn leaf_table(&self, address: u64) -> Option<&[AtomicU64; ENTRIES]> {
        if address >= Machine::USER_END {
            return None;
        }
        let mut table = self.root();
        for level in (1..=TOP).rev() {
            // SAFETY: tables live as long as the space, which we hold.
            let raw = unsafe { entries(table) }[index(address, level)].load(Ordering::Acquire);
            table = lower_table(raw)?;
        }
        // SAFETY: as above.
        Some(unsafe { entries(table) })
    }

    /// Frames that the tables take.
    pub fn table_count(&self) -> usize {
        self.tables
    }

    /// The frame of a new table.
    #[cold]
    fn new_table(&mut self) -> Result<PhysAddr, OutOfMemory> {
        if let Some(table) = self.spare.take() {
            return Ok(table);
        }
        // Who touches one page here and one there makes tables that count as nobody's pages.
        if self.tables >= frames().total / TABLE_SHARE {
            return Err(OutOfMemory);
        }
        let table = Frame::zeroed()?.into_address();
        self.tables += 1;
        Ok(table)
    }

    /// The leaf table of an address, made if there is none. Fails, too, when this space has more tables
    /// than one may have.
    #[inline]
    fn leaf_table_or_new(&mut self, address: u64) -> Result<&[AtomicU64; ENTRIES], OutOfMemory> {
        if address >= Machine::USER_END {
            return Err(OutOfMemory);
        }
        let mut table = self.root();
        for level in (1..=TOP).rev() {
            // SAFETY: tables live as long as the space, which we hold.
            let entry = &unsafe { entries(table) }[index(address, level)];
            table = match lower_table(entry.load(Ordering::Acquire)) {
                Some(lower) => lower,
                None => {
                    let lower = self.new_table()?;
                    entry.store(table_entry(lower), Ordering::Release);
                    lower
                }
            };
        }
        // SAFETY: as above.
        Ok(unsafe { entries(table) })
    }

    #[inline]
    fn entry(&self, address: u64) -> Option<&AtomicU64> {
        self.leaf_table(address).map(|table| &table[index(address, 0)])
    }

    /// Maps a page and returns what was mapped there before. When something was, this waits until no
    /// core uses it any more. Addresses beyond user space are refused.
    #[inline]
    pub fn map(
        &mut self,
        page: VirtAddr,
        frame: Frame,
        rights: PageRights,
    ) -> Result<Option<Frame>, OutOfMemory> {
        self.map_marked(page, frame, rights, 0)
    }

    /// Like `map`, with a note of 0 to 7 for `PageState::software`.
    pub fn map_marked(
        &mut self,
        page: VirtAddr,
        frame: Frame,
        rights: PageRights,
        software: u8,
    ) -> Result<Option<Frame>, OutOfMemory> {
        debug_assert_eq!(page.0 % PAGE, 0);
        let table = self.leaf_table_or_new(page.0)?;
        // "Accessed" saves the machine the write at the first use, which is about to come.
        let entry = Entry {
            frame: frame.into_address(),
            rights,
            accessed: true,
            dirty: false,
            software: software & 7,
        };
        let raw = Machine::encode_entry(entry, true);
        let place = &table[index(page.0, 0)];
        if place.load(Ordering::Relaxed) == 0 {
            place.store(raw, Ordering::Release);
            return Ok(None);
        }
        let before = Machine::decode_entry(place.swap(raw, Ordering::AcqRel));
        Ok(before.map(|before| {
            invalidate(&self.space, Some(page));
            // SAFETY: the entry owned a reference, which it lost by the swap.
            unsafe { Frame::from_address(before.frame) }
        }))
    }

    /// Takes a page away and waits until no core uses it any more.
    pub fn unmap(&mut self, page: VirtAddr) -> Option<Frame> {
        let before = Machine::decode_entry(self.entry(page.0)?.swap(0, Ordering::AcqRel))?;
        invalidate(&self.space, Some(page));
        // SAFETY: the entry owned a reference, which it lost by the swap.
        Some(unsafe { Frame::from_address(before.frame) })
    }

    /// Changes a present entry, keeping what the machine notes meanwhile. True when it was present.
    fn change(place: &AtomicU64, mut change: impl FnMut(&mut Entry)) -> Option<(Entry, Entry)> {
        let mut raw = place.load(Ordering::Relaxed);
        loop {
            let before = Machine::decode_entry(raw)?;
            let mut after = before;
            change(&mut after);
            after.frame = before.frame;
            if after == before {
                return Some((before, after));
            }
            let new = Machine::encode_entry(after, true);
            match place.compare_exchange(raw, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some((before, after)),
                Err(now) => raw = now,
            }
        }
    }

    /// Whether cores must be told that `before` became `after`.
    fn loses_rights(before: &Entry, after: &Entry) -> bool {
        let (old, new) = (before.rights, after.rights);
        (old.write && !new.write)
            || (old.execute && !new.execute)
            || (old.user && !new.user)
            || (before.dirty && !after.dirty)
            || (before.accessed && !after.accessed)
    }

    /// Sets the rights of a page; false when none is mapped. When it loses rights, this waits until no
    /// core has them any more.
    pub fn set_rights(&mut self, page: VirtAddr, rights: PageRights) -> bool {
        self.update(page, |state| (rights, state.software))
    }

    /// Sets the rights and the note of a page to what `decide` says; false when none is mapped.
    pub fn update(
        &mut self,
        page: VirtAddr,
        decide: impl FnOnce(PageState) -> (PageRights, u8),
    ) -> bool {
        let Some(place) = self.entry(page.0) else { return false };
        let Some(state) = state_of(place.load(Ordering::Relaxed)) else { return false };
        let (rights, software) = decide(state);
        let changed = Self::change(place, |entry| {
            entry.rights = rights;
            entry.software = software & 7;
        });
        if let Some((before, after)) = &changed
            && Self::loses_rights(before, after)
        {
            invalidate(&self.space, Some(page));
        }
        changed.is_some()
    }

    /// What is mapped at a page, as one more owner.
    #[inline]
    pub fn lookup(&self, page: VirtAddr) -> Option<Mapping> {
        let entry = Machine::decode_entry(self.entry(page.0)?.load(Ordering::Acquire))?;
        // SAFETY: a present entry owns its frame, and stays so while we hold `&self`.
        let frame = unsafe { Frame::another_owner(entry.frame) };
        Some(Mapping {
            frame,
            rights: entry.rights,
            accessed: entry.accessed,
            dirty: entry.dirty,
            software: entry.software,
        })
    }

    /// What is mapped at a page, without becoming an owner.
    #[inline]
    pub fn peek(&self, page: VirtAddr) -> Option<PageState> {
        state_of(self.entry(page.0)?.load(Ordering::Acquire))
    }

    /// The present leaf entries of a range, table by table.
    #[inline]
    fn visit(&self, range: Range<VirtAddr>, mut each: impl FnMut(VirtAddr, &AtomicU64)) {
        let end = range.end.0.min(Machine::USER_END);
        let mut address = range.start.0 & !(PAGE - 1);
        while address < end {
            let span_end = (address & !(LEAF_SPAN - 1)) + LEAF_SPAN;
            match self.leaf_table(address) {
                Some(table) => {
                    let first = index(address, 0);
                    let last = if end >= span_end { ENTRIES } else { index(end - 1, 0) + 1 };
                    let table_start = address - (first * PAGE_SIZE) as u64;
                    for_occupied(&table[first..last], first, |at, place| {
                        each(VirtAddr(table_start + (at * PAGE_SIZE) as u64), place);
                    });
                    address = span_end;
                }
                None => address = self.next_possible(address),
            }
        }
    }

    /// The first address behind `address`, which has no leaf table, that may have one: that of the next
    /// entry in the table where the walk ends, or the end of that table.
    fn next_possible(&self, address: u64) -> u64 {
        let mut table = self.root();
        for level in (1..=TOP).rev() {
            // SAFETY: tables live as long as the space, which we hold.
            let here = unsafe { entries(table) };
            let at = index(address, level);
            match lower_table(here[at].load(Ordering::Acquire)) {
                Some(lower) => table = lower,
                None => {
                    let span = 1_u64 << (PAGE_BITS + INDEX_BITS * level);
                    let table_start = (address & !(span - 1)) - at as u64 * span;
                    let next = find_occupied(&here[at + 1..], at + 1, |next, _| Some(next));
                    return table_start + next.unwrap_or(ENTRIES) as u64 * span;
                }
            }
        }
        (address & !(LEAF_SPAN - 1)) + LEAF_SPAN
    }

    /// The first address of a range that may have a page: nothing is mapped below it. Where a table is,
    /// 512 pages are possible.
    pub(super) fn first_possible(&self, range: Range<VirtAddr>) -> Option<VirtAddr> {
        let end = range.end.0.min(Machine::USER_END);
        let mut address = range.start.0 & !(PAGE - 1);
        while address < end {
            if self.leaf_table(address).is_some() {
                return Some(VirtAddr(address));
            }
            address = self.next_possible(address);
        }
        None
    }

    /// How far into a range one comes with `most` pages, and how many of these are left there. A table
    /// counts as a few pages, whatever is in it.
    pub fn part(&self, range: Range<VirtAddr>, most: u64) -> (VirtAddr, u64) {
        const TABLE_COST: u64 = 4;
        let mut left = most;
        let mut at = range.start;
        while let Some(first) = self.first_possible(at..range.end) {
            let Some(rest) = left.checked_sub(TABLE_COST).filter(|rest| *rest > 0) else {
                return (first, 0);
            };
            left = rest;
            let span_end = (first.0 & !(LEAF_SPAN - 1)) + LEAF_SPAN;
            let Some(table) = self.leaf_table(first.0) else { break };
            let from = index(first.0, 0);
            let last =
                if range.end.0 >= span_end { ENTRIES } else { index(range.end.0 - 1, 0) + 1 };
            let full = find_occupied(&table[from..last], from, |at, _| {
                left -= 1;
                (left == 0).then_some(at)
            });
            if let Some(full) = full {
                return (VirtAddr(first.0 + ((full + 1 - from) * PAGE_SIZE) as u64), 0);
            }
            at = VirtAddr(span_end);
        }
        (range.end, left)
    }

    /// Shows every mapped page of a range.
    pub fn for_each(&self, range: Range<VirtAddr>, mut each: impl FnMut(VirtAddr, PageState)) {
        self.visit(range, |page, place| {
            if let Some(state) = state_of(place.load(Ordering::Acquire)) {
                each(page, state);
            }
        });
    }
}

#[inline]
fn state_of(raw: u64) -> Option<PageState> {
    let entry = Machine::decode_entry(raw)?;
    // SAFETY: callers hold the table, whose present entries own their frames; the handle is not dropped.
    let frame = core::mem::ManuallyDrop::new(unsafe { Frame::from_address(entry.frame) });
    Some(PageState {
        frame: entry.frame,
        references: frame.references(),
        rights: entry.rights,
        accessed: entry.accessed,
        dirty: entry.dirty,
        software: entry.software,
    })
}
