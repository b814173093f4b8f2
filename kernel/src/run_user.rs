//! The life of a user thread: a task on an application core that delivers signals, enters user mode,
//! handles the trap, and repeats.
//!
//! ```text
//!        +--> attention? --> signals, stop, exit
//!        |        |
//!        |   enter user mode (interrupts on; no tick while this is the core's only thread)
//!        |        |
//!        |   trap: system call ----> local: handler polled right here
//!        |        |            \---> remote: request to a kernel core, answer awaited
//!        |        | page fault ----> address space, else signal
//!        |        | fault ---------> signal
//!        +--------+ interrupt -----> serve it; yield if others are ready
//! ```
//!
//! The task owns the thread's registers. Nobody else reads or writes them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::sync::atomic::Ordering;

use abi::trace::EventKind;
use base::cpu::CpuId;
use base::memory::OutOfMemory;
use base::user::{self, UserContext};
use base::{task, time};
use hal::{Trap, UserContext as _, VirtAddr};
use policy::place::{self, CoreSet};
use policy::route::{self, CallPath};
use policy::slice::Slice;
use policy::table::number;

use crate::call::{self, Call, SysResult, encode};
use crate::choice::{Way, note_cost, way_of};
use crate::memory::{Access, AddressSpace, FaultSignal};
use crate::posted::trampoline::{self, Finished, Recovery};
use crate::process::{self, Thread, rseq, seccomp, tracing};
use crate::signal::{self, BeforeUser, SignalInfo};
use crate::trace::{self, What};
use crate::{core_loop, counters, dispatch, machine, posted, request, servers, stages};

/// Wait status of a process that `SIGKILL` ended.
const KILLED: u32 = 9;

/// Chooses an application core for a new thread and starts it there.
pub fn start(thread: Arc<Thread>, context: Box<UserContext>) -> Result<(), OutOfMemory> {
    let allowed = CoreSet(thread.affinity.load(Ordering::Relaxed));
    let parent = CpuId::current().index();
    let core = place::thread_core(machine::layout(), allowed, parent, machine::thread_count);
    start_on(core, thread, context)
}

/// Starts a thread on a core.
fn start_on(
    core: usize,
    thread: Arc<Thread>,
    context: Box<UserContext>,
) -> Result<(), OutOfMemory> {
    thread.core.store(core, Ordering::Relaxed);
    let core = CpuId::new(core).unwrap_or(CpuId::FIRST);
    let victim = thread.clone();
    task::spawn_with_hook(core, accounted(thread, context), move || bury(victim))
}

/// Ends a thread whose task panicked, and its process with it: what it was about is lost, but nobody
/// shall wait for it forever.
fn bury(thread: Arc<Thread>) {
    log::error!("the task of thread {} panicked; its process is killed", thread.tid());
    thread.process.request_group_exit(KILLED);
    let end = async move {
        process::exit::finish_thread(thread).await;
        machine::thread_ended();
    };
    if task::spawn(CpuId::current(), end).is_err() {
        log::error!("no memory to end the thread");
    }
}

/// Polls the thread's task and charges the thread for the time. A thread that may not stay on this
/// core is started anew on one that it may run on.
async fn accounted(thread: Arc<Thread>, context: Box<UserContext>) {
    let moving = {
        let mut run = pin!(run(thread.clone(), context));
        poll_fn(|context| {
            thread.processor_time.begin();
            posted::enter_core(&thread);
            if let Some((other_core, at)) = task::woken() {
                let what = What::of(EventKind::WakeUp);
                trace::since(at, What { thread: thread.number(), other_core, ..what });
            }
            let poll = run.as_mut().poll(context);
            posted::leave_core(&thread);
            thread.processor_time.end();
            poll
        })
        .await
    };
    let Some((registers, core)) = moving else { return };
    let started = match core {
        Some(core) => start_on(core, thread.clone(), registers),
        None => start(thread.clone(), registers),
    };
    if started.is_err() {
        // Its registers are gone with the task that could not be made.
        thread.process.request_group_exit(KILLED);
        process::exit::finish_thread(thread).await;
    }
}

