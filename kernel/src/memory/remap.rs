//! `mremap`: growing, shrinking and moving a mapping with its pages.

use abi::Errno;
use base::memory::VirtAddr;

use super::area::{Area, AreaFlags};
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

impl AddressSpace {
    /// Resizes or moves, and returns the new address.
    ///
    /// # Errors
    /// `EFAULT` when the old range is not one mapping, `EINVAL` for ranges that make no sense,
    /// `ENOMEM` when there is no room or a limit is reached, `EAGAIN` when too much would be locked.
    pub fn remap(&self, request: RemapRequest) -> Result<u64, Errno> {
        let limits = self.limits();
        if let Some(sites) = self.sites() {
            let old_end = request.address.saturating_add(request.old_length);
            sites.give_back(self, request.address..old_end);
        }
        let mut inner = self.lock();
        let is_forced = request.keep_old || matches!(request.movement, Move::To(_));
        if inner.areas.find(request.address).is_none() {
            return Err(Errno::EFAULT);
        }
        if is_forced {
            return inner.remap_elsewhere(request, &limits);
        }
        let old_end = request.address.checked_add(request.old_length).ok_or(Errno::EINVAL)?;
        if request.old_length >= request.new_length && request.old_length > 0 {
            let new_end = request.address + request.new_length;
            if new_end < old_end {
                inner.remove_areas(new_end..old_end);
            }
            return Ok(request.address);
        }
        inner.check_resize(&request, &limits)?;
        if request.old_length > 0 && inner.grow_in_place(request.address, old_end, &request) {
            return Ok(request.address);
        }
        if request.movement == Move::Never {
            return Err(Errno::ENOMEM);
        }
        let target = inner.find_room(0, request.new_length, false).ok_or(Errno::ENOMEM)?;
        inner.move_pages(&request, target)?;
        Ok(target)
    }
}

impl Inner {
    fn remap_elsewhere(
        &mut self,
        mut request: RemapRequest,
        limits: &LimitValues,
    ) -> Result<u64, Errno> {
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
                Some(target)
            }
            _ => None,
        };
        if self.areas.len() + 2 >= MOST_AREAS {
            return Err(Errno::ENOMEM);
        }
        if let Some(target) = &fixed {
            self.remove_areas(target.clone());
        }
        if request.old_length > request.new_length {
            let new_end = request.address + request.new_length;
            self.remove_areas(new_end..old_end);
            request.old_length = request.new_length;
        }
        self.check_resize(&request, limits)?;
        let target = match fixed {
            Some(target) => target.start,
            None => self.find_room(request.hint, request.new_length, false).ok_or(Errno::ENOMEM)?,
        };
        self.move_pages(&request, target)?;
        Ok(target)
    }

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

    /// Moves areas and pages of the old range to `target`, which is free.
    fn move_pages(&mut self, request: &RemapRequest, target: u64) -> Result<(), Errno> {
        let old = request.address..request.address + request.old_length;
        let (start, area) = self.areas.find(old.start).ok_or(Errno::EFAULT)?;
        let mut moved = Area { end: target + request.new_length, ..area.clone() };
        if let super::area::Backing::Object { first_page, .. } = &mut moved.backing {
            *first_page += (old.start - start) / PAGE;
        }
        self.table.move_range(VirtAddr(old.start)..VirtAddr(old.end), VirtAddr(target))?;
        self.move_pinned(old.clone(), target);
        if !old.is_empty() && !request.keep_old {
            for (start, area) in self.areas.remove(old) {
                self.total -= (area.end - start) / PAGE;
            }
        } else if request.keep_old {
            self.areas.change(old, |_, area| area.flags.remove(AreaFlags::LOCKED));
        }
        self.add_area(target, moved);
        Ok(())
    }
}
