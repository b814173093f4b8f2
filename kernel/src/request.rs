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
//! (`base::answer`).

use core::future::poll_fn;
use core::task::{Context, Poll};

use alloc::sync::Arc;

use abi::Errno;
use base::answer::AnswerSlot;
use base::{task, time};

use crate::call::{Call, SysResult};
use crate::process::Thread;
use crate::servers;

/// Looks at the slot between two looks at anything else.
const SPIN_TURNS: usize = 64;

/// The answer to a call that found no room where it was sent: it has not begun, and is carried out on its
/// caller's core. Users never see it.
pub const AT_HOME: Errno = match Errno::from_number(601) {
    Some(errno) => errno,
    None => Errno::EAGAIN,
};

/// A remote call in a server's queue.
pub struct Request {
    /// The call; its thread's slot takes the answer.
    pub call: Call,
}

/// Where the answer to a thread's remote call arrives.
#[derive(Default)]
pub struct CallSlot {
    answer: AnswerSlot,
}

impl CallSlot {
    /// A slot with no call under way.
    pub fn new() -> CallSlot {
        CallSlot::default()
    }

    /// The server's answer. Called once per submitted call.
    pub fn complete(&self, result: SysResult) {
        self.answer.complete(encode(result));
    }

    /// The answer, if it comes while the core has nothing better to do.
    pub fn answer_soon(&self) -> Option<SysResult> {
        self.spin_for_answer().map(decode)
    }

    fn poll_answer(&self, context: &Context<'_>) -> Poll<SysResult> {
        self.answer.poll(context).map(decode)
    }

    /// Looks for the answer until the core has something better to do or has spun long enough.
    fn spin_for_answer(&self) -> Option<u64> {
        let mut deadline_ns = None;
        loop {
            for _ in 0..SPIN_TURNS {
                if let Some(value) = self.answer.take() {
                    return Some(value);
                }
                base::cpu::relax();
            }
            if task::has_ready() {
                return None;
            }
            let now_ns = time::now_ns();
            if now_ns >= *deadline_ns.get_or_insert(now_ns + policy::park::MAX_ANSWER_SPIN_NS) {
                return None;
            }
        }
    }
}

/// The register value of a result: a small negative number for an error, as Linux has it.
pub fn encode(result: SysResult) -> u64 {
    match result {
        Ok(value) => value,
        Err(errno) => errno.to_return_value().cast_unsigned(),
    }
}

/// The result that a register value stands for.
pub fn decode(value: u64) -> SysResult {
    match Errno::from_return_value(value) {
        Some(errno) => Err(errno),
        None => Ok(value),
    }
}

/// Sends a call to the kernel core that serves its class; false when the queue is full.
///
/// The number of requests is bounded by the number of threads, so a queue drains while its core runs:
/// a caller that finds it full yields and tries again.
pub fn submit(thread: &Arc<Thread>, number: usize, arguments: [u64; 6]) -> bool {
    thread.slot.answer.begin();
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
