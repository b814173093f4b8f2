//! Changes of what is mapped, in turns.
//!
//! A change of much memory gives the core back after each bounded part, so it needs something that lasts
//! longer than the space's lock: the *change*, which one task of a space holds at a time. Everything that
//! changes areas for a program holds it (`mmap`, `munmap`, `mprotect`, `mremap`, `brk`, `fork`, advice
//! that marks, attachments), so these calls see each other whole or not at all, as under the lock of an
//! address space on Linux. Faults do not take it:
//!
//! ```text
//!  change:  begin ── part ── (others) ── part ── (others) ── part ── end
//!  fault:                 elsewhere: at once      in a range that is in motion: waits for the end ──┘
//! ```
//!
//! A range is *in motion* from the first part of its removal or move to the end of the change, unless
//! one part is all: no thread sees that half of it is gone. What does wait for a fault must therefore not
//! hold a change. `mprotect` has no range in motion: pages get their new rights one after the other, as
//! other threads see it on Linux too. A child that is made in turns gets each page as it is in its turn:
//! threads that write meanwhile are not stopped by `fork` on Linux either.
//!
//! A part is `PAGES_AT_ONCE` pages in tables that exist, or areas for as much work; what is empty costs
//! nothing, however large.

use abi::Errno;
use abi::memory::Protection;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use base::memory::{ShareMode, VirtAddr};
use base::wait::WaitQueue;
use core::ops::Range;
use core::sync::atomic::{AtomicU8, Ordering};

use super::PAGES_AT_ONCE;
use super::area::{Area, AreaFlags};
use super::layout::{LOWEST_ADDRESS, USER_END};
use super::space::{AddressSpace, Inner, MOST_AREAS, rights_of};

/// Pages as which an area counts.
const AREA_COST: u64 = 4;

const FREE: u8 = 0;
const HELD: u8 = 1;
/// Held, and perhaps somebody waits.
const AWAITED: u8 = 2;

/// Whether somebody changes what is mapped.
pub(super) struct ChangeLock {
    state: AtomicU8,
    queue: WaitQueue,
}

impl ChangeLock {
    pub(super) const fn new() -> ChangeLock {
        ChangeLock { state: AtomicU8::new(FREE), queue: WaitQueue::new() }
    }
}

/// The right to change what is mapped in a space, until it is dropped.
pub struct Change {
    space: Arc<AddressSpace>,
    /// Ranges are in motion.
    moves: bool,
}

impl Drop for Change {
    fn drop(&mut self) {
        if self.moves {
            self.space.lock().in_motion = [0..0, 0..0];
        }
        let lock = &self.space.changes;
        if lock.state.swap(FREE, Ordering::Release) == AWAITED {
            lock.queue.wake_one();
        }
    }
}

impl AddressSpace {
    /// Waits until nobody else changes what is mapped. Whoever holds it must not touch user memory.
    pub async fn begin_change(self: &Arc<Self>) -> Change {
        let lock = &self.changes;
        if lock.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            let take = || (lock.state.swap(AWAITED, Ordering::Acquire) == FREE).then_some(());
            lock.queue.wait_until(take).await;
        }
        Change { space: self.clone(), moves: false }
    }

    /// Waits until the change that is under way has ended.
    pub(super) async fn change_ended(&self) {
        let lock = &self.changes;
        let take = || (lock.state.swap(AWAITED, Ordering::Acquire) == FREE).then_some(());
        lock.queue.wait_until(take).await;
        lock.state.store(FREE, Ordering::Release);
        lock.queue.wake_one();
    }

    /// Frees pages of `range` and leaves the areas: whoever touches them gets what is behind them.
    /// Returns where the rest begins, if one part was not all.
    pub fn discard_part(&self, range: Range<u64>) -> Option<u64> {
        let mut inner = self.lock();
        let end = inner.part_end(range.clone());
        inner.take_pages(range.start..end);
        (end < range.end).then_some(end)
    }

    /// The first part of `range` that is mapped, as long as one may treat its pages in one go. Where no
    /// pages are, it goes on to the end of the area.
    pub fn present_piece(&self, range: Range<u64>) -> Option<Range<u64>> {
        let inner = self.lock();
        let (start, area) = inner.areas.overlapping(range.clone()).next()?;
        let start = start.max(range.start);
        let end = inner.part_end(start..area.end.min(range.end));
        (start < end).then_some(start..end)
    }

    /// Changes areas of `range` (which must not be split beyond the limit, see `check_split`). Returns
    /// where the rest begins, if one part was not all.
    pub(super) fn update_part(&self, range: Range<u64>, update: impl Fn(&mut Area)) -> Option<u64> {
        let mut inner = self.lock();
        let most = (PAGES_AT_ONCE / AREA_COST) as usize;
        let next = inner.areas.overlapping(range.clone()).nth(most).map(|(start, _)| start);
        let end = next.unwrap_or(range.end);
        inner.areas.change(range.start..end, |_, area| update(area));
        next
    }

    /// A child that is made will have what is in this space.
    fn note_copy(&self, copy: &Arc<AddressSpace>) {
        let mut inner = self.lock();
        inner.copies.retain(|copy| copy.strong_count() > 0);
        if inner.copies.try_reserve(1).is_ok() {
            inner.copies.push(Arc::downgrade(copy));
        }
    }

    /// A child has become known by itself.
    pub fn forget_copy(&self, copy: &Arc<AddressSpace>) {
        self.lock().copies.retain(|other| !core::ptr::eq(other.as_ptr(), Arc::as_ptr(copy)));
    }

    /// The children that nobody knows yet.
    pub fn copies(&self) -> Vec<Weak<AddressSpace>> {
        self.lock().copies.clone()
    }
}

