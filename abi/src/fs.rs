//! Files: open flags, modes, stat, statx, statfs, directory entries, locks, vectors, poll.
//!
//! The structures have the layout of Linux on x86-64 (the generic layout of the 64-bit
//! architectures differs in `Stat` alone). They hold no pointers, only addresses as numbers.

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Longest path, its terminating NUL included.
pub const PATH_MAX: usize = 4096;
/// Longest name of a directory entry.
pub const NAME_MAX: usize = 255;
/// Writes of at most this many bytes to a pipe are never interleaved with others.
pub const PIPE_BUF: usize = 4096;
/// Most parts of one vectored transfer.
pub const IOV_MAX: usize = 1024;
/// Most bytes that one read or write moves.
pub const MAX_TRANSFER: usize = 0x7fff_f000;

/// "The working directory" where a call takes a directory's descriptor.
pub const AT_FDCWD: i32 = -100;

bitflags! {
    /// Flags of `open`, and the status flags of an open file description.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenFlags: u32 {
        /// Write only.
        const WRONLY = 0o1;
        /// Read and write.
        const RDWR = 0o2;
        /// Create the file when it is missing.
        const CREAT = 0o100;
        /// Fail when it exists.
        const EXCL = 0o200;
        /// Do not make a terminal the controlling one.
        const NOCTTY = 0o400;
        /// Cut to length 0.
        const TRUNC = 0o1000;
        /// Every write goes to the end.
        const APPEND = 0o2000;
        /// Do not wait.
        const NONBLOCK = 0o4000;
        /// Data is stable when a write returns.
        const DSYNC = 0o10000;
        /// Signal-driven input and output.
        const ASYNC = 0o20000;
        /// Bypass caches; packet mode for pipes.
        const DIRECT = 0o40000;
        /// Large offsets, implied here.
        const LARGEFILE = 0o100000;
        /// Must be a directory.
        const DIRECTORY = 0o200000;
        /// The last component must not be a symbolic link.
        const NOFOLLOW = 0o400000;
        /// Leave the access time alone.
        const NOATIME = 0o1000000;
        /// Close on exec.
        const CLOEXEC = 0o2000000;
        /// With `DSYNC`: data and metadata are stable when a write returns.
        const SYNC_BIT = 0o4000000;
        /// Only a place in the tree, no access to content.
        const PATH = 0o10000000;
        /// With `DIRECTORY`: a nameless file.
        const TMPFILE_BIT = 0o20000000;
    }
}

impl OpenFlags {
    /// The two bits that say read, write or both.
    pub const ACCESS_MODE: u32 = 3;
    /// Bit of the status flags of a descriptor that an event of fanotify gave: what is done through it is told nobody.
    /// `open` does not take it.
    pub const SILENT: u32 = 0x400_0000;
    /// `O_RDONLY`: no bit at all.
    pub const RDONLY: OpenFlags = OpenFlags::empty();
    /// `O_TMPFILE`.
    pub const TMPFILE: OpenFlags = OpenFlags::TMPFILE_BIT.union(OpenFlags::DIRECTORY);
    /// `O_SYNC`.
    pub const SYNC: OpenFlags = OpenFlags::SYNC_BIT.union(OpenFlags::DSYNC);

    /// Whether the access mode permits reading. The fourth mode (3) permits nothing but `ioctl`.
    pub const fn reads(self) -> bool {
        matches!(self.bits() & Self::ACCESS_MODE, 0 | 2)
    }

    /// Whether the access mode permits writing.
    pub const fn writes(self) -> bool {
        matches!(self.bits() & Self::ACCESS_MODE, 1 | 2)
    }
}

bitflags! {
    /// Flags of the `*at` family.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AtFlags: u32 {
        /// Do not follow a symbolic link in the last component.
        const SYMLINK_NOFOLLOW = 0x100;
        /// `faccessat`: use the effective ids. `unlinkat`: `REMOVEDIR`.
        const EACCESS = 0x200;
        /// `linkat`: follow a symbolic link in the last component.
        const SYMLINK_FOLLOW = 0x400;
        /// Do not mount what would be mounted on demand.
        const NO_AUTOMOUNT = 0x800;
        /// An empty path means the descriptor itself.
        const EMPTY_PATH = 0x1000;
        /// `statx`: always ask the file system.
        const STATX_FORCE_SYNC = 0x2000;
        /// `statx`: never wait for the file system.
        const STATX_DONT_SYNC = 0x4000;
    }
}

