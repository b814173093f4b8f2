//! `ferry bench sim`: how well and how fast the simulator simulates.
//!
//! Every load runs on Ferry on one core and, twice at the same time, on two, and is traced. Each trace is
//! replayed on its own cores, that of two cores is predicted from that of one, and the published figures of
//! three and four cores from those of one and two.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::replayed::{self, Comparison};
use super::{accuracy, speed};
use crate::traces;

/// Name of the suite.
pub const NAME: &str = "sim";
/// What it measures.
pub const ABOUT: &str =
    "the simulator: replays beside what was traced, predictions, and events per second";

/// Loads for a shell, with what they are.
const LOADS: [(&str, &str); 4] = [
    ("short calls", "i=0; while [ $i -lt 1500 ]; do echo >/dev/null; i=$((i+1)); done"),
    ("file", "dd if=/dev/zero of=/tmp/file$$ bs=512 count=3000 2>/dev/null"),
    ("tree", "for i in 1 2 3; do ls -lR /proc/sys /usr >/dev/null; done"),
    ("computing", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo $i >/dev/null"),
];
/// Simulated cores, and millions of events, for the speed.
const SPEED: (usize, u64) = (8, 50);

/// Carries out the suite so many times; status 1 when something is further off than it may be.
pub fn run(repeats: u32) -> Result<u8> {
    let mut comparisons = Vec::new();
    for round in 0..repeats {
        for load in LOADS {
            eprintln!("ferry bench: sim, {}, {} of {repeats}", load.0, round + 1);
            comparisons.extend(compare(load)?);
        }
    }
    comparisons.sort_by(|one, other| one.name.cmp(&other.name));
    let within = comparisons.iter().filter(|comparison| comparison.is_within()).count();
    let mut text = replayed::table(&comparisons).to_text();
    text += &format!("\n{within} of {} are within bounds.\n\n", comparisons.len());
    text += &accuracy::published()?;
    let (cores, millions) = SPEED;
    let rates = speed::measure(cores, millions)?;
    text += &format!("\nMillions of events per second and core, {cores} simulated cores:\n");
    for (name, rate) in speed::ROWS.iter().zip(rates) {
        text += &format!("{name:<22}{:>8.1}\n", rate / 1e6);
    }
    traces::print(&text)?;
    Ok(u8::from(within < comparisons.len()))
}

fn compare((name, script): (&str, &str)) -> Result<Vec<Comparison>> {
    let folder = std::env::temp_dir().join(format!("ferry-bench-sim-{}", std::process::id()));
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let compared = compare_in(&folder, name, script);
    // What cannot be removed is in nobody's way.
    let _ = std::fs::remove_dir_all(&folder);
    compared
}

fn compare_in(folder: &Path, name: &str, script: &str) -> Result<Vec<Comparison>> {
    let [one, two, auto] = ["one", "two", "auto"].map(|name| folder.join(name));
    let twice = format!("({script}) & ({script}) & wait");
    trace(&one, &["--cpus", "1", "--path", "local"], script)?;
    let symmetric =
        ["--cpus", "2", "--path", "local", "--app-cores", "0-1", "--kernel-cores", "0-1"];
    trace(&two, &symmetric, &twice)?;
    trace(&auto, &["--cpus", "2"], &twice)?;
    Ok(vec![
        replayed::same(format!("{name}, one core"), &one)?,
        replayed::same(format!("{name}, two cores"), &two)?,
        replayed::same(format!("{name}, two cores, auto"), &auto)?,
        replayed::pair(format!("{name}, two cores from one"), &one, &two)?,
    ])
}

/// Runs a script of the shell on Ferry and traces it.
fn trace(file: &Path, options: &[&str], script: &str) -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run", "--timeout", "300", "--trace"]).arg(file).args(options);
    command.args(["--", "busybox", "sh", "-c", script]).stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status().context("cannot run ferry")?;
    if !status.success() {
        bail!("the load {script:?} ended with {status}");
    }
    Ok(())
}
