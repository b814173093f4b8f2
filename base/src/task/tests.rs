//! Tests of tasks, executors and pools.

use alloc::sync::Arc;
use core::future::poll_fn;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::task::{Poll, Waker};
use std::sync::Mutex;

use super::{TaskPool, block_on_host, has_ready, run_ready, spawn, spawn_with_hook, yield_now};
use crate::cpu::CpuId;
use crate::ring::Ring;
use crate::time;
use crate::wait::WaitQueue;

/// A time that no test reaches on a working machine.
const LIMIT_NS: u64 = 60_000_000_000;

fn until(condition: impl Fn() -> bool) {
    let deadline_ns = time::now_ns() + LIMIT_NS;
    block_on_host(async {
        while !condition() {
            assert!(time::now_ns() < deadline_ns, "it never came true");
            yield_now().await;
        }
    });
}

#[test]
fn tasks_run_in_turn() {
    let order = Arc::new(Mutex::new(Vec::new()));
    for name in 0..3 {
        let order = order.clone();
        spawn(CpuId::current(), async move {
            for round in 0..2 {
                order.lock().unwrap().push((round, name));
                yield_now().await;
            }
        })
        .unwrap();
    }
    until(|| order.lock().unwrap().len() == 6);
    assert_eq!(*order.lock().unwrap(), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
}

#[test]
fn who_was_woken_comes_before_who_yielded() {
    const ROUNDS: usize = 40;
    let event = Arc::new((WaitQueue::new(), AtomicUsize::new(0)));
    let turns = Arc::new(AtomicUsize::new(0));
    // Turns of the others that each wake-up had to wait for.
    let waited = Arc::new(Mutex::new(Vec::new()));
    let done = Arc::new(AtomicBool::new(false));
    for _ in 0..100 {
        let (turns, done) = (turns.clone(), done.clone());
        spawn(CpuId::current(), async move {
            while !done.load(Ordering::SeqCst) {
                turns.fetch_add(1, Ordering::SeqCst);
                yield_now().await;
            }
        })
        .unwrap();
    }
    let (sleeper, their_turns, notes) = (event.clone(), turns.clone(), waited.clone());
    spawn(CpuId::current(), async move {
        for round in 1..=ROUNDS {
            let before = sleeper
                .0
                .wait_until(|| {
                    let at = sleeper.1.load(Ordering::SeqCst);
                    (at >= round).then(|| their_turns.load(Ordering::SeqCst))
                })
                .await;
            notes.lock().unwrap().push(before);
        }
        done.store(true, Ordering::SeqCst);
    })
    .unwrap();
    until(|| turns.load(Ordering::SeqCst) >= 200);
    let mut sent = Vec::new();
    for round in 1..=ROUNDS {
        sent.push(turns.load(Ordering::SeqCst));
        event.1.store(round, Ordering::SeqCst);
        event.0.wake_all();
        until(|| waited.lock().unwrap().len() == round);
    }
    let late = sent.iter().zip(&*waited.lock().unwrap()).map(|(sent, ran)| ran - sent).max();
    assert_eq!(late, Some(0), "a woken task stood behind others");
}

#[test]
fn two_that_always_wake_each_other_leave_the_others_their_turns() {
    let pair = Arc::new((WaitQueue::new(), AtomicUsize::new(0)));
    let (left, right, had_turn) = (pair.clone(), pair.clone(), Arc::new(AtomicBool::new(false)));
    let other = had_turn.clone();
    for (parity, side) in [(0, left), (1, right)] {
        let had_turn = had_turn.clone();
        spawn(CpuId::current(), async move {
            while !had_turn.load(Ordering::SeqCst) {
                let mine = || (side.1.load(Ordering::SeqCst) % 2 == parity).then_some(());
                side.0.wait_until(mine).await;
                side.1.fetch_add(1, Ordering::SeqCst);
                side.0.wake_all();
            }
            side.1.fetch_add(1, Ordering::SeqCst);
            side.0.wake_all();
        })
        .unwrap();
    }
    spawn(CpuId::current(), async move {
        for _ in 0..3 {
            yield_now().await;
        }
        other.store(true, Ordering::SeqCst);
    })
    .unwrap();
    until(|| had_turn.load(Ordering::SeqCst));
}

#[test]
fn memory_goes_when_the_last_waker_goes() {
    struct Notes {
        future_dropped: AtomicBool,
        waker: Mutex<Option<Waker>>,
    }
    struct OnDrop(Arc<Notes>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.future_dropped.store(true, Ordering::SeqCst);
        }
    }
    let notes = Arc::new(Notes { future_dropped: AtomicBool::new(false), waker: Mutex::new(None) });
    let guard = OnDrop(notes.clone());
    spawn(CpuId::current(), async move {
        poll_fn(|context| {
            let first = guard.0.waker.lock().unwrap().replace(context.waker().clone()).is_none();
            if first { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    })
    .unwrap();
    until(|| notes.waker.lock().unwrap().is_some());
    assert!(!notes.future_dropped.load(Ordering::SeqCst));
    notes.waker.lock().unwrap().as_ref().unwrap().wake_by_ref();
    until(|| notes.future_dropped.load(Ordering::SeqCst));
    // The task has ended; its waker must still be safe to use, and does nothing.
    let waker = notes.waker.lock().unwrap().take().unwrap();
    waker.wake_by_ref();
    waker.wake();
    assert_eq!(Arc::strong_count(&notes), 1);
}

#[test]
fn a_panic_ends_one_task_and_calls_its_hook() {
    let (hooked, went_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (hook, other) = (hooked.clone(), went_on.clone());
    let panics = async {
        yield_now().await;
        panic!("a test wants this panic");
    };
    spawn_with_hook(CpuId::current(), panics, move || hook.store(true, Ordering::SeqCst)).unwrap();
    spawn(CpuId::current(), async { panic!("and this one") }).unwrap();
    spawn(CpuId::current(), async move { other.store(true, Ordering::SeqCst) }).unwrap();
    until(|| hooked.load(Ordering::SeqCst) && went_on.load(Ordering::SeqCst));
}

#[test]
fn a_core_wakes_tasks_of_another_that_is_parked() {
    const ROUNDS: usize = 300;
    let ping = Arc::new((WaitQueue::new(), AtomicUsize::new(0)));
    let pong = Arc::new((WaitQueue::new(), AtomicUsize::new(0)));
    let (their_ping, their_pong) = (ping.clone(), pong.clone());
    let thread = std::thread::spawn(move || {
        block_on_host(async {
            for round in 1..=ROUNDS {
                let reached = || (their_ping.1.load(Ordering::SeqCst) >= round).then_some(());
                their_ping.0.wait_until(reached).await;
                their_pong.1.store(round, Ordering::SeqCst);
                their_pong.0.wake_one();
            }
        });
    });
    block_on_host(async {
        for round in 1..=ROUNDS {
            ping.1.store(round, Ordering::SeqCst);
            ping.0.wake_one();
            pong.0.wait_until(|| (pong.1.load(Ordering::SeqCst) >= round).then_some(())).await;
        }
    });
    thread.join().unwrap();
}

#[test]
fn tasks_spawned_on_another_core_run_there() {
    let seen = Arc::new(Ring::new(64));
    let (send, receive) = std::sync::mpsc::channel();
    let stop = Arc::new(AtomicBool::new(false));
    let their_stop = stop.clone();
    let thread = std::thread::spawn(move || {
        send.send(CpuId::current()).unwrap();
        until(|| their_stop.load(Ordering::SeqCst));
    });
    let core = receive.recv().unwrap();
    for _ in 0..50 {
        let seen = seen.clone();
        spawn(core, async move {
            yield_now().await;
            seen.push(CpuId::current()).unwrap();
        })
        .unwrap();
    }
    until(|| seen.len() == 50);
    stop.store(true, Ordering::SeqCst);
    thread.join().unwrap();
    while let Some(ran_on) = seen.pop() {
        assert_eq!(ran_on, core);
    }
}

#[test]
fn a_pool_uses_memory_again_and_lets_waiters_stay() {
    let gate = Arc::new((WaitQueue::new(), AtomicBool::new(false)));
    let ended = Arc::new(AtomicUsize::new(0));
    let work = |waits: bool| {
        let (gate, ended) = (gate.clone(), ended.clone());
        async move {
            if waits {
                gate.0.wait_until(|| gate.1.load(Ordering::SeqCst).then_some(())).await;
            }
            ended.fetch_add(1, Ordering::SeqCst);
        }
    };
    let mut pool = TaskPool::new(3);
    for _ in 0..100 {
        assert_eq!(pool.submit(|| work(false)), Ok(true));
    }
    for _ in 0..3 {
        assert!(pool.has_room());
        assert_eq!(pool.submit(|| work(true)), Ok(false));
    }
    assert!(!pool.has_room());
    assert!(pool.submit(|| work(false)).is_err());
    assert_eq!((pool.pending(), ended.load(Ordering::SeqCst)), (3, 100));
    gate.1.store(true, Ordering::SeqCst);
    gate.0.wake_all();
    until(|| ended.load(Ordering::SeqCst) == 103);
    until(|| pool.pending() == 0);
    assert_eq!(pool.submit(|| work(false)), Ok(true));
}

#[test]
fn a_panic_in_a_pool_costs_only_its_request() {
    let mut pool = TaskPool::new(2);
    let work = |panics: bool| async move { assert!(!panics, "a test wants this panic") };
    assert_eq!(pool.submit(|| work(true)), Ok(true));
    assert_eq!(pool.submit(|| work(false)), Ok(true));
    assert_eq!(pool.pending(), 0);
}

#[test]
fn many_wakers_on_many_cores_lose_nothing() {
    const THREADS: usize = 3;
    const EACH: usize = 2_000;
    let events = Arc::new((WaitQueue::new(), AtomicUsize::new(0)));
    let seen = Arc::new(AtomicUsize::new(0));
    let (their_events, their_seen) = (events.clone(), seen.clone());
    spawn(CpuId::current(), async move {
        let mut before = 0;
        while before < THREADS * EACH {
            before = their_events
                .0
                .wait_until(|| {
                    let now = their_events.1.load(Ordering::SeqCst);
                    (now > before).then_some(now)
                })
                .await;
            their_seen.store(before, Ordering::SeqCst);
        }
    })
    .unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    events.1.fetch_add(1, Ordering::SeqCst);
                    events.0.wake_one();
                }
            });
        }
        until(|| seen.load(Ordering::SeqCst) == THREADS * EACH);
    });
}

#[test]
fn nothing_is_ready_after_everything_ran() {
    let done = Arc::new(AtomicBool::new(false));
    let flag = done.clone();
    spawn(CpuId::current(), async move { flag.store(true, Ordering::SeqCst) }).unwrap();
    assert!(has_ready());
    while run_ready() {}
    assert!(done.load(Ordering::SeqCst) && !has_ready());
}

#[test]
fn a_contained_future_reports_its_panic() {
    let result = block_on_host(crate::panic::contain(async {
        yield_now().await;
        if time::now_ns() > 0 {
            panic!("a test wants this panic");
        }
    }));
    assert_eq!(result, Err(crate::panic::Panicked::Bug));
    assert_eq!(block_on_host(crate::panic::contain(async { 3 })), Ok(3));
}
