//! Queues of those who wait for something to change.
//!
//! The rule for users: change the state first, then wake. A waiter registers first, then looks at the
//! state, then waits; a full fence on both sides makes one of them see the other, so no wake-up is lost,
//! and a wake-up of a queue in which nobody waits is one load. A waiter that was chosen by `wake_one` and
//! is dropped before it could run passes the wake-up on.
//!
//! Two kinds wait: *takers* (`wait_until`), of which `wake_one` wakes the oldest, and *watchers*
//! (`register`, for poll, select, epoll), which every wake-up wakes and which stay until dropped.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use crate::primitives::{AtomicUsize, Ordering, constant, fence};
use crate::sync::{Mutex, Once, rank};

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
    takers: VecDeque<Waiter>,
    watchers: VecDeque<Waiter>,
    next_id: u64,
}

struct Waiter {
    id: u64,
    waker: Waker,
}

impl Waiters {
    fn add(&mut self, watcher: bool, waker: Waker) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let list = if watcher { &mut self.watchers } else { &mut self.takers };
        list.push_back(Waiter { id, waker });
        id
    }

    fn count(&self) -> usize {
        self.takers.len() + self.watchers.len()
    }
}

impl Inside {
    fn add(&self, watcher: bool, waker: &Waker) -> u64 {
        let waker = waker.clone();
        let mut waiters = self.waiters.lock();
        let id = waiters.add(watcher, waker);
        self.count.store(waiters.count(), Ordering::Relaxed);
        drop(waiters);
        fence(Ordering::SeqCst);
        id
    }

    /// Removes a taker; false when it was woken.
    fn remove_taker(&self, id: u64) -> bool {
        let mut waiters = self.waiters.lock();
        let place = waiters.takers.iter().position(|waiter| waiter.id == id);
        let removed = place.and_then(|place| waiters.takers.remove(place));
        self.count.store(waiters.count(), Ordering::Relaxed);
        drop(waiters);
        removed.is_some()
    }

    fn remove_watcher(&self, id: u64) {
        let mut waiters = self.waiters.lock();
        let place = waiters.watchers.iter().position(|waiter| waiter.id == id);
        let removed = place.and_then(|place| waiters.watchers.remove(place));
        self.count.store(waiters.count(), Ordering::Relaxed);
        drop(waiters);
        drop(removed);
    }

    /// Whether a taker is still in the queue; its waker is made `waker` then.
    fn still_waits(&self, id: u64, waker: &Waker) -> bool {
        let mut waiters = self.waiters.lock();
        let found = waiters.takers.iter_mut().find(|waiter| waiter.id == id);
        let Some(waiter) = found else { return false };
        waiter.waker.clone_from(waker);
        true
    }

    fn wake(&self, most: usize) -> usize {
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let mut waiters = self.waiters.lock();
        let chosen = most.min(waiters.takers.len());
        for _ in 0..chosen {
            if let Some(waiter) = waiters.takers.pop_front() {
                waiter.waker.wake();
            }
        }
        waiters.watchers.iter().for_each(|waiter| waiter.waker.wake_by_ref());
        self.count.store(waiters.count(), Ordering::Relaxed);
        chosen
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
            let waiters =
                Waiters { takers: VecDeque::new(), watchers: VecDeque::new(), next_id: 0 };
            Arc::new(Inside {
                count: AtomicUsize::new(0),
                waiters: Mutex::new(&rank::WAIT_QUEUE, waiters),
            })
        })
    }

    fn wake(&self, most: usize) -> usize {
        // Who makes the inside does so with an exchange, before it registers; so this fence and that
        // of `Inside::add` order the two sides here as well.
        fence(Ordering::SeqCst);
        self.inside.get().map_or(0, |inside| inside.wake(most))
    }

    /// Wakes the oldest taker and all watchers. True when there was a taker.
    pub fn wake_one(&self) -> bool {
        self.wake(1) > 0
    }

    /// Wakes the `most` oldest takers and all watchers; the number of takers woken.
    pub fn wake_many(&self, most: usize) -> usize {
        self.wake(most)
    }

    /// Wakes all; the number of takers woken.
    pub fn wake_all(&self) -> usize {
        self.wake(usize::MAX)
    }

    /// Whether somebody waits. A hint.
    pub fn has_waiters(&self) -> bool {
        self.inside.get().is_some_and(|inside| inside.count.load(Ordering::Relaxed) != 0)
    }

    /// Waits until `look` finds something, and returns it. `look` is called at first, after registering
    /// and after each wake-up, without any lock held.
    pub fn wait_until<T, L: FnMut() -> Option<T>>(&self, look: L) -> WaitUntil<'_, L> {
        WaitUntil { queue: self, look, id: None }
    }

    /// Registers a watcher: every wake-up wakes `waker` until the registration is dropped. Look at the
    /// state after registering.
    pub fn register(&self, waker: &Waker) -> Registration {
        let inside = self.inside().clone();
        let id = inside.add(true, waker);
        Registration { inside, id }
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

/// A place among the watchers of a queue; given up when dropped.
#[must_use = "the registration ends when it is dropped"]
pub struct Registration {
    inside: Arc<Inside>,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.inside.remove_watcher(self.id);
    }
}

