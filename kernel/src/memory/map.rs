//! Changing what is mapped: `mmap`, `munmap`, `mprotect`, `brk`.
//!
//! Arguments arrive typed and page-aligned; decoding and the checks of files are the handlers' work
//! (`servers/memory`). Each function here is one critical section, and either does all that it was
//! asked for or, where it returns an error, nothing. What may be much is done in parts (`change.rs`), after
//! a check here that nothing refuses it (`mprotect` changes the areas before the first one that refuses,
//! as on Linux).

use abi::Errno;
use abi::memory::Protection;
use core::ops::Range;

use super::area::{Area, AreaFlags, Backing};
use super::attach::Attachment;
use super::layout::{LOW_REGION, LOWEST_ADDRESS, PAGE, STACK_GUARD, USER_END, page_ceil};
use super::space::{AddressSpace, Inner, LimitValues, MOST_AREAS, anonymous_area};
use base::memory::{VirtAddr, reserve};

use super::fault::Access;

/// Where a mapping goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Anywhere, near this address if it is free; 0 is no wish.
    Anywhere {
        /// The wish.
        hint: u64,
        /// In the first 2 GiB.
        is_low: bool,
    },
    /// Exactly here, replacing what is there.
    Fixed(u64),
    /// Exactly here, if nothing is there.
    FixedIfFree(u64),
}

/// A new mapping.
pub struct MapRequest {
    /// Where.
    pub place: Place,
    /// Bytes, a multiple of the page size and not 0.
    pub length: u64,
    /// Rights.
    pub protection: Protection,
    /// The most that `mprotect` may grant later.
    pub allowed: Protection,
    /// Properties.
    pub flags: AreaFlags,
    /// What stands behind it.
    pub backing: Backing,
    /// Counts it as an attachment of a shared-memory segment.
    pub attachment: Option<Attachment>,
    /// It may lie below the lowest address that everybody may use.
    pub may_be_low: bool,
}

impl MapRequest {
    /// A private anonymous mapping, anywhere.
    pub fn anonymous(length: u64, protection: Protection) -> MapRequest {
        MapRequest {
            place: Place::Anywhere { hint: 0, is_low: false },
            length,
            protection,
            allowed: Protection::all(),
            flags: AreaFlags::empty(),
            backing: Backing::Anonymous,
            attachment: None,
            may_be_low: false,
        }
    }
}

impl AddressSpace {
    /// Maps, and returns the address. What one part of a change cannot take away must be gone from there
    /// (`Change::unmap_part`).
    ///
    /// # Errors
    /// `ENOMEM` when there is no room or a limit is reached, `EEXIST`, `EPERM` for an address below
    /// the lowest permitted one, `EAGAIN` when too much would be locked.
    pub fn map(&self, request: MapRequest) -> Result<u64, Errno> {
        let limits = self.limits();
        let mut inner = self.lock();
        let (start, area) = inner.plan(request, &limits)?;
        let range = start..area.end;
        let replaces = !inner.areas.is_free(range.clone());
        inner.remove_areas(range.clone());
        inner.add_area(start, area);
        drop(inner);
        if replaces {
            self.forget_sites(range);
        }
        Ok(start)
    }

    /// Whether `map` would succeed now.
    ///
    /// # Errors
    /// Those of `map`.
    pub fn check_map(&self, request: &MapRequest) -> Result<(), Errno> {
        let limits = self.limits();
        let inner = self.lock();
        let start = inner.choose_place(request.place, request.length, request.may_be_low)?;
        let area = anonymous_area(start + request.length, request.protection);
        inner.check_limits(start, &Area { flags: request.flags, ..area }, &limits)
    }

    /// Whether one part of a change is all of `range`.
    pub fn is_one_part(&self, range: Range<u64>) -> bool {
        self.lock().part_end(range.clone()) == range.end
    }

    /// What was mapped in `range` is gone: so is the program's code there that posted calls.
    pub fn forget_sites(&self, range: Range<u64>) {
        if let Some(sites) = self.sites() {
            sites.forget(self, range);
        }
    }

    /// Unmaps whatever lies in `range`, which is little.
    ///
    /// # Errors
    /// `ENOMEM` when an area would be split and there are too many.
    pub fn unmap(&self, range: Range<u64>) -> Result<(), Errno> {
        let mut inner = self.lock();
        inner.check_unmap(&range)?;
        inner.remove_areas(range.clone());
        drop(inner);
        self.forget_sites(range);
        Ok(())
    }

