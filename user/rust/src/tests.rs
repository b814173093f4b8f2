//! Posting, waiting, dropping and the runtime against the test double, which scans or is trapped for.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::double::{Double, TRAPPED, number};
use crate::raw::operations::Operation;
use crate::raw::operations::made::{Plain, fill, plain};
use crate::{Cancelled, Runtime, TimedOut, join, join_all, receive, sleep, spawn, timeout};

const SHORT: Duration = Duration::from_millis(10);
const LONG: Duration = Duration::from_secs(30);
const EINTR: i64 = -4;

fn add(left: u64, right: u64) -> Operation<Plain> {
    plain(number::ADD, [left, right, 0, 0, 0, 0])
}

fn wait(result: u64) -> Operation<Plain> {
    plain(number::WAIT, [result, 0, 0, 0, 0, 0])
}

/// Runs a test on a kernel with a scanner and on one without.
fn on_both(test: impl Fn(&Arc<Double>) + Send + Sync) {
    for is_scanned in [true, false] {
        // On a thread of its own, whose end is part of the test.
        thread::scope(|scope| {
            scope.spawn(|| test(&Double::begin(is_scanned)));
        });
    }
}

#[test]
fn single_calls_have_their_results() {
    on_both(|_| {
        for round in 0..300 {
            assert_eq!(add(round, 1).call(), round as i64 + 1);
        }
        assert_eq!(plain(number::TRAP_ONLY, [0; 6]).call(), TRAPPED);
    });
}

#[test]
fn posted_calls_have_their_results_in_any_order() {
    on_both(|_| {
        let mut posted: Vec<_> = (0..50).map(|value| (value, add(value, 7).post())).collect();
        posted.reverse();
        for (value, posted) in posted {
            assert_eq!(posted.wait(), value as i64 + 7);
        }
        assert_eq!(plain(number::TRAP_ONLY, [0; 6]).post().wait(), TRAPPED);
    });
}

#[test]
fn more_calls_than_entries_wait_for_room() {
    on_both(|double| {
        let waiting: Vec<_> = (0..60).map(|value| wait(value).post()).collect();
        let posted: Vec<_> = (0..200).map(|value| add(value, 0).post()).collect();
        for (value, posted) in posted.into_iter().enumerate() {
            assert_eq!(posted.wait(), value as i64);
        }
        double.release();
        for (value, posted) in waiting.into_iter().enumerate() {
            assert_eq!(posted.wait(), value as i64);
        }
    });
}

#[test]
fn a_call_that_waits_is_overtaken_for_many_laps() {
    on_both(|double| {
        let mut waiting = wait(5).post();
        for round in 0..500 {
            assert_eq!(add(round, 0).post().wait(), round as i64);
        }
        assert!(!waiting.is_done());
        while double.blocked() == 0 {
            thread::yield_now();
        }
        double.release();
        assert_eq!(waiting.wait(), 5);
    });
}

#[test]
fn a_call_after_another_begins_when_that_is_over() {
    on_both(|double| {
        for round in 0..100 {
            let mut first = wait(1).post();
            let mut second = add(100 + round, 0).post_after(&mut first);
            let third = add(200 + round, 0).post_after(&mut second);
            assert_eq!(add(300 + round, 0).call(), 300 + round as i64);
            assert!(!second.is_done());
            while double.blocked() == 0 {
                first.is_done();
            }
            double.release();
            assert_eq!(third.wait(), 200 + round as i64);
            assert_eq!(second.wait(), 100 + round as i64);
            assert_eq!(first.wait(), 1);
            let at = |value| double.begun().iter().position(|(_, first)| *first == value).unwrap();
            assert!(at(300 + round) < at(100 + round) && at(100 + round) < at(200 + round));
        }
    });
}

#[test]
fn waits_give_the_call_back_when_the_time_is_over() {
    on_both(|double| {
        let posted = wait(3).post();
        let begin = Instant::now();
        let posted = posted.wait_timeout(SHORT).unwrap_err();
        assert!(begin.elapsed() >= SHORT);
        double.release();
        assert_eq!(posted.wait_timeout(LONG).ok(), Some(3));
    });
}

#[test]
fn cancelled_calls_say_so() {
    on_both(|_| {
        let mut posted = wait(3).post();
        posted.cancel();
        assert_eq!(posted.wait(), EINTR);
        let mut over = add(1, 1).post();
        while !over.is_done() {
            thread::yield_now();
        }
        over.cancel();
        assert_eq!(over.wait(), 2);
    });
}

#[test]
fn cancelling_a_linked_call_does_not_wait_for_its_predecessor() {
    on_both(|double| {
        let mut first = wait(3).post();
        let mut second = add(1, 1).post_after(&mut first);
        second.cancel();
        assert_eq!(second.wait(), EINTR);
        assert!(!first.is_done());
        double.release();
        assert_eq!(first.wait(), 3);
        assert_eq!(double.begun(), [(number::WAIT, 3)]);
    });
}

#[test]
fn dropping_a_call_ends_its_wait() {
    on_both(|double| {
        for _ in 0..200 {
            drop(wait(1).post());
        }
        assert_eq!(add(1, 2).post().wait(), 3);
        assert_eq!(double.blocked(), 0);
    });
}

#[test]
fn buffers_outlive_dropped_calls() {
    on_both(|double| {
        let dropped: Vec<_> = (0..10).map(|_| fill(1000).post()).collect();
        let kept = fill(10).post();
        drop(dropped);
        while double.blocked() < 11 {
            receive(Some(SHORT));
        }
        // Writes to all of them: Miri would see it, if one were gone.
        double.release();
        assert_eq!(kept.wait(), [7; 10]);
        assert_eq!(add(1, 1).call(), 2);
    });
}

