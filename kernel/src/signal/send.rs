//! Sending: into which queue a signal goes, whether it is worth keeping, and which thread is to take
//! it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use abi::fs::PollEvents;
use abi::signal::{SI_TIMER, Signal, SignalSet};
use base::quota::{Charge, Kind};

use super::action::{Disposition, disposition};
use super::info::SignalInfo;
use super::queue::Queued;
use super::stop;
use crate::process::{Pid, Process, Thread, dump, table};

/// Sends a signal to a process: any of its threads that does not block it may take it, the first
/// thread by preference. Nothing happens when the process has ended.
///
/// # Errors
/// `EAGAIN`: a queued real-time signal, and `RLIMIT_SIGPENDING` is reached.
pub fn send_to_process(process: &Arc<Process>, info: SignalInfo) -> Result<(), Errno> {
    queue_for_process(process, info).map(drop)
}

/// As `send_to_process`; whether the signal was kept with its information.
pub(super) fn queue_for_process(process: &Arc<Process>, info: SignalInfo) -> Result<bool, Errno> {
    let threads = process.threads();
    let Some(first) = threads.first() else { return Ok(false) };
    if !prepare(process, first, info.signal) {
        return Ok(false);
    }
    let room = room(process, first, &info);
    let queued = {
        let mut state = process.signals.lock();
        let queued = state.pending.push(info, room);
        process.signals.publish(&state);
        queued
    };
    match queued {
        Queued::Full => return Err(Errno::EAGAIN),
        Queued::Merged => return Ok(false),
        Queued::Added | Queued::WithoutInfo => {}
    }
    if let Some(chosen) = choose(&threads, info.signal) {
        wake_for(process, chosen, info.signal);
    }
    process.signals.arrived.notify_all(PollEvents::IN);
    Ok(queued == Queued::Added)
}

/// Sends a signal to one thread.
///
/// # Errors
/// `EAGAIN`: a queued real-time signal, and `RLIMIT_SIGPENDING` is reached.
pub fn send_to_thread(thread: &Arc<Thread>, info: SignalInfo) -> Result<(), Errno> {
    queue_for_thread(thread, info).map(drop)
}

/// As `send_to_thread`; whether the signal was kept with its information.
pub(super) fn queue_for_thread(thread: &Arc<Thread>, info: SignalInfo) -> Result<bool, Errno> {
    let process = &thread.process;
    if !prepare(process, thread, info.signal) {
        return Ok(false);
    }
    let room = room(process, thread, &info);
    let (queued, accepts) = {
        let mut state = thread.signals.lock();
        let queued = state.pending.push(info, room);
        (queued, thread.signals.accepts(&state, info.signal))
    };
    match queued {
        Queued::Full => return Err(Errno::EAGAIN),
        Queued::Merged => return Ok(false),
        Queued::Added | Queued::WithoutInfo => {}
    }
    if accepts {
        wake_for(process, thread, info.signal);
    }
    process.signals.arrived.notify_all(PollEvents::IN);
    Ok(queued == Queued::Added)
}

/// Sends a signal to every process of a group, without asking for permission: for terminals.
pub fn send_to_group(group: i32, info: SignalInfo) {
    for process in table::group_members(Pid(group)) {
        let _ = send_to_process(&process, info);
    }
}

/// What a signal does the moment it is sent: `SIGKILL` ends, stop and continue cancel each other.
/// Returns whether the signal must be kept for delivery; `target` is the thread that it is for, or
/// the first of the process.
fn prepare(process: &Arc<Process>, target: &Arc<Thread>, signal: Signal) -> bool {
    if process.signals.is_protected() && !process.signals.actions().has_handler(signal) {
        return false;
    }
    if signal == Signal::SIGKILL {
        process.request_group_exit(death_status(signal));
        return false;
    }
    if SignalSet::STOPPING.contains(signal) {
        discard(process, &process.threads(), SignalSet::of(Signal::SIGCONT));
    } else if signal == Signal::SIGCONT {
        let threads = process.threads();
        discard(process, &threads, SignalSet::STOPPING);
        stop::resume(process, &threads);
    }
    // A blocked signal is kept even if it is ignored now: that may change before it is unblocked.
    target.signals.blocked().contains(signal)
        || target.restrictions.is_traced()
        || target.signals.waits_for(signal)
        || !process.signals.actions().ignores(signal)
}

/// The wait status of a process that a signal ended.
pub(super) fn death_status(signal: Signal) -> u32 {
    signal.number().unsigned_abs()
}

/// Drops pending signals of a set from the process and all its threads.
pub(super) fn discard(process: &Process, threads: &[Arc<Thread>], set: SignalSet) {
    {
        let mut state = process.signals.lock();
        state.pending.discard(set);
        process.signals.publish(&state);
    }
    for thread in threads {
        thread.signals.lock().pending.discard(set);
    }
}

/// Drops what a process has just declared that it ignores.
pub fn discard_ignored(process: &Process, signal: Signal) {
    discard(process, &process.threads(), SignalSet::of(signal));
}

/// Room for one more pending signal of the receiver's user. What the kernel itself sends counts, and is
/// not refused.
pub(super) fn room(process: &Process, thread: &Thread, info: &SignalInfo) -> Option<Charge> {
    let is_free = info.code == SI_TIMER || (!info.signal.is_real_time() && info.code >= 0);
    let limit = if is_free { u64::MAX } else { process.pending_signal_limit() };
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    Charge::new(thread.credentials().user.real, Kind::PendingSignals, 1, limit)
}

/// The thread that is to take a signal sent to the process: the first that accepts it and has
/// nothing else to attend to, else the first that accepts it.
fn choose(threads: &[Arc<Thread>], signal: Signal) -> Option<&Arc<Thread>> {
    let accepting = |thread: &&Arc<Thread>| {
        let state = thread.signals.lock();
        thread.signals.accepts(&state, signal)
    };
    let willing: Vec<&Arc<Thread>> = threads.iter().filter(accepting).collect();
    willing.iter().find(|thread| !thread.signals.has_attention()).or(willing.first()).copied()
}

/// Sends a thread to the delivery of a signal that it accepts. A signal that will end the process
/// ends all threads at once, whatever uninterruptible thing they wait for; one that has no effect
/// disturbs nobody.
fn wake_for(process: &Arc<Process>, thread: &Arc<Thread>, signal: Signal) {
    if process.signals.is_stopping() && !thread.signals.passes_stop() {
        // It is taken when the process continues.
        return;
    }
    if !thread.signals.waits_for(signal) && !thread.restrictions.is_traced() {
        let action = process.signals.actions().get(signal);
        let fate = disposition(signal, &action);
        if fate == Disposition::Ignore {
            // It was blocked when it was sent, and is not any more.
            return discard(process, core::slice::from_ref(thread), SignalSet::of(signal));
        }
        if fate == Disposition::Terminate && !dump::would_dump(thread, signal) {
            process.request_group_exit(death_status(signal));
            return;
        }
    }
    thread.signals.raise_attention();
    thread.kick();
}

/// Makes other threads look for signals of the process that `thread` no longer takes.
pub(super) fn retarget(process: &Process, thread: &Thread) {
    if process.signals.pending().is_empty() {
        return;
    }
    for other in process.threads() {
        if !core::ptr::eq(Arc::as_ptr(&other), thread) {
            other.signals.raise_attention();
            other.kick();
        }
    }
}
