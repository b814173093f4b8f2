//! Frames for everybody: a cache per core, a list of loose frames, the buddy lists.
//!
//! A core takes and returns single frames in its own cache without a lock; the cache is filled and
//! emptied 32 frames at a time under one lock. So up to `CACHE_SIZE` free frames per core cannot be had
//! by other cores. What a cache returns stays loose, to be taken again as it is; only when there is too
//! much of it, or when a run of frames cannot be found, it is merged into blocks.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use hal::{Contract, MAX_CPUS, Machine, PAGE_SIZE, PhysAddr};

use super::buddy::{Buddy, MAX_ORDER, Record};
use super::{OutOfMemory, copy};
use crate::cpu::{CpuId, CpuLocal, LocalSlot, PerCpu};
use crate::sync::{Mutex, Once, rank};

const CACHE_SIZE: usize = 128;
const BATCH_ORDER: u32 = 5;
const BATCH: usize = 1 << BATCH_ORDER;

/// Most loose frames that are kept.
const MOST_LOOSE: usize = 4096;
/// Ends the list of loose frames.
const NONE: u32 = u32::MAX;

/// The frame allocator.
pub(crate) struct Frames {
    records: &'static [Record],
    free: Mutex<Free>,
    pub(crate) total: usize,
}

/// What is free and in no cache.
struct Free {
    buddy: Buddy,
    /// First of the loose frames, which are linked by `Record::next`.
    loose: u32,
    loose_count: usize,
}

static FRAMES: Once<Frames> = Once::new();
/// The records again, for those who have a frame and so know that they are there.
static RECORDS: AtomicPtr<Record> = AtomicPtr::new(ptr::null_mut());
/// Free frames of each core; only the first ones count.
static CACHES: CpuLocal<[u32; CACHE_SIZE]> =
    CpuLocal::new([const { LocalSlot::new([0; CACHE_SIZE]) }; MAX_CPUS]);
/// How many frames each cache holds; written by whoever borrowed the cache.
static CACHED: PerCpu<AtomicUsize> = PerCpu::new([const { AtomicUsize::new(0) }; MAX_CPUS]);

/// How much RAM there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameCounts {
    /// Frames that can be had at all, free or in use.
    pub total: usize,
    /// Frames that are free now, those in caches of cores included.
    pub free: usize,
}

/// Frames in all and free ones. Exact when no core allocates or frees meanwhile.
pub fn frame_counts() -> FrameCounts {
    let frames = frames();
    let listed = {
        let free = frames.free.lock();
        free.buddy.free_count() + free.loose_count
    };
    let cached: usize = (0..MAX_CPUS)
        .filter_map(CpuId::new)
        .map(|cpu| CACHED.of(cpu).load(Ordering::Relaxed))
        .sum();
    FrameCounts { total: frames.total, free: listed + cached }
}

#[inline]
pub(crate) fn frames() -> &'static Frames {
    match FRAMES.get() {
        Some(frames) => frames,
        None => FRAMES.call_once(set_up),
    }
}

/// The number of the frame at an address.
#[inline]
pub(crate) fn number_of(address: PhysAddr) -> u32 {
    (address.0 / PAGE_SIZE as u64) as u32
}

/// The address of a frame.
#[inline]
pub(crate) fn address_of(number: u32) -> PhysAddr {
    PhysAddr(u64::from(number) * PAGE_SIZE as u64)
}

/// Finds room for the records in free memory and hands the rest to the buddy lists.
#[cold]
fn set_up() -> Frames {
    let info = Machine::boot_info();
    let page = PAGE_SIZE as u64;
    let count = usize::try_from(info.memory_end.0 / page).unwrap_or(0).min(u32::MAX as usize - 1);
    let record_bytes = (count * size_of::<Record>()).next_multiple_of(PAGE_SIZE) as u64;
    let place = info
        .free_memory
        .iter()
        .map(|range| range.start.0.next_multiple_of(page).max(page))
        .zip(info.free_memory)
        .find(|(start, range)| range.end.0.saturating_sub(*start) >= record_bytes)
        .map(|(start, _)| start);
    let Some(place) = place else { panic!("no room in RAM for the records of {count} frames") };
    let pointer = Machine::phys_to_virt(PhysAddr(place));
    // SAFETY: `record_bytes` of free RAM from `place` on, which is handed to nobody else below.
    unsafe { copy::zero_shared(pointer, record_bytes as usize) };
    // SAFETY: zeroed just now, which is a valid `Record`; large enough for `count`, page-aligned, and
    // never freed.
    let records: &'static [Record] =
        unsafe { core::slice::from_raw_parts(pointer.cast::<Record>(), count) };
    let mut buddy = Buddy::new(records);
    for range in info.free_memory {
        // Frame 0 is never handed out: a frame number is not zero.
        let start = range.start.0.next_multiple_of(page).max(page);
        let end = (range.end.0 / page * page).min(count as u64 * page);
        let (first, second) = if (start..end).contains(&place) {
            ((start, place), (place + record_bytes, end))
        } else {
            ((start, end), (end, end))
        };
        for (start, end) in [first, second] {
            if start < end {
                buddy.give_range((start / page) as u32, ((end - start) / page) as u32);
            }
        }
    }
    let total = buddy.free_count();
    RECORDS.store(ptr::from_ref(records).cast_mut().cast(), Ordering::Release);
    let free = Free { buddy, loose: NONE, loose_count: 0 };
    Frames { records, free: Mutex::new(&rank::FRAMES, free), total }
}

