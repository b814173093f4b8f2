//! Content of a regular file: pages by index, some of them still only in the initramfs.
//!
//! A page is in one of three places: a frame of its own; `borrowed`, the bytes of an archive that
//! stays in memory for ever (then it becomes a frame when it is first written or mapped); or nowhere,
//! and reads as zeros. Bytes past the size in the last frame are zero.

use super::Shared;
use abi::Errno;
use abi::fs::Seals;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use base::heap::tree;
use base::io::Source;
use base::memory::{Frame, PAGE_SIZE, reserve};
use core::ops::Range;

const PAGE: u64 = PAGE_SIZE as u64;
/// Pages that one `fill` or `punch` makes or frees.
const PAGES_AT_ONCE: u64 = 256;

/// Where the bytes of one page are.
pub enum Spot {
    /// In a frame.
    Frame(Frame),
    /// In the archive; may be shorter than a page, the rest is zeros.
    Archive(&'static [u8]),
    /// Zeros.
    Hole,
}

/// Pages of a file. Guarded by the node's lock.
pub struct Pages {
    pub size: u64,
    frames: BTreeMap<u64, Frame>,
    borrowed: &'static [u8],
    pub seals: Seals,
}

impl Pages {
    pub const fn empty(seals: Seals) -> Pages {
        Pages { size: 0, frames: BTreeMap::new(), borrowed: &[], seals }
    }

    pub fn of_archive(bytes: &'static [u8]) -> Pages {
        let size = bytes.len() as u64;
        Pages { size, frames: BTreeMap::new(), borrowed: bytes, seals: Seals::SEAL }
    }

    /// All frames, to be freed elsewhere.
    pub fn take_frames(&mut self) -> BTreeMap<u64, Frame> {
        core::mem::take(&mut self.frames)
    }

    pub fn frame_count(&self) -> u64 {
        self.frames.len() as u64
    }

    /// Blocks of 512 bytes that the content takes.
    pub fn blocks(&self) -> u64 {
        if self.borrowed.is_empty() {
            return self.frame_count() * (PAGE / 512);
        }
        let borrowed = (self.borrowed.len() as u64).div_ceil(PAGE);
        let own = self.frames.range(borrowed..).count() as u64;
        (borrowed + own) * (PAGE / 512)
    }

    fn borrowed_page(&self, index: u64) -> Option<&'static [u8]> {
        let start = usize::try_from(index.checked_mul(PAGE)?).ok()?;
        let rest = self.borrowed.get(start..).filter(|rest| !rest.is_empty())?;
        Some(rest.get(..PAGE_SIZE).unwrap_or(rest))
    }

    pub fn spot(&self, index: u64) -> Spot {
        match (self.frames.get(&index), self.borrowed_page(index)) {
            (Some(frame), _) => Spot::Frame(frame.clone()),
            (None, Some(bytes)) => Spot::Archive(bytes),
            (None, None) => Spot::Hole,
        }
    }

    /// Fills the empty slots of `into` with the frames of the pages from `first` on that have one.
    pub fn present(&self, first: u64, into: &mut [Option<Frame>]) {
        let end = self.size.div_ceil(PAGE).min(first.saturating_add(into.len() as u64));
        for (index, frame) in self.frames.range(first..end.max(first)) {
            let slot = usize::try_from(index - first).ok().and_then(|at| into.get_mut(at));
            if let Some(slot) = slot.filter(|slot| slot.is_none()) {
                *slot = Some(frame.clone());
            }
        }
    }

    /// The frame of a page, made when there is none.
    pub fn frame(&mut self, index: u64, shared: &Shared) -> Result<&Frame, Errno> {
        if !self.frames.contains_key(&index) {
            let bytes = self.borrowed_page(index);
            shared.reserve_pages(1)?;
            let made = match bytes {
                Some(bytes) if bytes.len() == PAGE_SIZE => reserve::uninitialised(),
                _ => reserve::zeroed(),
            };
            let frame = made.map_err(|out| {
                shared.release_pages(1);
                Errno::from(out)
            })?;
            if let Some(bytes) = bytes {
                frame.write(0, bytes);
            }
            tree::insert(&mut self.frames, index, frame);
        }
        self.frames.get(&index).ok_or(Errno::EIO)
    }

    /// Writes until the source gives no more or `limit` bytes are written, and grows the file.
    pub fn write(
        &mut self,
        offset: u64,
        limit: usize,
        source: &mut dyn Source,
        shared: &Shared,
    ) -> Result<usize, Errno> {
        let mut done = 0usize;
        let result = loop {
            let wanted = source.remaining().min(limit - done);
            if wanted == 0 {
                break Ok(());
            }
            let at = offset.saturating_add(done as u64);
            let (index, within) = (at / PAGE, (at % PAGE) as usize);
            let length = wanted.min(PAGE_SIZE - within);
            let count = match self.write_page(index, within, length, source, shared) {
                Ok(count) => count,
                Err(error) => break Err(error),
            };
            done += count;
            if count < length {
                break Ok(());
            }
        };
        if done == 0 {
            return result.map(|()| 0);
        }
        self.size = self.size.max(offset.saturating_add(done as u64));
        Ok(done)
    }

