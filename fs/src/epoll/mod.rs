//! epoll: a file that watches other files.
//!
//! An instance has one *interest* for each pair of open file and descriptor number. The interest is
//! registered with the file's wait queues for as long as it exists; a wake-up that brings an event it
//! wants puts it into the list of those that may be ready and wakes one waiter. `collect` asks each file
//! in that list what is there now, so what has gone away again is not reported.
//!
//! ```text
//!   wake-up of the file --> Interest::notify --> ready list --> one waiter of the instance
//!                                                    |  ^
//!                       collect: ask the file <------+  +---- level-triggered: back to the end
//! ```
//!
//! An interest does not keep its file open: when the last descriptor of the file is closed the file
//! takes its interests out of all instances (`forget`). Instances may watch instances, within the
//! limits of `nesting`.
//!
//! Locks: `state` of an instance (rank WATCHER) is held for list operations only, never while a file
//! is asked, a queue is entered or a waiter is told; the lock of `nesting` comes before it.

mod interest;
mod nesting;
#[cfg(test)]
mod tests;

use crate::anonymous::{AnonymousInode, Label};
use crate::file::{File, OpenFile};
use crate::identity::{Caller, NoCaller};
use crate::metadata::{NodeKind, Permissions};
use crate::poll::{PollTable, register};
use abi::Errno;
use abi::epoll::EpollEvent;
use abi::fs::{OpenFlags, PollEvents};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use base::heap::tree;
use base::sync::{Mutex, rank};
use base::wait::WaitQueue;
use core::any::Any;
use core::fmt::Write as _;
use core::sync::atomic::{AtomicU64, Ordering};
use interest::{Interest, NOWHERE, Wanted};
use nesting::Search;

/// The open file's number and the descriptor.
type Key = (u64, i32);

/// An epoll instance.
pub struct Epoll {
    me: Weak<Epoll>,
    state: Mutex<State>,
    changed: WaitQueue,
    marks: nesting::Marks,
}

struct State {
    interests: BTreeMap<Key, Arc<Interest>>,
    /// Those of `interests` whose file is an instance.
    nested: BTreeMap<u64, Arc<Interest>>,
    /// Interests of other instances in this one.
    outer: BTreeMap<u64, Weak<Interest>>,
    /// What may be ready, by `Interest::place`.
    ready: BTreeMap<u64, Arc<Interest>>,
    /// Places from here on are free, and those below `first`.
    end: u64,
    first: u64,
}

/// One look at the ready list, which may be taken in parts: places that have not had their turn.
pub struct Round {
    next: u64,
    end: u64,
}

/// Interests of all instances.
static WATCHES: AtomicU64 = AtomicU64::new(0);

/// Interests that are taken from the ready list under one hold of the lock.
const FEW: usize = 16;

/// Where the places of a new instance begin: there is as much room before as behind.
const MIDDLE: u64 = 1 << 63;

/// Most interests that may exist (`/proc/sys/fs/epoll/max_user_watches`): as Linux, 4 % of memory.
pub fn watch_limit() -> u64 {
    /// Bytes that one counts for.
    const WATCH_SIZE: u64 = 160;
    let memory = base::memory::frame_counts().total as u64 * base::memory::PAGE_SIZE as u64;
    memory / 25 / WATCH_SIZE
}

impl Epoll {
    /// An open file of a new instance.
    pub fn open() -> Result<Arc<OpenFile>, Errno> {
        let state = State {
            interests: BTreeMap::new(),
            nested: BTreeMap::new(),
            outer: BTreeMap::new(),
            ready: BTreeMap::new(),
            end: MIDDLE,
            first: MIDDLE,
        };
        let epoll = Arc::new_cyclic(|me| Epoll {
            me: me.clone(),
            state: Mutex::new(&rank::WATCHER, state),
            changed: WaitQueue::new(),
            marks: nesting::Marks::new(),
        });
        let label = Label::Plain("anon_inode:[eventpoll]");
        let permissions = Permissions { mode: 0o600, user: 0, group: 0 };
        let location = AnonymousInode::location(NodeKind::Anonymous, label, permissions);
        OpenFile::new(epoll, location, OpenFlags::RDWR)
    }

