//! Wait queues.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Waker};

use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::bounded;
use crate::wait::WaitQueue;

struct Shared {
    queue: WaitQueue,
    tokens: AtomicUsize,
}

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared { queue: WaitQueue::new(), tokens: AtomicUsize::new(0) })
    }

    /// With its inside made beforehand, which saves the model many orders that `Once` has shown.
    fn prepared() -> Arc<Shared> {
        let shared = Shared::new();
        drop(shared.queue.register(Waker::noop()));
        shared
    }

    fn take(&self) -> Option<()> {
        let tokens = self.tokens.load(Ordering::Relaxed);
        let taken = tokens > 0
            && self
                .tokens
                .compare_exchange(tokens, tokens - 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        taken.then_some(())
    }

    fn give(&self) {
        self.tokens.fetch_add(1, Ordering::AcqRel);
        self.queue.wake_one();
    }
}

/// Loom stops with an error when the waiter sleeps for ever.
#[test]
fn loom_a_waiter_is_never_left_asleep() {
    bounded(3, || {
        let shared = Shared::new();
        let giver = shared.clone();
        let thread = thread::spawn(move || giver.give());
        block_on(shared.queue.wait_until(|| shared.take()));
        thread.join().unwrap();
        assert_eq!(shared.tokens.load(Ordering::Relaxed), 0);
        assert!(!shared.queue.has_waiters());
    });
}

/// Two wait; the first gives up while the only wake-up is under way. The second must get it.
#[test]
fn loom_a_dropped_waiter_passes_its_wake_up_on() {
    bounded(2, || {
        let shared = Shared::prepared();
        let giver = shared.clone();
        let mut quitter = Box::pin(shared.queue.wait_until(|| shared.take()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(quitter.as_mut().poll(&mut context).is_pending());
        let thread = thread::spawn(move || giver.give());
        block_on(async {
            let mut quitter = Some(quitter);
            let mut keeper = pin!(shared.queue.wait_until(|| shared.take()));
            core::future::poll_fn(|context| {
                let polled = keeper.as_mut().poll(context);
                drop(quitter.take());
                polled
            })
            .await;
        });
        thread.join().unwrap();
        assert!(!shared.queue.has_waiters());
    });
}

#[test]
fn loom_a_watcher_that_looks_after_registering_misses_nothing() {
    bounded(3, || {
        let shared = Shared::new();
        let giver = shared.clone();
        let thread = thread::spawn(move || giver.give());
        block_on(async {
            let mut registration = None;
            core::future::poll_fn(|context| {
                registration = Some(shared.queue.register(context.waker()));
                match shared.take() {
                    Some(()) => core::task::Poll::Ready(()),
                    None => core::task::Poll::Pending,
                }
            })
            .await;
        });
        thread.join().unwrap();
        assert!(!shared.queue.has_waiters());
    });
}

/// Two takers wait, each with a registration of its own, and two wake-ups come. Whoever is told takes
/// what is there and settles; nobody stays asleep while there is something to take.
#[test]
fn loom_takers_that_settle_and_takers_that_pass_on_leave_nothing_behind() {
    use crate::wait::{Kind, Registration, Target};
    use abi::fs::PollEvents;

    /// As `Shared::take`, and not put off by somebody else who takes at the same time.
    fn take_one(shared: &Shared) -> Option<()> {
        let take = |tokens: usize| tokens.checked_sub(1);
        shared.tokens.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take).ok().map(drop)
    }

    async fn take_exclusively(shared: &Shared) {
        let mut place: Option<Registration> = None;
        core::future::poll_fn(|context| {
            if take_one(shared).is_some() {
                return core::task::Poll::Ready(());
            }
            if let Some(mut old) = place.take() {
                old.settle();
            }
            let target = Target::Waker(context.waker().clone());
            let mut new = shared.queue.watch(Kind::Taker, PollEvents::IN, target);
            if take_one(shared).is_some() {
                // One answered for; if it was told as well, that is for somebody else.
                drop(new);
                return core::task::Poll::Ready(());
            }
            if new.was_told() {
                new.settle();
                context.waker().wake_by_ref();
            }
            place = Some(new);
            core::task::Poll::Pending
        })
        .await;
    }

    bounded(2, || {
        let shared = Shared::prepared();
        let other = shared.clone();
        let thread = thread::spawn(move || block_on(take_exclusively(&other)));
        for _ in 0..2 {
            shared.tokens.fetch_add(1, Ordering::AcqRel);
            shared.queue.notify(PollEvents::IN);
        }
        block_on(take_exclusively(&shared));
        thread.join().unwrap();
        assert_eq!(shared.tokens.load(Ordering::Relaxed), 0);
    });
}
