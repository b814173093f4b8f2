//! What is simulated, from JSON or TOML. Unknown keys, wrong types and impossible cores are refused.

use std::path::PathBuf;

use abi::trace::LockScheme;
use policy::choice::Wanted;
use policy::place::{CoreSet, Layout, LayoutError, Wishes};
use policy::route::CallPath;
use serde::Deserialize;

use crate::costs::Costs;
use crate::error::Error;
use crate::machine::{Locking, Machine};
use crate::published::Published;
use crate::replay::Profile;

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub enum Configuration {
    /// A trace of Ferry on a machine of Ferry.
    Ferry(Ferry),
    /// The published simulator's configuration: it has the key `simulatedCores`.
    Published(Published),
}

/// A trace of Ferry on a machine of Ferry.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Ferry {
    /// The trace, from where the tool is started.
    pub trace: PathBuf,
    /// Cores of the machine.
    pub cores: usize,
    /// Cores that run programs; as the kernel chooses them if neither this nor the next is given.
    pub application_cores: Option<Vec<usize>>,
    /// Cores that serve calls.
    pub kernel_cores: Option<Vec<usize>>,
    /// Cores that look after devices: they have neither of these two roles unless that is said.
    pub interrupt_cores: Option<Vec<usize>>,
    /// Path of the calls.
    #[serde(default)]
    pub path: PathName,
    /// Lock scheme.
    #[serde(default)]
    pub locks: LockName,
    /// What travelling, waking and locking cost.
    #[serde(default)]
    pub costs: CostsInNanoseconds,
}

/// A path, or the choice call by call.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum PathName {
    /// Each call takes its cheapest path.
    #[default]
    Auto,
    /// On the caller's core.
    Local,
    /// On a kernel core, by a trap.
    Remote,
    /// On a kernel core, without a trap.
    Posted,
}

/// A lock scheme.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum LockName {
    /// A lock for each object: no contention is simulated.
    #[default]
    Fine,
    /// A lock for each class of calls.
    Coarse,
    /// One lock; all that wait look at one line.
    GiantTicket,
    /// One lock; each that waits looks at its predecessor's line.
    GiantClh,
    /// One lock; each that waits looks at its own line.
    GiantMcs,
}

impl LockName {
    /// The name of a scheme.
    pub fn of(scheme: LockScheme) -> LockName {
        match scheme {
            LockScheme::Fine => LockName::Fine,
            LockScheme::Coarse => LockName::Coarse,
            LockScheme::GiantTicket => LockName::GiantTicket,
            LockScheme::GiantClh => LockName::GiantClh,
            LockScheme::GiantMcs => LockName::GiantMcs,
        }
    }

    /// The scheme of this name.
    pub fn scheme(self) -> LockScheme {
        match self {
            LockName::Fine => LockScheme::Fine,
            LockName::Coarse => LockScheme::Coarse,
            LockName::GiantTicket => LockScheme::GiantTicket,
            LockName::GiantClh => LockScheme::GiantClh,
            LockName::GiantMcs => LockScheme::GiantMcs,
        }
    }
}

impl PathName {
    /// What `policy` calls it.
    pub fn wanted(self) -> Wanted {
        match self {
            PathName::Auto => Wanted::Auto,
            PathName::Local => Wanted::Fixed(CallPath::Local),
            PathName::Remote => Wanted::Fixed(CallPath::Remote),
            PathName::Posted => Wanted::Fixed(CallPath::Posted),
        }
    }
}

/// [`Costs`] in nanoseconds. `docs/simulator.md` says where the defaults come from.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct CostsInNanoseconds {
    /// Into the kernel; by default the trace's mean.
    pub enter: Option<f64>,
    /// Back to the program; by default the trace's mean.
    pub exit: Option<f64>,
    /// One way of a request between cores of a package.
    pub flight: f64,
    /// The same between packages.
    pub far_flight: f64,
    /// Cores of one package; 0: all are in one.
    pub package_cores: usize,
    /// From the doorbell to the first instruction of a parked core.
    pub wake_up: f64,
    /// Taking a free lock.
    pub acquire: f64,
    /// Releasing a lock.
    pub release: f64,
    /// From a release until the next in line has the lock.
    pub hand_over: f64,
    /// More for each one else that waits, for ticket locks.
    pub hand_over_per_waiter: f64,
    /// What a call takes more when the last one of its class ran on another core.
    pub data_transfer: f64,
    /// Share of the time (0 to 1) that the path to memory is one core's alone.
    pub memory_share: f64,
}

impl Default for CostsInNanoseconds {
    fn default() -> CostsInNanoseconds {
        CostsInNanoseconds {
            enter: None,
            exit: None,
            flight: 290.0,
            far_flight: 580.0,
            package_cores: 0,
            wake_up: 20_000.0,
            acquire: 20.0,
            release: 10.0,
            hand_over: 46.0,
            hand_over_per_waiter: 46.0,
            data_transfer: 0.0,
            memory_share: 0.0,
        }
    }
}

