//! The stress of tests/stress on two cores: it has to end well before its deadline, and the kernel
//! has to have as many free frames, tasks and open files afterwards as before.
//!
//! The kernel reports those in its log, at level info: `counts at start: frames=N tasks=N files=N`
//! before the program starts, and `counts at end: …` after all has ended.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::boot::{CONFIGURATIONS, Configuration, SCHEMES};
use super::report::{Case, Report};

/// What the stress is asked to run.
const SECONDS: u64 = 120;
/// What it may take beyond that, to wind down.
const MARGIN: Duration = Duration::from_secs(60);
/// Free frames that may be fewer at the end: what caches of the kernel keep.
const FRAME_SLACK: i64 = 256;

/// Runs the stage.
pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    super::syscall::build(bench)?;
    run_in(bench, CONFIGURATIONS[3], "stress", report)?;
    for configuration in SCHEMES.iter().filter(|_| bench.is_all) {
        run_in(bench, *configuration, &format!("stress/{}", configuration.locks), report)?;
    }
    Ok(())
}

fn run_in(
    bench: &Bench,
    configuration: Configuration,
    name: &str,
    report: &mut Report,
) -> Result<()> {
    report.progress(&format!("{name}: {SECONDS} seconds on two cores"));
    let added = format!("{}:/stress", bench.programs().join("musl/stress").display());
    let seconds = SECONDS.to_string();
    let boot = bench.ferry.boot(
        name,
        configuration,
        &["--file", &added, "--append", "ferry.log=info"],
        &["/stress", &seconds],
        b"",
        Duration::from_secs(SECONDS) + MARGIN,
    )?;
    let output = &boot.finished.stdout;
    let well = boot.finished.succeeded() && output.contains("stress ok");
    let failure = (!well).then(|| format!("{output}\n{}", boot.describe_machine()));
    let ends = Case::new(format!("{name}/ends-well"), failure);
    let leaks = Case::new(format!("{name}/leaves-nothing"), leak(&boot.log, FRAME_SLACK));
    let panics = Case::of_problems(format!("{name}/no-handler-panics"), boot.contained_panics());
    report.add(name, &[ends, leaks, panics]);
    Ok(())
}

/// What is missing at the end, if anything; `frame_slack` is what caches of the kernel may keep.
pub(super) fn leak(log: &str, frame_slack: i64) -> Option<String> {
    let (Some(start), Some(end)) = (counts(log, "counts at start:"), counts(log, "counts at end:"))
    else {
        return Some("the kernel does not report its counts".to_string());
    };
    let mut problems = Vec::new();
    for (name, before) in &start {
        let Some(after) = end.get(name) else {
            problems.push(format!("{name} is not counted at the end"));
            continue;
        };
        // Frames are counted when free, everything else when in use.
        let lost = if name == "frames" { before - after - frame_slack } else { after - before };
        if lost > 0 {
            problems.push(format!("{name}: {before} at the start, {after} at the end"));
        }
    }
    (!problems.is_empty()).then(|| problems.join("\n"))
}

/// The numbers of a line such as `counts at end: frames=1 tasks=2`.
fn counts(log: &str, head: &str) -> Option<BTreeMap<String, i64>> {
    let line = log.lines().find_map(|line| line.split_once(head))?.1;
    let parse = |word: &str| {
        let (name, value) = word.split_once('=')?;
        Some((name.to_string(), value.parse().ok()?))
    };
    let counts: BTreeMap<_, _> = line.split_whitespace().filter_map(parse).collect();
    (!counts.is_empty()).then_some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(frames: i64, tasks: i64) -> String {
        let start = "INFO counts at start: frames=1000 tasks=2 files=3\r\n";
        format!("{start}more\nINFO counts at end: frames={frames} tasks={tasks} files=3\r\n")
    }

    #[test]
    fn equal_counts_are_no_leak() {
        assert_eq!(leak(&log(1000, 2), FRAME_SLACK), None);
        assert_eq!(leak(&log(1000 - FRAME_SLACK, 1), FRAME_SLACK), None);
    }

    #[test]
    fn lost_frames_and_tasks_are_leaks() {
        assert!(leak(&log(999 - FRAME_SLACK, 2), FRAME_SLACK).unwrap().contains("frames"));
        assert!(leak(&log(1000, 3), FRAME_SLACK).unwrap().contains("tasks"));
        assert!(leak("nothing", FRAME_SLACK).unwrap().contains("does not report"));
    }
}
