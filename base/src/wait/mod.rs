//! Queues of those who wait for something to change.
//!
//! The rule for users: change the state first, release its lock, then wake. A waiter registers first,
//! then looks at the state, then waits; a full fence on both sides makes one of them see the other, so
//! no wake-up is lost, and a wake-up of a queue in which nobody waits is one load.
//!
//! Two kinds wait. *Watchers* (`watch`: poll, select, epoll) stay until their registration is dropped,
//! and each wake-up tells all of them. *Takers* (`wait_until`, and `watch` of an exclusive kind:
//! blocking reads, accept, `EPOLLEXCLUSIVE`) are told one at a time, the oldest first. A taker that was
//! chosen and is dropped before it could act passes the wake-up on.
//!
//! A wake-up says what happened (`notify`); who did not ask for that is left alone. Targets are
//! collected in batches under the lock and told after its release, so a target may use any queue,
//! this one included; waking n waiters takes O(n) steps.

mod line;
mod registration;
#[cfg(all(test, not(loom)))]
mod tests;
mod until;

pub use registration::Registration;
pub use until::WaitUntil;

use abi::fs::PollEvents;
use alloc::sync::{Arc, Weak};
use core::task::Waker;

use line::Line;

use crate::primitives::{AtomicUsize, Ordering, constant, fence};
use crate::sync::{Mutex, Once, rank};

/// Every event there is.
const ANY: PollEvents = PollEvents::all();
/// Targets collected under one hold of the lock.
const BATCH: usize = 16;
/// Waiters looked at under one hold of the lock.
const LOOKS: usize = 128;

/// Who is told of wake-ups by more than a waker.
pub trait Watcher: Send + Sync {
    /// Something happened; `token` is what the registration was made with. Called without the lock of
    /// the queue. The answer counts for an exclusive watcher: whether it takes the wake-up on; if
    /// not, the next one is told.
    fn notify(&self, token: u64, events: PollEvents) -> bool;
}

/// Whom a wake-up reaches.
#[derive(Clone)]
pub enum Target {
    /// A task.
    Waker(Waker),
    /// A watcher, with a token of its own choice; nobody when it is gone.
    Watcher(Weak<dyn Watcher>, u64),
}

impl Target {
    fn tell(self, events: PollEvents) -> bool {
        match self {
            Target::Waker(waker) => {
                waker.wake();
                true
            }
            Target::Watcher(watcher, token) => {
                watcher.upgrade().is_some_and(|watcher| watcher.notify(token, events))
            }
        }
    }
}

/// What becomes of a registration in a wake-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Every wake-up tells it.
    Watcher,
    /// One of its kind is told, and stays.
    ExclusiveWatcher,
    /// One of its kind is told, and leaves the queue.
    Taker,
}

/// A queue of waiters. Its inside is allocated when somebody waits for the first time.
pub struct WaitQueue {
    inside: Once<Arc<Inside>>,
}

struct Inside {
    /// Takers and watchers in `waiters`; written under its lock, read without.
    count: AtomicUsize,
    waiters: Mutex<Waiters>,
}

struct Waiters {
    takers: Line<Waiter>,
    watchers: Line<Waiter>,
    next_id: u64,
}

struct Waiter {
    wanted: PollEvents,
    /// Takers only: stays in the queue when it is told.
    stays: bool,
    target: Target,
}

impl Waiters {
    fn list(&mut self, kind: Kind) -> &mut Line<Waiter> {
        if kind == Kind::Watcher { &mut self.watchers } else { &mut self.takers }
    }

    fn count(&self) -> usize {
        self.takers.len() + self.watchers.len()
    }
}

/// How far a wake-up has come.
struct Round {
    events: PollEvents,
    /// Watchers and takers below these numbers have had their turn.
    next_watcher: u64,
    next_taker: u64,
    /// Who came after the wake-up began looks by itself.
    end: u64,
    /// Takers that may still be told.
    left: usize,
    /// Waiters that were looked at.
    looks: usize,
}