impl Frames {
    /// The record of a frame; `None` for addresses that are no RAM.
    #[inline]
    pub fn record(&self, number: u32) -> Option<&'static Record> {
        self.records.get(number as usize)
    }

    /// Takes `count` frames in a row, aligned to the next power of two.
    pub fn take_run(&self, count: usize) -> Result<u32, OutOfMemory> {
        let order = count.checked_next_power_of_two().ok_or(OutOfMemory)?.ilog2();
        if count == 0 || order > MAX_ORDER {
            return Err(OutOfMemory);
        }
        let mut free = self.free.lock();
        let first = match free.buddy.take(order) {
            Some(first) => first,
            None => {
                while free.merge_one(self.records) {}
                free.buddy.take(order).ok_or(OutOfMemory)?
            }
        };
        let count = count as u32;
        free.buddy.give_range(first + count, (1 << order) - count);
        Ok(first)
    }

    /// Gives a run back.
    pub fn give_run(&self, first: u32, count: usize) {
        self.free.lock().buddy.give_range(first, count as u32);
    }
}

impl Free {
    /// Fills an empty cache; how many frames.
    fn refill(&mut self, records: &[Record], cache: &mut [u32; CACHE_SIZE]) -> usize {
        let mut count = 0;
        while count < BATCH
            && let Some(number) = self.take_loose(records)
        {
            cache[count] = number;
            count += 1;
        }
        if count == 0
            && let Some(first) = self.buddy.take(BATCH_ORDER)
        {
            for (place, number) in cache.iter_mut().zip((first..first + BATCH as u32).rev()) {
                *place = number;
            }
            return BATCH;
        }
        while count < BATCH
            && let Some(number) = self.buddy.take(0)
        {
            cache[count] = number;
            count += 1;
        }
        count
    }

    fn take_loose(&mut self, records: &[Record]) -> Option<u32> {
        let number = self.loose;
        let record = records.get(number as usize)?;
        self.loose = record.next.load(Ordering::Relaxed);
        self.loose_count -= 1;
        Some(number)
    }

    /// Takes frames from a cache.
    fn accept(&mut self, records: &[Record], frames: &[u32]) {
        for number in frames {
            match records.get(*number as usize) {
                Some(record) if self.loose_count < MOST_LOOSE => {
                    record.next.store(self.loose, Ordering::Relaxed);
                    self.loose = *number;
                    self.loose_count += 1;
                }
                _ => self.buddy.give(*number, 0),
            }
        }
    }

    /// Merges one loose frame into the blocks; false when there is none.
    fn merge_one(&mut self, records: &[Record]) -> bool {
        let Some(number) = self.take_loose(records) else { return false };
        self.buddy.give(number, 0);
        true
    }
}

#[cold]
fn refill(cache: &mut [u32; CACHE_SIZE]) -> usize {
    let frames = frames();
    frames.free.lock().refill(frames.records, cache)
}

#[cold]
fn drain(cache: &mut [u32; CACHE_SIZE]) {
    let frames = frames();
    // The oldest go; the youngest are warm.
    frames.free.lock().accept(frames.records, &cache[..BATCH]);
    cache.copy_within(BATCH.., 0);
}

/// Takes one frame from this core's cache.
#[inline]
pub(crate) fn take_frame() -> Result<u32, OutOfMemory> {
    CACHES.with(|cache| {
        let cached = CACHED.here();
        let mut count = cached.load(Ordering::Relaxed);
        if count == 0 {
            count = refill(cache);
        }
        let last = count.wrapping_sub(1);
        let number = cache.get(last).copied().ok_or(OutOfMemory)?;
        cached.store(last, Ordering::Relaxed);
        Ok(number)
    })
}

