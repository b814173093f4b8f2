//! Who a thread acts for: user and group ids, supplementary groups, capabilities.
//!
//! Credentials never change once they are shared: a call that changes them makes a copy and puts it
//! in the place of the old one, so whoever holds the old ones goes on with one consistent set. They
//! belong to a thread, as on Linux; the C library makes all threads of a process change them.

use alloc::sync::Arc;

use abi::Errno;
use fs::Identity;

use super::ids::{Pid, Tid};
use super::keys::Anchors;

pub use abi::capability::{ALL_CAPABILITIES, Capability, LAST_CAPABILITY};

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
    /// Where its keyrings begin.
    pub keys: Anchors,
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
            keys: Anchors::default(),
        }
    }

    /// Whether a capability is in force.
    pub fn is_capable(&self, capability: Capability) -> bool {
        self.capabilities.effective & capability.bit() != 0
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
            capabilities: self.capabilities.effective,
            process: process.0,
            thread: thread.0,
            program: 0,
        }
    }

    /// The identity that `access` checks: the real ids, with the permitted capabilities if the real
    /// user is the superuser.
    pub fn real_identity(&self, process: Pid, thread: Tid) -> Identity {
        Identity {
            user: self.user.real,
            group: self.group.real,
            groups: self.groups.clone(),
            capabilities: if self.secure_bits & secure_bits::NO_SETUID_FIXUP != 0 {
                self.capabilities.effective
            } else if self.user.real == 0 {
                self.capabilities.permitted
            } else {
                0
            },
            process: process.0,
            thread: thread.0,
            program: 0,
        }
    }

    /// Whether a thread with these credentials may send signals to one with `target`'s.
    pub fn may_signal(&self, target: &Credentials) -> bool {
        let allowed = [target.user.real, target.user.saved];
        allowed.contains(&self.user.effective)
            || allowed.contains(&self.user.real)
            || self.is_capable(Capability::Kill)
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

    /// The credentials of the program that `execve` starts, as `cap_bprm_creds_from_file` of Linux
    /// makes them. The flag says whether the program is more privileged than its caller (`AT_SECURE`).
    pub fn after_exec(&self, file: SetIds, may_gain: bool) -> (Credentials, bool) {
        let may_gain = may_gain && !self.no_new_privileges;
        let mut new = self.clone();
        if !self.no_new_privileges {
            new.user.effective = file.user.unwrap_or(new.user.effective);
            new.group.effective = file.group.unwrap_or(new.group.effective);
        }
        let changes_ids =
            new.user.effective != self.user.real || new.group.effective != self.group.real;
        let root_matters = self.secure_bits & secure_bits::NO_ROOT == 0;
        let is_root = new.user.real == 0 || new.user.effective == 0;
        let takes_effect = root_matters && new.user.effective == 0;
        let sets = &mut new.capabilities;
        sets.permitted = if root_matters && is_root { sets.bounding | sets.inheritable } else { 0 };
        let gains = sets.permitted & !self.capabilities.permitted != 0;
        if (changes_ids || gains) && !may_gain {
            if !self.is_capable(Capability::SetUser) || self.no_new_privileges {
                new.user.effective = new.user.real;
                new.group.effective = new.group.real;
            }
            sets.permitted &= self.capabilities.permitted;
        }
        new.user.saved = new.user.effective;
        new.user.file = new.user.effective;
        new.group.saved = new.group.effective;
        new.group.file = new.group.effective;
        if changes_ids {
            sets.ambient = 0;
        }
        sets.permitted |= sets.ambient;
        sets.effective = if takes_effect { sets.permitted } else { sets.ambient };
        new.secure_bits &= !secure_bits::KEEP_CAPABILITIES;
        new.keys = self.keys.inherit(false);
        let has_more = takes_effect || new.capabilities.permitted & !new.capabilities.ambient != 0;
        let is_secure = changes_ids || (new.user.real != 0 && has_more);
        (new, is_secure)
    }

    /// Whether nobody may look into a program that had these credentials and gets `new` ones but who
    /// may look into everything.
    pub fn hides_from(&self, new: &Credentials) -> bool {
        self.user.effective != new.user.effective
            || self.user.file != new.user.file
            || self.group.effective != new.group.effective
            || self.group.file != new.group.file
            || new.capabilities.permitted & !self.capabilities.permitted != 0
    }
}

/// Owner and group of a program file whose set-id bits count.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct SetIds {
    /// With the set-user-id bit.
    pub user: Option<u32>,
    /// With the set-group-id bit.
    pub group: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT_PROGRAM: SetIds = SetIds { user: Some(0), group: None };

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
        assert_eq!(credentials.identity(Pid(2), Tid(2)).capabilities, 0);
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
        let (credentials, secure) = user(1000).after_exec(ROOT_PROGRAM, true);
        assert!(secure);
        assert!(credentials.is_capable(Capability::SetUser));
        assert_eq!(credentials.user.real, 1000);
        assert_eq!(credentials.user.saved, 0);
    }

    #[test]
    fn no_new_privileges_disarms_set_id_bits() {
        let mut caller = user(1000);
        caller.no_new_privileges = true;
        let (credentials, secure) =
            caller.after_exec(SetIds { user: Some(0), group: Some(0) }, true);
        assert!(!secure);
        assert_eq!(credentials.user.effective, 1000);
    }

    #[test]
    fn who_may_not_gain_keeps_what_he_has() {
        let (credentials, secure) = user(1000).after_exec(ROOT_PROGRAM, false);
        assert!(secure, "its libraries are careful all the same");
        assert_eq!(credentials.user, IdSet::all(1000));
        assert_eq!(credentials.capabilities.permitted, 0);
        assert_eq!(credentials.capabilities.effective, 0);
        assert!(!user(1000).hides_from(&credentials));
    }

    #[test]
    fn a_program_with_new_rights_hides() {
        let old = user(1000);
        let (credentials, _) = old.after_exec(ROOT_PROGRAM, true);
        assert!(old.hides_from(&credentials));
        let (same, secure) = old.after_exec(SetIds::default(), true);
        assert!(!secure && !old.hides_from(&same));
    }

    #[test]
    fn signals_go_to_the_same_user_and_from_the_superuser() {
        assert!(user(1).may_signal(&user(1)));
        assert!(!user(1).may_signal(&user(2)));
        assert!(Credentials::superuser().may_signal(&user(2)));
        assert!(!user(1).may_signal(&Credentials::superuser()));
    }
}
