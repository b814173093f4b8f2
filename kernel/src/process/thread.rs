//! A user thread: who it is, what it works with, and how others reach it.
//!
//! The registers are not here: the `run_user` task of the thread owns them. What a thread works with
//! (address space, files, directories, credentials) are shared objects; the thread holds one `Arc` of
//! each under one lock (`THREAD`), and a reader clones the one that it needs. Only the thread itself
//! replaces them (by `execve`, `unshare`, `setuid`), so its own calls always find what they left.
//!
//! Ending a thread: somebody calls `request_exit` or `Process::request_group_exit`, which sets the
//! thread's attention and kicks it; its `run_user` task then leaves its loop and calls
//! `exit::finish_thread`.

use alloc::sync::Arc;
use core::fmt;
use core::future::Future;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use abi::Errno;
use base::cpu::CpuId;
use base::sync::{Mutex, rank};
use fs::{Identity, OpenFile};

use super::credentials::Credentials;
use super::directory::DirectoryContext;
use super::file_table::FileTable;
use super::fork::VforkGate;
use super::ids::Tid;
use super::namespace::Namespaces;
use super::process::{Process, TransferCounters};
use super::rseq::RestartableSequence;
use super::schedule::Schedule;
use super::seccomp::Restrictions;
use super::tracing::Tracing;
use crate::call::CallSlot;
use crate::counters::ThreadCounters;
use crate::ipc::undo::UndoShare;
use crate::memory::AddressSpace;
use crate::posted::Syspage;
use crate::signal::ThreadSignals;
use crate::time::ProcessorTime;

/// Bytes of a thread's name, the final NUL included.
pub const NAME_SIZE: usize = 16;

/// A wait ended because the thread has something else to do: a signal, a stop, its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interrupted;

impl From<Interrupted> for Errno {
    /// The restart code of most calls; those that differ map it themselves.
    fn from(_: Interrupted) -> Errno {
        Errno::ERESTARTSYS
    }
}

/// A user thread.
pub struct Thread {
    /// Changes once at most: when a thread that does not lead its process calls `execve`.
    tid: AtomicI32,
    /// The process that it belongs to.
    pub process: Arc<Process>,
    /// Signal state.
    pub signals: ThreadSignals,
    /// Where the answer of a remote call arrives.
    pub slot: CallSlot,
    /// Index of the application core that holds its `run_user` task.
    pub core: AtomicUsize,
    /// Cores that it may run on, one bit each.
    pub affinity: AtomicU64,
    /// Policy, priority and nice value.
    pub schedule: Schedule,
    /// Word to clear and futex to wake at its end; 0 for none.
    pub clear_child_tid: AtomicU64,
    /// Head of its list of robust futexes; 0 for none.
    pub robust_list: AtomicU64,
    /// It has given up its locks with priority inheritance, since it ends.
    pub has_left_locks: AtomicBool,
    /// Time on application cores.
    pub processor_time: ProcessorTime,
    /// Page faults served.
    pub faults: AtomicU64,
    /// Times that it waited.
    pub voluntary_switches: AtomicU64,
    /// Times that it was made to leave its core.
    pub involuntary_switches: AtomicU64,
    /// What it did.
    pub counters: ThreadCounters,
    /// What it read and wrote.
    pub transfers: TransferCounters,
    /// When it was made, on the monotonic clock.
    pub start_ns: u64,
    /// Slack of timers, for `PR_SET_TIMERSLACK`.
    pub timer_slack_ns: AtomicU64,
    /// The slack that it began with, which `PR_SET_TIMERSLACK` of 0 brings back.
    pub first_timer_slack_ns: u64,
    /// Its memory policy as a word; 0 for the default.
    pub placement: AtomicU64,
    /// Signal to this thread when its parent ends; 0 for none.
    pub parent_death_signal: AtomicI32,
    /// Number of its syspage, a copy for who only asks whether there is one; 0 for none.
    pub syspage_id: AtomicU32,
    /// What it took from semaphores and gives back at its end.
    pub undo: UndoShare,
    /// What calls it may make.
    pub restrictions: Restrictions,
    /// Who traces it, and where it stands for its tracer.
    pub tracing: Tracing,
    /// Its restartable sequences.
    pub sequence: RestartableSequence,
    /// Where it posts calls. Only the thread itself changes it.
    syspage: Mutex<Option<Arc<Syspage>>>,
    /// Wait status with which it ends, if `request_exit` was called: 1 << 32 | status.
    exit_request: AtomicU64,
    /// Real user that the thread counts for in `RLIMIT_NPROC`; written under the tree's lock.
    pub(super) counted_user: AtomicU32,
    resources: Mutex<Resources>,
}

