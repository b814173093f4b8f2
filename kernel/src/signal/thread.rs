//! The signal state of one thread: its mask, its private pending signals, its alternate stack, and
//! the flag that sends it to the delivery of signals.
//!
//! `attention` is true whenever the thread must not simply go on: a signal can be delivered, the
//! process stops, the thread must end, or a call waits to be restarted. It is set at once by whoever
//! causes it, and cleared only by [`ThreadSignals::recalculate`] under the lock. A thread begins with
//! attention, so that what was sent to its process before it existed is not lost.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::task::Waker;

use abi::Errno;
use abi::signal::{AlternateStack, SS_DISABLE, Signal, SignalSet};
use base::sync::{Mutex, MutexGuard};

use super::info::{SignalInfo, TrapCode};
use super::process::ProcessSignals;
use super::queue::PendingQueue;
use super::ranks::THREAD_SIGNALS;

/// Signal state of a thread.
pub struct ThreadSignals {
    attention: AtomicBool,
    /// The thread must end: set for good.
    exit: AtomicBool,
    /// It is to stop for its tracer.
    trap: AtomicBool,
    /// Its tracer has let it go on although its process stops.
    passes_stop: AtomicBool,
    state: Mutex<ThreadState>,
    /// Copy of `state.blocked`, for readers that do not need it exact.
    blocked: AtomicU64,
}

/// Guarded by the lock of [`ThreadSignals`].
pub(super) struct ThreadState {
    pub(super) blocked: SignalSet,
    /// The mask to put back when a call that replaced it ends, or that a handler's return puts back.
    pub(super) saved: Option<SignalSet>,
    /// Blocked signals that the thread waits for in `rt_sigtimedwait`.
    pub(super) waited: SignalSet,
    pub(super) pending: PendingQueue,
    pub(super) stack: AlternateStack,
    /// Whom to wake when attention is set; the thread has at most one interruptible wait.
    pub(super) waker: Option<Waker>,
    /// A call that ended with a restart code, until it is decided what becomes of it.
    pub(super) interrupted: Option<InterruptedCall>,
    /// How `restart_syscall` continues.
    pub(super) restart: Option<RestartBlock>,
    /// The last fault, for signal frames.
    pub(super) trap: TrapCode,
}

/// A system call that ended with a restart code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterruptedCall {
    /// Its number.
    pub number: usize,
    /// The restart code.
    pub errno: Errno,
}

/// What `restart_syscall` continues: a wait that was given relative to its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestartBlock {
    /// A sleep until a time of `base::time::now_ns`; the rest goes to `remaining` if that is not 0.
    Sleep {
        /// When it ends.
        deadline_ns: u64,
        /// Where the remaining time is written when a signal ends it again.
        remaining: u64,
    },
    /// A `futex` wait.
    Futex {
        /// Address of the word.
        address: u64,
        /// Expected value.
        value: u32,
        /// Bits to be woken by.
        bits: u32,
        /// Flags of the operation.
        operation: u32,
        /// When it ends.
        deadline_ns: u64,
    },
    /// A `poll`.
    Poll {
        /// The array.
        array: u64,
        /// Its length.
        count: u64,
        /// When it ends; `None` for never.
        deadline_ns: Option<u64>,
    },
}

/// No alternate stack.
pub(super) const NO_STACK: AlternateStack =
    AlternateStack { base: 0, flags: SS_DISABLE, padding: 0, size: 0 };

impl ThreadSignals {
    /// For the first thread of a process made by the kernel: nothing blocked.
    pub fn new() -> ThreadSignals {
        ThreadSignals::with(SignalSet::EMPTY, NO_STACK)
    }

    fn with(blocked: SignalSet, stack: AlternateStack) -> ThreadSignals {
        ThreadSignals {
            attention: AtomicBool::new(true),
            exit: AtomicBool::new(false),
            trap: AtomicBool::new(false),
            passes_stop: AtomicBool::new(false),
            state: Mutex::new(
                &THREAD_SIGNALS,
                ThreadState {
                    blocked,
                    saved: None,
                    waited: SignalSet::EMPTY,
                    pending: PendingQueue::new(),
                    stack,
                    waker: None,
                    interrupted: None,
                    restart: None,
                    trap: TrapCode::default(),
                },
            ),
            blocked: AtomicU64::new(blocked.0),
        }
    }

    /// The thread is to stop for its tracer, whatever it does. The caller raises attention.
    pub fn want_trap(&self) {
        self.trap.store(true, Ordering::SeqCst);
        self.raise_attention();
    }

    /// Whether it is to stop for its tracer.
    pub fn wants_trap(&self) -> bool {
        self.trap.load(Ordering::SeqCst)
    }

    /// Takes that back, if it was so.
    pub fn take_trap(&self) -> bool {
        self.trap.swap(false, Ordering::SeqCst)
    }

    /// Its tracer has let it go on although its process stops, or that stop is over.
    pub fn pass_stop(&self, passes: bool) {
        self.passes_stop.store(passes, Ordering::SeqCst);
    }