    /// Whether `unmap` would refuse.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn check_unmap(&self, range: &Range<u64>) -> Result<(), Errno> {
        self.lock().check_unmap(range)
    }

    /// The part of `range` whose rights may be changed, from its start, and why not all of it. With
    /// `grows_down` the range is extended to the start of the growing area that it begins in.
    ///
    /// # Errors
    /// When nothing may be changed. `ENOMEM` when part of the range is not mapped or there are too many
    /// areas, `EACCES` when a right may not be granted, `EINVAL` with `grows_down` and no growing area.
    pub fn check_protect(
        &self,
        range: Range<u64>,
        protection: Protection,
        grows_down: bool,
    ) -> Result<(Range<u64>, Result<(), Errno>), Errno> {
        let limits = self.limits();
        let inner = self.lock();
        let mut from = range.start;
        match inner.areas.overlapping(range.clone()).next() {
            None => return Err(Errno::ENOMEM),
            Some((start, area)) if grows_down => {
                if !area.flags.contains(AreaFlags::GROWS_DOWN) {
                    return Err(Errno::EINVAL);
                }
                from = start;
            }
            Some((start, _)) if start > range.start => return Err(Errno::ENOMEM),
            Some(_) => {}
        }
        let (until, result) = inner.find_refusal(from..range.end, protection, &limits);
        inner.check_split(&(from..until))?;
        Ok((from..until, result))
    }

    /// Sets where the heap begins (and is empty), once per program.
    pub fn start_heap(&self, address: u64) {
        let mut inner = self.lock();
        inner.break_start = address;
        inner.break_end = address;
    }

    /// What a program break at `address` would take away; empty when it is no lower.
    pub fn above_break(&self, address: u64) -> Range<u64> {
        let inner = self.lock();
        let (old, new) = (page_ceil(inner.break_end), page_ceil(address));
        match (old, new) {
            (Some(old), Some(new)) if address >= inner.break_start && new < old => new..old,
            _ => 0..0,
        }
    }

    /// Moves the program break and returns where it is afterwards: unchanged when it cannot be moved.
    pub fn set_break(&self, address: u64) -> u64 {
        let limits = self.limits();
        let mut inner = self.lock();
        let current = inner.break_end;
        if address < inner.break_start {
            return current;
        }
        let (Some(old_end), Some(new_end)) = (page_ceil(current), page_ceil(address)) else {
            return current;
        };
        if new_end < old_end {
            inner.remove_areas(new_end..old_end);
        } else if new_end > old_end {
            let heap = address - inner.break_start;
            let data = inner.regions.data.end.saturating_sub(inner.regions.data.start);
            let mut area = anonymous_area(new_end, Protection::READ | Protection::WRITE);
            if inner.lock_future {
                area.flags.insert(AreaFlags::LOCKED);
            }
            let room_end = new_end.saturating_add(STACK_GUARD);
            let is_possible = new_end <= USER_END
                && heap.saturating_add(data) <= limits.data
                && is_free_for_heap(&inner, old_end..new_end, room_end)
                && inner.check_limits(old_end, &area, &limits).is_ok();
            if !is_possible {
                return current;
            }
            inner.add_area(old_end, area);
        }
        inner.break_end = address;
        address
    }

    /// Brings in every page of `range` that is mapped, as far as possible (`MAP_POPULATE`,
    /// `MADV_WILLNEED`, `mlock`). Errors are not reported, as on Linux.
    pub async fn populate(&self, range: Range<u64>) {
        let mut page = range.start;
        while page < range.end {
            let access = {
                let inner = self.lock();
                match inner.areas.find(page) {
                    Some((_, area)) if area.protection.is_empty() => {
                        page = area.end;
                        continue;
                    }
                    Some((_, area)) => Access {
                        write: area.is_private() && area.protection.contains(Protection::WRITE),
                        execute: false,
                    },
                    None => match inner.areas.next_above(page) {
                        Some((start, _)) => {
                            page = start;
                            continue;
                        }
                        None => return,
                    },
                }
            };
            if self.fault(VirtAddr(page), access).await.is_err() {
                return;
            }
            page += PAGE;
        }
    }
}

/// The heap may grow over `range` when that is free, up to `room_end` unless a stack ends there.
fn is_free_for_heap(inner: &Inner, range: Range<u64>, room_end: u64) -> bool {
    if !inner.areas.is_free(range.clone()) {
        return false;
    }
    match inner.areas.next_above(range.end.saturating_sub(1)) {
        Some((start, area)) => !area.flags.contains(AreaFlags::GROWS_DOWN) || start >= room_end,
        None => true,
    }
}

