//! The MCS lock: a line of seats, in which each one that waits looks at a word of its own and is told by
//! the one before.

use super::scheme::SpinLock;
use crate::primitives::{AtomicU32, AtomicUsize, Ordering, constant, relax, repeated};

/// No seat; seat number n is n + 1.
const NOBODY: usize = 0;

/// A seat in line.
#[repr(align(128))]
struct Seat {
    /// Who comes next.
    next: AtomicUsize,
    /// 1 until the one before gives the lock on.
    waits: AtomicU32,
}

/// The last in line.
#[repr(align(128))]
struct Tail(AtomicUsize);

/// An MCS lock for so many seats.
pub struct McsLock<const SEATS: usize> {
    tail: Tail,
    seats: [Seat; SEATS],
}

impl<const SEATS: usize> Default for McsLock<SEATS> {
    fn default() -> Self {
        McsLock::new()
    }
}

impl<const SEATS: usize> McsLock<SEATS> {
    constant! {
        /// A free lock.
        pub fn new() -> McsLock<SEATS> {
            McsLock {
                tail: Tail(AtomicUsize::new(NOBODY)),
                seats: repeated!(Seat { next: AtomicUsize::new(NOBODY), waits: AtomicU32::new(0) }),
            }
        }
    }
}

impl<const SEATS: usize> SpinLock for McsLock<SEATS> {
    #[inline]
    fn join(&self, seat: usize) -> usize {
        let own = &self.seats[seat % SEATS];
        own.next.store(NOBODY, Ordering::Relaxed);
        own.waits.store(1, Ordering::Relaxed);
        let before = self.tail.0.swap(seat + 1, Ordering::AcqRel);
        if before != NOBODY {
            // From here on the one before finds this seat, and the store to `waits` with it.
            self.seats[(before - 1) % SEATS].next.store(seat + 1, Ordering::Release);
        }
        before
    }

    #[inline]
    fn is_turn(&self, seat: usize, before: usize) -> bool {
        before == NOBODY || self.seats[seat % SEATS].waits.load(Ordering::Acquire) == 0
    }

    #[inline]
    fn release(&self, seat: usize) {
        let own = &self.seats[seat % SEATS];
        let mut next = own.next.load(Ordering::Acquire);
        if next == NOBODY {
            let alone = self.tail.0.compare_exchange(
                seat + 1,
                NOBODY,
                Ordering::Release,
                Ordering::Relaxed,
            );
            if alone.is_ok() {
                return;
            }
            // Somebody has got in line and is about to say so: two instructions.
            loop {
                next = own.next.load(Ordering::Acquire);
                if next != NOBODY {
                    break;
                }
                relax();
            }
        }
        self.seats[(next - 1) % SEATS].waits.store(0, Ordering::Release);
    }
}