/// What a thread works with.
#[derive(Clone)]
pub struct Resources {
    /// Memory.
    pub space: Arc<AddressSpace>,
    /// Descriptors.
    pub files: Arc<FileTable>,
    /// Root, working directory and umask.
    pub directory: Arc<DirectoryContext>,
    /// For whom it acts.
    pub credentials: Arc<Credentials>,
    /// What it sees.
    pub namespaces: Arc<Namespaces>,
    pub(super) name: [u8; NAME_SIZE],
    /// The parent that waits for this thread to give up the shared address space (`vfork`).
    pub(super) vfork: Option<Arc<VforkGate>>,
}

/// What `Thread::new` needs. The directory context counts the thread already.
pub(super) struct NewThread {
    pub(super) tid: Tid,
    pub(super) process: Arc<Process>,
    pub(super) signals: ThreadSignals,
    pub(super) resources: Resources,
    pub(super) affinity: u64,
    pub(super) schedule: Schedule,
    pub(super) timer_slack_ns: u64,
    pub(super) undo: UndoShare,
}

const EXIT_REQUESTED: u64 = 1 << 32;

impl Thread {
    pub(super) fn new(new: NewThread) -> Thread {
        Thread {
            tid: AtomicI32::new(new.tid.0),
            counted_user: AtomicU32::new(new.resources.credentials.user.real),
            process: new.process,
            signals: new.signals,
            slot: CallSlot::new(),
            core: AtomicUsize::new(0),
            affinity: AtomicU64::new(new.affinity),
            schedule: new.schedule,
            clear_child_tid: AtomicU64::new(0),
            robust_list: AtomicU64::new(0),
            has_left_locks: AtomicBool::new(false),
            processor_time: ProcessorTime::default(),
            faults: AtomicU64::new(0),
            voluntary_switches: AtomicU64::new(0),
            involuntary_switches: AtomicU64::new(0),
            counters: ThreadCounters::default(),
            transfers: TransferCounters::default(),
            start_ns: base::time::now_ns(),
            timer_slack_ns: AtomicU64::new(new.timer_slack_ns),
            first_timer_slack_ns: new.timer_slack_ns,
            placement: AtomicU64::new(0),
            parent_death_signal: AtomicI32::new(0),
            undo: new.undo,
            restrictions: Restrictions::new(),
            tracing: Tracing::new(),
            sequence: RestartableSequence::new(),
            exit_request: AtomicU64::new(0),
            syspage_id: AtomicU32::new(0),
            syspage: Mutex::new(&rank::CALL_SLOT, None),
            resources: Mutex::new(&rank::THREAD, new.resources),
        }
    }

    /// Its number.
    pub fn tid(&self) -> Tid {
        Tid(self.tid.load(Ordering::Relaxed))
    }

    /// Takes over the number of the process's leader, under the tree's lock.
    pub(super) fn set_tid(&self, tid: Tid) {
        self.tid.store(tid.0, Ordering::Relaxed);
    }

    /// The address space.
    pub fn space(&self) -> Arc<AddressSpace> {
        self.resources.lock().space.clone()
    }

    /// Begins a new program: memory, credentials and name are replaced in one step, so that nobody sees
    /// the memory of the new program with the credentials of the old one. Returns the old memory.
    pub(super) fn become_program(
        &self,
        space: Arc<AddressSpace>,
        credentials: Arc<Credentials>,
        name: &[u8],
    ) -> Arc<AddressSpace> {
        let mut resources = self.resources.lock();
        let old_credentials = core::mem::replace(&mut resources.credentials, credentials);
        let old_space = core::mem::replace(&mut resources.space, space);
        resources.name = short_name(name);
        drop(resources);
        drop(old_credentials);
        old_space
    }

    /// Replaces the address space and returns the old one.
    pub fn set_space(&self, space: Arc<AddressSpace>) -> Arc<AddressSpace> {
        core::mem::replace(&mut self.resources.lock().space, space)
    }

    /// The file table.
    pub fn files(&self) -> Arc<FileTable> {
        self.resources.lock().files.clone()
    }

    /// Replaces the file table and returns the old one.
    pub fn set_files(&self, files: Arc<FileTable>) -> Arc<FileTable> {
        core::mem::replace(&mut self.resources.lock().files, files)
    }

    /// Its number as the records of what happens have it.
    pub fn number(&self) -> u32 {
        self.tid().0.unsigned_abs()
    }

    /// Whether it is in a wait that signals can end. One whose posted call is being carried out, and does
    /// not wait itself, is not.
    pub fn is_waiting(&self) -> bool {
        let is_served = || self.syspage().is_some_and(|syspage| syspage.carries_out_trampoline());
        self.signals.is_waiting() && !is_served()
    }

    /// Where it posts calls, if it does.
    pub fn syspage(&self) -> Option<Arc<Syspage>> {
        self.syspage.lock().clone()
    }

    /// Sets where it posts calls.
    pub fn set_syspage(&self, syspage: Option<Arc<Syspage>>) {
        let id = syspage.as_ref().map_or(0, |syspage| syspage.id());
        self.syspage_id.store(id, Ordering::Relaxed);
        let former = core::mem::replace(&mut *self.syspage.lock(), syspage);
        drop(former);
    }

