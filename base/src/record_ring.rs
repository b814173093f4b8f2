//! A ring of trace records in memory that the host of the machine reads (`abi::trace::ring`).

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::trace::ring::{HEAD, LOST, RECORDS, TAIL};
use abi::trace::{RECORD_BYTES, Words};
use hal::{Contract, Machine, PAGE_SIZE, PhysAddr};

use crate::memory::{OutOfMemory, allocate_contiguous};

/// Words of a record.
const WORDS: usize = RECORD_BYTES / 8;

/// The writing end of a ring. One core writes; whoever reads is outside of this machine, and may write
/// what it likes: a wrong `TAIL` costs records and nothing else.
pub struct RecordRing {
    address: PhysAddr,
    /// A power of two.
    capacity: u64,
}

/// The words of a ring.
#[derive(Clone, Copy)]
struct Cells<'a> {
    start: *mut u8,
    ring: PhantomData<&'a RecordRing>,
}

impl<'a> Cells<'a> {
    /// The word at a byte offset, a multiple of 8 within the ring.
    #[inline]
    fn word(self, offset: usize) -> &'a AtomicU64 {
        // SAFETY: an aligned word within the run of frames, which is the ring's for ever (this module alone
        // gives offsets, of counters and of records below `capacity`) and is accessed atomically only.
        unsafe { AtomicU64::from_ptr(self.start.add(offset).cast()) }
    }

    /// The words of the record at a byte offset.
    #[inline]
    fn record(self, offset: usize) -> &'a [AtomicU64; WORDS] {
        // SAFETY: as for `word`: the words of a record follow each other, and it lies within the ring.
        unsafe { &*self.start.add(offset).cast::<[AtomicU64; WORDS]>() }
    }
}

impl RecordRing {
    /// An empty ring for `capacity` records, rounded up to a power of two. Its memory is never given back.
    pub fn new(capacity: u32) -> Result<RecordRing, OutOfMemory> {
        let capacity = u64::from(capacity.clamp(16, 1 << 19).next_power_of_two());
        let pages = (RECORDS + capacity as usize * RECORD_BYTES).div_ceil(PAGE_SIZE);
        let ring = RecordRing { address: allocate_contiguous(pages)?, capacity };
        for counter in [HEAD, TAIL, LOST] {
            ring.cells().word(counter).store(0, Ordering::Relaxed);
        }
        Ok(ring)
    }

    /// Where the host finds it.
    pub fn address(&self) -> PhysAddr {
        self.address
    }

    /// Records that it holds.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The ring as the processor sees it.
    #[inline]
    fn cells(&self) -> Cells<'_> {
        Cells { start: Machine::phys_to_virt(self.address), ring: PhantomData }
    }

    #[cfg(test)]
    fn word(&self, offset: usize) -> &AtomicU64 {
        self.cells().word(offset)
    }

    /// Takes all that is there, as its reader outside does; for measurements.
    pub fn take_all(&self) {
        let cells = self.cells();
        cells.word(TAIL).store(cells.word(HEAD).load(Ordering::Acquire), Ordering::Release);
    }

    /// Writes a record, if there is room; only the ring's own core does so.
    #[inline]
    pub fn push(&self, record: &Words) {
        let cells = self.cells();
        let head = cells.word(HEAD).load(Ordering::Relaxed);
        if head.wrapping_sub(cells.word(TAIL).load(Ordering::Acquire)) >= self.capacity {
            let lost = cells.word(LOST);
            lost.store(lost.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return;
        }
        let place = RECORDS + (head & (self.capacity - 1)) as usize * RECORD_BYTES;
        for (word, cell) in record.iter().zip(cells.record(place)) {
            cell.store(*word, Ordering::Relaxed);
        }
        cells.word(HEAD).store(head + 1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_written_in_order_until_there_is_no_room() {
        let ring = RecordRing::new(1).unwrap();
        assert_eq!(ring.capacity(), 16);
        (0..20).for_each(|number| ring.push(&[number, 1, 2]));
        let counter = |offset| ring.word(offset).load(Ordering::Relaxed);
        assert_eq!((counter(HEAD), counter(LOST)), (16, 4));
        assert_eq!(counter(RECORDS + 15 * RECORD_BYTES), 15);
        ring.word(TAIL).store(3, Ordering::Relaxed);
        ring.push(&[77, 1, 2]);
        assert_eq!((counter(HEAD), counter(RECORDS)), (17, 77));
    }

    #[test]
    fn a_reader_that_lies_costs_records_only() {
        let ring = RecordRing::new(16).unwrap();
        ring.word(TAIL).store(u64::MAX - 5, Ordering::Relaxed);
        (0..100).for_each(|number| ring.push(&[number; 3]));
        assert!(ring.word(HEAD).load(Ordering::Relaxed) <= 100);
    }
}
