//! The differential fuzzer of tests/differential: random sequences of calls on Ferry, then the same ones on this machine's
//! Linux. Each round has a number that says all that came of it, and the two must be equal. What it does without
//! `--fuzz-seconds` is always the same, and takes about a minute.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::boot::{CONFIGURATIONS, Configuration};
use super::report::{Case, Filter, Report};
use crate::process;

/// Rounds without `--fuzz-seconds`, always the same ones.
const ROUNDS: u64 = 500;
/// What they may take in the guest, and what starting and ending take beyond the time that is asked for.
const MARGIN: Duration = Duration::from_secs(600);
/// What the same rounds may take on Linux.
const LINUX_DEADLINE: Duration = Duration::from_secs(600);
/// Rounds that a failure names.
const NAMED: usize = 8;

/// Runs the stage.
pub fn run(bench: &Bench, filter: &Filter, report: &mut Report) -> Result<()> {
    let mut is_built = false;
    for configuration in CONFIGURATIONS {
        let name = configuration.name();
        let is_fuzzed = matches!((configuration.cpus, configuration.path), (2, "auto" | "posted"));
        if is_fuzzed && filter.wants("differential", &name) {
            if !is_built {
                super::syscall::build(bench)?;
                is_built = true;
            }
            report.progress(&format!("differential/{name}"));
            let case = compare(bench, configuration, &name)?;
            report.add(&format!("differential/{name}"), &[case]);
        }
    }
    Ok(())
}

fn compare(bench: &Bench, configuration: Configuration, name: &str) -> Result<Case> {
    let program = bench.programs().join("musl/differential");
    let seed = bench.fuzz_seed.unwrap_or(1).to_string();
    let (limit, amount) = match bench.fuzz_seconds {
        Some(seconds) => ("--seconds", seconds),
        None => ("--rounds", ROUNDS),
    };
    let boot = bench.ferry.boot(
        "differential",
        configuration,
        &["--file", &format!("{}:/differential", program.display())],
        &["/differential", "--seed", &seed, limit, &amount.to_string()],
        b"",
        Duration::from_secs(bench.fuzz_seconds.unwrap_or(0)) + MARGIN,
    )?;
    let name = format!("differential/{name}/rounds-are-as-on-linux");
    let output = &boot.finished.stdout;
    if !output.contains("differential done") {
        return Ok(Case::failed(name, format!("{output}\n{}", boot.describe_machine())));
    }
    let on_ferry = rounds(output);
    let mut command = Command::new("unshare");
    command.args(["-m", "--"]).arg(&program).args(["--seed", &seed]);
    command.args(["--rounds", &on_ferry.len().to_string()]);
    let finished = process::run(&mut command, b"", LINUX_DEADLINE)?;
    let on_linux = rounds(&finished.stdout);
    let others: Vec<_> = on_ferry
        .iter()
        .filter(|(round, number)| on_linux.get(*round) != Some(*number))
        .map(|(round, _)| round.to_string())
        .collect();
    if others.is_empty() && !on_ferry.is_empty() {
        return Ok(Case::passed(name));
    }
    let named = others.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    Ok(Case::failed(
        name,
        format!(
            "{} of {} rounds differ: {named}; `differential --seed {seed} --first ROUND --rounds 1 --tell 1` on both \
             systems shows where",
            others.len(),
            on_ferry.len()
        ),
    ))
}

/// What a run printed of its rounds, by their numbers.
fn rounds(output: &str) -> BTreeMap<u64, String> {
    let round = |line: &str| {
        let (round, rest) = line.trim_end().strip_prefix("round ")?.split_once(' ')?;
        Some((round.parse().ok()?, rest.to_string()))
    };
    output.lines().filter_map(round).collect()
}

#[cfg(test)]
mod tests {
    use super::rounds;

    #[test]
    fn rounds_are_known_by_their_numbers() {
        let known = rounds("round 0 ab 3\r\nelse\nround 12 cd 4\ndifferential done 2\n");
        assert_eq!(
            known.into_iter().collect::<Vec<_>>(),
            [(0, "ab 3".into()), (12, "cd 4".into())]
        );
    }
}