    /// The instance behind an open file; `EINVAL` when it is something else.
    pub fn of(file: &OpenFile) -> Result<&Epoll, Errno> {
        file.file().as_any().downcast_ref().ok_or(Errno::EINVAL)
    }

    /// Where waiters wait.
    pub fn changed(&self) -> &WaitQueue {
        &self.changed
    }

    /// Watches a file. `EEXIST` when it is watched under this descriptor already, `ELOOP` for
    /// instances in a circle or too deep, `ENOSPC` beyond the limit.
    pub fn add(
        &self,
        caller: &dyn Caller,
        file: &Arc<OpenFile>,
        descriptor: i32,
        event: EpollEvent,
    ) -> Result<(), Errno> {
        let inner = Epoll::of(file).ok();
        let interest = {
            // Held until the interest is in place.
            let mut search = inner.map(|_| Search::begin());
            if let (Some(search), Some(inner)) = (&mut search, inner) {
                search.check(self, inner)?;
            }
            self.insert(file, descriptor, event, inner)?
        };
        interest.watch(file);
        let there = interest.register(caller, file);
        if !there.is_empty() {
            interest.make_ready();
        }
        Ok(())
    }

    fn insert(
        &self,
        file: &Arc<OpenFile>,
        descriptor: i32,
        event: EpollEvent,
        inner: Option<&Epoll>,
    ) -> Result<Arc<Interest>, Errno> {
        let count = WATCHES.fetch_add(1, Ordering::Relaxed);
        // From here on, dropping the interest takes it out of the count.
        let interest = Interest::new(self.me.clone(), file, descriptor, event, inner.is_some());
        if count >= watch_limit() {
            return Err(Errno::ENOSPC);
        }
        {
            let mut state = self.state.lock();
            if state.interests.contains_key(&interest.key()) {
                return Err(Errno::EEXIST);
            }
            tree::insert(&mut state.interests, interest.key(), interest.clone());
            if inner.is_some() {
                tree::insert(&mut state.nested, interest.serial, interest.clone());
            }
        }
        if let Some(inner) = inner {
            tree::insert(&mut inner.state.lock().outer, interest.serial, Arc::downgrade(&interest));
        }
        Ok(interest)
    }

    fn find(&self, file: &OpenFile, descriptor: i32) -> Result<Arc<Interest>, Errno> {
        let state = self.state.lock();
        state.interests.get(&(file.id(), descriptor)).cloned().ok_or(Errno::ENOENT)
    }

    /// The file that is watched under a descriptor; the one after `skipped` others, since a descriptor may have had
    /// several files. `ENOENT` when there is none.
    pub fn target(&self, descriptor: i32, skipped: usize) -> Result<Arc<OpenFile>, Errno> {
        let state = self.state.lock();
        let under = |key: &&Key| key.1 == descriptor;
        let key = state.interests.keys().filter(under).nth(skipped).copied();
        let interest = key.and_then(|key| state.interests.get(&key).cloned());
        drop(state);
        interest.and_then(|interest| interest.file()).ok_or(Errno::ENOENT)
    }

    /// Changes what is watched of a file, and makes a one-shot interest active again. `ENOENT` when
    /// it is not watched, `EINVAL` for what is exclusive.
    pub fn modify(
        &self,
        caller: &dyn Caller,
        file: &OpenFile,
        descriptor: i32,
        event: EpollEvent,
    ) -> Result<(), Errno> {
        let interest = self.find(file, descriptor)?;
        if interest.is_exclusive() {
            return Err(Errno::EINVAL);
        }
        interest.set(event);
        if !interest.look(caller, file).is_empty() {
            interest.make_ready();
        }
        Ok(())
    }

    /// Stops watching a file. `ENOENT` when it is not watched.
    pub fn remove(&self, file: &OpenFile, descriptor: i32) -> Result<(), Errno> {
        let interest = self.find(file, descriptor)?;
        self.forget(interest.key());
        interest.leave(file);
        Ok(())
    }

