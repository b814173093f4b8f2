//! What `/proc` says, in the formats that Linux programs read.
//!
//! ```text
//! /proc/                 directory.rs   names of processes, then the files of system.rs
//!   self, thread-self    links to whoever asks
//!   PID/, PID/task/TID/  process.rs     the directory and its links; status.rs: the longer texts
//!   PID/fd, fdinfo       descriptors.rs
//!   PID/ns               namespaces.rs
//!   PID/smaps, mem, ...  memory.rs
//!   sys/                 settings.rs
//!   net/, sys/net/       network.rs
//!   sysvipc/             sysvipc.rs
//!   buddyinfo, zoneinfo, ... tables.rs
//!   config.gz            configuration.rs
//!   keys, key-users      keys.rs
//!   PID/ferry            counters.rs: what the process called, and by which path
//!   ferry/counters       counters.rs: what each core did
//!   ferry/servers        machine.rs: where servers are carried; machine: what was measured at boot
//!   ferry/counts         what exists now, for tests that look for leaks
//!   ferry/panic          fault.rs: makes a handler or the kernel panic, in checked builds only
//!   ferry/race           race.rs: races that are bugs, for tests of recording, likewise
//! /sys                   sysfs.rs
//! ```
//!
//! Every text is computed when it is read, from one short look at each thing that it tells of; two
//! lines may so be of slightly different moments, as on Linux. Files of a process that has ended
//! answer `ESRCH`.

mod blocks;
mod configuration;
mod counters;
mod descriptors;
mod directory;
#[cfg(debug_assertions)]
mod fault;
mod keys;
mod machine;
mod memory;
mod namespaces;
mod network;
mod process;
#[cfg(debug_assertions)]
mod race;
mod settings;
mod status;
mod sysfs;
mod system;
mod sysvipc;
mod tables;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

pub use process::process_of;
pub use sysfs::sysfs;

use base::sync::Once;
use fs::pseudo::{Entry, PseudoFs};

/// Magic number of the file system, for `statfs`.
const MAGIC: i64 = 0x9fa0;

/// The file system; the same for every mount.
pub fn file_system() -> Arc<PseudoFs> {
    static FILE_SYSTEM: Once<Arc<PseudoFs>> = Once::new();
    FILE_SYSTEM
        .call_once(|| {
            let root = Entry::directory(number::ROOT, Arc::new(directory::Root));
            PseudoFs::new("proc", MAGIC, root)
        })
        .clone()
}

/// Inode numbers: fixed files come first, then 32 bits of process or thread and the file in it.
/// The auxiliary vector of a thread's program.
pub fn auxiliary_vector_of(thread: &super::Thread) -> Vec<u8> {
    memory::auxiliary_vector(&thread.resources(), 0).map_or(Vec::new(), |part| part.text)
}

mod number {
    /// The root directory.
    pub const ROOT: u64 = 1;
    /// First of the files in the root directory.
    pub const SYSTEM: u64 = 0x100;
    /// First of the settings.
    pub const SETTINGS: u64 = 0x10_0000;
    /// First of the files of `/sys`.
    pub const SYSFS: u64 = 0x20_0000;
    const THREAD: u64 = 1 << 62;
    const DESCRIPTOR: u64 = 1 << 61;

    fn id(number: i32) -> u64 {
        u64::from(number.unsigned_abs()) << 24
    }

    /// File `index` of a process.
    pub fn of_process(pid: i32, index: u64) -> u64 {
        id(pid) | index
    }

    /// File `index` of a thread.
    pub fn of_thread(tid: i32, index: u64) -> u64 {
        THREAD | id(tid) | index
    }

    /// What stands for a descriptor.
    pub fn of_descriptor(tid: i32, descriptor: i32, is_information: bool) -> u64 {
        let index = u64::from(descriptor.unsigned_abs()) << 1 | u64::from(is_information);
        DESCRIPTOR | id(tid) << 8 | index
    }
}

/// A text under construction.
#[derive(Default)]
struct Text(Vec<u8>);

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl Text {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

/// Adds formatted text; writing to a vector cannot fail.
macro_rules! put {
    ($text:expr, $($argument:tt)*) => {
        { let _ = core::fmt::Write::write_fmt(&mut $text, format_args!($($argument)*)); }
    };
}
use put;
