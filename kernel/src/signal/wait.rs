//! Waits that signals can end.

use core::future::{Future, pending, poll_fn};
use core::pin::{Pin, pin};
use core::task::{Poll, Waker};

use alloc::sync::Arc;

use abi::Errno;
use abi::signal::SignalSet;

use super::info::SignalInfo;
use super::made_timers::note_delivery;
use super::send::retarget;
use crate::process::{Interrupted, Thread};

/// What can end a wait early.
pub trait Interruption {
    /// Whether there is a reason to end it.
    fn is_set(&self) -> bool;
    /// Finds out whether the reason still holds.
    fn recalculate(&self) -> bool {
        self.is_set()
    }
    /// Registers whom to wake when a reason comes up.
    fn set_waker(&self, waker: &Waker);
    /// Takes that back.
    fn clear_waker(&self);
}

impl Interruption for Thread {
    fn is_set(&self) -> bool {
        self.signals.has_attention()
    }

    fn recalculate(&self) -> bool {
        let state = self.signals.lock();
        self.signals.recalculate(&state, &self.process.signals)
    }

    fn set_waker(&self, waker: &Waker) {
        self.signals.set_waker(waker);
    }

    fn clear_waker(&self) {
        self.signals.clear_waker();
    }
}

/// Takes the waker out of its slot when a wait ends, so that it is not woken for nothing.
struct Registered<'a, I: Interruption> {
    interruption: &'a I,
    active: bool,
}

impl<I: Interruption> Drop for Registered<'_, I> {
    fn drop(&mut self) {
        if self.active {
            self.interruption.clear_waker();
        }
    }
}

async fn until<F: Future, I: Interruption>(
    interruption: &I,
    future: F,
    ends: impl Fn(&I) -> bool,
) -> Result<F::Output, Interrupted> {
    let mut future = pin!(future);
    let mut registered = Registered { interruption, active: false };
    poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(value));
        }
        if !interruption.is_set() {
            registered.active = true;
            interruption.set_waker(context.waker());
        }
        // Whoever sets attention does so before looking for a waker, so one side sees the other.
        if interruption.is_set() {
            registered.active = true;
            interruption.set_waker(context.waker());
            if ends(interruption) {
                return Poll::Ready(Err(Interrupted));
            }
        }
        Poll::Pending
    })
    .await
}

/// Waits for `future`, but no longer than until the thread has a signal to take, stops or ends, or the
/// posted call is cancelled. A future that is ready wins. The wake-up cannot be lost: the waker is
/// registered before the reason is looked at for the last time.
pub async fn interruptible<F: Future>(
    interruption: &impl Interruption,
    future: F,
) -> Result<F::Output, Interrupted> {
    until(interruption, future, Interruption::recalculate).await
}

/// As [`interruptible`], but only the end of the thread ends the wait.
pub async fn killable<F: Future>(thread: &Thread, future: F) -> Result<F::Output, Interrupted> {
    until(thread, future, |thread| thread.signals.must_exit()).await
}

/// Runs a call under another signal mask (`ppoll`, `pselect6`, `epoll_pwait`). When a signal ends
/// it, the former mask is put back only after the signal was delivered under the new one; else at
/// once.
pub async fn with_mask<T>(
    thread: &Thread,
    mask: Option<SignalSet>,
    call: Pin<&mut impl Future<Output = Result<T, Errno>>>,
) -> Result<T, Errno> {
    let Some(mask) = mask else { return call.await };
    replace_mask(thread, mask);
    let result = call.await;
    let is_interrupted = |errno: &Errno| errno.is_restart() || *errno == Errno::EINTR;
    if !result.as_ref().is_err_and(is_interrupted) {
        let mut state = thread.signals.lock();
        if let Some(saved) = state.saved.take() {
            thread.signals.set_blocked(&mut state, saved);
        }
        thread.signals.recalculate(&state, &thread.process.signals);
    }
    result
}

fn replace_mask(thread: &Thread, mask: SignalSet) {
    let mut state = thread.signals.lock();
    state.saved = Some(state.blocked);
    thread.signals.set_blocked(&mut state, mask);
    thread.signals.recalculate(&state, &thread.process.signals);
}

/// `rt_sigsuspend`: waits under another mask until a handler has run.
pub async fn suspend(thread: &Thread, mask: Option<SignalSet>) -> Errno {
    if let Some(mask) = mask {
        replace_mask(thread, mask);
    }
    match interruptible(thread, pending::<()>()).await {
        Ok(()) => Errno::EINTR,
        Err(Interrupted) => Errno::ERESTARTNOHAND,
    }
}

/// `rt_sigtimedwait`: takes a signal of `set`, waiting for one until `deadline_ns`; `EAGAIN` when
/// the time is over, `EINTR` when another signal came.
pub async fn timed_wait(
    thread: &Thread,
    set: SignalSet,
    deadline_ns: Option<u64>,
) -> Result<SignalInfo, Errno> {
    let set = set.without(SignalSet::UNBLOCKABLE);
    if let Some(taken) = take_from(thread, set) {
        return Ok(note_delivery(&thread.process, taken.info));
    }
    {
        let mut state = thread.signals.lock();
        state.waited = set;
        thread.signals.recalculate(&state, &thread.process.signals);
    }
    let never = pending::<()>();
    let waited = interruptible(thread, base::time::with_deadline(never, deadline_ns)).await;
    thread.signals.lock().waited = SignalSet::EMPTY;
    let taken = take_from(thread, set);
    {
        let state = thread.signals.lock();
        thread.signals.recalculate(&state, &thread.process.signals);
    }
    match (taken, waited) {
        (Some(taken), _) => Ok(note_delivery(&thread.process, taken.info)),
        (None, Err(_)) => Err(Errno::EINTR),
        (None, Ok(_)) => Err(Errno::EAGAIN),
    }
}

/// A signal that was taken out of a queue.
pub(super) struct Taken {
    pub(super) info: SignalInfo,
    /// It was pending for the thread alone.
    is_own: bool,
}

/// Takes the next signal of `set` out of the thread's queue or else the process's.
pub(super) fn take_from(thread: &Thread, set: SignalSet) -> Option<Taken> {
    let process = &thread.process.signals;
    let mut shared = process.lock();
    let mut own = thread.signals.lock();
    let taken = match own.pending.take_next(!set) {
        Some(info) => Some(Taken { info, is_own: true }),
        None => shared.pending.take_next(!set).map(|info| Taken { info, is_own: false }),
    };
    process.publish(&shared);
    taken
}

/// Undoes `take_from`.
pub(super) fn put_back(thread: &Thread, taken: Taken) {
    let process = &thread.process.signals;
    let mut shared = process.lock();
    if taken.is_own {
        thread.signals.lock().pending.put_back(taken.info);
    } else {
        shared.pending.put_back(taken.info);
        process.publish(&shared);
    }
}

/// Sets the thread's mask. Signals of the process that it no longer takes go to other threads.
pub fn set_mask(thread: &Arc<Thread>, mask: SignalSet) {
    let newly_blocked = {
        let mut state = thread.signals.lock();
        let former = state.blocked;
        thread.signals.set_blocked(&mut state, mask);
        thread.signals.recalculate(&state, &thread.process.signals);
        state.blocked.without(former)
    };
    if !(newly_blocked & thread.process.signals.pending()).is_empty() {
        retarget(&thread.process, thread);
    }
}
