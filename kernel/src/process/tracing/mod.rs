//! Tracing (`ptrace`): who traces whom, where a tracee stands, and what its tracer is told.
//!
//! ```text
//!            a signal, a call, an event, PTRACE_INTERRUPT
//!   running ----------------------------------------------> stopped: registers in `TraceStop`
//!      ^                                                        |  read and changed by the tracer
//!      +---- PTRACE_CONT and its kin, detach, SIGKILL ----------+
//! ```
//!
//! A tracee stops in its own task, outside of every call (`stop`). It leaves a copy of its registers in its
//! `Tracing`, which the tracer reads and changes there; what was changed is taken over when it goes on. A
//! traced thread posts nothing: each of its calls traps, as if it were restricted (`seccomp`).
//!
//! A program whose tracer may not look into everything gains no rights by `execve`: what it would gain is left
//! out when the program is found (`is_by_lesser`), and a tracer that came in between loses it when credentials and
//! memory are replaced (`after_gain`). Who begins to trace looks at the credentials before and after, so that
//! one of the two sees the other.
//!
//! Locks: the list of tracees of the tracer's process (`PROCESS`), then `TRACING` of the tracee, under which
//! nobody is told or woken.
//!
//! Left out: hardware breakpoints (the debug registers are kept only), events of filters
//! (`PTRACE_O_TRACESECCOMP`), and calls that a program posts by itself (`ferry_register`).

pub mod registers;
pub mod stop;

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use abi::Errno;
use abi::ptrace::{UserRegisters, option};
use abi::signal::{CLD_TRAPPED, SA_NOCLDSTOP, SIG_IGN, Signal};
use base::sync::{LockClass, Mutex, MutexGuard};

use super::access::Observer;
use super::credentials::Capability;
use super::exit::describe;
use super::ids::{Pid, Tid};
use super::process::{Process, UsageSum};
use super::thread::Thread;
use crate::signal::{self, SignalInfo};

/// The tracing of one thread.
static TRACING: LockClass = LockClass { name: "tracing", rank: 48 };

/// How a tracee goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Until something happens to it.
    #[default]
    Free,
    /// To the begin or end of a call.
    Calls,
    /// One instruction.
    Step,
    /// To the begin of a call, which is not carried out.
    Emulation,
    /// The same, or one instruction.
    EmulationStep,
}

impl Mode {
    /// Whether it stops at the begin of a call.
    pub fn stops_at_calls(self) -> bool {
        matches!(self, Mode::Calls | Mode::Emulation | Mode::EmulationStep)
    }

    /// Whether it stops after an instruction.
    pub fn is_step(self) -> bool {
        matches!(self, Mode::Step | Mode::EmulationStep)
    }
}

/// What a tracee stopped for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A signal that it is about to take.
    Signal,
    /// The begin of a call.
    Entry,
    /// The end of a call.
    Exit,
    /// Something that an option asked for, or `PTRACE_INTERRUPT`.
    Event,
    /// Its process stopped.
    Group,
}

/// A tracee that stands.
pub struct TraceStop {
    /// What for.
    pub kind: Kind,
    /// The signal, and the event in the second byte.
    pub code: u32,
    /// What is known of the signal.
    pub info: Option<SignalInfo>,
    /// General registers.
    pub registers: UserRegisters,
    /// The state as the machine saves it.
    pub fpu: Vec<u8>,
    /// The tracer has changed the registers.
    pub is_changed: bool,
    /// The tracer has changed the floating-point state.
    pub is_fpu_changed: bool,
    /// `wait` has told of it.
    is_reported: bool,
    /// `PTRACE_LISTEN`: it stands on, but not for its tracer.
    is_listening: bool,
    /// It goes on with this signal, or none.
    resumed: Option<i32>,
}

/// Guarded by the lock of [`Tracing`].
#[derive(Default)]
pub struct TraceState {
    tracer: Option<Tracer>,
    is_seized: bool,
    /// `option::…`
    pub options: u32,
    /// How it went on.
    pub mode: Mode,
    /// Where it stands.
    pub stop: Option<TraceStop>,
    /// Of the last event.
    pub message: u64,
    /// The debug registers, as its tracer set them.
    pub debug: [u64; 8],
}

