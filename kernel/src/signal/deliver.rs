//! Delivery: what a thread does before it enters user mode while it has attention.

use alloc::boxed::Box;
use alloc::sync::Arc;

use abi::Errno;
use abi::signal::{Action, SA_NODEFER, SA_RESTART, Signal, SignalSet};
use base::user::UserContext;
use hal::UserContext as _;
use policy::table::number;

use super::action::{Disposition, disposition};
use super::info::SignalInfo;
use super::made_timers::note_delivery;
use super::send::death_status;
use super::thread::InterruptedCall;
use super::{frame, stop};
use crate::process::{Thread, dump, rseq, table, tracing};

/// What becomes of the thread after its signals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum BeforeUser {
    /// It enters user mode.
    Enter,
    /// It ends.
    Exit,
}

/// A signal that was taken out of its queue.
struct Taken {
    info: SignalInfo,
    /// `ProcessState::continues` at that moment.
    continues: u64,
}

/// What is left to do after `step`.
enum Step {
    /// Nothing.
    Done(BeforeUser),
    /// There may be more.
    Again,
    /// A stop, or whatever a tracer wants to know of.
    Attend,
    /// The end of the process by a signal.
    Terminate(SignalInfo),
    /// The frame of a handler; it needs a page or a look at a critical section first.
    Enter(Handler),
}

/// A handler that is to be entered.
struct Handler {
    action: Action,
    info: SignalInfo,
    /// The mask that it puts back.
    mask: SignalSet,
}

/// Attends to everything that keeps the thread from going on: its end, a stop of its process, its
/// signals, and the call that they interrupted.
pub async fn before_user(thread: &Arc<Thread>, context: &mut UserContext) -> BeforeUser {
    loop {
        match step(thread, context) {
            Step::Done(what) => return what,
            Step::Again => {}
            // Boxed: few threads ever wait here, and every thread would have room for it.
            rest => {
                if let Some(what) = Box::pin(attend(thread, context, rest)).await {
                    return what;
                }
            }
        }
    }
}

/// Does one thing that needs no wait.
fn step(thread: &Arc<Thread>, context: &mut UserContext) -> Step {
    if thread.signals.must_exit() {
        return Step::Done(BeforeUser::Exit);
    }
    let is_stopping = thread.process.signals.is_stopping() && !thread.signals.passes_stop();
    if thread.restrictions.is_traced() || is_stopping {
        return Step::Attend;
    }
    match take_next(thread) {
        Some(mut taken) => {
            taken.info = note_delivery(&thread.process, taken.info);
            act(thread, context, &taken)
        }
        None if settle(thread, context) => Step::Again,
        None => Step::Done(BeforeUser::Enter),
    }
}

/// Does what needs a wait.
async fn attend(
    thread: &Arc<Thread>,
    context: &mut UserContext,
    mut step: Step,
) -> Option<BeforeUser> {
    let is_attended = matches!(step, Step::Attend);
    if is_attended {
        let is_traced = thread.restrictions.is_traced();
        if is_traced {
            tracing::stop::wanted(thread, context).await;
        }
        if thread.process.signals.is_stopping() && !thread.signals.passes_stop() {
            match thread.process.signals.stop_signal() {
                Some(signal) if is_traced => {
                    stop::count(thread);
                    tracing::stop::with_group(thread, context, signal).await;
                }
                _ => stop::stand(thread).await,
            }
            return None;
        }
        let Some(mut taken) = take_next(thread) else {
            return (!settle(thread, context)).then_some(BeforeUser::Enter);
        };
        taken.info = note_delivery(&thread.process, taken.info);
        if is_traced && taken.info.signal != Signal::SIGKILL {
            taken.info = tracing::stop::for_signal(thread, context, taken.info).await?;
        }
        step = act(thread, context, &taken);
    }
    match step {
        Step::Terminate(info) => {
            let is_dumped = Box::pin(dump::dump(thread, context, &info)).await;
            let mark = if is_dumped { dump::DUMPED } else { 0 };
            thread.process.request_group_exit(death_status(info.signal) | mark);
        }
        Step::Enter(handler) => {
            if thread.sequence.is_due() {
                rseq::settle(thread, context).await;
            }
            let Handler { action, info, mask } = &handler;
            let pushed = frame::push(thread, context, action, info, *mask).await;
            entered(thread, &handler, pushed);
        }
        Step::Done(what) => return Some(what),
        Step::Again | Step::Attend => {}
    }
    None
}

/// No signal is left: restarts the interrupted call, and puts back a mask that it had replaced.
/// Returns whether that gave reason for attention again.
fn settle(thread: &Thread, context: &mut UserContext) -> bool {
    let mut state = thread.signals.lock();
    if let Some(call) = state.interrupted.take() {
        let number = if call.errno == Errno::ERESTART_RESTARTBLOCK {
            number::restart_syscall
        } else {
            call.number
        };
        context.restart_call(number);
    }
    if let Some(saved) = state.saved.take() {
        thread.signals.set_blocked(&mut state, saved);
    }
    thread.signals.recalculate(&state, &thread.process.signals)
}

