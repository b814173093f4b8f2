//! `ferry bench`: Ferry and Debian's Linux kernel side by side in the same QEMU.
//!
//! A repeat boots Ferry once per call path and Linux once, in turn, with the same static guest
//! program, and a result is the ratio of the medians with a bootstrap interval. A boot that fails or
//! exceeds its deadline is reported and left out; its case then has fewer repeats, or none, and the
//! command ends with status 1.

mod boot;
mod null;
mod peer;
mod statistics;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;

use statistics::Interval;

/// Put Ferry and Linux side by side.
#[derive(Args)]
#[command(after_help = "Example:\n  ferry bench null --repeat 5 --json null.json")]
pub struct Arguments {
    /// The suites to run; `ferry bench --list` names them.
    suites: Vec<String>,
    /// List the suites and what they measure.
    #[arg(long)]
    list: bool,
    /// What to compare with.
    #[arg(long, value_enum, default_value = "linux")]
    peer: PeerChoice,
    /// How often everything is measured.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Write the results to FILE as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What Ferry is compared with.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PeerChoice {
    /// Debian's cloud kernel in the same QEMU.
    Linux,
    /// Nothing: Ferry alone.
    None,
}

/// One line of a result table, as it is written to JSON.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    suite: &'static str,
    case: &'static str,
    unit: &'static str,
    /// Median on Ferry.
    ferry: Option<f64>,
    /// Median on the peer.
    peer: Option<f64>,
    /// Ferry over peer.
    ratio: Option<f64>,
    /// Lower end of the 95 % bootstrap interval of the ratio.
    ratio_low: Option<f64>,
    /// Upper end of the 95 % bootstrap interval of the ratio.
    ratio_high: Option<f64>,
    /// Pairs of measurements.
    repeats: usize,
    /// The ratio that Ferry wants to stay within.
    target: f64,
    /// Whether it does.
    met: bool,
}

/// What a case measures and where its two figures come from.
struct Case {
    name: &'static str,
    unit: &'static str,
    /// Key of the figure on Ferry, in `Samples`.
    ferry: &'static str,
    /// Key of the figure on the peer.
    peer: &'static str,
    target: f64,
}

/// Figures by key, one per repeat that yielded one.
type Samples = BTreeMap<String, Vec<f64>>;

/// Runs the command; the exit status of the tool.
pub fn run(options: &Arguments) -> Result<u8> {
    if options.list {
        println!(
            "null    the shortest things: null call, read of a byte, fork, exec, page fault, boot"
        );
        return Ok(0);
    }
    if options.suites.is_empty() {
        bail!("name a suite to run; `ferry bench --list` shows them");
    }
    if let Some(unknown) = options.suites.iter().find(|suite| *suite != null::NAME) {
        bail!("there is no suite {unknown:?}; `ferry bench --list` shows them");
    }
    let (samples, failures) = null::measure(options.repeat, options.peer == PeerChoice::Linux)?;
    let outcomes: Vec<Outcome> =
        null::CASES.iter().map(|case| outcome(null::NAME, case, &samples)).collect();
    print_table(&outcomes);
    for failure in &failures {
        eprintln!("ferry bench: {failure}");
    }
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&outcomes)?;
        std::fs::write(path, text + "\n")
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(u8::from(!failures.is_empty()))
}

fn outcome(suite: &'static str, case: &Case, samples: &Samples) -> Outcome {
    let none = Vec::new();
    let ferry = samples.get(case.ferry).unwrap_or(&none);
    let peer = samples.get(case.peer).unwrap_or(&none);
    let ratio = statistics::ratio_interval(ferry, peer);
    let (low, high) = match ratio {
        Some(Interval { low, high, .. }) => (Some(low), Some(high)),
        None => (None, None),
    };
    Outcome {
        suite,
        case: case.name,
        unit: case.unit,
        ferry: statistics::median(ferry),
        peer: statistics::median(peer),
        ratio: ratio.map(|interval| interval.middle),
        ratio_low: low,
        ratio_high: high,
        repeats: ferry.len().min(peer.len()),
        target: case.target,
        met: ratio.is_some_and(|interval| interval.middle <= case.target),
    }
}

fn print_table(outcomes: &[Outcome]) {
    let figure = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    let ratio = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
    println!(
        "{:<20} {:>4} {:>14} {:>14} {:>7} {:>15} {:>7} {:>4}",
        "case", "unit", "Ferry", "Linux", "ratio", "95 %", "target", "met"
    );
    for row in outcomes {
        println!(
            "{:<20} {:>4} {:>14} {:>14} {:>7} {:>15} {:>7.2} {:>4}",
            row.case,
            row.unit,
            figure(row.ferry),
            figure(row.peer),
            ratio(row.ratio),
            format!("{}..{}", ratio(row.ratio_low), ratio(row.ratio_high)),
            row.target,
            if row.ratio.is_none() {
                "-"
            } else if row.met {
                "yes"
            } else {
                "no"
            },
        );
    }
}
