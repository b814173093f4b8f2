//! A process: the threads that share a number, signals, limits and one end.
//!
//! Family, group and session are kept in the tree (`table`), under its lock; the process has copies
//! as atomics, so that `getppid` and its kin read one word. The list of threads has its own lock
//! (`PROCESS`).
//!
//! ```text
//! Running --request_group_exit--> Ending --last thread finishes--> Zombie --reaped--> gone
//!    |                              ^
//!    +------ last thread exits -----+
//! ```
//!
//! The end is decided once: the first caller of `request_group_exit` sets the status, later ones
//! change nothing. A thread that is being made while the process ends is refused, because the list of
//! threads and the decision are under the same lock.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use abi::Errno;
use abi::process::TICKS_PER_SECOND;
use base::sync::{Mutex, rank};
use base::wait::WaitQueue;
use fs::Location;

use super::ids::{Pid, Tid};
use super::limits::{Limits, Resource};
use super::thread::{NAME_SIZE, Thread};
use super::tracing::Tracees;
use crate::counters::{Counter, ProcessCounters};
use crate::signal::ProcessSignals;

const NS_PER_TICK: u64 = 1_000_000_000 / TICKS_PER_SECOND;

/// A process.
pub struct Process {
    /// Its number, that of its first thread.
    pub pid: Pid,
    /// Signal state; also where its parent role waits for children.
    pub signals: ProcessSignals,
    /// Resource limits.
    pub limits: Limits,
    /// When it was made, on the monotonic clock.
    pub start_ns: u64,
    /// Time and faults of threads that have ended.
    pub ended_threads: UsageCounters,
    /// What threads that have ended read and wrote.
    pub ended_transfers: TransferCounters,
    /// Time and faults of children that were waited for.
    pub ended_children: UsageCounters,
    /// Signal that the parent gets at the end, if it still runs the program that asked for it; 0 for none.
    pub exit_signal: AtomicI32,
    /// Programs that it has executed.
    pub executions: AtomicU32,
    /// As many the parent had executed when the process was made.
    pub parent_executions: AtomicU32,
    /// Orphaned descendants become its children.
    pub is_subreaper: AtomicBool,
    /// It wants no huge pages; there are none.
    pub refuses_huge_pages: AtomicBool,
    /// What becomes of it when memory is found to be bad: kept (`PR_MCE_KILL`).
    pub machine_check_policy: AtomicU32,
    /// It helps to write out memory: kept (`PR_SET_IO_FLUSHER`).
    pub flushes: AtomicBool,
    /// It has given up the terminal of its session for itself (`TIOCNOTTY`).
    pub has_left_terminal: AtomicBool,
    /// It has called `execve` since it was made.
    pub has_executed: AtomicBool,
    /// `personality`.
    pub personality: AtomicU32,
    /// `/proc/PID/oom_score_adj`.
    pub kill_preference: AtomicI32,
    /// The least that `kill_preference` may be set to without the right to raise limits.
    pub least_kill_preference: AtomicI32,
    /// Copies of what the tree knows.
    parent_pid: AtomicI32,
    parent: Mutex<Weak<Process>>,
    pub(super) group: AtomicI32,
    pub(super) session: AtomicI32,
    /// Wait status at its end: 1 << 32 | status. Written once, before the process is a zombie.
    exit_status: AtomicU64,
    /// Wait status of the leader, which is the process's unless its end was decided for all.
    pub(super) leader_status: AtomicU32,
    /// Real user of the thread that ended last.
    pub(super) last_user: AtomicU32,
    /// Woken when a thread has left the process, and when the process has ended.
    pub thread_events: WaitQueue,
    /// Syspages of its threads.
    pub syspages: AtomicU32,
    /// What its threads called.
    pub counters: ProcessCounters,
    /// Whom its threads trace.
    pub(super) tracees: Mutex<Tracees>,
    threads: Mutex<ThreadList>,
    program: Mutex<ProgramInfo>,
}

/// What program runs; guarded by a lock of the process's rank.
#[derive(Default)]
struct ProgramInfo {
    /// Its file.
    executable: Option<Location>,
    /// Name of the thread that ended last.
    last_name: [u8; NAME_SIZE],
}

/// Guarded by the lock of the process.
#[derive(Default)]
struct ThreadList {
    threads: Vec<Arc<Thread>>,
    /// Wait status that all threads end with; set once.
    group_exit: Option<u32>,
    /// The thread that runs `execve` and makes all others end.
    executing: Option<Tid>,
}

/// What was read and written by calls, for `/proc/PID/io`.
#[derive(Default)]
pub struct TransferCounters {
    read: Transfers,
    written: Transfers,
}