/// Takes out the next signal: faults of this thread, then its own signals, then its process's.
fn take_next(thread: &Thread) -> Option<Taken> {
    let process = &thread.process.signals;
    let mut shared = process.lock();
    let mut own = thread.signals.lock();
    let blocked = own.blocked;
    let info = own
        .pending
        .take_synchronous(blocked)
        .or_else(|| own.pending.take_next(blocked))
        .or_else(|| shared.pending.take_next(blocked))?;
    process.publish(&shared);
    Some(Taken { info, continues: shared.continues })
}

/// Carries out what a signal does, as far as that needs no wait.
fn act(thread: &Arc<Thread>, context: &mut UserContext, taken: &Taken) -> Step {
    let process = &thread.process;
    let signal = taken.info.signal;
    let action = process.signals.actions().take_for_delivery(signal);
    match disposition(signal, &action) {
        Disposition::Ignore => Step::Again,
        Disposition::Stop => {
            if signal == Signal::SIGSTOP || !table::is_orphaned(process.group()) {
                stop::begin(thread, signal, taken.continues);
            }
            Step::Again
        }
        Disposition::Terminate if process.signals.is_protected() => Step::Again,
        Disposition::Terminate => Step::Terminate(taken.info),
        Disposition::Handle(action) => handle(thread, context, &action, &taken.info),
    }
}

/// Decides about the interrupted call, and enters a handler if nothing stands in the way.
fn handle(
    thread: &Arc<Thread>,
    context: &mut UserContext,
    action: &Action,
    info: &SignalInfo,
) -> Step {
    let (interrupted, mask) = {
        let mut state = thread.signals.lock();
        if let Some(trap) = info.trap {
            state.trap = trap;
        }
        (state.interrupted.take(), state.saved.unwrap_or(state.blocked))
    };
    if let Some(call) = interrupted {
        if restarts(&call, action) {
            context.restart_call(call.number);
        } else {
            context.set_return_value(Errno::EINTR.to_return_value().cast_unsigned());
        }
    }
    let handler = Handler { action: *action, info: *info, mask };
    // The frame returns to where a critical section is aborted, not into it.
    thread.sequence.interrupted();
    if thread.sequence.is_due() && !rseq::settle_at_once(thread) {
        return Step::Enter(handler);
    }
    match frame::push_at_once(thread, context, action, info, mask) {
        Ok(false) => Step::Enter(handler),
        pushed => {
            entered(thread, &handler, pushed.map(drop));
            Step::Again
        }
    }
}

/// The frame of a handler was written, or could not be: changes the mask, or forces a `SIGSEGV`.
fn entered(thread: &Arc<Thread>, handler: &Handler, pushed: Result<(), Errno>) {
    let Handler { action, info, .. } = handler;
    if pushed.is_err() {
        log::debug!("thread {}: no room for the frame of {:?}", thread.tid(), info.signal);
        force_segmentation_fault(thread, info.signal);
        return;
    }
    let mut state = thread.signals.lock();
    state.saved = None;
    let mut blocked = state.blocked | action.mask;
    if action.flags & SA_NODEFER == 0 {
        blocked.insert(info.signal);
    }
    thread.signals.set_blocked(&mut state, blocked);
}

fn restarts(call: &InterruptedCall, action: &Action) -> bool {
    match call.errno {
        Errno::ERESTARTNOINTR => true,
        Errno::ERESTARTSYS => action.flags & SA_RESTART != 0,
        _ => false,
    }
}

/// Notes that a call ended with a restart code; the decision falls in [`before_user`].
pub fn note_restart(thread: &Thread, _context: &UserContext, number: usize, errno: Errno) {
    thread.signals.lock().interrupted = Some(InterruptedCall { number, errno });
    thread.signals.raise_attention();
}

/// Whether a call that succeeded has set the registers itself, so that its result must not be
/// written over them.
pub fn replaces_registers(call: usize) -> bool {
    matches!(call, number::rt_sigreturn | number::execve | number::execveat)
}

/// Raises a signal for a fault of the running thread. It cannot be blocked or ignored: then the
/// process ends by it.
pub fn force(thread: &Arc<Thread>, info: SignalInfo) {
    let actions = thread.process.signals.actions();
    let signal = info.signal;
    if signal == Signal::SIGKILL {
        // No memory was left for a page of this process.
        thread.process.request_group_exit(death_status(signal));
        return;
    }
    // Only the thread itself changes its mask, and it is here.
    let blocked = thread.signals.blocked().contains(signal);
    if blocked || actions.ignores(signal) {
        actions.reset(signal);
    }
    let room = super::send::room(&thread.process, thread, &info);
    let mut state = thread.signals.lock();
    if blocked {
        let mask = state.blocked.without(SignalSet::of(signal));
        thread.signals.set_blocked(&mut state, mask);
    }
    let _ = state.pending.push(info, room);
    drop(state);
    thread.signals.raise_attention();
}

/// The frame of a handler could not be written or read. If it was the handler of `SIGSEGV` itself,
/// that handler gets no second chance.
pub(super) fn force_segmentation_fault(thread: &Arc<Thread>, failed: Signal) {
    if failed == Signal::SIGSEGV {
        thread.process.signals.actions().reset(Signal::SIGSEGV);
    }
    force(thread, SignalInfo::kernel(Signal::SIGSEGV));
}
