//! What is known about an inode: kind, permissions, sizes and times, and the permission check.

use crate::identity::Identity;
use abi::Errno;
use abi::capability::Capability;
use abi::fs::*;

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Bytes.
    Regular,
    /// Names of other inodes.
    Directory,
    /// A path to go on with.
    Symlink,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A named socket.
    Socket,
    /// None of these: what a call made that is nothing but open.
    Anonymous,
}

impl NodeKind {
    /// The `S_IFMT` bits.
    pub const fn mode_bits(self) -> u32 {
        match self {
            NodeKind::Regular => S_IFREG,
            NodeKind::Directory => S_IFDIR,
            NodeKind::Symlink => S_IFLNK,
            NodeKind::CharacterDevice => S_IFCHR,
            NodeKind::BlockDevice => S_IFBLK,
            NodeKind::Fifo => S_IFIFO,
            NodeKind::Socket => S_IFSOCK,
            NodeKind::Anonymous => 0,
        }
    }

    /// The kind that a mode's `S_IFMT` bits name.
    pub const fn from_mode(mode: u32) -> Option<NodeKind> {
        Some(match mode & S_IFMT {
            S_IFREG => NodeKind::Regular,
            S_IFDIR => NodeKind::Directory,
            S_IFLNK => NodeKind::Symlink,
            S_IFCHR => NodeKind::CharacterDevice,
            S_IFBLK => NodeKind::BlockDevice,
            S_IFIFO => NodeKind::Fifo,
            S_IFSOCK => NodeKind::Socket,
            _ => return None,
        })
    }

    /// The `d_type` of a directory entry.
    pub const fn directory_type(self) -> u8 {
        (self.mode_bits() >> 12) as u8
    }
}

/// A point in time: seconds since 1970 and nanoseconds below 1 000 000 000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// The present.
    pub fn now() -> Timestamp {
        let now_ns = base::time::wall_ns();
        Timestamp {
            seconds: (now_ns / 1_000_000_000) as i64,
            nanoseconds: (now_ns % 1_000_000_000) as u32,
        }
    }

    /// As the ABI carries it.
    pub const fn to_abi(self) -> FileTime {
        FileTime { seconds: self.seconds, nanoseconds: self.nanoseconds as i64 }
    }

    /// As `statx` carries it.
    pub const fn to_statx(self) -> StatxTime {
        StatxTime { seconds: self.seconds, nanoseconds: self.nanoseconds, reserved: 0 }
    }
}

/// What names an inode while it exists: the device number of its file system and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InodeId {
    /// Device number of the file system.
    pub device: u64,
    /// Number of the inode.
    pub number: u64,
}

/// Who may do what to an inode: all that a permission check needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// Permission bits with set-id and sticky bits, without the type.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
}

/// A snapshot of what is known about an inode.
#[derive(Clone, Copy, Debug)]
pub struct Metadata {
    /// Which inode.
    pub id: InodeId,
    /// What it is.
    pub kind: NodeKind,
    /// Who may do what.
    pub permissions: Permissions,
    /// Number of hard links.
    pub links: u64,
    /// Size in bytes.
    pub size: u64,
    /// Allocated blocks of 512 bytes.
    pub blocks: u64,
    /// Preferred size of a transfer, in bytes.
    pub block_size: u32,
    /// Device number of a device node, else 0.
    pub represented_device: u64,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of content.
    pub modified: Timestamp,
    /// Last change of attributes.
    pub changed: Timestamp,
    /// Creation.
    pub born: Timestamp,
}

impl Metadata {
    /// Metadata of something without a history: one link, no content, all times the given one.
    pub fn simple(id: InodeId, kind: NodeKind, mode: u32, time: Timestamp) -> Metadata {
        Metadata {
            id,
            kind,
            permissions: Permissions { mode, user: 0, group: 0 },
            links: 1,
            size: 0,
            blocks: 0,
            block_size: 4096,
            represented_device: 0,
            accessed: time,
            modified: time,
            changed: time,
            born: time,
        }
    }

    /// As `stat` gives it.
    pub fn to_stat(&self) -> Stat {
        Stat {
            device: self.id.device,
            inode: self.id.number,
            links: self.links,
            mode: self.kind.mode_bits() | self.permissions.mode,
            user: self.permissions.user,
            group: self.permissions.group,
            represented_device: self.represented_device,
            size: i64::try_from(self.size).unwrap_or(i64::MAX),
            block_size: i64::from(self.block_size),
            blocks: i64::try_from(self.blocks).unwrap_or(i64::MAX),
            accessed: self.accessed.to_abi(),
            modified: self.modified.to_abi(),
            changed: self.changed.to_abi(),
            ..Stat::default()
        }
    }