    fn write_page(
        &mut self,
        index: u64,
        within: usize,
        length: usize,
        source: &mut dyn Source,
        shared: &Shared,
    ) -> Result<usize, Errno> {
        if length == PAGE_SIZE && !self.frames.contains_key(&index) {
            // The whole page is new: no need to fill it first.
            shared.reserve_pages(1)?;
            let frame = reserve::uninitialised().map_err(|out| {
                shared.release_pages(1);
                Errno::from(out)
            })?;
            let count = frame.write_from(0, length, source);
            if count < PAGE_SIZE {
                frame.zero(count, PAGE_SIZE - count);
                if let Some(rest) = self.borrowed_page(index).and_then(|bytes| bytes.get(count..)) {
                    frame.write(count, rest);
                }
            }
            tree::insert(&mut self.frames, index, frame);
            return Ok(count);
        }
        Ok(self.frame(index, shared)?.write_from(within, length, source))
    }

    /// Sets the size. What was cut off is returned, to be freed without the lock.
    pub fn resize(&mut self, size: u64, shared: &Shared) -> BTreeMap<u64, Frame> {
        let mut cut = BTreeMap::new();
        if size < self.size {
            cut = tree::split_off(&mut self.frames, &size.div_ceil(PAGE));
            shared.release_pages(cut.len() as u64);
            let tail = (size % PAGE) as usize;
            if tail != 0
                && let Some(frame) = self.frames.get(&(size / PAGE))
            {
                frame.zero(tail, PAGE_SIZE - tail);
            }
            if let Some(kept) =
                usize::try_from(size).ok().and_then(|size| self.borrowed.get(..size))
            {
                self.borrowed = kept;
            }
        }
        self.size = size;
        cut
    }

    /// Makes frames for the beginning of a range (`fallocate`); the offset up to which it has them.
    /// `ENOSPC` and `ENOMEM` when there is no room for all of the range. What was made is added to `made`.
    pub fn fill(
        &mut self,
        offset: u64,
        length: u64,
        shared: &Shared,
        made: &mut Vec<Range<u64>>,
    ) -> Result<u64, Errno> {
        let end = offset.saturating_add(length);
        let pages = offset / PAGE..end.div_ceil(PAGE);
        let present = self.frames.range(pages.clone()).count() as u64;
        let missing = (pages.end - pages.start) - present;
        if missing > shared.free_pages() {
            return Err(Errno::ENOSPC);
        }
        if missing > reserve::available() as u64 {
            return Err(Errno::ENOMEM);
        }
        let reached = pages.end.min(pages.start + PAGES_AT_ONCE);
        for index in pages.start..reached {
            if self.frames.contains_key(&index) {
                continue;
            }
            made.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            self.frame(index, shared)?;
            match made.last_mut().filter(|last| last.end == index) {
                Some(last) => last.end += 1,
                None => made.push(index..index + 1),
            }
        }
        Ok(end.min(reached * PAGE))
    }

    /// Makes holes again of what was made for a range and still reads as zeros, unless somebody else
    /// has the frame.
    pub fn give_back(&mut self, range: Range<u64>, shared: &Shared) {
        for index in range {
            let is_hole = self.frames.get(&index).is_some_and(|frame| {
                !frame.is_shared() && (0..PAGE_SIZE / 8).all(|at| frame.load_u64(at * 8) == 0)
            });
            if is_hole && self.frames.remove(&index).is_some() {
                shared.release_pages(1);
            }
        }
    }

    /// Makes the beginning of a range read as zeros and gives its whole pages back; the offset up to
    /// which that is done. Holes cost nothing.
    pub fn punch(&mut self, offset: u64, length: u64, shared: &Shared) -> Result<u64, Errno> {
        let whole = offset.saturating_add(length);
        let end = whole.min(self.size.next_multiple_of(PAGE));
        let mut at = offset;
        for _ in 0..PAGES_AT_ONCE {
            let Some(index) = self.present_from(at / PAGE).filter(|index| index * PAGE < end)
            else {
                return Ok(whole);
            };
            at = at.max(index * PAGE);
            let within = at % PAGE;
            let length = (PAGE - within).min(end - at);
            if length == PAGE && self.borrowed_page(index).is_none() {
                if self.frames.remove(&index).is_some() {
                    shared.release_pages(1);
                }
            } else {
                self.frame(index, shared)?.zero(within as usize, length as usize);
            }
            at += length;
        }
        Ok(if at < end { at } else { whole })
    }

    /// The first page at or after `index` that is no hole, whether or not the file reaches so far.
    fn present_from(&self, index: u64) -> Option<u64> {
        if self.borrowed_page(index).is_some() {
            return Some(index);
        }
        self.frames.range(index..).next().map(|(&found, _)| found)
    }

    /// The first page at or after `index` that has data (or has none, when `hole`).
    pub fn find(&self, index: u64, hole: bool) -> Option<u64> {
        let page_count = self.size.div_ceil(PAGE);
        if !hole {
            if self.borrowed_page(index).is_some() {
                return Some(index);
            }
            return self.frames.range(index..page_count).next().map(|(&found, _)| found);
        }
        let mut at = index;
        while at < page_count && !matches!(self.spot(at), Spot::Hole) {
            at += 1;
        }
        Some(at)
    }
}
