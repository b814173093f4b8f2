//! The states of a task.
//!
//! ```text
//!            (1) wake            (3) begin            (5) finish
//!   Idle ------------> Queued ------------> Running ------------> Done
//!    ^                   ^                  |    |
//!    |  (4) pause        |     (4) pause    |    | (2) wake
//!    +-------------------|------------------+    v
//!                        +---------------- Running, woken ------> Done
//! ```
//!
//! 1, 2: `wake`, by anybody. In (1) the caller must queue the task; nobody else will. 3–5: `begin`,
//! `pause`, `finish`, only by the core that polls the task. `wake` always writes, even when nothing
//! changes: so whatever the waker did before is seen by the poll that follows `begin`.

use crate::primitives::{AtomicU8, Ordering, constant};

const WOKEN: u8 = 1;
const RUNNING: u8 = 2;
#[cfg(not(loom))]
const DONE: u8 = 4;

/// State of one task: `WOKEN` alone is queued; nothing set is idle.
pub(crate) struct State(AtomicU8);

impl State {
    constant! {
        /// A task that nobody has woken yet.
        pub(crate) fn idle() -> State {
            State(AtomicU8::new(0))
        }
    }

    /// Something happened for the task. True when the caller must queue it now.
    #[must_use]
    #[inline]
    pub(crate) fn wake(&self) -> bool {
        self.0.fetch_or(WOKEN, Ordering::AcqRel) == 0
    }

    /// The task, taken from the queue (or never queued), is about to be polled.
    #[inline]
    pub(crate) fn begin(&self) {
        self.0.swap(RUNNING, Ordering::AcqRel);
    }

    /// Like `begin`, for a task that nobody else knows yet.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn begin_unknown(&self) {
        self.0.store(RUNNING, Ordering::Relaxed);
    }

    /// The poll ended without a result. True when the task was woken meanwhile and must be queued.
    #[must_use]
    #[inline]
    pub(crate) fn pause(&self) -> bool {
        self.0.fetch_and(!RUNNING, Ordering::AcqRel) & WOKEN != 0
    }

    /// The task has ended; it will never be queued again.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn finish(&self) {
        self.0.store(DONE, Ordering::Release);
    }

    /// Makes a task that has ended, and that nobody else knows any more, idle again.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
