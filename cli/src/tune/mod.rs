//! `ferry tune`: traces a program, simulates it with every layout, path and lock scheme that the machine
//! allows, runs it with the best ones, and says what came true.
//!
//! A prediction is a ratio of two simulations, of the candidate and of what was traced, so that what the
//! model gets wrong in both cancels out. What is compared is calls per second, because with other cores for
//! programs there is another number of streams.

mod candidates;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use abi::trace::Record;
use anyhow::{Context, Result, bail};
use sim::{Profile, Replay};

use crate::bench::table::Table;
use crate::run::{self, Saved};
use crate::status::Usage;
use crate::traces;
use candidates::Candidate;

/// Rows of the table of predictions.
const SHOWN: usize = 8;
/// The best so many predictions are tried.
const TRIED: usize = 2;
/// Less than this is no gain worth a change: what two runs of the same differ by.
const MARGIN: f64 = 0.02;

/// Find the cores, path and locks that suit a program best.
#[derive(clap::Args)]
#[command(
    override_usage = "ferry tune [OPTIONS] -- PROGRAM [ARGS]...",
    after_help = "The program runs up to three times: traced, and with the best predictions. All options of\n\
        `ferry run` may be given; they say what the predictions are compared with.\n\n\
        Example:\n  ferry tune --save best.json -- busybox sh -c 'ls -lR /'\n  ferry run --layout best.json -- busybox sh -c 'ls -lR /'"
)]
pub struct Arguments {
    /// Predict for a machine with so many cores (1 to 64), and run nothing on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    cores: Option<u8>,
    /// Write the best cores, path and locks to FILE, for `ferry run --layout`.
    #[arg(long, value_name = "FILE", conflicts_with = "cores")]
    save: Option<PathBuf>,
    #[command(flatten)]
    machine: run::Options,
}