    /// As `statx` gives it, with the id of the mount.
    pub fn to_statx(&self, mount: u64, is_mount_root: bool) -> Statx {
        Statx {
            mask: STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID,
            block_size: self.block_size,
            attributes: if is_mount_root { STATX_ATTR_MOUNT_ROOT } else { 0 },
            attributes_mask: STATX_ATTR_MOUNT_ROOT,
            links: u32::try_from(self.links).unwrap_or(u32::MAX),
            user: self.permissions.user,
            group: self.permissions.group,
            mode: (self.kind.mode_bits() | self.permissions.mode) as u16,
            inode: self.id.number,
            size: self.size,
            blocks: self.blocks,
            accessed: self.accessed.to_statx(),
            born: self.born.to_statx(),
            changed: self.changed.to_statx(),
            modified: self.modified.to_statx(),
            represented_major: device_major(self.represented_device),
            represented_minor: device_minor(self.represented_device),
            device_major: device_major(self.id.device),
            device_minor: device_minor(self.id.device),
            mount,
            ..Statx::default()
        }
    }
}

/// What somebody wants to do: a set of read, write and execute (or search), as in `access`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted(pub u32);

impl Wanted {
    /// Nothing: existence.
    pub const NOTHING: Wanted = Wanted(0);
    /// Execute a file or search a directory.
    pub const EXECUTE: Wanted = Wanted(1);
    /// Write.
    pub const WRITE: Wanted = Wanted(2);
    /// Read.
    pub const READ: Wanted = Wanted(4);

    /// Both.
    pub const fn and(self, other: Wanted) -> Wanted {
        Wanted(self.0 | other.0)
    }

    /// Whether all of `other` is wanted.
    pub const fn includes(self, other: Wanted) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Checks permission bits: `EACCES` unless the identity may do all of what is wanted. Who may override
/// them may do everything, except execute a file that nobody may execute.
pub fn permit(
    kind: NodeKind,
    permissions: &Permissions,
    identity: &Identity,
    wanted: Wanted,
) -> Result<(), Errno> {
    let granted = if permissions.user == identity.user {
        permissions.mode >> 6
    } else if identity.is_in_group(permissions.group) {
        permissions.mode >> 3
    } else {
        permissions.mode
    };
    if wanted.0 & 7 & !granted == 0 || overrides(kind, permissions, identity, wanted) {
        Ok(())
    } else {
        Err(Errno::EACCES)
    }
}

/// Whether capabilities give what the permission bits refuse.
fn overrides(
    kind: NodeKind,
    permissions: &Permissions,
    identity: &Identity,
    wanted: Wanted,
) -> bool {
    let is_directory = kind == NodeKind::Directory;
    let reads = if is_directory { !wanted.includes(Wanted::WRITE) } else { wanted == Wanted::READ };
    if reads && identity.is_capable(Capability::OverrideSearch) {
        return true;
    }
    let is_executable = is_directory || permissions.mode & 0o111 != 0;
    let is_possible = is_executable || !wanted.includes(Wanted::EXECUTE);
    is_possible && identity.is_capable(Capability::OverrideAccess)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn somebody(user: u32, group: u32) -> Identity {
        Identity { user, group, capabilities: 0, ..Identity::kernel() }
    }

    #[test]
    fn the_first_matching_class_decides() {
        let permissions = Permissions { mode: 0o070, user: 1, group: 2 };
        let check =
            |identity, wanted| permit(NodeKind::Regular, &permissions, &identity, wanted).is_ok();
        assert!(!check(somebody(1, 2), Wanted::READ), "the owner is not in the group's class");
        assert!(check(somebody(3, 2), Wanted::READ.and(Wanted::WRITE)));
        assert!(!check(somebody(3, 3), Wanted::READ));
    }

    #[test]
    fn capabilities_override_apart_from_each_other() {
        let closed = Permissions { mode: 0, user: 1, group: 1 };
        let with =
            |capability: Capability| Identity { capabilities: capability.bit(), ..somebody(2, 2) };
        let search = with(Capability::OverrideSearch);
        let all = with(Capability::OverrideAccess);
        let other = with(Capability::FileOwner);
        let may = |kind, identity, wanted| permit(kind, &closed, identity, wanted).is_ok();
        assert!(may(NodeKind::Regular, &search, Wanted::READ));
        assert!(!may(NodeKind::Regular, &search, Wanted::WRITE));
        assert!(!may(NodeKind::Regular, &search, Wanted::READ.and(Wanted::WRITE)));
        assert!(may(NodeKind::Directory, &search, Wanted::READ.and(Wanted::EXECUTE)));
        assert!(!may(NodeKind::Directory, &search, Wanted::WRITE));
        assert!(may(NodeKind::Regular, &all, Wanted::READ.and(Wanted::WRITE)));
        assert!(!may(NodeKind::Directory, &other, Wanted::EXECUTE));
    }

    #[test]
    fn the_superuser_executes_only_what_somebody_may_execute() {
        let plain = Permissions { mode: 0o600, user: 1, group: 1 };
        let root = Identity::kernel();
        assert!(permit(NodeKind::Regular, &plain, &root, Wanted::WRITE).is_ok());
        assert_eq!(permit(NodeKind::Regular, &plain, &root, Wanted::EXECUTE), Err(Errno::EACCES));
        assert!(permit(NodeKind::Directory, &plain, &root, Wanted::EXECUTE).is_ok());
    }
}