/// `unlinkat`: remove a directory.
pub const AT_REMOVEDIR: u32 = 0x200;

/// File type bits of a mode.
pub const S_IFMT: u32 = 0o170000;
/// Socket.
pub const S_IFSOCK: u32 = 0o140000;
/// Symbolic link.
pub const S_IFLNK: u32 = 0o120000;
/// Regular file.
pub const S_IFREG: u32 = 0o100000;
/// Block device.
pub const S_IFBLK: u32 = 0o060000;
/// Directory.
pub const S_IFDIR: u32 = 0o040000;
/// Character device.
pub const S_IFCHR: u32 = 0o020000;
/// FIFO.
pub const S_IFIFO: u32 = 0o010000;
/// Set user id on execution.
pub const S_ISUID: u32 = 0o4000;
/// Set group id on execution.
pub const S_ISGID: u32 = 0o2000;
/// Sticky: only owners remove entries.
pub const S_ISVTX: u32 = 0o1000;

/// Seconds and nanoseconds, as `struct timespec` of the 64-bit architectures.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct FileTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds, 0 to 999 999 999, or `UTIME_NOW` or `UTIME_OMIT` in `utimensat`.
    pub nanoseconds: i64,
}

/// `utimensat`: the present time.
pub const UTIME_NOW: i64 = 0x3fff_ffff;
/// `utimensat`: leave this time alone.
pub const UTIME_OMIT: i64 = 0x3fff_fffe;

/// `struct stat` of x86-64.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Stat {
    /// Device that holds the file.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Number of hard links.
    pub links: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Always zero.
    pub padding: u32,
    /// Device number of a device node.
    pub represented_device: u64,
    /// Size in bytes.
    pub size: i64,
    /// Preferred size of a transfer.
    pub block_size: i64,
    /// Allocated blocks of 512 bytes.
    pub blocks: i64,
    /// Last access.
    pub accessed: FileTime,
    /// Last change of content.
    pub modified: FileTime,
    /// Last change of attributes.
    pub changed: FileTime,
    /// Always zero.
    pub unused: [i64; 3],
}

/// `struct statx_timestamp`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct StatxTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds.
    pub nanoseconds: u32,
    /// Always zero.
    pub reserved: i32,
}

/// `struct statx`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Statx {
    /// Which fields are valid (`STATX_` bits).
    pub mask: u32,
    /// Preferred size of a transfer.
    pub block_size: u32,
    /// Attributes (`STATX_ATTR_` bits).
    pub attributes: u64,
    /// Number of hard links.
    pub links: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Type and permissions.
    pub mode: u16,
    /// Always zero.
    pub spare0: u16,
    /// Inode number.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Allocated blocks of 512 bytes.
    pub blocks: u64,
    /// Which attributes the file system knows.
    pub attributes_mask: u64,
    /// Last access.
    pub accessed: StatxTime,
    /// Creation.
    pub born: StatxTime,
    /// Last change of attributes.
    pub changed: StatxTime,
    /// Last change of content.
    pub modified: StatxTime,
    /// Device number of a device node.
    pub represented_major: u32,
    /// Device number of a device node.
    pub represented_minor: u32,
    /// Device that holds the file.
    pub device_major: u32,
    /// Device that holds the file.
    pub device_minor: u32,
    /// Mount that the path led to.
    pub mount: u64,
    /// Fields of newer kernels, zero here.
    pub spare: [u64; 13],
}

/// `statx`: the fields of `stat`.
pub const STATX_BASIC_STATS: u32 = 0x7ff;
/// `statx`: creation time.
pub const STATX_BTIME: u32 = 0x800;
/// `statx`: mount id.
pub const STATX_MNT_ID: u32 = 0x1000;
/// `statx`: reserved bit, refused.
pub const STATX_RESERVED: u32 = 0x8000_0000;
/// `statx` attribute: the file is the root of a mount.
pub const STATX_ATTR_MOUNT_ROOT: u64 = 0x2000;

