//! Who acts: the identity that permission checks use, and the questions that terminals ask about the
//! calling process.

use crate::terminal::Terminal;
use abi::capability::{ALL_CAPABILITIES, Capability};
use alloc::sync::Arc;
use core::any::Any;

/// On whose behalf a file operation is done. Travels with the request.
#[derive(Clone, Debug)]
pub struct Identity {
    /// User id for file access (`fsuid`).
    pub user: u32,
    /// Group id for file access (`fsgid`).
    pub group: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
    /// Capabilities in force, one bit each.
    pub capabilities: u64,
    /// Process id, for `/proc/self`.
    pub process: i32,
    /// Thread id, for `/proc/thread-self`.
    pub thread: i32,
    /// Number of the program that acts: a process has another one after `execve`.
    pub program: u64,
}

impl Identity {
    /// The superuser, acting for the kernel itself.
    pub fn kernel() -> Identity {
        Identity {
            user: 0,
            group: 0,
            groups: Arc::from([]),
            capabilities: ALL_CAPABILITIES,
            process: 0,
            thread: 0,
            program: 0,
        }
    }

    /// Whether the identity belongs to a group.
    pub fn is_in_group(&self, group: u32) -> bool {
        self.group == group || self.groups.contains(&group)
    }

    /// Whether a capability is in force.
    pub const fn is_capable(&self, capability: Capability) -> bool {
        self.capabilities & capability.bit() != 0
    }

    /// Whether the identity may do what only the owner may (`chmod`, `utimes`, …).
    pub fn owns(&self, user: u32) -> bool {
        self.user == user || self.is_capable(Capability::FileOwner)
    }

    /// Whether a set-group-id bit of a file of this group survives what the identity does to it.
    pub fn keeps_set_group(&self, group: u32) -> bool {
        self.is_in_group(group) || self.is_capable(Capability::FileSetId)
    }
}

/// What terminals must know about the process that calls, and do to it. The kernel implements it.
/// Never called while a lock of this crate is held.
pub trait Caller: Sync {
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
    fn take_terminal_from(&self, _session: i32) {}
    /// The caller and its children see the terminal of their session no more.
    fn leave_terminal(&self) {}
    /// Sends a signal to all processes of a group.
    fn signal_group(&self, group: i32, signal: u8);
    /// Who it is.
    fn identity(&self) -> Identity;
    /// The thread, for files that the kernel makes and that belong to whoever reads them.
    fn as_any(&self) -> &dyn Any;
}

/// A caller without a session, for the kernel itself and for tests.
pub struct NoCaller;

impl Caller for NoCaller {
    fn process_group(&self) -> i32 {
        0
    }
    fn session(&self) -> i32 {
        0
    }
    fn is_session_leader(&self) -> bool {
        false
    }
    fn session_of_group(&self, _group: i32) -> Option<i32> {
        None
    }
    fn is_group_orphaned(&self) -> bool {
        true
    }
    fn blocks_or_ignores(&self, _signal: u8) -> bool {
        true
    }
    fn controlling_terminal(&self) -> Option<Arc<Terminal>> {
        None
    }
    fn set_controlling_terminal(&self, _terminal: Option<Arc<Terminal>>) {}
    fn signal_group(&self, _group: i32, _signal: u8) {}
    fn identity(&self) -> Identity {
        Identity::kernel()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
