//! Who may use an object: owner, creator, and the nine mode bits.

use abi::Errno;
use abi::ipc::IpcPermission;

use crate::process::credentials::{Capability, Credentials};

const MODE: u32 = 0o777;
const READ: u32 = 0o444;
const WRITE: u32 = 0o222;

/// What a caller wants to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted(u32);

impl Wanted {
    /// To look.
    pub const READ: Wanted = Wanted(READ);
    /// To change.
    pub const WRITE: Wanted = Wanted(WRITE);
    /// Both.
    pub const BOTH: Wanted = Wanted(READ | WRITE);
    /// Both, and to execute.
    pub const EXECUTE: Wanted = Wanted(0o111);

    /// What the low bits of the flags of `…get` ask for.
    pub const fn of_flags(flags: u32) -> Wanted {
        Wanted(flags & MODE)
    }

    /// Both of two.
    pub const fn and(self, other: Wanted) -> Wanted {
        Wanted(self.0 | other.0)
    }
}

/// Owner, creator and mode of one object.
#[derive(Clone, Copy, Debug)]
pub struct Permission {
    /// What finds it; `IPC_PRIVATE` once nothing does.
    pub key: i32,
    /// Owner.
    pub user: u32,
    /// Group of the owner.
    pub group: u32,
    creator_user: u32,
    creator_group: u32,
    /// The nine bits, and those that one kind adds.
    pub mode: u32,
}

impl Permission {
    /// Those of a new object.
    pub fn new(key: i32, flags: u32, credentials: &Credentials) -> Permission {
        let (user, group) = (credentials.user.effective, credentials.group.effective);
        Permission {
            key,
            user,
            group,
            creator_user: user,
            creator_group: group,
            mode: flags & MODE,
        }
    }

    /// `EACCES` unless all that is wanted is granted.
    pub fn check(&self, wanted: Wanted, credentials: &Credentials) -> Result<(), Errno> {
        let user = credentials.user.effective;
        let is_in = |group| {
            credentials.group.file == group || credentials.groups.binary_search(&group).is_ok()
        };
        let granted = if user == self.creator_user || user == self.user {
            self.mode >> 6
        } else if is_in(self.creator_group) || is_in(self.group) {
            self.mode >> 3
        } else {
            self.mode
        };
        let wanted = wanted.0 >> 6 | wanted.0 >> 3 | wanted.0;
        if wanted & !granted & 7 != 0 && !credentials.is_capable(Capability::IpcOwner) {
            return Err(Errno::EACCES);
        }
        Ok(())
    }

    /// `EPERM` unless the caller owns or made it, or administers.
    pub fn check_owner(&self, credentials: &Credentials) -> Result<(), Errno> {
        if self.is_owner(credentials) || credentials.is_capable(Capability::Administer) {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }

    /// Whether the caller owns or made it.
    pub fn is_owner(&self, credentials: &Credentials) -> bool {
        let user = credentials.user.effective;
        user == self.creator_user || user == self.user
    }

    /// `IPC_SET`: a new owner and mode.
    ///
    /// # Errors
    /// `EINVAL` for an id that is none.
    pub fn set(&mut self, to: &IpcPermission) -> Result<(), Errno> {
        if to.user == u32::MAX || to.group == u32::MAX {
            return Err(Errno::EINVAL);
        }
        self.user = to.user;
        self.group = to.group;
        self.mode = self.mode & !MODE | to.mode & MODE;
        Ok(())
    }

    /// The structure that describes it; `id` is the object's number.
    pub fn describe(&self, id: i32) -> IpcPermission {
        IpcPermission {
            key: self.key,
            user: self.user,
            group: self.group,
            creator_user: self.creator_user,
            creator_group: self.creator_group,
            mode: self.mode,
            sequence: super::table::sequence_of(id) as u16,
            ..IpcPermission::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::credentials::IdSet;

    fn user(id: u32) -> Credentials {
        let mut credentials = Credentials::superuser();
        credentials.group = IdSet::all(id);
        credentials.set_users(IdSet::all(id));
        credentials
    }

    #[test]
    fn owner_group_and_others_have_their_own_bits() {
        let permission = Permission::new(1, 0o640, &user(10));
        assert_eq!(permission.check(Wanted::BOTH, &user(10)), Ok(()));
        let mut member = user(11);
        member.groups = alloc::sync::Arc::from([10]);
        assert_eq!(permission.check(Wanted::READ, &member), Ok(()));
        assert_eq!(permission.check(Wanted::WRITE, &member), Err(Errno::EACCES));
        assert_eq!(permission.check(Wanted::READ, &user(12)), Err(Errno::EACCES));
        assert_eq!(permission.check(Wanted::BOTH, &Credentials::superuser()), Ok(()));
    }

    #[test]
    fn a_creator_stays_one_when_the_owner_changes() {
        let mut permission = Permission::new(1, 0o600, &user(10));
        let to = IpcPermission { user: 20, group: 20, mode: 0o7400, ..IpcPermission::default() };
        permission.set(&to).unwrap();
        assert_eq!(permission.mode, 0o400);
        assert!(permission.is_owner(&user(10)) && permission.is_owner(&user(20)));
        assert_eq!(permission.check_owner(&user(30)), Err(Errno::EPERM));
    }
}
