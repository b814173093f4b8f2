//! Stop and continue: job control's half of signals.
//!
//! ```text
//!            a stop signal takes effect            last thread stands still
//!  running --------------------------> stopping -----------------------------> stopped
//!     ^                                    |                                       |
//!     +------------------------------------+-------------- SIGCONT sent -----------+
//! ```
//!
//! A thread stands still in `before_user`, outside every call. The parent is told when all stand,
//! and again at the end of the stop; `wait4` reads the same facts from the process.

use alloc::sync::Arc;
use core::future::poll_fn;
use core::task::Poll;

use abi::signal::{CLD_CONTINUED, CLD_STOPPED, SA_NOCLDSTOP, SIG_IGN, Signal};

use super::info::SignalInfo;
use super::process::Stop;
use super::send::{retarget, send_to_process};
use crate::process::{Process, Thread};

/// Starts a stop, unless `SIGCONT` came after the stop signal was taken out of its queue.
pub(super) fn begin(thread: &Arc<Thread>, signal: Signal, continues: u64) {
    let process = &thread.process;
    {
        let mut state = process.signals.lock();
        if state.continues != continues || state.stop.is_some() {
            return;
        }
        state.stop = Some(Stop { signal, standing: 0, complete: false });
        state.stop_report = None;
        state.continue_report = false;
        process.signals.publish(&state);
    }
    for other in process.threads() {
        other.signals.pass_stop(false);
        if !Arc::ptr_eq(&other, thread) {
            other.signals.raise_attention();
            other.kick();
        }
    }
}

/// Stands still until the stop is over or the thread must end.
pub(super) async fn stand(thread: &Arc<Thread>) {
    let process = &thread.process;
    let continues = {
        let mut state = process.signals.lock();
        let Some(stop) = &mut state.stop else { return };
        stop.standing += 1;
        state.continues
    };
    complete_if_all_stand(process);
    // A tracer that comes while it stands is told of the stop by a stop of its own.
    let was_traced = thread.restrictions.is_traced();
    let over = |thread: &Thread| {
        thread.signals.must_exit()
            || (!was_traced && thread.restrictions.is_traced())
            || thread.process.signals.lock().continues != continues
    };
    poll_fn(|context| {
        if over(thread) {
            return Poll::Ready(());
        }
        let former = thread.signals.lock().waker.replace(context.waker().clone());
        drop(former);
        if over(thread) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let mut state = process.signals.lock();
    if state.continues == continues
        && let Some(stop) = &mut state.stop
    {
        stop.standing = stop.standing.saturating_sub(1);
    }
}

/// The thread stands for its tracer while its process stops: it counts as one that stands still.
pub(super) fn count(thread: &Arc<Thread>) {
    {
        let mut state = thread.process.signals.lock();
        let Some(stop) = &mut state.stop else { return };
        stop.standing += 1;
    }
    complete_if_all_stand(&thread.process);
}

fn complete_if_all_stand(process: &Arc<Process>) {
    let living = process.threads().iter().filter(|thread| !thread.signals.must_exit()).count();
    let signal = {
        let mut state = process.signals.lock();
        let Some(stop) = &mut state.stop else { return };
        if stop.complete || stop.standing < living || living == 0 {
            return;
        }
        stop.complete = true;
        let signal = stop.signal;
        state.stop_report = Some(signal);
        signal
    };
    tell_parent(process, CLD_STOPPED, signal);
}

/// Ends a stop because `SIGCONT` was sent.
pub(super) fn resume(process: &Arc<Process>, threads: &[Arc<Thread>]) {
    let stop = {
        let mut state = process.signals.lock();
        state.continues += 1;
        let stop = state.stop.take();
        if stop.is_some() {
            state.stop_report = None;
            state.continue_report = true;
        }
        process.signals.publish(&state);
        stop
    };
    let Some(stop) = stop else { return };
    for thread in threads {
        thread.signals.pass_stop(false);
        // What came during the stop was not given to any thread.
        thread.signals.raise_attention();
        thread.signals.wake();
    }
    if stop.complete {
        tell_parent(process, CLD_CONTINUED, Signal::SIGCONT);
    } else {
        tell_parent(process, CLD_STOPPED, stop.signal);
    }
}

/// Tells the parent of a stop or continuation, by `SIGCHLD` unless it does not want that, and wakes
/// its waits for children.
fn tell_parent(process: &Arc<Process>, code: i32, signal: Signal) {
    let Some(parent) = process.parent() else { return };
    let action = parent.signals.actions().get(Signal::SIGCHLD);
    if action.handler != SIG_IGN && action.flags & SA_NOCLDSTOP == 0 {
        let usage = process.usage();
        let info = SignalInfo::child(
            code,
            process.pid.0,
            process.user(),
            signal.number(),
            usage.user_ticks(),
            usage.system_ticks(),
        );
        let _ = send_to_process(&parent, info);
    }
    parent.signals.child_events.wake_all();
}

/// The process ends: its timers stop.
pub fn process_ended(process: &Process) {
    process.signals.timers.cancel();
}

/// A thread has left its process, in which there are others: signals of the process that it might
/// have taken go to them, and a stop that waited only for it is complete.
pub fn thread_ended(thread: &Arc<Thread>) {
    retarget(&thread.process, thread);
    if thread.process.signals.is_stopping() {
        complete_if_all_stand(&thread.process);
    }
}
