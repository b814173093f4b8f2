//! Posted system calls, safely.
//!
//! An [`Operation`] is a system call with everything that it needs to stay alive. Nothing happens
//! until it is used, in one of three ways:
//!
//! | | |
//! |---|---|
//! | [`Operation::call`] | carry it out now, by the fastest way that there is |
//! | [`Operation::post`] | begin it, go on, and take its output later: a [`Posted`] |
//! | `operation.await` | the same, as a future |
//!
//! While a call is under way the kernel has its buffers. A [`Posted`] that is dropped asks the kernel
//! to end its call, and the buffers stay alive until it has.
//!
//! [`Runtime`] runs many tasks on one thread and sleeps when all of them wait. [`Posted`] works on
//! any other executor of `!Send` futures too: there it is polled again and again until it is done,
//! unless the executor calls [`receive`] when it has nothing else to do.
//!
//! On a kernel without posted calls, operations are carried out when they are posted, and a call that
//! blocks, blocks its thread. [`is_available`] tells. A child made by a bare `fork` has no use of
//! this crate before it executes another program.

#![deny(unsafe_code)]

mod entries;
mod kernel;
mod posted;
mod ring;
mod runtime;

// The mapping of the shared pages, the system-call instruction, and the operations that promise what
// it needs: the only unsafe code.
#[allow(unsafe_code)]
mod raw;

#[cfg(test)]
mod double;
#[cfg(test)]
mod tests;

pub use posted::{Posted, Resource};
pub use raw::operations::{
    Operation, close, create, nanosleep, open, parent_id, read, read_at, sync, write, write_at,
};
pub use runtime::{
    Cancelled, JoinHandle, Runtime, TimedOut, join, join_all, sleep, spawn, timeout,
};

/// What operations of this crate keep alive, for types that name them: `Posted<Transfer>`.
pub mod resource {
    pub use crate::raw::operations::{Identity, Opening, Simple, Sleeping, Transfer};
}

use std::time::Duration;

use ring::Ring;

/// Whether this thread's calls are posted. Registers the thread, if need be.
pub fn is_available() -> bool {
    Ring::current().is_posting()
}

/// Wakes the futures of this thread whose calls are done; if there are none, waits until there is one
/// or the time is over. For executors that want to sleep. Returns how many calls were done.
pub fn receive(timeout: Option<Duration>) -> usize {
    let ring = Ring::current();
    ring.submit();
    match ring.receive() {
        0 => {
            ring.wait_any(timeout);
            ring.receive()
        }
        count => count,
    }
}

/// The page for users, whose example has to work.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/posting.md")]
pub struct Page;
