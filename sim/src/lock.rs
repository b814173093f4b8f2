//! A lock that is given on in the order in which it was asked for, as ticket, CLH and MCS locks are.

use std::collections::VecDeque;

use crate::outcome::LockOutcome;

/// The state of one lock.
#[derive(Clone, Debug, Default)]
pub struct Lock {
    is_held: bool,
    waiting: VecDeque<(usize, u64)>,
    /// What happened to it.
    pub outcome: LockOutcome,
}

impl Lock {
    /// A stream asks for the lock; whether it has it.
    #[must_use]
    pub fn ask(&mut self, stream: usize, now: u64) -> bool {
        self.outcome.acquired += 1;
        if self.is_held {
            self.outcome.contended += 1;
            self.waiting.push_back((stream, now));
            self.outcome.most_waiting = self.outcome.most_waiting.max(self.waiting.len());
            return false;
        }
        self.is_held = true;
        true
    }

    /// The holder releases it: the next in line has it then, and how many wait behind that one.
    pub fn release(&mut self, now: u64) -> Option<(usize, u64, usize)> {
        let next = self.waiting.pop_front();
        self.is_held = next.is_some();
        next.map(|(stream, since)| {
            let waited = now.saturating_sub(since);
            self.outcome.waited += waited;
            (stream, waited, self.waiting.len())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_given_on_in_order() {
        let mut lock = Lock::default();
        assert!(lock.ask(3, 0));
        assert!(!lock.ask(1, 5));
        assert!(!lock.ask(2, 6));
        assert_eq!(lock.release(10), Some((1, 5, 1)));
        assert_eq!(lock.release(20), Some((2, 14, 0)));
        assert_eq!(lock.release(30), None);
        assert!(lock.ask(0, 40));
        assert_eq!((lock.outcome.acquired, lock.outcome.contended), (4, 2));
        assert_eq!((lock.outcome.waited, lock.outcome.most_waiting), (19, 2));
    }
}