/// A directory for traces, gone when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder> {
        let path = std::env::temp_dir().join(format!("ferry-tune-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is in nobody's way.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A candidate and its predicted calls per second over those of what was traced.
struct Prediction {
    candidate: Candidate,
    gain: f64,
}

/// Carries out `ferry tune`.
pub fn run(arguments: &Arguments) -> Result<u8> {
    let folder = Folder::new()?;
    let mut base = arguments.machine.clone();
    base.run = base.run.with_saved_layout()?.into_owned();
    base.run.layout = None;
    // A program is simulated by its calls.
    base.run.trace_events = None;
    let traced = base.run.trace.clone().unwrap_or_else(|| folder.0.join("first.trace"));
    eprintln!("ferry tune: tracing with {}", Candidate::of(&base.run)?.describe());
    let status = run_traced(&mut base, &traced)?;
    if status != 0 {
        eprintln!("ferry tune: the program ended with status {status}: nothing is tuned");
        return Ok(status);
    }
    let before = calls_per_second(&traced)?;
    let cores = arguments.cores.map_or(base.run.cpus, usize::from);
    let predictions = predict(&traced, &Candidate::of(&base.run)?, cores)?;
    traces::print(&table(&predictions, before).to_text())?;
    let Some(best) = predictions.first() else { bail!("no layout can be simulated") };
    if arguments.cores.is_some() {
        let what = best.candidate.describe();
        traces::print(&format!("best with {cores} cores: {what}, {:.2} times\n", best.gain))?;
        return Ok(0);
    }
    let winner = try_best(&base, &predictions, before, &folder.0)?;
    if let Some(file) = &arguments.save {
        let text =
            serde_json::to_string_pretty(&Saved::of(&winner.as_ref().unwrap_or(&base).run))? + "\n";
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(0)
}

/// Runs the program with the best predictions that promise something; the options of the one that was
/// fastest, if it was faster than what was traced.
fn try_best(
    base: &run::Options,
    predictions: &[Prediction],
    before: f64,
    directory: &Path,
) -> Result<Option<run::Options>> {
    let file = directory.join("tried.trace");
    let options_of = |candidate: &Candidate| {
        let mut options = base.clone();
        candidate.apply(&mut options.run);
        options
    };
    let measure = |candidate: &Candidate| {
        eprintln!("ferry tune: running with {}", candidate.describe());
        match run_traced(&mut options_of(candidate), &file)? {
            0 => Ok(Ok(calls_per_second(&file)? / before)),
            status => Ok(Err(status)),
        }
    };
    let (winner, text) = fastest(predictions, measure)?;
    traces::print(&text)?;
    Ok(winner.map(|candidate| {
        let mut options = options_of(candidate);
        options.run.trace = None;
        options
    }))
}

/// How many times as fast a candidate was as what was traced, or the status with which its run failed.
type Tried = std::result::Result<f64, u8>;

/// Measures the best predictions that promise something; the fastest candidate, if it was faster than what was
/// traced, and what came true.
fn fastest(
    predictions: &[Prediction],
    mut measure: impl FnMut(&Candidate) -> Result<Tried>,
) -> Result<(Option<&Candidate>, String)> {
    let promising = predictions.iter().filter(|prediction| prediction.gain > 1.0 + MARGIN);
    let mut winner: Option<(f64, &Candidate)> = None;
    let mut text = String::new();
    for Prediction { candidate, gain } in promising.take(TRIED) {
        let what = candidate.describe();
        match measure(candidate)? {
            Err(status) => {
                text += &format!("{what}: the program ended with status {status}; left out\n");
            }
            Ok(real) => {
                let off = (gain / real - 1.0) * 100.0;
                text += &format!(
                    "{what}: {gain:.2} times was predicted, {real:.2} times came true ({off:+.0} %)\n"
                );
                if real > winner.map_or(1.0 + MARGIN, |(most, _)| most) {
                    winner = Some((real, candidate));
                }
            }
        }
    }
    text += &match winner {
        Some((real, candidate)) => {
            format!("best: {}, {real:.2} times what was traced first\n", candidate.describe())
        }
        None => "best: as it was traced first; nothing was faster\n".to_owned(),
    };
    Ok((winner.map(|(_, candidate)| candidate), text))
}

fn run_traced(options: &mut run::Options, file: &Path) -> Result<u8> {
    options.run.trace = Some(file.to_path_buf());
    run::run(options)
}

/// Simulates every candidate; the best first, of equals the first.
fn predict(trace: &Path, traced: &Candidate, cores: usize) -> Result<Vec<Prediction>> {
    let profile = Profile::read(open(trace)?).map_err(|error| Usage(error.to_string()))?;
    let simulate = |candidate: &Candidate| -> Result<f64> {
        let machine = candidate.configuration(trace).machine(&profile)?;
        let streams = machine.stream_cores().len();
        let view = || File::open(trace).map(BufReader::new);
        let outcome = sim::engine::run(&machine, Replay::new(&profile, streams, view)?)?;
        Ok(outcome.throughput())
    };
    let before = simulate(traced)?;
    let mut predictions = Vec::new();
    for candidate in candidates::all(cores) {
        let gain = simulate(&candidate)? / before;
        predictions.push(Prediction { candidate, gain });
    }
    predictions.sort_by(|one, other| other.gain.total_cmp(&one.gain));
    Ok(predictions)
}

fn table(predictions: &[Prediction], before: f64) -> Table {
    let heads = ["cores, path and locks", "predicted calls/s", "times what was traced"];
    let row = |prediction: &Prediction| {
        vec![
            prediction.candidate.describe(),
            format!("{:.0}", prediction.gain * before),
            format!("{:.3}", prediction.gain),
        ]
    };
    Table {
        heads: heads.map(str::to_owned).to_vec(),
        rows: predictions.iter().take(SHOWN).map(row).collect(),
    }
}

/// Calls per second between the first call of a trace and its last.
fn calls_per_second(file: &Path) -> Result<f64> {
    let mut trace = traces::open_merged(file)?;
    let hertz = trace.header().ticks_per_second as f64;
    let (mut calls, mut first, mut last) = (0_u64, u64::MAX, 0);
    while let Some(entry) = trace.next_entry()? {
        if let Record::Call(call) = entry.record {
            calls += 1;
            first = first.min(call.start);
            last = last.max(call.end());
        }
    }
    if last <= first {
        bail!("{} has no calls: there is nothing to tune", file.display());
    }
    Ok(calls as f64 * hertz / (last - first) as f64)
}

fn open(path: &Path) -> Result<BufReader<File>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(BufReader::new(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predicted(gains: &[f64]) -> Vec<Prediction> {
        let candidates = candidates::all(2).into_iter();
        candidates.zip(gains).map(|(candidate, &gain)| Prediction { candidate, gain }).collect()
    }

    #[test]
    fn what_is_faster_when_it_runs_wins_and_what_came_true_is_said() {
        let predictions = predicted(&[1.5, 1.4, 1.3]);
        let mut speeds = [1.1, 1.25].into_iter();
        let (winner, text) = fastest(&predictions, |_| Ok(Ok(speeds.next().unwrap()))).unwrap();
        assert_eq!(winner, Some(&predictions[1].candidate));
        assert!(text.contains("1.50 times was predicted, 1.10 times came true (+36 %)"), "{text}");
        assert!(text.ends_with("1.25 times what was traced first\n"), "{text}");
        assert!(speeds.next().is_none(), "only the two best are tried");
    }

    #[test]
    fn what_is_not_faster_or_fails_does_not_win() {
        let two = predicted(&[1.5, 1.4]);
        let (winner, text) = fastest(&two, |_| Ok(Ok(1.01))).unwrap();
        assert!(winner.is_none() && text.contains("nothing was faster"), "{text}");
        let one = predicted(&[1.5]);
        let (winner, text) = fastest(&one, |_| Ok(Err(139))).unwrap();
        assert!(winner.is_none() && text.contains("status 139; left out"), "{text}");
        let nothing = predicted(&[1.01]);
        let (winner, _) = fastest(&nothing, |_| panic!("promises nothing")).unwrap();
        assert!(winner.is_none());
    }
}