/// Whether the thread may run on the core that it is on. Only an application core can be named by an
/// affinity, so a set without any of them changes nothing.
fn may_stay(thread: &Thread) -> bool {
    let allowed = thread.affinity.load(Ordering::Relaxed);
    allowed & machine::layout().application.0 == 0 || allowed >> CpuId::current().index() & 1 != 0
}

/// A core that has nothing to do and may run the thread, which others wait for on this one.
fn idle_core(thread: &Thread) -> Option<usize> {
    let allowed = thread.affinity.load(Ordering::Relaxed) & machine::layout().application.0;
    let is_idle = |core: &usize| CpuId::new(*core).is_some_and(task::is_parked);
    CoreSet(allowed).iter().find(is_idle)
}

/// Runs a thread to its end, or until it goes on elsewhere: then gives back its registers, and the core
/// if that is decided.
async fn run(
    thread: Arc<Thread>,
    mut context: Box<UserContext>,
) -> Option<(Box<UserContext>, Option<usize>)> {
    machine::thread_started();
    let value = thread.process.pid.to_value();
    trace::now(What { thread: thread.number(), value, ..What::of(EventKind::Thread) });
    let mut space = thread.space();
    trampoline::stand_in(&space, &mut context);
    let mut slice = whole_slice(&thread);
    thread.sequence.interrupted();
    loop {
        if thread.has_attention() {
            if let Some(sites) = space.sites()
                && let Some(finished) =
                    trampoline::settle(&thread, &mut context, &space, sites).await
            {
                finish_posted(&thread, &mut context, finished).await;
            }
            if thread.restrictions.is_active() {
                trampoline::retire(&thread, &space, &mut context).await;
            }
            if signal::before_user(&thread, &mut context).await == BeforeUser::Exit {
                break;
            }
        }
        if thread.sequence.is_due() && !rseq::settle_at_once(&thread) {
            rseq::settle(&thread, &mut context).await;
        }
        let is_stepping = thread.restrictions.is_traced() && tracing::stop::is_stepping(&thread);
        if is_stepping {
            tracing::registers::begin_step(&mut context);
        }
        let stop = stay_in_user_mode(&thread, &mut context, &space, &slice);
        if is_stepping {
            let after_call = matches!(stop, Stop::Trap(Trap::SystemCall));
            tracing::registers::end_step(&mut context, after_call);
        }
        let sample = thread.processor_time.trap();
        match stop {
            Stop::StaysOut => {}
            Stop::Local { number, trapped, is_timed } => {
                let arguments = context.call_arguments();
                let result = at_home(&thread, number, arguments, trapped, is_timed).await;
                finish_call(&thread, &mut context, number, result);
            }
            Stop::Sent { number, trapped, sent } => {
                let answer = pin!(request::answer(&thread));
                let mut result =
                    counters::watch(&thread.process.counters, number, true, answer).await.output;
                note_answer(&thread, number, (trapped, sent), result);
                if result == Err(call::AT_HOME) {
                    let arguments = context.call_arguments();
                    result = at_home(&thread, number, arguments, trapped, false).await;
                }
                finish_call(&thread, &mut context, number, result);
            }
            Stop::Trap(Trap::SystemCall) if thread.restrictions.is_traced() => {
                let former = thread.tid().0;
                if let Some(number) = traced_call(&thread, &mut context, &space).await {
                    if !Arc::ptr_eq(&space, &thread.space()) {
                        space = thread.space();
                        trampoline::stand_in(&space, &mut context);
                        tracing::stop::after_exec(&thread, &mut context, former).await;
                    }
                    tracing::stop::at_exit(&thread, &mut context, number).await;
                }
            }
            Stop::Trap(Trap::SystemCall) => {
                let number = context.call_number();
                if trampoline::is_finish(number, &context, space.sites()) {
                    if let Some(finished) = trampoline::finish(&thread, &mut context, &space).await
                    {
                        finish_posted(&thread, &mut context, finished).await;
                    }
                } else if thread.restrictions.mode() == seccomp::MODE_NONE
                    || !seccomp::stops(&thread, &mut context, number)
                {
                    system_call(&thread, &mut context, number).await;
                }
                if matches!(number, number::execve | number::execveat)
                    && !Arc::ptr_eq(&space, &thread.space())
                {
                    space = thread.space();
                    trampoline::stand_in(&space, &mut context);
                }
            }
            Stop::Trap(Trap::Interrupt) => core_loop::serve_interrupts(),
            Stop::Trap(mut trap @ Trap::PageFault { address, write, execute, .. }) => {
                trampoline::hide(space.sites(), &mut trap);
                counters::here().faults.add(1);
                let access = Access::of_fault(write, execute);
                let is_by_key = matches!(trap, Trap::PageFault { by_key: true, .. });
                let since = trace::stamp();
                let fault = pin!(space.fault(address, access));
                let (outcome, waited) = stages::with_waits(fault).await;
                if waited > 0 {
                    thread.sequence.interrupted();
                }
                let (detail, value) = (u32::from(write) | u32::from(waited > 0) << 1, address.0);
                let what = What::of(EventKind::PageFault);
                trace::since(since, What { thread: thread.number(), detail, value, ..what });
                let outcome = match outcome {
                    Ok(_) if is_by_key => Err(FaultSignal::KeyDenied),
                    outcome => outcome,
                };
                if let Err(fault) = outcome
                    && !recovered(&thread, &mut context, &space, Some(address.0))
                {
                    signal::force(&thread, SignalInfo::of_page_fault(fault, address, &trap));
                }
            }
            Stop::Trap(trap @ Trap::Fault { .. }) => {
                counters::here().faults.add(1);
                if !recovered(&thread, &mut context, &space, None) {
                    signal::force(&thread, SignalInfo::of_fault(&trap));
                }
            }
        }
        thread.processor_time.handled(sample);
        let (since_ns, used_before_ns) = thread.processor_time.run();
        slice.observe(since_ns, used_before_ns);
        let now_ns = if task::has_ready() { time::now_ns() } else { 0 };
        let is_used_up = slice.is_used_up(now_ns);
        let idle = if is_used_up { idle_core(&thread) } else { None };
        if idle.is_some() || !may_stay(&thread) {
            drop(space);
            user::release(&mut context);
            user::leave_space();
            machine::thread_ended();
            return Some((context, idle));
        }
        if now_ns >= slice.end_ns(task::has_woken()) || machine::is_any_waiting() {
            task::yield_now().await;
            thread.sequence.interrupted();
            if is_used_up {
                slice = whole_slice(&thread);
            }
        }
    }
    if thread.restrictions.is_traced() {
        tracing::stop::before_end(&thread, &mut context).await;
    }
    drop(space);
    user::release(&mut context);
    drop(context);
    process::exit::finish_thread(thread).await;
    user::leave_space();
    machine::thread_ended();
    None
}