/// Calls in one direction and their bytes, in two parts: what the core counted that the thread was on, which
/// alone writes there, and what others did, by atomic additions.
#[derive(Default)]
struct Transfers {
    calls: Counter,
    bytes: Counter,
    calls_elsewhere: AtomicU64,
    bytes_elsewhere: AtomicU64,
}

impl Transfers {
    #[inline]
    fn note(&self, is_home: bool, bytes: u64) {
        if is_home {
            self.calls.add(1);
            self.bytes.add(bytes);
        } else {
            self.add_elsewhere(1, bytes);
        }
    }

    fn add_elsewhere(&self, calls: u64, bytes: u64) {
        self.calls_elsewhere.fetch_add(calls, Ordering::Relaxed);
        self.bytes_elsewhere.fetch_add(bytes, Ordering::Relaxed);
    }

    fn calls(&self) -> u64 {
        self.calls.get().wrapping_add(self.calls_elsewhere.load(Ordering::Relaxed))
    }

    fn bytes(&self) -> u64 {
        self.bytes.get().wrapping_add(self.bytes_elsewhere.load(Ordering::Relaxed))
    }
}

impl TransferCounters {
    /// A call read so many bytes; `is_home`: it was carried out on the core that its thread is on.
    #[inline]
    pub fn note_read(&self, is_home: bool, bytes: u64) {
        self.read.note(is_home, bytes);
    }

    /// A call wrote so many bytes.
    #[inline]
    pub fn note_written(&self, is_home: bool, bytes: u64) {
        self.written.note(is_home, bytes);
    }

    /// Bytes read, bytes written, calls that read, calls that wrote.
    pub fn values(&self) -> [u64; 4] {
        let (read, written) = (&self.read, &self.written);
        [read.bytes(), written.bytes(), read.calls(), written.calls()]
    }

    /// Adds what another one counted.
    pub fn add(&self, other: &TransferCounters) {
        self.read.add_elsewhere(other.read.calls(), other.read.bytes());
        self.written.add_elsewhere(other.written.calls(), other.written.bytes());
    }
}

/// Sums of time and events.
#[derive(Default)]
pub struct UsageCounters {
    /// Nanoseconds in user mode.
    pub user_ns: AtomicU64,
    /// Nanoseconds in system calls.
    pub system_ns: AtomicU64,
    /// Page faults.
    pub faults: AtomicU64,
    /// Times that a thread waited.
    pub voluntary_switches: AtomicU64,
    /// Times that a thread was made to leave its core.
    pub involuntary_switches: AtomicU64,
    /// Largest resident size of an address space, in KiB.
    pub max_resident_kib: AtomicU64,
}

/// Values of `UsageCounters` at one moment.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct UsageSum {
    /// Nanoseconds in user mode.
    pub user_ns: u64,
    /// Nanoseconds in system calls.
    pub system_ns: u64,
    /// Page faults.
    pub faults: u64,
    /// Times that a thread waited.
    pub voluntary_switches: u64,
    /// Times that a thread was made to leave its core.
    pub involuntary_switches: u64,
    /// Largest resident size, in KiB.
    pub max_resident_kib: u64,
}

impl UsageCounters {
    /// Adds to the sums.
    pub fn add(&self, sum: &UsageSum) {
        self.user_ns.fetch_add(sum.user_ns, Ordering::Relaxed);
        self.system_ns.fetch_add(sum.system_ns, Ordering::Relaxed);
        self.faults.fetch_add(sum.faults, Ordering::Relaxed);
        self.voluntary_switches.fetch_add(sum.voluntary_switches, Ordering::Relaxed);
        self.involuntary_switches.fetch_add(sum.involuntary_switches, Ordering::Relaxed);
        self.max_resident_kib.fetch_max(sum.max_resident_kib, Ordering::Relaxed);
    }

    /// The sums now.
    pub fn get(&self) -> UsageSum {
        UsageSum {
            user_ns: self.user_ns.load(Ordering::Relaxed),
            system_ns: self.system_ns.load(Ordering::Relaxed),
            faults: self.faults.load(Ordering::Relaxed),
            voluntary_switches: self.voluntary_switches.load(Ordering::Relaxed),
            involuntary_switches: self.involuntary_switches.load(Ordering::Relaxed),
            max_resident_kib: self.max_resident_kib.load(Ordering::Relaxed),
        }
    }
}

impl UsageSum {
    /// User time in ticks of `USER_HZ`.
    pub fn user_ticks(&self) -> u64 {
        self.user_ns / NS_PER_TICK
    }

