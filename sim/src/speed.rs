//! What an event costs: the simulator on work that is made up, beside its agenda alone and beside a bare
//! binary heap (that of the standard library) with as many events ahead.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;

use abi::trace::LockScheme;

use crate::machine::symmetric;
use crate::{Agenda, Costs, Error, Locking, Source, Work};

/// Calls whose length differs, so that the order of events does too.
struct Mixed {
    left: Vec<u64>,
    state: u64,
}

impl Source for Mixed {
    #[inline]
    fn next(&mut self, stream: usize, _now: u64, work: &mut Work) -> Result<bool, Error> {
        if self.left[stream] == 0 {
            return Ok(false);
        }
        self.left[stream] -= 1;
        self.state = step(self.state);
        let (idle, poll) = (self.state >> 54, self.state >> 44 & 0xff);
        *work = Work { idle, poll, enter: 20, exit: 20, ..Work::default() };
        Ok(true)
    }
}

/// A linear congruential generator (Knuth): as cheap as one can be.
fn step(state: u64) -> u64 {
    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

/// Simulates so many calls on a symmetric machine; the number of events.
///
/// # Errors
///
/// None: the work is made up.
pub fn simulate(cores: usize, calls: u64, scheme: LockScheme) -> Result<u64, Error> {
    let costs = Costs { acquire: 20, release: 10, hand_over: 46, ..Costs::default() };
    let machine = symmetric(cores, 1_000_000_000, Locking::Scheme(scheme), costs);
    let left = vec![calls / cores.max(1) as u64; cores];
    Ok(crate::engine::run(&machine, Mixed { left, state: 1 })?.events)
}

/// The agenda with so many events, each of which sets the next one.
pub fn agenda(cores: usize, events: u64) {
    let mut agenda = Agenda::new(cores);
    (0..cores).for_each(|stream| agenda.set(stream, stream as u64));
    let mut state = 1;
    for _ in 0..events {
        let Some((time, stream)) = black_box(agenda.next()) else { break };
        state = step(state);
        agenda.set(stream, time + (state >> 54));
    }
}

/// A bare binary heap, likewise.
pub fn heap(cores: usize, events: u64) {
    let mut heap: BinaryHeap<Reverse<(u64, usize)>> =
        (0..cores).map(|stream| Reverse((stream as u64, stream))).collect();
    let mut state = 1;
    for _ in 0..events {
        let Some(Reverse((time, stream))) = black_box(heap.pop()) else { break };
        state = step(state);
        heap.push(Reverse((time + (state >> 54), stream)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_call_without_a_lock_is_one_event_and_one_with_a_lock_two_at_least() {
        assert_eq!(simulate(4, 4_000, LockScheme::Fine).unwrap(), 4_000);
        assert!((8_000..=12_000).contains(&simulate(4, 4_000, LockScheme::GiantClh).unwrap()));
    }
}