/// A call of a traced thread, without the stop at its end. Its number; `None` for what is no call of the
/// program.
async fn traced_call(
    thread: &Arc<Thread>,
    context: &mut UserContext,
    space: &Arc<AddressSpace>,
) -> Option<usize> {
    if trampoline::is_finish(context.call_number(), context, space.sites()) {
        if let Some(finished) = trampoline::finish(thread, context, space).await {
            finish_posted(thread, context, finished).await;
        }
        return None;
    }
    let number = context.call_number();
    if !Box::pin(tracing::stop::at_entry(thread, context)).await {
        return Some(number);
    }
    // The tracer may have chosen another one.
    let number = context.call_number();
    if thread.restrictions.mode() == seccomp::MODE_NONE || !seccomp::stops(thread, context, number)
    {
        system_call(thread, context, number).await;
    }
    Some(number)
}

/// A new slice, which begins with the run that is going on.
fn whole_slice(thread: &Thread) -> Slice {
    let (since_ns, used_before_ns) = thread.processor_time.run();
    Slice::new(since_ns, used_before_ns)
}

/// Whether a fault was caused by a patched site and is dealt with.
fn recovered(
    thread: &Arc<Thread>,
    context: &mut UserContext,
    space: &AddressSpace,
    address: Option<u64>,
) -> bool {
    let Some(sites) = space.sites() else { return false };
    match trampoline::recover(context, space, sites, address) {
        Recovery::None => false,
        Recovery::NoSuchCall => true,
        Recovery::NullCall => {
            let null = VirtAddr(0);
            let fault = FaultSignal::NotMapped;
            signal::force(thread, SignalInfo::of_page_fault(fault, null, &trampoline::NULL_CALL));
            true
        }
    }
}