impl Round {
    fn new(events: PollEvents, most: usize) -> Round {
        Round { events, next_watcher: 0, next_taker: 0, end: u64::MAX, left: most, looks: 0 }
    }
}

/// What one hold of the lock brought.
struct Batch {
    targets: [Option<Target>; BATCH],
    length: usize,
    /// The last target is an exclusive watcher, which may refuse.
    may_refuse: bool,
    is_last: bool,
}

impl Batch {
    fn push(&mut self, target: Target) {
        if let Some(place) = self.targets.get_mut(self.length) {
            *place = Some(target);
            self.length += 1;
        }
    }
}

impl Inside {
    fn add(&self, kind: Kind, wanted: PollEvents, target: Target) -> u64 {
        let waiter = Waiter { wanted, stays: kind == Kind::ExclusiveWatcher, target };
        let mut waiters = self.waiters.lock();
        let id = waiters.next_id;
        waiters.next_id += 1;
        waiters.list(kind).push(id, waiter);
        self.count.store(waiters.count(), Ordering::Relaxed);
        drop(waiters);
        fence(Ordering::SeqCst);
        id
    }

    /// Takes a waiter out; false when it was out already, because it was told.
    fn remove(&self, kind: Kind, id: u64) -> bool {
        let mut waiters = self.waiters.lock();
        let removed = waiters.list(kind).remove(id);
        self.count.store(waiters.count(), Ordering::Relaxed);
        drop(waiters);
        removed.is_some()
    }

    /// Whether a taker is still in the queue; its waker is made `waker` then.
    fn still_waits(&self, id: u64, waker: &Waker) -> bool {
        let mut waiters = self.waiters.lock();
        let Some(waiter) = waiters.takers.get_mut(id) else { return false };
        match &mut waiter.target {
            Target::Waker(present) => present.clone_from(waker),
            Target::Watcher(..) => {}
        }
        true
    }

    /// Whether a waiter is still in the queue, whatever its waker.
    fn contains(&self, kind: Kind, id: u64) -> bool {
        self.waiters.lock().list(kind).get_mut(id).is_some()
    }

    /// Collects the next targets of a wake-up.
    fn collect(&self, round: &mut Round) -> Batch {
        let mut batch = Batch {
            targets: [const { None }; BATCH],
            length: 0,
            may_refuse: false,
            is_last: false,
        };
        let most_looks = round.looks + LOOKS;
        let mut waiters = self.waiters.lock();
        round.end = round.end.min(waiters.next_id);
        let watchers = round.next_watcher.min(round.end)..round.end;
        for (id, watcher) in waiters.watchers.range(watchers) {
            if batch.length == BATCH || round.looks == most_looks {
                return batch;
            }
            round.looks += 1;
            round.next_watcher = id + 1;
            if watcher.wanted.intersects(round.events) {
                batch.push(watcher.target.clone());
            }
        }
        round.next_watcher = round.end;
        let mut chosen = [0; BATCH];
        let mut leaving = 0;
        let mut staying = None;
        batch.is_last = true;
        for (id, taker) in waiters.takers.range(round.next_taker..round.end) {
            if round.left == 0 {
                break;
            }
            if batch.length + leaving == BATCH || round.looks == most_looks {
                batch.is_last = false;
                break;
            }
            round.looks += 1;
            round.next_taker = id + 1;
            if !taker.wanted.intersects(round.events) {
                continue;
            }
            round.left -= 1;
            if taker.stays {
                staying = Some(taker.target.clone());
                batch.may_refuse = true;
                batch.is_last = false;
                break;
            }
            if let Some(place) = chosen.get_mut(leaving) {
                *place = id;
                leaving += 1;
            }
        }
        for id in chosen.iter().take(leaving) {
            if let Some(taker) = waiters.takers.remove(*id) {
                batch.push(taker.target);
            }
        }
        if let Some(target) = staying {
            batch.push(target);
        }
        self.count.store(waiters.count(), Ordering::Relaxed);
        batch
    }

