//! Tasks and their executors, one per core.
//!
//! A task lives on one core: it is polled there and nowhere else, and every waker, on whatever core,
//! puts it into a ready queue of that core (`queue`) at most once (`state`). Waking allocates nothing and
//! interrupts the core only when it is halted or in user mode (`doorbell`). A panic in a poll ends only
//! that task. The core's loop belongs to the kernel; it calls `run_ready` and `park`.

pub(crate) mod doorbell;
pub(crate) mod queue;
pub(crate) mod state;

#[cfg(not(loom))]
mod executor;
#[cfg(not(loom))]
pub mod fibre;
#[cfg(all(not(loom), not(target_os = "none")))]
mod host;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
mod storage;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(loom))]
pub use executor::{
    CoreCounts, TaskCounts, Yield, core_counts, has_ready, has_woken, is_parked, note_wakes,
    others_in_kernel, park, ring_doorbell, run_one, run_ready, spawn, spawn_with_hook, task_counts,
    woken, yield_now,
};
#[cfg(not(loom))]
pub(crate) use executor::{enter_user_mode, leave_user_mode};
#[cfg(all(not(loom), not(target_os = "none")))]
pub use host::block_on_host;
#[cfg(not(loom))]
pub use pool::TaskPool;
