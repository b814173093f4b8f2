//! Numbers that name threads, processes, process groups and sessions.
//!
//! All four share one number space, as on Linux: a process has the number of its first thread, a
//! group that of the process that founded it, a session likewise. A number is handed out again only
//! when none of the four uses it any more, and as late as possible.

use core::fmt;

/// Number of a thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tid(pub i32);

/// Number of a process, of a process group or of a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Pid(pub i32);

/// The kernel's own first process: it runs no program and reaps what nobody else does.
pub const INIT: Pid = Pid(1);

/// One past the largest number, as `/proc/sys/kernel/pid_max` says.
pub const PID_LIMIT: i32 = 32768;

impl Tid {
    /// The number as a register value.
    pub fn to_value(self) -> u64 {
        u64::from(self.0.unsigned_abs())
    }

    /// The process that has this number if this thread leads it.
    pub fn as_pid(self) -> Pid {
        Pid(self.0)
    }
}

impl Pid {
    /// The number as a register value.
    pub fn to_value(self) -> u64 {
        u64::from(self.0.unsigned_abs())
    }

    /// The thread that leads the process.
    pub fn leader(self) -> Tid {
        Tid(self.0)
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
