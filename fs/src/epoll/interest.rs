//! One watched file of an epoll instance.

use super::{Epoll, Key, WATCHES};
use crate::file::{OpenFile, Watch};
use crate::identity::Caller;
use crate::poll::PollTable;
use abi::epoll::{EpollEvent, EpollFlags};
use abi::fs::PollEvents;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use base::sync::{Mutex, rank};
use base::wait::{Kind, Registration, Target, Watcher};
use core::sync::atomic::{AtomicU64, Ordering};

static NEXT_SERIAL: AtomicU64 = AtomicU64::new(1);

/// Not in the ready list.
pub(super) const NOWHERE: u64 = 0;

/// The interest of an instance in a file.
pub struct Interest {
    me: Weak<Interest>,
    epoll: Weak<Epoll>,
    file: Weak<OpenFile>,
    key: Key,
    pub(super) serial: u64,
    is_nested: bool,
    wanted: Mutex<Wanted>,
    /// Its number in the ready list, or `NOWHERE`; changed under the lock of the instance.
    pub(super) place: AtomicU64,
    /// Places in the file's queues; `None` once given up.
    registrations: Mutex<Option<Vec<Registration>>>,
}

/// What the program asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    flags: EpollFlags,
    data: u64,
}

impl Wanted {
    /// Nothing.
    pub(super) const NOTHING: Wanted = Wanted { flags: EpollFlags::empty(), data: 0 };

    fn new(event: EpollEvent) -> Wanted {
        let always = EpollFlags::ERR | EpollFlags::HUP;
        let flags = EpollFlags::from_bits_retain(event.events) | always;
        Wanted { flags, data: event.data() }
    }

    /// Whether an event stays until it has gone away.
    pub(super) fn is_level_triggered(self) -> bool {
        !self.flags.intersects(EpollFlags::EDGE | EpollFlags::ONESHOT)
    }

    /// Nothing once a one-shot interest has fired.
    fn events(self) -> PollEvents {
        PollEvents::from_bits_truncate(self.flags.bits() as u16)
    }
}

