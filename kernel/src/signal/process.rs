//! The signal state of a process: actions, signals pending for the process as a whole, stop and
//! continue, and where its parent role waits for children.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use abi::signal::{Signal, SignalSet};
use base::sync::{Mutex, MutexGuard};
use base::wait::WaitQueue;

use super::action::{ActionTable, SharedActions};
use super::info::SignalInfo;
use super::queue::PendingQueue;
use super::ranks::PROCESS_SIGNALS;
use super::timers::ProcessTimers;

/// Signal state of a process.
pub struct ProcessSignals {
    actions: Mutex<SharedActions>,
    state: Mutex<ProcessState>,
    /// Copy of `state.pending.set()`: a set bit is written before the thread that takes it is chosen.
    pending: AtomicU64,
    /// Copy of `state.stop.is_some()`.
    stopping: AtomicBool,
    /// Woken when a child of this process changes state; `wait4` and `waitid` wait here.
    pub child_events: WaitQueue,
    /// Tells of every signal that is sent to the process or a thread of it; signalfds wait here.
    pub arrived: WaitQueue,
    /// Timers that send signals.
    pub timers: ProcessTimers,
    /// Process 1: signals without a handler do nothing to it.
    unkillable: AtomicBool,
}

/// Guarded by the lock of [`ProcessSignals`].
pub(super) struct ProcessState {
    pub(super) pending: PendingQueue,
    /// The signal that stops the process, from the moment it takes effect until `SIGCONT`.
    pub(super) stop: Option<Stop>,
    /// A stop that the parent has not been told by `wait` yet.
    pub(super) stop_report: Option<Signal>,
    /// A continuation that the parent has not been told by `wait` yet.
    pub(super) continue_report: bool,
    /// Counts `SIGCONT`s: a stop signal that was taken out before one and acts after it is void.
    pub(super) continues: u64,
}

/// A stop of all threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stop {
    pub(super) signal: Signal,
    /// Threads that stand still.
    pub(super) standing: usize,
    /// All stood still, and the parent was told.
    pub(super) complete: bool,
}

impl ProcessSignals {
    fn with(actions: SharedActions) -> ProcessSignals {
        ProcessSignals {
            actions: Mutex::new(&PROCESS_SIGNALS, actions),
            state: Mutex::new(
                &PROCESS_SIGNALS,
                ProcessState {
                    pending: PendingQueue::new(),
                    stop: None,
                    stop_report: None,
                    continue_report: false,
                    continues: 0,
                },
            ),
            pending: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            child_events: WaitQueue::new(),
            arrived: WaitQueue::new(),
            timers: ProcessTimers::new(),
            unkillable: AtomicBool::new(false),
        }
    }

    /// For a process made by the kernel: all defaults.
    pub fn new() -> ProcessSignals {
        ProcessSignals::with(Arc::new(ActionTable::new()))
    }

    /// For a child: the same table of actions (`CLONE_SIGHAND`) or a copy. Nothing is pending.
    pub fn inherit(&self, share_actions: bool) -> ProcessSignals {
        let actions = self.actions();
        ProcessSignals::with(if share_actions { actions } else { Arc::new(actions.duplicate()) })
    }

    /// For a child whose handlers are all cleared (`CLONE_CLEAR_SIGHAND`).
    pub fn inherit_cleared(&self) -> ProcessSignals {
        ProcessSignals::with(Arc::new(self.actions().cleared()))
    }

    /// What `execve` changes: handlers become defaults, in a table that is shared with nobody.
    pub fn after_exec(&self) {
        let fresh = Arc::new(self.actions().after_exec());
        *self.actions.lock() = fresh;
        self.timers.after_exec();
    }

    /// The table of actions.
    pub fn actions(&self) -> SharedActions {
        self.actions.lock().clone()
    }

    /// Makes signals without a handler harmless: for process 1.
    pub fn protect(&self) {
        self.unkillable.store(true, Ordering::Relaxed);
    }

    /// Whether signals without a handler are harmless.
    pub fn is_protected(&self) -> bool {
        self.unkillable.load(Ordering::Relaxed)
    }

    /// Signals that are pending for the process as a whole.
    pub fn pending(&self) -> SignalSet {
        SignalSet(self.pending.load(Ordering::SeqCst))
    }

    /// The signal that came for the process after `index` others, and is pending.
    pub fn pending_at(&self, index: usize) -> Option<SignalInfo> {
        self.state.lock().pending.at(index)
    }

    /// Whether the process is stopped or about to stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// The signal that stops the process.
    pub fn stop_signal(&self) -> Option<Signal> {
        self.lock().stop.map(|stop| stop.signal)
    }

    /// Whether all threads stand still.
    pub fn is_stopped(&self) -> bool {
        self.is_stopping() && self.lock().stop.is_some_and(|stop| stop.complete)
    }

    /// The signal of a stop that `wait` has not reported yet; `consume` marks it as reported.
    pub fn stop_report(&self, consume: bool) -> Option<Signal> {
        let mut state = self.lock();
        if consume { state.stop_report.take() } else { state.stop_report }
    }

    /// Whether there is a continuation that `wait` has not reported yet; `consume` marks it as
    /// reported.
    pub fn continue_report(&self, consume: bool) -> bool {
        let mut state = self.lock();
        if consume { core::mem::take(&mut state.continue_report) } else { state.continue_report }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ProcessState> {
        self.state.lock()
    }

    /// Brings the copies up to date; called before the lock is given up after a change.
    pub(super) fn publish(&self, state: &ProcessState) {
        self.pending.store(state.pending.set().0, Ordering::SeqCst);
        self.stopping.store(state.stop.is_some(), Ordering::SeqCst);
    }
}

impl Default for ProcessSignals {
    fn default() -> Self {
        ProcessSignals::new()
    }
}