impl Change {
    /// The space that is changed.
    pub fn space(&self) -> &Arc<AddressSpace> {
        &self.space
    }

    /// Faults in these ranges wait until the change has ended.
    pub(super) fn set_in_motion(&mut self, inner: &mut Inner, ranges: [Range<u64>; 2]) {
        inner.in_motion = ranges;
        self.moves = true;
    }

    /// Takes areas and pages out of `range`, of which the rest is yet to follow. Returns where that
    /// begins, if one part was not all.
    pub fn unmap_part(&mut self, range: Range<u64>) -> Option<u64> {
        let space = self.space.clone();
        let mut inner = space.lock();
        let end = inner.part_end(range.clone());
        if end < range.end {
            let [first, _] = inner.in_motion.clone();
            if first.end != range.end {
                self.set_in_motion(&mut inner, [range.clone(), first]);
            }
        }
        inner.remove_areas(range.start..end);
        (end < range.end).then_some(end)
    }

    /// Gives areas of `range` rights, and their pages. Returns where the rest begins, if one part was not
    /// all.
    pub fn protect_part(&mut self, range: Range<u64>, protection: Protection) -> Option<u64> {
        let mut guard = self.space.lock();
        let inner = &mut *guard;
        let end = inner.part_end(range.clone());
        let mut at = range.start;
        while at < end {
            let next = inner.areas.overlapping(at..end).next();
            let Some((start, area)) = next else { break };
            // All of the area first: faults look there.
            let whole = start.max(range.start)..area.end.min(range.end);
            let is_new = area.protection != protection;
            if is_new {
                inner.areas.change(whole.clone(), |_, area| area.protection = protection);
            }
            inner.protect_pages(at.max(whole.start)..whole.end.min(end));
            at = whole.end;
        }
        (end < range.end).then_some(end)
    }

    /// Begins a child's copy of the space: private pages are shared until either side writes, shared
    /// pages stay shared.
    ///
    /// # Errors
    /// `ENOMEM`; the parent is unharmed (its pages are merely write-protected until touched).
    pub fn begin_copy(&self) -> Result<Arc<AddressSpace>, Errno> {
        let parent = &self.space;
        let copy = AddressSpace::new(parent.lock().layout, parent.limits())?;
        copy.register_barrier(parent.barrier_registrations());
        copy.set_dumpable(parent.is_dumpable());
        parent.lock().describe_to(&mut copy.lock_nested());
        parent.note_copy(&copy);
        Ok(copy)
    }

    /// Copies what lies from `from` on. Returns where the rest begins, if one part was not all.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn copy_part(&self, copy: &AddressSpace, from: u64) -> Result<Option<u64>, Errno> {
        let mut inner = self.space.lock();
        let end = inner.part_end(from..USER_END);
        inner.copy_into(&mut copy.lock_nested(), from..end)?;
        Ok((end < USER_END).then_some(end))
    }

    /// The copy is complete.
    pub fn end_copy(&self, copy: &AddressSpace) {
        if let Some(sites) = self.space.sites() {
            copy.set_sites(Arc::new(sites.inherit()));
        }
    }
}

