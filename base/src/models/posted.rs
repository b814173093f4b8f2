//! The entries of a syspage, and the handshake of a kernel core that parks.

use alloc::sync::Arc;

use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use super::{bounded, finds};
use crate::bell::Bell;
use crate::posted::{Consumer, Entries, InFlight, Producer, Served};

/// What is posted arrives whole, is served once, and its result comes back whole.
#[test]
fn loom_posted_calls_are_served_once_and_arrive_whole() {
    bounded(3, || {
        let shared = Arc::new((Entries::new(), InFlight::new()));
        let kernel = shared.clone();
        let thread = loom::thread::spawn(move || {
            let mut consumer = Consumer::new();
            let mut served = 0;
            while served < 2 {
                let done = consumer.visit(&kernel.0, &kernel.1, 64, |call| {
                    assert_eq!(call.arguments, [call.number as u64; 6]);
                    Served::Done(call.number as u64 + 100)
                });
                served += done;
                if done == 0 {
                    loom::thread::yield_now();
                }
            }
            assert_eq!(consumer.head(), 2);
        });
        let mut producer = Producer::new();
        let head = AtomicU32::new(0);
        for number in [3_u16, 5] {
            let index = producer.post(&shared.0, &head, number, 0, [u64::from(number); 6]).unwrap();
            let result = loop {
                if let Some(result) = producer.take_result(&shared.0, index) {
                    break result;
                }
                loom::thread::yield_now();
            };
            assert_eq!(result, u64::from(number) + 100);
        }
        thread.join().unwrap();
    });
}

/// What is made visible before a ring is seen by a look behind it, though the one who rings sends no
/// message when one is under way. Small, so that it finds a wrong bell at once.
fn model_of_a_bell(answer: fn(&Bell)) {
    let shared = Arc::new((AtomicBool::new(false), Bell::new()));
    // A message of before is under way.
    assert!(shared.1.ring());
    let user = shared.clone();
    let thread = loom::thread::spawn(move || {
        user.0.store(true, Ordering::Release);
        user.1.ring()
    });
    answer(&shared.1);
    let sees = shared.0.load(Ordering::Acquire);
    let sends = thread.join().unwrap();
    assert!(sees || sends);
}

#[test]
fn loom_what_is_posted_before_a_ring_is_seen() {
    bounded(3, || model_of_a_bell(Bell::answer));
}

#[test]
fn loom_a_bell_that_is_answered_by_a_store_is_found_out() {
    finds("sees || sends", || model_of_a_bell(Bell::answer_by_a_store));
}

/// One syspage, the scanner's list with this syspage alone, and the message that puts it there.
struct Machine {
    entries: Entries,
    in_flight: InFlight,
    head: AtomicU32,
    bell: Bell,
    messages: AtomicU32,
    is_on_core: AtomicBool,
}

impl Machine {
    fn new() -> Machine {
        Machine {
            entries: Entries::new(),
            in_flight: InFlight::new(),
            head: AtomicU32::new(0),
            bell: Bell::new(),
            messages: AtomicU32::new(0),
            is_on_core: AtomicBool::new(true),
        }
    }

    fn post(&self, producer: &mut Producer) -> usize {
        producer.post(&self.entries, &self.head, 7, 0, [0; 0]).unwrap()
    }

    fn ring(&self) {
        if self.bell.ring() {
            self.messages.fetch_add(1, Ordering::Release);
        }
    }

    /// The scanner takes up to `most` calls and answers them; how many.
    fn visit(&self, consumer: &mut Consumer, most: usize) -> usize {
        let done = consumer.visit(&self.entries, &self.in_flight, most, |call| {
            self.head.store(call.head, Ordering::Release);
            Served::Done(0)
        });
        self.head.store(consumer.head(), Ordering::Release);
        done
    }

    /// A turn of the scanner: who is on a core, then messages and the list until nothing is there.
    fn turn(&self, consumer: &mut Consumer) -> usize {
        let mut done = 0;
        if self.is_on_core.load(Ordering::Acquire) {
            // One at a time, as if that were a batch.
            done += self.visit(consumer, 1);
        }
        if self.messages.swap(0, Ordering::Acquire) != 0 {
            self.bell.answer();
            loop {
                done += self.visit(consumer, 64);
                if !consumer.has_work(&self.entries, &self.in_flight) {
                    break;
                }
            }
        }
        done
    }
}

