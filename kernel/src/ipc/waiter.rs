//! A call that waits for an object, and the answer that somebody else finds for it.
//!
//! Whoever changes the object looks who can go on, under the object's lock: so an answer is there, or the
//! waiter is in the object's list, and never both. Wakers are collected and woken when the lock is free.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::task::{Poll, Waker};

use base::sync::{Mutex, rank};
use base::time;

use crate::call::Caller;

/// Why a wait ended without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// By a signal or a cancellation.
    Interrupted,
    /// The time was over.
    TimedOut,
}

/// Where the answer of one waiting call arrives.
pub struct Waiter<T>(Mutex<Slot<T>>);

struct Slot<T> {
    answer: Option<T>,
    waker: Option<Waker>,
}

/// Wakers of those that got an answer.
#[must_use = "they are to be woken once the lock is free"]
#[derive(Default)]
pub struct Woken(Vec<Waker>);

impl Woken {
    /// Wakes them.
    pub fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

impl<T> Waiter<T> {
    /// Nobody has answered.
    pub fn new() -> Arc<Waiter<T>> {
        Arc::new(Waiter(Mutex::new(&rank::IPC_WAITER, Slot { answer: None, waker: None })))
    }

    /// Answers. The waiter is no longer in the object's list.
    pub fn answer(&self, answer: T, woken: &mut Woken) {
        let mut slot = self.0.lock();
        slot.answer = Some(answer);
        woken.0.extend(slot.waker.take());
    }

    /// The answer, if there is one.
    pub fn take(&self) -> Option<T> {
        self.0.lock().answer.take()
    }

    /// Waits for the answer. When the wait ends without one, the caller takes the waiter out of the
    /// object's list and looks for the answer once more.
    pub async fn wait(&self, caller: &Caller, deadline_ns: Option<u64>) -> Result<T, Ended> {
        let answered = poll_fn(|context| {
            let mut slot = self.0.lock();
            if let Some(answer) = slot.answer.take() {
                return Poll::Ready(answer);
            }
            if !slot.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                let former = slot.waker.replace(context.waker().clone());
                drop(slot);
                drop(former);
            }
            Poll::Pending
        });
        match caller.interruptible(time::with_deadline(answered, deadline_ns)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(Ended::TimedOut),
            Err(_) => Err(Ended::Interrupted),
        }
    }
}