/// See `WaitQueue::wait_until`.
#[must_use = "futures do nothing unless awaited"]
pub struct WaitUntil<'a, L> {
    queue: &'a WaitQueue,
    look: L,
    /// The taker that was registered and, as far as we know, not woken yet.
    id: Option<u64>,
}

impl<L> Unpin for WaitUntil<'_, L> {}

impl<T, L: FnMut() -> Option<T>> Future for WaitUntil<'_, L> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        let inside = match this.id {
            None => {
                if let Some(found) = (this.look)() {
                    return Poll::Ready(found);
                }
                this.queue.inside()
            }
            Some(id) => {
                let inside = this.queue.inside();
                if inside.still_waits(id, context.waker()) {
                    // Woken by something else, such as a second future in the same task; the state is
                    // worth a look all the same.
                    fence(Ordering::SeqCst);
                    return match (this.look)() {
                        Some(found) => {
                            this.leave();
                            Poll::Ready(found)
                        }
                        None => Poll::Pending,
                    };
                }
                this.id = None;
                if let Some(found) = (this.look)() {
                    return Poll::Ready(found);
                }
                inside
            }
        };
        this.id = Some(inside.add(false, context.waker()));
        match (this.look)() {
            Some(found) => {
                this.leave();
                Poll::Ready(found)
            }
            None => Poll::Pending,
        }
    }
}

impl<L> WaitUntil<'_, L> {
    /// Leaves the queue. A wake-up that came for us and that we did not need goes to the next: two
    /// changes may have come, and we answer for one.
    fn leave(&mut self) {
        if let Some(id) = self.id.take()
            && !self.queue.inside().remove_taker(id)
        {
            self.queue.wake_one();
        }
    }
}

impl<L> Drop for WaitUntil<'_, L> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::pin::pin;
    use core::sync::atomic::{AtomicU32, AtomicUsize};
    use std::task::Wake;

    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn counter() -> (Arc<Counter>, Waker) {
        let counter = Arc::new(Counter(AtomicUsize::new(0)));
        (counter.clone(), Waker::from(counter))
    }

    fn take(tokens: &AtomicU32) -> Option<()> {
        tokens
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1))
            .ok()
            .map(drop)
    }

    #[test]
    fn takers_are_woken_in_order_and_watchers_always() {
        let queue = WaitQueue::new();
        let tokens = AtomicU32::new(0);
        let (first_count, first) = counter();
        let (second_count, second) = counter();
        let (watch_count, watch) = counter();
        let mut first_wait = pin!(queue.wait_until(|| take(&tokens)));
        let mut second_wait = pin!(queue.wait_until(|| take(&tokens)));
        assert!(first_wait.as_mut().poll(&mut Context::from_waker(&first)).is_pending());
        assert!(second_wait.as_mut().poll(&mut Context::from_waker(&second)).is_pending());
        let registration = queue.register(&watch);
        tokens.store(1, Ordering::SeqCst);
        assert!(queue.wake_one());
        let counts = || {
            [&first_count, &second_count, &watch_count].map(|count| count.0.load(Ordering::SeqCst))
        };
        assert_eq!(counts(), [1, 0, 1]);
        assert!(first_wait.as_mut().poll(&mut Context::from_waker(&first)).is_ready());
        drop(registration);
        tokens.store(1, Ordering::SeqCst);
        assert_eq!(queue.wake_all(), 1);
        assert_eq!(counts(), [1, 1, 1]);
    }

    #[test]
    fn a_dropped_taker_passes_its_wake_up_on() {
        let queue = WaitQueue::new();
        let tokens = AtomicU32::new(0);
        let (_, first) = counter();
        let (second_count, second) = counter();
        let mut first_wait = Box::pin(queue.wait_until(|| take(&tokens)));
        let mut second_wait = pin!(queue.wait_until(|| take(&tokens)));
        assert!(first_wait.as_mut().poll(&mut Context::from_waker(&first)).is_pending());
        assert!(second_wait.as_mut().poll(&mut Context::from_waker(&second)).is_pending());
        tokens.store(1, Ordering::SeqCst);
        assert!(queue.wake_one());
        drop(first_wait);
        assert_eq!(second_count.0.load(Ordering::SeqCst), 1);
        assert!(second_wait.as_mut().poll(&mut Context::from_waker(&second)).is_ready());
    }

    #[test]
    fn nobody_stays_behind_when_futures_are_dropped() {
        let queue = WaitQueue::new();
        let (_, waker) = counter();
        let mut wait = Box::pin(queue.wait_until(|| None::<()>));
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let registration = queue.register(&waker);
        assert!(queue.has_waiters());
        drop((wait, registration));
        assert!(!queue.has_waiters());
        assert!(!queue.wake_one());
    }

    #[test]
    fn tokens_reach_waiters_on_other_cores() {
        const EACH: u32 = 500;
        let queue = WaitQueue::new();
        let tokens = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    crate::task::block_on_host(async {
                        for _ in 0..EACH {
                            queue.wait_until(|| take(&tokens)).await;
                        }
                    });
                });
            }
            for _ in 0..2 * EACH {
                tokens.fetch_add(1, Ordering::SeqCst);
                queue.wake_one();
            }
        });
        assert_eq!(tokens.load(Ordering::SeqCst), 0);
    }
}
