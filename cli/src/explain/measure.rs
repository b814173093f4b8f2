//! Running the program on each path, and what comes of it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use model::Counts;

use super::Machine;
use crate::model::Modelled;
use crate::run::{CallFigures, Figures};
use crate::status;

/// The choice call by call, which stands beside the paths.
pub const AUTO: &str = "auto";
/// Name and cores of each path.
const PATHS: [(&str, &str); 4] = [("local", "1"), ("remote", "2"), ("posted", "2"), (AUTO, "2")];
/// How often a run is timed; the shortest counts.
const TIMES: u32 = 2;
/// A machine with the model may take so many times as long.
const MODEL_SLOWNESS: u32 = 10;
/// Tells a program that fails from a tool that does.
const MESSAGE: &str = "ferry: ";

/// What a program did on a path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathFigures {
    /// The path.
    pub path: String,
    /// How long the program took, without the machine's start, in milliseconds.
    pub program_ms: f64,
    /// By how much runs of the same differ, in milliseconds.
    pub spread_ms: f64,
    /// Its calls.
    pub calls: Vec<CallFigures>,
    /// Times that a core was woken for another, and times that one found work without that.
    pub doorbells: u64,
    /// What the model counted on the program's core, without the machine's start; nothing where the
    /// run with the model failed.
    pub modelled: Option<Counts>,
}

/// What came of it.
pub enum Measured {
    /// The figures of all paths.
    Paths(Vec<PathFigures>),
    /// The program did not end well; why has been said.
    Failed(u8),
}

/// The shortest of the runs of something that ended well.
struct Run {
    wall: Duration,
    /// The longest.
    longest: Duration,
    figures: Figures,
}

impl Run {
    /// The shorter of two runs of the same.
    fn or_shorter(self, other: Run) -> Run {
        let longest = self.longest.max(other.longest);
        let shorter = if other.wall < self.wall { other } else { self };
        Run { longest, ..shorter }
    }

    fn spread(&self) -> Duration {
        self.longest.saturating_sub(self.wall)
    }
}