/// A thread posts and leaves its core while the scanner is in the middle of a visit: the scanner gets to
/// know of what it has not taken.
#[test]
fn loom_what_was_posted_before_leaving_the_core_is_taken() {
    bounded(3, || {
        let machine = Arc::new(Machine::new());
        let mut producer = Producer::new();
        machine.post(&mut producer);
        let user = machine.clone();
        let thread = loom::thread::spawn(move || {
            user.post(&mut producer);
            user.is_on_core.store(false, Ordering::Release);
            if user.entries.may_have_work(|| user.head.load(Ordering::Acquire)) {
                user.ring();
            }
        });
        let mut consumer = Consumer::new();
        let mut taken = machine.turn(&mut consumer);
        thread.join().unwrap();
        taken += machine.turn(&mut consumer);
        assert_eq!(taken, 2);
    });
}

/// Another core publishes an answer; before it says that the call is no longer under way, the user posts
/// to the same entry and rings. The scanner takes the call then or is told once more.
#[test]
fn loom_an_entry_that_is_posted_again_while_it_is_completed_is_taken() {
    bounded(2, || {
        let machine = Arc::new(Machine::new());
        let (mut producer, mut consumer) = (Producer::new(), Consumer::new());
        let first = machine.post(&mut producer);
        consumer.visit(&machine.entries, &machine.in_flight, 1, |call| {
            machine.in_flight.begin(usize::from(call.index));
            Served::Later
        });
        // Once around, so that the entry is the next one.
        (1..64).for_each(|_| {
            machine.post(&mut producer);
        });
        assert_eq!(machine.visit(&mut consumer, 64), 63);
        machine.is_on_core.store(false, Ordering::Relaxed);
        let other = machine.clone();
        let thread = loom::thread::spawn(move || {
            if other.in_flight.complete(&other.entries, first, 9) {
                other.ring();
            }
        });
        if producer.take_result(&machine.entries, first).is_none() {
            // The other order is the uninteresting one.
            return thread.join().unwrap();
        }
        assert_eq!(machine.post(&mut producer), first);
        machine.ring();
        let mut taken = machine.turn(&mut consumer);
        thread.join().unwrap();
        taken += machine.turn(&mut consumer);
        assert_eq!(taken, 1);
    });
}

/// An entry that another core completes is never taken twice, even when the user uses it again at once.
#[test]
fn loom_completion_elsewhere_does_not_serve_twice() {
    bounded(3, || {
        let shared = Arc::new((Entries::new(), InFlight::new()));
        let mut producer = Producer::new();
        let index = producer.post(&shared.0, &AtomicU32::new(0), 1, 0, [0; 6]).unwrap();
        let mut consumer = Consumer::new();
        consumer.visit(&shared.0, &shared.1, 1, |call| {
            shared.1.begin(usize::from(call.index));
            Served::Later
        });
        let other = shared.clone();
        let thread = loom::thread::spawn(move || {
            let _ = other.1.complete(&other.0, index, 9);
        });
        // Nothing new was posted, so whatever the scanner sees, it takes nothing.
        let mut taken = 0;
        consumer.visit(&shared.0, &shared.1, 64, |_| {
            taken += 1;
            Served::Done(0)
        });
        assert_eq!(taken, 0);
        thread.join().unwrap();
        assert_eq!(shared.0.take_result(index), Some(9));
    });
}

/// Either the kernel core that parks sees the call, or the user sees that it is parked.
#[test]
fn loom_a_call_to_a_parking_core_is_not_lost() {
    bounded(3, || {
        let shared = Arc::new((Entries::new(), InFlight::new(), AtomicU32::new(0)));
        let kernel = shared.clone();
        let thread = loom::thread::spawn(move || {
            kernel.2.store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            Consumer::new().has_work(&kernel.0, &kernel.1)
        });
        let mut producer = Producer::new();
        producer.post(&shared.0, &AtomicU32::new(0), 1, 0, [0; 6]).unwrap();
        fence(Ordering::SeqCst);
        let rings = shared.2.load(Ordering::Relaxed) != 0;
        let stays_awake = thread.join().unwrap();
        assert!(rings || stays_awake);
    });
}
