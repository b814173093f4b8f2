//! What bounds the throughput, and what would help: the same work again without one bound at a time.

use abi::trace::LockScheme;
use policy::choice::Wanted;
use policy::place::CoreSet;
use policy::route::CallPath;

use crate::engine::run;
use crate::error::Error;
use crate::machine::{Locking, Machine};
use crate::outcome::Outcome;
use crate::work::Source;

/// Something that could be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nobody waits for locks.
    NoLocks,
    /// Requests and answers travel in no time.
    NoFlight,
    /// Kernel cores never park.
    NoWakeUp,
    /// One more kernel core.
    OneMoreServer,
    /// All calls stay at home.
    AtHome,
    /// Kernel data is where it is needed.
    NoDataTransfer,
    /// The path to memory serves all at once.
    NoMemoryQueue,
}

impl Change {
    /// All changes.
    pub const ALL: [Change; 7] = [
        Change::NoLocks,
        Change::NoFlight,
        Change::NoWakeUp,
        Change::OneMoreServer,
        Change::AtHome,
        Change::NoDataTransfer,
        Change::NoMemoryQueue,
    ];

    /// What it is, for people.
    pub fn text(self) -> &'static str {
        match self {
            Change::NoLocks => "locks that nobody waits for (--locks fine)",
            Change::NoFlight => "requests that travel in no time (cores that share a cache)",
            Change::NoWakeUp => "kernel cores that never park",
            Change::OneMoreServer => "one more kernel core",
            Change::AtHome => "all calls at home (--path local)",
            Change::NoDataTransfer => "kernel data that does not move between cores",
            Change::NoMemoryQueue => "a path to memory that serves all cores at once",
        }
    }

    /// The machine with the change; none where it changes nothing.
    fn apply(self, machine: &Machine) -> Option<Machine> {
        let mut changed = machine.clone();
        match self {
            Change::NoLocks => changed.locking = Locking::Scheme(LockScheme::Fine),
            Change::NoFlight => {
                changed.costs.flight = 0;
                changed.costs.far_flight = 0;
            }
            Change::NoWakeUp => changed.costs.wake_up = 0,
            Change::OneMoreServer => {
                let used = machine.layout.application.0 | machine.layout.kernel.0;
                let free = (0..64).find(|&core| !CoreSet(used).contains(core))?;
                changed.layout.kernel.0 |= 1 << free;
            }
            Change::AtHome => changed.wanted = Wanted::Fixed(CallPath::Local),
            Change::NoDataTransfer => changed.costs.data_transfer = 0,
            Change::NoMemoryQueue => changed.costs.memory_share = 0.0,
        }
        (changed != *machine).then_some(changed)
    }
}

/// Where the time of the application cores goes: shares that add up to 1 but for rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// The programs' own.
    pub user: f64,
    /// Calls on their own core.
    pub kernel: f64,
    /// Waiting for locks.
    pub locks: f64,
    /// Waiting for answers from other cores.
    pub away: f64,
    /// Waiting for devices, timers and others.
    pub blocked: f64,
    /// Waiting for the path to memory.
    pub memory: f64,
    /// Done earlier than the last core.
    pub done: f64,
}

/// What bounds a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// As it is.
    pub outcome: Outcome,
    /// Where the time goes.
    pub shares: Shares,
    /// Changes with the throughput over that without them, the best first.
    pub changes: Vec<(Change, f64)>,
}

/// Simulates the machine as it is and with each change. `source` begins the same work again each time.
///
/// # Errors
///
/// Where the work cannot be read.
pub fn explain<S: Source>(
    machine: &Machine,
    mut source: impl FnMut() -> Result<S, Error>,
) -> Result<Explanation, Error> {
    let outcome = run(machine, source()?)?;
    let base = outcome.throughput();
    let mut changes = Vec::new();
    for change in Change::ALL {
        if let Some(changed) = change.apply(machine) {
            let throughput = run(&changed, source()?)?.throughput();
            changes.push((change, throughput / base.max(f64::MIN_POSITIVE)));
        }
    }
    changes.sort_by(|first, second| second.1.total_cmp(&first.1));
    Ok(Explanation { shares: shares(&outcome), outcome, changes })
}

/// Where the time of the application cores went.
pub fn shares(outcome: &Outcome) -> Shares {
    let all = outcome.ended as f64 * outcome.streams.len() as f64;
    let share = |of: fn(&crate::StreamOutcome) -> u64| {
        outcome.streams.iter().map(of).sum::<u64>() as f64 / all.max(1.0)
    };
    let shares = Shares {
        user: share(|stream| stream.user),
        kernel: share(|stream| stream.kernel),
        locks: share(|stream| stream.lock_wait),
        away: share(|stream| stream.away_wait),
        blocked: share(|stream| stream.blocked),
        memory: share(|stream| stream.memory_wait),
        done: 0.0,
    };
    let finished = share(|stream| stream.finished);
    Shares { done: 1.0 - finished, ..shares }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Costs;
    use crate::engine::Repeated;
    use crate::machine::symmetric;
    use crate::work::Work;

    #[test]
    fn a_contended_lock_is_named_first() {
        let scheme = Locking::Scheme(LockScheme::GiantTicket);
        let machine = symmetric(4, 1_000_000_000, scheme, Costs::default());
        let work = Work { idle: 100, poll: 100, ..Work::default() };
        let explanation =
            explain(&machine, || Ok(Repeated { work, left: vec![1_000; 4] })).unwrap();
        let (change, gain) = explanation.changes[0];
        assert_eq!(change, Change::NoLocks);
        assert!((gain - 2.0).abs() < 0.05, "{gain}");
        let Shares { user, kernel, locks, .. } = explanation.shares;
        assert!((user + kernel + locks - 1.0).abs() < 0.01, "{:?}", explanation.shares);
    }

    #[test]
    fn an_application_that_only_computes_has_nothing_to_gain() {
        let scheme = Locking::Scheme(LockScheme::GiantTicket);
        let machine = symmetric(2, 1_000_000_000, scheme, Costs::default());
        let work = Work { idle: 1_000_000, poll: 10, ..Work::default() };
        let explanation = explain(&machine, || Ok(Repeated { work, left: vec![100; 2] })).unwrap();
        assert!(explanation.changes.iter().all(|(_, gain)| (gain - 1.0).abs() < 0.01));
        assert!(explanation.shares.user > 0.99);
    }
}
