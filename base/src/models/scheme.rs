//! The locks of the lock schemes.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::{bounded, finds};
use crate::sync::{ClhLock, McsLock, SpinLock, TicketLock};

/// A lock and what it guards.
struct Guarded<L> {
    lock: L,
    value: UnsafeCell<u32>,
}

// SAFETY: that this holds is what the models check: loom finds two threads that use the cell at once.
unsafe impl<L: Sync> Sync for Guarded<L> {}
// SAFETY: as above.
unsafe impl<L: Send> Send for Guarded<L> {}

impl<L: SpinLock> Guarded<L> {
    fn add(&self, seat: usize) {
        self.lock.acquire(seat);
        // SAFETY: see above.
        self.value.with_mut(|value| unsafe { *value += 1 });
        self.lock.release(seat);
    }
}

/// Each seat adds so often; the sum shows that nobody was lost and none of two was undone. A waiter
/// that is forgotten waits for ever, which loom reports.
fn all_add<L: SpinLock + Send + Sync + 'static>(lock: L, seats: usize, times: u32) {
    let guarded = Arc::new(Guarded { lock, value: UnsafeCell::new(0) });
    let threads: Vec<_> = (1..seats)
        .map(|seat| {
            let guarded = guarded.clone();
            thread::spawn(move || (0..times).for_each(|_| guarded.add(seat)))
        })
        .collect();
    (0..times).for_each(|_| guarded.add(0));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // SAFETY: the others have ended.
    assert_eq!(guarded.value.with(|value| unsafe { *value }), seats as u32 * times);
}

#[test]
fn loom_a_ticket_lock_excludes_and_is_given_on() {
    bounded(3, || all_add(TicketLock::new(), 2, 2));
}

#[test]
fn loom_a_clh_lock_excludes_and_is_given_on() {
    bounded(3, || all_add(ClhLock::<2>::new(), 2, 2));
}

#[test]
fn loom_an_mcs_lock_excludes_and_is_given_on() {
    bounded(3, || all_add(McsLock::<2>::new(), 2, 2));
}

// Where each waits at a line of its own, a third in line is more than the second once again.

#[test]
fn loom_a_clh_lock_serves_three() {
    bounded(2, || all_add(ClhLock::<3>::new(), 3, 1));
}

#[test]
fn loom_an_mcs_lock_serves_three() {
    bounded(2, || all_add(McsLock::<3>::new(), 3, 1));
}

/// A lock that lets everybody in.
struct Open;

impl SpinLock for Open {
    fn join(&self, _: usize) -> usize {
        0
    }

    fn is_turn(&self, _: usize, _: usize) -> bool {
        true
    }

    fn release(&self, _: usize) {}
}

#[test]
fn loom_finds_a_lock_that_lets_two_in() {
    finds("Causality violation", || all_add(Open, 2, 1));
}

/// An MCS lock that is never given on when somebody waits.
struct Forgetful(McsLock<2>);

impl SpinLock for Forgetful {
    fn join(&self, seat: usize) -> usize {
        self.0.join(seat)
    }

    fn is_turn(&self, seat: usize, place: usize) -> bool {
        self.0.is_turn(seat, place)
    }

    fn release(&self, _: usize) {}
}

#[test]
fn loom_finds_a_waiter_that_is_lost() {
    finds("branches", || all_add(Forgetful(McsLock::new()), 2, 1));
}
