//! `mremap`: growing, shrinking and moving a mapping with its pages.
//!
//! ```text
//!  check_remap ── what must go first ──> Change::unmap_part … ──> Change::remap ── in place ──> done
//!                                                                     └─ Transfer ──> move_part … ──> end_move
//! ```
//!
//! While pages move, both ranges are mapped and in motion. Tables that are missing undo the move.

use abi::Errno;
use base::memory::{PageRights, VirtAddr};
use core::ops::Range;

use super::area::{Area, AreaFlags};
use super::change::Change;
use super::layout::{LOWEST_ADDRESS, PAGE, USER_END, is_page_aligned};
use super::space::{AddressSpace, Inner, LimitValues, MOST_AREAS};

/// Where a mapping may go that cannot stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// It must stay.
    Never,
    /// Anywhere.
    Anywhere,
    /// Exactly there, replacing what is there.
    To(u64),
}

/// A request to resize or move; lengths are rounded up to pages by the caller.
#[derive(Clone, Copy, Debug)]
pub struct RemapRequest {
    /// Start of the old range.
    pub address: u64,
    /// Bytes of the old range; 0 maps the same shared pages a second time.
    pub old_length: u64,
    /// Bytes of the new range; not 0.
    pub new_length: u64,
    /// Whether and where it may move.
    pub movement: Move,
    /// Leave the old range mapped and empty.
    pub keep_old: bool,
    /// A wish for the new address, with `keep_old` and `Move::Anywhere`.
    pub hint: u64,
}

/// Pages on their way to another address.
pub struct Transfer {
    old: Range<u64>,
    target: u64,
    keep_old: bool,
}

impl Transfer {
    /// Where the pages were.
    pub fn old(&self) -> Range<u64> {
        self.old.clone()
    }
}

impl AddressSpace {
    /// Checks what Linux checks before it changes anything, and tells what must be unmapped before
    /// `Change::remap`; empty ranges for nothing.
    ///
    /// # Errors
    /// `EFAULT` when nothing is mapped at the address, `EINVAL` and `EPERM` for ranges that make no sense,
    /// `ENOMEM` with too many areas.
    pub fn check_remap(&self, request: &RemapRequest) -> Result<[Range<u64>; 2], Errno> {
        if let Some(sites) = self.sites() {
            let old_end = request.address.saturating_add(request.old_length);
            sites.give_back(self, request.address..old_end);
        }
        let old_end = request.address.checked_add(request.old_length).ok_or(Errno::EINVAL)?;
        let fixed = match request.movement {
            Move::To(address) => {
                let is_valid = is_page_aligned(address)
                    && request.new_length <= USER_END
                    && address <= USER_END - request.new_length;
                if !is_valid {
                    return Err(Errno::EINVAL);
                }
                let target = address..address + request.new_length;
                if target.start < old_end && request.address < target.end {
                    return Err(Errno::EINVAL);
                }
                if address < LOWEST_ADDRESS {
                    return Err(Errno::EPERM);
                }
                target
            }
            _ => 0..0,
        };
        let inner = self.lock();
        if inner.areas.find(request.address).is_none() {
            return Err(Errno::EFAULT);
        }
        if request.is_forced() && inner.areas.len() + 2 >= MOST_AREAS {
            return Err(Errno::ENOMEM);
        }
        let surplus = if request.old_length > request.new_length {
            if old_end > USER_END {
                return Err(Errno::EINVAL);
            }
            let surplus = request.address + request.new_length..old_end;
            inner.check_unmap(&surplus)?;
            surplus
        } else {
            0..0
        };
        Ok([fixed, surplus])
    }
}

impl RemapRequest {
    /// It moves whether or not it could stay.
    fn is_forced(&self) -> bool {
        self.keep_old || matches!(self.movement, Move::To(_))
    }
}

impl Change {
    /// Resizes in place, or begins a move to the address that is returned. What `check_remap` told of
    /// must be gone.
    ///
    /// # Errors
    /// `EFAULT` when the old range is not one mapping, `EINVAL` for ranges that make no sense,
    /// `ENOMEM` when there is no room or a limit is reached, `EAGAIN` when too much would be locked.
    pub fn remap(&mut self, request: RemapRequest) -> Result<(u64, Option<Transfer>), Errno> {
        let mut request = request;
        let space = self.space().clone();
        let limits = space.limits();
        let mut inner = space.lock();
        let old_end = request.address.checked_add(request.old_length).ok_or(Errno::EINVAL)?;
        let target = if request.is_forced() {
            request.old_length = request.old_length.min(request.new_length);
            inner.check_resize(&request, &limits)?;
            match request.movement {
                Move::To(address) => address,
                _ => {
                    inner.find_room(request.hint, request.new_length, false).ok_or(Errno::ENOMEM)?
                }
            }
        } else {
            if request.old_length >= request.new_length && request.old_length > 0 {
                return Ok((request.address, None));
            }
            inner.check_resize(&request, &limits)?;
            if request.old_length > 0 && inner.grow_in_place(request.address, old_end, &request) {
                return Ok((request.address, None));
            }
            if request.movement == Move::Never || inner.areas.len() + 2 >= MOST_AREAS {
                return Err(Errno::ENOMEM);
            }
            inner.find_room(0, request.new_length, false).ok_or(Errno::ENOMEM)?
        };
        let old = request.address..request.address + request.old_length;
        inner.add_target(&request, target)?;
        self.set_in_motion(&mut inner, [old.clone(), target..target + request.new_length]);
        Ok((target, Some(Transfer { old, target, keep_old: request.keep_old })))
    }

