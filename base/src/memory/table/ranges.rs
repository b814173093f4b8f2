//! Changes of many pages at once: taking away, changing rights, sharing at fork, moving. Each tells the
//! cores once, at its end.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use hal::contract::{Entry, PageRights};
use hal::{Contract, Machine, PhysAddr, VirtAddr};

use super::{ENTRIES, LEAF_SPAN, PAGE, PageState, PageTable, ShareMode, index, state_of};
use crate::memory::{Frame, OutOfMemory, zero_frame};
use crate::user::invalidate;

/// In entries that `unmap_range` has taken away and not yet freed: the page was dirty. Bit 0 is clear,
/// so no machine takes such an entry for a present one.
const GONE_DIRTY: u64 = 2;

impl PageTable {
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
    /// are marked with `mark` in both. What `other` had at these pages is freed. Returns how many pages
    /// `other` has got, that of zeros not counted, and whether it has got all.
    pub fn share_range(
        &mut self,
        other: &mut PageTable,
        range: Range<VirtAddr>,
        mode: ShareMode,
        mark: u8,
    ) -> (usize, Result<(), OutOfMemory>) {
        let zero = zero_frame().address();
        let mut tell = false;
        let mut result = Ok(());
        let mut count = 0;
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
            let mut raw = place.load(Ordering::Relaxed);
            let copy = loop {
                let shared = Machine::shared_entry(raw, mode == ShareMode::CopyOnWrite, mark);
                let Some((stays, copy)) = shared else { return };
                if stays == raw {
                    break copy;
                }
                match place.compare_exchange(raw, stays, Ordering::AcqRel, Ordering::Relaxed) {
                    Ok(_) => {
                        tell = true;
                        break copy;
                    }
                    // The machine has noted an access.
                    Err(now) => raw = now,
                }
            };
            let Some(frame) = Machine::entry_frame(copy) else { return };
            // SAFETY: the present entry owns its frame.
            let _ = unsafe { Frame::another_owner(frame) }.into_address();
            count += usize::from(frame != zero);
            let target = &table[index(page.0, 0)];
            let before = match target.load(Ordering::Relaxed) {
                0 => None,
                _ => Machine::entry_frame(target.swap(0, Ordering::AcqRel)),
            };
            if let Some(before) = before {
                invalidate(&other.space, Some(page));
                // SAFETY: the entry owned a reference, which it lost by the swap.
                drop(unsafe { Frame::from_address(before) });
            }
            target.store(copy, Ordering::Release);
        });
        if tell {
            invalidate(&self.space, None);
        }
        (count, result)
    }

    /// Moves the pages of a range to addresses from `to` on, which must not overlap it; what was mapped
    /// there is freed. On failure nothing has moved. Takes as many steps as there are tables.
    pub fn move_range(&mut self, range: Range<VirtAddr>, to: VirtAddr) -> Result<(), OutOfMemory> {
        let length = range.end.0.saturating_sub(range.start.0);
        let end = to.0.checked_add(length).ok_or(OutOfMemory)?;
        if to.0 < range.end.0 && range.start.0 < end {
            return Err(OutOfMemory);
        }
        self.unmap_range(to..VirtAddr(end));
        let mut at = range.start;
        while let Some(first) = self.first_possible(at..range.end) {
            let span_end = (first.0 & !(LEAF_SPAN - 1)) + LEAF_SPAN;
            let last = span_end.min(range.end.0) - PAGE;
            for page in [first.0, last] {
                self.leaf_table_or_new(page - range.start.0 + to.0)?;
            }
            at = VirtAddr(span_end);
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

    /// Pages that are mapped in a range. Looks at the tables alone.
    pub fn count(&self, range: Range<VirtAddr>) -> usize {
        let mut count = 0;
        self.visit(range, |_, place| {
            count += usize::from(Machine::entry_frame(place.load(Ordering::Relaxed)).is_some());
        });
        count
    }
}
