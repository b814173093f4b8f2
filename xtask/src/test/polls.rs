//! No poll of a handler is long: the programs of tests/syscall on a machine that counts its time in instructions
//! (`ferry run --record`), so that how long a poll takes does not depend on who else uses the host.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::boot::Configuration;
use super::report::{Case, Filter, Report};
use super::syscall;
use crate::process;

/// Instructions of the checked kernel that one poll may take.
const MOST_INSTRUCTIONS: u64 = 4_000_000;
/// What an instruction takes on such a machine.
const NS_PER_INSTRUCTION: u64 = 8;
/// What all programs together may take.
const DEADLINE: Duration = Duration::from_secs(420);
/// What a program may take to name its cases.
const LIST_DEADLINE: Duration = Duration::from_secs(30);
/// Calls that are polled at least: what the programs do not make is not looked at.
const LEAST_CALLS: usize = 150;

/// Programs that are left out: floods that time ends, traps that this emulation does not have, and allocations that
/// fail by the thousand.
const LEFT_OUT: &[&str] =
    &["musl/fault", "musl/hostile", "musl/hostile_memory", "musl/hostile_processor"];

/// Cases of a program that are left out, for the same reason.
const CASES_LEFT_OUT: &[&str] = &[
    "a_long_call_can_be_killed",
    "others_go_on_during_long_calls",
    "page_tables_of_one_process_do_not_take_the_memory_of_all",
    "pending_calls_of_one_user_stop_nobody",
    "who_has_too_many_pending_calls_hears_of_it",
];

/// Runs the programs given as arguments, each with the cases that follow it in its word, and tells the longest polls
/// so far behind each.
const GUEST_SCRIPT: &str = r##"cd /tmp
for item; do
    program=${item%% *}
    "/tests/$program" ${item#"$program"} </dev/null >/dev/null 2>&1
    echo "# $program"
    cat /proc/ferry/polls
done"##;

/// Runs the stage.
pub fn run(bench: &Bench, filter: &Filter, report: &mut Report) -> Result<()> {
    report.progress("polls: counting instructions");
    syscall::build(bench)?;
    let mut programs = syscall::programs(&bench.programs())?;
    programs.retain(|program| {
        program.starts_with("musl/")
            && !LEFT_OUT.contains(&program.as_str())
            && filter.wants("polls", program)
    });
    let recording = bench.work.join("polls.recording").display().to_string();
    let added = format!("{}:/tests", bench.programs().display());
    let options = [
        "--record",
        &recording,
        "--file",
        &added,
        "--env",
        "FERRY_GUEST=1",
        "--env",
        "HARNESS_DEADLINE=600",
    ];
    let items: Vec<String> =
        programs.iter().map(|program| item(bench, program)).collect::<Result<_>>()?;
    let mut words = vec!["busybox", "sh", "-c", GUEST_SCRIPT, "sh"];
    words.extend(items.iter().map(String::as_str));
    let configuration = Configuration::new(1, "local");
    let boot = bench.ferry.boot("polls", configuration, &options, &words, b"", DEADLINE)?;
    let said = read(&boot.finished.stdout);
    let mut cases: Vec<Case> = programs
        .iter()
        .map(|program| {
            let name = format!("polls/{program}");
            match said.get(program.as_str()) {
                Some(longest) => Case::of_problems(name, problems(longest)),
                None => Case::failed(name, boot.describe_machine()),
            }
        })
        .collect();
    if filter.text_for("polls").is_none() {
        let calls = said.values().map(BTreeMap::len).max().unwrap_or(0);
        let few = (calls < LEAST_CALLS).then(|| format!("only {calls} calls were polled"));
        cases.push(Case::new("polls/many-calls", few));
    }
    report.add("polls", &cases);
    Ok(())
}

/// A program, followed by its cases where some are left out.
fn item(bench: &Bench, program: &str) -> Result<String> {
    let mut list = Command::new(bench.programs().join(program));
    let cases = process::run(list.arg("--list"), b"", LIST_DEADLINE)?.stdout;
    let (left_out, kept): (Vec<&str>, Vec<&str>) =
        cases.lines().partition(|case| CASES_LEFT_OUT.contains(case));
    Ok(if left_out.is_empty() {
        program.to_string()
    } else {
        format!("{program} {}", kept.join(" "))
    })
}

/// The longest poll so far of each call behind each program, in instructions.
fn read(output: &str) -> BTreeMap<&str, BTreeMap<&str, u64>> {
    let mut all = BTreeMap::new();
    let mut program = "";
    for line in output.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["#", name] => {
                program = name;
                all.insert(program, BTreeMap::new());
            }
            [call, _, longest_ns] => {
                if let (Some(longest), Ok(ns)) = (all.get_mut(program), longest_ns.parse::<u64>()) {
                    longest.insert(call, ns / NS_PER_INSTRUCTION);
                }
            }
            _ => {}
        }
    }
    all
}

fn problems(longest: &BTreeMap<&str, u64>) -> BTreeSet<String> {
    let long = longest.iter().filter(|(_, instructions)| **instructions > MOST_INSTRUCTIONS);
    let tell = |(call, instructions): (&&str, &u64)| {
        format!("a poll of {call} took {instructions} instructions, more than {MOST_INSTRUCTIONS}")
    };
    long.map(tell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_polls_are_found_behind_the_program_that_had_them() {
        let output = "# musl/io\ncall polls longest_ns\nread 7 800\n# musl/exec\nread 9 800\nexecve 2 40000000\n";
        let said = read(output);
        assert_eq!(said["musl/io"], BTreeMap::from([("read", 100)]));
        assert_eq!(said["musl/exec"]["execve"], 5_000_000);
        assert_eq!(problems(&said["musl/io"]), BTreeSet::new());
        let found = problems(&said["musl/exec"]);
        assert_eq!(found.len(), 1);
        assert!(found.iter().all(|problem| problem.contains("execve took 5000000")));
    }
}
