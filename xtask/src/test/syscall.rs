//! The system-call programs of tests/syscall: on this machine's Linux first, then on Ferry with one
//! and two cores and by both call paths.
//!
//! One boot runs many programs, one after the other, by a small shell script in the guest. When the
//! machine dies or hangs, the cases of that program that have no verdict fail, and the next boot goes
//! on behind it. What Linux skips is not counted; what only Ferry skips fails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Bench;
use super::boot::{CONFIGURATIONS, Configuration};
use super::report::{Case, Filter, Report};
use crate::process;

/// What building the programs may take.
const BUILD_DEADLINE: Duration = Duration::from_secs(300);
/// What all programs together may take on Linux.
const LINUX_DEADLINE: Duration = Duration::from_secs(300);
/// What one boot may take.
const BOOT_DEADLINE: Duration = Duration::from_secs(90);
/// What all boots of one configuration may take; what is left then fails.
const CONFIGURATION_DEADLINE: Duration = Duration::from_secs(180);
/// What one case may take in the guest, in seconds.
const CASE_DEADLINE_S: &str = "20";
/// Exit status of run-linux.sh when it may not make namespaces.
const NEEDS_ROOT: i32 = 77;

/// Runs the programs given as arguments and marks where each begins and ends.
const GUEST_SCRIPT: &str = r##"cd /tmp
for program; do
    echo "# $program"
    "/tests/$program" </dev/null 2>&1
    echo "# ended $program with $?"
done"##;

/// What a case said of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Skipped,
    Failed(String),
}

/// Verdicts by program and case.
#[derive(Debug, Default)]
struct Verdicts {
    programs: BTreeMap<String, BTreeMap<String, Verdict>>,
    /// Programs that ran to their end.
    ended: BTreeSet<String>,
}

impl Verdicts {
    /// Reads what the harness printed. Linux's script marks no ends, and needs none.
    fn parse(output: &str) -> Verdicts {
        let mut verdicts = Verdicts::default();
        let mut program = String::new();
        for line in output.lines().map(|line| line.trim_end_matches('\r')) {
            let mut record = |name: &str, verdict| {
                let cases = verdicts.programs.entry(program.clone()).or_default();
                cases.insert(name.to_string(), verdict);
            };
            if let Some(rest) = line.strip_prefix("# ended ") {
                verdicts.ended.extend(rest.split(' ').next().map(str::to_string));
            } else if let Some(name) = line.strip_prefix("# ").filter(|name| is_program(name)) {
                program = name.to_string();
                verdicts.programs.entry(program.clone()).or_default();
            } else if let Some(name) = line.strip_prefix("ok ") {
                record(name, Verdict::Passed);
            } else if let Some(rest) = line.strip_prefix("not ok ") {
                let (name, why) = rest.split_once(": ").unwrap_or((rest, ""));
                record(name, Verdict::Failed(why.to_string()));
            } else if let Some(rest) = line.strip_prefix("skip ") {
                let (name, _) = rest.split_once(": ").unwrap_or((rest, ""));
                record(name, Verdict::Skipped);
            }
        }
        verdicts
    }
}

fn is_program(name: &str) -> bool {
    (name.starts_with("musl/") || name.starts_with("glibc/")) && !name.contains(' ')
}

/// Builds the programs into the bench's directory.
pub fn build(bench: &Bench) -> Result<()> {
    let mut command = Command::new("sh");
    command.arg(bench.root.join("tests/syscall/build.sh")).arg(bench.programs());
    let built = process::run(&mut command, b"", BUILD_DEADLINE)?;
    if !built.succeeded() {
        bail!("tests/syscall does not build:\n{}", built.describe());
    }
    Ok(())
}

