//! The suite `null`: what the shortest things cost. The guest program is `bench/guest/null.c`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::boot;
use super::peer::Peer;
use super::{Case, Samples};
use crate::image::{AddedFile, Image};
use crate::run::source_root;

/// Name of the suite.
pub const NAME: &str = "null";
/// Virtual CPUs of both sides.
const CPUS: u32 = 2;
/// A run on Ferry never takes longer than this.
const DEADLINE: Duration = Duration::from_secs(90);

/// What is measured, and the ratio to Linux that Ferry wants to stay within.
pub const CASES: &[Case] = &[
    case("getppid, local", "ns", "local getppid", "linux getppid", 0.60),
    case("getppid, remote", "ns", "remote getppid", "linux getppid", 1.5),
    case("read 1 byte, local", "ns", "local read_zero_1", "linux read_zero_1", 0.60),
    case("fork, exit, wait", "ns", "remote fork_exit_wait", "linux fork_exit_wait", 0.80),
    case("fork, exec, wait", "ns", "remote fork_exec_exit_wait", "linux fork_exec_exit_wait", 0.80),
    case("page fault", "ns", "remote page_fault", "linux page_fault", 0.80),
    case("first user code", "ns", "remote first_user", "linux first_user", 0.10),
    case("wall time of true", "ms", "remote wall", "linux wall", 0.4),
];

const fn case(
    name: &'static str,
    unit: &'static str,
    ferry: &'static str,
    peer: &'static str,
    target: f64,
) -> Case {
    Case { name, unit, ferry, peer, target }
}

/// Measures everything `repeat` times, Ferry and peer in turn. Returns the figures and what failed.
pub fn measure(repeat: u32, with_peer: bool) -> Result<(Samples, Vec<String>)> {
    let work = source_root().join("target/bench");
    std::fs::create_dir_all(&work)?;
    let program = compile(&work)?;
    let peer = if with_peer { Some(Peer::fetch(&work.join("peer"), &program)?) } else { None };
    let images = Images::pack(&work, &program)?;
    let mut samples = Samples::new();
    let mut failures = Vec::new();
    for round in 1..=repeat {
        eprintln!("ferry bench: null, repeat {round} of {repeat}");
        let mut note = |side: &str, result: Result<Vec<(String, f64)>>| match result {
            Ok(figures) => {
                for (key, value) in figures {
                    samples.entry(format!("{side} {key}")).or_default().push(value);
                }
            }
            Err(error) => failures.push(format!("{side}, repeat {round}: {error:#}")),
        };
        for path in ["local", "remote"] {
            note(path, ferry(path, &program).and_then(|output| figures(&output)));
        }
        note("remote", ferry_wall());
        if let Some(peer) = &peer {
            note("linux", peer.boot(&images.null, "", CPUS).and_then(|run| figures(&run.output)));
            let wall = peer.boot(&images.wall, "rdinit=/run-true", CPUS);
            note("linux", wall.map(|run| vec![("wall".to_owned(), run.wall.as_secs_f64() * 1e3)]));
        }
    }
    Ok((samples, failures))
}

/// Builds the guest program, static.
fn compile(work: &Path) -> Result<PathBuf> {
    let source = source_root().join("bench/guest/null.c");
    let program = work.join("null");
    let status = Command::new("cc")
        .args(["-O2", "-static", "-o"])
        .args([&program, &source])
        .status()
        .context("cannot run cc: install the packages gcc and libc6-dev")?;
    if !status.success() {
        bail!("cc could not build {}: {status}", source.display());
    }
    Ok(program)
}

/// Initramfs archives for the peer.
struct Images {
    null: PathBuf,
    wall: PathBuf,
}

impl Images {
    /// Both start from the root file system that `ferry run` uses. In the second, a script stands in
    /// the place of Ferry's process 1: it runs the program and switches off.
    fn pack(work: &Path, program: &Path) -> Result<Images> {
        let script = work.join("run-true");
        std::fs::write(&script, "#!/bin/busybox sh\n/bin/true\nexec /bin/busybox poweroff -f\n")?;
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
        let pack = |name: &str, host: &Path, guest: &str| -> Result<PathBuf> {
            let mut image = Image::with_default_root(Vec::new())?;
            image.add_file(&AddedFile { host: host.into(), guest: Some(guest.into()) })?;
            let path = work.join(name);
            image.write(std::fs::File::create(&path)?)?;
            Ok(path)
        };
        Ok(Images {
            null: pack("null.cpio", program, "/init")?,
            wall: pack("wall.cpio", &script, "/run-true")?,
        })
    }
}

fn ferry_command(path: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run", "--path", path, "--cpus", &CPUS.to_string(), "--"]);
    Ok(command)
}

fn ferry(path: &str, program: &Path) -> Result<String> {
    let what = format!("ferry run --path {path}");
    Ok(boot::run(ferry_command(path)?.arg(program), &what, DEADLINE)?.output)
}

fn ferry_wall() -> Result<Vec<(String, f64)>> {
    let run = boot::run(ferry_command("remote")?.arg("true"), "ferry run -- true", DEADLINE)?;
    Ok(vec![("wall".to_owned(), run.wall.as_secs_f64() * 1e3)])
}

/// The figures in the output of the guest program; an error unless it came to its end.
fn figures(output: &str) -> Result<Vec<(String, f64)>> {
    if !output.lines().any(|line| line.trim() == "end") {
        bail!("the guest program did not come to its end; it printed {output:?}");
    }
    let mut figures = Vec::new();
    for line in output.lines() {
        if let ["case", name, _unit, value] = line.split_whitespace().collect::<Vec<_>>()[..] {
            let value = value.parse().with_context(|| format!("{line:?} has no figure"))?;
            figures.push((name.to_owned(), value));
        }
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_and_other_lines_left_alone() {
        let output = "[ 0.3] PCI: x\r\ncase getppid ns 12.5\r\nend\r\n";
        assert_eq!(figures(output).unwrap(), [("getppid".to_owned(), 12.5)]);
    }

    #[test]
    fn output_without_an_end_is_an_error() {
        assert!(figures("case getppid ns 12.5\n").is_err());
    }
}