impl Configuration {
    /// The configuration in a text: JSON where it begins with a brace, else TOML.
    ///
    /// # Errors
    ///
    /// [`Error::Syntax`] with line and key, [`Error::Value`].
    pub fn parse(text: &str) -> Result<Configuration, Error> {
        let is_json = text.trim_start().starts_with('{');
        let is_published = text.contains("simulatedCores");
        let configuration = if is_published {
            Configuration::Published(read(text, is_json)?)
        } else {
            Configuration::Ferry(read(text, is_json)?)
        };
        match &configuration {
            Configuration::Published(published) => published.check()?,
            Configuration::Ferry(ferry) => {
                ferry.check_costs()?;
                ferry.layout()?;
            }
        }
        Ok(configuration)
    }
}

fn read<T: serde::de::DeserializeOwned>(text: &str, is_json: bool) -> Result<T, Error> {
    if is_json {
        serde_json::from_str(text).map_err(|error| Error::Syntax(error.to_string()))
    } else {
        toml::from_str(text).map_err(|error| Error::Syntax(error.to_string()))
    }
}

impl Ferry {
    /// Which cores are for what, as the kernel decides it.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] for cores that are impossible.
    pub fn layout(&self) -> Result<Layout, Error> {
        if !(1..=64).contains(&self.cores) {
            let what = "1 to 64 are possible".to_owned();
            return Err(Error::Value { key: "cores", value: self.cores.to_string(), what });
        }
        let set = |key: &'static str, cores: &Option<Vec<usize>>| match cores {
            None => Ok(None),
            Some(cores) => match cores.iter().find(|&&core| core >= self.cores) {
                Some(core) => Err(Error::Value {
                    key,
                    value: core.to_string(),
                    what: format!("the machine has cores 0 to {}", self.cores - 1),
                }),
                None => Ok(Some(CoreSet(cores.iter().fold(0, |set, core| set | 1 << core)))),
            },
        };
        let application = set("application_cores", &self.application_cores)?;
        let kernel = set("kernel_cores", &self.kernel_cores)?;
        let interrupt = set("interrupt_cores", &self.interrupt_cores)?;
        let wishes = Wishes { application, kernel, interrupt };
        Layout::choose(self.cores, wishes, self.path == PathName::Auto).map_err(|error| {
            let (key, what) = match error {
                LayoutError::NoSuchCore => ("cores", "a set names a core that is not there"),
                LayoutError::NoApplicationCore => ("application_cores", "name at least one"),
                LayoutError::NoKernelCore => ("kernel_cores", "name at least one"),
                LayoutError::NoInterruptCore => ("interrupt_cores", "name at least one"),
            };
            Error::Value { key, value: "empty".to_owned(), what: what.to_owned() }
        })
    }

    fn check_costs(&self) -> Result<(), Error> {
        let costs = &self.costs;
        let times = [
            ("costs.enter", costs.enter.unwrap_or(0.0)),
            ("costs.exit", costs.exit.unwrap_or(0.0)),
            ("costs.flight", costs.flight),
            ("costs.far_flight", costs.far_flight),
            ("costs.wake_up", costs.wake_up),
            ("costs.acquire", costs.acquire),
            ("costs.release", costs.release),
            ("costs.hand_over", costs.hand_over),
            ("costs.hand_over_per_waiter", costs.hand_over_per_waiter),
            ("costs.data_transfer", costs.data_transfer),
        ];
        for (key, value) in times {
            if !(0.0..=1e12).contains(&value) {
                let what = "0 to 1e12 nanoseconds are possible".to_owned();
                return Err(Error::Value { key, value: value.to_string(), what });
            }
        }
        if !(0.0..=1.0).contains(&costs.memory_share) {
            let value = costs.memory_share.to_string();
            let what = "it is a share, from 0 to 1".to_owned();
            return Err(Error::Value { key: "costs.memory_share", value, what });
        }
        Ok(())
    }

    /// The machine for a trace.
    ///
    /// # Errors
    ///
    /// As [`Ferry::layout`].
    pub fn machine(&self, profile: &Profile) -> Result<Machine, Error> {
        let ticks_per_second = profile.header.ticks_per_second;
        let ticks = |ns: f64| (ns * ticks_per_second as f64 / 1e9).round() as u64;
        let of = &self.costs;
        let all_look_at_one_line = matches!(self.locks, LockName::GiantTicket | LockName::Coarse);
        let costs = Costs {
            enter: of.enter.map_or(profile.enter, ticks),
            exit: of.exit.map_or(profile.exit, ticks),
            flight: ticks(of.flight),
            far_flight: ticks(of.far_flight),
            package: of.package_cores,
            wake_up: ticks(of.wake_up),
            acquire: ticks(of.acquire),
            release: ticks(of.release),
            release_spread: 0,
            hand_over: ticks(of.hand_over),
            hand_over_per_waiter: if all_look_at_one_line {
                ticks(of.hand_over_per_waiter)
            } else {
                0
            },
            data_transfer: ticks(of.data_transfer),
            memory_share: of.memory_share,
        };
        Ok(Machine {
            ticks_per_second,
            layout: self.layout()?,
            wanted: self.path.wanted(),
            locking: Locking::Scheme(self.locks.scheme()),
            costs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        Configuration::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn json_and_toml_say_the_same() {
        let toml = "trace = \"a.trace\"\ncores = 4\nkernel_cores = [3]\npath = \"posted\"\n\
            locks = \"giant-clh\"\n[costs]\nflight = 46\n";
        let json = r#"{"trace": "a.trace", "cores": 4, "kernel_cores": [3], "path": "posted",
            "locks": "giant-clh", "costs": {"flight": 46}}"#;
        let first = Configuration::parse(toml).unwrap();
        assert_eq!(first, Configuration::parse(json).unwrap());
        let Configuration::Ferry(ferry) = first else { panic!("not Ferry's") };
        assert_eq!(ferry.layout().unwrap().application, CoreSet(0b111));
    }

    #[test]
    fn the_published_sample_is_read_with_its_misprint() {
        for key in ["defaultLatency", "defaultLantency"] {
            let text = format!(
                r#"{{"simulatedCores": 3, "logFile": "lmbench.3.sim.in", "{key}": 179,
                "modeSwitchCost": 39, "isDefault": true, "isCoarseGrained": true, "actualCores": 3}}"#
            );
            let Configuration::Published(published) = Configuration::parse(&text).unwrap() else {
                panic!("not the published one")
            };
            assert_eq!((published.default_latency, published.simulated_cores), (179, 3));
        }
    }

    #[test]
    fn unknown_keys_wrong_types_and_impossible_values_are_named() {
        assert!(message("trace = \"a\"\ncores = 2\ncoers = 3").contains("coers"));
        assert!(message("{\"trace\": \"a\", \"cores\": \"two\"}").contains("line 1"));
        assert!(message("trace = \"a\"").contains("cores"));
        assert!(message("trace = \"a\"\ncores = 0").contains("1 to 64"));
        assert!(message("trace = \"a\"\ncores = 65").contains("1 to 64"));
        assert!(message("trace = \"a\"\ncores = 2\nkernel_cores = [2]").contains("0 to 1"));
        assert!(message("trace = \"a\"\ncores = 2\nkernel_cores = []").contains("kernel_cores"));
        assert!(message("trace = \"a\"\ncores = 2\nlocks = \"big\"").contains("giant-ticket"));
        let share = "trace = \"a\"\ncores = 2\n[costs]\nmemory_share = 1.5";
        assert!(message(share).contains("memory_share"));
        let flight = "trace = \"a\"\ncores = 2\n[costs]\nflight = -1";
        assert!(message(flight).contains("costs.flight"));
    }

    /// What is accepted has to make a machine, and everything else a message.
    #[test]
    fn damage_of_any_kind_ends_in_a_message_and_never_in_a_panic() {
        const MARKS: &[u8] = b"0123456789-.e[]{}\"=,\n";
        let originals = [
            "trace = \"a.trace\"\ncores = 4\napplication_cores = [0, 1]\nkernel_cores = [3]\npath = \"posted\"\n\
                locks = \"giant-clh\"\n[costs]\nflight = 46\nhand_over_per_waiter = 9e9\nmemory_share = 0.5\n",
            r#"{"trace": "a.trace", "cores": 64, "kernel_cores": [63], "costs": {"flight": 46}}"#,
            r#"{"simulatedCores": 3, "logFile": "a.in", "defaultLatency": 179, "modeSwitchCost": 39,
                "isDefault": true, "isCoarseGrained": true, "actualCores": 3}"#,
        ];
        let mut random = crate::random::Random::new(1);
        let (mut accepted, mut refused) = (0, 0);
        for round in 0..6_000 {
            let mut bytes = originals[round % originals.len()].as_bytes().to_vec();
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                match random.below(4) {
                    0 if at > 0 => bytes.truncate(at),
                    1 => bytes[at] = MARKS[random.below(MARKS.len() as u64) as usize],
                    2 => drop(bytes.splice(at..at, *b"99999999999999999999")),
                    _ => drop(bytes.remove(at)),
                }
                if bytes.is_empty() {
                    break;
                }
            }
            let text = String::from_utf8_lossy(&bytes);
            match Configuration::parse(&text) {
                Ok(Configuration::Ferry(ferry)) => {
                    accepted += 1;
                    assert!(ferry.layout().is_ok(), "{text}");
                }
                Ok(_) => accepted += 1,
                Err(error) => {
                    refused += 1;
                    assert!(!error.to_string().is_empty(), "{text}");
                }
            }
        }
        assert!(accepted > 100 && refused > 1_000, "{accepted} accepted, {refused} refused");
    }
}