    /// Moves pages from `from` on. Returns where the rest begins, if one part was not all.
    ///
    /// # Errors
    /// `ENOMEM`: nothing of this part was moved.
    pub fn move_part(&mut self, transfer: &Transfer, from: u64) -> Result<Option<u64>, Errno> {
        let mut inner = self.space().lock();
        let old = &transfer.old;
        let end = inner.part_end(from..old.end);
        inner.move_pages(from..end, transfer.target + (from - old.start))?;
        Ok((end < old.end).then_some(end))
    }

    /// Takes pages back that have moved, from the part at `from` on, up to `until`. Returns where the rest
    /// begins.
    pub fn move_part_back(&mut self, transfer: &Transfer, from: u64, until: u64) -> Option<u64> {
        let (old, target) = (&transfer.old, transfer.target);
        let mut inner = self.space().lock();
        let moved = target + (from - old.start)..target + (until - old.start);
        let end = inner.part_end(moved.clone());
        // Their tables exist, so this cannot fail.
        let _ = inner.move_pages(moved.start..end, from);
        (end < moved.end).then(|| end - target + old.start)
    }

    /// All pages have moved: the old mapping goes, unless it is to stay empty.
    pub fn end_move(&mut self, transfer: Transfer) {
        let mut inner = self.space().lock();
        let Transfer { old, keep_old, .. } = transfer;
        if keep_old {
            inner.areas.change(old, |_, area| area.flags.remove(AreaFlags::LOCKED));
        } else if !old.is_empty() {
            inner.remove_areas(old);
        }
    }

    /// No page has moved, or all are back: the new mapping goes.
    pub fn give_up_move(&mut self, transfer: &Transfer, new_length: u64) {
        let target = transfer.target;
        self.space().lock().remove_areas(target..target + new_length);
    }
}

impl Inner {
    /// Whether the old range is one area that may have the new length.
    fn check_resize(&self, request: &RemapRequest, limits: &LimitValues) -> Result<(), Errno> {
        let (start, area) = self.areas.find(request.address).ok_or(Errno::EFAULT)?;
        if request.old_length == 0 && area.is_private() {
            return Err(Errno::EINVAL);
        }
        if request.keep_old && area.flags.contains(AreaFlags::SPECIAL) {
            return Err(Errno::EINVAL);
        }
        if request.old_length > area.end - request.address {
            return Err(Errno::EFAULT);
        }
        let added = if request.keep_old {
            request.new_length
        } else {
            request.new_length.saturating_sub(request.old_length)
        };
        if added == 0 {
            return Ok(());
        }
        if let Some((_, first)) = area.object_page(request.address - start) {
            first.checked_add(request.new_length / PAGE).ok_or(Errno::EINVAL)?;
        }
        if area.flags.contains(AreaFlags::SPECIAL) {
            return Err(Errno::EFAULT);
        }
        self.check_growth(added / PAGE, area, limits)
    }

    /// Grows the area that ends at `old_end` if the room after it is free.
    fn grow_in_place(&mut self, address: u64, old_end: u64, request: &RemapRequest) -> bool {
        let Some(new_end) = address.checked_add(request.new_length) else { return false };
        let Some((start, area)) = self.areas.find(address) else { return false };
        if area.end != old_end || new_end > USER_END || !self.areas.is_free(old_end..new_end) {
            return false;
        }
        self.areas.set_end(start, new_end);
        self.total += (new_end - old_end) / PAGE;
        self.total_peak = self.total_peak.max(self.total);
        true
    }

    /// Maps at `target`, which is free, what the old range shows.
    fn add_target(&mut self, request: &RemapRequest, target: u64) -> Result<(), Errno> {
        let (start, area) = self.areas.find(request.address).ok_or(Errno::EFAULT)?;
        let mut moved = Area { end: target + request.new_length, ..area.clone() };
        if let super::area::Backing::Object { first_page, .. } = &mut moved.backing {
            *first_page += (request.address - start) / PAGE;
        }
        self.add_area(target, moved);
        Ok(())
    }

    fn move_pages(&mut self, from: Range<u64>, to: u64) -> Result<(), Errno> {
        if self
            .areas
            .find(from.start)
            .is_some_and(|(_, area)| area.flags.contains(AreaFlags::TRACKED))
        {
            // Who protects pages that are written back goes through the areas in turns, and finds these at neither
            // address. Their next write is announced anew.
            self.table.update_range(VirtAddr(from.start)..VirtAddr(from.end), |_, state| {
                (PageRights { write: false, ..state.rights }, state.software)
            });
        }
        self.table.move_range(VirtAddr(from.start)..VirtAddr(from.end), VirtAddr(to))?;
        self.move_pinned(from, to);
        Ok(())
    }
}
