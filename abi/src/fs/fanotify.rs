//! `fanotify_init` and `fanotify_mark`: flags and layouts, as in `linux/fanotify.h` of Linux 6.1.

use bitflags::bitflags;

bitflags! {
    /// Flags of `fanotify_init`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InitFlags: u32 {
        /// Close the descriptor on exec.
        const CLOEXEC = 0x1;
        /// Reading does not wait.
        const NONBLOCK = 0x2;
        /// May ask for permission, with the content in place.
        const CLASS_CONTENT = 0x4;
        /// May ask for permission, before the content is in place.
        const CLASS_PRE_CONTENT = 0x8;
        /// No limit of waiting events.
        const UNLIMITED_QUEUE = 0x10;
        /// No limit of marks.
        const UNLIMITED_MARKS = 0x20;
        /// Answers may ask for a record of the audit.
        const ENABLE_AUDIT = 0x40;
        /// Tell a descriptor of the process that acts.
        const REPORT_PIDFD = 0x80;
        /// Tell the thread that acts, not its process.
        const REPORT_TID = 0x100;
        /// Tell the file by its handle.
        const REPORT_FID = 0x200;
        /// Tell the directory by its handle.
        const REPORT_DIR_FID = 0x400;
        /// Tell the name in the directory.
        const REPORT_NAME = 0x800;
        /// Tell the file of an event of its directory.
        const REPORT_TARGET_FID = 0x1000;

        /// The classes.
        const CLASSES = 0xc;
        /// Files are told by handles, not by descriptors.
        const FILE_IDS = 0x1e00;
        /// What takes the right to administer.
        const ADMINISTRATIVE = 0x1bc;
    }
}

bitflags! {
    /// Flags of `fanotify_mark`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MarkFlags: u32 {
        /// Add to a mark, or make it.
        const ADD = 0x1;
        /// Take from a mark.
        const REMOVE = 0x2;
        /// A symbolic link is meant itself.
        const DONT_FOLLOW = 0x4;
        /// Only directories.
        const ONLYDIR = 0x8;
        /// The mount is meant.
        const MOUNT = 0x10;
        /// What is to be ignored, whatever the flags in the mask say.
        const IGNORED_MASK = 0x20;
        /// What is ignored stays so when the file is changed.
        const IGNORED_SURV_MODIFY = 0x40;
        /// Remove all marks of the type.
        const FLUSH = 0x80;
        /// The file system is meant.
        const FILESYSTEM = 0x100;
        /// The mark may go with the inode.
        const EVICTABLE = 0x200;
        /// What is to be ignored.
        const IGNORE = 0x400;

        /// The types of marks.
        const TYPES = 0x110;
        /// What is done.
        const COMMANDS = 0x83;
        /// Both ways to say what is ignored.
        const IGNORES = 0x420;
        /// What a mark keeps.
        const KEPT = 0x640;
    }
}

bitflags! {
    /// Events and options of a mark's mask. The first twelve have the numbers of inotify.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FileEvents: u32 {
        /// Read.
        const ACCESS = 0x1;
        /// Content changed.
        const MODIFY = 0x2;
        /// Attributes changed.
        const ATTRIB = 0x4;
        /// Closed by somebody who could write.
        const CLOSE_WRITE = 0x8;
        /// Closed by somebody who could not.
        const CLOSE_NOWRITE = 0x10;
        /// Opened.
        const OPEN = 0x20;
        /// An entry went elsewhere.
        const MOVED_FROM = 0x40;
        /// An entry came from elsewhere.
        const MOVED_TO = 0x80;
        /// An entry was made.
        const CREATE = 0x100;
        /// An entry was removed.
        const DELETE = 0x200;
        /// The inode itself is gone.
        const DELETE_SELF = 0x400;
        /// The inode itself has another name.
        const MOVE_SELF = 0x800;
        /// Opened to be executed.
        const OPEN_EXEC = 0x1000;
        /// Events were lost.
        const Q_OVERFLOW = 0x4000;
        /// The file system has found an error.
        const FS_ERROR = 0x8000;
        /// May it be opened?
        const OPEN_PERM = 0x1_0000;
        /// May it be read?
        const ACCESS_PERM = 0x2_0000;
        /// May it be opened to be executed?
        const OPEN_EXEC_PERM = 0x4_0000;
        /// Events of the entries of a directory, too.
        const EVENT_ON_CHILD = 0x0800_0000;
        /// An entry has another name, with both names.
        const RENAME = 0x1000_0000;
        /// Events of directories, too; it happened to a directory.
        const ONDIR = 0x4000_0000;

        /// Questions.
        const PERMISSIONS = 0x7_0000;
        /// Options.
        const OPTIONS = 0x4800_0000;
        /// What happens to entries of a directory.
        const OF_ENTRIES = 0x1000_03c0;
        /// What happens to a file that was found by a path.
        const WITH_PATH = 0x103b;
        /// All events of Linux 6.1 that a mark may ask for.
        const ALL = 0x1000_9fff;
        /// What an event tells.
        const TOLD = 0x5007_dfff;
    }
}

/// Bytes of `struct fanotify_event_metadata`.
pub const METADATA: usize = 24;
/// Its version.
pub const METADATA_VERSION: u8 = 3;
/// No descriptor in an event.
pub const NO_DESCRIPTOR: i32 = -1;
/// The descriptor of the process could not be made.
pub const PIDFD_FAILED: i32 = -2;

/// Types of records after the metadata.
pub mod record {
    /// A file by its handle.
    pub const FILE: u8 = 1;
    /// A directory by its handle, and a name in it.
    pub const DIRECTORY_AND_NAME: u8 = 2;
    /// A directory by its handle.
    pub const DIRECTORY: u8 = 3;
    /// A descriptor of the process.
    pub const PIDFD: u8 = 4;
    /// The directory and name before a move.
    pub const OLD_NAME: u8 = 10;
    /// The directory and name after a move.
    pub const NEW_NAME: u8 = 12;
}

/// Answers to questions: `FAN_ALLOW`.
pub const ALLOW: u32 = 1;
/// `FAN_DENY`
pub const DENY: u32 = 2;
/// `FAN_AUDIT`: besides, a record of the audit.
pub const AUDIT: u32 = 0x10;
