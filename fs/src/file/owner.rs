//! The owner of an open file description: who is told by signal of what happens to it (`F_SETOWN`).

use super::OpenFile;
use abi::fs::PollEvents;
use base::sync::Once;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// What an owner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerKind {
    /// A thread.
    Thread,
    /// A process.
    Process,
    /// A process group.
    Group,
}

impl OwnerKind {
    const ALL: [OwnerKind; 3] = [OwnerKind::Thread, OwnerKind::Process, OwnerKind::Group];

    /// As `struct f_owner_ex` numbers it.
    pub fn from_number(number: i32) -> Option<OwnerKind> {
        usize::try_from(number).ok().and_then(|number| OwnerKind::ALL.get(number).copied())
    }

    /// As `struct f_owner_ex` numbers it.
    pub fn number(self) -> i32 {
        self as i32
    }
}

/// An owner, and with whose rights it was set.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// What it is.
    pub kind: OwnerKind,
    /// Its number; 0 for nobody.
    pub id: i32,
    /// Real and effective user of who set it: signals go where these may send them.
    pub users: [u32; 2],
}

/// Why an owner is told: `si_code` of the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is something to read.
    Input = 1,
    /// There is room to write.
    Output = 2,
    /// Something happened in a directory, or a lease is wanted back.
    Message = 3,
    /// An error.
    Error = 4,
    /// Urgent data came: `SIGURG`, whatever signal was chosen.
    Urgent = 5,
    /// The other end is gone.
    HangUp = 6,
}

impl Reason {
    /// `si_band` of the signal.
    pub fn band(self) -> PollEvents {
        match self {
            Reason::Input => PollEvents::READABLE,
            Reason::Output => PollEvents::WRITABLE | PollEvents::WRBAND,
            Reason::Message => PollEvents::READABLE | PollEvents::MSG,
            Reason::Error => PollEvents::ERR,
            Reason::Urgent => PollEvents::PRI,
            Reason::HangUp => PollEvents::HUP | PollEvents::ERR,
        }
    }
}

/// Sends a signal to an owner; 0 stands for a plain `SIGIO`. Called with no lock held.
pub type Sender = fn(owner: &Owner, signal: i32, descriptor: i32, reason: Reason);

static SENDER: Once<Sender> = Once::new();

/// Says how owners are told. The kernel calls this once.
pub fn set_sender(sender: Sender) {
    // A second sender would be the same one.
    let _ = SENDER.set(sender);
}

/// The owner as an open file description keeps it. Each word stands for itself; whoever changes the
/// owner while a signal is sent may see it go to either.
pub(super) struct OwnerCell {
    kind: AtomicI32,
    id: AtomicI32,
    users: AtomicU64,
    signal: AtomicI32,
}

impl OwnerCell {
    pub(super) const fn new() -> OwnerCell {
        OwnerCell {
            kind: AtomicI32::new(0),
            id: AtomicI32::new(0),
            users: AtomicU64::new(0),
            signal: AtomicI32::new(0),
        }
    }
}

impl OpenFile {
    /// Who is told by signal.
    pub fn owner(&self) -> Owner {
        let cell = &self.owner;
        let users = cell.users.load(Ordering::Relaxed);
        let kind = OwnerKind::from_number(cell.kind.load(Ordering::Relaxed));
        Owner {
            kind: kind.unwrap_or(OwnerKind::Thread),
            id: cell.id.load(Ordering::Relaxed),
            users: [(users >> 32) as u32, users as u32],
        }
    }

    /// Changes who is told by signal.
    pub fn set_owner(&self, owner: &Owner) {
        let [real, effective] = owner.users;
        let cell = &self.owner;
        cell.kind.store(owner.kind.number(), Ordering::Relaxed);
        cell.users.store(u64::from(real) << 32 | u64::from(effective), Ordering::Relaxed);
        cell.id.store(owner.id, Ordering::Relaxed);
    }

    /// The signal that is sent instead of `SIGIO`; 0 for `SIGIO`.
    pub fn owner_signal(&self) -> i32 {
        self.owner.signal.load(Ordering::Relaxed)
    }

    /// Changes the signal that is sent instead of `SIGIO`.
    pub fn set_owner_signal(&self, signal: i32) {
        self.owner.signal.store(signal, Ordering::Relaxed);
    }

    /// Tells the owner by signal; `descriptor` is what it calls the file. Called with no lock held.
    pub fn signal_owner(&self, descriptor: i32, reason: Reason) {
        let owner = self.owner();
        if owner.id != 0
            && let Some(send) = SENDER.get()
        {
            send(&owner, self.owner_signal(), descriptor, reason);
        }
    }
}