/// Why a thread left the loop of traps that need no task.
enum Stop {
    /// It has something else to attend to first.
    StaysOut,
    /// A trap to be handled.
    Trap(Trap),
    /// A call that is carried out here, by a handler.
    Local {
        /// Its number.
        number: usize,
        /// Stamp of its trap.
        trapped: u64,
        /// Its cost is wanted.
        is_timed: bool,
    },
    /// A remote call that was sent and whose answer has not come yet.
    Sent {
        /// Its number.
        number: usize,
        /// Stamps of its stages.
        trapped: u64,
        /// Likewise.
        sent: u64,
    },
}

/// Runs the thread in user mode until it needs more than an answer that is at hand or comes at once.
/// With other threads ready on this core, a timer bounds the stay.
fn stay_in_user_mode(
    thread: &Arc<Thread>,
    context: &mut UserContext,
    space: &Arc<AddressSpace>,
    slice: &Slice,
) -> Stop {
    counters::note_entry(thread.number(), &thread.counters);
    loop {
        let may_enter = |is_any_ready| {
            if thread.has_attention() || machine::is_any_waiting() {
                return false;
            }
            if is_any_ready {
                time::interrupt_at(slice.end_ns(task::has_woken()));
            }
            true
        };
        let Some(trap) = user::run(context, space.handle(), may_enter) else {
            return Stop::StaysOut;
        };
        if trap != Trap::SystemCall {
            thread.counters.traps.add(u64::from(trap != Trap::Interrupt));
            return Stop::Trap(trap);
        }
        thread.counters.traps.add(1);
        if let Some(sites) = space.sites() {
            trampoline::arrive(thread, context, space, sites);
        }
        if thread.restrictions.is_active() {
            return Stop::Trap(Trap::SystemCall);
        }
        let number = context.call_number();
        let arguments = context.call_arguments();
        let trapped = stages::stamp();
        if let Some(result) = posted::submit_at_once(number, &arguments, thread) {
            counters::note_local(&thread.process.counters, number);
            context.set_return_value(encode(result));
            continue;
        }
        let Some(Way { path, is_timed }) = way_of(thread, number) else {
            let taken = stages::stamp();
            if !servers::go_on_at_once(number, thread, context, space) {
                return Stop::Trap(Trap::SystemCall);
            }
            counters::note_local(&thread.process.counters, number);
            stages::local(number, || thread.number(), (trapped, taken), 0);
            continue;
        };
        let begin_ns = if is_timed { time::now_ns() } else { 0 };
        match path {
            CallPath::Local => {
                let taken = stages::stamp();
                match servers::answer_at_once(number, &arguments, thread, Some(space)) {
                    Some(value) => {
                        counters::note_local(&thread.process.counters, number);
                        context.set_return_value(value);
                        stages::local(number, || thread.number(), (trapped, taken), 0);
                        if is_timed {
                            note_cost(thread, number, false, begin_ns);
                        }
                    }
                    None => return Stop::Local { number, trapped, is_timed },
                }
            }
            CallPath::Remote | CallPath::Posted => {
                let sent = stages::stamp();
                if !request::submit(thread, number, arguments) {
                    return Stop::Trap(Trap::SystemCall);
                }
                counters::note_remote(&thread.process.counters, number);
                match thread.slot.answer_soon() {
                    Some(Err(call::AT_HOME)) => {
                        return Stop::Local { number, trapped, is_timed };
                    }
                    Some(result) => {
                        note_answer(thread, number, (trapped, sent), result);
                        finish_call(thread, context, number, result);
                        if is_timed {
                            note_cost(thread, number, true, begin_ns);
                        }
                    }
                    None => return Stop::Sent { number, trapped, sent },
                }
            }
        }
    }
}

