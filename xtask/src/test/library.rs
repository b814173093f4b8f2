//! The libraries of posted calls, tests/library and user/rust/tests: on this machine's Linux, where
//! calls are carried out when they are posted; against the test double of the kernel; and on Ferry.
//!
//! One boot runs all programs of a configuration. Every case that the double passed has to pass on
//! Ferry: there is nothing to skip there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::boot::{CONFIGURATIONS, Configuration};
use super::report::{Case, Filter, Report};
use super::{Bench, cargo};
use crate::process;

/// What building may take.
const BUILD_DEADLINE: Duration = Duration::from_secs(600);
/// What one program may take on Linux.
const LINUX_DEADLINE: Duration = Duration::from_secs(120);
/// What one boot may take.
const BOOT_DEADLINE: Duration = Duration::from_secs(120);
/// How long a machine may say nothing before it counts as hung: longer than any case.
const SILENCE: Duration = Duration::from_secs(20);
/// What one case may take, in seconds.
const CASE_DEADLINE_S: &str = "15";

/// Programs that run on Linux and on Ferry; those called `library` and `system` consist of cases.
const PROGRAMS: &[&str] =
    &["musl/library", "glibc/library", "musl/example", "glibc/example", "rust/system"];
/// The test doubles: a kernel with a core to scan, one without, and one that refuses.
const DOUBLES: &[&str] = &["scanned", "unscanned", "none"];
/// The double on which no case is left out.
const WHOLE_DOUBLE: &str = "scanned";

/// Runs the programs given as arguments and marks where each begins and ends.
const GUEST_SCRIPT: &str = r##"cd /tmp
for program; do
    echo "# $program"
    "/tests/$program" </dev/null 2>&1
    echo "# ended $program with $?"
done"##;

/// Runs the stage.
pub fn run(bench: &Bench, filter: &Filter, report: &mut Report) -> Result<()> {
    report.progress("library: building the libraries and their programs");
    let programs = bench.root.join("target/test-library");
    build(bench, &programs)?;

    report.progress("library: on this machine's Linux, and with a double of the kernel");
    let mut expected = Names::default();
    let mut cases = Vec::new();
    for program in PROGRAMS.iter().filter(|program| !program.starts_with("rust/")) {
        let command = Command::new(programs.join(program));
        cases.extend(on_linux(command, "linux", program, "0", &mut Names::default())?);
    }
    let mut command = Command::new("sh");
    command.arg(bench.root.join("tests/library/install.sh"));
    command.arg(programs.join("install")).arg(programs.join("example.c"));
    cases.extend(on_linux(command, "linux", "install", "0", &mut Names::default())?);
    for double in DOUBLES {
        let mut command = Command::new(programs.join("double/library"));
        command.env("FERRY_DOUBLE", double);
        let available = if *double == "none" { "0" } else { "1" };
        let mut names = Names::default();
        let name = format!("double-{double}");
        cases.extend(on_linux(command, &name, "library", available, &mut names)?);
        if *double == WHOLE_DOUBLE {
            for program in ["musl/library", "glibc/library"] {
                expected.0.insert(program.to_string(), names.of("library"));
            }
        }
    }
    report.add("library/linux", &cases);
    expected.0.insert("rust/system".to_string(), rust_cases(&programs)?);

    for configuration in CONFIGURATIONS {
        let name = configuration.name();
        let wanted: Vec<&str> = PROGRAMS
            .iter()
            .filter(|program| filter.wants("library", &format!("{name}/{program}")))
            .copied()
            .collect();
        if !wanted.is_empty() {
            let cases = on_ferry(bench, configuration, &programs, &wanted, &expected)?;
            report.add(&format!("library/{name}"), &cases);
        }
    }
    Ok(())
}

/// Names of the cases of programs.
#[derive(Default)]
struct Names(BTreeMap<String, Vec<String>>);

impl Names {
    fn of(&self, program: &str) -> Vec<String> {
        self.0.get(program).cloned().unwrap_or_default()
    }
}

fn build(bench: &Bench, programs: &Path) -> Result<()> {
    let mut command = Command::new("sh");
    command.arg(bench.root.join("tests/library/build.sh")).arg(programs);
    let built = process::run(&mut command, b"", BUILD_DEADLINE)?;
    if !built.succeeded() {
        bail!("tests/library does not build:\n{}", built.describe());
    }
    let mut command = cargo(&bench.root);
    command.args(["test", "--package", "ferry", "--test", "system", "--no-run"]);
    command.args(["--message-format", "json"]);
    let built = process::run(&mut command, b"", BUILD_DEADLINE)?;
    if !built.succeeded() {
        bail!("the tests of user/rust do not build:\n{}", built.describe());
    }
    let executable = built
        .stdout
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .next_back()
        .context("cargo names no test program of user/rust")?;
    let target = programs.join("rust/system");
    std::fs::create_dir_all(programs.join("rust"))?;
    std::fs::copy(&executable, &target)
        .with_context(|| format!("cannot copy {}", executable.display()))?;
    Ok(())
}

