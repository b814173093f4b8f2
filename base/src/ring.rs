//! A bounded queue between cores: many may push, many may pop, nobody takes a lock.
//!
//! After D. Vyukov's bounded multi-producer multi-consumer queue: every place has a sequence number
//! that says whose turn it is. `push` and `pop` are one compare-exchange on a counter plus a store on
//! the place. A pusher that is interrupted between the two holds up the poppers of its place, and only
//! those; the kernel is not interrupted.

use alloc::boxed::Box;
use core::mem::MaybeUninit;

use crate::primitives::{AtomicUsize, Ordering, UnsafeCell};

#[repr(align(128))]
struct Aligned<T>(T);

/// A place. Rule: `value` belongs to the pusher of position p while `turn` is p, to the popper of
/// position p while `turn` is p + 1.
struct Place<T> {
    turn: AtomicUsize,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// A bounded queue; first in, first out for each pusher.
pub struct Ring<T> {
    places: Box<[Place<T>]>,
    mask: usize,
    /// Position of the next push.
    tail: Aligned<AtomicUsize>,
    /// Position of the next pop.
    head: Aligned<AtomicUsize>,
}

// SAFETY: values move from the pusher to the popper; a place has one owner at a time.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Ring<T> {
    /// An empty queue for at least `capacity` values: the next power of two, at least 2.
    pub fn new(capacity: usize) -> Ring<T> {
        let capacity = capacity.max(2).next_power_of_two();
        let places = (0..capacity)
            .map(|position| Place {
                turn: AtomicUsize::new(position),
                value: UnsafeCell::new(MaybeUninit::uninit()),
            })
            .collect();
        Ring {
            places,
            mask: capacity - 1,
            tail: Aligned(AtomicUsize::new(0)),
            head: Aligned(AtomicUsize::new(0)),
        }
    }

    /// How many values fit.
    pub fn capacity(&self) -> usize {
        self.places.len()
    }

    #[inline]
    fn place(&self, position: usize) -> &Place<T> {
        &self.places[position & self.mask]
    }

    /// Appends a value; gives it back when the queue is full.
    #[inline]
    pub fn push(&self, value: T) -> Result<(), T> {
        let mut position = self.tail.0.load(Ordering::Relaxed);
        loop {
            let place = self.place(position);
            let turn = place.turn.load(Ordering::Acquire);
            if turn == position {
                match self.tail.0.compare_exchange_weak(
                    position,
                    position.wrapping_add(1),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        // SAFETY: it is the turn of this position's pusher, which the exchange made us.
                        place.value.with_mut(|cell| unsafe { (*cell).write(value) });
                        place.turn.store(position.wrapping_add(1), Ordering::Release);
                        return Ok(());
                    }
                    Err(now) => position = now,
                }
            } else if (turn.wrapping_sub(position) as isize) < 0 {
                return Err(value);
            } else {
                position = self.tail.0.load(Ordering::Relaxed);
            }
        }
    }

    /// Takes the oldest value.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        let mut position = self.head.0.load(Ordering::Relaxed);
        loop {
            let place = self.place(position);
            let turn = place.turn.load(Ordering::Acquire);
            let expected = position.wrapping_add(1);
            if turn == expected {
                match self.head.0.compare_exchange_weak(
                    position,
                    expected,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        // SAFETY: it is the turn of this position's popper, which the exchange made us;
                        // the pusher wrote the value before it set the turn.
                        let value =
                            place.value.with_mut(|cell| unsafe { (*cell).assume_init_read() });
                        place
                            .turn
                            .store(position.wrapping_add(self.places.len()), Ordering::Release);
                        return Some(value);
                    }
                    Err(now) => position = now,
                }
            } else if (turn.wrapping_sub(expected) as isize) < 0 {
                return None;
            } else {
                position = self.head.0.load(Ordering::Relaxed);
            }
        }
    }

    /// Whether nothing can be popped now. After a full fence it sees every push that was finished
    /// before.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let position = self.head.0.load(Ordering::Relaxed);
        let turn = self.place(position).turn.load(Ordering::Acquire);
        (turn.wrapping_sub(position.wrapping_add(1)) as isize) < 0
    }

    /// Number of values, roughly.
    pub fn len(&self) -> usize {
        let head = self.head.0.load(Ordering::Relaxed);
        self.tail.0.load(Ordering::Relaxed).wrapping_sub(head).min(self.places.len())
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::sync::Arc;

    #[test]
    fn order_is_kept_and_a_full_ring_refuses() {
        let ring = Ring::new(4);
        assert!(ring.is_empty());
        for value in 0..4 {
            assert_eq!(ring.push(value), Ok(()));
        }
        assert_eq!(ring.push(9), Err(9));
        assert_eq!(ring.len(), 4);
        for round in 0..10 {
            assert_eq!(ring.pop(), Some(round));
            assert_eq!(ring.push(round + 4), Ok(()));
        }
        assert_eq!(core::iter::from_fn(|| ring.pop()).collect::<Vec<_>>(), [10, 11, 12, 13]);
        assert!(ring.is_empty());
    }

    #[test]
    fn values_left_behind_are_dropped_with_the_ring() {
        let value = Arc::new(());
        let ring = Ring::new(2);
        assert!(ring.push(value.clone()).is_ok() && ring.push(value.clone()).is_ok());
        drop(ring);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn nothing_is_lost_or_doubled_between_threads() {
        const EACH: usize = 5_000;
        let ring = Ring::new(16);
        let mut seen = std::thread::scope(|scope| {
            for producer in 0..2 {
                let ring = &ring;
                scope.spawn(move || {
                    for value in 0..EACH {
                        let mut value = producer * EACH + value;
                        while let Err(back) = ring.push(value) {
                            value = back;
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let consumers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut seen = Vec::new();
                        while seen.len() < EACH {
                            match ring.pop() {
                                Some(value) => seen.push(value),
                                None => std::thread::yield_now(),
                            }
                        }
                        seen
                    })
                })
                .collect();
            consumers.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        seen.sort_unstable();
        assert_eq!(seen, (0..2 * EACH).collect::<Vec<_>>());
    }
}
