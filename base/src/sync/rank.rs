//! The lock classes of the kernel and their order. A core that holds a lock takes only locks of higher
//! rank. `docs/locks.md` is made from this list (`./ferry docs`).
//!
//! From outside in: who exists (processes, threads), what they own (signals, files), what files are
//! (mounts, inodes, pipes, terminals), memory (spaces, futexes, page tables), and last the floor itself
//! (wait queues, timers, executors, frames, heap, log), which every other part may use while it holds a
//! lock of its own.

/// What a lock is for and where it stands in the order.
#[derive(Debug)]
pub struct LockClass {
    /// Name for messages and traces.
    pub name: &'static str,
    /// Place in the order: taken after all lower ones.
    pub rank: u16,
}

macro_rules! classes {
    ($($(#[$meta:meta])* $name:ident = $rank:literal;)*) => {
        $($(#[$meta])* pub static $name: LockClass =
            LockClass { name: stringify!($name), rank: $rank };)*

        /// All classes, lowest rank first.
        pub static ALL: &[&LockClass] = &[$(&$name),*];
    };
}

classes! {
    /// The kernel, or what one class of calls uses, under a giant or the coarse lock scheme.
    KERNEL = 5;
    /// The table of processes, groups and sessions.
    PROCESS_TREE = 10;
    /// One process.
    PROCESS = 20;
    /// One thread.
    THREAD = 30;
    /// Signals of a thread or process.
    SIGNALS = 40;
    /// A table of file descriptors.
    FILE_TABLE = 50;
    /// An open file description.
    OPEN_FILE = 60;
    /// The table of mounts.
    MOUNTS = 70;
    /// The shape of one file system's tree.
    TREE_CHANGE = 75;
    /// The table of pseudo-terminals.
    PAIRS = 77;
    /// An inode; a parent before its child, with `lock_nested`.
    INODE = 80;
    /// The files to whose end somebody writes.
    FILE_ENDS = 84;
    /// The table of file locks.
    FILE_LOCKS = 85;
    /// The table of those who are told of files by signal.
    FILE_SIGNALS = 86;
    /// The table of those who watch files.
    FILE_MARKS = 87;
    /// The events of one watcher of files.
    FILE_EVENTS = 88;
    /// A pipe.
    PIPE = 90;
    /// The names of local sockets.
    SOCKET_NAMES = 92;
    /// The open files that are in messages of local sockets.
    RIGHTS = 93;
    /// A socket.
    SOCKET = 95;
    /// Open files from messages that nobody received, to be closed.
    DISCARDED = 97;
    /// A terminal.
    TERMINAL = 100;
    /// Contexts of native asynchronous input and output, and what each has completed.
    ASYNCHRONOUS = 105;
    /// The patched sites of an address space.
    SITES = 108;
    /// An address space.
    SPACE = 110;
    /// The objects of one kind of System V IPC.
    IPC_TABLE = 111;
    /// One object of System V IPC.
    IPC_OBJECT = 112;
    /// The answer of one call that waits for such an object.
    IPC_WAITER = 113;
    /// A text in `/proc/sys`.
    SETTINGS = 114;
    /// Futex buckets.
    FUTEX = 115;
    /// A page table; the parent's before the child's at fork, with `lock_nested`.
    PAGE_TABLE = 120;
    /// The inodes and operations of one file system on another machine, or of one with two layers; an inode
    /// that is let go of anywhere leaves them.
    REMOTE_FILES = 163;
    /// What became of one such operation.
    REMOTE_ANSWER = 164;
    /// What is left of directories and files that have ended.
    GRAVE = 165;
    /// All keys and keyrings.
    KEYS = 168;
    /// The queue of output to the host.
    CONSOLE = 170;
    /// A device and its driver.
    DEVICE = 180;
    /// Where the answer of a remote call arrives.
    CALL_SLOT = 190;
    /// The I/O that an operation on this core wants.
    WANTED_IO = 192;
    /// Which epoll instances watch which.
    EPOLL_NESTING = 193;
    /// What a watcher of wait queues was told; the lists of an epoll instance.
    WATCHER = 195;
    /// A wait queue.
    WAIT_QUEUE = 200;
    /// What users hold.
    QUOTA = 205;
    /// A core's queue of timers.
    TIMER = 210;
    /// A core's executor.
    EXECUTOR = 220;
    /// Frames of RAM.
    FRAMES = 230;
    /// The heap.
    HEAP = 240;
    /// The log.
    LOG = 250;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_rise_in_the_order_of_the_list() {
        assert!(ALL.windows(2).all(|pair| pair[0].rank < pair[1].rank));
    }
}
