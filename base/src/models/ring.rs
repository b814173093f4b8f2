//! The bounded ring between cores.

use loom::sync::Arc;
use loom::thread;

use super::bounded;
use crate::ring::Ring;

#[test]
fn loom_two_pushers_lose_nothing() {
    bounded(3, || {
        let ring = Arc::new(Ring::new(2));
        let threads: Vec<_> = (1..=2)
            .map(|value| {
                let ring = ring.clone();
                thread::spawn(move || ring.push(value).unwrap())
            })
            .collect();
        let mut sum = ring.pop().unwrap_or(0);
        for thread in threads {
            thread.join().unwrap();
        }
        while let Some(value) = ring.pop() {
            sum += value;
        }
        assert_eq!(sum, 3);
    });
}

#[test]
fn loom_two_poppers_share_and_a_full_ring_gives_back() {
    bounded(3, || {
        let ring = Arc::new(Ring::new(2));
        ring.push(1).unwrap();
        ring.push(2).unwrap();
        let other = ring.clone();
        let thread = thread::spawn(move || other.pop());
        let pushed = ring.push(4);
        let mine = ring.pop();
        let theirs = thread.join().unwrap();
        let mut sum = mine.unwrap_or(0) + theirs.unwrap_or(0) + pushed.err().unwrap_or(0);
        assert!(mine.is_some() && theirs.is_some());
        while let Some(value) = ring.pop() {
            sum += value;
        }
        assert_eq!(sum, 7);
    });
}
