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
use core::sync::atomic::{AtomicU8, Ordering};

use base::cpu::CpuId;
use base::memory::OutOfMemory;
use base::user::{self, UserContext};
use base::{task, time};
use hal::{Trap, UserContext as _, VirtAddr};
use policy::place::{self, CoreSet};
use policy::route::{self, CallPath, Paths};
use policy::table::number;

use crate::call::{Call, SysResult};
use crate::memory::{Access, AddressSpace, FaultSignal};
use crate::posted::trampoline::{self, Finished, Recovery};
use crate::process::{self, Thread};
use crate::request::{self, encode};
use crate::signal::{self, BeforeUser, SignalInfo};
use crate::{boot, core_loop, counters, dispatch, posted, servers, stages};

/// How long a thread may run while others on its core are ready, in nanoseconds.
const TIME_SLICE_NS: u64 = 4_000_000;

/// Wait status of a process that `SIGKILL` ended.
const KILLED: u32 = 9;

/// The path that calls take unless they must stay; set once at boot.
static PATH: AtomicU8 = AtomicU8::new(CallPath::Remote as u8);

/// Sets the path in force.
pub fn set_path(path: CallPath) {
    PATH.store(path as u8, Ordering::Relaxed);
}

/// The path in force.
pub fn path() -> CallPath {
    match PATH.load(Ordering::Relaxed) {
        path if path == CallPath::Local as u8 => CallPath::Local,
        path if path == CallPath::Posted as u8 => CallPath::Posted,
        _ => CallPath::Remote,
    }
}

/// Chooses an application core for a new thread and starts it there.
pub fn start(thread: Arc<Thread>, context: Box<UserContext>) -> Result<(), OutOfMemory> {
    let allowed = CoreSet(thread.affinity.load(Ordering::Relaxed));
    let parent = CpuId::current().index();
    let core = place::thread_core(boot::layout(), allowed, parent, core_loop::thread_count);
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
        core_loop::thread_ended();
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
            let poll = run.as_mut().poll(context);
            posted::leave_core(&thread);
            thread.processor_time.end();
            poll
        })
        .await
    };
    if let Some(registers) = moving
        && start(thread.clone(), registers).is_err()
    {
        // Its registers are gone with the task that could not be made.
        thread.process.request_group_exit(KILLED);
        process::exit::finish_thread(thread).await;
    }
}

/// Whether the thread may run on the core that it is on. Only an application core can be named by an
/// affinity, so a set without any of them changes nothing.
fn may_stay(thread: &Thread) -> bool {
    let allowed = thread.affinity.load(Ordering::Relaxed);
    allowed & boot::layout().application.0 == 0 || allowed >> CpuId::current().index() & 1 != 0
}

