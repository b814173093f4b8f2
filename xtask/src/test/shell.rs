//! The shell scripts of tests/shell: the host's busybox on Linux says what is right, then the same
//! busybox runs them on Ferry in the same root file system, and the outputs are compared.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Bench;
use super::boot::Configuration;
use super::report::{Case, Filter, Report};
use crate::process;

/// What all scripts may take on Linux.
const LINUX_DEADLINE: Duration = Duration::from_secs(240);
/// What all boots of one configuration may take; what is left then fails.
const CONFIGURATION_DEADLINE: Duration = Duration::from_secs(300);
/// What one script may take in the guest, in seconds.
const SCRIPT_DEADLINE_S: u32 = 30;
/// How long a machine may say nothing before it counts as hung: longer than any script.
const SILENCE: Duration = Duration::from_secs(35);
/// The two ends of what there is: everything on one core, and everything shared out.
const CONFIGURATIONS: [Configuration; 2] =
    [Configuration::new(1, "local"), Configuration::new(2, "remote")];
const BUSYBOX: &str = "/bin/busybox";
/// Exit status of run-linux.sh when it may not make namespaces.
const NEEDS_ROOT: i32 = 77;

/// Runs the stage.
pub fn run(bench: &Bench, filter: &Filter, report: &mut Report) -> Result<()> {
    let scripts = scripts(&bench.root.join("tests/shell/cases"))?;
    let is_wanted = |script: &String| {
        CONFIGURATIONS
            .iter()
            .any(|each| filter.wants("shell", &format!("{}/{script}", each.name())))
    };
    let wanted: Vec<String> = scripts.into_iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        bail!("no script of tests/shell/cases is wanted");
    }
    report.progress("shell: on this machine's Linux");
    let expected = bench.work.join("shell-linux");
    let mut command = Command::new("sh");
    command.arg(bench.root.join("tests/shell/run-linux.sh")).arg(&expected).args(&wanted);
    let finished = process::run(&mut command, b"", LINUX_DEADLINE)?;
    if finished.status == NEEDS_ROOT {
        report.note("shell: not run, because the comparison with Linux needs root");
        return Ok(());
    }
    if !finished.succeeded() {
        report.add("shell/linux", &[Case::failed("shell/linux", finished.describe())]);
        return Ok(());
    }
    let root = prepare_root(bench)?;
    for configuration in CONFIGURATIONS {
        let name = |script: &&String| format!("{}/{script}", configuration.name());
        let here: Vec<&String> =
            wanted.iter().filter(|script| filter.wants("shell", &name(script))).collect();
        if !here.is_empty() {
            let cases = on_ferry(bench, configuration, &root, &expected, &here)?;
            report.add(&format!("shell/{}", configuration.name()), &cases);
        }
    }
    Ok(())
}

/// Names of the scripts, without `.sh`.
fn scripts(directory: &Path) -> Result<Vec<String>> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".sh").map(str::to_string));
    }
    names.sort();
    Ok(names)
}

/// The root file system that run-linux.sh makes, as a directory for `--rootfs`.
fn prepare_root(bench: &Bench) -> Result<PathBuf> {
    let root = bench.work.join("shell-root");
    for directory in ["bin", "dev", "proc", "etc", "tests/cases"] {
        fs::create_dir_all(root.join(directory))?;
    }
    fs::copy(BUSYBOX, root.join("bin/busybox"))
        .with_context(|| format!("cannot copy {BUSYBOX}"))?;
    let applets = process::run(Command::new(BUSYBOX).arg("--list"), b"", LINUX_DEADLINE)?;
    for applet in applets.stdout.lines().filter(|applet| *applet != "busybox") {
        symlink("busybox", root.join("bin").join(applet))
            .with_context(|| format!("cannot link the applet {applet}"))?;
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n")?;
    fs::write(root.join("etc/group"), "root:x:0:\n")?;
    let source = bench.root.join("tests/shell");
    fs::copy(source.join("run-all.sh"), root.join("tests/run-all.sh"))?;
    for entry in fs::read_dir(source.join("cases"))? {
        let entry = entry?;
        fs::copy(entry.path(), root.join("tests/cases").join(entry.file_name()))?;
    }
    Ok(root)
}

/// Runs scripts in one configuration. When the machine dies or hangs, the script that it did not
/// survive fails, and the next boot goes on behind that.
fn on_ferry(
    bench: &Bench,
    configuration: Configuration,
    root: &Path,
    expected: &Path,
    scripts: &[&String],
) -> Result<Vec<Case>> {
    let begin = Instant::now();
    let root = root.to_string_lossy().into_owned();
    let deadline = format!("SHELL_DEADLINE={SCRIPT_DEADLINE_S}");
    let options = ["--rootfs", &root, "--env", "HOME=/", "--env", "PATH=/bin", "--env", &deadline];
    let name = |script: &str| format!("shell/{}/{script}", configuration.name());
    let mut cases = Vec::new();
    let mut contained = BTreeSet::new();
    let mut left = scripts;
    for boots in 0.. {
        let remaining = CONFIGURATION_DEADLINE.saturating_sub(begin.elapsed());
        if left.is_empty() || remaining.is_zero() {
            break;
        }
        let mut program = vec!["/bin/sh", "/tests/run-all.sh"];
        program.extend(left.iter().map(|script| script.as_str()));
        let log = format!("shell-{boots}");
        let boot = bench.ferry.boot_while_it_speaks(
            &log,
            configuration,
            &options,
            &program,
            remaining,
            SILENCE,
        )?;

        contained.append(&mut boot.contained_panics());
        let actual = bench.work.join(format!("{log}-{}", configuration.name()));
        let mut split = Command::new("sh");
        split.arg(bench.root.join("tests/shell/split.sh")).arg(&actual);
        process::run(&mut split, boot.finished.stdout.as_bytes(), LINUX_DEADLINE)?;
        while let Some((script, rest)) = left.split_first() {
            left = rest;
            let file = format!("{script}.out");
            let right = fs::read(expected.join(&file)).unwrap_or_default();
            let got = fs::read(actual.join(&file)).unwrap_or_default();
            // Every complete output ends with the status; without it the machine ended in between.
            let is_complete = boot.finished.stdout.contains(&format!("=== end {script}\n"));
            if !is_complete {
                let text = format!("no output: {}", boot.describe_machine());
                cases.push(Case::failed(name(script), text));
                break;
            }
            let differs = got != right;
            let failure = differs.then(|| difference(&expected.join(&file), &actual.join(&file)));
            cases.push(Case::new(name(script), failure));
        }
    }
    let why = "not run: the time for this configuration is over";
    cases.extend(left.iter().map(|script| Case::failed(name(script), why)));
    cases.push(Case::of_problems(name("no-handler-panics"), contained));
    Ok(cases)
}

/// The difference between what is right and what came.
fn difference(expected: &Path, actual: &Path) -> String {
    let mut command = Command::new("diff");
    command.args(["-a", "-U", "2"]).arg(expected).arg(actual);
    match process::run(&mut command, b"", LINUX_DEADLINE) {
        Ok(finished) => finished.stdout,
        Err(error) => format!("the outputs differ, and cannot be compared: {error:#}"),
    }
}