impl Interest {
    pub(super) fn new(
        epoll: Weak<Epoll>,
        file: &Arc<OpenFile>,
        descriptor: i32,
        event: EpollEvent,
        is_nested: bool,
    ) -> Arc<Interest> {
        Arc::new_cyclic(|me| Interest {
            me: me.clone(),
            epoll,
            file: Arc::downgrade(file),
            key: (file.id(), descriptor),
            serial: NEXT_SERIAL.fetch_add(1, Ordering::Relaxed),
            is_nested,
            wanted: Mutex::new(&rank::WATCHER, Wanted::new(event)),
            place: AtomicU64::new(NOWHERE),
            registrations: Mutex::new(&rank::WATCHER, Some(Vec::new())),
        })
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// The watched file; `None` once it is closed.
    pub(super) fn file(&self) -> Option<Arc<OpenFile>> {
        self.file.upgrade()
    }

    /// The instance; `None` once it is closed.
    pub(super) fn epoll(&self) -> Option<Arc<Epoll>> {
        self.epoll.upgrade()
    }

    /// What the program asked for.
    pub(super) fn wanted(&self) -> Wanted {
        *self.wanted.lock()
    }

    pub(super) fn is_exclusive(&self) -> bool {
        self.wanted().flags.contains(EpollFlags::EXCLUSIVE)
    }

    /// The same, as the program wrote it.
    pub(super) fn event(&self) -> EpollEvent {
        let wanted = self.wanted();
        EpollEvent::new(wanted.flags.bits(), wanted.data)
    }

    pub(super) fn set(&self, event: EpollEvent) {
        *self.wanted.lock() = Wanted::new(event);
    }

    /// It ends with the file.
    pub(super) fn watch(&self, file: &OpenFile) {
        let me: Weak<dyn Watch> = self.me.clone();
        file.watches().add(self.serial, me);
    }

    /// Enters the queues of the file; what is there now.
    pub(super) fn register(&self, caller: &dyn Caller, file: &OpenFile) -> PollEvents {
        let watcher: Weak<dyn Watcher> = self.me.clone();
        let target = Target::Watcher(watcher, 0);
        let kind = if self.is_exclusive() { Kind::ExclusiveWatcher } else { Kind::Watcher };
        let events = self.wanted().events();
        let mut places = Vec::new();
        // The mask can change later, so the queues tell everything.
        let mut table = PollTable::new(kind, PollEvents::all(), &target, &mut places);
        let there = file.file().poll_for(caller, events, Some(&mut table)) & events;
        let refused = match &mut *self.registrations.lock() {
            Some(kept) => {
                kept.append(&mut places);
                None
            }
            // Taken out again meanwhile.
            None => Some(places),
        };
        drop(refused);
        there
    }

    /// Leaves the queues of the file for good.
    pub(super) fn give_up(&self) {
        let places = self.registrations.lock().take();
        drop(places);
    }

    /// What is there of what is wanted.
    pub(super) fn look(&self, caller: &dyn Caller, file: &OpenFile) -> PollEvents {
        let events = self.wanted().events();
        if events.is_empty() {
            return events;
        }
        file.file().poll_for(caller, events, None) & events
    }

    /// The event for the program, if there is one, and what was wanted (`wanted`) before it was taken. Of
    /// several who take from a one-shot interest one gets it.
    pub(super) fn take(
        &self,
        caller: &dyn Caller,
        file: &OpenFile,
        wanted: Wanted,
    ) -> Option<(EpollEvent, Wanted)> {
        let events = wanted.events();
        if events.is_empty() {
            return None;
        }
        let there = file.file().poll_for(caller, events, None) & events;
        if there.is_empty() {
            return None;
        }
        if wanted.flags.contains(EpollFlags::ONESHOT) {
            let mut now = self.wanted.lock();
            if *now != wanted {
                return None;
            }
            now.flags &= EpollFlags::PRIVATE;
        }
        Some((EpollEvent::new(u32::from(there.bits()), wanted.data), wanted))
    }

    /// The program could not be given the event: it is as if it had not been taken.
    pub(super) fn restore(&self, before: Wanted) {
        {
            let mut wanted = self.wanted.lock();
            let disabled = Wanted { flags: before.flags & EpollFlags::PRIVATE, ..before };
            if *wanted == disabled {
                *wanted = before;
            }
        }
        if let (Some(epoll), Some(me)) = (self.epoll(), self.me.upgrade()) {
            epoll.push(&me, true);
        }
    }

    /// Into the ready list, and a waiter is told.
    pub(super) fn make_ready(&self) -> bool {
        let (Some(epoll), Some(me)) = (self.epoll(), self.me.upgrade()) else { return false };
        if epoll.push(&me, false) {
            epoll.changed().notify(PollEvents::READABLE)
        } else {
            // Whoever watches the instance learns of every event, once until it has looked.
            epoll.tell_outer();
            false
        }
    }
}

impl Interest {
    /// The file is not watched any more: it need not end this interest.
    pub(super) fn leave(&self, file: &OpenFile) {
        file.watches().remove(self.serial);
        if self.is_nested
            && let Ok(inner) = Epoll::of(file)
        {
            let removed = inner.state.lock().outer.remove(&self.serial);
            drop(removed);
        }
    }

    /// The instance that is watched has something new.
    pub(super) fn outer_changed(&self) {
        if self.wanted().events().intersects(PollEvents::READABLE) {
            self.make_ready();
        }
    }
}

impl Watch for Interest {
    fn file_closed(&self) {
        match self.epoll() {
            Some(epoll) => epoll.forget(self.key()),
            None => self.give_up(),
        }
    }
}

impl Watcher for Interest {
    fn notify(&self, _token: u64, events: PollEvents) -> bool {
        let wanted = self.wanted().events();
        // A queue that does not say what happened may mean anything.
        if wanted.is_empty() || !events.intersects(wanted) {
            return false;
        }
        self.make_ready()
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        WATCHES.fetch_sub(1, Ordering::Relaxed);
    }
}
