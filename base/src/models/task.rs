//! Ready queue, task states, parking.

use core::ptr::NonNull;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::bounded;
use crate::ring::Ring;
use crate::task::doorbell::Doorbell;
use crate::task::queue::{Link, Popped, ReadyQueue};
use crate::task::state::State;

/// As a task: the link first.
#[repr(C)]
struct Node {
    link: Link,
    state: State,
}

impl Node {
    fn new() -> Node {
        Node { link: Link::new(), state: State::idle() }
    }

    fn link(&self) -> NonNull<Link> {
        NonNull::from(self).cast()
    }
}

struct Core {
    queue: ReadyQueue,
    doorbell: Doorbell,
    /// Interrupts sent to the core.
    interrupts: AtomicUsize,
    /// What the task waits for.
    events: AtomicUsize,
    task: Node,
}

impl Core {
    fn new() -> Arc<Core> {
        Arc::new(Core {
            queue: ReadyQueue::new(),
            doorbell: Doorbell::new(),
            interrupts: AtomicUsize::new(0),
            events: AtomicUsize::new(0),
            task: Node::new(),
        })
    }

    /// What a waker does.
    fn wake(&self) {
        if self.task.state.wake() {
            // SAFETY: `wake` told us to queue the task, which lives as long as the core.
            unsafe { self.queue.push(self.task.link()) };
            if self.doorbell.ring() {
                self.interrupts.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Runs the task if it is ready; the number of events that the poll saw.
    fn run(&self) -> Option<usize> {
        // SAFETY: only the thread that plays the core calls this.
        match unsafe { self.queue.pop() } {
            Popped::Link(link) => {
                assert_eq!(link, self.task.link());
                self.task.state.begin();
                let seen = self.events.load(Ordering::Relaxed);
                if self.task.state.pause() {
                    // SAFETY: `pause` told us to.
                    unsafe { self.queue.push(self.task.link()) };
                }
                Some(seen)
            }
            Popped::Empty | Popped::Busy => None,
        }
    }
}

#[test]
fn loom_the_last_poll_sees_every_event() {
    bounded(3, || {
        let core = Core::new();
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let core = core.clone();
                thread::spawn(move || {
                    core.events.fetch_add(1, Ordering::Relaxed);
                    core.wake();
                })
            })
            .collect();
        let mut seen = core.run().unwrap_or(0);
        seen = core.run().unwrap_or(seen);
        for waker in wakers {
            waker.join().unwrap();
        }
        while let Some(now) = core.run() {
            seen = now;
        }
        assert!(core.queue.is_empty());
        assert_eq!(seen, 2);
    });
}

#[test]
fn loom_a_parked_core_never_misses_a_task() {
    bounded(3, || {
        let core = Core::new();
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let core = core.clone();
                thread::spawn(move || core.wake())
            })
            .collect();
        core.doorbell.publish_parked();
        let halts = core.queue.is_empty();
        for waker in wakers {
            waker.join().unwrap();
        }
        let interrupted = core.interrupts.load(Ordering::Relaxed) > 0;
        assert!(!halts || interrupted, "the core sleeps while a task is ready");
    });
}

#[test]
fn loom_a_core_in_user_mode_never_misses_a_request() {
    bounded(3, || {
        let core = Core::new();
        let ring = Arc::new(Ring::new(2));
        let (other_core, other_ring) = (core.clone(), ring.clone());
        let submitter = thread::spawn(move || {
            other_ring.push(7).unwrap();
            other_core.doorbell.ring()
        });
        core.doorbell.publish_in_user();
        let enters = ring.is_empty();
        if !enters {
            core.doorbell.publish_awake();
        }
        let rang = submitter.join().unwrap();
        assert!(!enters || rang);
        assert_eq!(ring.pop(), Some(7));
    });
}

#[test]
fn loom_a_core_that_parks_twice_is_rung_once_for_each() {
    bounded(3, || {
        let core = Core::new();
        let other = core.clone();
        let waker = thread::spawn(move || other.wake());
        let mut halted = false;
        for _ in 0..2 {
            core.doorbell.publish_parked();
            if core.queue.is_empty() {
                halted = true;
                break;
            }
            core.doorbell.publish_awake();
            while core.run().is_some() {}
        }
        waker.join().unwrap();
        let interrupted = core.interrupts.load(Ordering::Relaxed) > 0;
        assert!(!halted || interrupted || core.queue.is_empty());
    });
}

#[test]
fn loom_the_queue_keeps_everything_in_order_of_each_pusher() {
    bounded(2, || {
        struct Shared {
            queue: ReadyQueue,
            nodes: [Node; 3],
        }
        let shared = Arc::new(Shared {
            queue: ReadyQueue::new(),
            nodes: [Node::new(), Node::new(), Node::new()],
        });
        let push = |shared: &Shared, index: usize| {
            // SAFETY: each node is pushed once and lives as long as the queue.
            unsafe { shared.queue.push(shared.nodes[index].link()) };
        };
        let first = shared.clone();
        let second = shared.clone();
        let threads = [
            thread::spawn(move || {
                push(&first, 0);
                push(&first, 1);
            }),
            thread::spawn(move || push(&second, 2)),
        ];
        let mut order = Vec::new();
        let mut take = || {
            // SAFETY: only this thread pops.
            let popped = unsafe { shared.queue.pop() };
            if let Popped::Link(link) = popped {
                order.extend(shared.nodes.iter().position(|node| node.link() == link));
            }
            popped
        };
        for _ in 0..2 {
            let _ = take();
        }
        for thread in threads {
            thread.join().unwrap();
        }
        while take() != Popped::Empty {}
        let place = |index: usize| order.iter().position(|other| *other == index);
        assert_eq!(order.len(), 3);
        assert!(place(0) < place(1));
    });
}