/// Who traces.
#[derive(Clone)]
struct Tracer {
    thread: Tid,
    process: Weak<Process>,
    /// It could look into everything when it began.
    may_trace: bool,
}

/// The tracing of a thread.
pub struct Tracing {
    state: Mutex<TraceState>,
}

/// Whom the threads of a process trace; guarded by a lock of the process's rank.
#[derive(Default)]
pub struct Tracees {
    threads: Vec<Weak<Thread>>,
    /// Tracees that have ended and are no children, or no processes.
    ended: Vec<Ended>,
    /// Who traced the first thread of this process, which has ended.
    leader_tracer: Weak<Process>,
}

/// The end of a tracee.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Its number.
    pub tid: Tid,
    /// Its group.
    pub group: Pid,
    /// Its real user.
    pub user: u32,
    /// Wait status.
    pub status: u32,
    /// What it used.
    pub usage: UsageSum,
}

impl Tracing {
    /// Of a thread that nobody traces.
    pub fn new() -> Tracing {
        Tracing { state: Mutex::new(&TRACING, TraceState::default()) }
    }

    /// The state.
    pub fn lock(&self) -> MutexGuard<'_, TraceState> {
        self.state.lock()
    }

    /// The number of the thread that traces this one; 0 for none.
    pub fn tracer(&self) -> i32 {
        self.lock().tracer.as_ref().map_or(0, |tracer| tracer.thread.0)
    }

    /// The process that traces this thread.
    pub fn tracing_process(&self) -> Option<Arc<Process>> {
        self.lock().tracer.as_ref()?.process.upgrade()
    }

    /// Whether it stands for its tracer.
    pub fn is_stopped(&self) -> bool {
        self.lock().stop.is_some()
    }

    /// Whether it was seized rather than attached to.
    pub fn is_seized(&self) -> bool {
        self.lock().is_seized
    }

    /// The code of a stop that `wait` has not told of; `consume` marks it as told.
    pub fn report(&self, consume: bool) -> Option<u32> {
        let mut state = self.lock();
        let stop = state.stop.as_mut()?;
        if stop.is_reported || stop.is_listening || stop.resumed.is_some() {
            return None;
        }
        stop.is_reported = consume;
        Some(stop.code)
    }
}

impl Default for Tracing {
    fn default() -> Self {
        Tracing::new()
    }
}

impl TraceState {
    /// Whether this thread traces it.
    pub fn is_traced_by(&self, thread: &Thread) -> bool {
        let same = |tracer: &Tracer| {
            tracer.thread == thread.tid()
                && core::ptr::eq(tracer.process.as_ptr(), Arc::as_ptr(&thread.process))
        };
        self.tracer.as_ref().is_some_and(same)
    }

    /// Whether it stands where its tracer can work with it.
    pub fn is_ready(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.resumed.is_none() && !stop.is_listening)
    }

    /// Lets it go on. True when it stood.
    pub fn resume(&mut self, mode: Mode, signal: i32) -> bool {
        self.mode = mode;
        let Some(stop) = &mut self.stop else { return false };
        stop.resumed = Some(signal);
        true
    }

    /// It stands on until its process continues, and its tracer can do nothing with it meanwhile.
    ///
    /// # Errors
    /// `EIO` when it does not stand with its process, or was not seized.
    pub fn listen(&mut self) -> Result<(), Errno> {
        let is_seized = self.is_seized;
        let is_stop = |stop: &&mut TraceStop| {
            is_seized && stop.code >> 8 == abi::ptrace::event::STOP && stop.resumed.is_none()
        };
        let stop = self.stop.as_mut().filter(is_stop).ok_or(Errno::EIO)?;
        stop.is_listening = true;
        Ok(())
    }
}

impl Tracees {
    /// The tracees that live.
    fn living(&mut self) -> Vec<Arc<Thread>> {
        self.threads.retain(|thread| thread.strong_count() > 0);
        self.threads.iter().filter_map(Weak::upgrade).collect()
    }
}

/// The tracees of a process that live.
pub fn tracees(process: &Process) -> Vec<Arc<Thread>> {
    process.tracees.lock().living()
}