    /// Takes an interest out, whose file is gone or that is not wanted any more.
    fn forget(&self, key: Key) {
        let (interest, others) = {
            let mut state = self.state.lock();
            let Some(interest) = state.interests.remove(&key) else { return };
            let others = (state.nested.remove(&interest.serial), state.take_out(&interest));
            (interest, others)
        };
        drop(others);
        interest.give_up();
    }

    /// Begins a round: what is in the list now, each once. What comes into it later has its turn in the
    /// next round.
    pub fn round(&self) -> Round {
        let state = self.state.lock();
        Round { next: state.first, end: state.end }
    }

    /// Takes what is ready of a round and was not taken in it yet, `most` events at most. What is
    /// level-triggered stays in the list, behind what there was no room for; the caller calls `pass_on`
    /// after the last part of a round.
    pub fn collect(&self, round: &mut Round, caller: &dyn Caller, most: usize) -> Vec<Delivery> {
        let mut found: Vec<Delivery> = Vec::new();
        let Round { next, end } = round;
        while found.len() < most {
            let (start, count) = (found.len(), FEW.min(most - found.len()));
            found.reserve(count);
            for (place, interest) in self.state.lock().ready.range(*next..*end).take(count) {
                *next = place + 1;
                found.push(Delivery::of(interest));
            }
            if found.len() == start {
                break;
            }
            let mut kept = start;
            for index in start..found.len() {
                let delivery = &mut found[index];
                if let Some((event, before)) = self.take_event(caller, &delivery.interest) {
                    (delivery.event, delivery.before) = (event, before);
                    if kept != index {
                        found.swap(kept, index);
                    }
                    kept += 1;
                }
            }
            found.truncate(kept);
        }
        let is_more = || self.state.lock().ready.range(*next..).next().is_some();
        if found.len() >= most && is_more() {
            for delivery in &found {
                if self.take_out(&delivery.interest) {
                    self.push(&delivery.interest, false);
                }
            }
        }
        found
    }

    /// What an interest in the ready list has for the program, and what was wanted before it was taken.
    fn take_event(
        &self,
        caller: &dyn Caller,
        interest: &Arc<Interest>,
    ) -> Option<(EpollEvent, Wanted)> {
        let wanted = interest.wanted();
        if wanted.is_level_triggered() {
            if interest.place.load(Ordering::Relaxed) == NOWHERE {
                // Taken out since the list was read.
                return None;
            }
            let Some(file) = interest.file() else {
                self.take_out(interest);
                return None;
            };
            let taken = interest.take(caller, &file, wanted);
            // One that stays until its file was asked is asked once more when it goes.
            if taken.is_none()
                && self.take_out(interest)
                && !interest.look(caller, &file).is_empty()
            {
                self.push(interest, false);
            }
            return taken;
        }
        // An event that comes after the look finds an interest that is not in the list, and puts it there.
        if !self.take_out(interest) {
            return None;
        }
        let file = interest.file()?;
        interest.take(caller, &file, interest.wanted())
    }

    /// Takes an interest out of the ready list; false when it was not there.
    fn take_out(&self, interest: &Interest) -> bool {
        let entry = self.state.lock().take_out(interest);
        entry.is_some()
    }

    /// Whether something may be ready.
    pub fn may_have_events(&self) -> bool {
        !self.state.lock().ready.is_empty()
    }

    /// Tells the next waiter when there is more.
    pub fn pass_on(&self) {
        if self.changed.has_waiters() && self.may_have_events() {
            self.changed.wake_one();
        }
    }

    /// Puts back what could not be given to the program.
    pub fn give_back(&self, deliveries: &[Delivery]) {
        for delivery in deliveries.iter().rev() {
            delivery.interest.restore(delivery.before);
        }
    }