/// Runs a thread to its end, or until it must go on elsewhere: then gives back its registers.
async fn run(thread: Arc<Thread>, mut context: Box<UserContext>) -> Option<Box<UserContext>> {
    core_loop::thread_started();
    let mut space = thread.space();
    trampoline::stand_in(&space, &mut context);
    let mut entered_ns = time::now_ns();
    loop {
        if thread.has_attention() {
            if let Some(sites) = space.sites()
                && let Some(Finished { number, result }) =
                    trampoline::settle(&thread, &mut context, &space, sites).await
            {
                finish_call(&thread, &mut context, number, result);
            }
            if signal::before_user(&thread, &mut context).await == BeforeUser::Exit {
                break;
            }
        }
        let stop = stay_in_user_mode(&thread, &mut context, &space, entered_ns);
        let sample = thread.processor_time.trap();
        match stop {
            Stop::Sent { number, trapped, sent } => {
                let answer = pin!(request::answer(&thread));
                let result = counters::watch(&thread, number, true, answer).await;
                stages::answered(number, trapped, sent);
                finish_call(&thread, &mut context, number, result);
            }
            Stop::Trap(Trap::SystemCall) => {
                let number = context.call_number();
                if trampoline::is_finish(number, &context, space.sites()) {
                    if let Some(Finished { number, result }) =
                        trampoline::finish(&thread, &mut context, &space).await
                    {
                        finish_call(&thread, &mut context, number, result);
                    }
                } else {
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
                if let Err(fault) = space.fault(address, access).await
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
        // Who had to wait has a whole slice again.
        entered_ns = entered_ns.max(thread.processor_time.running_since_ns());
        if !may_stay(&thread) {
            drop(space);
            user::release(&mut context);
            user::leave_space();
            core_loop::thread_ended();
            return Some(context);
        }
        if task::has_ready() && time::now_ns().wrapping_sub(entered_ns) >= TIME_SLICE_NS {
            task::yield_now().await;
            entered_ns = time::now_ns();
        }
    }
    drop(space);
    user::release(&mut context);
    drop(context);
    process::exit::finish_thread(thread).await;
    user::leave_space();
    core_loop::thread_ended();
    None
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
    /// A trap to be handled.
    Trap(Trap),
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
    entered_ns: u64,
) -> Stop {
    counters::note_entry(thread);
    loop {
        if task::has_ready() {
            time::interrupt_at(entered_ns + TIME_SLICE_NS);
        }
        let trap = user::run(context, space.handle(), || thread.has_attention());
        if trap != Trap::Interrupt {
            thread.counters.traps.add(1);
        }
        if trap == Trap::SystemCall
            && let Some(sites) = space.sites()
        {
            trampoline::arrive(thread, context, space, sites);
        }
        if trap != Trap::SystemCall {
            return Stop::Trap(trap);
        }
        let number = context.call_number();
        let arguments = context.call_arguments();
        let trapped = stages::stamp();
        if let Some(result) = posted::submit_at_once(number, &arguments, thread) {
            counters::note_local(thread, number);
            context.set_return_value(encode(result));
            continue;
        }
        match path_of(number) {
            None => return Stop::Trap(trap),
            Some(CallPath::Local) => {
                let taken = stages::stamp();
                match servers::answer_at_once(number, &arguments, thread, Some(space)) {
                    Some(value) => {
                        counters::note_local(thread, number);
                        context.set_return_value(value);
                        stages::local(number, trapped, taken);
                    }
                    None => return Stop::Trap(trap),
                }
            }
            Some(CallPath::Remote | CallPath::Posted) => {
                let sent = stages::stamp();
                if !request::submit(thread, number, arguments) {
                    return Stop::Trap(trap);
                }
                counters::note_remote(thread, number);
                match thread.slot.answer_soon() {
                    Some(result) => {
                        stages::answered(number, trapped, sent);
                        finish_call(thread, context, number, result);
                    }
                    None => return Stop::Sent { number, trapped, sent },
                }
            }
        }
    }
}

/// The path that a call takes now; `None` when it is unknown or must stay.
#[inline]
fn path_of(number: usize) -> Option<CallPath> {
    let row = route::route(number)?;
    if row.paths == Paths::LOCAL {
        return None;
    }
    let other_core = servers::of_class(row.class).core() != CpuId::current();
    Some(route::choose_path(row, path(), other_core))
}

async fn system_call(thread: &Arc<Thread>, context: &mut UserContext, number: usize) {
    let arguments = context.call_arguments();
    let trapped = stages::stamp();
    let result = match path_of(number) {
        Some(CallPath::Local) => {
            counters::note_local(thread, number);
            let call = Call::trapped(thread, number, arguments);
            let handler = pin!(dispatch::dispatch(&call));
            let result = counters::watch(thread, number, false, handler).await;
            stages::local(number, trapped, trapped);
            result
        }
        Some(CallPath::Remote | CallPath::Posted) => {
            counters::note_remote(thread, number);
            let answer = pin!(request::remote(thread, number, arguments));
            let result = counters::watch(thread, number, true, answer).await;
            stages::answered(number, trapped, trapped);
            result
        }
        None if route::route(number).is_none() => {
            counters::note_local(thread, number);
            Err(dispatch::unknown(number))
        }
        None => {
            counters::note_local(thread, number);
            let call = Call::trapped(thread, number, arguments);
            let result = dispatch::dispatch_local(&call, context).await;
            stages::local(number, trapped, trapped);
            result
        }
    };
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
