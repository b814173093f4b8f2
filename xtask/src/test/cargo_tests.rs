//! Tests that cargo runs on the host: unit and property tests, loom models, and Miri.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::report::{Case, Filter, Report};
use crate::process::{self, Finished};

/// What building and running one of the suites may take.
const DEADLINE: Duration = Duration::from_secs(840);

/// Unit, property and integration tests of every crate.
pub fn host(bench: &Bench, filter: &Filter, report: &mut Report) -> Result<()> {
    report.progress("host: building and running the tests of all crates");
    let mut command = cargo(&bench.root);
    // QEMU has the symbols that a test program of its plugin would lack.
    command.args(["test", "--workspace", "--exclude", "model-plugin", "--no-fail-fast"]);
    command.args(filter.text_for("host"));
    let finished = process::run(&mut command, b"", DEADLINE)?;
    report.add("host", &cases("host", &finished));
    Ok(())
}

/// Loom models: every interleaving of the lock-free parts, within bounds.
pub fn loom(bench: &Bench, filter: &Filter, report: &mut Report) -> Result<()> {
    report.progress("loom: checking the lock-free parts in every order");
    let mut command = cargo(&bench.root);
    command.args([
        "test",
        "--package",
        "base",
        "--release",
        "--lib",
        "--target-dir",
        "target/loom",
    ]);
    command.arg(filter.text_for("loom").unwrap_or("loom"));
    command.env("RUSTFLAGS", "--cfg loom");
    let finished = process::run(&mut command, b"", DEADLINE)?;
    report.add("loom", &cases("loom", &finished));
    Ok(())
}

/// Miri on the crates at the bottom, where a nightly tool chain with Miri is installed.
pub fn miri(bench: &Bench, report: &mut Report) -> Result<()> {
    let mut probe = cargo(&bench.root);
    probe.args(["+nightly", "miri", "--version"]);
    if !process::run(&mut probe, b"", DEADLINE).is_ok_and(|probe| probe.succeeded()) {
        report.note("miri: not run, because no nightly tool chain with Miri is installed");
        return Ok(());
    }
    report.progress("miri: interpreting the tests of abi, base and user/rust");
    let mut command = cargo(&bench.root);
    command.args(["+nightly", "miri", "test", "--lib"]);
    command.args(["--package", "abi", "--package", "base", "--package", "ferry"]);
    command.args(["--target-dir", "target/miri"]);
    let finished = process::run(&mut command, b"", DEADLINE)?;
    report.add("miri", &cases("miri", &finished));
    Ok(())
}

/// The cargo of the host's tool chain.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root).env("CARGO_TERM_COLOR", "never").env("RUST_BACKTRACE", "0");
    // Set by an outer `cargo xtask` for a tool chain that need not be the one wanted here.
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC");
    command
}

/// Cases from the output of `cargo test`.
fn cases(stage: &str, finished: &Finished) -> Vec<Case> {
    let mut cases = Vec::new();
    for line in finished.stdout.lines() {
        let Some((name, verdict)) =
            line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
        else {
            continue;
        };
        let full_name = format!("{stage}/{name}");
        match verdict.split(',').next().unwrap_or(verdict) {
            "ok" => cases.push(Case::passed(full_name)),
            "FAILED" => cases.push(Case::failed(full_name, output_of(&finished.stdout, name))),
            _ => {}
        }
    }
    let all_passed = cases.iter().all(|case| case.failure.is_none());
    if !finished.succeeded() && all_passed {
        // It did not build, or a test program died without a verdict.
        let text = format!("{}\n{}", finished.stderr, last_lines(&finished.stdout, 10));
        cases.push(Case::failed(format!("{stage}/cargo"), text));
    } else if cases.is_empty() {
        cases.push(Case::failed(format!("{stage}/cargo"), "no test ran"));
    }
    cases
}

/// What a failing test printed, which cargo shows after all tests.
fn output_of(stdout: &str, name: &str) -> String {
    let head = format!("---- {name} stdout ----");
    let section = stdout.split_once(&head).map_or("", |(_, rest)| rest);
    let end = section.find("\n---- ").or(section.find("\nfailures:")).unwrap_or(section.len());
    section[..end].trim().to_string()
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\nrunning 3 tests\ntest a::good ... ok\ntest bad ... FAILED\n\
        test src/lib.rs - doc (line 3) ... ok\ntest left ... ignored, why\n\nfailures:\n\n\
        ---- bad stdout ----\nassertion failed\n\nfailures:\n    bad\n";

    fn finished(status: i32, stdout: &str) -> Finished {
        let stderr = "error: it does not build".to_string();
        Finished { status, timed_out: false, stdout: stdout.to_string(), stderr }
    }

    #[test]
    fn verdicts_and_their_output_are_found() {
        let cases = cases("host", &finished(101, OUTPUT));
        let names: Vec<_> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["host/a::good", "host/bad", "host/src/lib.rs - doc (line 3)"]);
        assert_eq!(cases[1].failure.as_deref(), Some("assertion failed"));
    }

    #[test]
    fn a_build_that_fails_is_a_failing_case() {
        let cases = cases("host", &finished(101, ""));
        assert!(cases[0].failure.as_ref().unwrap().contains("does not build"));
        assert_eq!(cases.len(), 1);
    }

    #[test]
    fn an_empty_suite_is_a_failing_case() {
        assert!(cases("host", &finished(0, "")).iter().all(|case| case.failure.is_some()));
    }
}
