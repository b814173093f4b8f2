//! The tracee's side: where its own task stops, and what becomes of it when it goes on.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::future::poll_fn;
use core::task::Poll;

use abi::Errno;
use abi::process::{CLONE_PTRACE, CLONE_UNTRACED, CLONE_VFORK};
use abi::ptrace::{UserRegisters, event, option};
use abi::signal::{Signal, TRAP_TRACE};
use base::user::UserContext;
use hal::UserContext as _;

use super::registers::{self, NO_CALL};
use super::{Kind, Mode, TraceStop};
use crate::memory::AddressSpace;
use crate::posted::trampoline;
use crate::process::Thread;
use crate::process::fork::CloneRequest;
use crate::signal::{self, SignalInfo};

/// Tells a stop for a call from one for a breakpoint.
const FOR_CALL: u32 = 0x80;
const TRAP: u32 = 5;

/// How a tracee went on.
struct Resumption {
    signal: i32,
    info: Option<SignalInfo>,
    /// The call that its registers name by then.
    call: u64,
}

/// Stands until the tracer says how to go on, nobody traces the thread any more, or it must end. `None` when
/// it is not traced.
async fn stand(
    thread: &Arc<Thread>,
    context: &mut UserContext,
    stop: (Kind, u32, Option<SignalInfo>),
    call: u64,
) -> Option<Resumption> {
    let (kind, code, info) = stop;
    let space = thread.space();
    let fpu = registers::floating_point(context);
    let own = registers::of(context, call, trampoline::second_pointer(&space, context));
    {
        let mut state = thread.tracing.lock();
        if !thread.restrictions.is_traced() {
            return None;
        }
        state.stop = Some(TraceStop {
            kind,
            code,
            info,
            registers: own,
            fpu,
            is_changed: false,
            is_fpu_changed: false,
            is_reported: false,
            is_listening: false,
            resumed: None,
        });
    }
    super::count_stop(thread);
    super::tell(thread, code);
    let ends_by_kill = kind != Kind::Event || code >> 8 != event::EXIT;
    let is_over = || {
        if thread.signals.must_exit() && (ends_by_kill || is_killed(thread)) {
            return true;
        }
        let state = thread.tracing.lock();
        let continues = || {
            let is_listening = state.stop.as_ref().is_some_and(|stop| stop.is_listening);
            is_listening && (thread.signals.wants_trap() || !thread.process.signals.is_stopping())
        };
        state.stop.as_ref().is_none_or(|stop| stop.resumed.is_some()) || continues()
    };
    poll_fn(|task| {
        if is_over() {
            return Poll::Ready(());
        }
        thread.signals.set_waker(task.waker());
        if is_over() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    thread.signals.clear_waker();
    let stop = thread.tracing.lock().stop.take()?;
    if stop.is_fpu_changed {
        context.write_fpu(&stop.fpu);
    }
    if stop.is_changed {
        take_over(thread, context, &space, &own, &stop.registers).await;
    }
    if stop.is_listening && stop.resumed.is_none() {
        // Its process goes on, which a seized tracee stops once more to tell.
        thread.signals.want_trap();
    }
    Some(Resumption {
        signal: stop.resumed.unwrap_or(0),
        info: stop.info,
        call: stop.registers.call,
    })
}

/// Whether the thread's end is by `SIGKILL`.
fn is_killed(thread: &Thread) -> bool {
    let kill = Signal::SIGKILL.number().unsigned_abs();
    thread.process.group_exit().is_some_and(|status| status & 0x7f == kill)
}

async fn take_over(
    thread: &Arc<Thread>,
    context: &mut UserContext,
    space: &AddressSpace,
    own: &UserRegisters,
    new: &UserRegisters,
) {
    registers::put(context, new);
    if new.gs_base != own.gs_base {
        trampoline::give_up(thread, space).await;
        context.set_second_pointer(new.gs_base);
    }
}

/// What is known of a stop that no signal caused.
fn told(thread: &Thread, code: u32) -> SignalInfo {
    let user = thread.credentials().user.real;
    let info = SignalInfo::kill(Signal::SIGTRAP, thread.tid().0, user);
    SignalInfo { code: code.cast_signed(), ..info }
}

/// The signal of a fault that tells of one instruction.
fn stepped() -> SignalInfo {
    SignalInfo { code: TRAP_TRACE, ..SignalInfo::kernel(Signal::SIGTRAP) }
}

/// A stop that `PTRACE_INTERRUPT` or an attachment wants.
pub async fn wanted(thread: &Arc<Thread>, context: &mut UserContext) {
    if thread.signals.take_trap() {
        let is_stopping = thread.process.signals.is_stopping();
        let signal = thread.process.signals.stop_signal().filter(|_| is_stopping);
        let signal = signal.map_or(TRAP, |signal| signal.number().unsigned_abs());
        let code = signal | event::STOP << 8;
        let info = Some(told(thread, code));
        let call = interrupted_call(thread, context);
        let stop = Box::pin(stand(thread, context, (Kind::Event, code, info), call));
        if let Some(resumption) = stop.await {
            forget_call(thread, context, resumption.call);
        }
        if is_stopping {
            thread.signals.pass_stop(true);
        }
    }
}

/// The thread stands because its process stops.
pub async fn with_group(thread: &Arc<Thread>, context: &mut UserContext, signal: Signal) {
    let own = signal.number().unsigned_abs();
    let is_seized = thread.tracing.is_seized();
    let code = if is_seized { own | event::STOP << 8 } else { own };
    let info = is_seized.then(|| told(thread, code));
    let call = interrupted_call(thread, context);
    let stop = Box::pin(stand(thread, context, (Kind::Group, code, info), call));
    if let Some(resumption) = stop.await {
        forget_call(thread, context, resumption.call);
    }
    thread.signals.pass_stop(true);
}

/// The call that a signal has interrupted, whose result the registers show.
fn interrupted_call(thread: &Thread, context: &mut UserContext) -> u64 {
    let Some(call) = thread.signals.interrupted_call() else { return NO_CALL };
    context.set_return_value(call.errno.to_return_value().cast_unsigned());
    call.number as u64
}

/// A tracer that takes the call away, or gives it a result, decides that it is not made again.
fn forget_call(thread: &Thread, context: &UserContext, call: u64) {
    let Some(interrupted) = thread.signals.interrupted_call() else { return };
    let result = interrupted.errno.to_return_value().cast_unsigned();
    let [.., rax, _, _, _, _] = context.general_registers();
    if call != interrupted.number as u64 || rax != result {
        thread.signals.forget_call();
    }
}

/// A signal that the thread is about to take: what it takes instead, if anything.
pub async fn for_signal(
    thread: &Arc<Thread>,
    context: &mut UserContext,
    info: SignalInfo,
) -> Option<SignalInfo> {
    let code = info.signal.number().unsigned_abs();
    let call = interrupted_call(thread, context);
    let stop = Box::pin(stand(thread, context, (Kind::Signal, code, Some(info)), call));
    let Some(resumption) = stop.await else { return Some(info) };
    forget_call(thread, context, resumption.call);
    let signal = Signal::new(resumption.signal)?;
    let present = resumption.info.unwrap_or(info);
    let info = if signal == present.signal {
        present
    } else {
        let tracer = thread.process.parent_pid().0;
        SignalInfo::kill(signal, tracer, thread.credentials().user.real)
    };
    if thread.signals.blocked().contains(signal) {
        let _ = signal::send_to_thread(thread, info);
        return None;
    }
    Some(info)
}

/// A stop at the begin or end of a call; the signal that it goes on with is sent.
async fn at_call(
    thread: &Arc<Thread>,
    context: &mut UserContext,
    kind: Kind,
    call: u64,
) -> Option<Resumption> {
    let is_marked = thread.tracing.lock().options & option::TRACESYSGOOD != 0;
    let code = if is_marked { TRAP | FOR_CALL } else { TRAP };
    let info = Some(told(thread, code));
    let resumption = Box::pin(stand(thread, context, (kind, code, info), call)).await?;
    if let Some(signal) = Signal::new(resumption.signal) {
        let user = thread.credentials().user.real;
        let sent = SignalInfo::kill(signal, thread.process.parent_pid().0, user);
        let _ = signal::send_to_thread(thread, sent);
    }
    Some(resumption)
}

/// The thread begins a call. Returns whether it is carried out; its number is in the registers then.
pub async fn at_entry(thread: &Arc<Thread>, context: &mut UserContext) -> bool {
    let mode = thread.tracing.lock().mode;
    if !mode.stops_at_calls() {
        return true;
    }
    let number = context.call_number() as u64;
    context.set_return_value(Errno::ENOSYS.to_return_value().cast_unsigned());
    let resumption = at_call(thread, context, Kind::Entry, number).await;
    let call = resumption.map_or(number, |resumption| resumption.call);
    let is_emulated = matches!(mode, Mode::Emulation | Mode::EmulationStep);
    // The number -1 is that of no call: what the tracer left as its result stays.
    if is_emulated || call as u32 == u32::MAX || thread.signals.must_exit() {
        return false;
    }
    context.set_return_value(call);
    true
}

/// The thread ends a call.
pub async fn at_exit(thread: &Arc<Thread>, context: &mut UserContext, number: usize) {
    let mode = thread.tracing.lock().mode;
    if thread.signals.must_exit() {
        return;
    }
    if mode.is_step() {
        signal::force(thread, stepped());
    }
    if mode != Mode::Calls {
        return;
    }
    interrupted_call(thread, context);
    if let Some(resumption) = at_call(thread, context, Kind::Exit, number as u64).await {
        forget_call(thread, context, resumption.call);
    }
}

/// Whether the thread is to make one instruction only.
pub fn is_stepping(thread: &Thread) -> bool {
    thread.tracing.lock().mode.is_step()
}

/// Something happened that the tracer asked for by an option: stands, with a message.
async fn at_event(thread: &Arc<Thread>, context: &mut UserContext, event: u32, message: u64) {
    let code = TRAP | event << 8;
    thread.tracing.lock().message = message;
    let info = Some(told(thread, code));
    let _ = Box::pin(stand(thread, context, (Kind::Event, code, info), NO_CALL)).await;
}

/// The event of a new thread or process, if the tracer asked for it; or 0 if the child is traced without.
pub fn event_of_child(parent: &Thread, request: &CloneRequest) -> Option<u32> {
    if !parent.restrictions.is_traced() || request.flags & CLONE_UNTRACED != 0 {
        return None;
    }
    let options = parent.tracing.lock().options;
    let (event, wanted) = if request.flags & CLONE_VFORK != 0 {
        (event::VFORK, option::TRACEVFORK)
    } else if request.exit_signal != Signal::SIGCHLD.number() {
        (event::CLONE, option::TRACECLONE)
    } else {
        (event::FORK, option::TRACEFORK)
    };
    if options & wanted != 0 {
        Some(event)
    } else {
        (request.flags & CLONE_PTRACE != 0).then_some(0)
    }
}

/// The thread has made a child.
pub async fn after_child(thread: &Arc<Thread>, context: &mut UserContext, event: u32, child: i32) {
    if event != 0 {
        at_event(thread, context, event, u64::from(child.unsigned_abs())).await;
    }
}

/// The child of a `vfork` has given back the memory.
pub async fn after_vfork(thread: &Arc<Thread>, context: &mut UserContext, child: i32) {
    if thread.restrictions.is_traced()
        && thread.tracing.lock().options & option::TRACEVFORKDONE != 0
    {
        at_event(thread, context, event::VFORK_DONE, u64::from(child.unsigned_abs())).await;
    }
}

/// The thread runs another program; `former` was its number before.
pub async fn after_exec(thread: &Arc<Thread>, context: &mut UserContext, former: i32) {
    let (options, is_seized) = {
        let state = thread.tracing.lock();
        (state.options, state.is_seized)
    };
    if options & option::TRACEEXEC != 0 {
        at_event(thread, context, event::EXEC, u64::from(former.unsigned_abs())).await;
    } else if !is_seized {
        let user = thread.credentials().user.real;
        let info = SignalInfo::kill(Signal::SIGTRAP, thread.process.pid.0, user);
        let _ = signal::send_to_thread(thread, info);
    }
}

/// The thread is about to end.
pub async fn before_end(thread: &Arc<Thread>, context: &mut UserContext) {
    let wants = thread.tracing.lock().options & option::TRACEEXIT != 0;
    if wants && !is_killed(thread) {
        let status = thread.process.group_exit().or(thread.exit_request()).unwrap_or(0);
        at_event(thread, context, event::EXIT, u64::from(status)).await;
    }
}
