//! The entries of a syspage, and the handshake of a kernel core that parks.

use alloc::sync::Arc;

use loom::sync::atomic::{AtomicU32, Ordering, fence};

use super::bounded;
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

/// Who posts while the scanner answers an earlier ring is not missed, though it sends no message when one
/// is under way.
#[test]
fn loom_what_is_posted_before_a_ring_is_seen() {
    bounded(3, || {
        let shared = Arc::new((Entries::new(), InFlight::new(), Bell::new(), AtomicU32::new(0)));
        let ring = |shared: &(Entries, InFlight, Bell, AtomicU32)| {
            if shared.2.ring() {
                shared.3.fetch_add(1, Ordering::Release);
            }
        };
        // A message of before is under way.
        ring(&shared);
        let user = shared.clone();
        let thread = loom::thread::spawn(move || {
            Producer::new().post(&user.0, &AtomicU32::new(0), 7, 0, [0; 6]).unwrap();
            ring(&user);
        });
        let mut consumer = Consumer::new();
        let mut look = || {
            if shared.3.swap(0, Ordering::Acquire) == 0 {
                return 0;
            }
            shared.2.answer();
            consumer.visit(&shared.0, &shared.1, 64, |_| Served::Done(0))
        };
        let mut served = look();
        thread.join().unwrap();
        served += look();
        assert_eq!(served, 1);
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
        let thread = loom::thread::spawn(move || other.1.complete(&other.0, index, 9));
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