impl Inner {
    /// Whether `page` is about to go or to move.
    pub(super) fn is_in_motion(&self, page: u64) -> bool {
        self.in_motion.iter().any(|range| range.contains(&page))
    }

    /// Room that no change is about to clear, for who does not hold the change.
    pub(super) fn find_room_at_rest(&self, hint: u64, length: u64) -> Option<u64> {
        let moves = |start: u64| {
            let overlaps = |range: &&Range<u64>| range.start < start + length && start < range.end;
            self.in_motion.iter().find(overlaps)
        };
        let mut start = self.find_room(hint, length, false)?;
        while let Some(range) = moves(start) {
            start = self.areas.find_room_from_top(length, LOWEST_ADDRESS..range.start)?;
        }
        Some(start)
    }

    /// How far one part of work on the areas and pages of `range` goes.
    pub(super) fn part_end(&self, range: Range<u64>) -> u64 {
        let mut left = PAGES_AT_ONCE;
        let mut at = range.start;
        for (start, area) in self.areas.overlapping(range.clone()) {
            if left < AREA_COST {
                return at.max(start);
            }
            at = at.max(start);
            let stop = area.end.min(range.end);
            let (reached, rest) = self.table.part(VirtAddr(at)..VirtAddr(stop), left);
            if rest == 0 {
                return self.end_or(reached.0.min(stop), &range);
            }
            left = rest;
            at = stop;
            left = left.saturating_sub(AREA_COST);
        }
        range.end
    }

    /// `at`, or the end of the range when no page follows, and no area but the one that ends there.
    fn end_or(&self, at: u64, range: &Range<u64>) -> u64 {
        let mut areas = self.areas.overlapping(at..range.end);
        let first = areas.next().map(|(start, area)| start.max(at)..area.end.min(range.end));
        let is_last = areas.next().is_none()
            && first.is_none_or(|first| {
                let rest = VirtAddr(first.start)..VirtAddr(first.end);
                self.table.part(rest, 1) == (VirtAddr(first.end), 1)
            });
        if is_last { range.end } else { at }
    }

    /// Whether areas may be split at the ends of `range`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn check_split(&self, range: &Range<u64>) -> Result<(), Errno> {
        let splits = [range.start, range.end]
            .into_iter()
            .filter(|at| self.areas.find(*at).is_some_and(|(start, _)| start < *at));
        if self.areas.len() + splits.count() > MOST_AREAS { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// Gives the pages of `range`, which lies in one area, the rights of that area.
    fn protect_pages(&mut self, range: Range<u64>) {
        let Some((_, area)) = self.areas.find(range.start) else { return };
        let own = rights_of(area, true);
        let borrowed = rights_of(area, area.is_freely_written());
        let is_tracked = area.flags.contains(AreaFlags::TRACKED);
        self.table.update_range(VirtAddr(range.start)..VirtAddr(range.end), |_, state| {
            let is_own = if is_tracked { state.rights.write } else { state.references == 1 };
            (if is_own { own } else { borrowed }, state.software)
        });
    }

    fn describe_to(&self, child: &mut Inner) {
        child.break_start = self.break_start;
        child.break_end = self.break_end;
        child.regions = self.regions.clone();
    }

    /// Copies areas that begin in `range`, and pages that lie there.
    fn copy_into(&mut self, child: &mut Inner, range: Range<u64>) -> Result<(), Errno> {
        for (start, area) in self.areas.overlapping(range.clone()) {
            if area.flags.contains(AreaFlags::DONT_FORK) {
                continue;
            }
            if start >= range.start {
                let mut copy = area.clone();
                // Locks are not inherited.
                copy.flags.remove(AreaFlags::LOCKED);
                if let Some(attachment) = &mut copy.attachment {
                    attachment.move_to(&child.owner);
                }
                child.add_area(start, copy);
            }
            if area.flags.contains(AreaFlags::WIPE_ON_FORK) {
                continue;
            }
            let mode = if area.is_private() { ShareMode::CopyOnWrite } else { ShareMode::Shared };
            let part = VirtAddr(start.max(range.start))..VirtAddr(area.end.min(range.end));
            let (shared, outcome) = self.table.share_range(&mut child.table, part, mode, 0);
            child.resident += shared as u64;
            child.resident_shared += if area.is_private() { 0 } else { shared as u64 };
            outcome?;
        }
        super::pin::copy_pinned(self, child, range)?;
        child.resident_peak = child.resident;
        Ok(())
    }
}
