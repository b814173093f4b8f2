//! epoll: commands, flags and the event structure.

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `epoll_create1`: close on exec.
pub const EPOLL_CLOEXEC: u32 = 0o2000000;
/// `epoll_ctl`: watch a file.
pub const EPOLL_CTL_ADD: i32 = 1;
/// `epoll_ctl`: stop watching a file.
pub const EPOLL_CTL_DEL: i32 = 2;
/// `epoll_ctl`: change what is watched.
pub const EPOLL_CTL_MOD: i32 = 3;
/// Most events of one `epoll_wait`.
pub const EPOLL_MAX_EVENTS: i32 = i32::MAX / size_of::<EpollEvent>() as i32;

/// `eventfd2`: reads take 1.
pub const EFD_SEMAPHORE: u32 = 1;

bitflags! {
    /// What an interest asks for. The lower half are events with the numbers of `poll`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct EpollFlags: u32 {
        /// Something to read.
        const IN = 0x1;
        /// Room to write.
        const OUT = 0x4;
        /// An error (always reported).
        const ERR = 0x8;
        /// The other end is gone (always reported).
        const HUP = 0x10;
        /// Of several instances one is told.
        const EXCLUSIVE = 1 << 28;
        /// Keeps the machine awake; there is nothing to keep.
        const WAKEUP = 1 << 29;
        /// Fires once, then waits to be modified.
        const ONESHOT = 1 << 30;
        /// Reports changes, not states.
        const EDGE = 1 << 31;
    }
}

impl EpollFlags {
    /// What stays of a one-shot interest that has fired.
    pub const PRIVATE: EpollFlags = EpollFlags::EXCLUSIVE
        .union(EpollFlags::WAKEUP)
        .union(EpollFlags::ONESHOT)
        .union(EpollFlags::EDGE);
    /// What may stand beside `EXCLUSIVE`.
    pub const WITH_EXCLUSIVE: EpollFlags = EpollFlags::IN
        .union(EpollFlags::OUT)
        .union(EpollFlags::ERR)
        .union(EpollFlags::HUP)
        .union(EpollFlags::WAKEUP)
        .union(EpollFlags::EDGE)
        .union(EpollFlags::EXCLUSIVE);
}

/// `struct epoll_event` as x86-64 has it: packed, 12 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct EpollEvent {
    /// `EPOLL…`.
    pub events: u32,
    /// The program's own number, lower half first.
    data: [u32; 2],
}

impl EpollEvent {
    /// An event.
    pub const fn new(events: u32, data: u64) -> EpollEvent {
        EpollEvent { events, data: [data as u32, (data >> 32) as u32] }
    }

    /// The program's own number.
    pub const fn data(&self) -> u64 {
        self.data[0] as u64 | (self.data[1] as u64) << 32
    }
}
