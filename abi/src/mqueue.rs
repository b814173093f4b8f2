//! POSIX message queues in the Linux ABI.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Send a signal.
pub const SIGEV_SIGNAL: i32 = 0;
/// Do nothing.
pub const SIGEV_NONE: i32 = 1;
/// Write to a netlink socket; the C library starts a thread then.
pub const SIGEV_THREAD: i32 = 2;
/// The highest signal number.
pub const SIGNALS: i32 = 64;

/// `struct mq_attr`
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QueueAttributes {
    /// `O_NONBLOCK` or 0.
    pub flags: i64,
    /// Most messages.
    pub messages: i64,
    /// Most bytes of a message.
    pub bytes: i64,
    /// Messages in the queue.
    pub present: i64,
    /// Zero.
    pub reserved: [i64; 4],
}

/// `struct sigevent`
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SignalEvent {
    /// What the signal brings along.
    pub value: u64,
    /// Which signal.
    pub signal: i32,
    /// `SIGEV_…`
    pub kind: i32,
    /// Not looked at.
    pub rest: [u64; 6],
}

const _: () = {
    assert!(size_of::<QueueAttributes>() == 64);
    assert!(size_of::<SignalEvent>() == 64);
};
