//! Making threads and processes: `fork`, `vfork`, `clone`, `clone3`.
//!
//! All four come down to one `CloneRequest`, checked as Linux checks it. The child is made from what
//! it shares and what it copies; only then is it put into the tree and the list of threads, and last
//! its task starts. Until then nothing has happened that dropping the parts would not undo.
//!
//! A signal sent to the group while the child is made reaches either both or the parent before the
//! child exists: when the parent has attention under the tree's lock, the call is restarted.
//!
//! Left out, and refused with `EINVAL`: namespaces but those of host names and mounts, control groups, chosen numbers.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use abi::Errno;
use abi::fs::OpenFlags;
use abi::process::*;
use abi::signal::Signal;
use base::user::{self, UserContext};
use base::wait::WaitQueue;
use hal::UserContext as _;

use super::exit;
use super::file_table::{Closed, FileTable};
use super::ids::{Pid, Tid};
use super::limits::Resource;
use super::namespace;
use super::pidfd::ProcessFile;
use super::process::Process;
use super::table::{self, ReservedNumber};
use super::thread::{NewThread, Thread};
use super::tracing;
use crate::call::{Call, SysResult, in_turns};
use crate::ipc::undo::UndoShare;
use crate::memory::{AddressSpace, USER_END, UserMemory};

/// What a new thread or process is to be.
#[derive(Clone, Copy, Debug, Default)]
pub struct CloneRequest {
    /// `CLONE_…`, without the exit signal.
    pub flags: u64,
    /// Signal to the parent at the child's end; 0 for none.
    pub exit_signal: i32,
    /// Top of the child's stack; 0 to keep the parent's.
    pub stack: u64,
    /// The child's thread pointer, with `CLONE_SETTLS`.
    pub tls: u64,
    /// Where the number goes in the parent's memory, with `CLONE_PARENT_SETTID`.
    pub parent_tid: u64,
    /// Where the number goes, or is cleared, in the child's memory.
    pub child_tid: u64,
    /// Where the descriptor of the child goes in the parent's memory, with `CLONE_PIDFD`.
    pub pidfd: u64,
}

/// Where a parent waits in `vfork` until the child has given up the shared memory.
pub struct VforkGate {
    is_open: AtomicBool,
    queue: WaitQueue,
}

impl VforkGate {
    fn new() -> VforkGate {
        VforkGate { is_open: AtomicBool::new(false), queue: WaitQueue::new() }
    }

    /// The child has executed a program or ended.
    pub fn open(&self) {
        self.is_open.store(true, Ordering::Release);
        self.queue.wake_all();
    }

    async fn wait(&self) {
        self.queue.wait_until(|| self.is_open.load(Ordering::Acquire).then_some(())).await;
    }
}

