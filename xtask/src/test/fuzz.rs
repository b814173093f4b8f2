//! The fuzzer of tests/fuzz: victims that abuse posted calls, a witness that checks its own, no panic, no
//! hang, no leak. A failure names the seed with which `fuzz --seed N` does the same again.

use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::boot::{CONFIGURATIONS, Configuration};
use super::report::{Case, Filter, Report};
use super::stress;

/// What the fuzzer may take beyond its time: it waits up to 30 seconds for who is stuck.
const MARGIN: Duration = Duration::from_secs(60);
/// Free frames that may be fewer at the end: what caches of the kernel keep, which is the same after ten
/// seconds as after a minute.
const FRAME_SLACK: i64 = 512;

/// How long in each configuration, in seconds.
fn seconds(configuration: Configuration) -> u64 {
    match (configuration.cpus, configuration.path) {
        (2, "auto" | "remote") => 30,
        (1, "local") | (2, "posted") => 10,
        _ => 0,
    }
}

/// Runs the stage.
pub fn run(bench: &Bench, filter: &Filter, report: &mut Report) -> Result<()> {
    super::syscall::build(bench)?;
    for configuration in CONFIGURATIONS {
        let name = configuration.name();
        if seconds(configuration) == 0 || !filter.wants("fuzz", &name) {
            continue;
        }
        report.progress(&format!("fuzz/{name}: {} seconds", seconds(configuration)));
        let cases = fuzz(bench, configuration)?;
        report.add(&format!("fuzz/{name}"), &cases);
    }
    Ok(())
}

fn fuzz(bench: &Bench, configuration: Configuration) -> Result<Vec<Case>> {
    let added = format!("{}:/fuzz", bench.programs().join("musl/fuzz").display());
    let seconds = seconds(configuration);
    let boot = bench.ferry.boot(
        "fuzz",
        configuration,
        &["--file", &added, "--append", "ferry.log=info"],
        &["/fuzz", "--seconds", &seconds.to_string()],
        b"",
        Duration::from_secs(seconds) + MARGIN,
    )?;
    let output = &boot.finished.stdout;
    let well = boot.finished.succeeded() && output.contains("fuzz ok");
    let failure = (!well).then(|| format!("{output}\n{}", boot.describe_machine()));
    let name = |what: &str| format!("fuzz/{}/{what}", configuration.name());
    Ok(vec![
        Case::new(name("ends-well"), failure),
        Case::new(name("leaves-nothing"), stress::leak(&boot.log, FRAME_SLACK)),
        Case::of_problems(name("no-handler-panics"), boot.contained_panics()),
    ])
}
