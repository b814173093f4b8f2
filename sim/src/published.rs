//! The published giant-lock simulator (A. Lyons, UNSW 2011) as a configuration of this one, and the figures
//! that its document prints.
//!
//! Its chain of events per call is mode switch, lock entry, call, lock exit, mode switch, idle. What the
//! document leaves open is decided so: *lock entry* is paid by whoever takes the lock, whether it was free
//! or given on; with `isDefault` the lock exit is drawn evenly from the 80 to 90 cycles that were measured
//! on one core, since the distributions of more cores are not in the text.

use std::path::PathBuf;

use policy::choice::Wanted;
use policy::place::{CoreSet, Layout};
use policy::route::CallPath;
use serde::Deserialize;

use crate::costs::Costs;
use crate::error::Error;
use crate::machine::{Locking, Machine};

/// Clock of the published machine.
pub const TICKS_PER_SECOND: u64 = 399_000_000;
/// Lock exit on one core, in cycles: from and to.
const EXIT: (u64, u64) = (80, 90);

/// The published simulator's configuration, with its own keys.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Published {
    /// Processors to simulate.
    pub simulated_cores: usize,
    /// The log: rows as `trace::thesis` reads them.
    pub log_file: PathBuf,
    /// Lock latency in cycles: of the entry alone with `isDefault`, else of both, 2/3 entry and 1/3 exit.
    #[serde(alias = "defaultLantency")]
    pub default_latency: u64,
    /// One mode switch, in cycles; a call has two.
    pub mode_switch_cost: u64,
    /// Whether the lock exit is drawn from what was measured.
    pub is_default: bool,
    /// Whether the coarse scheme is simulated; else the giant lock.
    pub is_coarse_grained: bool,
    /// Processors of the log.
    pub actual_cores: usize,
}

impl Published {
    /// Checks the values.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] for cores that are impossible.
    pub fn check(&self) -> Result<(), Error> {
        for (key, cores) in
            [("simulatedCores", self.simulated_cores), ("actualCores", self.actual_cores)]
        {
            if !(1..=64).contains(&cores) {
                let what = "1 to 64 are possible".to_owned();
                return Err(Error::Value { key, value: cores.to_string(), what });
            }
        }
        Ok(())
    }

    /// The machine that it stands for.
    pub fn machine(&self) -> Machine {
        let all = CoreSet::first(self.simulated_cores);
        let (entry, exit, spread) = if self.is_default {
            (self.default_latency, EXIT.0, EXIT.1 - EXIT.0)
        } else {
            let exit = self.default_latency / 3;
            (self.default_latency - exit, exit, 0)
        };
        // The mode switches are not held under the lock: see `ModeSwitches`.
        let costs = Costs {
            acquire: entry,
            hand_over: entry,
            release: exit,
            release_spread: spread,
            ..Costs::default()
        };
        Machine {
            ticks_per_second: TICKS_PER_SECOND,
            layout: Layout { application: all, kernel: all, interrupt: all },
            wanted: Wanted::Fixed(CallPath::Local),
            locking: if self.is_coarse_grained {
                Locking::PublishedCoarse
            } else {
                Locking::PublishedGiant
            },
            costs,
        }
    }
}

/// Adds the two mode switches to every call of a source.
pub struct ModeSwitches<S> {
    /// The calls.
    pub source: S,
    /// One mode switch, in cycles.
    pub cost: u64,
}

impl<S: crate::Source> crate::Source for ModeSwitches<S> {
    fn next(&mut self, stream: usize, now: u64, work: &mut crate::Work) -> Result<bool, Error> {
        let has_more = self.source.next(stream, now, work)?;
        (work.enter, work.exit) = (self.cost, self.cost);
        Ok(has_more)
    }
}

/// Names of the calls by their letters: A is 0 (table 6.12).
pub const CALLS: [&str; 17] = [
    "cache_flush_range",
    "channel_primary_free_message",
    "channel_primary_receive",
    "channel_secondary_send",
    "interrupt_ack",
    "interrupt_register",
    "interrupt_unregister",
    "interrupt_wait",
    "interrupt_wake_up",
    "vfp_get_fpexc",
    "vfp_set_fpinst",
    "virq_raise",
    "vmmu_activate_vuas",
    "vmmu_flush_range",
    "vmmu_map_segment",
    "vmmu_translation_insert",
    "vmmu_translation_invalidate",
];

