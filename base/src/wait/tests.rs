//! Wait queues, one core and several.

use super::*;
use core::future::Future;
use core::pin::pin;
use core::sync::atomic::{AtomicU32, AtomicUsize};
use core::task::Context;
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
    let counts =
        || [&first_count, &second_count, &watch_count].map(|count| count.0.load(Ordering::SeqCst));
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

#[test]
fn a_wake_up_reaches_who_asked_for_its_events() {
    let queue = WaitQueue::new();
    let (reader_count, reader) = counter();
    let (writer_count, writer) = counter();
    let watch =
        |events, waker: &Waker| queue.watch(Kind::Watcher, events, Target::Waker(waker.clone()));
    let both = (watch(PollEvents::READABLE, &reader), watch(PollEvents::WRITABLE, &writer));
    queue.notify(PollEvents::READABLE);
    queue.notify(PollEvents::READABLE | PollEvents::HUP);
    queue.notify_all(PollEvents::WRITABLE);
    let counts = [&reader_count, &writer_count].map(|count| count.0.load(Ordering::SeqCst));
    assert_eq!(counts, [2, 1]);
    drop(both);
    assert!(!queue.has_waiters());
}

/// Counts what it is told, and takes a wake-up on only when it is willing.
struct Exclusive {
    told: AtomicUsize,
    willing: bool,
}

impl Watcher for Exclusive {
    fn notify(&self, _token: u64, _events: PollEvents) -> bool {
        self.told.fetch_add(1, Ordering::SeqCst);
        self.willing
    }
}

#[test]
fn an_exclusive_watcher_that_refuses_leaves_the_wake_up_to_the_next() {
    let queue = WaitQueue::new();
    let watchers = [false, true, true]
        .map(|willing| Arc::new(Exclusive { told: AtomicUsize::new(0), willing }));
    let registrations = watchers.each_ref().map(|watcher| {
        let weak = Arc::downgrade(watcher);
        queue.watch(Kind::ExclusiveWatcher, PollEvents::IN, Target::Watcher(weak, 0))
    });
    queue.notify(PollEvents::IN);
    queue.notify(PollEvents::OUT);
    let told = || watchers.each_ref().map(|watcher| watcher.told.load(Ordering::SeqCst));
    assert_eq!(told(), [1, 1, 0]);
    queue.notify_all(PollEvents::IN);
    assert_eq!(told(), [2, 2, 1]);
    drop(registrations);
}

/// Registers itself again from within a wake-up, in the same queue.
struct Again {
    queue: Arc<WaitQueue>,
    more: Mutex<Vec<Registration>>,
    count: Arc<Counter>,
}

impl Watcher for Again {
    fn notify(&self, _token: u64, _events: PollEvents) -> bool {
        let waker = Waker::from(self.count.clone());
        let registration = self.queue.register(&waker);
        self.more.lock().push(registration);
        true
    }
}

#[test]
fn a_target_may_use_its_queue_and_newcomers_are_not_told() {
    let queue = Arc::new(WaitQueue::new());
    let (count, _) = counter();
    let more = Mutex::new(&rank::PIPE, Vec::new());
    let again = Arc::new(Again { queue: queue.clone(), more, count: count.clone() });
    let weak: Weak<dyn Watcher> = Arc::<Again>::downgrade(&again);
    let registration = queue.watch(Kind::Watcher, ANY, Target::Watcher(weak, 0));
    queue.wake_all();
    assert_eq!(count.0.load(Ordering::SeqCst), 0);
    queue.wake_all();
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    drop(registration);
    again.more.lock().clear();
    assert!(!queue.has_waiters());
}

#[test]
fn a_crowd_of_watchers_and_takers_is_told_once_each() {
    let queue = WaitQueue::new();
    let (watch_count, watch) = counter();
    let (take_count, take) = counter();
    let target = |waker: &Waker| Target::Waker(waker.clone());
    let crowd: Vec<Registration> = (0..500)
        .map(|_| queue.watch(Kind::Watcher, PollEvents::IN, target(&watch)))
        .chain((0..500).map(|_| queue.watch(Kind::Taker, PollEvents::IN, target(&take))))
        .collect();
    assert_eq!(queue.wake_many(300), 300);
    let counts = || [&watch_count, &take_count].map(|count| count.0.load(Ordering::SeqCst));
    assert_eq!(counts(), [500, 300]);
    assert_eq!(crowd.iter().filter(|place| place.was_told()).count(), 300);
    for mut place in crowd {
        place.settle();
    }
    assert_eq!(counts(), [500, 300]);
}

#[test]
fn a_taker_that_was_told_and_not_settled_passes_the_wake_up_on() {
    let queue = WaitQueue::new();
    let (first_count, first) = counter();
    let (second_count, second) = counter();
    let taker =
        |waker: &Waker| queue.watch(Kind::Taker, PollEvents::IN, Target::Waker(waker.clone()));
    let (first, mut second) = (taker(&first), taker(&second));
    queue.notify(PollEvents::IN);
    let counts = || [&first_count, &second_count].map(|count| count.0.load(Ordering::SeqCst));
    assert_eq!(counts(), [1, 0]);
    drop(first);
    assert_eq!(counts(), [1, 1]);
    second.settle();
    drop(second);
    assert!(!queue.has_waiters());
}

#[test]
fn each_waiter_is_looked_at_once() {
    const EACH: usize = 5000;
    let queue = WaitQueue::new();
    let (count, waker) = counter();
    let target = || Target::Waker(waker.clone());
    let watchers: Vec<_> = (0..EACH).map(|_| queue.watch(Kind::Watcher, ANY, target())).collect();
    let mut takers: Vec<_> = (0..EACH).map(|_| queue.watch(Kind::Taker, ANY, target())).collect();
    let mut round = Round::new(ANY, usize::MAX);
    assert_eq!(queue.inside().go_round(&mut round), EACH);
    assert_eq!((count.0.load(Ordering::Relaxed), round.looks), (2 * EACH, 2 * EACH));
    takers.iter_mut().for_each(Registration::settle);
    drop(watchers);
}