    /// Puts an interest into the ready list, unless it is there; true when it was not.
    fn push(&self, interest: &Arc<Interest>, at_front: bool) -> bool {
        let mut state = self.state.lock();
        let present = state.interests.get(&interest.key());
        let is_ours = present.is_some_and(|present| Arc::ptr_eq(present, interest));
        if !is_ours || interest.place.load(Ordering::Relaxed) != NOWHERE {
            return false;
        }
        let place = if at_front {
            state.first -= 1;
            state.first
        } else {
            state.end += 1;
            state.end - 1
        };
        interest.place.store(place, Ordering::Relaxed);
        tree::insert(&mut state.ready, place, interest.clone());
        true
    }

    /// An event came for an interest that is in the list already. Instances that watch this one
    /// and have looked since learn of it; those that have not know.
    fn tell_outer(&self) {
        let outer: Vec<Arc<Interest>> =
            self.state.lock().outer.values().filter_map(Weak::upgrade).collect();
        for interest in outer {
            if interest.place.load(Ordering::Relaxed) == NOWHERE {
                interest.outer_changed();
            }
        }
    }
}

impl State {
    /// Out of the ready list.
    fn take_out(&mut self, interest: &Interest) -> Option<Arc<Interest>> {
        match interest.place.swap(NOWHERE, Ordering::Relaxed) {
            NOWHERE => None,
            place => self.ready.remove(&place),
        }
    }
}

/// An event for the program, and what it is from.
pub struct Delivery {
    interest: Arc<Interest>,
    before: Wanted,
    /// What the program gets.
    pub event: EpollEvent,
}

impl Delivery {
    /// Of an interest that was not asked yet.
    fn of(interest: &Arc<Interest>) -> Delivery {
        let (before, event) = (Wanted::NOTHING, EpollEvent::new(0, 0));
        Delivery { interest: interest.clone(), before, event }
    }
}

impl File for Epoll {
    fn can_signal(&self) -> bool {
        false
    }

    fn poll(&self, events: PollEvents, table: Option<&mut PollTable<'_>>) -> PollEvents {
        self.poll_for(&NoCaller, events, table)
    }

    fn poll_for(
        &self,
        caller: &dyn Caller,
        events: PollEvents,
        table: Option<&mut PollTable<'_>>,
    ) -> PollEvents {
        register(table, &self.changed);
        let end = self.state.lock().end;
        loop {
            let first = {
                let state = self.state.lock();
                let first = state.ready.first_key_value().filter(|(place, _)| **place < end);
                first.map(|(_, interest)| interest.clone())
            };
            let Some(interest) = first else { return PollEvents::empty() };
            let is_ready =
                || interest.file().is_some_and(|file| !interest.look(caller, &file).is_empty());
            if is_ready() {
                return PollEvents::READABLE & events;
            }
            // Not ready any more. Who makes it ready while it is taken out finds it in the list, so it
            // is asked once more.
            let entry = self.state.lock().take_out(&interest);
            drop(entry);
            if is_ready() {
                self.push(&interest, false);
                return PollEvents::READABLE & events;
            }
        }
    }

    fn seek(&self, position: u64, _: i64, _: i32) -> Result<u64, Errno> {
        Ok(position)
    }

    fn information(&self) -> String {
        let interests: Vec<Arc<Interest>> = self.state.lock().interests.values().cloned().collect();
        let mut text = String::new();
        for interest in interests {
            let event = interest.event();
            let (position, number, device) = interest.file().map_or((0, 0, 0), |file| {
                let id = file.inode().id();
                (file.position(), id.number, id.device)
            });
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "tfd: {:8} events: {:8x} data: {:16x}  pos:{position} ino:{number:x} sdev:{device:x}",
                interest.key().1,
                event.events,
                event.data(),
            );
        }
        text
    }

    fn can_read(&self) -> bool {
        false
    }

    fn can_write(&self) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        state.ready.clear();
        state.nested.clear();
        for interest in core::mem::take(&mut state.interests).into_values() {
            interest.give_up();
            if let Some(file) = interest.file() {
                interest.leave(&file);
            }
        }
    }
}