/// Runs the stage.
pub fn run(bench: &Bench, filter: &Filter, report: &mut Report) -> Result<()> {
    report.progress("syscall: building the programs");
    build(bench)?;
    let programs = programs(&bench.programs())?;
    let expected = on_linux(bench, &programs, report)?;
    let wanted = |configuration: Configuration| -> Vec<String> {
        let name = |program: &String| format!("{}/{program}", configuration.name());
        programs.iter().filter(|program| filter.wants("syscall", &name(program))).cloned().collect()
    };
    // Two machines with one core each fit the two cores that there are at least.
    let (ones, twos): (Vec<_>, Vec<_>) = CONFIGURATIONS.iter().partition(|each| each.cpus == 1);
    let run = |configuration| on_ferry(bench, configuration, wanted(configuration), &expected);
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = ones.iter().map(|each| scope.spawn(|| run(*each))).collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    for (configuration, result) in ones.iter().zip(results) {
        let cases = result.map_err(|_| anyhow::anyhow!("a test thread panicked"))??;
        report_configuration(report, *configuration, &cases);
    }
    for configuration in twos {
        report_configuration(report, configuration, &run(configuration)?);
    }
    Ok(())
}

fn report_configuration(report: &mut Report, configuration: Configuration, cases: &[Case]) {
    if !cases.is_empty() {
        report.add(&format!("syscall/{}", configuration.name()), cases);
    }
}

/// Names of the built programs, such as `musl/io`; the stress has a stage of its own.
fn programs(directory: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for library in ["musl", "glibc"] {
        let entries = std::fs::read_dir(directory.join(library))
            .with_context(|| format!("cannot list {}", directory.display()))?;
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "stress" && !name.ends_with(".new") {
                names.push(format!("{library}/{name}"));
            }
        }
    }
    names.sort();
    Ok(names)
}

/// Runs everything on Linux, where it has to pass, and returns what each program's cases are.
fn on_linux(bench: &Bench, programs: &[String], report: &mut Report) -> Result<Verdicts> {
    report.progress("syscall: on this machine's Linux");
    let mut command = Command::new("sh");
    command.arg(bench.root.join("tests/syscall/run-linux.sh")).arg(bench.programs());
    let finished = process::run(&mut command, b"", LINUX_DEADLINE)?;
    if finished.status == NEEDS_ROOT {
        report.note("syscall: not run on this machine's Linux first, because that needs root");
        return list(bench, programs);
    }
    let verdicts = Verdicts::parse(&finished.stdout);
    let mut cases = Vec::new();
    for (program, results) in &verdicts.programs {
        for (case, verdict) in results {
            let name = format!("syscall/linux/{program}/{case}");
            match verdict {
                Verdict::Passed => cases.push(Case::passed(name)),
                Verdict::Failed(why) => cases.push(Case::failed(name, why.clone())),
                Verdict::Skipped => {}
            }
        }
    }
    if cases.is_empty()
        || (!finished.succeeded() && cases.iter().all(|case| case.failure.is_none()))
    {
        cases.push(Case::failed("syscall/linux", finished.describe()));
    }
    report.add("syscall/linux", &cases);
    Ok(verdicts)
}

/// The cases by name alone, for a machine whose Linux may not be used.
fn list(bench: &Bench, programs: &[String]) -> Result<Verdicts> {
    let mut verdicts = Verdicts::default();
    for program in programs {
        let mut command = Command::new(bench.programs().join(program));
        let finished = process::run(command.arg("--list"), b"", LINUX_DEADLINE)?;
        let cases = finished.stdout.lines().map(|name| (name.to_string(), Verdict::Passed));
        verdicts.programs.insert(program.clone(), cases.collect());
    }
    Ok(verdicts)
}

/// Runs programs in one configuration, in as many boots as it takes.
fn on_ferry(
    bench: &Bench,
    configuration: Configuration,
    mut left: Vec<String>,
    expected: &Verdicts,
) -> Result<Vec<Case>> {
    let begin = Instant::now();
    let mut cases = Vec::new();
    let mut machine_failures = 0;
    while !left.is_empty() {
        let remaining = CONFIGURATION_DEADLINE.saturating_sub(begin.elapsed());
        if remaining.is_zero() {
            for program in &left {
                let name = format!("syscall/{}/{program}", configuration.name());
                cases.push(Case::failed(name, "not run: the time for this configuration is over"));
            }
            break;
        }
        let added = format!("{}:/tests", bench.programs().display());
        let deadline = format!("HARNESS_DEADLINE={CASE_DEADLINE_S}");
        let options = ["--file", added.as_str(), "--env", deadline.as_str()];
        let mut program = vec!["busybox", "sh", "-c", GUEST_SCRIPT, "sh"];
        program.extend(left.iter().map(String::as_str));
        let boot = bench.ferry.boot(
            &format!("syscall-{machine_failures}"),
            configuration,
            &options,
            &program,
            b"",
            BOOT_DEADLINE.min(remaining),
        )?;
        let verdicts = Verdicts::parse(&boot.finished.stdout);
        // The first program without an end is the one that the machine did not survive.
        let survivors = left.iter().take_while(|program| verdicts.ended.contains(*program)).count();
        let culprit = (survivors < left.len()).then(|| left[survivors].clone());
        let ran = left.drain(..(survivors + 1).min(left.len()));
        for program in ran {
            let died = (Some(&program) == culprit.as_ref()).then(|| boot.describe_machine());
            judge(configuration, &program, &verdicts, expected, died.as_deref(), &mut cases);
        }
        machine_failures += 1;
    }
    Ok(cases)
}

