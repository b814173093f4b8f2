//! `ferry sim`: a trace on other cores, layouts, paths and locks.

mod accuracy;
mod array;
mod page;
mod replayed;
mod speed;
pub mod suite;
mod sweep;
mod text;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Subcommand;
use sim::configuration::Ferry;
use sim::published::{ModeSwitches, Published};
use sim::{Configuration, Machine, Outcome, Profile, Replay, Rows, Source, Work};

use crate::status::Usage;
use crate::traces;

/// Simulate a trace on other cores, layouts, paths and locks.
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "A configuration (TOML or JSON):\n  trace = \"program.trace\"\n  cores = 4\n  \
        kernel_cores = [3]\n  path = \"posted\"\n  locks = \"fine\"\n\n\
        docs/simulator.md has all keys, and what the model assumes."
)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Args)]
struct One {
    /// The configuration.
    configuration: PathBuf,
    /// Draw what the cores did into an HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl One {
    /// Prints the text and writes the page; the exit status.
    fn tell(&self, prepared: &Prepared, outcome: &Outcome, text: &str) -> Result<u8> {
        traces::print(text)?;
        if let Some(file) = &self.html {
            let title = format!("Simulation {}", self.configuration.display());
            write_page(file, &page::outcome(&title, outcome, text))?;
        }
        Ok(prepared.status())
    }
}

fn write_page(file: &Path, page: &str) -> Result<()> {
    std::fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))
}

#[derive(Subcommand)]
enum Action {
    /// Simulate one configuration.
    Run(One),
    /// Simulate a configuration with other cores, paths, locks and latencies.
    Sweep(sweep::Arguments),
    /// What bounds the throughput, and what would help.
    Explain(One),
    /// What sharing caches and memory costs, from traces of one program on one core and on two.
    Calibrate {
        /// Trace of one core.
        one: PathBuf,
        /// Trace of two cores, each with the same program.
        two: PathBuf,
    },
    /// How well published figures of three and four cores are predicted from those of one and two; or,
    /// with traces, how well each is replayed on its own cores.
    Accuracy(replayed::Arguments),
    /// Events per second, beside a bare binary heap.
    Speed {
        /// Simulated cores.
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
        cores: u8,
        /// Millions of events.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100_000))]
        millions: u64,
    },
}

/// Carries out `ferry sim`.
pub fn run(arguments: &Arguments) -> Result<u8> {
    match &arguments.action {
        Action::Run(one) => {
            let prepared = Prepared::new(read(&one.configuration)?)?;
            let outcome = prepared.run()?;
            one.tell(&prepared, &outcome, &text::outcome(&outcome))
        }
        Action::Sweep(arguments) => sweep::run(arguments),
        Action::Explain(one) => {
            let prepared = Prepared::new(read(&one.configuration)?)?;
            let explanation = sim::explain::explain(&prepared.machine, || prepared.source())?;
            one.tell(&prepared, &explanation.outcome, &text::explanation(&explanation))
        }
        Action::Calibrate { one, two } => calibrate(one, two),
        Action::Accuracy(arguments) if arguments.is_empty() => accuracy::run(),
        Action::Accuracy(arguments) => replayed::run(arguments),
        Action::Speed { cores, millions } => speed::run(usize::from(*cores), *millions),
    }
}

/// Prints the costs as a part of a configuration.
fn calibrate(one: &Path, two: &Path) -> Result<u8> {
    let found = sim::calibrate::calibrate(traces::open_merged(one)?, traces::open_merged(two)?)
        .map_err(|error| Usage(error.to_string()))?;
    traces::print(&format!(
        "[costs]\n# the last call of the class was on the other core {:.1} % of the times\n\
         data_transfer = {:.1}\nmemory_share = {:.4}\n",
        found.switched * 100.0,
        found.data_transfer_ns,
        found.memory_share
    ))?;
    Ok(0)
}

/// Reads a configuration; what is wrong with it is a matter of the command line.
fn read(path: &Path) -> Result<Configuration> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Usage(format!("cannot read {}: {error}", path.display())))?;
    let parsed = Configuration::parse(&text);
    parsed.map_err(|error| Usage(format!("{}: {error}", path.display())).into())
}

/// A configuration with its trace.
struct Prepared {
    machine: Machine,
    input: Input,
}

enum Input {
    Ferry(PathBuf, Profile),
    Published(Published),
}

impl Prepared {
    fn new(configuration: Configuration) -> Result<Prepared> {
        match configuration {
            Configuration::Ferry(ferry) => Prepared::of_ferry(&ferry),
            Configuration::Published(published) => {
                let machine = published.machine();
                open(&published.log_file)?;
                Ok(Prepared { machine, input: Input::Published(published) })
            }
        }
    }

    fn of_ferry(ferry: &Ferry) -> Result<Prepared> {
        let profile = Profile::read(open(&ferry.trace)?)
            .map_err(|error| Usage(format!("{}: {error}", ferry.trace.display())))?;
        for problem in &profile.problems {
            eprintln!("ferry sim: {}: {problem}", ferry.trace.display());
        }
        let machine = ferry.machine(&profile).map_err(|error| Usage(error.to_string()))?;
        Ok(Prepared { machine, input: Input::Ferry(ferry.trace.clone(), profile) })
    }

    /// The work, from its beginning.
    fn source(&self) -> Result<Traced, sim::Error> {
        let streams = self.machine.stream_cores().len();
        match &self.input {
            Input::Ferry(path, profile) => {
                let view = || File::open(path).map(BufReader::new);
                Ok(Traced::Ferry(Replay::new(profile, streams, view)?))
            }
            Input::Published(published) => {
                let view = || File::open(&published.log_file).map(BufReader::new);
                let source = Rows::new(streams, published.actual_cores, view)?;
                let cost = published.mode_switch_cost;
                Ok(Traced::Published(ModeSwitches { source, cost }))
            }
        }
    }

    fn run(&self) -> Result<Outcome> {
        Ok(sim::engine::run(&self.machine, self.source()?)?)
    }

    /// Not 0 where the trace was damaged.
    fn status(&self) -> u8 {
        match &self.input {
            Input::Ferry(_, profile) => u8::from(!profile.problems.is_empty()),
            Input::Published(_) => 0,
        }
    }
}

/// The work of either kind of trace.
enum Traced {
    Ferry(Replay<BufReader<File>>),
    Published(ModeSwitches<Rows<BufReader<File>>>),
}

impl Source for Traced {
    fn next(&mut self, stream: usize, now: u64, work: &mut Work) -> Result<bool, sim::Error> {
        match self {
            Traced::Ferry(source) => source.next(stream, now, work),
            Traced::Published(source) => source.next(stream, now, work),
        }
    }
}

fn open(path: &Path) -> Result<BufReader<File>> {
    let file = File::open(path);
    file.map(BufReader::new)
        .map_err(|error| Usage(format!("cannot open {}: {error}", path.display())))
        .context("the trace of the configuration")
}
