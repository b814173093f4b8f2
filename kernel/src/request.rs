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

    fn poll_answer(&self, context: &Context<'_>) -> Poll<SysResult> {
        match self.spin_for_answer() {
            Some(value) => Poll::Ready(decode(value)),
            None => self.answer.poll(context).map(decode),
        }
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

fn decode(value: u64) -> SysResult {
    match Errno::from_return_value(value) {
        Some(errno) => Err(errno),
        None => Ok(value),
    }
}

/// Carries out a call on the kernel core that serves its class, and returns its answer.
///
/// A full queue makes the caller yield and try again: the number of requests is bounded by the
/// number of threads, so the queue drains while the kernel core runs.
pub async fn remote(thread: &Arc<Thread>, number: usize, arguments: [u64; 6]) -> SysResult {
    let server = servers::of_call(number);
    thread.slot.answer.begin();
    let mut request = Request { call: Call { thread: thread.clone(), number, arguments } };
    while let Err(returned) = server.submit(request) {
        request = returned;
        task::yield_now().await;
    }
    poll_fn(|context| thread.slot.poll_answer(context)).await
}
