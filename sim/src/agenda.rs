//! What happens next: the next event of each stream, the earliest first.
//!
//! A stream has at most one event ahead of it, so the agenda is a tournament of a fixed size: setting an
//! event costs one comparison per level, and nothing is allocated. Of events at the same time, that of the
//! lowest stream comes first, so the order never depends on how they were set.

/// Streams, at most.
pub const STREAM_LIMIT: usize = 64;
const STREAM_BITS: u32 = 6;
const NEVER: u64 = u64::MAX;

/// The next event of each stream.
#[derive(Clone, Debug)]
pub struct Agenda {
    /// A heap-ordered tree of minima: time above, stream in the lowest bits; the root is at 1.
    nodes: Vec<u64>,
    leaves: usize,
}

impl Agenda {
    /// No events, for so many streams, at most 64.
    pub fn new(streams: usize) -> Agenda {
        let leaves = streams.clamp(1, STREAM_LIMIT).next_power_of_two();
        Agenda { nodes: vec![NEVER; 2 * leaves], leaves }
    }

    /// The stream's next event is at this time. Times are below 2^58 ticks.
    #[inline]
    pub fn set(&mut self, stream: usize, time: u64) {
        self.replace(stream, time << STREAM_BITS | stream as u64);
    }

    /// The stream has no event ahead of it.
    #[inline]
    pub fn clear(&mut self, stream: usize) {
        self.replace(stream, NEVER);
    }

    /// The earliest event: its time and its stream.
    #[inline]
    pub fn next(&self) -> Option<(u64, usize)> {
        let first = self.nodes[1];
        let stream = first as usize & (STREAM_LIMIT - 1);
        (first != NEVER).then_some((first >> STREAM_BITS, stream))
    }

    #[inline]
    fn replace(&mut self, stream: usize, key: u64) {
        let mut node = self.leaves + stream;
        self.nodes[node] = key;
        while node > 1 {
            let least = self.nodes[node].min(self.nodes[node ^ 1]);
            node /= 2;
            self.nodes[node] = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;
    use crate::random::Random;

    #[test]
    fn events_come_in_the_order_of_a_heap() {
        for streams in [1, 2, 3, 7, 64] {
            let mut random = Random::new(streams as u64);
            let mut agenda = Agenda::new(streams);
            let mut heap = BinaryHeap::new();
            for stream in 0..streams {
                let time = random.below(100);
                agenda.set(stream, time);
                heap.push(Reverse((time, stream)));
            }
            for _ in 0..5_000 {
                let Reverse((time, stream)) = heap.pop().unwrap();
                assert_eq!(agenda.next(), Some((time, stream)));
                let later = time + random.below(50);
                agenda.set(stream, later);
                heap.push(Reverse((later, stream)));
            }
        }
    }

    #[test]
    fn what_is_cleared_does_not_happen() {
        let mut agenda = Agenda::new(3);
        agenda.set(1, 5);
        agenda.set(2, 5);
        agenda.clear(1);
        assert_eq!(agenda.next(), Some((5, 2)));
        agenda.clear(2);
        assert_eq!(agenda.next(), None);
    }
}