    /// System time in ticks of `USER_HZ`.
    pub fn system_ticks(&self) -> u64 {
        self.system_ns / NS_PER_TICK
    }

    /// The sum of two.
    pub fn plus(self, other: UsageSum) -> UsageSum {
        UsageSum {
            user_ns: self.user_ns.wrapping_add(other.user_ns),
            system_ns: self.system_ns.wrapping_add(other.system_ns),
            faults: self.faults.wrapping_add(other.faults),
            voluntary_switches: self.voluntary_switches.wrapping_add(other.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .wrapping_add(other.involuntary_switches),
            max_resident_kib: self.max_resident_kib.max(other.max_resident_kib),
        }
    }
}

const HAS_ENDED: u64 = 1 << 32;

/// What became of a thread that left its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Departure {
    /// It was the last one.
    pub(super) was_last: bool,
    /// Wait status of the process, if it ends now.
    pub(super) group_exit: Option<u32>,
}

impl Process {
    pub(super) fn new(pid: Pid, signals: ProcessSignals, limits: Limits) -> Process {
        Process {
            pid,
            signals,
            limits,
            start_ns: base::time::now_ns(),
            ended_threads: UsageCounters::default(),
            ended_transfers: TransferCounters::default(),
            ended_children: UsageCounters::default(),
            exit_signal: AtomicI32::new(0),
            executions: AtomicU32::new(0),
            parent_executions: AtomicU32::new(0),
            is_subreaper: AtomicBool::new(false),
            refuses_huge_pages: AtomicBool::new(false),
            machine_check_policy: AtomicU32::new(2),
            flushes: AtomicBool::new(false),
            has_left_terminal: AtomicBool::new(false),
            has_executed: AtomicBool::new(false),
            personality: AtomicU32::new(0),
            kill_preference: AtomicI32::new(0),
            least_kill_preference: AtomicI32::new(0),
            parent_pid: AtomicI32::new(0),
            parent: Mutex::new(&rank::PROCESS, Weak::new()),
            group: AtomicI32::new(0),
            session: AtomicI32::new(0),
            exit_status: AtomicU64::new(0),
            leader_status: AtomicU32::new(0),
            last_user: AtomicU32::new(0),
            thread_events: WaitQueue::new(),
            syspages: AtomicU32::new(0),
            counters: ProcessCounters::default(),
            tracees: Mutex::new(&rank::PROCESS, Tracees::default()),
            threads: Mutex::new(&rank::PROCESS, ThreadList::default()),
            program: Mutex::new(&rank::PROCESS, ProgramInfo::default()),
        }
    }

    /// The number of the parent; 0 for the first process.
    pub fn parent_pid(&self) -> Pid {
        Pid(self.parent_pid.load(Ordering::Relaxed))
    }

    /// The parent. Takes no lock of the tree, so it may be asked while the tree is locked.
    pub fn parent(&self) -> Option<Arc<Process>> {
        self.parent.lock().upgrade()
    }

    /// Sets the parent, under the tree's lock.
    pub(super) fn set_parent(&self, parent: &Arc<Process>) {
        let old = core::mem::replace(&mut *self.parent.lock(), Arc::downgrade(parent));
        drop(old);
        self.parent_pid.store(parent.pid.0, Ordering::Relaxed);
    }

    /// The real user of its main thread, or of its last one once all have ended.
    pub fn user(&self) -> u32 {
        self.main_thread()
            .map_or(self.last_user.load(Ordering::Relaxed), |thread| thread.credentials().user.real)
    }

    /// How many signals may be queued.
    pub fn pending_signal_limit(&self) -> u64 {
        self.limits.soft(Resource::PendingSignals)
    }

    /// Time in user mode and in the kernel so far.
    pub fn times(&self) -> UsageSum {
        self.usage()
    }

    /// The process group.
    pub fn group(&self) -> Pid {
        Pid(self.group.load(Ordering::Relaxed))
    }

    /// The session.
    pub fn session(&self) -> Pid {
        Pid(self.session.load(Ordering::Relaxed))
    }

    /// Adds a thread. Refused while the process ends or is replaced by `execve`.
    pub(super) fn add_thread(&self, thread: Arc<Thread>) -> Result<(), Errno> {
        let mut list = self.threads.lock();
        if list.group_exit.is_some() || list.executing.is_some() {
            return Err(Errno::ERESTARTNOINTR);
        }
        list.threads.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        if !list.threads.is_empty() {
            self.counters.note_second_thread();
        }
        list.threads.push(thread);
        Ok(())
    }

