//! A kernel core that serves calls one after the other, spins for more, and parks.

use std::collections::VecDeque;

use policy::park::SpinBudget;

use crate::outcome::ServerOutcome;

/// The state of one kernel core.
#[derive(Clone, Debug, Default)]
pub struct Server {
    is_busy: bool,
    waiting: VecDeque<(usize, u64)>,
    idle_since: u64,
    budget: SpinBudget,
    /// What happened on it.
    pub outcome: ServerOutcome,
}

/// What a request finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The core is at work; the request waits in its queue.
    Busy,
    /// The core spins: it takes the request now.
    Spinning,
    /// The core is parked: it has to be woken first.
    Parked,
}

impl Server {
    /// Whether the core is parked now, as far as `policy` decides it.
    pub fn is_parked(&self, now: u64, nanoseconds: impl Fn(u64) -> u64) -> bool {
        let gap = nanoseconds(now.saturating_sub(self.idle_since));
        !self.is_busy && gap > self.budget.budget_ns()
    }

    /// A request arrives.
    pub fn arrive(
        &mut self,
        stream: usize,
        now: u64,
        nanoseconds: impl Fn(u64) -> u64 + Copy,
    ) -> Found {
        self.outcome.requests += 1;
        if self.is_busy {
            self.waiting.push_back((stream, now));
            return Found::Busy;
        }
        let is_parked = self.is_parked(now, nanoseconds);
        let gap = now.saturating_sub(self.idle_since);
        let spun = if is_parked { 0 } else { gap };
        self.outcome.spinning += spun;
        self.budget.observe(nanoseconds(gap));
        self.is_busy = true;
        if is_parked {
            self.outcome.woken += 1;
            Found::Parked
        } else {
            Found::Spinning
        }
    }

    /// The request at work is done: the next one.
    pub fn done(&mut self, now: u64) -> Option<usize> {
        let next = self.waiting.pop_front();
        match next {
            Some((_, since)) => self.outcome.queued += now.saturating_sub(since),
            None => {
                self.is_busy = false;
                self.idle_since = now;
            }
        }
        next.map(|(stream, _)| stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_spins_as_long_as_policy_says_and_is_woken_after() {
        let mut server = Server::default();
        let budget = SpinBudget::new().budget_ns();
        assert_eq!(server.arrive(0, budget, |ticks| ticks), Found::Spinning);
        assert_eq!(server.arrive(1, budget + 1, |ticks| ticks), Found::Busy);
        assert_eq!(server.done(budget + 10), Some(1));
        assert_eq!(server.done(budget + 20), None);
        let late = budget + 21 + policy::park::MAX_BUDGET_NS;
        assert_eq!(server.arrive(2, late, |ticks| ticks), Found::Parked);
        let ServerOutcome { requests, woken, queued, .. } = server.outcome;
        assert_eq!((requests, woken, queued), (3, 1, 9));
    }
}