/// Where files of this command go; gone with it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is in nobody's way.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Measures a program.
pub fn measure(
    program: &[OsString],
    machine_options: &Machine,
    timeout: Duration,
) -> Result<Measured> {
    let folder = Folder(std::env::temp_dir().join(format!("ferry-explain-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0)
        .with_context(|| format!("cannot create {}", folder.0.display()))?;
    // The run under way ends by the same Ctrl-C, and then this command does, by its own way out.
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::default())?;
    let nothing = [OsString::from("true")];
    let mut paths = Vec::new();
    for (path, cpus) in PATHS {
        eprintln!("ferry explain: {path}");
        let options = machine_options.words(cpus);
        let machine = |program: &[OsString]| -> Result<Result<Run, Output>> {
            let mut best: Option<Run> = None;
            for _ in 0..TIMES {
                match timed(&folder.0, path, &options, program, timeout)? {
                    Err(output) => return Ok(Err(output)),
                    Ok(run) => {
                        best = Some(match best.take() {
                            Some(best) => best.or_shorter(run),
                            None => run,
                        });
                    }
                }
            }
            Ok(Ok(best.context("a run was timed")?))
        };
        let run = match machine(program)? {
            Ok(run) => run,
            Err(output) => return Ok(Measured::Failed(tell_failure(path, &output))),
        };
        let without = match machine(&nothing)? {
            Ok(run) => run,
            Err(output) => return Ok(Measured::Failed(tell_failure(path, &output))),
        };
        let modelled = |program: &[OsString]| {
            modelled(&folder.0, path, &options, program, timeout * MODEL_SLOWNESS)
        };
        let modelled = modelled(program).and_then(|with| Ok(less(&with, &modelled(&nothing)?)));
        if let Err(error) = &modelled {
            eprintln!("ferry explain: {path}, with the model: {error:#}");
        }
        let counter = |name: &str| run.figures.counters.get(name).copied().unwrap_or(0);
        paths.push(PathFigures {
            path: path.to_owned(),
            program_ms: run.wall.saturating_sub(without.wall).as_secs_f64() * 1e3,
            spread_ms: (run.spread() + without.spread()).as_secs_f64() * 1e3,
            doorbells: counter("doorbells"),
            calls: run.figures.calls,
            modelled: modelled.ok(),
        });
    }
    Ok(Measured::Paths(paths))
}

fn command(path: &str, options: &[String], timeout: Duration) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run", "--path", path]).args(options);
    command.args(["--timeout", &timeout.as_secs_f64().to_string()]);
    // What the program prints is of no interest, and a pipe that nobody reads would stop it.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Ok(command)
}

/// Runs it once for the time; what was said when it does not end well.
fn timed(
    folder: &Path,
    path: &str,
    options: &[String],
    program: &[OsString],
    timeout: Duration,
) -> Result<Result<Run, Output>> {
    let file = folder.join("figures.json");
    let mut command = command(path, options, timeout)?;
    command.arg("--figures").arg(&file).arg("--").args(program);
    let start = Instant::now();
    let output = command.output().context("cannot run the tool itself")?;
    let wall = start.elapsed();
    if !output.status.success() {
        return Ok(Err(output));
    }
    let text = std::fs::read_to_string(&file).context("the run left no figures")?;
    let figures = serde_json::from_str(&text).context("the figures are odd")?;
    Ok(Ok(Run { wall, longest: wall, figures }))
}

/// What the model counts on the program's core.
fn modelled(
    folder: &Path,
    path: &str,
    options: &[String],
    program: &[OsString],
    timeout: Duration,
) -> Result<Counts> {
    let file = folder.join("model.json");
    let mut command = command(path, options, timeout)?;
    command.arg("--model").arg(&file).arg("--").args(program);
    let output = command.output().context("cannot run the tool itself")?;
    if !output.status.success() {
        anyhow::bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let text = std::fs::read_to_string(&file).context("it left no figures")?;
    let modelled: Modelled = serde_json::from_str(&text).context("it left odd figures")?;
    let first = modelled.report.regions.first().and_then(|region| region.cpus.first());
    first.copied().context("it counted nothing")
}

/// What is left when the start of the machine is taken away.
fn less(with: &Counts, without: &Counts) -> Counts {
    Counts {
        user: with.user.saturating_sub(without.user),
        kernel: with.kernel.saturating_sub(without.kernel),
        waiting_user: with.waiting_user.saturating_sub(without.waiting_user),
        waiting: with.waiting.saturating_sub(without.waiting),
        l1i: with.l1i.saturating_sub(without.l1i),
        l1d: with.l1d.saturating_sub(without.l1d),
        llc_memory: with.llc_memory.saturating_sub(without.llc_memory),
        coherence: with.coherence.saturating_sub(without.coherence),
        interrupts: with.interrupts.saturating_sub(without.interrupts),
        exceptions: with.exceptions.saturating_sub(without.exceptions),
        ..Counts::default()
    }
}

/// Says why a run did not end well, as `ferry run` would; returns its status.
fn tell_failure(path: &str, output: &Output) -> u8 {
    let code = output.status.code().and_then(|code| u8::try_from(code).ok());
    let code = code.unwrap_or(status::SOFTWARE);
    let said = String::from_utf8_lossy(&output.stderr);
    eprint!("{said}");
    // What the tool itself has to say is enough.
    if !said.contains(MESSAGE) {
        let what = match code {
            status::TIMED_OUT => "did not end in time; --timeout gives it more".to_owned(),
            code => format!("ended with status {code}"),
        };
        eprintln!("ferry: the program {what} (path {path}), so there is nothing to explain");
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_the_machine_is_taken_away() {
        let with = Counts { user: 10, kernel: 20, l1d: 3, ..Counts::default() };
        let without = Counts { user: 1, kernel: 5, l1d: 4, ..Counts::default() };
        let left = less(&with, &without);
        assert_eq!((left.user, left.kernel, left.l1d), (9, 15, 0));
    }

    #[test]
    fn the_shorter_run_counts_and_the_longer_one_is_not_forgotten() {
        let run = |ms| {
            let wall = Duration::from_millis(ms);
            Run { wall, longest: wall, figures: Figures::default() }
        };
        let of_three = run(20).or_shorter(run(10)).or_shorter(run(15));
        assert_eq!(of_three.wall, Duration::from_millis(10));
        assert_eq!(of_three.spread(), Duration::from_millis(10));
    }

    #[test]
    fn files_are_gone_with_the_command() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder(directory.path().join("f"));
        std::fs::create_dir(&folder.0).unwrap();
        std::fs::write(folder.0.join("file"), "x").unwrap();
        drop(folder);
        assert!(!directory.path().join("f").exists());
    }
}