    /// Whether the stop of its process is not for this thread.
    pub fn passes_stop(&self) -> bool {
        self.passes_stop.load(Ordering::SeqCst)
    }

    /// The call that ended with a restart code, until it is decided what becomes of it.
    pub fn interrupted_call(&self) -> Option<InterruptedCall> {
        self.state.lock().interrupted
    }

    /// That call is not made again, and its result stays.
    pub fn forget_call(&self) {
        self.state.lock().interrupted = None;
    }

    /// For a child or a new thread: the mask is inherited, pending signals are not. The alternate
    /// stack is inherited unless parent and child share memory without `vfork`.
    pub fn inherit(&self, keep_alternate_stack: bool) -> ThreadSignals {
        let state = self.state.lock();
        ThreadSignals::with(
            state.blocked,
            if keep_alternate_stack { state.stack } else { NO_STACK },
        )
    }

    /// What `execve` changes: no alternate stack, nothing to restart.
    pub fn after_exec(&self) {
        let mut state = self.state.lock();
        state.stack = NO_STACK;
        state.restart = None;
    }

    /// Whether the thread must not simply go on.
    pub fn has_attention(&self) -> bool {
        self.attention.load(Ordering::SeqCst)
    }

    /// Makes the thread end as soon as it can. The caller kicks it afterwards.
    pub fn demand_exit(&self) {
        self.exit.store(true, Ordering::SeqCst);
        self.attention.store(true, Ordering::SeqCst);
    }

    /// Whether the thread must end.
    pub fn must_exit(&self) -> bool {
        self.exit.load(Ordering::SeqCst)
    }

    /// Sets attention without saying why; [`ThreadSignals::recalculate`] finds out.
    pub fn raise_attention(&self) {
        self.attention.store(true, Ordering::SeqCst);
    }

    /// Wakes the thread's interruptible wait, if it is in one.
    pub fn wake(&self) {
        let waker = self.state.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Registers whom `wake` wakes.
    pub fn set_waker(&self, waker: &Waker) {
        let mut state = self.state.lock();
        if !state.waker.as_ref().is_some_and(|present| present.will_wake(waker)) {
            let former = state.waker.replace(waker.clone());
            drop(state);
            drop(former);
        }
    }

    /// Takes back what `set_waker` registered.
    pub fn clear_waker(&self) {
        let waker = self.state.lock().waker.take();
        drop(waker);
    }

    /// Whether the thread is in a wait that signals can end.
    pub fn is_waiting(&self) -> bool {
        self.state.lock().waker.is_some()
    }

    /// Signals that are blocked now.
    pub fn blocked(&self) -> SignalSet {
        SignalSet(self.blocked.load(Ordering::Relaxed))
    }

    /// Signals that are pending for this thread alone.
    pub fn pending(&self) -> SignalSet {
        self.state.lock().pending.set()
    }

    /// The signal that came for this thread alone after `index` others, and is pending.
    pub fn pending_at(&self, index: usize) -> Option<SignalInfo> {
        self.state.lock().pending.at(index)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ThreadState> {
        self.state.lock()
    }

    /// Whether the thread waits for the signal in `rt_sigtimedwait`.
    pub(super) fn waits_for(&self, signal: Signal) -> bool {
        self.state.lock().waited.contains(signal)
    }

    /// Sets the mask. The caller recalculates attention.
    pub(super) fn set_blocked(&self, state: &mut ThreadState, blocked: SignalSet) {
        state.blocked = blocked.without(SignalSet::UNBLOCKABLE);
        self.blocked.store(state.blocked.0, Ordering::Relaxed);
    }

    /// Finds out whether there is reason for attention. Called by the thread itself only.
    ///
    /// The flag is cleared before the reasons are looked at, and whoever causes one sets the flag
    /// afterwards; so whichever comes last, the flag ends up true.
    pub(super) fn recalculate(&self, state: &ThreadState, process: &ProcessSignals) -> bool {
        self.attention.store(false, Ordering::SeqCst);
        let held_back = state.blocked.without(state.waited);
        let ready = (state.pending.set() | process.pending()).without(held_back);
        let attention = !ready.is_empty()
            || (process.is_stopping() && !self.passes_stop())
            || self.wants_trap()
            || state.interrupted.is_some()
            || self.must_exit();
        if attention {
            self.attention.store(true, Ordering::SeqCst);
        }
        attention
    }

    /// Whether this thread would take the signal now.
    pub(super) fn accepts(&self, state: &ThreadState, signal: Signal) -> bool {
        !self.must_exit() && (!state.blocked.contains(signal) || state.waited.contains(signal))
    }

    /// Remembers how `restart_syscall` continues the call that is about to return
    /// `ERESTART_RESTARTBLOCK`.
    pub fn set_restart(&self, block: RestartBlock) {
        self.state.lock().restart = Some(block);
    }

    /// What `restart_syscall` continues.
    pub fn take_restart(&self) -> Option<RestartBlock> {
        self.state.lock().restart.take()
    }
}

impl Default for ThreadSignals {
    fn default() -> Self {
        ThreadSignals::new()
    }
}
