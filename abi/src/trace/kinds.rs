//! What records are told apart by: paths, lock schemes, kinds of events.

use super::record::RecordError;

/// How a call was carried; numbered as the route table does it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Path {
    /// Trap, executed on the caller's core.
    #[default]
    Local = 0,
    /// Trap, executed on a kernel core.
    Remote = 1,
    /// No trap: written to a syspage, executed on a kernel core.
    Posted = 2,
}

impl Path {
    /// All paths.
    pub const ALL: [Path; 3] = [Path::Local, Path::Remote, Path::Posted];

    /// The word that the tools use.
    pub const fn name(self) -> &'static str {
        match self {
            Path::Local => "local",
            Path::Remote => "remote",
            Path::Posted => "posted",
        }
    }
}

/// Which locks there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LockScheme {
    /// A lock for each object.
    #[default]
    Fine = 0,
    /// A lock for each class of calls.
    Coarse = 1,
    /// One lock, taken in the order of tickets; all that wait look at one line.
    GiantTicket = 2,
    /// One lock; each that waits looks at the line of the one before it.
    GiantClh = 3,
    /// One lock; each that waits looks at a line of its own.
    GiantMcs = 4,
}

impl LockScheme {
    /// All schemes.
    pub const ALL: [LockScheme; 5] = [
        LockScheme::Fine,
        LockScheme::Coarse,
        LockScheme::GiantTicket,
        LockScheme::GiantClh,
        LockScheme::GiantMcs,
    ];

    /// The word that options and configurations use.
    pub const fn name(self) -> &'static str {
        match self {
            LockScheme::Fine => "fine",
            LockScheme::Coarse => "coarse",
            LockScheme::GiantTicket => "giant-ticket",
            LockScheme::GiantClh => "giant-clh",
            LockScheme::GiantMcs => "giant-mcs",
        }
    }

    pub(super) const fn from_code(code: u64) -> Result<LockScheme, RecordError> {
        match code {
            0 => Ok(LockScheme::Fine),
            1 => Ok(LockScheme::Coarse),
            2 => Ok(LockScheme::GiantTicket),
            3 => Ok(LockScheme::GiantClh),
            4 => Ok(LockScheme::GiantMcs),
            other => Err(RecordError::UnknownScheme(other as u8)),
        }
    }
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EventKind {
    /// Interrupts were handled: `detail` has bit 0 for a timer, 1 for another core, 2 for a device.
    Interrupt = 1,
    /// A doorbell was rung for `other_core`.
    Doorbell = 2,
    /// The core was parked for `duration`.
    Park = 3,
    /// The core spun for work or for an answer for `duration`.
    Spin = 4,
    /// The core went over to the thread; `value` is the thread before it, `duration` the switch.
    Switch = 5,
    /// The thread was made ready by `other_core` and ran `duration` later.
    WakeUp = 6,
    /// A page fault of the thread at address `value`; `detail` bit 0: write, bit 1: had to wait.
    PageFault = 7,
    /// The server of class `detail` moved from `core` to `other_core`.
    ServerMove = 8,
    /// The core's roles are now `detail`: bit 0 application, bit 1 kernel, bit 2 interrupt.
    RoleChange = 9,
    /// Calls of number `detail` of the thread now go by path `value`.
    PathChange = 10,
    /// `value` bytes of size class `detail` were allocated.
    Allocation = 11,
    /// `other_core`'s clock showed `value` at `time`, give or take `detail` ticks.
    Clock = 12,
    /// The thread belongs to process `value`.
    Thread = 13,
}

impl EventKind {
    /// All kinds, in order of their codes.
    pub const ALL: [EventKind; 13] = [
        EventKind::Interrupt,
        EventKind::Doorbell,
        EventKind::Park,
        EventKind::Spin,
        EventKind::Switch,
        EventKind::WakeUp,
        EventKind::PageFault,
        EventKind::ServerMove,
        EventKind::RoleChange,
        EventKind::PathChange,
        EventKind::Allocation,
        EventKind::Clock,
        EventKind::Thread,
    ];

    /// The word that the tools use.
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::Interrupt => "interrupt",
            EventKind::Doorbell => "doorbell",
            EventKind::Park => "park",
            EventKind::Spin => "spin",
            EventKind::Switch => "switch",
            EventKind::WakeUp => "wake-up",
            EventKind::PageFault => "page-fault",
            EventKind::ServerMove => "server-move",
            EventKind::RoleChange => "role-change",
            EventKind::PathChange => "path-change",
            EventKind::Allocation => "allocation",
            EventKind::Clock => "clock",
            EventKind::Thread => "thread",
        }
    }

    pub(super) fn from_code(code: u64) -> Result<EventKind, RecordError> {
        let known = EventKind::ALL.into_iter().find(|kind| *kind as u64 == code);
        known.ok_or(RecordError::UnknownEvent(code as u8))
    }
}
