//! The ticket lock: whoever comes first is served first.

use super::scheme::SpinLock;
use crate::primitives::{AtomicU32, Ordering, constant, relax};

/// A lock without a value. `Mutex` is what one wants; `KernelLock` is made of it too.
pub struct TicketLock {
    /// The next ticket to be handed out.
    next: AtomicU32,
    /// The ticket that holds the lock; equal to `next` when nobody does.
    serving: AtomicU32,
}

impl TicketLock {
    constant! {
        /// A free lock.
        pub fn new() -> TicketLock {
            TicketLock { next: AtomicU32::new(0), serving: AtomicU32::new(0) }
        }
    }

    /// Waits for the lock and takes it; as `SpinLock::acquire`, which has no need of a seat here.
    #[inline]
    pub(super) fn wait(&self) {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        while self.serving.load(Ordering::Acquire) != ticket {
            relax();
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    #[must_use]
    pub fn try_acquire(&self) -> bool {
        let serving = self.serving.load(Ordering::Acquire);
        self.next
            .compare_exchange(
                serving,
                serving.wrapping_add(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Releases the lock. Only its holder may: a stray call breaks the exclusion of this lock, which
    /// is why `Mutex` and `KernelLock` keep it private.
    #[inline]
    pub(super) fn give_on(&self) {
        let ticket = self.serving.load(Ordering::Relaxed);
        self.serving.store(ticket.wrapping_add(1), Ordering::Release);
    }

    /// Whether somebody holds it, at this moment.
    pub fn is_held(&self) -> bool {
        self.serving.load(Ordering::Relaxed) != self.next.load(Ordering::Relaxed)
    }
}

impl SpinLock for TicketLock {
    #[inline]
    fn join(&self, _seat: usize) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed) as usize
    }

    #[inline]
    fn is_turn(&self, _seat: usize, ticket: usize) -> bool {
        self.serving.load(Ordering::Acquire) as usize == ticket
    }

    #[inline]
    fn release(&self, _seat: usize) {
        self.give_on();
    }
}

impl Default for TicketLock {
    fn default() -> Self {
        TicketLock::new()
    }
}