impl CloneRequest {
    fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// `EINVAL` for flags that exclude one another, or that Ferry does not have.
    fn check(&self, parent: &Process) -> Result<(), Errno> {
        let contradictory = (self.has(CLONE_THREAD) && !self.has(CLONE_SIGHAND))
            || (self.has(CLONE_SIGHAND) && !self.has(CLONE_VM))
            || (self.has(CLONE_SIGHAND) && self.has(CLONE_CLEAR_SIGHAND))
            || (self.has(CLONE_PIDFD) && self.has(CLONE_THREAD))
            || (self.has(CLONE_PARENT) && parent.parent_pid() == Pid(0));
        let threads_differ = self.has(CLONE_NEWNS) && self.has(CLONE_FS)
            || self.has(CLONE_NEWUSER) && self.has(CLONE_FS)
            || self.has(CLONE_NEWUSER | CLONE_NEWPID) && self.has(CLONE_THREAD | CLONE_PARENT);
        if contradictory || threads_differ || self.has(CLONE_INTO_CGROUP) {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }
}

/// Makes a thread or process; returns its number. With `CLONE_VFORK` only once the child has given up
/// the shared memory.
pub async fn clone_thread(
    call: &Call,
    context: &mut UserContext,
    request: CloneRequest,
) -> SysResult {
    let parent = &call.thread;
    request.check(&parent.process)?;
    if request.has(CLONE_NAMESPACES) {
        namespace::check_new(parent, request.flags)?;
        // What is to be given back belongs to semaphores of one namespace.
        if request.has(CLONE_NEWIPC) && request.has(CLONE_SYSVSEM) {
            return Err(Errno::EINVAL);
        }
    }
    if request.has(CLONE_SETTLS) && request.tls >= USER_END {
        return Err(Errno::EPERM);
    }
    if parent.has_attention() {
        return Err(Errno::ERESTARTNOINTR);
    }
    let credentials = parent.credentials();
    let is_exempt = credentials.is_capable(super::Capability::Resource)
        || credentials.is_capable(super::Capability::Administer)
        || credentials.user.real == 0;
    let user_limit =
        if is_exempt { u64::MAX } else { parent.process.limits.soft(Resource::Threads) };
    let number = table::lock().reserve_number(credentials.user.real, user_limit)?;
    let tid = Tid(number.get());

    let copy = if request.has(CLONE_VM) { None } else { Some(copy_memory(call, tid).await?) };
    let gate = request.has(CLONE_VFORK).then(|| Arc::new(VforkGate::new()));
    let files = if request.has(CLONE_FILES) {
        None
    } else {
        Some(Arc::new(parent.files().duplicate_in_turns(u32::MAX).await?))
    };
    let child = make_thread(parent, tid, &request, copy.clone(), files.clone(), gate.clone())?;
    child.placement.store(parent.placement.load(Ordering::Relaxed), Ordering::Relaxed);
    let descriptor = if request.has(CLONE_PIDFD) {
        let limit = parent.process.limits.soft(Resource::Files);
        let reservation = parent.files().reserve(true, limit)?;
        let file = ProcessFile::open(child.process.clone(), OpenFlags::empty())?;
        call.user().write_value(request.pidfd, &reservation.descriptor()).await?;
        Some((reservation, file))
    } else {
        None
    };
    let mut registers = Box::new(duplicate(context));
    registers.set_return_value(0);
    if request.stack != 0 {
        registers.set_stack_pointer(request.stack);
    }
    if request.has(CLONE_SETTLS) {
        registers.set_thread_pointer(request.tls);
    }

    if let Err(error) = publish(parent, &child, number, &request) {
        drop(child);
        if let Some(files) = files {
            exit::close_in_turns(&files, Closed::All).await;
        }
        return Err(error);
    }
    drop(files);
    if let Some(copy) = copy {
        parent.space().forget_copy(&copy);
    }
    if let Some((reservation, file)) = descriptor {
        reservation.install(file);
    }
    if request.has(CLONE_PARENT_SETTID) {
        let _ = call.user().write_value(request.parent_tid, &tid.0).await;
    }
    if request.has(CLONE_CHILD_SETTID) {
        let _ = UserMemory::new(child.space()).write_value(request.child_tid, &tid.0).await;
    }
    let event = tracing::stop::event_of_child(parent, &request);
    if event.is_some() {
        tracing::inherit(parent, &child);
    }
    if super::start(child.clone(), registers).is_err() {
        // It has a number and a place in the tree, so it must go the way of all threads.
        child.request_exit(0);
        child.process.exit_signal.store(0, Ordering::Relaxed);
        exit::discard(child);
        return Err(Errno::ENOMEM);
    }
    drop(child);
    if let Some(event) = event {
        tracing::stop::after_child(parent, context, event, tid.0).await;
    }
    if let Some(gate) = gate {
        let _ = parent.killable(gate.wait()).await;
        tracing::stop::after_vfork(parent, context, tid.0).await;
    }
    Ok(tid.to_value())
}

/// Makes the child known: from here on it can be found, waited for and killed.
pub(super) fn publish(
    parent: &Arc<Thread>,
    child: &Arc<Thread>,
    number: ReservedNumber,
    request: &CloneRequest,
) -> Result<(), Errno> {
    let mut tree = table::lock();
    if parent.has_attention() {
        // The number is given back under the tree's lock, which must be free by then.
        drop(tree);
        return Err(Errno::ERESTARTNOINTR);
    }
    if let Err(errno) = child.process.add_thread(child.clone()) {
        drop(tree);
        return Err(errno);
    }
    if !request.has(CLONE_THREAD) {
        let grandparent = if request.has(CLONE_PARENT) { parent.process.parent() } else { None };
        let family = grandparent.as_ref().unwrap_or(&parent.process);
        tree.insert_process(&child.process, family, &parent.process);
    }
    tree.insert_thread(number, child);
    drop(tree);
    if !request.has(CLONE_THREAD) {
        // Without memory for its clock the child runs without that limit; it will not get far.
        let _ = child.process.signals.timers.watch_limit(&child.process);
    }
    Ok(())
}

/// A copy of the caller's memory, made in turns. Threads of the caller that write meanwhile are not
/// stopped; changes of what is mapped wait.
async fn copy_memory(call: &Call, tid: Tid) -> Result<Arc<AddressSpace>, Errno> {
    let change = call.thread.space().begin_change().await;
    let copy = change.begin_copy()?;
    copy.set_owner(tid.0);
    let made = in_turns(&call.thread, 0, |at| change.copy_part(&copy, at)).await;
    if let Err(error) = made {
        drop(change);
        exit::clear_in_turns(&copy).await;
        return Err(error);
    }
    change.end_copy(&copy);
    Ok(copy)
}

fn duplicate(context: &mut UserContext) -> UserContext {
    user::release(context);
    context.duplicate()
}

/// Makes the thread, and its process unless it belongs to the parent's. Nothing knows of it yet.
///
/// `copy` is the child's memory if it does not share the parent's, `files` its descriptors likewise (`None`: they
/// are copied here).
pub(super) fn make_thread(
    parent: &Arc<Thread>,
    tid: Tid,
    request: &CloneRequest,
    copy: Option<Arc<AddressSpace>>,
    files: Option<Arc<FileTable>>,
    gate: Option<Arc<VforkGate>>,
) -> Result<Arc<Thread>, Errno> {
    let mut resources = parent.resources();
    resources.vfork = gate;
    let keys = &resources.credentials.keys;
    if keys.thread.is_some() || (keys.process.is_some() && !request.has(CLONE_THREAD)) {
        let mut credentials = (*resources.credentials).clone();
        credentials.keys = keys.inherit(request.has(CLONE_THREAD));
        resources.credentials = Arc::new(credentials);
    }
    if !request.has(CLONE_FILES) {
        resources.files = match files {
            Some(files) => files,
            None => Arc::new(resources.files.duplicate()?),
        };
    }
    if !request.has(CLONE_FS) {
        resources.directory = Arc::new(resources.directory.duplicate());
    }
    if request.has(namespace::MADE) {
        let renewed = resources.namespaces.renewed(request.flags, &resources.directory);
        resources.namespaces = Arc::new(renewed);
    }
    if let Some(copy) = copy {
        resources.space = copy;
    }
    let process = if request.has(CLONE_THREAD) {
        parent.process.clone()
    } else {
        Arc::new(make_process(parent, tid.as_pid(), request))
    };
    if request.has(CLONE_FS) {
        resources.directory.share()?;
    }
    let keep_alternate_stack = !request.has(CLONE_VM) || request.has(CLONE_VFORK);
    let thread = Thread::new(NewThread {
        tid,
        process,
        signals: parent.signals.inherit(keep_alternate_stack),
        resources,
        affinity: parent.affinity.load(Ordering::Relaxed),
        schedule: parent.schedule.inherit(),
        timer_slack_ns: parent.timer_slack_ns.load(Ordering::Relaxed),
        undo: if request.has(CLONE_SYSVSEM) { parent.undo.share() } else { UndoShare::default() },
    });
    thread.restrictions.take_over(&parent.restrictions);
    if !request.has(CLONE_VM) {
        thread.sequence.take_over(&parent.sequence);
    }
    if request.has(CLONE_CHILD_CLEARTID) {
        thread.clear_child_tid.store(request.child_tid, Ordering::Relaxed);
    }
    Ok(Arc::new(thread))
}

fn make_process(parent: &Thread, pid: Pid, request: &CloneRequest) -> Process {
    let old = &parent.process;
    let signals = if request.has(CLONE_CLEAR_SIGHAND) {
        old.signals.inherit_cleared()
    } else {
        old.signals.inherit(request.has(CLONE_SIGHAND))
    };
    let process = Process::new(pid, signals, old.limits.duplicate());
    let (exit_signal, executions) = if request.has(CLONE_PARENT) {
        (old.exit_signal.load(Ordering::Relaxed), &old.parent_executions)
    } else {
        (request.exit_signal, &old.executions)
    };
    process.exit_signal.store(exit_signal, Ordering::Relaxed);
    process.parent_executions.store(executions.load(Ordering::Relaxed), Ordering::Relaxed);
    let has_left = old.has_left_terminal.load(Ordering::Relaxed);
    process.has_left_terminal.store(has_left, Ordering::Relaxed);
    for (new, old) in
        [(&process.refuses_huge_pages, &old.refuses_huge_pages), (&process.flushes, &old.flushes)]
    {
        new.store(old.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    let policy = old.machine_check_policy.load(Ordering::Relaxed);
    process.machine_check_policy.store(policy, Ordering::Relaxed);
    process.personality.store(old.personality.load(Ordering::Relaxed), Ordering::Relaxed);
    process.kill_preference.store(old.kill_preference.load(Ordering::Relaxed), Ordering::Relaxed);
    let least = old.least_kill_preference.load(Ordering::Relaxed);
    process.least_kill_preference.store(least, Ordering::Relaxed);
    process.set_executable(old.executable());
    process
}

/// `fork`
pub async fn fork(call: &Call, context: &mut UserContext) -> SysResult {
    let request = CloneRequest { exit_signal: Signal::SIGCHLD.number(), ..CloneRequest::default() };
    clone_thread(call, context, request).await
}

/// `vfork`
pub async fn vfork(call: &Call, context: &mut UserContext) -> SysResult {
    let request = CloneRequest {
        flags: CLONE_VM | CLONE_VFORK,
        exit_signal: Signal::SIGCHLD.number(),
        ..CloneRequest::default()
    };
    clone_thread(call, context, request).await
}

/// `clone(flags, stack, parent_tid, child_tid, tls)`
pub async fn clone(call: &Call, context: &mut UserContext) -> SysResult {
    // The upper half of the flags is ignored; the low byte is the exit signal.
    let flags = call.argument(0) & 0xffff_ffff;
    // Both numbers would go to the same place.
    if flags & CLONE_PIDFD != 0 && flags & (CLONE_PARENT_SETTID | CLONE_DETACHED) != 0 {
        return Err(Errno::EINVAL);
    }
    let exit_signal = exit_signal(flags & CSIGNAL)?;
    let request = CloneRequest {
        flags: flags & !CSIGNAL & !CLONE_DETACHED,
        exit_signal,
        stack: call.argument(1),
        parent_tid: call.argument(2),
        child_tid: call.argument(3),
        pidfd: call.argument(2),
        tls: call.argument(4),
    };
    clone_thread(call, context, request).await
}

fn exit_signal(number: u64) -> Result<i32, Errno> {
    let number = i32::try_from(number).map_err(|_| Errno::EINVAL)?;
    if number != 0 && Signal::new(number).is_none() {
        return Err(Errno::EINVAL);
    }
    Ok(number)
}

/// `clone3(arguments, size)`
pub async fn clone3(call: &Call, context: &mut UserContext) -> SysResult {
    let arguments = read_clone_arguments(call).await?;
    let flags = arguments.flags;
    let known = 0xffff_ffff | CLONE_CLEAR_SIGHAND | CLONE_INTO_CGROUP;
    if flags & !known != 0
        || flags & (CLONE_DETACHED | (CSIGNAL & !CLONE_NEWTIME)) != 0
        || (flags & (CLONE_THREAD | CLONE_PARENT) != 0 && arguments.exit_signal != 0)
        || arguments.set_tid_size != 0
        || arguments.set_tid != 0
    {
        return Err(Errno::EINVAL);
    }
    let exit_signal = exit_signal(arguments.exit_signal)?;
    if (arguments.stack == 0) != (arguments.stack_size == 0) {
        return Err(Errno::EINVAL);
    }
    let stack = arguments.stack.checked_add(arguments.stack_size).ok_or(Errno::EINVAL)?;
    let request = CloneRequest {
        flags,
        exit_signal,
        stack,
        tls: arguments.tls,
        parent_tid: arguments.parent_tid,
        child_tid: arguments.child_tid,
        pidfd: arguments.pidfd,
    };
    clone_thread(call, context, request).await
}

/// Reads a structure of any version: what the caller leaves out is 0, what is unknown must be 0.
async fn read_clone_arguments(call: &Call) -> Result<CloneArguments, Errno> {
    let (address, size) = (call.argument(0), call.argument(1));
    if size > hal::PAGE_SIZE as u64 {
        return Err(Errno::E2BIG);
    }
    if size < CLONE_ARGS_SIZE_VER0 {
        return Err(Errno::EINVAL);
    }
    let size = usize::try_from(size).map_err(|_| Errno::E2BIG)?;
    let bytes = call.user().read_vector(address, size).await?;
    let known = size_of::<CloneArguments>();
    if bytes.iter().skip(known).any(|byte| *byte != 0) {
        return Err(Errno::E2BIG);
    }
    let mut padded = [0; size_of::<CloneArguments>()];
    for (to, from) in padded.iter_mut().zip(&bytes) {
        *to = *from;
    }
    Ok(zerocopy::transmute!(padded))
}
