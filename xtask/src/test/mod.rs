//! `ferry test`: everything that shows that Ferry works, in stages, in half an hour on two cores.
//!
//! | stage | what |
//! |---|---|
//! | host | unit, property and integration tests of all crates |
//! | loom | models of the lock-free parts, in every order |
//! | miri | `abi`, `base` and `user/rust` under Miri, where that is installed |
//! | syscall | tests/syscall on Linux, then on Ferry with 1 and 2 cores, by every path; some under every lock scheme |
//! | library | libferry and the crate `ferry`: on Linux, with a double of the kernel, and on Ferry |
//! | shell | tests/shell by the same busybox on Linux and on Ferry |
//! | polls | how many instructions a handler takes before it gives the core back |
//! | run | what callers of `ferry run` rely on |
//! | disk | disks as roots and beside them, power cuts, shares, disks that fail |
//! | page | results in a real browser, where one is installed |
//! | model | the model of caches and TLBs, on programs whose counts are known on paper |
//! | differential | random sequences of calls, whose results must be those of this machine's Linux |
//! | fuzz | misuse of posted calls on one core and two, and all calls by ordinary users, beside an honest program |
//! | stress | two minutes of everything at once, and no leak |
//!
//! The last line is `N passed, N failed`. What is made for the tests lies below `target/`, and the
//! machines and files of a run are gone when it ends.

mod block_devices;
mod boot;
mod browser;
mod cargo_tests;
mod differential;
mod disk;
mod ext4;
mod failing_disk;
mod faults;
mod fuzz;
mod library;
mod model;
mod nbd;
mod page;
mod polls;
mod power;
mod programs;
mod races;
mod report;
mod root_disk;
mod run;
mod shell;
mod stress;
mod syscall;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::kernel;
use boot::Ferry;
pub use cargo_tests::cargo;
use report::{Case, Filter, Report};

/// Stages in the order in which they run.
const STAGES: &[&str] = &[
    "host",
    "loom",
    "miri",
    "syscall",
    "library",
    "shell",
    "polls",
    "run",
    "disk",
    "page",
    "model",
    "fuzz",
    "differential",
    "stress",
];

/// Folders of running tests are called this, followed by the number of their process.
const WORK_PREFIX: &str = "test-";

/// Run the tests; the last line counts what passed and what failed.
#[derive(clap::Args)]
#[command(
    after_help = "Stages: host, loom, miri, syscall, library, shell, polls, run, disk, page, model,\n        fuzz, differential, stress.\n\n\
    Examples:\n  ferry test\n  ferry test host run/terminal\n  ferry test syscall/2-remote/musl/signal\n  \
    ferry test fuzz/calls/2-posted --fuzz-seconds 900"
)]
pub struct Arguments {
    /// Only these stages, or of a stage only the cases whose name contains the text.
    #[arg(value_name = "STAGE[/TEXT]")]
    names: Vec<String>,
    /// Test this kernel instead of building the checked one.
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Run everything under every lock scheme too, the stress among it.
    #[arg(long)]
    all: bool,
    /// Let each fuzzer run for so long in each configuration.
    #[arg(long, value_name = "N")]
    fuzz_seconds: Option<u64>,
    /// Let the differential fuzzer begin with this number.
    #[arg(long, value_name = "N")]
    fuzz_seed: Option<u64>,
}

/// What all stages work with.
pub struct Bench {
    root: PathBuf,
    work: PathBuf,
    ferry: Ferry,
    builds_kernel: bool,
    fuzz_seconds: Option<u64>,
    fuzz_seed: Option<u64>,
    is_all: bool,
}

impl Bench {
    /// Where the system-call programs are built.
    fn programs(&self) -> PathBuf {
        self.root.join("target/test-programs")
    }
}

