//! `ferry check`: what has to hold before something lands, apart from the tests: format, lints, the
//! directions of dependencies, between crates and inside the kernel, the rules of the house, scripts, and generated pages.
//!
//! A tool that is not installed is named and left out; everything else that fails fails the check.

mod directions;
mod floors;
mod rules;
mod source;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::test::cargo;
use crate::{docs, process};

/// What any one tool may take.
const DEADLINE: Duration = Duration::from_secs(900);
/// Scripts that are checked.
const SCRIPTS: &[&str] =
    &["ferry", "tests/library/build.sh", "tests/syscall/build.sh", "tests/syscall/run-linux.sh"];

/// Check format, lints, dependency directions, unsafe code and generated pages.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry check")]
pub struct Arguments {}

/// The outcome of one check.
enum Outcome {
    /// All is well.
    Well,
    /// Not checked, and why.
    LeftOut(String),
    /// What is wrong.
    Wrong(String),
}

/// Carries out `ferry check`; returns whether all is well.
pub fn run(root: &Path) -> Result<bool> {
    type Check = fn(&Path) -> Result<Outcome>;
    let checks: [(&str, Check); 7] = [
        ("rules of the house", |root| Ok(listed(rules::violations(root)?))),
        ("dependency directions", |root| Ok(listed(directions::violations(root)?))),
        ("floors inside crates", |root| Ok(listed(floors::violations(root)?))),
        ("format", format),
        ("scripts", scripts),
        ("generated pages", generated),
        ("lints", lints),
    ];
    let mut all_well = true;
    for (name, check) in checks {
        let outcome = check(root).unwrap_or_else(|error| Outcome::Wrong(format!("{error:#}")));
        match outcome {
            Outcome::Well => println!("ok {name}"),
            Outcome::LeftOut(why) => println!("left out {name}: {why}"),
            Outcome::Wrong(what) => {
                all_well = false;
                println!("not ok {name}");
                for line in what.lines() {
                    println!("    {line}");
                }
            }
        }
    }
    println!("{}", if all_well { "all checks passed" } else { "some checks failed" });
    Ok(all_well)
}

fn listed(violations: Vec<String>) -> Outcome {
    if violations.is_empty() { Outcome::Well } else { Outcome::Wrong(violations.join("\n")) }
}

/// Runs a tool; what it says is shown when it fails.
fn tool(command: &mut Command) -> Result<Outcome> {
    let finished = process::run(command, b"", DEADLINE)?;
    Ok(if finished.succeeded() { Outcome::Well } else { Outcome::Wrong(finished.describe()) })
}

/// Whether a tool answers when it is asked for its version.
fn is_installed(command: &mut Command) -> bool {
    process::run(command, b"", DEADLINE).is_ok_and(|finished| finished.succeeded())
}

fn format(root: &Path) -> Result<Outcome> {
    if !is_installed(cargo(root).args(["fmt", "--version"])) {
        return Ok(Outcome::LeftOut("rustfmt is not installed".to_string()));
    }
    tool(cargo(root).args(["fmt", "--all", "--check", "--", "--color", "never"]))
}

fn lints(root: &Path) -> Result<Outcome> {
    if !is_installed(cargo(root).args(["clippy", "--version"])) {
        return Ok(Outcome::LeftOut("clippy is not installed".to_string()));
    }
    let arguments = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-Dwarnings"];
    tool(cargo(root).args(arguments))
}

fn scripts(root: &Path) -> Result<Outcome> {
    for script in SCRIPTS {
        let outcome = tool(Command::new("dash").arg("-n").arg(script).current_dir(root))?;
        if !matches!(outcome, Outcome::Well) {
            return Ok(outcome);
        }
    }
    if !is_installed(Command::new("shellcheck").arg("--version")) {
        return Ok(Outcome::LeftOut("shellcheck is not installed; dash parses them".to_string()));
    }
    tool(Command::new("shellcheck").arg("ferry").arg(".ci/run").current_dir(root))
}

fn generated(root: &Path) -> Result<Outcome> {
    Ok(match docs::is_current(root)? {
        true => Outcome::Well,
        false => Outcome::Wrong(format!("{} is out of date: run ./ferry docs", docs::PAGE)),
    })
}
