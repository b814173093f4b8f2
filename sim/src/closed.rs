//! Predictions from the durations of a workload on one and on two cores, without a trace.
//!
//! **Model.** Each core repeats: compute, then use something of which there is one (the lock with what is
//! done under it, the path to memory). Both times are exponentially distributed, which stands for programs
//! that do not call in lockstep. The share *u* of the serial part on one core is the only free parameter,
//! and the duration on two cores determines it. This is a closed network of one queue; its exact solution
//! (mean value analysis, Reiser and Lavenberg 1980) needs no simulation, and the simulator must agree.
//!
//! **Calls come with time.** A workload that takes longer also makes more calls, as timers go on: the
//! published relation is calls = α · duration + δ · Linux calls. So the serial part grows with the
//! duration, by the share *a* of the calls that come with time on one core.

/// A workload on one core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Share of the duration on one core that is serial, 0 to 1.
    pub serial: f64,
    /// Share of the calls on one core that come with time, 0 to 1.
    pub timed: f64,
}

/// Steps of searches; each halves the distance.
const STEPS: usize = 60;

impl Model {
    /// The model for a workload that takes `ratio` times as long on two cores as on one. A workload that
    /// does not become slower has no serial part.
    pub fn calibrate(ratio: f64, timed: f64) -> Model {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..STEPS {
            let serial = (low + high) / 2.0;
            if (Model { serial, timed }).duration(2) < ratio { low = serial } else { high = serial }
        }
        Model { serial: low, timed }
    }

    /// Duration on so many cores, each with as much work, over that on one core.
    pub fn duration(&self, cores: usize) -> f64 {
        // With more time come more calls, with more calls more time: goes up to where both agree.
        let mut duration = 1.0;
        for _ in 0..200 {
            let growth = 1.0 + self.timed * (duration - 1.0);
            duration = round_trip(cores, 1.0 - self.serial, self.serial * growth);
        }
        duration
    }

    /// Work done on so many cores in the time in which one core does 1.
    pub fn throughput(&self, cores: usize) -> f64 {
        cores as f64 / self.duration(cores)
    }
}

/// Mean time of one round of `cores` customers that think for `think` and need the queue for `serve`.
pub fn round_trip(cores: usize, think: f64, serve: f64) -> f64 {
    let (mut queue, mut round) = (0.0, think + serve);
    for customers in 1..=cores {
        let residence = serve * (1.0 + queue);
        round = think + residence;
        queue = customers as f64 * residence / round;
    }
    round
}

/// The published relation of the calls below to those of Linux above.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallModel {
    /// Calls that come with time, per microsecond (α).
    pub per_us: f64,
    /// Calls for each call of Linux (δ).
    pub per_linux_call: f64,
}

/// The coefficients as published.
pub const PUBLISHED_CALLS: CallModel = CallModel { per_us: 0.001, per_linux_call: 7.0 };

impl CallModel {
    /// Calls in so much time with so many calls of Linux.
    pub fn calls(&self, duration_us: f64, linux_calls: f64) -> f64 {
        self.per_us * duration_us + self.per_linux_call * linux_calls
    }

    /// Share of the calls that come with time.
    pub fn timed_share(&self, duration_us: f64, linux_calls: f64) -> f64 {
        self.per_us * duration_us / self.calls(duration_us, linux_calls)
    }

    /// The coefficients that fit `(duration in µs, Linux calls, calls)` best, by least squares; none where
    /// the rows do not determine them.
    pub fn fit(rows: &[(f64, f64, f64)]) -> Option<CallModel> {
        let sum = |of: fn(&(f64, f64, f64)) -> f64| rows.iter().map(of).sum::<f64>();
        let (dd, dl, ll) = (sum(|r| r.0 * r.0), sum(|r| r.0 * r.1), sum(|r| r.1 * r.1));
        let (dc, lc) = (sum(|r| r.0 * r.2), sum(|r| r.1 * r.2));
        let determinant = dd * ll - dl * dl;
        (determinant.abs() > f64::EPSILON * dd * ll).then(|| CallModel {
            per_us: (dc * ll - lc * dl) / determinant,
            per_linux_call: (lc * dd - dc * dl) / determinant,
        })
    }
}

#[cfg(test)]
mod tests {
    use abi::trace::LockScheme;

    use super::*;
    use crate::costs::Costs;
    use crate::engine::run;
    use crate::machine::{Locking, symmetric};
    use crate::synthetic::Synthetic;

    #[test]
    fn the_simulator_agrees_with_queueing_theory() {
        for (idle, serial) in [(900.0, 100.0), (500.0, 500.0), (100.0, 900.0)] {
            for cores in [1, 2, 8] {
                let work = Synthetic { calls: 5_000, idle, serial, timer: 0.0 };
                let scheme = Locking::Scheme(LockScheme::GiantMcs);
                let machine = symmetric(cores, 1_000_000_000, scheme, Costs::default());
                let outcome = run(&machine, work.source(cores)).unwrap();
                let simulated = outcome.mean_duration() / 5_000.0;
                let expected = round_trip(cores, idle, serial);
                let error = simulated / expected - 1.0;
                assert!(error.abs() < 0.04, "{cores} cores, {serial}: {error:+.4}");
            }
        }
    }

    #[test]
    fn calibration_gives_back_what_it_was_given() {
        for serial in [0.1, 0.4, 0.8] {
            for timed in [0.0, 0.1] {
                let ratio = Model { serial, timed }.duration(2);
                assert!((Model::calibrate(ratio, timed).serial - serial).abs() < 1e-6);
            }
        }
        assert!(Model::calibrate(0.98, 0.0).serial < 1e-6);
    }

    #[test]
    fn one_core_takes_its_time_and_many_are_bound_by_the_serial_part() {
        let model = Model { serial: 0.5, timed: 0.0 };
        assert_eq!(model.duration(1), 1.0);
        assert!((model.throughput(50) - 2.0).abs() < 1e-3);
    }

    #[test]
    fn the_published_coefficients_come_out_of_the_published_counts() {
        let rows: Vec<(f64, f64, f64)> = crate::published::WORKLOADS
            .iter()
            .map(|workload| {
                (workload.duration_us[0], workload.linux_calls, workload.microvisor_calls)
            })
            .collect();
        let fit = CallModel::fit(&rows).unwrap();
        assert!((fit.per_us - 0.000812).abs() < 0.00002, "{fit:?}");
        assert!((fit.per_linux_call - 6.767).abs() < 0.02, "{fit:?}");
        // Phones: 1117 and 1723 calls of Linux in a second.
        assert_eq!(PUBLISHED_CALLS.calls(1e6, 1117.0), 8819.0);
        assert!((PUBLISHED_CALLS.calls(1e6, 1723.0) - 13_059.0).abs() < 3.0);
    }
}