/// What the document prints of a workload. Index n is n + 1 cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// Measured duration in microseconds (tables 6.13 and 6.14; lmbench on four cores is calculated).
    pub duration_us: [f64; 4],
    /// Calls of Linux on one core (table 6.15).
    pub linux_calls: f64,
    /// Calls of the microvisor on one core (table 6.15).
    pub microvisor_calls: f64,
    /// What the published simulator's prediction for four cores was off, in percent of the measured
    /// duration, given the traces of three (table 6.14).
    pub published_error_pct: f64,
}

/// The four workloads.
pub const WORKLOADS: [Workload; 4] = [
    Workload {
        name: "300.twolf",
        duration_us: [8_449_333.0, 8_663_408.0, 8_862_311.0, 9_386_267.0],
        linux_calls: 755.0,
        microvisor_calls: 17_607.0,
        published_error_pct: -5.2,
    },
    Workload {
        name: "252.eon",
        duration_us: [16_788_071.0, 16_495_589.0, 16_873_128.0, 17_263_644.0],
        linux_calls: 343.0,
        microvisor_calls: 14_261.0,
        published_error_pct: -2.0,
    },
    Workload {
        name: "eon-lmbench",
        duration_us: [7_901_608.0, 9_394_662.0, 12_254_322.0, 16_389_768.0],
        linux_calls: 9_594.0,
        microvisor_calls: 67_100.0,
        published_error_pct: -22.9,
    },
    Workload {
        name: "lmbench",
        duration_us: [6_104_772.0, 10_410_112.0, 17_122_117.0, 24_618_180.0],
        linux_calls: 17_450.0,
        microvisor_calls: 125_152.0,
        published_error_pct: -25.7,
    },
];

/// An empty call under full contention, in cycles per call (table 6.7 and appendix A), from one core on.
pub const CONTENDED_EMPTY_CALL: [f64; 4] = [328.2, 683.8, 996.6, 1340.2];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Repeated, run};
    use crate::work::Work;

    fn published(cores: usize) -> Published {
        Published {
            simulated_cores: cores,
            log_file: PathBuf::from("log"),
            default_latency: 165,
            mode_switch_cost: 39,
            is_default: true,
            is_coarse_grained: false,
            actual_cores: 1,
        }
    }

    fn empty_calls(published: &Published) -> f64 {
        let machine = published.machine();
        let left = vec![5_000; published.simulated_cores];
        let source = ModeSwitches {
            source: Repeated { work: Work::default(), left },
            cost: published.mode_switch_cost,
        };
        run(&machine, source).unwrap().mean_duration() / 5_000.0
    }

    #[test]
    fn an_empty_call_on_one_core_takes_what_was_measured() {
        let cycles = empty_calls(&published(1));
        assert!((cycles - 328.0).abs() < 1.0, "{cycles}");
    }

    #[test]
    fn latency_is_split_into_two_thirds_and_one_third_where_it_is_not_the_default() {
        let machine =
            Published { is_default: false, default_latency: 300, ..published(2) }.machine();
        assert_eq!((machine.costs.acquire, machine.costs.release), (200, 100));
        let alone = Published { is_default: false, default_latency: 1_000, ..published(1) };
        assert!((empty_calls(&alone) - 1_078.0).abs() < 1.0);
    }

    #[test]
    fn the_published_lock_is_the_bound_under_full_contention() {
        let four = empty_calls(&published(4));
        // Entry and exit of every call are serial: 250 cycles for each of four cores.
        assert!((four - 1_000.0).abs() < 10.0, "{four}");
    }

    #[test]
    fn impossible_cores_are_refused() {
        assert!(published(0).check().is_err() && published(65).check().is_err());
        assert!(published(64).check().is_ok());
    }
}