/// Carries out `ferry test`; returns whether all passed.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool> {
    for name in &arguments.names {
        let stage = name.split('/').next().unwrap_or(name);
        if !STAGES.contains(&stage) {
            bail!("there is no stage {stage:?}; there are {}", STAGES.join(", "));
        }
    }
    let filter = Filter { names: arguments.names.clone() };
    remove_leftovers(root);
    let work = root.join(format!("target/{WORK_PREFIX}{}", std::process::id()));
    fs::create_dir_all(&work).with_context(|| format!("cannot create {}", work.display()))?;
    let bench = Bench {
        root: root.to_path_buf(),
        ferry: Ferry {
            tool: std::env::current_exe()?.with_file_name("ferry"),
            kernel: arguments.kernel.clone().unwrap_or_else(|| kernel::path(root, "checked")),
            work: work.clone(),
        },
        work,
        builds_kernel: arguments.kernel.is_none(),
        fuzz_seconds: arguments.fuzz_seconds,
        fuzz_seed: arguments.fuzz_seed,
        is_all: arguments.all,
    };
    let mut report = Report::new();
    run_stages(&bench, &filter, &mut report);
    let again = report.worth_a_second_try();
    if !again.is_empty() {
        report.progress("a second try for what failed");
        let filter = Filter { names: again.iter().map(|name| group_of(name)).collect() };
        let mut second = report.second();
        run_stages(&bench, &filter, &mut second);
        report.settle(&second.into_passed());
    }
    fs::remove_dir_all(&bench.work)
        .with_context(|| format!("cannot remove {}", bench.work.display()))?;
    if report.is_empty() && arguments.names.iter().any(|name| name.contains('/')) {
        bail!("no case is called {}", arguments.names.join(" or "));
    }
    Ok(report.finish())
}

fn run_stages(bench: &Bench, filter: &Filter, report: &mut Report) {
    for stage in STAGES.iter().filter(|stage| filter.wants_stage(stage)) {
        if let Err(error) = run_stage(stage, bench, filter, report) {
            let name = format!("{stage}/stage");
            report.add(stage, &[Case::failed(name, format!("{error:#}"))]);
        }
    }
}

/// The smallest group of cases, as `Filter` has it, that a case can be run in again.
fn group_of(case: &str) -> String {
    let parts: Vec<&str> = case.split('/').collect();
    match parts.as_slice() {
        // Programs run whole: syscall/2-remote/musl/io/a_case, library/2-remote/c/a_case.
        ["syscall" | "library", configuration, library, program, ..] => {
            format!("{}/{configuration}/{library}/{program}", parts[0])
        }
        ["fuzz" | "model", group, rest @ ..] if rest.len() > 1 => {
            format!("{}/{group}/{}", parts[0], rest[..rest.len() - 1].join("/"))
        }
        ["fuzz" | "model" | "library" | "differential", group, _] => {
            format!("{}/{group}", parts[0])
        }
        ["host" | "loom" | "stress" | "miri", ..] => parts[0].to_string(),
        _ => case.to_string(),
    }
}

/// Removes the folders of tests that were interrupted.
fn remove_leftovers(root: &Path) {
    for entry in fs::read_dir(root.join("target")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(WORK_PREFIX).and_then(|owner| owner.parse::<u32>().ok());
        if owner.is_some_and(|owner| !Path::new(&format!("/proc/{owner}")).exists()) {
            // What cannot be removed is in nobody's way.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn run_stage(stage: &str, bench: &Bench, filter: &Filter, report: &mut Report) -> Result<()> {
    if matches!(
        stage,
        "syscall"
            | "library"
            | "shell"
            | "polls"
            | "run"
            | "disk"
            | "model"
            | "fuzz"
            | "differential"
            | "stress"
    ) {
        bench.prepare(report)?;
    }
    if stage == "page" {
        bench.build_tool()?;
    }
    match stage {
        "host" => cargo_tests::host(bench, filter, report),
        "loom" => cargo_tests::loom(bench, filter, report),
        "miri" => cargo_tests::miri(bench, report),
        "syscall" => syscall::run(bench, filter, report),
        "library" => library::run(bench, filter, report),
        "shell" => shell::run(bench, filter, report),
        "polls" => polls::run(bench, filter, report),
        "run" => run::run(bench, filter, report),
        "disk" => disk::run(bench, filter, report),
        "page" => page::run(bench, filter, report),
        "model" => model::run(bench, filter, report),
        "fuzz" => fuzz::run(bench, filter, report),
        "differential" => differential::run(bench, filter, report),
        _ => stress::run(bench, report),
    }
}

impl Bench {
    /// Builds the tool and the checked kernel; costs next to nothing when they are up to date.
    fn prepare(&self, report: &Report) -> Result<()> {
        report.progress("building the tool and the checked kernel");
        self.build_tool()?;
        if self.builds_kernel {
            kernel::build(&self.root, "checked", true)?;
        }
        Ok(())
    }

    fn build_tool(&self) -> Result<()> {
        let mut command = cargo(&self.root);
        command.args(["build", "--quiet", "--release", "--package", "cli"]);
        if !command.status().context("cannot run cargo")?.success() {
            bail!("the tool does not build");
        }
        Ok(())
    }
}