#[test]
fn buffers_outlive_forgotten_calls_and_the_thread() {
    on_both(|double| {
        let posted = fill(100).post();
        std::mem::forget(posted);
        let _dropped_with_the_thread = fill(100).post();
        assert_eq!(add(1, 1).call(), 2);
        // The ring of a forgotten call stays; here the test ends its kernel.
        double.leave();
    });
}

#[test]
fn a_foreign_executor_gets_there_by_polling() {
    on_both(|double| {
        // No runtime: wakers do nothing but ask for another poll.
        let mut future = std::pin::pin!(async { add(1, 2).await + wait(4).await });
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        loop {
            if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
                assert_eq!(output, 7);
                break;
            }
            double.release();
            receive(Some(SHORT));
        }
    });
}

#[test]
fn the_runtime_runs_many_tasks() {
    on_both(|_| {
        let runtime = Runtime::new();
        let total = runtime.block_on(async {
            let tasks: Vec<_> = (0..100)
                .map(|task| {
                    spawn(async move {
                        let mut sum = 0;
                        for round in 0..20 {
                            sum += add(task, round).await;
                        }
                        sum
                    })
                })
                .collect();
            join_all(tasks).await.into_iter().map(|output| output.unwrap()).sum::<i64>()
        });
        assert_eq!(total, 100 * 190 + 20 * 4950);
    });
}

#[test]
fn tasks_overlap_while_their_calls_wait() {
    on_both(|double| {
        let runtime = Runtime::new();
        let release = double.clone();
        let outputs = runtime.block_on(async move {
            let waiting: Vec<_> = (0..40).map(|value| spawn(wait(value).into_future())).collect();
            let releaser = spawn(async move {
                while release.blocked() < 40 {
                    sleep(Duration::from_millis(1)).await;
                }
                release.release();
            });
            let (outputs, _) = join(join_all(waiting), releaser).await;
            outputs
        });
        assert!(outputs.into_iter().eq((0..40).map(Ok)));
    });
}

#[test]
fn timeouts_cancel_what_is_late() {
    on_both(|double| {
        let runtime = Runtime::new();
        let begin = Instant::now();
        runtime.block_on(async {
            assert_eq!(timeout(SHORT, wait(1)).await, Err(TimedOut));
            assert_eq!(timeout(LONG, add(1, 1)).await, Ok(2));
        });
        assert!(begin.elapsed() >= SHORT && begin.elapsed() < LONG);
        assert_eq!(double.blocked(), 0);
    });
}

#[test]
fn cancelled_tasks_end_with_their_calls() {
    on_both(|double| {
        let runtime = Runtime::new();
        let task = runtime.spawn(async { wait(1).await });
        let output = runtime.block_on(async {
            while double.blocked() == 0 {
                sleep(Duration::from_millis(1)).await;
            }
            task.cancel();
            task.await
        });
        assert_eq!(output, Err(Cancelled));
        assert_eq!(double.blocked(), 0);
    });
}

#[test]
fn a_task_may_cancel_itself_and_spawn_others() {
    on_both(|_| {
        let runtime = Runtime::new();
        let seen = Rc::new(Cell::new(0));
        let inner = seen.clone();
        runtime.block_on(async {
            let task = spawn(async move {
                spawn(async move { inner.set(inner.get() + add(1, 0).await) }).await
            });
            assert_eq!(task.await, Ok(Ok(())));
        });
        assert_eq!(seen.get(), 1);
    });
}

#[test]
fn tasks_that_were_ready_when_the_main_future_ended_go_on_next_time() {
    on_both(|_| {
        let runtime = Runtime::new();
        let mut tasks = None;
        let mut is_second = false;
        // In the second round the main future comes before the tasks, and ends.
        runtime.block_on(std::future::poll_fn(|context| {
            if is_second {
                return std::task::Poll::Ready(());
            }
            is_second = true;
            context.waker().wake_by_ref();
            tasks = Some([spawn(async { 1 }), spawn(async { 2 })]);
            std::task::Poll::Pending
        }));
        let tasks = tasks.unwrap();
        runtime.block_on(sleep(Duration::from_millis(1)));
        assert!(tasks.iter().all(|task| task.is_finished()));
    });
}

#[test]
fn a_runtime_that_ends_drops_its_tasks() {
    on_both(|double| {
        let runtime = Runtime::new();
        let task = runtime.spawn(async { wait(1).await });
        runtime.block_on(async {
            while double.blocked() == 0 {
                sleep(Duration::from_millis(1)).await
            }
        });
        drop(runtime);
        assert!(task.is_finished());
        assert_eq!(double.blocked(), 0);
    });
}

#[test]
fn other_threads_wake_tasks() {
    on_both(|double| {
        let runtime = Runtime::new();
        // Once with a call under way and once without.
        for round in 0..2 {
            let waiting = (round == 0).then(|| wait(1).post());
            let signal = Arc::new(Signal::default());
            let other = signal.clone();
            let thread = thread::spawn(move || {
                thread::sleep(SHORT);
                other.set();
            });
            runtime.block_on(std::future::poll_fn(|context| signal.poll(context)));
            thread.join().unwrap();
            double.release();
            drop(waiting);
        }
    });
}

#[derive(Default)]
struct Signal(std::sync::Mutex<(bool, Option<std::task::Waker>)>);

impl Signal {
    fn set(&self) {
        let waker = {
            let mut state = self.0.lock().unwrap();
            state.0 = true;
            state.1.take()
        };
        waker.into_iter().for_each(std::task::Waker::wake);
    }

    fn poll(&self, context: &std::task::Context<'_>) -> std::task::Poll<()> {
        let mut state = self.0.lock().unwrap();
        state.1 = Some(context.waker().clone());
        if state.0 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    }
}
