//! Page tables: the owner of what user space sees.
//!
//! A leaf entry owns one reference of its frame. The table tells the cores whenever translations that
//! they may have cached became wrong (`user::invalidate`), and lets go of a frame only after that: so a
//! frame is never freed or handed on while a core can still write to it. Methods on ranges do this
//! once, at their end. Tables themselves are freed with the space (`SpaceHandle`).
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

use super::{Frame, OutOfMemory};
use crate::user::{SpaceHandle, invalidate};

const ENTRIES: usize = 512;
const PAGE: u64 = PAGE_SIZE as u64;
/// Bytes that one leaf table covers.
const LEAF_SPAN: u64 = PAGE * ENTRIES as u64;
const INDEX_BITS: u32 = 9;
const PAGE_BITS: u32 = 12;
/// In entries that `unmap_range` has taken away and not yet freed: the page was dirty. Bit 0 is clear,
/// so no machine takes such an entry for a present one.
const GONE_DIRTY: u64 = 2;

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
}

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

/// The entries that are not zero, with their index counted from `first`. Looks at eight at a time:
/// most tables are nearly empty.
#[inline]
fn occupied(
    table: &[AtomicU64],
    first: usize,
) -> impl Iterator<Item = (usize, &AtomicU64)> + Clone {
    const GROUP: usize = 8;
    table
        .chunks(GROUP)
        .enumerate()
        .filter(|(_, group)| group.iter().fold(0, |all, e| all | e.load(Ordering::Relaxed)) != 0)
        .flat_map(move |(number, group)| {
            group.iter().enumerate().map(move |(at, entry)| (first + number * GROUP + at, entry))
        })
        .filter(|(_, entry)| entry.load(Ordering::Relaxed) != 0)
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

/// Frees all tables under a root, the root, and what they map.
///
/// # Safety
/// No core has the root loaded, and no `PageTable` with it exists.
pub(crate) unsafe fn free_tables(root: PhysAddr) {
    let users = index(Machine::USER_END - 1, TOP) + 1;
    // SAFETY: the tables under a root belong to it; each is visited once.
    unsafe { free_level(root, TOP, users) };
}

/// # Safety
/// As for `free_tables`, for one table of `level` and its first `count` entries.
unsafe fn free_level(table: PhysAddr, level: u32, count: usize) {
    // SAFETY: the table is alive until the end of this function.
    let used = occupied(&unsafe { entries(table) }[..count.min(ENTRIES)], 0);
    for (_, entry) in used {
        let raw = entry.load(Ordering::Relaxed);
        let Some(found) = Machine::decode_entry(raw) else { continue };
        if level == 0 {
            // SAFETY: a present leaf entry owns a reference.
            drop(unsafe { Frame::from_address(found.frame) });
        } else {
            // SAFETY: by the caller's promise.
            unsafe { free_level(found.frame, level - 1, ENTRIES) };
        }
    }
    // SAFETY: tables were made from frames, and this one is not used any more.
    drop(unsafe { Frame::from_address(table) });
}

impl PageTable {
    /// An empty user half.
    pub fn new() -> Result<PageTable, OutOfMemory> {
        let root = Frame::zeroed()?.into_address();
        // SAFETY: the frame is fresh and zeroed.
        unsafe { Machine::prepare_root(root) };
        Ok(PageTable { space: Arc::new(SpaceHandle::new(root)) })
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

    /// The leaf table of an address, made if there is none.
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
                    let lower = Frame::zeroed()?.into_address();
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
                    for (at, place) in occupied(&table[first..last], first) {
                        each(VirtAddr(table_start + (at * PAGE_SIZE) as u64), place);
                    }
                    address = span_end;
                }
                None => address = self.next_possible(address),
            }
        }
    }

    /// The first address behind `address`, which has no leaf table, that may have one.
    fn next_possible(&self, address: u64) -> u64 {
        let mut table = self.root();
        for level in (1..=TOP).rev() {
            // SAFETY: tables live as long as the space, which we hold.
            let raw = unsafe { entries(table) }[index(address, level)].load(Ordering::Acquire);
            match lower_table(raw) {
                Some(lower) => table = lower,
                None => {
                    let span = 1_u64 << (PAGE_BITS + INDEX_BITS * level);
                    return (address & !(span - 1)) + span;
                }
            }
        }
        (address & !(LEAF_SPAN - 1)) + LEAF_SPAN
    }

    /// Shows every mapped page of a range.
    pub fn for_each(&self, range: Range<VirtAddr>, mut each: impl FnMut(VirtAddr, PageState)) {
        self.visit(range, |page, place| {
            if let Some(state) = state_of(place.load(Ordering::Acquire)) {
                each(page, state);
            }
        });
    }

    /// Takes all pages of a range away and frees them; how many there were.
    pub fn unmap_range(&mut self, range: Range<VirtAddr>) -> usize {
        let mut count = 0;
        self.drain_range(range, |_, _, _| count += 1);
        count
    }

    /// Takes all pages of a range away, waits until no core uses them any more, and then hands them
    /// out one by one, with whether they were written.
    pub fn drain_range(
        &mut self,
        range: Range<VirtAddr>,
        mut each: impl FnMut(VirtAddr, Frame, bool),
    ) {
        let mut found = false;
        self.visit(range.clone(), |_, place| {
            if let Some(entry) = Machine::decode_entry(place.load(Ordering::Relaxed)) {
                let gone = entry.frame.0 | if entry.dirty { GONE_DIRTY } else { 0 };
                let before = place.swap(gone, Ordering::AcqRel);
                if Machine::decode_entry(before).is_some_and(|entry| entry.dirty) {
                    place.store(entry.frame.0 | GONE_DIRTY, Ordering::Relaxed);
                }
                found = true;
            }
        });
        if !found {
            return;
        }
        invalidate(&self.space, None);
        self.visit(range, |page, place| {
            let raw = place.swap(0, Ordering::Relaxed);
            let address = PhysAddr(raw & !(PAGE - 1));
            // SAFETY: the first pass replaced every present entry of the range by the address of the
            // frame that it owned; `&mut self` kept others away.
            each(page, unsafe { Frame::from_address(address) }, raw & GONE_DIRTY != 0);
        });
    }

    /// Sets the rights and notes of all mapped pages of a range to what `decide` says.
    pub fn update_range(
        &mut self,
        range: Range<VirtAddr>,
        mut decide: impl FnMut(VirtAddr, PageState) -> (PageRights, u8),
    ) {
        let mut tell = false;
        self.visit(range, |page, place| {
            let Some(state) = state_of(place.load(Ordering::Relaxed)) else { return };
            let (rights, software) = decide(page, state);
            let changed = Self::change(place, |entry| {
                entry.rights = rights;
                entry.software = software & 7;
            });
            tell |= changed.is_some_and(|(before, after)| Self::loses_rights(&before, &after));
        });
        if tell {
            invalidate(&self.space, None);
        }
    }

    /// Sets the rights of all mapped pages of a range.
    pub fn protect_range(&mut self, range: Range<VirtAddr>, rights: PageRights) {
        self.update_range(range, |_, state| (rights, state.software));
    }

    /// Clears "accessed" of all pages of a range; how many had it.
    pub fn clear_accessed(&mut self, range: Range<VirtAddr>) -> usize {
        self.clear(range, |entry| core::mem::take(&mut entry.accessed))
    }

    /// Clears "dirty" of all pages of a range; how many had it.
    pub fn clear_dirty(&mut self, range: Range<VirtAddr>) -> usize {
        self.clear(range, |entry| core::mem::take(&mut entry.dirty))
    }

    fn clear(&mut self, range: Range<VirtAddr>, mut take: impl FnMut(&mut Entry) -> bool) -> usize {
        let mut count = 0;
        self.visit(range, |_, place| {
            let mut had = false;
            let _ = Self::change(place, |entry| had = take(entry));
            count += usize::from(had);
        });
        if count > 0 {
            invalidate(&self.space, None);
        }
        count
    }

    /// Maps the pages of a range in `other` at the same addresses, as more owners of the same frames.
    /// On `CopyOnWrite` both lose the right to write, and pages that had it, or were marked so before,
    /// are marked with `mark` in both. What `other` had there is freed.
    pub fn share_range(
        &mut self,
        other: &mut PageTable,
        range: Range<VirtAddr>,
        mode: ShareMode,
        mark: u8,
    ) -> Result<(), OutOfMemory> {
        other.unmap_range(range.clone());
        let mut tell = false;
        let mut result = Ok(());
        let mut target: Option<(u64, &[AtomicU64; ENTRIES])> = None;
        let other = &mut *other;
        self.visit(range, |page, place| {
            if result.is_err() {
                return;
            }
            let span = page.0 / LEAF_SPAN;
            let table = match target {
                Some((of, table)) if of == span => table,
                _ => match other.leaf_table_or_new(page.0) {
                    // SAFETY: the same table under the lifetime of `other`, which is borrowed
                    // exclusively until the end of this function.
                    Ok(table) => unsafe { &*core::ptr::from_ref(table) },
                    Err(error) => {
                        result = Err(error);
                        return;
                    }
                },
            };
            target = Some((span, table));
            let changed = Self::change(place, |entry| {
                if mode == ShareMode::CopyOnWrite && entry.rights.write {
                    entry.rights.write = false;
                    entry.software = mark & 7;
                }
            });
            let Some((before, after)) = changed else { return };
            tell |= before.rights.write && !after.rights.write;
            // SAFETY: the present entry owns its frame.
            let frame = unsafe { Frame::another_owner(after.frame) }.into_address();
            let copy = Entry { frame, accessed: true, dirty: false, ..after };
            table[index(page.0, 0)].store(Machine::encode_entry(copy, true), Ordering::Release);
        });
        if tell {
            invalidate(&self.space, None);
        }
        result
    }

    /// Moves the pages of a range to addresses from `to` on, which must not overlap it; what was mapped
    /// there is freed. On failure some pages may have moved: those are at their new places.
    pub fn move_range(&mut self, range: Range<VirtAddr>, to: VirtAddr) -> Result<(), OutOfMemory> {
        let length = range.end.0.saturating_sub(range.start.0);
        let end = to.0.checked_add(length).ok_or(OutOfMemory)?;
        if to.0 < range.end.0 && range.start.0 < end {
            return Err(OutOfMemory);
        }
        self.unmap_range(to..VirtAddr(end));
        let mut spans = to.0 & !(LEAF_SPAN - 1);
        while spans < end {
            self.leaf_table_or_new(spans.max(to.0))?;
            spans += LEAF_SPAN;
        }
        let mut tell = false;
        self.visit(range.clone(), |page, place| {
            let raw = place.swap(0, Ordering::AcqRel);
            if let Some(target) = self.entry(to.0 + (page.0 - range.start.0)) {
                target.store(raw, Ordering::Release);
                tell = true;
            }
        });
        if tell {
            invalidate(&self.space, None);
        }
        Ok(())
    }

    /// Pages that are mapped in a range.
    pub fn count(&self, range: Range<VirtAddr>) -> usize {
        let mut count = 0;
        self.for_each(range, |_, _| count += 1);
        count
    }

    /// The part of a copy that lies in the page of `address`: where in RAM, and how many bytes.
    /// "Accessed" and "dirty" are noted as the machine would.
    #[inline]
    fn reach(&self, address: u64, length: usize, write: bool) -> Option<(*mut u8, usize)> {
        let place = self.entry(address)?;
        let raw = place.load(Ordering::Acquire);
        let frame = match Machine::used_page(raw, write) {
            Some(frame) => frame,
            None => Self::use_page(place, raw, write)?,
        };
        let offset = (address % PAGE) as usize;
        let pointer = Machine::phys_to_virt(frame).wrapping_add(offset);
        Some((pointer, length.min(PAGE_SIZE - offset)))
    }

    /// Marks a page as accessed, or written, if the user may do that.
    #[cold]
    fn use_page(place: &AtomicU64, raw: u64, write: bool) -> Option<PhysAddr> {
        let entry = Machine::decode_entry(raw)?;
        if !entry.rights.user || (write && !entry.rights.write) {
            return None;
        }
        let _ = Self::change(place, |entry| {
            entry.accessed = true;
            entry.dirty |= write;
        });
        Some(entry.frame)
    }

    /// Goes through the pages of a user buffer. `step` gets where in RAM the part is, how many bytes
    /// were done before it and how long it is. Returns the bytes up to the first page that is missing or
    /// not permitted.
    #[inline]
    fn walk(
        &self,
        address: VirtAddr,
        length: usize,
        write: bool,
        mut step: impl FnMut(*mut u8, usize, usize),
    ) -> usize {
        let mut done = 0;
        while done < length {
            let Some(at) = address.0.checked_add(done as u64) else { break };
            let Some((pointer, part)) = self.reach(at, length - done, write) else { break };
            step(pointer, done, part);
            done += part;
        }
        done
    }

    /// Copies user bytes out, up to the first page that is missing or that the user may not read; how
    /// many.
    #[inline]
    pub fn copy_out(&self, address: VirtAddr, into: &mut [u8]) -> usize {
        let target = into.as_mut_ptr();
        self.walk(address, into.len(), false, |pointer, done, part| {
            // SAFETY: the part lies in one page that the table owns while we hold `&self`, and in
            // `into` from `done` on.
            unsafe { super::copy::from_shared(target.add(done), pointer, part) };
        })
    }

    /// Copies bytes to user memory, up to the first page that is missing or that the user may not write;
    /// how many.
    #[inline]
    pub fn copy_in(&self, address: VirtAddr, from: &[u8]) -> usize {
        self.walk(address, from.len(), true, |pointer, done, part| {
            // SAFETY: as for `copy_out`.
            unsafe { super::copy::to_shared(pointer, from.as_ptr().add(done), part) };
        })
    }

    /// Zeroes user memory, up to the first page that is missing or that the user may not write; how
    /// many bytes.
    pub fn zero(&self, address: VirtAddr, length: usize) -> usize {
        self.walk(address, length, true, |pointer, _, part| {
            // SAFETY: the part lies in one page that the table owns while we hold `&self`.
            unsafe { super::copy::zero_shared(pointer, part) };
        })
    }

    /// Copies user bytes into a frame; how many, as for `copy_out`.
    pub fn copy_out_to_frame(
        &self,
        address: VirtAddr,
        frame: &Frame,
        offset: usize,
        length: usize,
    ) -> usize {
        let length = length.min(PAGE_SIZE.saturating_sub(offset));
        let target = Machine::phys_to_virt(frame.address());
        self.walk(address, length, false, |pointer, done, part| {
            // SAFETY: the part lies in one page of each; when both are the same page the areas may
            // overlap, and then words are read after they were written, which is still only bytes.
            unsafe { super::copy::between_shared(target.add(offset + done), pointer, part) };
        })
    }

    /// Copies bytes of a frame to user memory; how many, as for `copy_in`.
    pub fn copy_in_from_frame(
        &self,
        address: VirtAddr,
        frame: &Frame,
        offset: usize,
        length: usize,
    ) -> usize {
        let length = length.min(PAGE_SIZE.saturating_sub(offset));
        let source = Machine::phys_to_virt(frame.address());
        self.walk(address, length, true, |pointer, done, part| {
            // SAFETY: as for `copy_out_to_frame`.
            unsafe { super::copy::between_shared(pointer, source.add(offset + done), part) };
        })
    }

    /// The aligned 32-bit word at a user address; `None` when the page is missing or not readable.
    pub fn load_u32(&self, address: VirtAddr) -> Option<u32> {
        let (pointer, _) =
            self.reach(address.0, 4, false).filter(|_| address.0.is_multiple_of(4))?;
        // SAFETY: an aligned word of a page that the table owns, accessed atomically only.
        Some(
            unsafe { core::sync::atomic::AtomicU32::from_ptr(pointer.cast()) }
                .load(Ordering::SeqCst),
        )
    }

    /// Replaces the aligned 32-bit word at a user address if it is `old`; `None` when the page is
    /// missing or not writable, the value found otherwise.
    pub fn compare_exchange_u32(
        &self,
        address: VirtAddr,
        old: u32,
        new: u32,
    ) -> Option<Result<u32, u32>> {
        let (pointer, _) =
            self.reach(address.0, 4, true).filter(|_| address.0.is_multiple_of(4))?;
        // SAFETY: as for `load_u32`.
        let word = unsafe { core::sync::atomic::AtomicU32::from_ptr(pointer.cast()) };
        Some(word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst))
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
