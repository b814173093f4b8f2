//! `ferry sim accuracy TRACE...`: traces of Ferry replayed on their own cores, and on two cores from one.
//!
//! What a trace was recorded on is in it: the roles of its cores, its lock scheme, and the paths that its
//! calls took. What is compared is calls per second up to the end of the last call.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use abi::trace::{EventKind, LockScheme, Record};
use anyhow::Result;
use sim::configuration::{CostsInNanoseconds, Ferry, LockName, PathName};
use sim::{Profile, Replay};

use super::open;
use crate::bench::table::Table;
use crate::status::Usage;
use crate::traces;

/// What replays on as many cores may be off.
const SAME_MOST_PCT: f64 = 2.0;
/// What predictions of two cores from one may be off.
const MORE_MOST_PCT: f64 = 10.0;

/// Which traces.
#[derive(clap::Args)]
pub struct Arguments {
    /// Traces that `ferry run --trace` recorded, to be replayed on as many cores.
    traces: Vec<PathBuf>,
    /// Predict the second trace, of two cores, from the first, of one.
    #[arg(long, value_names = ["ONE", "TWO"], num_args = 2)]
    pair: Vec<PathBuf>,
}

impl Arguments {
    /// Whether no trace is named.
    pub fn is_empty(&self) -> bool {
        self.traces.is_empty() && self.pair.is_empty()
    }
}

/// What a trace was recorded on, and how fast it was.
#[derive(Clone, Debug, Default)]
struct Recorded {
    cores: usize,
    programs: Vec<usize>,
    kernel: Vec<usize>,
    interrupt: Vec<usize>,
    scheme: LockScheme,
    paths: [u64; 3],
    calls: u64,
    ended: u64,
    hertz: u64,
}

impl Recorded {
    fn read(file: &Path) -> Result<Recorded> {
        let mut trace = traces::open_merged(file)?;
        let header = *trace.header();
        let (cores, scheme) = (usize::from(header.cores), header.scheme);
        let mut found =
            Recorded { cores, scheme, hertz: header.ticks_per_second, ..Recorded::default() };
        while let Some(entry) = trace.next_entry()? {
            match entry.record {
                Record::Call(call) => {
                    found.calls += 1;
                    found.ended = found.ended.max(call.end());
                    found.paths[call.path as usize] += 1;
                }
                Record::Event(event) if event.kind == EventKind::RoleChange => {
                    let sets = [&mut found.programs, &mut found.kernel, &mut found.interrupt];
                    for (bit, set) in sets.into_iter().enumerate() {
                        if event.detail >> bit & 1 != 0 {
                            set.push(usize::from(event.core));
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(found)
    }

    fn throughput(&self) -> f64 {
        self.calls as f64 * self.hertz as f64 / self.ended.max(1) as f64
    }

    /// The path that most calls took which travelled. Programs that do not post by themselves trap where
    /// they are not patched, so that remote calls may be the most on the path `posted` too.
    fn path(&self) -> PathName {
        let [_, remote, posted] = self.paths;
        let is_shared = self.kernel.iter().all(|core| self.programs.contains(core));
        match remote + posted {
            0 => PathName::Local,
            _ if is_shared => PathName::Auto,
            _ if posted > remote => PathName::Posted,
            _ => PathName::Remote,
        }
    }

    fn configuration(&self, file: &Path) -> Ferry {
        let cores = |set: &Vec<usize>| (!set.is_empty()).then(|| set.clone());
        Ferry {
            trace: file.to_path_buf(),
            cores: self.cores,
            application_cores: cores(&self.programs),
            kernel_cores: cores(&self.kernel),
            interrupt_cores: cores(&self.interrupt),
            path: self.path(),
            locks: LockName::of(self.scheme),
            costs: CostsInNanoseconds::default(),
        }
    }
}

/// Calls per second of a trace replayed on a machine.
fn replay(file: &Path, machine: &Ferry) -> Result<f64> {
    let profile = Profile::read(open(file)?).map_err(|error| Usage(error.to_string()))?;
    let machine = machine.machine(&profile).map_err(|error| Usage(error.to_string()))?;
    // Cores whose programs made no call have nothing to replay.
    let streams = machine.stream_cores().len();
    let view = || File::open(file).map(BufReader::new);
    let outcome = sim::engine::run(&machine, Replay::new(&profile, streams, view)?)?;
    Ok(outcome.throughput())
}

/// A trace beside its simulation, in calls per second.
pub struct Comparison {
    /// Of what.
    pub name: String,
    /// Measured: what the trace says.
    pub measured: f64,
    /// Simulated.
    pub simulated: f64,
    /// By how many percent the simulation may be off.
    pub most_pct: f64,
}

impl Comparison {
    /// By how many percent the simulation is off.
    pub fn off_pct(&self) -> f64 {
        (self.simulated / self.measured - 1.0) * 100.0
    }

    /// Whether that is within bounds.
    pub fn is_within(&self) -> bool {
        self.off_pct().abs() <= self.most_pct
    }
}

/// A trace replayed on its own cores.
pub fn same(name: String, file: &Path) -> Result<Comparison> {
    let recorded = Recorded::read(file)?;
    let simulated = replay(file, &recorded.configuration(file))?;
    let measured = recorded.throughput();
    Ok(Comparison { name, measured, simulated, most_pct: SAME_MOST_PCT })
}

/// The second trace, predicted from the first.
pub fn pair(name: String, one: &Path, two: &Path) -> Result<Comparison> {
    let of_two = Recorded::read(two)?;
    let simulated = replay(one, &of_two.configuration(one))?;
    let measured = of_two.throughput();
    Ok(Comparison { name, measured, simulated, most_pct: MORE_MOST_PCT })
}

/// Comparisons as a table.
pub fn table(comparisons: &[Comparison]) -> Table {
    let row = |comparison: &Comparison| {
        vec![
            comparison.name.clone(),
            format!("{:.0}", comparison.measured),
            format!("{:.0}", comparison.simulated),
            format!("{:+.1}", comparison.off_pct()),
            format!("{:.0}", comparison.most_pct),
        ]
    };
    let heads = ["trace", "calls/s", "simulated", "off %", "may be off %"];
    Table { heads: heads.map(str::to_owned).to_vec(), rows: comparisons.iter().map(row).collect() }
}

/// Carries out `ferry sim accuracy` with traces; status 1 when a replay is further off than it may be.
pub fn run(arguments: &Arguments) -> Result<u8> {
    let mut comparisons = Vec::new();
    for file in &arguments.traces {
        comparisons.push(same(file.display().to_string(), file)?);
    }
    if let [one, two] = arguments.pair.as_slice() {
        comparisons.push(pair(format!("{} from {}", two.display(), one.display()), one, two)?);
    }
    traces::print(&table(&comparisons).to_text())?;
    Ok(u8::from(!comparisons.iter().all(Comparison::is_within)))
}