/// The cases of the Rust program, as it lists them.
fn rust_cases(programs: &Path) -> Result<Vec<String>> {
    let mut command = Command::new(programs.join("rust/system"));
    let listed = process::run(command.args(["--list", "--format", "terse"]), b"", LINUX_DEADLINE)?;
    let names = listed.stdout.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(str::to_string).collect())
}

/// Runs a program here; adds the names of its cases to `names`.
fn on_linux(
    mut command: Command,
    kind: &str,
    program: &str,
    available: &str,
    names: &mut Names,
) -> Result<Vec<Case>> {
    command.env("FERRY_LIBRARY_TEST", available).env("HARNESS_DEADLINE", CASE_DEADLINE_S);
    let finished = process::run(&mut command, b"", LINUX_DEADLINE)?;
    let prefix = format!("library/{kind}/{program}");
    let mut cases = Vec::new();
    for (name, failure) in verdicts(&finished.stdout) {
        cases.push(Case::new(format!("{prefix}/{name}"), failure));
        names.0.entry(program.to_string()).or_default().push(name);
    }
    let has_failed = cases.iter().any(|case| case.failure.is_some());
    let is_silent = cases.is_empty() && !program.ends_with("example");
    if is_silent || finished.succeeded() == has_failed {
        cases.push(Case::failed(prefix, finished.describe()));
    } else if program.ends_with("example") {
        cases.push(Case::passed(prefix));
    }
    Ok(cases)
}

/// What a program said of its cases: why each failed, or nothing. Skipped cases are left out.
fn verdicts(output: &str) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    for line in output.lines().map(|line| line.trim_end_matches('\r')) {
        if let Some(name) = line.strip_prefix("ok ") {
            found.push((name.to_string(), None));
        } else if let Some(rest) = line.strip_prefix("not ok ") {
            let (name, why) = rest.split_once(": ").unwrap_or((rest, "no reason given"));
            found.push((name.to_string(), Some(why.to_string())));
        } else if let Some((name, verdict)) =
            line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        {
            let failure = (verdict != "ok").then(|| output.to_string());
            found.push((name.to_string(), failure));
        }
    }
    found
}

fn on_ferry(
    bench: &Bench,
    configuration: Configuration,
    programs: &Path,
    wanted: &[&str],
    expected: &Names,
) -> Result<Vec<Case>> {
    let files: Vec<String> = wanted
        .iter()
        .map(|program| format!("{}:/tests/{program}", programs.join(program).display()))
        .collect();
    let deadline = format!("HARNESS_DEADLINE={CASE_DEADLINE_S}");
    let mut options = vec!["--env", deadline.as_str(), "--env", "FERRY_LIBRARY_TEST=1"];
    options.extend(files.iter().flat_map(|file| ["--file", file.as_str()]));
    let mut program = vec!["busybox", "sh", "-c", GUEST_SCRIPT, "sh"];
    program.extend(wanted);
    let boot = bench.ferry.boot_while_it_speaks(
        "library",
        configuration,
        &options,
        &program,
        BOOT_DEADLINE,
        SILENCE,
    )?;
    let mut cases = Vec::new();
    for program in wanted {
        let prefix = format!("library/{}/{program}", configuration.name());
        let (said, status) = section(&boot.finished.stdout, program);
        let said = verdicts(said);
        for name in expected.of(program) {
            let verdict = said.iter().find(|(known, _)| *known == name);
            let failure = match verdict {
                Some((_, failure)) => failure.clone(),
                None => Some(format!("no verdict: {}", boot.describe_machine())),
            };
            cases.push(Case::new(format!("{prefix}/{name}"), failure));
        }
        let failure = (status != Some("0")).then(|| match status {
            Some(status) => format!("it ended with {status}"),
            None => boot.describe_machine(),
        });
        cases.push(Case::new(format!("{prefix}/ends"), failure));
    }
    let name = format!("library/{}/no-handler-panics", configuration.name());
    cases.push(Case::of_problems(name, boot.contained_panics()));
    Ok(cases)
}

/// What a program printed between its marks, and the status that it ended with.
fn section<'a>(output: &'a str, program: &str) -> (&'a str, Option<&'a str>) {
    let Some((_, rest)) = output.split_once(&format!("# {program}")) else { return ("", None) };
    match rest.split_once(&format!("# ended {program} with ")) {
        Some((said, rest)) => (said, rest.lines().next().map(str::trim)),
        None => (rest, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "# musl/library\r\nok a\r\nskip b: why\nnot ok c: x.c:1: bad\n\
        # ended musl/library with 1\r\n# rust/system\ntest d ... ok\ntest e ... FAILED\n";

    #[test]
    fn sections_have_verdicts_and_a_status() {
        let (said, status) = section(OUTPUT, "musl/library");
        assert_eq!(status, Some("1"));
        let why = Some("x.c:1: bad".to_string());
        assert_eq!(verdicts(said), [("a".to_string(), None), ("c".to_string(), why)]);
    }

    #[test]
    fn a_program_that_did_not_end_has_no_status() {
        let (said, status) = section(OUTPUT, "rust/system");
        let failed: Vec<_> = verdicts(said).iter().map(|(_, why)| why.is_some()).collect();
        assert_eq!((failed, status), (vec![false, true], None));
        assert_eq!(section(OUTPUT, "glibc/library"), ("", None));
    }
}
