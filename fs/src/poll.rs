//! Readiness: how a file tells a waiter when to look again.
//!
//! A file has one or more wait queues. `File::poll` registers the waiter with those that concern it
//! (`PollTable::register`, or `register_for` with what the queue's wake-ups can bring), then looks at
//! its state. When the state changes the file releases its lock and calls `notify` or `notify_all` of
//! the queue with what happened. A registration stays until its owner drops it: nobody registers
//! again for a second wake-up.

use abi::fs::PollEvents;
use alloc::vec::Vec;
use base::wait::{Kind, Registration, Target, WaitQueue};

/// Collects the registrations of one waiter in the queues of the files that it waits for. Dropping
/// them takes the waiter out of all of the queues.
pub struct PollTable<'a> {
    kind: Kind,
    wanted: PollEvents,
    target: &'a Target,
    registrations: &'a mut Vec<Registration>,
}

impl<'a> PollTable<'a> {
    /// A table that has `target` told of the events `wanted`; the registrations live as long as the
    /// vector.
    pub fn new(
        kind: Kind,
        wanted: PollEvents,
        target: &'a Target,
        registrations: &'a mut Vec<Registration>,
    ) -> PollTable<'a> {
        PollTable { kind, wanted: wanted | PollEvents::ALWAYS, target, registrations }
    }

    /// The waiter is told of the queue's wake-ups. Must happen before the state is looked at.
    pub fn register(&mut self, queue: &WaitQueue) {
        self.registrations.push(queue.watch(self.kind, self.wanted, self.target.clone()));
    }

    /// As `register`, for a queue whose wake-ups never bring more than `events`: a waiter that wants
    /// none of them stays out.
    pub fn register_for(&mut self, queue: &WaitQueue, events: PollEvents) {
        if self.wanted.intersects(events) {
            self.register(queue);
        }
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
