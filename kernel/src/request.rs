//! The remote path: a call travels to a server's queue on a kernel core, and its answer comes back.
//!
//! ```text
//!  caller's core                            kernel core
//!  begin the answer slot
//!  push Request ------ queue of server ---> pop, poll handler
//!  ring doorbell if that core is parked     ... pending handlers stay as tasks ...
//!  spin on the slot, then suspend <-------- complete the slot, wake a suspended caller
//! ```
//!
//! A thread has at most one remote call under way, so its slot lives in the thread
//! (`call::CallSlot`).

use core::future::poll_fn;

use alloc::sync::Arc;

use base::task;

use crate::call::{Call, SysResult};
use crate::process::Thread;
use crate::servers::{self, Request};

/// Sends a call to the kernel core that serves its class; false when the queue is full.
///
/// The number of requests is bounded by the number of threads, so a queue drains while its core runs:
/// a caller that finds it full yields and tries again.
pub fn submit(thread: &Arc<Thread>, number: usize, arguments: [u64; 6]) -> bool {
    thread.slot.begin();
    let call = Call::trapped(thread, number, arguments);
    servers::of_call(number).submit(Request { call }).is_ok()
}

/// Waits for the answer to the call that was submitted last, without spinning: the caller has done so
/// (`CallSlot::answer_soon`).
pub async fn answer(thread: &Thread) -> SysResult {
    poll_fn(|context| thread.slot.poll_answer(context)).await
}

/// Carries out a call on the kernel core that serves its class.
pub async fn remote(thread: &Arc<Thread>, number: usize, arguments: [u64; 6]) -> SysResult {
    while !submit(thread, number, arguments) {
        task::yield_now().await;
    }
    match thread.slot.answer_soon() {
        Some(result) => result,
        None => answer(thread).await,
    }
}
