//! Who a thread acts for: user and group ids, supplementary groups, capabilities.
//!
//! Credentials never change once they are shared: a call that changes them makes a copy and puts it
//! in the place of the old one, so whoever holds the old ones goes on with one consistent set. They
//! belong to a thread, as on Linux; the C library makes all threads of a process change them.

use alloc::sync::Arc;

use abi::Errno;
use fs::Identity;

use super::ids::{Pid, Tid};

/// What a privileged thread may do, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Capability {
    /// Change owners of files.
    ChangeOwner = 0,
    /// Ignore permission bits.
    OverrideAccess = 1,
    /// Do what only the owner of a file may do.
    FileOwner = 3,
    /// Send signals to anybody.
    Kill = 5,
    /// Change group ids freely.
    SetGroup = 6,
    /// Change user ids freely.
    SetUser = 7,
    /// Drop capabilities from the bounding set.
    SetCapabilities = 8,
    /// Change the root directory.
    ChangeRoot = 18,
    /// Trace and inspect anybody.
    Trace = 19,
    /// Administer: host name, mounts.
    Administer = 21,
    /// Raise priorities.
    Nice = 23,
    /// Raise limits.
    Resource = 24,
    /// Set the clock.
    Time = 25,
}

/// Number of the last capability that Linux knows.
pub const LAST_CAPABILITY: u32 = 40;
/// All capabilities.
pub const ALL_CAPABILITIES: u64 = (1 << (LAST_CAPABILITY + 1)) - 1;
/// Capabilities that follow the file-system user: owner changes, access override, set-id bits,
/// device nodes, immutable files, mandatory access.
const FILE_CAPABILITIES: u64 = 0b1_1111 | 1 << 9 | 1 << 27 | 1 << 32;

/// `SECBIT_…` of `PR_SET_SECUREBITS`.
pub mod secure_bits {
    /// The superuser gets no capabilities by `execve`.
    pub const NO_ROOT: u32 = 1;
    /// Changes of user ids leave capabilities alone.
    pub const NO_SETUID_FIXUP: u32 = 4;
    /// Keep permitted capabilities when the last superuser id goes.
    pub const KEEP_CAPABILITIES: u32 = 16;
    /// The ambient set may not grow.
    pub const NO_AMBIENT_RAISE: u32 = 64;
    /// All defined bits.
    pub const ALL: u32 = 0xff;
    /// Those that lock their neighbour.
    pub const LOCKS: u32 = 0xaa;
}

/// The capability sets of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapabilitySets {
    /// In force.
    pub effective: u64,
    /// May be put in force.
    pub permitted: u64,
    /// Kept across `execve` of files that have them.
    pub inheritable: u64,
    /// Bound on what `execve` may give.
    pub bounding: u64,
    /// Given to unprivileged programs by `execve`.
    pub ambient: u64,
}

/// Real, effective, saved and file-system id of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdSet {
    /// Who started it.
    pub real: u32,
    /// For whom it acts.
    pub effective: u32,
    /// For whom it may act again.
    pub saved: u32,
    /// For whom it accesses files.
    pub file: u32,
}

impl IdSet {
    /// All four the same.
    pub const fn all(id: u32) -> IdSet {
        IdSet { real: id, effective: id, saved: id, file: id }
    }

    /// Whether `id` is the real, the effective or the saved one.
    pub fn has(&self, id: u32) -> bool {
        id == self.real || id == self.effective || id == self.saved
    }
}

/// Who a thread acts for.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// User ids.
    pub user: IdSet,
    /// Group ids.
    pub group: IdSet,
    /// Supplementary groups, sorted.
    pub groups: Arc<[u32]>,
    /// Capabilities.
    pub capabilities: CapabilitySets,
    /// `secure_bits::…`
    pub secure_bits: u32,
    /// `execve` gives no new privileges.
    pub no_new_privileges: bool,
}

impl Credentials {
    /// The superuser with all capabilities.
    pub fn superuser() -> Credentials {
        Credentials {
            user: IdSet::all(0),
            group: IdSet::all(0),
            groups: Arc::from([]),
            capabilities: CapabilitySets {
                effective: ALL_CAPABILITIES,
                permitted: ALL_CAPABILITIES,
                inheritable: 0,
                bounding: ALL_CAPABILITIES,
                ambient: 0,
            },
            secure_bits: 0,
            no_new_privileges: false,
        }
    }

    /// Whether a capability is in force.
    pub fn is_capable(&self, capability: Capability) -> bool {
        self.capabilities.effective & (1 << capability as u32) != 0
    }

