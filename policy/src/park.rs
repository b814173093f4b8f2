//! When a core that finds nothing to do stops spinning.

/// Shortest spin before a core parks, in nanoseconds: a good part of what a wake-up by interrupt costs,
/// so that one late caller does not make every following call pay for one.
pub const MIN_BUDGET_NS: u64 = 20_000;
/// Longest spin before a core parks, in nanoseconds. Not longer: two virtual cores that get one core of
/// the host between them find each other's work only once one of them parks.
pub const MAX_BUDGET_NS: u64 = 60_000;

/// Longest time that a caller spins for the answer to a remote call, in nanoseconds, before it
/// suspends its thread and the core looks for other work or parks.
pub const MAX_ANSWER_SPIN_NS: u64 = 50_000;

/// Learns how long to spin from the gaps between the last arrivals of work.
///
/// The budget is twice the running mean of gaps, within `MIN_BUDGET_NS` and `MAX_BUDGET_NS`; gaps
/// beyond the longest budget shrink it, because spinning would not have caught them.
#[derive(Clone, Copy, Debug)]
pub struct SpinBudget {
    mean_gap_ns: u64,
}

impl SpinBudget {
    /// A budget that has seen nothing yet: the longest.
    pub const fn new() -> SpinBudget {
        SpinBudget { mean_gap_ns: MAX_BUDGET_NS / 2 }
    }

    /// How long to spin, in nanoseconds, before parking.
    pub const fn budget_ns(&self) -> u64 {
        let twice = self.mean_gap_ns * 2;
        if twice < MIN_BUDGET_NS {
            MIN_BUDGET_NS
        } else if twice > MAX_BUDGET_NS {
            MAX_BUDGET_NS
        } else {
            twice
        }
    }

    /// Work arrived `gap_ns` after the core last had some.
    pub const fn observe(&mut self, gap_ns: u64) {
        let sample = if gap_ns > 4 * MAX_BUDGET_NS {
            MIN_BUDGET_NS / 2
        } else if gap_ns > MAX_BUDGET_NS {
            MAX_BUDGET_NS / 2
        } else {
            gap_ns
        };
        self.mean_gap_ns = (self.mean_gap_ns * 7 + sample) / 8;
    }
}

impl Default for SpinBudget {
    fn default() -> Self {
        SpinBudget::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(gaps_ns: impl IntoIterator<Item = u64>) -> u64 {
        let mut budget = SpinBudget::new();
        gaps_ns.into_iter().for_each(|gap| budget.observe(gap));
        budget.budget_ns()
    }

    #[test]
    fn short_gaps_lead_to_a_short_budget_that_still_covers_them() {
        let budget = after([15_000; 100]);
        assert!((15_000..40_000).contains(&budget), "{budget}");
        assert_eq!(after([1_000; 100]), MIN_BUDGET_NS);
    }

    #[test]
    fn a_sleeping_workload_leads_to_the_shortest_budget() {
        assert_eq!(after([1_000_000_000; 100]), MIN_BUDGET_NS);
    }

    #[test]
    fn budget_stays_within_its_limits() {
        for gap in [0, 1, MIN_BUDGET_NS, MAX_BUDGET_NS, 5 * MAX_BUDGET_NS, u64::MAX] {
            assert!((MIN_BUDGET_NS..=MAX_BUDGET_NS).contains(&after([gap; 50])));
        }
    }
}