    /// The open file of a descriptor; `EBADF` when there is none.
    pub fn file(&self, descriptor: i32) -> Result<Arc<OpenFile>, Errno> {
        self.resources.lock().files.get(descriptor)
    }

    /// Whether this code runs on the core that the thread is on.
    #[inline]
    fn is_home(&self) -> bool {
        self.core.load(Ordering::Relaxed) == CpuId::current().index()
    }

    /// A call of the thread read so many bytes.
    #[inline]
    pub fn note_read(&self, bytes: u64) {
        self.transfers.note_read(self.is_home(), bytes);
    }

    /// A call of the thread wrote so many bytes.
    #[inline]
    pub fn note_written(&self, bytes: u64) {
        self.transfers.note_written(self.is_home(), bytes);
    }

    /// Root, working directory and umask.
    pub fn directory(&self) -> Arc<DirectoryContext> {
        self.resources.lock().directory.clone()
    }

    /// Replaces root, working directory and umask by a context that was made for this thread.
    pub fn set_directory(&self, directory: Arc<DirectoryContext>) {
        let old = core::mem::replace(&mut self.resources.lock().directory, directory);
        old.leave();
    }

    /// For whom it acts.
    pub fn credentials(&self) -> Arc<Credentials> {
        self.resources.lock().credentials.clone()
    }

    /// What it sees.
    pub fn namespaces(&self) -> Arc<Namespaces> {
        self.resources.lock().namespaces.clone()
    }

    /// Replaces what it sees.
    pub fn set_namespaces(&self, namespaces: Arc<Namespaces>) {
        let old = core::mem::replace(&mut self.resources.lock().namespaces, namespaces);
        drop(old);
    }

    /// Replaces the credentials.
    pub fn set_credentials(&self, credentials: Credentials) {
        let user = credentials.user.real;
        let credentials = Arc::new(credentials);
        let old = core::mem::replace(&mut self.resources.lock().credentials, credentials);
        if old.user.real != user {
            super::table::count_for_user(self, user);
        }
    }

    /// The identity for file access.
    pub fn identity(&self) -> Identity {
        let resources = self.resources.lock();
        let identity = resources.credentials.identity(self.process.pid, self.tid());
        Identity { program: resources.space.id(), ..identity }
    }

    /// The name, as `/proc/PID/comm` shows it.
    pub fn name(&self) -> [u8; NAME_SIZE] {
        self.resources.lock().name
    }

    /// Sets the name to the first 15 bytes given.
    pub fn set_name(&self, name: &[u8]) {
        self.resources.lock().name = short_name(name);
    }

    pub(super) fn resources(&self) -> Resources {
        self.resources.lock().clone()
    }

    pub(super) fn set_resources(&self, resources: Resources) -> Resources {
        resources.directory.join();
        let old = core::mem::replace(&mut *self.resources.lock(), resources);
        old.directory.leave();
        old
    }

    /// Lets a parent that waits in `vfork` go on, if there is one.
    pub(super) fn open_vfork_gate(&self) {
        let gate = self.resources.lock().vfork.take();
        if let Some(gate) = gate {
            gate.open();
        }
    }

    /// Whether the thread has something to look at before it goes on.
    pub fn has_attention(&self) -> bool {
        self.signals.has_attention()
    }

    /// Makes the thread look: ends its interruptible wait, or its stay in user mode. The reason is
    /// set before.
    pub fn kick(&self) {
        self.signals.wake();
        // Pairs with the thread's own order: its core publishes that it enters user mode, then looks
        // for attention.
        let core = CpuId::new(self.core.load(Ordering::Relaxed));
        if let Some(core) = core.filter(|core| *core != CpuId::current()) {
            base::task::ring_doorbell(core);
        }
    }

    /// Ends this thread alone, with the exit code of `exit`.
    pub fn request_exit(&self, status: u32) {
        let _ = self.exit_request.compare_exchange(
            0,
            EXIT_REQUESTED | u64::from(status),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        self.signals.demand_exit();
        self.kick();
    }

    /// The wait status that `request_exit` gave.
    pub fn exit_request(&self) -> Option<u32> {
        let request = self.exit_request.load(Ordering::Acquire);
        (request & EXIT_REQUESTED != 0).then_some(request as u32)
    }

    /// Waits for `future`, but ends early when the thread must end.
    pub async fn killable<F: Future>(&self, future: F) -> Result<F::Output, Interrupted> {
        crate::signal::killable(self, future).await
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.resources.get_mut().directory.leave();
    }
}

/// The name made of the first 15 bytes.
pub fn short_name(name: &[u8]) -> [u8; NAME_SIZE] {
    let mut short = [0; NAME_SIZE];
    for (to, from) in short.iter_mut().take(NAME_SIZE - 1).zip(name) {
        *to = *from;
    }
    short
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} of process {}", self.tid(), self.process.pid)
    }
}
