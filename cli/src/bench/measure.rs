//! Measuring a suite: its runs in turn, as often as asked for.
//!
//! A run that fails or exceeds its deadline is noted, and the rest goes on. Ctrl-C ends after the run
//! under way; what was measured is kept. A second one ends at once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::outcome::{DEFAULTS, Samples};
use super::peer::{Mitigations, Peer};
use super::progress::Progress;
use super::suite::{Place, Run, Suite, What};
use super::{boot, guest};
use crate::run::source_root;

/// Which of a suite's runs are wanted.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// How often.
    pub repeats: u32,
    /// With the peer.
    pub with_peer: bool,
    /// Only what needs no virtual machine.
    pub is_native: bool,
    /// The peer once with Debian's defaults too, in the first repeat.
    pub with_defaults: bool,
    /// Virtual CPUs, for runs that do not say so themselves.
    pub cpus: Option<u32>,
}

impl Wanted {
    fn has(self, run: &Run) -> bool {
        match run.place {
            Place::Host => true,
            Place::Ferry(_) => !self.is_native,
            Place::Peer(_) => !self.is_native && self.with_peer,
        }
    }
}

/// What was measured of a suite.
#[derive(Default)]
pub struct Measured {
    /// Figures by name.
    pub samples: Samples,
    /// What failed, in words.
    pub failures: Vec<String>,
}

/// Becomes true with the first Ctrl-C; the second one ends the tool.
pub fn watch_interrupts() -> Result<Arc<AtomicBool>> {
    use signal_hook::{consts::SIGINT, flag};
    let interrupted = Arc::new(AtomicBool::new(false));
    flag::register_conditional_shutdown(SIGINT, 130, interrupted.clone())?;
    flag::register(SIGINT, interrupted.clone())?;
    Ok(interrupted)
}

/// Measures a suite. `keep` is called after each repeat with what there is so far.
pub fn measure(
    suite: &Suite,
    wanted: Wanted,
    interrupted: &AtomicBool,
    mut keep: impl FnMut(&Measured) -> Result<()>,
) -> Result<Measured> {
    let tools = Tools::prepare(suite, wanted)?;
    let mut measured = Measured::default();
    let total = runs_of(suite, wanted, true).count()
        + runs_of(suite, wanted, false).count() * (wanted.repeats as usize - 1);
    let mut progress = Progress::new(suite.name, total);
    for repeat in 1..=wanted.repeats {
        for (run, mitigations) in runs_of(suite, wanted, repeat == 1) {
            let side = match mitigations {
                Mitigations::Off => run.side.to_owned(),
                Mitigations::Defaults => format!("{}{DEFAULTS}", run.side),
            };
            progress.show(&side, repeat, wanted.repeats);
            let result = tools.run(suite, run, mitigations);
            if interrupted.load(Ordering::Relaxed) {
                progress.clear();
                measured.failures.push(format!("{}: interrupted in repeat {repeat}", suite.name));
                keep(&measured)?;
                return Ok(measured);
            }
            progress.step();
            match result {
                Ok(figures) => {
                    for (name, value) in figures {
                        let name = format!("{side} {name}");
                        measured.samples.entry(name).or_default().push(value);
                    }
                }
                Err(error) => {
                    let what = format!("{}, {side}, repeat {repeat}", suite.name);
                    measured.failures.push(format!("{what}: {error:#}"));
                }
            }
        }
        keep(&measured)?;
    }
    progress.clear();
    Ok(measured)
}

/// What a repeat runs, in this order.
fn runs_of(
    suite: &Suite,
    wanted: Wanted,
    is_first: bool,
) -> impl Iterator<Item = (&Run, Mitigations)> {
    let runs = suite.runs.iter().filter(move |run| wanted.has(run) && (is_first || !run.is_once));
    runs.flat_map(move |run| {
        let again = is_first && wanted.with_defaults && matches!(run.place, Place::Peer(_));
        let again = again.then_some((run, Mitigations::Defaults));
        [Some((run, Mitigations::Off)), again].into_iter().flatten()
    })
}

/// What the runs of a suite need.
struct Tools {
    cpus: u32,
    program: PathBuf,
    peer: Option<(Peer, guest::Images)>,
    examples: Vec<(&'static str, PathBuf)>,
}

impl Tools {
    fn prepare(suite: &Suite, wanted: Wanted) -> Result<Tools> {
        let work = source_root().join("target/bench");
        std::fs::create_dir_all(&work)
            .with_context(|| format!("cannot create {}", work.display()))?;
        let program = guest::compile(suite, &work)?;
        let runs = || suite.runs.iter().filter(|run| wanted.has(run));
        let peer = if runs().any(|run| matches!(run.place, Place::Peer(_))) {
            let images = guest::Images::pack(&work, &program)?;
            Some((Peer::fetch(&work.join("peer"), &program)?, images))
        } else {
            None
        };
        let mut examples = Vec::new();
        for run in runs() {
            if let What::Example(name, _) = run.what {
                examples.push((name, guest::build_example(name)?));
            }
        }
        Ok(Tools { cpus: wanted.cpus.unwrap_or(suite.cpus), program, peer, examples })
    }

    fn run(
        &self,
        suite: &Suite,
        run: &Run,
        mitigations: Mitigations,
    ) -> Result<Vec<(String, f64)>> {
        let cpus = run.cpus.unwrap_or(self.cpus);
        let deadline = Duration::from_secs(suite.deadline_s);
        match (run.place, run.what) {
            (Place::Ferry(path), What::WallOfTrue) => {
                let mut command = ferry(path, cpus)?;
                let finished = boot::run(command.arg("true"), "ferry run -- true", deadline)?;
                Ok(wall(&finished))
            }
            (Place::Ferry(path), What::Program(arguments)) => {
                let mut command = ferry(path, cpus)?;
                command.arg(&self.program).args(arguments);
                let what = format!("ferry run --path {path}");
                guest::figures(&boot::run(&mut command, &what, deadline)?.output)
            }
            (Place::Peer(words), what) => {
                let (peer, images) = self.peer.as_ref().context("the peer was not prepared")?;
                let boot = |initramfs: &Path, words: &str| {
                    peer.boot(initramfs, mitigations, words, cpus, deadline)
                };
                match what {
                    What::WallOfTrue => {
                        Ok(wall(&boot(&images.wall, &format!("{words} rdinit=/run-true"))?))
                    }
                    What::Program(arguments) => {
                        let words = format!("{words} -- {}", arguments.join(" "));
                        guest::figures(&boot(&images.program, &words)?.output)
                    }
                    What::Example(..) => bail!("an example of a crate runs on the host only"),
                }
            }
            (_, What::Example(name, arguments)) => {
                let program = self.examples.iter().find(|(known, _)| *known == name);
                let (_, program) = program.context("the example was not built")?;
                host(program, arguments, deadline)
            }
            (Place::Host, What::Program(arguments)) => host(&self.program, arguments, deadline),
            (Place::Host, What::WallOfTrue) => Ok(Vec::new()),
        }
    }
}

fn ferry(path: &str, cpus: u32) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run", "--path", path, "--cpus", &cpus.to_string(), "--"]);
    Ok(command)
}

fn host(program: &Path, arguments: &[&str], deadline: Duration) -> Result<Vec<(String, f64)>> {
    let what = program.display().to_string();
    guest::figures(&boot::run(Command::new(program).args(arguments), &what, deadline)?.output)
}

fn wall(finished: &boot::Finished) -> Vec<(String, f64)> {
    vec![("wall".to_owned(), finished.wall.as_secs_f64() * 1e3)]
}
