//! `ferry bench`: Ferry and Debian's Linux kernel side by side in the same QEMU.
//!
//! A repeat makes all runs of a suite in turn, each a boot of Ferry or of Linux with the same static
//! guest program, and a result is the ratio of the medians with a bootstrap interval. A run that fails
//! or exceeds its deadline is reported and left out; its case then has fewer repeats, or none, and the
//! command ends with status 1. `suite.rs` says what a suite is, `suites/` has them.

mod apps;
mod boot;
mod calibration;
mod compare;
mod curves;
mod footprint;
mod guest;
mod host_cpu;
mod html;
mod measure;
mod modelled;
mod outcome;
mod outputs;
mod peer;
mod progress;
mod record;
mod report;
mod statistics;
mod suite;
mod suites;
pub mod table;

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};

use measure::Wanted;
use outputs::Outputs;
use progress::Progress;
use record::Record;
use suite::Suite;

use crate::simulate;
use crate::status::Usage;

/// How often everything is measured with `--quick`.
const QUICK: u32 = 3;

/// Put Ferry and Linux side by side.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  ferry bench posted --quick\n  ferry bench null --repeat 5 --html null.html"
)]
pub struct Arguments {
    /// The suites to run; `ferry bench --list` names them.
    suites: Vec<String>,
    /// List the suites and what they measure.
    #[arg(long)]
    list: bool,
    /// What to compare with: `linux`, or `none`.
    #[arg(long, value_enum, default_value = "linux", hide_possible_values = true)]
    peer: PeerChoice,
    /// How often everything is measured.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Measure everything 3 times only.
    #[arg(long, conflicts_with = "repeat")]
    quick: bool,
    /// Virtual CPUs on both sides, for cases that do not prescribe them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=8))]
    cpus: Option<u32>,
    /// Kill a run that takes longer [default: as the suite says].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86400))]
    deadline: Option<u64>,
    /// Count each side once more with a model of caches and TLBs.
    #[arg(long, conflicts_with = "native")]
    model: bool,
    /// Only the cases that need no virtual machine.
    #[arg(long)]
    native: bool,
    /// Write the results to FILE as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results to FILE as a page with plots.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Keep the results, with machine, versions and command line, in DIR.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Put two results side by side.
    Compare {
        /// Results: a directory that `ferry bench` named.
        first: PathBuf,
        /// Other results of the same suite.
        second: PathBuf,
    },
    /// Make the page of results once more.
    Report {
        /// Results: a directory that `ferry bench` named.
        results: PathBuf,
        /// Where the page goes; else `report.html` in that directory.
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Keep results in the source tree and make docs/results.md of them.
    Record {
        /// Results: a directory that `ferry bench` named.
        results: PathBuf,
    },
}

/// What Ferry is compared with.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PeerChoice {
    /// Debian's cloud kernel in the same QEMU.
    Linux,
    /// Nothing: Ferry alone.
    None,
}

impl Action {
    /// What goes wrong is a matter of the files that were named.
    fn run(&self) -> Result<()> {
        match self {
            Action::Compare { first, second } => compare::run(first, second),
            Action::Report { results, html } => outputs::report(results, html.as_deref()),
            Action::Record { results } => report::run(results),
        }
    }
}

/// Runs the command; the exit status of the tool.
pub fn run(options: &Arguments) -> Result<u8> {
    match &options.action {
        Some(action) => {
            action.run().map(|()| 0).map_err(|error| Usage(format!("{error:#}")).into())
        }
        None if options.list => {
            for suite in suites::SUITES {
                println!("{:<12}{}", suite.name, suite.about);
            }
            println!("{:<12}{}", simulate::suite::NAME, simulate::suite::ABOUT);
            Ok(0)
        }
        // It compares Ferry with its simulation, not with a peer.
        None if options.suites == [simulate::suite::NAME] => {
            simulate::suite::run(if options.quick { 1 } else { options.repeat.min(QUICK) })
        }
        None => measure_all(options),
    }
}

fn measure_all(options: &Arguments) -> Result<u8> {
    if options.suites.is_empty() {
        let text = "name a suite to run; `ferry bench --list` shows them";
        return Err(Usage(text.to_owned()).into());
    }
    let find = |name: &String| {
        suites::find(name).ok_or_else(|| {
            let text = format!("there is no suite {name:?}; `ferry bench --list` shows them");
            Usage(text)
        })
    };
    let chosen = options.suites.iter().map(find).collect::<Result<Vec<_>, Usage>>()?;
    let wanted = Wanted {
        repeats: if options.quick { QUICK } else { options.repeat },
        with_peer: options.peer == PeerChoice::Linux,
        is_native: options.native,
        with_defaults: !options.quick,
        cpus: options.cpus,
        with_model: options.model,
        deadline: options.deadline.map(Duration::from_secs),
    };
    let mut record = Record::begin(wanted.repeats);
    let directory =
        options.out.clone().unwrap_or_else(|| record.default_directory(&options.suites));
    let outputs = Outputs::new(directory, options.json.clone(), options.html.clone())?;
    if let Some(warning) = record.circumstances.warning() {
        eprintln!("ferry bench: {warning}");
    }
    let interrupted = measure::watch_interrupts()?;
    let mut progress = Progress::new(plan(&chosen, wanted));
    let is_alone = chosen.len() == 1;
    for suite in chosen {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        let earlier = record.clone();
        let with = |measured: &measure::Measured| {
            let mut record = earlier.clone();
            record.outcomes.extend(outcome::outcomes(suite, &measured.samples, wanted.is_native));
            record.failures.extend(measured.failures.iter().cloned());
            record.modelled.extend(measured.modelled.iter().cloned());
            record.calibration.extend(calibration::of(suite.name, &measured.samples));
            record
        };
        let measured = measure::measure(suite, wanted, &interrupted, &mut progress, |measured| {
            outputs.write_figures(&with(measured))
        });
        match measured {
            Ok(measured) => record = with(&measured),
            Err(error) if is_alone => return Err(error),
            // What the other suites need may be there.
            Err(error) => record.failures.push(format!("{}: {error:#}", suite.name)),
        }
        progress.skip(suite.name);
        progress.aside(|| print_new(&earlier, &record));
        outputs.write(&record)?;
    }
    progress.clear();
    // What the peer is may only be known now; the load by now is the benchmark's own.
    let load = record.circumstances.load;
    record.circumstances = record::Circumstances { load, ..record::Circumstances::look() };
    outputs.write(&record)?;
    eprintln!("ferry bench: the results are in {}", outputs.directory().display());
    Ok(u8::from(!record.failures.is_empty()))
}

/// Everything that will run: suites and sides.
fn plan(suites: &[&Suite], wanted: Wanted) -> Vec<(String, String)> {
    let of = |suite: &&Suite| {
        let name = suite.name.to_owned();
        measure::plan(suite, wanted).into_iter().map(move |side| (name.clone(), side))
    };
    suites.iter().flat_map(of).collect()
}

/// Prints what a suite added to the record.
fn print_new(earlier: &Record, record: &Record) {
    let text = table::to_text(&record.outcomes[earlier.outcomes.len()..])
        + &modelled::to_text(&record.modelled[earlier.modelled.len()..])
        + &calibration::to_text(&record.calibration[earlier.calibration.len()..]);
    // Whoever closed standard output does not want to read it; the results are kept all the same.
    drop(std::io::stdout().write_all(text.as_bytes()));
    for failure in &record.failures[earlier.failures.len()..] {
        eprintln!("ferry bench: {failure}");
    }
}
