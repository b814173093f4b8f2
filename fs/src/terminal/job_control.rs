//! What terminals know of processes: sessions, groups and signals. The kernel hands it in at boot.

use super::Terminal;
use crate::identity::Caller;
use alloc::sync::Arc;
use base::sync::Once;

/// A caller as a member of a session. Never called while a lock of this crate is held.
pub trait JobControl {
    /// Process group of the caller.
    fn process_group(&self) -> i32;
    /// Session of the caller.
    fn session(&self) -> i32;
    /// Whether the caller leads its session.
    fn is_session_leader(&self) -> bool;
    /// The session that a process group belongs to; `None` when there is no such group.
    fn session_of_group(&self, group: i32) -> Option<i32>;
    /// Whether the caller's group has no member whose parent is outside of the group but inside the
    /// session.
    fn is_group_orphaned(&self) -> bool;
    /// Whether the calling thread blocks or ignores a signal.
    fn blocks_or_ignores(&self, signal: u8) -> bool;
    /// The terminal that controls the caller's session.
    fn controlling_terminal(&self) -> Option<Arc<Terminal>>;
    /// Changes the terminal that controls the caller's session.
    fn set_controlling_terminal(&self, terminal: Option<Arc<Terminal>>);
    /// Another session than the caller's has no terminal any more.
    fn take_terminal_from(&self, session: i32);
    /// The caller and its children see the terminal of their session no more.
    fn leave_terminal(&self);
    /// Sends a signal to all processes of a group.
    fn signal_group(&self, group: i32, signal: u8);
}

/// Whom a terminal sends a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// All processes of a group.
    Group(i32),
    /// The process that leads a session.
    Leader(i32),
}

/// How terminals reach processes.
#[derive(Clone, Copy)]
pub struct Processes {
    /// A caller as a member of its session; `None` for one that is no thread.
    pub member: for<'a> fn(&'a dyn Caller) -> Option<&'a dyn JobControl>,
    /// Sends a signal.
    pub signal: fn(recipient: Recipient, signal: u8),
}

static PROCESSES: Once<Processes> = Once::new();

/// Tells terminals how to reach processes. The kernel calls this once; until then no caller is in a session, and
/// typed signals are lost.
pub fn set_processes(processes: Processes) {
    // A second call would say the same.
    let _ = PROCESSES.set(processes);
}

/// The caller as a member of its session; `None` for the kernel itself.
pub(super) fn member(caller: &dyn Caller) -> Option<&dyn JobControl> {
    PROCESSES.get().and_then(|processes| (processes.member)(caller))
}

/// The terminal that controls the session of a caller.
pub fn controlling(caller: &dyn Caller) -> Option<Arc<Terminal>> {
    member(caller)?.controlling_terminal()
}

pub(super) fn send_signal(recipient: Recipient, signal: u8) {
    let (Recipient::Group(number) | Recipient::Leader(number)) = recipient;
    if let Some(processes) = PROCESSES.get()
        && number > 0
    {
        (processes.signal)(recipient, signal);
    }
}