/// Compares a program's verdicts on Ferry with its cases.
fn judge(
    configuration: Configuration,
    program: &str,
    verdicts: &Verdicts,
    expected: &Verdicts,
    died: Option<&str>,
    cases: &mut Vec<Case>,
) {
    let none = BTreeMap::new();
    let got = verdicts.programs.get(program).unwrap_or(&none);
    let known = expected.programs.get(program).unwrap_or(&none);
    let names: BTreeSet<&String> = known.keys().chain(got.keys()).collect();
    let mut is_told = false;
    for case in names {
        let name = format!("syscall/{}/{program}/{case}", configuration.name());
        let is_skipped_on_linux = known.get(case) == Some(&Verdict::Skipped);
        let failure = match got.get(case) {
            Some(Verdict::Passed) => None,
            Some(Verdict::Skipped) if is_skipped_on_linux => continue,
            Some(Verdict::Skipped) => Some("skipped on Ferry but not on Linux".to_string()),
            Some(Verdict::Failed(why)) => Some(why.clone()),
            None if is_skipped_on_linux => continue,
            None if is_told => Some("no verdict (see above)".to_string()),
            None => {
                is_told = true;
                Some(format!("no verdict: {}", died.unwrap_or("the program ended before it")))
            }
        };
        cases.push(Case::new(name, failure));
    }
    if known.is_empty() && got.is_empty() {
        let name = format!("syscall/{}/{program}", configuration.name());
        cases.push(Case::failed(name, died.unwrap_or("it has no cases")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "# musl/io\nok read\nnot ok write: io.c:7: x, got 1\n# a remark\n\
        skip chroot: not root\nio: 1 passed, 1 failed, 1 skipped\n# ended musl/io with 1\n# musl/next\n";

    fn judged(known: &str, got: &str, died: Option<&str>) -> Vec<(String, bool)> {
        let mut cases = Vec::new();
        let (got, known) = (Verdicts::parse(got), Verdicts::parse(known));
        judge(CONFIGURATIONS[3], "musl/io", &got, &known, died, &mut cases);
        cases.into_iter().map(|case| (case.name, case.failure.is_none())).collect()
    }

    #[test]
    fn verdicts_are_read() {
        let verdicts = Verdicts::parse(OUTPUT);
        let io = &verdicts.programs["musl/io"];
        assert_eq!(io["read"], Verdict::Passed);
        assert_eq!(io["write"], Verdict::Failed("io.c:7: x, got 1".to_string()));
        assert_eq!(io["chroot"], Verdict::Skipped);
        assert!(verdicts.ended.contains("musl/io"));
        assert!(!verdicts.ended.contains("musl/next"));
    }

    #[test]
    fn a_case_without_a_verdict_fails() {
        let cases = judged("# musl/io\nok a\nok b\n", "# musl/io\nok a\n", Some("panic"));
        let prefix = "syscall/2-remote/musl/io";
        assert_eq!(cases, [(format!("{prefix}/a"), true), (format!("{prefix}/b"), false)]);
    }

    #[test]
    fn a_skip_counts_only_where_linux_does_not_skip() {
        assert!(judged("# musl/io\nskip a: x\n", "# musl/io\nskip a: x\n", None).is_empty());
        assert!(!judged("# musl/io\nok a\n", "# musl/io\nskip a: x\n", None)[0].1);
    }
}
