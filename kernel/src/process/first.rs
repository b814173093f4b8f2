//! The first process, and the programs that the kernel starts itself.
//!
//! Process 1 runs no program and has no threads. It adopts and reaps orphans, and its empty address
//! space, file table and directories stand in for those of threads that have ended.

use alloc::sync::Arc;

use abi::Errno;
use abi::signal::Signal;
use base::sync::Once;
use fs::Location;

use super::credentials::Credentials;
use super::directory::DirectoryContext;
use super::file_table::FileTable;
use super::ids::{INIT, Tid};
use super::limits::Limits;
use super::process::Process;
use super::schedule::Schedule;
use super::table;
use super::thread::{NAME_SIZE, NewThread, Resources, Thread, short_name};
use crate::ipc::undo::UndoShare;
use crate::memory::{AddressSpace, Layout, LimitValues};
use crate::signal::{ProcessSignals, ThreadSignals};

/// Timer slack of a process that has not chosen another, as on Linux.
pub const DEFAULT_TIMER_SLACK_NS: u64 = 50_000;

static EMPTY: Once<Resources> = Once::new();

/// Makes the first process. Called once, at boot, when the root file system is there.
pub fn start(root: Location) -> Result<(), Errno> {
    let space = AddressSpace::new(Layout::choose(None, 0), LimitValues::default())?;
    let namespaces = super::namespace::set_first(&root);
    EMPTY.call_once(|| Resources {
        space,
        files: Arc::new(FileTable::new()),
        directory: Arc::new(DirectoryContext::new(root.clone(), root)),
        credentials: Arc::new(Credentials::superuser()),
        namespaces,
        name: short_name(b"init"),
        vfork: None,
    });
    fs::terminal::set_processes(super::session::PROCESSES);
    fs::mapped::observe(super::mapped::OBSERVER);
    table::start(|thread_limit| {
        let signals = ProcessSignals::new();
        signals.protect();
        Process::new(INIT, signals, Limits::new(thread_limit))
    });
    Ok(())
}

/// What a thread has when it has ended; `None` before `start`.
pub(super) fn empty_resources() -> Option<Resources> {
    EMPTY.get().cloned()
}

/// A thread that stands for process 1 where calls look at or set what threads have. It never runs and is
/// in no list.
pub fn stand_in() -> Option<Arc<Thread>> {
    static STAND_IN: Once<Arc<Thread>> = Once::new();
    let (process, resources) = (table::init()?, empty_resources()?);
    let make = || {
        Arc::new(Thread::new(NewThread {
            tid: INIT.leader(),
            process: process.clone(),
            signals: ThreadSignals::new(),
            resources,
            affinity: u64::MAX,
            schedule: Schedule::new(),
            timer_slack_ns: DEFAULT_TIMER_SLACK_NS,
            undo: UndoShare::default(),
        }))
    };
    Some(STAND_IN.call_once(make).clone())
}

/// The parts of a process that the kernel starts itself.
pub struct Parts {
    /// Its descriptors.
    pub files: Arc<FileTable>,
    /// Root and working directory.
    pub directory: Arc<DirectoryContext>,
    /// Name of the thread.
    pub name: [u8; NAME_SIZE],
}

/// Makes a process as a child of the first one, leading a session and a group of its own, acting for
/// the superuser, with an empty address space.
pub(super) fn spawn(parts: Parts) -> Result<Arc<Thread>, Errno> {
    let init = table::init().ok_or(Errno::EAGAIN)?;
    let empty = empty_resources().ok_or(Errno::EAGAIN)?;
    let number = table::lock().reserve_number(0, u64::MAX)?;
    let tid = Tid(number.get());
    let process =
        Arc::new(Process::new(tid.as_pid(), ProcessSignals::new(), init.limits.duplicate()));
    process.exit_signal.store(Signal::SIGCHLD.number(), core::sync::atomic::Ordering::Relaxed);
    let thread = Arc::new(Thread::new(NewThread {
        tid,
        process: process.clone(),
        signals: ThreadSignals::new(),
        resources: Resources {
            files: parts.files,
            directory: parts.directory,
            name: parts.name,
            ..empty
        },
        affinity: u64::MAX,
        schedule: Schedule::new(),
        timer_slack_ns: DEFAULT_TIMER_SLACK_NS,
        undo: UndoShare::default(),
    }));
    process.add_thread(thread.clone())?;
    let mut tree = table::lock();
    tree.insert_process(&process, init, init);
    tree.start_session(&process);
    tree.insert_thread(number, &thread);
    drop(tree);
    Ok(thread)
}
