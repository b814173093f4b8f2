//! `O_ASYNC`: the owner of an open file description is told by signal when it becomes ready.
//!
//! A description with the flag is a watcher of its file's wait queues, like one of epoll; what it is told
//! becomes a signal. The watchers are in one table, so that descriptions without the flag carry nothing.

use super::{OpenFile, Reason};
use crate::poll::{ALWAYS_READY, PollTable};
use abi::Errno;
use abi::fs::{OpenFlags, PollEvents};
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use base::heap::tree;
use base::sync::{Mutex, rank};
use base::wait::{Kind, Registration, Target, Watcher};

/// Tells the owner of one description.
struct Teller {
    open: Weak<OpenFile>,
    /// What the owner calls the file.
    descriptor: i32,
}

/// A teller, and its places in the queues of its file.
struct Entry {
    /// Registrations hold it weakly.
    _teller: Arc<Teller>,
    _places: Vec<Registration>,
}

/// By the number of the description.
static TELLERS: Mutex<BTreeMap<u64, Entry>> = Mutex::new(&rank::FILE_SIGNALS, BTreeMap::new());

impl Watcher for Teller {
    fn notify(&self, _token: u64, events: PollEvents) -> bool {
        let Some(open) = self.open.upgrade() else { return false };
        // A wake-up that does not say what it is for stands for whatever is there now.
        let there = open.file().poll(events & ALWAYS_READY, None) & (events | PollEvents::ALWAYS);
        let reason = if there.intersects(PollEvents::READABLE) {
            Reason::Input
        } else if there.intersects(PollEvents::HUP | PollEvents::ERR) {
            Reason::HangUp
        } else if there.intersects(PollEvents::WRITABLE) {
            Reason::Output
        } else {
            return false;
        };
        open.signal_owner(self.descriptor, reason);
        true
    }
}

impl OpenFile {
    /// Whether the owner can be told when it becomes ready.
    pub fn can_signal(&self) -> bool {
        self.file().can_be_watched()
    }

    /// Tells the owner by signal from now on when it becomes ready, or no more. `ENOTTY` for what is
    /// always ready.
    pub fn set_signals(self: &Arc<OpenFile>, descriptor: i32, on: bool) -> Result<(), Errno> {
        if !self.can_signal() {
            return Err(Errno::ENOTTY);
        }
        let entry = on.then(|| {
            let teller = Arc::new(Teller { open: Arc::downgrade(self), descriptor });
            let weak: Weak<Teller> = Arc::downgrade(&teller);
            let target = Target::Watcher(weak, 0);
            let mut places = Vec::new();
            let mut table = PollTable::new(Kind::Watcher, ALWAYS_READY, &target, &mut places);
            self.file().poll(ALWAYS_READY, Some(&mut table));
            Entry { _teller: teller, _places: places }
        });
        let flag = if on { OpenFlags::ASYNC } else { OpenFlags::empty() };
        self.change_flags(OpenFlags::ASYNC, flag);
        let mut tellers = TELLERS.lock();
        let old = match entry {
            Some(entry) => tree::insert(&mut tellers, self.id(), entry),
            None => tellers.remove(&self.id()),
        };
        drop(tellers);
        drop(old);
        Ok(())
    }
}

/// The description is gone.
pub(super) fn forget(id: u64) {
    let old = TELLERS.lock().remove(&id);
    drop(old);
}
