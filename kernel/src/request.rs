//! The remote path: a call travels to a server's queue on a kernel core, and its answer comes back.
//!
//! ```text
//!  caller's core                            kernel core
//!  slot: Idle -> Submitted
//!  push Request ------ queue of server ---> pop, poll handler
//!  ring doorbell if that core is parked     ... pending handlers stay as tasks ...
//!  spin on slot, then                       slot: Submitted -> Done            (spinning caller)
//!  slot: Submitted -> Waiting, suspend      slot: Waiting -> Done, wake        (suspended caller)
//!  slot: Done -> Idle
//! ```
//!
//! A thread has at most one remote call under way, so its slot lives in the thread. The state moves
//! only as drawn; `Done` is written with release after the result, and read with acquire before it.

use core::future::poll_fn;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::task::{Context, Poll, Waker};

use alloc::sync::Arc;

use abi::Errno;
use base::sync::Mutex;
use base::sync::rank::CALL_SLOT;
use base::{task, time};

use crate::call::{Call, SysResult};
use crate::process::Thread;
use crate::servers;

const IDLE: u32 = 0;
const SUBMITTED: u32 = 1;
const WAITING: u32 = 2;
const DONE: u32 = 3;

/// A remote call in a server's queue.
pub struct Request {
    /// The call; its thread's slot takes the answer.
    pub call: Call,
}

/// Where the answer to a thread's remote call arrives.
pub struct CallSlot {
    state: AtomicU32,
    /// The answer as a register value; written by the server before `DONE`.
    result: AtomicU64,
    /// Set by the caller before `WAITING`, taken by whoever makes it `DONE`.
    waker: Mutex<Option<Waker>>,
}

impl CallSlot {
    /// A slot with no call under way.
    pub const fn new() -> CallSlot {
        CallSlot {
            state: AtomicU32::new(IDLE),
            result: AtomicU64::new(0),
            waker: Mutex::new(&CALL_SLOT, None),
        }
    }

    /// The server's answer. Called once per submitted call.
    pub fn complete(&self, result: SysResult) {
        self.result.store(encode(result), Ordering::Relaxed);
        if self.state.swap(DONE, Ordering::AcqRel) == WAITING {
            let waker = self.waker.lock().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn take_answer(&self) -> Option<SysResult> {
        if self.state.load(Ordering::Acquire) != DONE {
            return None;
        }
        self.state.store(IDLE, Ordering::Relaxed);
        Some(decode(self.result.load(Ordering::Relaxed)))
    }

    fn poll_answer(&self, context: &Context<'_>) -> Poll<SysResult> {
        if let Some(answer) = self.spin_for_answer() {
            return Poll::Ready(answer);
        }
        *self.waker.lock() = Some(context.waker().clone());
        let _ = self.state.compare_exchange(
            SUBMITTED,
            WAITING,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        // The server may have answered between the spin and the line above.
        match self.take_answer() {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        }
    }

    /// Looks for the answer until the core has something better to do or the budget is spent.
    fn spin_for_answer(&self) -> Option<SysResult> {
        let mut deadline_ns = None;
        loop {
            for _ in 0..64 {
                if let Some(answer) = self.take_answer() {
                    return Some(answer);
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

impl Default for CallSlot {
    fn default() -> Self {
        CallSlot::new()
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
    thread.slot.state.store(SUBMITTED, Ordering::Relaxed);
    let mut request = Request { call: Call { thread: thread.clone(), number, arguments } };
    while let Err(returned) = server.submit(request) {
        request = returned;
        task::yield_now().await;
    }
    poll_fn(|context| thread.slot.poll_answer(context)).await
}
