//! The fuzzer of tests/fuzz: victims that abuse posted calls, or make every call of the route table, a
//! witness that checks its own, no panic, no hang, no leak. A failure names the seed with which `fuzz --seed N` does the same again.

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

/// What is fuzzed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// Misuse of posted calls.
    Posted,
    /// Every call of the route table, by ordinary users.
    Calls,
}

/// How long in each configuration, in seconds.
fn seconds(what: What, configuration: Configuration) -> u64 {
    match (what, configuration.cpus, configuration.path) {
        (What::Posted, 2, "auto" | "remote") => 30,
        (What::Posted, 1, "local") | (What::Posted, 2, "posted") => 10,
        (What::Calls, 2, _) => 15,
        _ => 0,
    }
}

/// Runs the stage.
pub fn run(bench: &Bench, filter: &Filter, report: &mut Report) -> Result<()> {
    super::syscall::build(bench)?;
    for what in [What::Posted, What::Calls] {
        for configuration in CONFIGURATIONS {
            let name = match what {
                What::Posted => configuration.name(),
                What::Calls => format!("calls/{}", configuration.name()),
            };
            let seconds = seconds(what, configuration);
            if seconds == 0 || !filter.wants("fuzz", &name) {
                continue;
            }
            let seconds = bench.fuzz_seconds.unwrap_or(seconds);
            report.progress(&format!("fuzz/{name}: {seconds} seconds"));
            let cases = fuzz(bench, what, configuration, &name, seconds)?;
            report.add(&format!("fuzz/{name}"), &cases);
        }
    }
    Ok(())
}

fn fuzz(
    bench: &Bench,
    what: What,
    configuration: Configuration,
    name: &str,
    seconds: u64,
) -> Result<Vec<Case>> {
    let added = format!("{}:/fuzz", bench.programs().join("musl/fuzz").display());
    let calls = if what == What::Calls { "1" } else { "0" };
    let boot = bench.ferry.boot(
        "fuzz",
        configuration,
        &["--file", &added, "--append", "ferry.log=info"],
        &["/fuzz", "--seconds", &seconds.to_string(), "--calls", calls],
        b"",
        Duration::from_secs(seconds) + MARGIN,
    )?;
    let output = &boot.finished.stdout;
    let well = boot.finished.succeeded() && output.contains("fuzz ok");
    let failure = (!well).then(|| format!("{output}\n{}", boot.describe_machine()));
    let name = |case: &str| format!("fuzz/{name}/{case}");
    Ok(vec![
        Case::new(name("ends-well"), failure),
        Case::new(name("leaves-nothing"), stress::leak(&boot.log, FRAME_SLACK)),
        Case::of_problems(name("no-handler-panics"), boot.contained_panics()),
    ])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Numbers and names of calls, one a line.
    fn calls(
        text: &str,
        line: impl Fn(&str) -> Option<(String, String)>,
    ) -> BTreeSet<(String, String)> {
        text.lines().filter_map(line).collect()
    }

    #[test]
    fn every_call_of_the_route_table_is_fuzzed() {
        let routes = calls(include_str!("../../../policy/src/table.rs"), |line| {
            let mut words = line.strip_prefix("    ")?.split(' ');
            let (number, name) = (words.next()?, words.next()?);
            number.parse::<u16>().ok()?;
            Some((number.to_string(), name.to_string()))
        });
        let fuzzed = calls(include_str!("../../../tests/fuzz/calls.h"), |line| {
            let (number, rest) = line.strip_prefix("    {")?.split_once(", \"")?;
            Some((number.to_string(), rest.split_once('"')?.0.to_string()))
        });
        assert!(routes.len() > 300);
        let missing: Vec<_> = routes.symmetric_difference(&fuzzed).collect();
        assert!(
            missing.is_empty(),
            "tests/fuzz/calls.h and policy/src/table.rs differ: {missing:?}"
        );
    }
}