/// `struct statfs`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct StatFs {
    /// Magic number of the file system's type.
    pub kind: i64,
    /// Preferred size of a transfer.
    pub block_size: i64,
    /// Blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Free blocks for ordinary users.
    pub available_blocks: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub free_files: u64,
    /// Identity of the file system.
    pub identity: [i32; 2],
    /// Longest name.
    pub name_length: i64,
    /// Size of a fragment.
    pub fragment_size: i64,
    /// Mount flags (`ST_` bits).
    pub flags: i64,
    /// Always zero.
    pub spare: [i64; 4],
}

/// `statfs`: the flags field is valid.
pub const ST_VALID: i64 = 0x20;

/// Magic number of tmpfs (devtmpfs has the same).
pub const TMPFS_MAGIC: i64 = 0x0102_1994;
/// Magic number of procfs.
pub const PROC_SUPER_MAGIC: i64 = 0x9fa0;
/// Magic number of the file system behind pipes.
pub const PIPEFS_MAGIC: i64 = 0x5049_5045;
/// `f_type` of sockets.
pub const SOCKFS_MAGIC: i64 = 0x534f_434b;
/// Magic number of devpts.
pub const DEVPTS_SUPER_MAGIC: i64 = 0x1cd1;
/// Magic number of the file system behind anonymous files.
pub const NSFS_MAGIC: i64 = 0x6e73_6673;
/// Magic number of the file system of objects without a name.
pub const ANON_INODE_FS_MAGIC: i64 = 0x0904_1934;

/// `struct iovec`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct IoVector {
    /// User address of the part.
    pub base: u64,
    /// Its bytes.
    pub length: u64,
}

/// `struct pollfd`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct PollFd {
    /// Descriptor; negative ones are skipped.
    pub descriptor: i32,
    /// Events that are waited for.
    pub events: u16,
    /// Events that are there.
    pub returned_events: u16,
}

bitflags! {
    /// Readiness, with the numbers of `poll`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct PollEvents: u16 {
        /// There is something to read.
        const IN = 0x1;
        /// Urgent data.
        const PRI = 0x2;
        /// Writing would not wait.
        const OUT = 0x4;
        /// An error (always reported).
        const ERR = 0x8;
        /// The other end is gone (always reported).
        const HUP = 0x10;
        /// The descriptor is not open (always reported).
        const NVAL = 0x20;
        /// As `IN`.
        const RDNORM = 0x40;
        /// Never set.
        const RDBAND = 0x80;
        /// As `OUT`.
        const WRNORM = 0x100;
        /// As `OUT`.
        const WRBAND = 0x200;
        /// Never set.
        const MSG = 0x400;
        /// Never set.
        const REMOVE = 0x1000;
        /// The peer will not write any more.
        const RDHUP = 0x2000;
    }
}

impl PollEvents {
    /// What a readable file reports.
    pub const READABLE: PollEvents = PollEvents::IN.union(PollEvents::RDNORM);
    /// What a writable file reports.
    pub const WRITABLE: PollEvents = PollEvents::OUT.union(PollEvents::WRNORM);
    /// Reported whether asked for or not.
    pub const ALWAYS: PollEvents = PollEvents::ERR.union(PollEvents::HUP).union(PollEvents::NVAL);
}

/// `struct flock`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FileLock {
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i16,
    /// What `start` counts from (`SEEK_`).
    pub whence: i16,
    /// Always zero.
    pub padding0: u32,
    /// First byte.
    pub start: i64,
    /// Bytes; 0 means to the end of the file, however far that moves.
    pub length: i64,
    /// Holder, when a conflict is reported.
    pub process: i32,
    /// Always zero.
    pub padding1: u32,
}

/// Shared lock.
pub const F_RDLCK: i16 = 0;
/// Exclusive lock.
pub const F_WRLCK: i16 = 1;
/// No lock.
pub const F_UNLCK: i16 = 2;

