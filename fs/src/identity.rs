//! Who acts: the identity that permission checks use, and the caller that it is of.

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

/// Who calls, for files whose answer depends on it. The kernel implements it.
pub trait Caller: Sync {
    /// Who it is.
    fn identity(&self) -> Identity;
    /// The thread, for those who know its type: files that the kernel makes, and `terminal::JobControl`.
    fn as_any(&self) -> &dyn Any;
}

/// The kernel itself as a caller, and that of tests.
pub struct NoCaller;

impl Caller for NoCaller {
    fn identity(&self) -> Identity {
        Identity::kernel()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
