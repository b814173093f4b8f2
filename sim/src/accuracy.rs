//! How well the simulator predicts what was measured: three and four cores from one and two.
//!
//! Only the published figures of one and two cores, and the published relation of calls to time, go in.
//! Nothing is fitted to three or four cores.

use abi::trace::LockScheme;

use crate::closed::{Model, PUBLISHED_CALLS};
use crate::costs::Costs;
use crate::engine::run;
use crate::error::Error;
use crate::machine::{Locking, symmetric};
use crate::published::{CONTENDED_EMPTY_CALL, TICKS_PER_SECOND, WORKLOADS, Workload};
use crate::synthetic::Synthetic;
use crate::work::{Source, Work};

/// A prediction beside what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Workload.
    pub name: &'static str,
    /// Cores that are predicted.
    pub cores: usize,
    /// Unit of both figures.
    pub unit: &'static str,
    /// What was measured.
    pub measured: f64,
    /// What the simulator predicts.
    pub predicted: f64,
    /// What the published simulator's prediction was off, in percent; it was given three cores' traces.
    pub published_error_pct: Option<f64>,
}

impl Row {
    /// By how much the prediction is off, in percent of what was measured.
    pub fn error_pct(&self) -> f64 {
        (self.predicted / self.measured - 1.0) * 100.0
    }
}

/// Where the throughput of a workload is largest, on one to four cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knee {
    /// Workload.
    pub name: &'static str,
    /// Cores at the largest measured throughput.
    pub measured: usize,
    /// Cores at the largest predicted throughput.
    pub predicted: usize,
}

/// Calls of each core that are simulated for a prediction.
pub const CALLS: u64 = 100_000;

/// Durations of the four workloads on three and four cores, by simulating `calls` calls of each core.
///
/// # Errors
///
/// None that happens: the work is made up.
pub fn workloads(calls: u64) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for workload in &WORKLOADS {
        let one = simulated(workload, 1, calls)?;
        for cores in [3, 4] {
            let ratio = simulated(workload, cores, calls)? / one;
            rows.push(Row {
                name: workload.name,
                cores,
                unit: "s",
                measured: workload.duration_us[cores - 1] / 1e6,
                predicted: workload.duration_us[0] * ratio / 1e6,
                published_error_pct: (cores == 4).then_some(workload.published_error_pct),
            });
        }
    }
    Ok(rows)
}

/// The model of a workload, from its figures of one and two cores.
pub fn model(workload: &Workload) -> Model {
    let timed = PUBLISHED_CALLS.timed_share(workload.duration_us[0], workload.linux_calls);
    Model::calibrate(workload.duration_us[1] / workload.duration_us[0], timed)
}

/// Duration of a workload on so many cores, in ticks of no meaning.
fn simulated(workload: &Workload, cores: usize, calls: u64) -> Result<f64, Error> {
    let Model { serial, timed } = model(workload);
    // On one core, a round takes this long, and calls that come with time are `timed` of all.
    let round = 100_000.0;
    let rounds = calls as f64 / (1.0 - timed);
    let work = Synthetic {
        calls,
        idle: (1.0 - serial) * round / (1.0 - timed),
        serial: serial * round,
        timer: rounds * round / (rounds * timed),
    };
    let scheme = Locking::Scheme(LockScheme::GiantTicket);
    let machine = symmetric(cores, 1_000_000_000, scheme, Costs::default());
    Ok(run(&machine, work.source(cores))?.mean_duration())
}

/// An empty call under full contention on three and four cores. On one core it takes mode switches, lock
/// entry and exit; on two, what the hand-over takes more follows from the measured figure.
///
/// # Errors
///
/// None that happens: the work is made up.
pub fn empty_calls() -> Result<Vec<Row>, Error> {
    let (mode_switch, exit) = (39.0, 85.0);
    let [one, two, ..] = CONTENDED_EMPTY_CALL;
    let entry = one - 2.0 * mode_switch - exit;
    // Under full contention, each call occupies the lock for its hand-over and its release.
    let hand_over = two / 2.0 - exit;
    // In tenths of cycles, so that rounding does not matter.
    let tenths = |cycles: f64| (cycles * 10.0).round() as u64;
    let costs = Costs {
        acquire: tenths(entry),
        hand_over: tenths(hand_over),
        release: tenths(exit),
        ..Costs::default()
    };
    let work = Work { enter: tenths(mode_switch), exit: tenths(mode_switch), ..Work::default() };
    let calls = 10_000;
    [3, 4]
        .into_iter()
        .map(|cores| {
            let machine = symmetric(cores, TICKS_PER_SECOND * 10, Locking::PublishedGiant, costs);
            let outcome = run(&machine, Same { work, left: vec![calls; cores] })?;
            Ok(Row {
                name: "empty call, contended",
                cores,
                unit: "cycles",
                measured: CONTENDED_EMPTY_CALL[cores - 1],
                predicted: outcome.mean_duration() / calls as f64 / 10.0,
                published_error_pct: None,
            })
        })
        .collect()
}

struct Same {
    work: Work,
    left: Vec<u64>,
}

impl Source for Same {
    fn next(&mut self, stream: usize, _now: u64, work: &mut Work) -> Result<bool, Error> {
        let left = &mut self.left[stream];
        let has_more = *left > 0;
        *left = left.saturating_sub(1);
        *work = self.work;
        Ok(has_more)
    }
}

/// Where the throughput is largest, measured and predicted.
pub fn knees() -> Vec<Knee> {
    let largest = |throughput: &dyn Fn(usize) -> f64| {
        (1..=4).max_by(|&a, &b| throughput(a).total_cmp(&throughput(b))).unwrap_or(1)
    };
    WORKLOADS
        .iter()
        .map(|workload| {
            let model = model(workload);
            Knee {
                name: workload.name,
                measured: largest(&|cores| cores as f64 / workload.duration_us[cores - 1]),
                predicted: largest(&|cores| model.throughput(cores)),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enough for a test: an error of about one in a hundred.
    const FEW_CALLS: u64 = 10_000;

    #[test]
    fn three_and_four_cores_are_predicted_within_a_tenth_from_one_and_two() {
        let rows = workloads(FEW_CALLS).unwrap();
        assert_eq!(rows.len(), 8);
        for row in rows.iter().chain(&empty_calls().unwrap()) {
            let error = row.error_pct();
            assert!(error.abs() <= 11.0, "{} on {}: {error:+.1} %", row.name, row.cores);
            // The simulator and the closed model are two ways to one figure.
            if let Some(workload) = WORKLOADS.iter().find(|workload| workload.name == row.name) {
                let closed = model(workload).duration(row.cores) * workload.duration_us[0] / 1e6;
                let difference = row.predicted / closed - 1.0;
                assert!(difference.abs() < 0.03, "{} on {}: {difference:+.4}", row.name, row.cores);
            }
        }
    }

    #[test]
    fn knees_are_within_one_core() {
        for knee in knees() {
            assert!(knee.measured.abs_diff(knee.predicted) <= 1, "{knee:?}");
        }
    }
}
