//! The model of caches and TLBs against programs whose counts are known on paper: tests/model, on Ferry
//! in QEMU with the plugin.
//!
//! The program prints what the model has to have counted, `expect WHAT REGION CPU COUNTER LOW HIGH`; the
//! arithmetic is beside the loops. This compares.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Bench;
use super::boot::Configuration;
use super::report::{Case, Filter, Report};
use crate::process;

/// What a boot with the model may take.
const DEADLINE: Duration = Duration::from_secs(50);
/// Compiling the program, on a busy machine.
const BUILD_DEADLINE: Duration = Duration::from_secs(60);

/// One core; and two that both run the program's threads.
const BOOTS: [(Configuration, &[&str], &[&str]); 3] = [
    (Configuration::new(1, "local"), &[], &[]),
    (Configuration::new(2, "remote"), &[], &[]),
    (Configuration::new(2, "local"), &["--app-cores", "0,1", "--kernel-cores", "0,1"], &["pair"]),
];

/// Runs the stage.
pub fn run(bench: &Bench, filter: &Filter, report: &mut Report) -> Result<()> {
    let program = bench.work.join("known");
    let mut compile = std::process::Command::new("cc");
    compile.args(["-O2", "-static", "-pthread", "-I", "bench/guest", "-o"]).arg(&program);
    compile.arg("tests/model/known.c").current_dir(&bench.root);
    let compiled = process::run(&mut compile, b"", BUILD_DEADLINE)?;
    if !compiled.succeeded() {
        bail!("tests/model/known.c does not build:\n{}", compiled.describe());
    }
    for (configuration, options, arguments) in BOOTS {
        let group = match arguments {
            [] => configuration.name(),
            [kind, ..] => format!("{}-{kind}", configuration.name()),
        };
        if !filter.wants("model", &group) {
            continue;
        }
        report.progress(&format!("model: {group}"));
        let counted = bench.work.join(format!("model-{group}.json"));
        let counted_text = counted.to_string_lossy().into_owned();
        let program_text = program.to_string_lossy().into_owned();
        let options: Vec<&str> =
            options.iter().copied().chain(["--model", &counted_text]).collect();
        let words: Vec<&str> = [program_text.as_str()].iter().chain(arguments).copied().collect();
        let name = format!("model-{group}");
        let boot = bench.ferry.boot(&name, configuration, &options, &words, b"", DEADLINE)?;
        if !boot.finished.succeeded() {
            let text = boot.describe_machine();
            report.add("model", &[Case::failed(format!("model/{group}"), text)]);
            continue;
        }
        let text = std::fs::read_to_string(&counted)
            .with_context(|| format!("the model left nothing in {counted_text}"))?;
        let counted: Value = serde_json::from_str(&text)
            .with_context(|| format!("{counted_text} is no report: {}", boot.finished.stderr))?;
        report.add("model", &cases(&group, &boot.finished.stdout, &counted));
    }
    Ok(())
}

/// A case for each program in the output.
fn cases(group: &str, output: &str, counted: &Value) -> Vec<Case> {
    let mut problems: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for line in output.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["expect", what, region, cpu, counter, low, high] = words[..] {
            let problems = problems.entry(what).or_default();
            problems.extend(problem(counted, [region, cpu, counter, low, high]));
        }
    }
    if problems.is_empty() {
        return vec![Case::failed(
            format!("model/{group}"),
            format!("no expectation in:\n{output}"),
        )];
    }
    let case = |(what, problems)| Case::of_problems(format!("model/{group}/{what}"), problems);
    problems.into_iter().map(case).collect()
}

/// What is wrong with one counter, if anything.
fn problem(counted: &Value, words: [&str; 5]) -> Option<String> {
    let [region, cpu, counter, low, high] = words;
    let number = |text: &str| text.parse::<u64>().ok();
    let (Some(low), Some(high)) = (number(low), number(high)) else {
        return Some(format!("{low} to {high} is no range"));
    };
    let regions = counted["regions"].as_array().into_iter().flatten();
    let found = regions.into_iter().find(|of| of["region"].as_u64() == number(region));
    let value = found.and_then(|of| {
        let cpu = usize::try_from(number(cpu)?).ok()?;
        of["cpus"][cpu][counter].as_u64()
    });
    match value {
        None => Some(format!("region {region}, CPU {cpu}: {counter} was not counted")),
        Some(value) if (low..=high).contains(&value) => None,
        Some(value) => Some(format!(
            "region {region}, CPU {cpu}: {counter} is {value}, on paper {low} to {high}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(output: &str) -> Vec<Option<String>> {
        let counted = serde_json::json!({
            "regions": [{ "region": 3, "cpus": [{ "l1d": 100 }, { "l1d": 7 }] }]
        });
        cases("g", output, &counted).into_iter().map(|case| case.failure).collect()
    }

    #[test]
    fn what_is_within_its_bounds_passes() {
        assert_eq!(failures("expect a 3 0 l1d 100 110\nexpect a 3 1 l1d 0 7\nend\n"), [None]);
    }

    #[test]
    fn what_is_not_or_is_missing_fails() {
        for line in
            ["a 3 0 l1d 101 110", "a 3 0 l1d 0 99", "a 3 2 l1d 0 9", "a 4 0 l1d 0 9", "a 3 0 x 0 9"]
        {
            assert!(failures(&format!("expect {line}\n"))[0].is_some(), "{line}");
        }
        assert!(failures("end\n")[0].is_some());
    }
}