/// The answer to a remote call is here; stamps of its trap and of its being sent. A call that found no
/// room has not begun: nobody left stamps of it, and it is recorded where it is carried out.
#[inline]
fn note_answer(thread: &Thread, number: usize, stamps: (u64, u64), result: SysResult) {
    if result != Err(call::AT_HOME) {
        stages::answered(number, thread.number(), stamps, || thread.slot.served());
    }
}

/// Has a call carried out on this core by its handler.
async fn at_home(
    thread: &Arc<Thread>,
    number: usize,
    arguments: [u64; 6],
    trapped: u64,
    is_timed: bool,
) -> SysResult {
    counters::note_local(&thread.process.counters, number);
    let begin_ns = if is_timed { time::now_ns() } else { 0 };
    let call = Call::trapped(thread, number, arguments);
    let handler = pin!(dispatch::dispatch(&call));
    let watched = counters::watch(&thread.process.counters, number, false, handler).await;
    stages::local(number, || thread.number(), (trapped, trapped), watched.waited_ticks);
    if is_timed && !watched.waited {
        note_cost(thread, number, false, begin_ns);
    }
    watched.output
}

async fn system_call(thread: &Arc<Thread>, context: &mut UserContext, number: usize) {
    let arguments = context.call_arguments();
    let trapped = stages::stamp();
    let result = match way_of(thread, number).map(|way| way.path) {
        Some(CallPath::Local) => at_home(thread, number, arguments, trapped, false).await,
        Some(CallPath::Remote | CallPath::Posted) => {
            counters::note_remote(&thread.process.counters, number);
            let answer = pin!(request::remote(thread, number, arguments));
            let result =
                counters::watch(&thread.process.counters, number, true, answer).await.output;
            note_answer(thread, number, (trapped, trapped), result);
            match result {
                Err(call::AT_HOME) => at_home(thread, number, arguments, trapped, false).await,
                result => result,
            }
        }
        None if route::route(number).is_none() => {
            counters::note_local(&thread.process.counters, number);
            Err(call::unknown(number))
        }
        None => {
            counters::note_local(&thread.process.counters, number);
            let call = Call::trapped(thread, number, arguments);
            let handler = pin!(dispatch::dispatch_local(&call, context));
            let (result, waited) = stages::with_waits(handler).await;
            stages::local(number, || thread.number(), (trapped, trapped), waited);
            result
        }
    };
    finish_call(thread, context, number, result);
}

/// The kernel took the answer of a call that a trampoline had posted. One that was refused for want of
/// room is carried out here.
async fn finish_posted(thread: &Arc<Thread>, context: &mut UserContext, finished: Finished) {
    let Finished { number, mut result } = finished;
    if result == Err(posted::must_trap()) {
        let arguments = context.call_arguments();
        result = at_home(thread, number, arguments, stages::stamp(), false).await;
    }
    finish_call(thread, context, number, result);
}

/// Puts the answer into the registers; restart codes are noted for the delivery of signals.
fn finish_call(thread: &Arc<Thread>, context: &mut UserContext, number: usize, result: SysResult) {
    match result {
        Err(errno) if errno.is_restart() => signal::note_restart(thread, context, number, errno),
        // These two set the registers themselves, whole.
        Ok(_) if signal::replaces_registers(number) => {}
        result => context.set_return_value(encode(result)),
    }
}
