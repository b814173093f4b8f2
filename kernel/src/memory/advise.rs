//! Advice and questions about mappings: `madvise`, `mincore`, `mlock` and its family, `msync`.
//!
//! Nothing is ever written to a swap device, so every resident page is locked in effect; locking only
//! brings pages in and is counted against its limit.

use abi::Errno;
use abi::memory::{Advice, Protection};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::memory::{Frame, PageRights, VirtAddr};
use core::ops::Range;
use fs::metadata::InodeId;

use super::PAGES_AT_ONCE;
use super::area::{AreaFlags, Backing, Object};
use super::change::Change;
use super::fault::{Access, FaultSignal};
use super::layout::PAGE;
use super::space::{AddressSpace, Inner};

/// A property that areas get or lose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    flag: AreaFlags,
    value: bool,
}

impl AddressSpace {
    /// Carries out `advice` for the mapped parts of `range`, but for marks.
    ///
    /// # Errors
    /// `ENOMEM` when part of it is not mapped (the rest is done), `EINVAL` when an area cannot take
    /// the advice, `EACCES`, `EFAULT`.
    pub async fn advise(&self, range: Range<u64>, advice: Advice) -> Result<(), Errno> {
        match advice {
            Advice::WillNeed => self.populate_sources(range.clone()).await,
            Advice::PopulateRead => return self.populate_or_fail(range, false).await,
            Advice::PopulateWrite => return self.populate_or_fail(range, true).await,
            Advice::Remove => self.punch(range.clone())?,
            Advice::DontNeed | Advice::DontNeedLocked | Advice::Free => {
                let mut inner = self.lock();
                inner.drop_pages(range.clone(), advice)?;
            }
            _ => {}
        }
        if self.lock().areas.is_covered(range) { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// For each page of `range` whether it is in memory.
    ///
    /// # Errors
    /// `ENOMEM` when part of the range is not mapped.
    pub fn residency(&self, range: Range<u64>) -> Result<Vec<u8>, Errno> {
        let mut pages = Vec::new();
        let count = usize::try_from((range.end - range.start) / PAGE).map_err(|_| Errno::ENOMEM)?;
        pages.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
        // Sources are asked after the lock is released, so their pages are noted first.
        let mut unknown: Vec<(usize, Arc<Object>, u64)> = Vec::new();
        {
            let inner = self.lock();
            if !inner.areas.is_covered(range.clone()) {
                return Err(Errno::ENOMEM);
            }
            for (start, area) in inner.areas.overlapping(range.clone()) {
                let from = start.max(range.start);
                for page in (from..area.end.min(range.end)).step_by(PAGE as usize) {
                    let is_there = inner.table.peek(VirtAddr(page)).is_some();
                    if let (false, Some((object, index))) =
                        (is_there, area.object_page(page - start))
                    {
                        unknown.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                        unknown.push((pages.len(), object.clone(), index));
                    }
                    pages.push(u8::from(is_there));
                }
            }
        }
        for (at, object, index) in unknown {
            if let Some(slot) = pages.get_mut(at) {
                let mut frame = [None];
                object.source.pages_present(index, &mut frame);
                *slot = u8::from(frame[0].is_some());
            }
        }
        Ok(pages)
    }

    /// Whether `range` may be locked or unlocked; `Change::lock_part` does it, also where part of the range
    /// is not mapped, which is the error inside. Bringing pages in comes after that.
    ///
    /// # Errors
    /// `ENOMEM` when the limit would be passed, or there are too many areas.
    pub fn check_locked(
        &self,
        range: Range<u64>,
        is_locked: bool,
        limit: u64,
    ) -> Result<Result<(), Errno>, Errno> {
        let inner = self.lock();
        if is_locked {
            let already: u64 = inner
                .areas
                .overlapping(range.clone())
                .filter(|(_, area)| area.flags.contains(AreaFlags::LOCKED))
                .map(|(start, area)| area.end.min(range.end) - start.max(range.start))
                .sum();
            let added = (range.end - range.start) - already;
            if (inner.locked_pages() * PAGE).saturating_add(added) > limit {
                return Err(Errno::ENOMEM);
            }
        }
        inner.check_split(&range)?;
        Ok(if inner.areas.is_covered(range) { Ok(()) } else { Err(Errno::ENOMEM) })
    }

    /// `mlockall` and `munlockall`: whether what will be mapped is locked. What is mapped now is
    /// `Change::lock_part`'s work.
    ///
    /// # Errors
    /// `ENOMEM` when the limit would be passed by what is mapped now.
    pub fn set_future_locked(&self, current: bool, future: bool, limit: u64) -> Result<(), Errno> {
        let mut inner = self.lock();
        if current && inner.total.saturating_mul(PAGE) > limit {
            return Err(Errno::ENOMEM);
        }
        inner.lock_future = future;
        Ok(())
    }

    /// What advice that only marks areas sets in them; `None` for advice that does not mark.
    ///
    /// # Errors
    /// `EINVAL` when an area cannot take the advice, `EAGAIN` with too many areas.
    pub fn check_mark(&self, range: Range<u64>, advice: Advice) -> Result<Option<Mark>, Errno> {
        let (flag, value) = match advice {
            Advice::DontFork => (AreaFlags::DONT_FORK, true),
            Advice::DoFork => (AreaFlags::DONT_FORK, false),
            Advice::WipeOnFork => (AreaFlags::WIPE_ON_FORK, true),
            Advice::KeepOnFork => (AreaFlags::WIPE_ON_FORK, false),
            Advice::DontDump => (AreaFlags::DONT_DUMP, true),
            Advice::DoDump => (AreaFlags::DONT_DUMP, false),
            _ => return Ok(None),
        };
        let inner = self.lock();
        let is_refused = inner.areas.overlapping(range.clone()).any(|(_, area)| {
            let is_special = area.flags.contains(AreaFlags::SPECIAL);
            match advice {
                Advice::WipeOnFork => !matches!(area.backing, Backing::Anonymous),
                Advice::DoFork | Advice::DoDump => is_special,
                _ => false,
            }
        });
        if is_refused {
            return Err(Errno::EINVAL);
        }
        inner.check_split(&range).map_err(|_| Errno::EAGAIN)?;
        Ok(Some(Mark { flag, value }))
    }

    /// The sources of shared mappings in `range`, to be written back, and whether the range is mapped
    /// throughout.
    ///
    /// # Errors
    /// `EBUSY` with `invalidate` when part of it is locked.
    pub fn shared_sources(
        &self,
        range: Range<u64>,
        invalidate: bool,
    ) -> Result<(Vec<Arc<Object>>, bool), Errno> {
        let inner = self.lock();
        let mut objects: Vec<Arc<Object>> = Vec::new();
        for (_, area) in inner.areas.overlapping(range.clone()) {
            if invalidate && area.flags.contains(AreaFlags::LOCKED) {
                return Err(Errno::EBUSY);
            }
            if let (false, Backing::Object { object, .. }) = (area.is_private(), &area.backing) {
                objects.push(object.clone());
            }
        }
        Ok((objects, inner.areas.is_covered(range)))
    }

    /// Takes pages of an inode out that lie in `pages`, wherever they are mapped from address `from` on. Private
    /// copies go with the end of a file, but stay when a hole is punched. Returns where the rest begins, if one
    /// part was not all.
    pub fn drop_source_part(&self, inode: InodeId, pages: &Range<u64>, from: u64) -> Option<u64> {
        /// Mappings that lose pages in one part.
        const MAPPINGS: usize = 64;
        let mut inner = self.lock();
        let mut parts: Vec<Range<u64>> = Vec::new();
        let mut left = 4 * PAGES_AT_ONCE;
        let mut next = None;
        for (start, area) in inner.areas.overlapping(from..u64::MAX) {
            if left == 0 || parts.len() >= MAPPINGS {
                next = Some(start.max(from));
                break;
            }
            left -= 1;
            let Backing::Object { object, first_page } = &area.backing else { continue };
            let source = &object.source;
            let is_spared = area.is_private() && pages.end != u64::MAX;
            let is_other = (source.device(), source.inode()) != (inode.device, inode.number);
            if is_spared || (is_other && source.content() != inode) {
                continue;
            }
            let count = (area.end - start) / PAGE;
            let first = pages.start.saturating_sub(*first_page).min(count);
            let end = pages.end.saturating_sub(*first_page).min(count);
            let lost = (start + first * PAGE).max(from)..start + end * PAGE;
            if lost.is_empty() {
                continue;
            }
            let (reached, rest) = inner.table.part(VirtAddr(lost.start)..VirtAddr(lost.end), left);
            if rest == 0 && reached.0 < lost.end {
                parts.push(lost.start..reached.0);
                next = Some(reached.0);
                break;
            }
            parts.push(lost);
            left = rest;
        }
        for part in parts {
            inner.take_pages(part);
        }
        next
    }

    /// Takes pages of an inode out that are mapped as these frames, wherever they are mapped from address `from`
    /// on; private copies of them stay. Returns where the rest begins, if one part was not all.
    pub fn release_source_part(
        &self,
        inode: InodeId,
        pages: &BTreeMap<u64, Frame>,
        from: u64,
    ) -> Option<u64> {
        let mut inner = self.lock();
        let within = |indices| pages.range(indices).map(|(&index, _)| index);
        let (shown, next) = inner.shown_part(inode, false, from, within);
        for (page, index) in shown {
            let frame = pages.get(&index).map(Frame::address);
            let state = inner.table.peek(VirtAddr(page));
            if state.is_some_and(|state| Some(state.frame) == frame) {
                inner.take_pages(page..page + PAGE);
            }
        }
        next
    }

    /// Has the next write to these pages of an inode, in ascending order, through a shared mapping announced,
    /// wherever they are mapped from address `from` on. Returns where the rest begins, if one part was not all.
    pub fn protect_source_part(&self, inode: InodeId, pages: &[u64], from: u64) -> Option<u64> {
        let mut inner = self.lock();
        let within = |indices: Range<u64>| {
            let first = pages.partition_point(|&index| index < indices.start);
            let rest = pages.get(first..).unwrap_or_default();
            rest.iter().copied().take_while(move |&index| index < indices.end)
        };
        let (shown, next) = inner.shown_part(inode, true, from, within);
        for (page, _) in shown {
            let page = VirtAddr(page);
            if let Some(state) = inner.table.peek(page).filter(|state| state.rights.write) {
                inner.table.set_rights(page, PageRights { write: false, ..state.rights });
            }
        }
        next
    }

    /// Whether a program may write to a file through a shared mapping here, or gain the right to.
    pub fn may_write_source(&self, device: u64, inode: u64) -> bool {
        self.lock().areas.iter().any(|(_, area)| {
            let Backing::Object { object, .. } = &area.backing else { return false };
            !area.is_private()
                && area.allowed.contains(Protection::WRITE)
                && (object.source.device(), object.source.inode()) == (device, inode)
        })
    }

    /// Whether `range` is mapped throughout.
    pub fn is_mapped(&self, range: Range<u64>) -> bool {
        self.lock().areas.is_covered(range)
    }

    async fn populate_sources(&self, range: Range<u64>) {
        let parts: Vec<Range<u64>> = {
            let inner = self.lock();
            let with_source = inner
                .areas
                .overlapping(range.clone())
                .filter(|(_, area)| matches!(area.backing, Backing::Object { .. }))
                .filter(|(_, area)| !area.protection.is_empty());
            with_source
                .map(|(start, area)| start.max(range.start)..area.end.min(range.end))
                .collect()
        };
        for part in parts {
            for page in part.step_by(PAGE as usize) {
                if self.fault(VirtAddr(page), Access::READ).await.is_err() {
                    break;
                }
            }
        }
    }

    async fn populate_or_fail(&self, range: Range<u64>, write: bool) -> Result<(), Errno> {
        let wanted = if write { Protection::WRITE } else { Protection::READ };
        let mut at = range.start;
        while at < range.end {
            let end = self.part_with(at..range.end, wanted)?;
            for page in (at..end).step_by(PAGE as usize) {
                let result = self.fault(VirtAddr(page), Access { write, execute: false }).await;
                result.map_err(|signal| match signal {
                    FaultSignal::NotMapped | FaultSignal::OutOfMemory => Errno::ENOMEM,
                    FaultSignal::NotPermitted | FaultSignal::KeyDenied => Errno::EINVAL,
                    FaultSignal::NoSuchPage => Errno::EFAULT,
                })?;
            }
            at = end;
        }
        Ok(())
    }

    /// The end of the first area of a range, cut to it. `ENOMEM` when none is there, `EINVAL` when it has not the right.
    fn part_with(&self, range: Range<u64>, wanted: Protection) -> Result<u64, Errno> {
        let inner = self.lock();
        let first = inner.areas.overlapping(range.clone()).next();
        let (_, area) = first.filter(|(start, _)| *start <= range.start).ok_or(Errno::ENOMEM)?;
        if area.protection.contains(wanted) {
            Ok(area.end.min(range.end))
        } else {
            Err(Errno::EINVAL)
        }
    }

    /// `MADV_REMOVE`: gives pages of shared sources back.
    fn punch(&self, range: Range<u64>) -> Result<(), Errno> {
        let mut holes = Vec::new();
        {
            let mut inner = self.lock();
            for (start, area) in inner.areas.overlapping(range.clone()) {
                let from = start.max(range.start);
                let until = area.end.min(range.end);
                let Some((object, first)) = area.object_page(from - start) else {
                    return Err(Errno::EINVAL);
                };
                if area.flags.intersects(AreaFlags::LOCKED | AreaFlags::SPECIAL) {
                    return Err(Errno::EINVAL);
                }
                if area.is_private() || !area.allowed.contains(Protection::WRITE) {
                    return Err(Errno::EACCES);
                }
                holes.push((object.clone(), first, first + (until - from) / PAGE, from..until));
            }
            for (_, _, _, range) in &holes {
                inner.take_pages(range.clone());
            }
        }
        for (object, first, end, _) in holes {
            object.source.punch(first, end)?;
        }
        Ok(())
    }
}

impl Change {
    /// Marks areas of `range`. Returns where the rest begins, if one part was not all.
    pub fn mark_part(&mut self, range: Range<u64>, mark: Mark) -> Option<u64> {
        self.space().update_part(range, |area| area.flags.set(mark.flag, mark.value))
    }

    /// Marks areas of `range` as locked or not. Returns where the rest begins, if one part was not all.
    pub fn lock_part(&mut self, range: Range<u64>, is_locked: bool) -> Option<u64> {
        self.space().update_part(range, |area| {
            if !area.flags.contains(AreaFlags::SPECIAL) {
                area.flags.set(AreaFlags::LOCKED, is_locked);
            }
        })
    }
}

impl Inner {
    /// Addresses from `from` on that show pages of an inode, and which: those that `within` gives of a range. Also
    /// where the rest begins, if one part was not all.
    fn shown_part<I: Iterator<Item = u64>>(
        &self,
        inode: InodeId,
        only_shared: bool,
        from: u64,
        within: impl Fn(Range<u64>) -> I,
    ) -> (Vec<(u64, u64)>, Option<u64>) {
        let mut shown = Vec::new();
        let mut left = 4 * PAGES_AT_ONCE;
        for (start, area) in self.areas.overlapping(from..u64::MAX) {
            let from = start.max(from);
            if left == 0 {
                return (shown, Some(from));
            }
            left -= 1;
            let Backing::Object { object, first_page } = &area.backing else { continue };
            if (only_shared && area.is_private()) || object.source.content() != inode {
                continue;
            }
            let indices =
                first_page + (from - start) / PAGE..first_page + (area.end - start) / PAGE;
            for index in within(indices) {
                let page = start + (index - first_page) * PAGE;
                if left == 0 {
                    return (shown, Some(page));
                }
                left -= 1;
                shown.push((page, index));
            }
        }
        (shown, None)
    }

    fn drop_pages(&mut self, range: Range<u64>, advice: Advice) -> Result<(), Errno> {
        let mut parts = Vec::new();
        let mut result = Ok(());
        for (start, area) in self.areas.overlapping(range.clone()) {
            let is_locked =
                area.flags.contains(AreaFlags::LOCKED) && advice != Advice::DontNeedLocked;
            let is_anonymous = matches!(area.backing, Backing::Anonymous);
            if is_locked
                || area.flags.contains(AreaFlags::SPECIAL)
                || (advice == Advice::Free && !is_anonymous)
            {
                result = Err(Errno::EINVAL);
                break;
            }
            parts.push(start.max(range.start)..area.end.min(range.end));
        }
        for part in parts {
            self.take_pages(part);
        }
        result
    }
}