impl Inner {
    pub(super) fn check_unmap(&self, range: &Range<u64>) -> Result<(), Errno> {
        let splits = self
            .areas
            .find(range.start)
            .is_some_and(|(start, area)| start < range.start && area.end > range.end);
        if splits && self.areas.len() >= MOST_AREAS { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// Where a new area goes, and the area.
    fn plan(&self, request: MapRequest, limits: &LimitValues) -> Result<(u64, Area), Errno> {
        let start = self.choose_place(request.place, request.length, request.may_be_low)?;
        let mut area = Area {
            end: start + request.length,
            protection: request.protection,
            allowed: request.allowed,
            flags: request.flags,
            backing: request.backing,
            attachment: request.attachment,
            placement: None,
        };
        if self.lock_future {
            area.flags.insert(AreaFlags::LOCKED);
        }
        self.check_limits(start, &area, limits)?;
        Ok((start, area))
    }

    fn choose_place(&self, place: Place, length: u64, may_be_low: bool) -> Result<u64, Errno> {
        if length > USER_END {
            return Err(Errno::ENOMEM);
        }
        let exactly = |address: u64| {
            if address > USER_END - length {
                Err(Errno::ENOMEM)
            } else if address < LOWEST_ADDRESS
                && !(may_be_low && self.is_without_special(address..LOWEST_ADDRESS))
            {
                Err(Errno::EPERM)
            } else {
                Ok(address)
            }
        };
        match place {
            Place::Fixed(address) => exactly(address),
            Place::FixedIfFree(address) => {
                let address = exactly(address)?;
                let is_free = self.areas.is_free(address..address + length);
                if is_free { Ok(address) } else { Err(Errno::EEXIST) }
            }
            Place::Anywhere { hint, is_low } => {
                self.find_room(hint, length, is_low).ok_or(Errno::ENOMEM)
            }
        }
    }

    /// Whether nothing of the kernel's lies in `range`.
    fn is_without_special(&self, range: Range<u64>) -> bool {
        self.areas.overlapping(range).all(|(_, area)| !area.flags.contains(AreaFlags::SPECIAL))
    }

    /// Room for `length` bytes: at `hint` if that is free, else from the top down, else from the
    /// bottom up.
    pub(super) fn find_room(&self, hint: u64, length: u64, is_low: bool) -> Option<u64> {
        let region = if is_low { LOW_REGION } else { LOWEST_ADDRESS..self.layout.mmap_base };
        let hint_end = hint.checked_add(length)?;
        let hint_limit = if is_low { LOW_REGION.end } else { USER_END };
        if hint >= LOWEST_ADDRESS && hint_end <= hint_limit {
            let guard = match self.areas.next_above(hint_end.saturating_sub(1)) {
                Some((start, area)) if area.flags.contains(AreaFlags::GROWS_DOWN) => {
                    start.saturating_sub(STACK_GUARD)
                }
                _ => u64::MAX,
            };
            if hint_end <= guard && self.areas.is_free(hint..hint_end) {
                return Some(hint);
            }
        }
        self.areas
            .find_room_from_top(length, region.clone())
            .or_else(|| self.areas.find_room_from_bottom(length, region.start..hint_limit))
    }

    /// Whether a new area (which may replace what is there) stays within the limits.
    pub(super) fn check_limits(
        &self,
        start: u64,
        area: &Area,
        limits: &LimitValues,
    ) -> Result<(), Errno> {
        let pages = (area.end - start) / PAGE;
        let replaced: u64 = self
            .areas
            .overlapping(start..area.end)
            .map(|(at, old)| (old.end.min(area.end) - at.max(start)) / PAGE)
            .sum();
        if self.areas.len() >= MOST_AREAS {
            return Err(Errno::ENOMEM);
        }
        self.check_growth(pages.saturating_sub(replaced), area, limits)?;
        if area.is_accounted() && pages > reserve::most() {
            return Err(Errno::ENOMEM);
        }
        Ok(())
    }

    /// Whether `pages` more of the kind of `area` stay within the limits.
    pub(super) fn check_growth(
        &self,
        pages: u64,
        area: &Area,
        limits: &LimitValues,
    ) -> Result<(), Errno> {
        let is_above = |have: u64, limit: u64| have.saturating_mul(PAGE) > limit;
        if is_above(self.total + pages, limits.address_space) {
            return Err(Errno::ENOMEM);
        }
        let is_data = area.is_private() && area.protection.contains(Protection::WRITE);
        if is_data && limits.data < USER_END && is_above(self.data_pages() + pages, limits.data) {
            return Err(Errno::ENOMEM);
        }
        if area.flags.contains(AreaFlags::LOCKED)
            && limits.locked < USER_END
            && is_above(self.locked_pages() + pages, limits.locked)
        {
            return Err(Errno::EAGAIN);
        }
        Ok(())
    }

    /// How far `protection` may be applied from the start of `range`, and why not further.
    fn find_refusal(
        &self,
        range: Range<u64>,
        protection: Protection,
        limits: &LimitValues,
    ) -> (u64, Result<(), Errno>) {
        let mut reached = range.start;
        let is_limited = limits.data < USER_END;
        let mut data = if is_limited { self.data_pages() } else { 0 };
        for (start, area) in self.areas.overlapping(range.clone()) {
            if start > reached {
                return (reached, Err(Errno::ENOMEM));
            }
            if area.flags.contains(AreaFlags::SPECIAL) && protection != area.protection {
                return (reached, Err(Errno::EACCES));
            }
            if !area.allowed.contains(protection) {
                return (reached, Err(Errno::EACCES));
            }
            let pages = (area.end.min(range.end) - start.max(range.start)) / PAGE;
            if area.is_accounted_with(protection) && !area.is_accounted() {
                data += pages;
                let is_too_much = is_limited && data.saturating_mul(PAGE) > limits.data;
                if is_too_much || pages > reserve::most() {
                    return (reached, Err(Errno::ENOMEM));
                }
            }
            reached = area.end.min(range.end);
        }
        if reached < range.end {
            return (reached, Err(Errno::ENOMEM));
        }
        (range.end, Ok(()))
    }
}