/// `fcntl` commands.
#[allow(missing_docs, reason = "the names are those of the manual")]
pub mod fcntl {
    pub const F_DUPFD: i32 = 0;
    pub const F_GETFD: i32 = 1;
    pub const F_SETFD: i32 = 2;
    pub const F_GETFL: i32 = 3;
    pub const F_SETFL: i32 = 4;
    pub const F_GETLK: i32 = 5;
    pub const F_SETLK: i32 = 6;
    pub const F_SETLKW: i32 = 7;
    pub const F_SETOWN: i32 = 8;
    pub const F_GETOWN: i32 = 9;
    pub const F_SETSIG: i32 = 10;
    pub const F_GETSIG: i32 = 11;
    pub const F_SETOWN_EX: i32 = 15;
    pub const F_GETOWN_EX: i32 = 16;
    pub const F_OFD_GETLK: i32 = 36;
    pub const F_OFD_SETLK: i32 = 37;
    pub const F_OFD_SETLKW: i32 = 38;
    pub const F_SETLEASE: i32 = 1024;
    pub const F_GETLEASE: i32 = 1025;
    pub const F_NOTIFY: i32 = 1026;
    pub const DN_ACCESS: u32 = 1;
    pub const DN_MODIFY: u32 = 2;
    pub const DN_CREATE: u32 = 4;
    pub const DN_DELETE: u32 = 8;
    pub const DN_RENAME: u32 = 0x10;
    pub const DN_ATTRIB: u32 = 0x20;
    pub const DN_MULTISHOT: u32 = 0x8000_0000;
    pub const F_DUPFD_CLOEXEC: i32 = 1030;
    pub const F_SETPIPE_SZ: i32 = 1031;
    pub const F_GETPIPE_SZ: i32 = 1032;
    pub const F_ADD_SEALS: i32 = 1033;
    pub const F_GET_SEALS: i32 = 1034;
    pub const FD_CLOEXEC: u64 = 1;
}

bitflags! {
    /// Seals of a memory file.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Seals: u32 {
        /// No further seals.
        const SEAL = 1;
        /// The file does not get smaller.
        const SHRINK = 2;
        /// The file does not get larger.
        const GROW = 4;
        /// No writes.
        const WRITE = 8;
        /// No new writes, existing writable maps stay.
        const FUTURE_WRITE = 16;
        /// The execute bits do not change.
        const EXEC = 32;
    }
}

/// `memfd_create`: close on exec.
pub const MFD_CLOEXEC: u32 = 1;
/// `memfd_create`: seals may be added.
pub const MFD_ALLOW_SEALING: u32 = 2;
/// `memfd_create`: huge pages.
pub const MFD_HUGETLB: u32 = 4;
/// `memfd_create`: the bits that say how huge.
pub const MFD_HUGE_SIZES: u32 = 0x3f << 26;
/// `memfd_create`: not executable, and sealed so.
pub const MFD_NOEXEC_SEAL: u32 = 8;
/// `memfd_create`: executable.
pub const MFD_EXEC: u32 = 16;

/// `struct f_owner_ex`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct OwnerEx {
    /// 0 thread, 1 process, 2 process group.
    pub kind: i32,
    /// Its id.
    pub id: i32,
}

/// `flock` operations.
#[allow(missing_docs, reason = "the names are those of the manual")]
pub mod flock {
    pub const LOCK_SH: i32 = 1;
    pub const LOCK_EX: i32 = 2;
    pub const LOCK_NB: i32 = 4;
    pub const LOCK_UN: i32 = 8;
}

/// `lseek` origins.
#[allow(missing_docs, reason = "the names are those of the manual")]
pub mod seek {
    pub const SEEK_SET: i32 = 0;
    pub const SEEK_CUR: i32 = 1;
    pub const SEEK_END: i32 = 2;
    pub const SEEK_DATA: i32 = 3;
    pub const SEEK_HOLE: i32 = 4;
}

bitflags! {
    /// Flags of `renameat2`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// Fail when the new name exists.
        const NOREPLACE = 1;
        /// Swap the two names.
        const EXCHANGE = 2;
        /// Leave a whiteout.
        const WHITEOUT = 4;
    }
}

