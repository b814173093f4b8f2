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
    /// `other_core`'s clock showed `value` at `time`, give or take `detail` ticks; `MOST_DETAIL` stands for more than that
    /// too, where a host took the cores away meanwhile.
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

/// What is recorded: calls, locks, and kinds of events.
///
/// Bit 0 stands for calls, bit 1 for locks, and bit 1 + *n* for events of kind *n*. What a reader needs to
/// make sense of the rest is always recorded: the roles of cores, their clocks, and the processes of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events(u32);

impl Events {
    /// Nothing but what is always recorded.
    pub const LEAST: Events = Events(
        Events::bit(EventKind::RoleChange)
            | Events::bit(EventKind::Clock)
            | Events::bit(EventKind::Thread),
    );
    /// Everything.
    pub const ALL: Events = Events((1 << (EventKind::ALL.len() + 2)) - 1);
    /// What is recorded if nothing else is asked for: everything but allocations, which are many.
    pub const USUAL: Events = Events(Events::ALL.0 & !Events::bit(EventKind::Allocation));

    const fn bit(kind: EventKind) -> u32 {
        1 << (kind as u32 + 1)
    }

    /// The bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// What these bits stand for; what is always recorded is added, and unknown bits are dropped.
    pub const fn from_bits(bits: u32) -> Events {
        Events(bits & Events::ALL.0 | Events::LEAST.0)
    }

    /// These and what a word stands for: `calls`, `locks`, `all`, `usual`, or the name of a kind.
    #[must_use]
    pub fn with(self, word: &str) -> Option<Events> {
        let more = match word {
            "calls" => 1,
            "locks" => 2,
            "all" => Events::ALL.0,
            "usual" => Events::USUAL.0,
            _ => Events::bit(EventKind::ALL.into_iter().find(|kind| kind.name() == word)?),
        };
        Some(Events(self.0 | more))
    }

    /// Whether calls are among them.
    pub const fn has_calls(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether locks are.
    pub const fn has_locks(self) -> bool {
        self.0 & 2 != 0
    }

    /// Whether events of this kind are.
    pub const fn has(self, kind: EventKind) -> bool {
        self.0 & Events::bit(kind) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_events_has_what_was_named_and_what_is_always_recorded() {
        let named = Events::LEAST.with("calls").and_then(|set| set.with("page-fault")).unwrap();
        assert!(named.has_calls() && !named.has_locks() && named.has(EventKind::PageFault));
        assert!(named.has(EventKind::Thread) && !named.has(EventKind::Park));
        assert_eq!(Events::from_bits(named.bits()), named);
        assert_eq!(Events::LEAST.with("nothing"), None);
        assert!(!Events::USUAL.has(EventKind::Allocation) && Events::USUAL.has_locks());
        assert!(EventKind::ALL.into_iter().all(|kind| Events::ALL.has(kind)));
    }
}
