//! One place for one answer at a time: how a remote call's result comes back to the caller's core.
//!
//! ```text
//!            begin              complete
//!   Idle ----------> Submitted ----------> Done     (the caller spins on the state)
//!    ^                   | poll              |
//!    |                   v     complete      |
//!    |                Waiting ------------> Done, wake the caller
//!    |                                       |
//!    +---------------------------------------+ take
//! ```
//!
//! Who may do what: the caller begins, polls and takes; the server completes, once per `begin`. The
//! answer is written before `Done` is published with release and read after it was seen with acquire.
//! The waker is set before `Waiting` and taken by who turns `Waiting` into `Done`.

use core::task::{Context, Poll, Waker};

use crate::primitives::{AtomicU32, AtomicU64, Ordering};
use crate::sync::Mutex;
use crate::sync::rank::CALL_SLOT;

const IDLE: u32 = 0;
const SUBMITTED: u32 = 1;
const WAITING: u32 = 2;
const DONE: u32 = 3;

/// The place; it is used again and again.
pub struct AnswerSlot {
    state: AtomicU32,
    answer: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

impl AnswerSlot {
    /// A slot with nothing under way.
    pub fn new() -> AnswerSlot {
        AnswerSlot {
            state: AtomicU32::new(IDLE),
            answer: AtomicU64::new(0),
            waker: Mutex::new(&CALL_SLOT, None),
        }
    }

    /// The caller is about to publish its request.
    pub fn begin(&self) {
        self.state.store(SUBMITTED, Ordering::Relaxed);
    }

    /// The server's answer, once per `begin`.
    pub fn complete(&self, answer: u64) {
        self.answer.store(answer, Ordering::Relaxed);
        if self.state.swap(DONE, Ordering::AcqRel) == WAITING {
            let waker = self.waker.lock().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// The answer, if it has come: one load while it has not.
    pub fn take(&self) -> Option<u64> {
        if self.state.load(Ordering::Acquire) != DONE {
            return None;
        }
        let answer = self.answer.load(Ordering::Relaxed);
        self.state.store(IDLE, Ordering::Relaxed);
        Some(answer)
    }

    /// Takes the answer or leaves the caller's waker for the server.
    pub fn poll(&self, context: &Context<'_>) -> Poll<u64> {
        if let Some(answer) = self.take() {
            return Poll::Ready(answer);
        }
        *self.waker.lock() = Some(context.waker().clone());
        // Fails when the server has answered, or when an earlier poll has set it already.
        let _ =
            self.state.compare_exchange(SUBMITTED, WAITING, Ordering::AcqRel, Ordering::Acquire);
        self.take().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Default for AnswerSlot {
    fn default() -> Self {
        AnswerSlot::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_once() {
        let slot = AnswerSlot::new();
        slot.begin();
        assert_eq!(slot.take(), None);
        slot.complete(7);
        assert_eq!(slot.take(), Some(7));
        assert_eq!(slot.take(), None);
    }

    #[test]
    fn a_suspended_caller_is_woken_and_then_finds_the_answer() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};
        use std::task::Wake;

        struct Count(AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(count.clone());
        let context = Context::from_waker(&waker);
        let slot = AnswerSlot::new();
        slot.begin();
        assert!(slot.poll(&context).is_pending());
        assert!(slot.poll(&context).is_pending());
        slot.complete(9);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert_eq!(slot.poll(&context), Poll::Ready(9));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::future::block_on;
    use loom::sync::Arc;

    /// Whatever the order of the server's answer and the caller's steps, the caller gets the answer
    /// and is never left asleep; twice, because the slot is used again.
    #[test]
    fn loom_no_answer_is_lost() {
        loom::model(|| {
            let slot = Arc::new(AnswerSlot::new());
            for answer in [3, 5] {
                slot.begin();
                let server = slot.clone();
                let thread = loom::thread::spawn(move || server.complete(answer));
                let got = block_on(core::future::poll_fn(|context| slot.poll(context)));
                assert_eq!(got, answer);
                thread.join().unwrap();
            }
        });
    }
}
