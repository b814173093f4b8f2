//! Frames for everybody: a cache per core over the buddy lists.
//!
//! A core takes and returns single frames in its own cache without a lock; the cache is filled and
//! emptied 32 frames at a time under the lock of the buddy lists. So up to `CACHE_SIZE` free frames per
//! core cannot be had by other cores.

use core::sync::atomic::{AtomicUsize, Ordering};

use hal::{Contract, MAX_CPUS, Machine, PAGE_SIZE, PhysAddr};

use super::buddy::{Buddy, MAX_ORDER, Record};
use super::{OutOfMemory, copy};
use crate::cpu::{CpuId, CpuLocal, LocalSlot, PerCpu};
use crate::sync::{Mutex, Once, rank};

const CACHE_SIZE: usize = 128;
const BATCH_ORDER: u32 = 5;
const BATCH: usize = 1 << BATCH_ORDER;

/// The frame allocator.
pub(crate) struct Frames {
    records: &'static [Record],
    buddy: Mutex<Buddy>,
    total: usize,
}

struct Cache {
    count: usize,
    frames: [u32; CACHE_SIZE],
}

static FRAMES: Once<Frames> = Once::new();
static CACHES: CpuLocal<Cache> = CpuLocal::new(
    [const { LocalSlot::new(Cache { count: 0, frames: [0; CACHE_SIZE] }) }; MAX_CPUS],
);
/// How many frames each cache holds; written by its core.
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
    let listed = frames.buddy.lock().free_count();
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
    Frames { records, buddy: Mutex::new(&rank::FRAMES, buddy), total }
}

impl Frames {
    /// The record of a frame; `None` for addresses that are no RAM.
    #[inline]
    pub fn record(&self, number: u32) -> Option<&'static Record> {
        self.records.get(number as usize)
    }

    /// Takes one frame from this core's cache.
    #[inline]
    pub fn take(&self) -> Result<u32, OutOfMemory> {
        CACHES.with(|cache| {
            if cache.count == 0 {
                self.refill(cache)?;
            }
            cache.count -= 1;
            CACHED.here().store(cache.count, Ordering::Relaxed);
            cache.frames.get(cache.count).copied().ok_or(OutOfMemory)
        })
    }

    /// Gives one frame to this core's cache.
    #[inline]
    pub fn give(&self, number: u32) {
        CACHES.with(|cache| {
            if cache.count == CACHE_SIZE {
                self.drain(cache);
            }
            if let Some(place) = cache.frames.get_mut(cache.count) {
                *place = number;
                cache.count += 1;
            }
            CACHED.here().store(cache.count, Ordering::Relaxed);
        });
    }

    #[cold]
    fn refill(&self, cache: &mut Cache) -> Result<(), OutOfMemory> {
        let mut buddy = self.buddy.lock();
        if let Some(first) = buddy.take(BATCH_ORDER) {
            for (place, number) in cache.frames.iter_mut().zip((first..first + BATCH as u32).rev())
            {
                *place = number;
            }
            cache.count = BATCH;
            return Ok(());
        }
        while cache.count < BATCH
            && let Some(number) = buddy.take(0)
        {
            cache.frames[cache.count] = number;
            cache.count += 1;
        }
        if cache.count == 0 { Err(OutOfMemory) } else { Ok(()) }
    }

    #[cold]
    fn drain(&self, cache: &mut Cache) {
        let mut buddy = self.buddy.lock();
        // The oldest go; the youngest are warm.
        cache.frames[..BATCH].iter().for_each(|number| buddy.give(*number, 0));
        cache.frames.copy_within(BATCH.., 0);
        cache.count -= BATCH;
    }

    /// Takes `count` frames in a row, aligned to the next power of two.
    pub fn take_run(&self, count: usize) -> Result<u32, OutOfMemory> {
        let order = count.checked_next_power_of_two().ok_or(OutOfMemory)?.ilog2();
        if count == 0 || order > MAX_ORDER {
            return Err(OutOfMemory);
        }
        let mut buddy = self.buddy.lock();
        let first = buddy.take(order).ok_or(OutOfMemory)?;
        let count = count as u32;
        buddy.give_range(first + count, (1 << order) - count);
        Ok(first)
    }

    /// Gives a run back.
    pub fn give_run(&self, first: u32, count: usize) {
        self.buddy.lock().give_range(first, count as u32);
    }
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
pub fn free_contiguous(address: PhysAddr, pages: usize) {
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
        free_contiguous(run, 4);
        free_contiguous(run, 5);
        free_contiguous(run, 5);
        let first = allocate_contiguous(5).unwrap();
        let second = allocate_contiguous(5).unwrap();
        assert!(first.0.abs_diff(second.0) >= 5 * PAGE_SIZE as u64);
        free_contiguous(first, 5);
        free_contiguous(second, 5);
    }

    #[test]
    fn runs_beyond_the_largest_block_are_refused() {
        assert_eq!(allocate_contiguous((1 << MAX_ORDER) + 1), Err(OutOfMemory));
        assert_eq!(allocate_contiguous(0), Err(OutOfMemory));
        assert_eq!(allocate_contiguous(usize::MAX), Err(OutOfMemory));
    }
}