    fn wake(&self, events: PollEvents, most: usize) -> usize {
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.go_round(&mut Round::new(events, most))
    }

    /// Tells one more taker of a wake-up whose watchers were told before.
    fn pass_on(&self, events: PollEvents) {
        self.go_round(&mut Round { next_watcher: u64::MAX, ..Round::new(events, 1) });
    }

    fn go_round(&self, round: &mut Round) -> usize {
        let (events, most) = (round.events, round.left);
        loop {
            let batch = self.collect(round);
            let (may_refuse, is_last) = (batch.may_refuse, batch.is_last);
            let mut is_taken = true;
            for target in batch.targets.into_iter().take(batch.length).flatten() {
                is_taken = target.tell(events);
            }
            if may_refuse && !is_taken {
                round.left = round.left.saturating_add(1);
            }
            if is_last {
                return most - round.left;
            }
        }
    }
}

impl WaitQueue {
    constant! {
        /// A queue in which nobody waits.
        pub fn new() -> WaitQueue {
            WaitQueue { inside: Once::new() }
        }
    }

    fn inside(&self) -> &Arc<Inside> {
        self.inside.call_once(|| {
            let waiters = Waiters { takers: Line::new(), watchers: Line::new(), next_id: 0 };
            Arc::new(Inside {
                count: AtomicUsize::new(0),
                waiters: Mutex::new(&rank::WAIT_QUEUE, waiters),
            })
        })
    }

    fn wake(&self, events: PollEvents, most: usize) -> usize {
        // Who makes the inside does so with an exchange, before it registers; so this fence and that
        // of `Inside::add` order the two sides here as well.
        fence(Ordering::SeqCst);
        self.inside.get().map_or(0, |inside| inside.wake(events, most))
    }

    /// Wakes the oldest taker and all watchers, whatever they wait for. True when there was a taker.
    pub fn wake_one(&self) -> bool {
        self.wake(ANY, 1) > 0
    }

    /// Wakes the `most` oldest takers and all watchers; the number of takers woken.
    pub fn wake_many(&self, most: usize) -> usize {
        self.wake(ANY, most)
    }

    /// Wakes all; the number of takers woken.
    pub fn wake_all(&self) -> usize {
        self.wake(ANY, usize::MAX)
    }

    /// Something that one taker can use up has happened: tells all watchers of one of `events`, and
    /// the oldest taker that waits for one. True when there was such a taker.
    pub fn notify(&self, events: PollEvents) -> bool {
        self.wake(events, 1) > 0
    }

    /// As `notify`, and tells all takers: an end, an error, anything that does not go away when one
    /// has taken it.
    pub fn notify_all(&self, events: PollEvents) {
        self.wake(events, usize::MAX);
    }

    /// Whether somebody waits. A hint.
    pub fn has_waiters(&self) -> bool {
        self.inside.get().is_some_and(|inside| inside.count.load(Ordering::Relaxed) != 0)
    }

    /// Waits until `look` finds something, and returns it. `look` is called at first, after registering
    /// and after each wake-up, without any lock held.
    pub fn wait_until<T, L: FnMut() -> Option<T>>(&self, look: L) -> WaitUntil<'_, L> {
        WaitUntil::new(self, look)
    }

    /// Registers a watcher: every wake-up wakes `waker` until the registration is dropped. Look at the
    /// state after registering.
    pub fn register(&self, waker: &Waker) -> Registration {
        self.watch(Kind::Watcher, ANY, Target::Waker(waker.clone()))
    }

    /// Registers `target` for wake-ups that bring one of `wanted`. Look at the state after
    /// registering.
    pub fn watch(&self, kind: Kind, wanted: PollEvents, target: Target) -> Registration {
        let inside = self.inside().clone();
        let id = inside.add(kind, wanted, target);
        Registration::new(inside, kind, wanted, id)
    }
}

impl Default for WaitQueue {
    fn default() -> Self {
        WaitQueue::new()
    }
}

impl core::fmt::Debug for WaitQueue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("WaitQueue")
    }
}
