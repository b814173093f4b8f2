//! Locks of the lock schemes: each guards a part of the kernel, not a value.
//!
//! | lock | those that wait look at | memory |
//! |---|---|---|
//! | ticket (`ticket`) | one line, all of them | two words |
//! | CLH (`clh`) | the line of the one before | a line per core and one more |
//! | MCS (`mcs`) | a line of their own | a line per core |
//!
//! All are fair: whoever joins first is first. Nothing is allocated. Each core has a *seat*, by which the
//! lock knows its line.
//!
//! Rules: interrupts are off from `join` to `release`, as everywhere in the kernel, so no handler of an
//! interrupt can want the lock that its own core waits for; a core that holds or awaits one of these
//! locks does not ask for another (`KernelLock` has the lowest rank, so checked builds stop there); and
//! a lock that is held by a `Hold` is released when a panic unwinds past it.

use crate::primitives::relax;

/// A lock whose users wait in line.
pub trait SpinLock {
    /// Gets in line and says where. Each seat is in line once at a time.
    fn join(&self, seat: usize) -> usize;

    /// Whether everybody before the seat, which joined at this place, has released the lock: it holds it
    /// from then on.
    fn is_turn(&self, seat: usize, place: usize) -> bool;

    /// Gives the lock on. Only the seat that holds it may.
    fn release(&self, seat: usize);

    /// Waits for the lock and takes it.
    #[inline]
    fn acquire(&self, seat: usize) {
        let place = self.join(seat);
        while !self.is_turn(seat, place) {
            relax();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::{ClhLock, McsLock, TicketLock};

    /// Three seats join one after the other, and again; each has its turn in that order and no sooner.
    fn is_fair(lock: &impl SpinLock) {
        for order in [[0, 1, 2], [2, 0, 1], [1, 0, 2], [0, 1, 2]] {
            let places = order.map(|seat| lock.join(seat));
            for turn in 0..3 {
                for waiting in turn..3 {
                    let is_turn = lock.is_turn(order[waiting], places[waiting]);
                    assert_eq!(is_turn, waiting == turn, "{order:?}, turn {turn}, {waiting}");
                }
                lock.release(order[turn]);
            }
        }
    }

    #[test]
    fn who_joins_first_is_first() {
        is_fair(&TicketLock::new());
        is_fair(&ClhLock::<3>::new());
        is_fair(&McsLock::<3>::new());
    }
}
