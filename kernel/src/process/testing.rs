//! Processes and threads without programs, for tests of other modules.

use alloc::sync::Arc;

use base::sync::Once;
use fs::Location;
use fs::mount::Mount;
use fs::tmpfs::{self, TmpFs};

use super::directory::DirectoryContext;
use super::exit;
use super::file_table::FileTable;
use super::first::{self, DEFAULT_TIMER_SLACK_NS, Parts};
use super::fork::{self, CloneRequest};
use super::ids::Tid;
use super::schedule::Schedule;
use super::table;
use super::thread::{NewThread, Thread, short_name};
use crate::ipc::undo::UndoShare;
use crate::memory::tests::Whole as _;
use crate::signal::ThreadSignals;

static STARTED: Once<Location> = Once::new();

fn root() -> Location {
    STARTED
        .call_once(|| {
            let file_system = TmpFs::new(&tmpfs::Options::default()).unwrap();
            let root = Location::root_of(&Mount::detached(file_system, "none", 0));
            first::start(root.clone()).unwrap();
            root
        })
        .clone()
}

/// The first thread of a new process, which leads a group and a session.
pub fn process() -> Arc<Thread> {
    let root = root();
    first::spawn(Parts {
        files: Arc::new(FileTable::new()),
        directory: Arc::new(DirectoryContext::new(root.clone(), root)),
        name: short_name(b"test"),
    })
    .unwrap()
}

/// One more thread of the process of `thread`.
pub fn thread_beside(thread: &Arc<Thread>) -> Arc<Thread> {
    let number = table::lock().reserve_number(0, u64::MAX).unwrap();
    thread.directory().share().unwrap();
    let thread = Arc::new(Thread::new(NewThread {
        tid: Tid(number.get()),
        process: thread.process.clone(),
        signals: ThreadSignals::new(),
        resources: thread.resources(),
        affinity: u64::MAX,
        schedule: Schedule::new(),
        timer_slack_ns: DEFAULT_TIMER_SLACK_NS,
        undo: UndoShare::default(),
    }));
    thread.process.add_thread(thread.clone()).unwrap();
    table::lock().insert_thread(number, &thread);
    thread
}

/// Takes a thread out of its process.
pub fn leave(thread: &Arc<Thread>) {
    let _ = thread.process.remove_thread(thread);
    table::lock().remove_thread(thread);
}

/// A child as `clone` with these flags makes it, which never runs.
pub fn child(parent: &Arc<Thread>, flags: u64) -> Arc<Thread> {
    let request = CloneRequest { flags, exit_signal: 17, ..CloneRequest::default() };
    let number = table::lock().reserve_number(0, u64::MAX).unwrap();
    let is_copy = flags & abi::process::CLONE_VM == 0;
    let copy = is_copy.then(|| parent.space().fork().unwrap());
    let child = fork::make_thread(parent, Tid(number.get()), &request, copy, None, None).unwrap();
    fork::publish(parent, &child, number, &request).unwrap();
    child
}

/// The end of a thread that never ran.
pub fn end(thread: Arc<Thread>, code: i32) {
    thread.request_exit(exit::exit_status(code));
    exit::discard(thread);
}