    /// Takes a thread out of the list, for good.
    pub(super) fn remove_thread(&self, thread: &Arc<Thread>) -> Departure {
        let (departure, removed) = {
            let mut list = self.threads.lock();
            let position = list.threads.iter().position(|other| Arc::ptr_eq(other, thread));
            let removed = position.map(|position| list.threads.remove(position));
            let was_last = removed.is_some() && list.threads.is_empty();
            (Departure { was_last, group_exit: list.group_exit }, removed)
        };
        drop(removed);
        departure
    }

    /// The threads of this moment, oldest first.
    pub fn threads(&self) -> Vec<Arc<Thread>> {
        self.threads.lock().threads.clone()
    }

    /// Calls `each` with every thread while the list is locked; stops at the first `Some`.
    pub fn find_thread<T>(&self, each: impl FnMut(&Arc<Thread>) -> Option<T>) -> Option<T> {
        self.threads.lock().threads.iter().find_map(each)
    }

    /// Calls `each` with every thread while the list is locked.
    pub fn for_each_thread(&self, each: impl FnMut(&Arc<Thread>)) {
        self.threads.lock().threads.iter().for_each(each);
    }

    /// The leader, or the oldest thread when the leader has ended; `None` when all have.
    pub fn main_thread(&self) -> Option<Arc<Thread>> {
        self.threads.lock().threads.first().cloned()
    }

    /// How many threads have not ended.
    pub fn thread_count(&self) -> usize {
        self.threads.lock().threads.len()
    }

    /// Ends the process with a wait status: all its threads get attention and are kicked. Only the
    /// first call has an effect.
    pub fn request_group_exit(&self, status: u32) {
        let mut list = self.threads.lock();
        if list.group_exit.is_some() {
            return;
        }
        list.group_exit = Some(status);
        for thread in &list.threads {
            thread.signals.demand_exit();
            thread.kick();
        }
    }

    /// The wait status that the process ends with, if its end is decided.
    pub fn group_exit(&self) -> Option<u32> {
        self.threads.lock().group_exit
    }

    /// Makes all threads but `thread` end, for `execve`. `EAGAIN` when the process ends already or
    /// another thread does the same.
    pub(super) fn begin_exec(&self, thread: &Thread) -> Result<(), Errno> {
        let mut list = self.threads.lock();
        if list.group_exit.is_some() || list.executing.is_some() {
            return Err(Errno::EAGAIN);
        }
        if list.threads.len() == 1 {
            return Ok(());
        }
        list.executing = Some(thread.tid());
        for other in &list.threads {
            if !core::ptr::eq(Arc::as_ptr(other), thread) {
                other.signals.demand_exit();
                other.kick();
            }
        }
        Ok(())
    }

    /// New threads are permitted again.
    pub(super) fn end_exec(&self) {
        self.threads.lock().executing = None;
    }

    /// The program file.
    pub fn executable(&self) -> Option<Location> {
        self.program.lock().executable.clone()
    }

    /// Sets the program file.
    pub fn set_executable(&self, executable: Option<Location>) {
        let old = core::mem::replace(&mut self.program.lock().executable, executable);
        drop(old);
    }

    /// Name of the thread that ended last, for zombies.
    pub fn last_name(&self) -> [u8; NAME_SIZE] {
        self.program.lock().last_name
    }

    /// Gives up the program file; only the name stays.
    pub(super) fn forget_program(&self, last_name: [u8; NAME_SIZE]) {
        let old = core::mem::replace(
            &mut *self.program.lock(),
            ProgramInfo { executable: None, last_name },
        );
        drop(old);
    }

    /// The wait status, once the process has ended.
    pub fn exit_status(&self) -> Option<u32> {
        let status = self.exit_status.load(Ordering::Acquire);
        (status & HAS_ENDED != 0).then_some(status as u32)
    }

    pub(super) fn set_exit_status(&self, status: u32) {
        self.exit_status.store(HAS_ENDED | u64::from(status), Ordering::Release);
    }

    /// Time and events of all threads, ended ones included, without children.
    pub fn usage(&self) -> UsageSum {
        let mut sum = self.ended_threads.get();
        self.for_each_thread(|thread| sum = sum.plus(thread.usage()));
        sum
    }
}

impl Thread {
    /// Time and events of this thread.
    pub fn usage(&self) -> UsageSum {
        let (user_ns, system_ns) = self.processor_time.user_and_system();
        UsageSum {
            user_ns,
            system_ns,
            faults: self.faults.load(Ordering::Relaxed),
            voluntary_switches: self.voluntary_switches.load(Ordering::Relaxed),
            involuntary_switches: self.involuntary_switches.load(Ordering::Relaxed),
            max_resident_kib: 0,
        }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)
    }
}
