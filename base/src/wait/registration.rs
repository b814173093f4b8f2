//! A place in a queue that lasts until it is given up.

use super::{Inside, Kind};
use abi::fs::PollEvents;
use alloc::sync::Arc;
use core::task::Waker;

/// A place in a queue; given up when dropped. A taker that was told and is dropped passes the wake-up
/// on, unless `settle` was called.
#[must_use = "the registration ends when it is dropped"]
pub struct Registration {
    inside: Arc<Inside>,
    kind: Kind,
    wanted: PollEvents,
    id: u64,
    is_settled: bool,
}

impl Registration {
    pub(super) fn new(
        inside: Arc<Inside>,
        kind: Kind,
        wanted: PollEvents,
        id: u64,
    ) -> Registration {
        Registration { inside, kind, wanted, id, is_settled: false }
    }

    /// Whether it is a taker that was told, and so has left the queue.
    pub fn was_told(&self) -> bool {
        self.kind == Kind::Taker && !self.inside.contains(self.kind, self.id)
    }

    /// Whether it is a taker that was not told yet; its waker is made `waker` then.
    pub fn still_waits(&self, waker: &Waker) -> bool {
        self.inside.still_waits(self.id, waker)
    }

    /// Leaves the queue and tells the next taker, whether this one was told or not: there is more than
    /// it took.
    pub fn pass_on(mut self) {
        self.is_settled = true;
        self.inside.remove(self.kind, self.id);
        self.inside.pass_on(self.wanted);
    }

    /// What the wake-up was for has been used up: nothing is passed on.
    pub fn settle(&mut self) {
        self.is_settled = true;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let was_there = self.inside.remove(self.kind, self.id);
        if !was_there && !self.is_settled && self.kind == Kind::Taker {
            self.inside.pass_on(self.wanted);
        }
    }
}
