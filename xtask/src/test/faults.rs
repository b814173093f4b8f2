//! Faults on purpose: a handler that panics, a kernel that panics, and the machine tested without the
//! kernel. The panics are provoked through `/proc/ferry/panic`, which only checked kernels have.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Bench;
use super::boot::{Boot, CONFIGURATIONS, Configuration};
use crate::process;

/// What one boot may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// What the compiler may take for the self-test.
const BUILD_DEADLINE: Duration = Duration::from_secs(600);

fn shell(bench: &Bench, configuration: Configuration, text: &str) -> Result<Boot> {
    let program = ["busybox", "sh", "-c", text];
    bench.ferry.boot("faults", configuration, &[], &program, b"", DEADLINE)
}

/// The call of a handler that panics answers EIO, its server is restarted, and calls go on.
pub fn panic_of_a_handler(bench: &Bench) -> Result<()> {
    let text = "cd /proc/ferry; cat panic; echo handler >panic; echo status $?; cat panic; \
                echo on >/tmp/file; cat /tmp/file | cat";
    for configuration in CONFIGURATIONS {
        let boot = shell(bench, configuration, text)?;
        let name = configuration.name();
        let output = &boot.finished.stdout;
        let expected = "restarts 0\nstatus 1\nrestarts 1\non\n";
        ensure!(
            boot.finished.status == 0 && output == expected,
            "{name}: {output:?}, not {expected:?}\n{}",
            boot.describe_machine()
        );
        let errors = &boot.finished.stderr;
        ensure!(errors.contains("Input/output error"), "{name}: no EIO: {errors:?}");
    }
    Ok(())
}

/// A panic that nothing contains ends the machine with status 70, the message and the functions.
pub fn panic_of_the_kernel(bench: &Bench) -> Result<()> {
    // Two cores: the core loop of the kernel core has no handler around it.
    let boot = shell(bench, CONFIGURATIONS[3], "echo kernel >/proc/ferry/panic; sleep 20")?;
    let (status, errors) = (boot.finished.status, &boot.finished.stderr);
    ensure!(status == 70, "exit status {status}, not 70\n{}", boot.describe_machine());
    for part in ["a test asks the kernel to panic", "fault.rs", "expire"] {
        ensure!(errors.contains(part), "{part:?} is not in the report: {errors}");
    }
    Ok(())
}

/// The self-test of the hardware layer passes on one core and on two.
pub fn machine_alone(bench: &Bench) -> Result<()> {
    let mut build = Command::new("sh");
    build.arg("hal/build-selftest.sh").current_dir(&bench.root);
    // Set by an outer cargo for its own tool chain; they would mislead this one.
    build.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC_WRAPPER");
    let built = process::run(&mut build, b"", BUILD_DEADLINE)?;
    ensure!(built.succeeded(), "the self-test does not build: {}", built.describe());
    let image = built.stdout.lines().last().context("the path of the self-test")?;
    for cores in ["1", "2"] {
        let mut machine = Command::new("qemu-system-x86_64");
        machine.args(["-M", "microvm", "-accel", "tcg,thread=multi", "-cpu", "max"]);
        machine.args(["-smp", cores, "-m", "512M", "-nodefaults", "-no-reboot"]);
        machine.args(["-display", "none", "-serial", "stdio", "-kernel"]);
        machine.arg(bench.root.join(image));
        let finished = process::run(&mut machine, b"", DEADLINE)?;
        ensure!(
            finished.stdout.contains("selftest: passed"),
            "{cores} cores: {}",
            finished.describe()
        );
    }
    Ok(())
}