/// Gives one frame to this core's cache.
#[inline]
pub(crate) fn give_frame(number: u32) {
    CACHES.with(|cache| {
        let cached = CACHED.here();
        let mut count = cached.load(Ordering::Relaxed);
        if count >= CACHE_SIZE {
            drain(cache);
            count = CACHE_SIZE - BATCH;
        }
        cache[count] = number;
        cached.store(count + 1, Ordering::Relaxed);
    });
}

/// The record of a frame.
///
/// # Safety
/// The frame was taken from here, so it has a record.
#[inline]
pub(crate) unsafe fn record_of(number: u32) -> &'static Record {
    // SAFETY: the records were set up before the first frame was taken, and are never moved; by the
    // caller's promise the frame is one of theirs.
    unsafe { &*RECORDS.load(Ordering::Relaxed).add(number as usize) }
}

/// Takes `pages` frames in a row, with arbitrary contents, for a device or the heap: at most 4096.
/// They belong to the caller until `free_contiguous`.
pub fn allocate_contiguous(pages: usize) -> Result<PhysAddr, OutOfMemory> {
    let frames = frames();
    let first = frames.take_run(pages)?;
    if let Some(record) = frames.record(first) {
        record.tag.store(RUN, Ordering::Relaxed);
        record.next.store(pages as u32, Ordering::Relaxed);
    }
    Ok(address_of(first))
}

/// Marks the first frame of a run; the run's length is in `next`.
const RUN: u32 = 0x5255_0000;

/// Gives back what `allocate_contiguous` gave: the same address and number of pages. Anything else is
/// refused with a message.
///
/// # Safety
/// Nobody uses the frames any more: no reference to them is left, and no device writes to them.
pub(crate) unsafe fn free_contiguous(address: PhysAddr, pages: usize) {
    let frames = frames();
    let number = number_of(address);
    let known = frames.record(number).is_some_and(|record| {
        record.next.load(Ordering::Relaxed) as usize == pages
            && record.tag.compare_exchange(RUN, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    });
    if known {
        frames.give_run(number, pages);
    } else {
        log::error!("free_contiguous: {pages} pages at {address:#x} were never allocated so");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_can_be_freed_once_and_only_whole() {
        let run = allocate_contiguous(5).unwrap();
        assert_eq!(run.0 % PAGE_SIZE as u64, 0);
        // SAFETY: the frames were never used.
        unsafe {
            free_contiguous(run, 4);
            free_contiguous(run, 5);
            free_contiguous(run, 5);
        }
        let first = allocate_contiguous(5).unwrap();
        let second = allocate_contiguous(5).unwrap();
        assert!(first.0.abs_diff(second.0) >= 5 * PAGE_SIZE as u64);
        // SAFETY: the frames were never used.
        unsafe {
            free_contiguous(first, 5);
            free_contiguous(second, 5);
        }
    }

    #[test]
    fn loose_frames_are_taken_again_or_merged_when_a_run_is_needed() {
        let record =
            || Record { references: 0.into(), next: 0.into(), previous: 0.into(), tag: 0.into() };
        let records: &'static [Record] = Box::leak((0..256).map(|_| record()).collect());
        let mut buddy = Buddy::new(records);
        buddy.give_range(0, 256);
        let mut free = Free { buddy, loose: NONE, loose_count: 0 };
        let mut caches = [[0; CACHE_SIZE]; 8];
        let mut taken: Vec<u32> = Vec::new();
        for cache in &mut caches {
            assert_eq!(free.refill(records, cache), BATCH);
            taken.extend(&cache[..BATCH]);
        }
        assert_eq!(free.refill(records, &mut caches[0]), 0);
        taken.sort_unstable();
        assert_eq!(taken, (0..256).collect::<Vec<u32>>());
        free.accept(records, &taken[..40]);
        assert_eq!((free.loose_count, free.buddy.free_count()), (40, 0));
        assert_eq!(free.refill(records, &mut caches[0]), BATCH);
        assert_eq!(free.refill(records, &mut caches[1]), 8);
        free.accept(records, &taken);
        assert_eq!(free.buddy.take(8), None);
        while free.merge_one(records) {}
        assert_eq!(free.buddy.take(8), Some(0));
    }

    #[test]
    fn runs_beyond_the_largest_block_are_refused() {
        assert_eq!(allocate_contiguous((1 << MAX_ORDER) + 1), Err(OutOfMemory));
        assert_eq!(allocate_contiguous(0), Err(OutOfMemory));
        assert_eq!(allocate_contiguous(usize::MAX), Err(OutOfMemory));
    }
}