bitflags! {
    /// Flags of `setxattr`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct XattrFlags: u32 {
        /// Fail when the name is there.
        const CREATE = 1;
        /// Fail when the name is not there.
        const REPLACE = 2;
    }
}

/// Longest name of an extended attribute, without the zero at its end.
pub const XATTR_NAME_MAX: usize = 255;
/// Largest value of an extended attribute.
pub const XATTR_SIZE_MAX: usize = 65536;
/// Most bytes of names that are listed.
pub const XATTR_LIST_MAX: usize = 65536;

bitflags! {
    /// Modes of `fallocate`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct AllocateFlags: u32 {
        /// Do not change the size.
        const KEEP_SIZE = 1;
        /// Make a hole.
        const PUNCH_HOLE = 2;
        /// Cut a range out.
        const COLLAPSE_RANGE = 8;
        /// Zero a range.
        const ZERO_RANGE = 0x10;
        /// Insert a range.
        const INSERT_RANGE = 0x20;
        /// Unshare blocks (not supported).
        const UNSHARE_RANGE = 0x40;
    }
}

bitflags! {
    /// Per-call flags of `preadv2` and `pwritev2`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct TransferFlags: u32 {
        /// High priority.
        const HIPRI = 1;
        /// As `DSYNC` for this write.
        const DSYNC = 2;
        /// As `SYNC` for this write.
        const SYNC = 4;
        /// Do not wait.
        const NOWAIT = 8;
        /// As `APPEND` for this write.
        const APPEND = 0x10;
        /// Not as `APPEND` for this write.
        const NOAPPEND = 0x20;
    }
}

bitflags! {
    /// Flags of `splice`, `tee` and `vmsplice`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SpliceFlags: u32 {
        /// Move pages rather than copy them: advice.
        const MOVE = 1;
        /// Do not wait for a pipe.
        const NONBLOCK = 2;
        /// More will follow: advice.
        const MORE = 4;
        /// The pages are the kernel's from now on: advice.
        const GIFT = 8;
    }
}

bitflags! {
    /// Flags of `sync_file_range`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SyncRangeFlags: u32 {
        /// Wait for what is being written.
        const WAIT_BEFORE = 1;
        /// Begin to write.
        const WRITE = 2;
        /// Wait until it is written.
        const WAIT_AFTER = 4;
    }
}

pub mod fanotify;
pub mod notify;

/// `mount` flags.
#[allow(missing_docs, reason = "the names are those of the manual")]
pub mod mount;

/// Bytes of `struct linux_dirent64` before the name.
pub const DIRENT64_HEADER: usize = 19;

/// `close_range`: unshare the table first.
pub const CLOSE_RANGE_UNSHARE: u32 = 2;
/// `close_range`: set close-on-exec instead of closing.
pub const CLOSE_RANGE_CLOEXEC: u32 = 4;

/// Makes a device number in the encoding of `stat`.
pub const fn make_device(major: u32, minor: u32) -> u64 {
    let (major, minor) = (major as u64, minor as u64);
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12 | (major & !0xfff) << 32
}

/// Major number of a device number.
pub const fn device_major(device: u64) -> u32 {
    ((device >> 8 & 0xfff) | (device >> 32 & !0xfff)) as u32
}

/// Minor number of a device number.
pub const fn device_minor(device: u64) -> u32 {
    ((device & 0xff) | (device >> 12 & 0xffff_ff00)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_size_of_linux() {
        assert_eq!(size_of::<Stat>(), 144);
        assert_eq!(size_of::<Statx>(), 256);
        assert_eq!(size_of::<StatFs>(), 120);
        assert_eq!(size_of::<PollFd>(), 8);
        assert_eq!(size_of::<FileLock>(), 32);
    }

    #[test]
    fn device_numbers_survive_the_encoding() {
        for (major, minor) in [(1, 3), (5, 1), (136, 0), (0xabc, 0xfffff), (0x12345, 0x12345)] {
            let device = make_device(major, minor);
            assert_eq!((device_major(device), device_minor(device)), (major, minor));
        }
        assert_eq!(make_device(1, 3), 0x103);
    }
}
