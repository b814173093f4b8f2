//! Free runs of frames: blocks of 2^order frames in doubly linked lists, merged with their buddies when
//! both are free. All words live in an array with one record per frame; the lists are frame numbers.

use core::sync::atomic::{AtomicU32, Ordering};

/// Largest block: 2^12 frames, 16 MiB.
pub const MAX_ORDER: u32 = 12;
/// Ends a list.
const NONE: u32 = u32::MAX;

/// What is known of one frame. `references` belongs to whoever owns the frame; the other words to
/// whoever holds the lock of the lists that the frame is in.
pub struct Record {
    /// References of a `Frame`; 0 when the frame is no `Frame`.
    pub references: AtomicU32,
    /// Next in a list.
    pub next: AtomicU32,
    /// Previous in a list.
    pub previous: AtomicU32,
    /// For the owner of the frame; the buddy uses it while the frame is the first of a free block.
    pub tag: AtomicU32,
}

const FREE: u32 = 0x4652_0000;

impl Record {
    fn is_free_block(&self, order: u32) -> bool {
        self.tag.load(Ordering::Relaxed) == FREE | order
    }
}

/// The lists. Whoever has the only reference has the lists of all records that are in them.
pub struct Buddy {
    records: &'static [Record],
    heads: [u32; MAX_ORDER as usize + 1],
    free: usize,
}

impl Buddy {
    /// Empty lists over these records.
    pub const fn new(records: &'static [Record]) -> Buddy {
        Buddy { records, heads: [NONE; MAX_ORDER as usize + 1], free: 0 }
    }

    /// Free frames.
    pub const fn free_count(&self) -> usize {
        self.free
    }

    fn record(&self, frame: u32) -> &'static Record {
        &self.records[frame as usize]
    }

    fn push(&mut self, frame: u32, order: u32) {
        let head = self.heads[order as usize];
        let record = self.record(frame);
        record.tag.store(FREE | order, Ordering::Relaxed);
        record.next.store(head, Ordering::Relaxed);
        record.previous.store(NONE, Ordering::Relaxed);
        if head != NONE {
            self.record(head).previous.store(frame, Ordering::Relaxed);
        }
        self.heads[order as usize] = frame;
    }

    fn remove(&mut self, frame: u32, order: u32) {
        let record = self.record(frame);
        record.tag.store(0, Ordering::Relaxed);
        let next = record.next.load(Ordering::Relaxed);
        let previous = record.previous.load(Ordering::Relaxed);
        if next != NONE {
            self.record(next).previous.store(previous, Ordering::Relaxed);
        }
        if previous != NONE {
            self.record(previous).next.store(next, Ordering::Relaxed);
        } else {
            self.heads[order as usize] = next;
        }
    }

    /// Takes a block of 2^order frames; its first frame number.
    pub fn take(&mut self, order: u32) -> Option<u32> {
        let found = (order..=MAX_ORDER).find(|order| self.heads[*order as usize] != NONE)?;
        let frame = self.heads[found as usize];
        self.remove(frame, found);
        for half in (order..found).rev() {
            self.push(frame + (1 << half), half);
        }
        self.free -= 1 << order;
        Some(frame)
    }

    /// Gives a block of 2^order frames back.
    pub fn give(&mut self, mut frame: u32, mut order: u32) {
        self.free += 1 << order;
        while order < MAX_ORDER {
            let buddy = frame ^ (1 << order);
            let mergeable =
                self.records.get(buddy as usize).is_some_and(|record| record.is_free_block(order));
            if !mergeable {
                break;
            }
            self.remove(buddy, order);
            frame = frame.min(buddy);
            order += 1;
        }
        self.push(frame, order);
    }

    /// Gives `count` frames from `frame` on, which need not be a block.
    pub fn give_range(&mut self, mut frame: u32, mut count: u32) {
        while count > 0 {
            let order = frame.trailing_zeros().min(count.ilog2()).min(MAX_ORDER);
            self.give(frame, order);
            frame += 1 << order;
            count -= 1 << order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(count: usize) -> &'static [Record] {
        let record = || Record {
            references: AtomicU32::new(0),
            next: AtomicU32::new(0),
            previous: AtomicU32::new(0),
            tag: AtomicU32::new(0),
        };
        Box::leak((0..count).map(|_| record()).collect())
    }

    #[test]
    fn what_is_given_can_be_taken_once() {
        let mut buddy = Buddy::new(records(1000));
        buddy.give_range(3, 900);
        assert_eq!(buddy.free_count(), 900);
        let mut taken: Vec<u32> = core::iter::from_fn(|| buddy.take(0)).collect();
        taken.sort_unstable();
        assert_eq!(taken, (3..903).collect::<Vec<u32>>());
    }

    #[test]
    fn blocks_merge_again_when_all_is_given_back() {
        let mut buddy = Buddy::new(records(4096));
        buddy.give_range(0, 4096);
        let single: Vec<u32> = core::iter::from_fn(|| buddy.take(0)).collect();
        assert_eq!(single.len(), 4096);
        assert_eq!(buddy.free_count(), 0);
        single.iter().step_by(2).chain(single.iter().skip(1).step_by(2)).for_each(|frame| {
            buddy.give(*frame, 0);
        });
        assert_eq!(buddy.take(MAX_ORDER), Some(0));
        assert_eq!(buddy.take(0), None);
    }

    #[test]
    fn blocks_never_overlap() {
        let mut buddy = Buddy::new(records(2048));
        buddy.give_range(5, 2000);
        let mut owner = vec![false; 2048];
        let mut live: Vec<(u32, u32)> = Vec::new();
        let mut state = 7_u32;
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let order = (state >> 28) % 6;
            if state & 0x80_0000 == 0 {
                if let Some(frame) = buddy.take(order) {
                    assert_eq!(frame % (1 << order), 0);
                    for index in frame..frame + (1 << order) {
                        assert!(!core::mem::replace(&mut owner[index as usize], true));
                    }
                    live.push((frame, order));
                }
            } else if !live.is_empty() {
                let (frame, order) = live.swap_remove((state >> 8) as usize % live.len());
                for index in frame..frame + (1 << order) {
                    owner[index as usize] = false;
                }
                buddy.give(frame, order);
            }
            let used = owner.iter().filter(|used| **used).count();
            assert_eq!(buddy.free_count() + used, 2000);
        }
    }
}