/// The end of a tracee that `wanted` chooses; `consume` takes it out.
pub fn ended(process: &Process, consume: bool, wanted: impl Fn(&Ended) -> bool) -> Option<Ended> {
    let mut tracees = process.tracees.lock();
    let place = tracees.ended.iter().position(wanted)?;
    if consume { Some(tracees.ended.remove(place)) } else { tracees.ended.get(place).copied() }
}

/// `tracer` traces `tracee` from now on.
///
/// # Errors
/// `EPERM` when it may not look into it, or somebody traces it already; `ENOMEM`.
pub fn begin(
    tracer: &Thread,
    tracee: &Arc<Thread>,
    is_seized: bool,
    options: u32,
) -> Result<(), Errno> {
    let observer = Observer::of_call(tracer);
    observer.look_into(tracee)?;
    let of_tracer = Tracer {
        thread: tracer.tid(),
        process: Arc::downgrade(&tracer.process),
        may_trace: tracer.credentials().is_capable(Capability::Trace),
    };
    begin_for(of_tracer, tracee, is_seized, options)?;
    // It may have become another program meanwhile.
    observer.look_into(tracee).map(drop).inspect_err(|_| end(tracee, None))
}

/// Whether somebody traces it who may not look into everything.
pub fn is_by_lesser(thread: &Thread) -> bool {
    thread.tracing.lock().tracer.as_ref().is_some_and(|tracer| !tracer.may_trace)
}

/// The thread became a program with more rights, as everybody can see by now.
pub fn after_gain(thread: &Arc<Thread>) {
    if is_by_lesser(thread) {
        end(thread, None);
    }
}

fn begin_for(
    tracer: Tracer,
    tracee: &Arc<Thread>,
    is_seized: bool,
    options: u32,
) -> Result<(), Errno> {
    let process = tracer.process.upgrade().ok_or(Errno::ESRCH)?;
    {
        let mut list = process.tracees.lock();
        list.threads.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let mut state = tracee.tracing.lock();
        if state.tracer.is_some() {
            return Err(Errno::EPERM);
        }
        *state = TraceState { tracer: Some(tracer), is_seized, options, ..TraceState::default() };
        tracee.restrictions.set_traced(true);
        list.threads.push(Arc::downgrade(tracee));
    }
    tracee.signals.raise_attention();
    tracee.kick();
    Ok(())
}

/// The parent of the caller's process traces the caller (`PTRACE_TRACEME`).
///
/// # Errors
/// `EPERM` when the parent may less than the caller, or somebody traces it already; `ENOMEM`.
pub fn begin_by_parent(tracee: &Arc<Thread>) -> Result<(), Errno> {
    let parent = tracee.process.parent().ok_or(Errno::EPERM)?;
    let main = parent.main_thread();
    let (mut may_trace, mut capabilities) = (false, 0);
    if let Some(main) = &main {
        let credentials = main.credentials();
        may_trace = credentials.is_capable(Capability::Trace);
        capabilities = credentials.capabilities.permitted;
    }
    if !may_trace && tracee.credentials().capabilities.permitted & !capabilities != 0 {
        return Err(Errno::EPERM);
    }
    let thread = main.map_or(parent.pid.leader(), |thread| thread.tid());
    let process = Arc::downgrade(&parent);
    begin_for(Tracer { thread, process, may_trace }, tracee, false, 0)
}

/// A child is traced as its parent is. Nothing happens when that one is not traced any more.
pub fn inherit(parent: &Thread, child: &Arc<Thread>) {
    let (tracer, is_seized, options) = {
        let state = parent.tracing.lock();
        let Some(tracer) = state.tracer.clone() else { return };
        (tracer, state.is_seized, state.options)
    };
    if begin_for(tracer, child, is_seized, options).is_err() {
        return;
    }
    if is_seized {
        child.signals.want_trap();
    } else {
        let _ = signal::send_to_thread(child, SignalInfo::kill(Signal::SIGSTOP, 0, 0));
    }
}

/// Nobody traces it any more. It goes on with this signal if it stood; with what it stopped for when that
/// is `None`.
pub fn end(tracee: &Arc<Thread>, with: Option<i32>) {
    let former = {
        let mut state = tracee.tracing.lock();
        state.options = 0;
        state.mode = Mode::Free;
        if let Some(stop) = &mut state.stop {
            let own = if stop.kind == Kind::Signal { stop.code as i32 & 0x7f } else { 0 };
            stop.resumed = stop.resumed.or(Some(with.unwrap_or(own)));
        }
        tracee.restrictions.set_traced(false);
        state.tracer.take()
    };
    if let Some(process) = former.and_then(|tracer| tracer.process.upgrade()) {
        let is_other = |other: &Weak<Thread>| !core::ptr::eq(other.as_ptr(), Arc::as_ptr(tracee));
        process.tracees.lock().threads.retain(is_other);
    }
    tracee.signals.raise_attention();
    tracee.kick();
}

