//! What happens to files, and how to watch for it.

use bitflags::bitflags;

bitflags! {
    /// Events and options of inotify, with its numbers; and those that only `F_NOTIFY` has.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Events: u32 {
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
        /// fanotify: opened to be executed.
        const OPEN_EXEC = 0x1000;
        /// Its file system is not mounted any more.
        const UNMOUNT = 0x2000;
        /// Events were lost.
        const Q_OVERFLOW = 0x4000;
        /// The watch has ended.
        const IGNORED = 0x8000;
        /// `F_NOTIFY`: an entry got another name in the same directory.
        const RENAMED = 0x10000;
        /// `F_NOTIFY`: not once only.
        const MULTISHOT = 0x20000;
        /// Only directories may be watched.
        const ONLYDIR = 0x0100_0000;
        /// A symbolic link is watched itself.
        const DONT_FOLLOW = 0x0200_0000;
        /// Nothing of what happens to files without a name.
        const EXCL_UNLINK = 0x0400_0000;
        /// Only for an inode that is not watched yet.
        const MASK_CREATE = 0x1000_0000;
        /// Add to the events of a watch.
        const MASK_ADD = 0x2000_0000;
        /// It happened to a directory.
        const ISDIR = 0x4000_0000;
        /// The watch ends with the first event.
        const ONESHOT = 0x8000_0000;

        /// What a watch may ask for.
        const ALL = 0xfff | 0x10000;
        /// All bits that `inotify_add_watch` takes.
        const OF_INOTIFY = 0xfff | 0xe000 | 0x0700_0000 | 0xf000_0000;
    }
}
