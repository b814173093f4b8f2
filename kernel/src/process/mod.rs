//! Processes and threads: who exists, how they come to be, how they end, and who is told.
//!
//! ```text
//! ids             numbers of threads, processes, groups, sessions
//! thread, process the two objects            credentials, limits, schedule   what they carry
//! table           the tree of all of them    file_table, directory           what they work with
//! namespace       host names and trees of mounts of which there may be several
//! access          who may look into whom
//! first, fork, exec   how they begin            exit, wait                      how they end
//! accounting      the record of those that ended
//! session         groups, sessions, terminals   questions     who is asked before files are opened
//! procfs          what /proc says about them
//! ```
//!
//! Locks, in the order in which they are taken (ranks of `base::sync::rank`):
//!
//! ```text
//! PROCESS_TREE     the tree: numbers, parents, groups, sessions
//!   PROCESS        one process: its list of threads, its limits, its program file
//!     THREAD       one thread: its space, files, directories, credentials, name
//!       SIGNALS    signal state (crate::signal)
//!         FILE_TABLE   one file table; one directory context
//! ```

use alloc::boxed::Box;
use alloc::sync::Arc;

use base::memory::OutOfMemory;
use base::sync::Once;
use base::user::UserContext;

pub mod access;
pub mod accounting;
pub mod credentials;
pub mod directory;
pub mod dump;
pub mod exec;
pub mod exit;
pub mod file_table;
pub mod first;
pub mod fork;
pub mod ids;
pub mod keys;
pub mod limits;
pub mod mapped;
pub mod namespace;
pub mod pidfd;
#[expect(clippy::module_inception, reason = "it holds the type `Process`")]
pub mod process;
pub mod procfs;
pub mod questions;
pub mod rseq;
pub mod schedule;
pub mod seccomp;
pub mod session;
pub mod system;
pub mod table;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod thread;
pub mod tracing;
pub mod wait;

pub use credentials::{Capability, Credentials};
pub use directory::DirectoryContext;
pub use file_table::FileTable;
pub use ids::{INIT, Pid, Tid};
pub use limits::{Limits, Resource};
pub use process::Process;
pub use thread::{Interrupted, Thread};

/// Starts a thread, which has these registers, on a core of its choice.
type Starter = fn(Arc<Thread>, Box<UserContext>) -> Result<(), OutOfMemory>;

static STARTER: Once<Starter> = Once::new();

/// Says how threads are started. Called once, at boot.
pub fn hand_in(starter: Starter) {
    STARTER.call_once(|| starter);
}

/// Starts a thread with these registers.
pub fn start(thread: Arc<Thread>, registers: Box<UserContext>) -> Result<(), OutOfMemory> {
    STARTER.get().map_or(Err(OutOfMemory), |start| start(thread, registers))
}