/// Tells the tracer that its tracee stopped.
fn tell(tracee: &Thread, code: u32) {
    let Some(tracer) = tracee.tracing.tracing_process() else { return };
    let action = tracer.signals.actions().get(Signal::SIGCHLD);
    if action.handler != SIG_IGN && action.flags & SA_NOCLDSTOP == 0 {
        let usage = tracee.process.usage();
        let info = SignalInfo::child(
            CLD_TRAPPED,
            tracee.tid().0,
            tracee.credentials().user.real,
            (code & 0x7f).cast_signed(),
            usage.user_ticks(),
            usage.system_ticks(),
        );
        let _ = signal::send_to_process(&tracer, info);
    }
    tracer.signals.child_events.wake_all();
}

/// Puts the end of a tracee where its tracer finds it, and tells it.
fn leave_word(tracer: &Arc<Process>, ended: Ended) {
    {
        let mut list = tracer.tracees.lock();
        if list.ended.try_reserve(1).is_err() {
            return;
        }
        list.ended.push(ended);
    }
    let (code, value) = describe(ended.status);
    let (user, system) = (ended.usage.user_ticks(), ended.usage.system_ticks());
    let info = SignalInfo::child(code, ended.tid.0, ended.user, value, user, system);
    let _ = signal::send_to_process(tracer, info);
    tracer.signals.child_events.wake_all();
}

/// A thread has ended, its process too if `process_status` is there: its tracer is told, and whom it traced
/// goes on or is killed.
pub fn thread_ended(thread: &Arc<Thread>, process_status: Option<u32>) {
    let process = &thread.process;
    let is_leader = thread.tid() == process.pid.leader();
    let word = |tid, status| Ended {
        tid,
        group: process.group(),
        user: thread.credentials().user.real,
        status,
        usage: thread.usage(),
    };
    if thread.restrictions.is_traced() {
        let tracer = thread.tracing.tracing_process();
        end(thread, None);
        if let Some(tracer) = tracer {
            if is_leader {
                process.tracees.lock().leader_tracer = Arc::downgrade(&tracer);
            } else {
                let own = thread.exit_request().or(process.group_exit()).unwrap_or(0);
                leave_word(&tracer, word(thread.tid(), own));
            }
        }
    }
    if let Some(status) = process_status {
        let tracer = process.tracees.lock().leader_tracer.upgrade();
        let is_parent = |tracer: &Arc<Process>| tracer.pid == process.parent_pid();
        if let Some(tracer) = tracer.filter(|tracer| !is_parent(tracer)) {
            leave_word(&tracer, word(process.pid.leader(), status));
        }
    }
    for tracee in tracees(process) {
        let (is_mine, kills) = {
            let state = tracee.tracing.lock();
            (state.is_traced_by(thread), state.options & option::EXITKILL != 0)
        };
        if is_mine {
            end(&tracee, None);
            if kills {
                tracee.process.request_group_exit(Signal::SIGKILL.number().unsigned_abs());
            }
        }
    }
}

/// Whether the child process is traced by this process, so that only stops for the tracer are told.
pub fn is_traced_by(child: &Process, process: &Arc<Process>) -> bool {
    let mut is_traced = false;
    child.for_each_thread(|thread| {
        is_traced |= thread.restrictions.is_traced()
            && thread.tracing.tracing_process().is_some_and(|tracer| Arc::ptr_eq(&tracer, process));
    });
    is_traced
}

/// Address of the record of restartable sequences, 0 for none, and its signature, for a tracer.
pub fn sequence_of(thread: &Thread) -> (u64, u32) {
    thread.sequence.registration()
}

/// Counts as an involuntary switch: it was made to stand.
fn count_stop(thread: &Thread) {
    thread.involuntary_switches.fetch_add(1, Ordering::Relaxed);
}
