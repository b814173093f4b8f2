//! Lock classes of the signal code, in the order in which they are taken.
//!
//! ```text
//! PROCESS_TREE < PROCESS < THREAD
//!   SIGNALS (process)        pending signals of the process, stop state
//!     ACTIONS                table of actions
//!       THREAD_SIGNALS       mask, private pending signals, waker of one thread
//!   TIMERS                   timers of a process; never together with the others
//! ```

use base::sync::LockClass;

/// Pending signals and stop state of a process.
pub static PROCESS_SIGNALS: LockClass = LockClass { name: "process signals", rank: 40 };
/// A table of actions.
pub static ACTIONS: LockClass = LockClass { name: "signal actions", rank: 42 };
/// Mask and private pending signals of a thread.
pub static THREAD_SIGNALS: LockClass = LockClass { name: "thread signals", rank: 44 };
/// Interval timers of a process.
pub static TIMERS: LockClass = LockClass { name: "interval timers", rank: 46 };