    /// `EPERM` unless the capability is in force.
    pub fn require(&self, capability: Capability) -> Result<(), Errno> {
        if self.is_capable(capability) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// The identity for file access.
    pub fn identity(&self, process: Pid, thread: Tid) -> Identity {
        Identity {
            user: self.user.file,
            group: self.group.file,
            groups: self.groups.clone(),
            privileged: self.is_capable(Capability::OverrideAccess),
            process: process.0,
            thread: thread.0,
        }
    }

    /// The identity that `access` checks: the real ids, with the superuser's override if the real
    /// user is the superuser.
    pub fn real_identity(&self, process: Pid, thread: Tid) -> Identity {
        Identity {
            user: self.user.real,
            group: self.group.real,
            groups: self.groups.clone(),
            privileged: if self.secure_bits & secure_bits::NO_SETUID_FIXUP != 0 {
                self.is_capable(Capability::OverrideAccess)
            } else {
                self.user.real == 0
                    && self.capabilities.permitted & (1 << Capability::OverrideAccess as u32) != 0
            },
            process: process.0,
            thread: thread.0,
        }
    }

    /// Whether a thread with these credentials may send signals to one with `target`'s.
    pub fn may_signal(&self, target: &Credentials) -> bool {
        let allowed = [target.user.real, target.user.saved];
        allowed.contains(&self.user.effective)
            || allowed.contains(&self.user.real)
            || self.is_capable(Capability::Kill)
    }

    /// Whether a thread with these credentials may look into one with `target`'s: the same user and
    /// group in every way, or privileged.
    pub fn may_trace(&self, target: &Credentials) -> bool {
        let users = [target.user.real, target.user.effective, target.user.saved];
        let groups = [target.group.real, target.group.effective, target.group.saved];
        (users == [self.user.file; 3] && groups == [self.group.file; 3])
            || self.is_capable(Capability::Trace)
    }

    /// Puts new user ids in force and adjusts the capabilities, as `capabilities(7)` says.
    pub fn set_users(&mut self, new: IdSet) {
        let old = self.user;
        self.user = new;
        if self.secure_bits & secure_bits::NO_SETUID_FIXUP != 0 {
            return;
        }
        let had_root = old.real == 0 || old.effective == 0 || old.saved == 0;
        let has_root = new.real == 0 || new.effective == 0 || new.saved == 0;
        if had_root && !has_root {
            if self.secure_bits & secure_bits::KEEP_CAPABILITIES == 0 {
                self.capabilities.permitted = 0;
                self.capabilities.effective = 0;
            }
            self.capabilities.ambient = 0;
        }
        if old.effective == 0 && new.effective != 0 {
            self.capabilities.effective = 0;
        }
        if old.effective != 0 && new.effective == 0 {
            self.capabilities.effective = self.capabilities.permitted;
        }
    }

    /// Sets the file-system user and adjusts the capabilities that follow it.
    pub fn set_file_user(&mut self, user: u32) {
        let old = core::mem::replace(&mut self.user.file, user);
        if self.secure_bits & secure_bits::NO_SETUID_FIXUP != 0 {
            return;
        }
        if old == 0 && user != 0 {
            self.capabilities.effective &= !FILE_CAPABILITIES;
        }
        if old != 0 && user == 0 {
            self.capabilities.effective |= self.capabilities.permitted & FILE_CAPABILITIES;
        }
    }

    /// The credentials of the program that `execve` starts: `set_user` and `set_group` are the owner
    /// and group of a file with set-id bits. The flag says whether the program is more privileged
    /// than its caller (`AT_SECURE`).
    pub fn after_exec(&self, set_user: Option<u32>, set_group: Option<u32>) -> (Credentials, bool) {
        let mut new = self.clone();
        if !self.no_new_privileges {
            if let Some(user) = set_user {
                new.user.effective = user;
            }
            if let Some(group) = set_group {
                new.group.effective = group;
            }
        }
        let changed = new.user.effective != self.user.effective
            || new.group.effective != self.group.effective;
        new.user.saved = new.user.effective;
        new.user.file = new.user.effective;
        new.group.saved = new.group.effective;
        new.group.file = new.group.effective;
        let sets = &mut new.capabilities;
        let root_matters = self.secure_bits & secure_bits::NO_ROOT == 0;
        let is_root = root_matters && (new.user.real == 0 || new.user.effective == 0);
        if changed {
            sets.ambient = 0;
        }
        let given = if is_root { sets.bounding | sets.inheritable } else { 0 };
        sets.permitted = given | sets.ambient;
        sets.effective =
            if root_matters && new.user.effective == 0 { sets.permitted } else { sets.ambient };
        new.secure_bits &= !secure_bits::KEEP_CAPABILITIES;
        let secure = changed
            || (new.user.real != 0 && new.capabilities.permitted & !new.capabilities.ambient != 0);
        let secure =
            secure || new.user.effective != new.user.real || new.group.effective != new.group.real;
        (new, secure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: u32) -> Credentials {
        let mut credentials = Credentials::superuser();
        credentials.group = IdSet::all(id);
        credentials.set_users(IdSet::all(id));
        credentials
    }

    #[test]
    fn dropping_the_last_superuser_id_drops_all_capabilities() {
        let credentials = user(1000);
        assert_eq!(credentials.capabilities.permitted, 0);
        assert_eq!(credentials.capabilities.effective, 0);
        assert!(!credentials.identity(Pid(2), Tid(2)).privileged);
    }

    #[test]
    fn an_effective_user_can_be_dropped_and_taken_back() {
        let mut credentials = Credentials::superuser();
        credentials.set_users(IdSet { real: 0, effective: 1000, saved: 0, file: 1000 });
        assert!(!credentials.is_capable(Capability::Kill));
        credentials.set_users(IdSet::all(0));
        assert!(credentials.is_capable(Capability::Kill));
    }

    #[test]
    fn a_set_user_program_is_secure_and_privileged() {
        let (credentials, secure) = user(1000).after_exec(Some(0), None);
        assert!(secure);
        assert!(credentials.is_capable(Capability::SetUser));
        assert_eq!(credentials.user.real, 1000);
        assert_eq!(credentials.user.saved, 0);
    }

    #[test]
    fn no_new_privileges_disarms_set_id_bits() {
        let mut caller = user(1000);
        caller.no_new_privileges = true;
        let (credentials, secure) = caller.after_exec(Some(0), Some(0));
        assert!(!secure);
        assert_eq!(credentials.user.effective, 1000);
    }

    #[test]
    fn signals_go_to_the_same_user_and_from_the_superuser() {
        assert!(user(1).may_signal(&user(1)));
        assert!(!user(1).may_signal(&user(2)));
        assert!(Credentials::superuser().may_signal(&user(2)));
        assert!(!user(1).may_signal(&Credentials::superuser()));
    }
}
