//! Readiness: how a file tells a waiter when to look again.

use abi::fs::PollEvents;
use alloc::vec::Vec;
use base::wait::{Registration, WaitQueue};
use core::task::Waker;

/// Collects the registrations of one waiter in the queues of all files that it polls. Dropping it
/// takes the waiter out of all of them.
pub struct PollTable<'a> {
    waker: &'a Waker,
    registrations: &'a mut Vec<Registration>,
}

impl<'a> PollTable<'a> {
    /// A table that wakes `waker`; the registrations live as long as the vector.
    pub fn new(waker: &'a Waker, registrations: &'a mut Vec<Registration>) -> PollTable<'a> {
        PollTable { waker, registrations }
    }

    /// The waiter is woken when the queue is. Must happen before the state is looked at.
    pub fn register(&mut self, queue: &WaitQueue) {
        self.registrations.push(queue.register(self.waker));
    }
}

/// Registers with a queue if there is a table.
pub fn register(table: Option<&mut PollTable<'_>>, queue: &WaitQueue) {
    if let Some(table) = table {
        table.register(queue);
    }
}

/// What a file that is always ready answers.
pub const ALWAYS_READY: PollEvents = PollEvents::READABLE.union(PollEvents::WRITABLE);
