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

use super::boot::Running;
use super::footprint::{self, ENOUGH_MIB};
use super::modelled::{MODEL, Modelled};
use super::outcome::{DEFAULTS, Samples};
use super::peer::{Boot, Mitigations, Peer};
use super::progress::Progress;
use super::suite::{Place, Run, Suite, What};
use super::{apps, boot, guest, host_cpu};
use crate::machine::{find_kernel, find_qemu};
use crate::model::Model;
use crate::run::{default_kernel, source_root};

/// A machine with the model may take so many times as long.
const MODEL_SLOWNESS: u32 = 10;
/// A kernel that has not run `echo` by then has too little memory.
const ECHO_DEADLINE: Duration = Duration::from_secs(20);

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
    /// Each side once more with the model of caches and TLBs, in the first repeat.
    pub with_model: bool,
    /// What no run may take longer than, instead of what the suite says.
    pub deadline: Option<Duration>,
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
    /// What the model counted.
    pub modelled: Vec<Modelled>,
}

/// Becomes true with the first Ctrl-C; the second one ends the tool.
pub fn watch_interrupts() -> Result<Arc<AtomicBool>> {
    use signal_hook::{consts::SIGINT, flag};
    let interrupted = Arc::new(AtomicBool::new(false));
    flag::register_conditional_shutdown(SIGINT, 130, interrupted.clone())?;
    flag::register(SIGINT, interrupted.clone())?;
    Ok(interrupted)
}

/// The sides of a suite's runs, in the order in which they are measured.
pub fn plan(suite: &Suite, wanted: Wanted) -> Vec<String> {
    let repeats = (1..=wanted.repeats).flat_map(|repeat| runs_of(suite, wanted, repeat == 1));
    repeats.map(|(run, variant)| side_of(run, variant)).collect()
}

/// What the figures of a run begin with.
fn side_of(run: &Run, variant: Variant) -> String {
    match variant {
        Variant::Plain => run.side.to_owned(),
        Variant::Defaults => format!("{}{DEFAULTS}", run.side),
        Variant::Model => format!("{}{MODEL}", run.side),
    }
}

/// Measures a suite. `keep` is called after each repeat with what there is so far.
pub fn measure(
    suite: &Suite,
    wanted: Wanted,
    interrupted: &AtomicBool,
    progress: &mut Progress,
    mut keep: impl FnMut(&Measured) -> Result<()>,
) -> Result<Measured> {
    let tools = Tools::prepare(suite, wanted)?;
    let mut measured = Measured::default();
    for repeat in 1..=wanted.repeats {
        for (run, variant) in runs_of(suite, wanted, repeat == 1) {
            let side = side_of(run, variant);
            progress.show(suite.name, &side, repeat, wanted.repeats);
            let result = match variant {
                Variant::Plain => tools.run(run, Mitigations::Off),
                Variant::Defaults => tools.run(run, Mitigations::Defaults),
                Variant::Model => tools.model(suite, run).map(|modelled| {
                    measured
                        .samples
                        .extend(modelled.samples().map(|(name, value)| (name, vec![value])));
                    measured.modelled.push(modelled);
                    Vec::new()
                }),
            };
            if interrupted.load(Ordering::Relaxed) {
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
                    let what = format!("{}, {side}, ", suite.name);
                    let why = format!(": {error:#}");
                    // What fails again and again in the same way is said once.
                    let is_same =
                        |known: &String| known.starts_with(&what) && known.ends_with(&why);
                    if !measured.failures.iter().any(is_same) {
                        measured.failures.push(format!("{what}repeat {repeat}{why}"));
                    }
                }
            }
        }
        keep(&measured)?;
    }
    Ok(measured)
}

/// How a run is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    Plain,
    /// The peer with Debian's defaults.
    Defaults,
    /// With the model of caches and TLBs.
    Model,
}

/// What a repeat runs, in this order.
fn runs_of(suite: &Suite, wanted: Wanted, is_first: bool) -> impl Iterator<Item = (&Run, Variant)> {
    let runs = suite.runs.iter().filter(move |run| wanted.has(run) && (is_first || !run.is_once));
    runs.flat_map(move |run| {
        let again = is_first && wanted.with_defaults && matches!(run.place, Place::Peer(_));
        let is_machine = run.place != Place::Host && matches!(run.what, What::Program(_));
        let with_model = is_first && wanted.with_model && is_machine;
        let defaults = again.then_some((run, Variant::Defaults));
        let model = with_model.then_some((run, Variant::Model));
        [Some((run, Variant::Plain)), defaults, model].into_iter().flatten()
    })
}

/// What the runs of a suite need.
struct Tools {
    cpus: u32,
    deadline: Duration,
    program: PathBuf,
    images: Option<guest::Images>,
    peer: Option<Peer>,
    /// Archives of programs, or why there is none.
    apps: Vec<(&'static str, Result<PathBuf>)>,
    examples: Vec<(&'static str, PathBuf)>,
}

impl Tools {
    fn prepare(suite: &Suite, wanted: Wanted) -> Result<Tools> {
        let runs = || suite.runs.iter().filter(|run| wanted.has(run));
        let needs_machine = runs().any(|run| !matches!(run.place, Place::Host));
        // What is missing for every run is said once.
        if needs_machine {
            find_qemu()?;
        }
        if runs().any(|run| matches!(run.place, Place::Ferry(_))) {
            find_kernel(&default_kernel())?;
        }
        let work = source_root().join("target/bench");
        std::fs::create_dir_all(&work)
            .with_context(|| format!("cannot create {}", work.display()))?;
        let program = guest::compile(suite, &work)?;
        let images = match needs_machine {
            true => Some(guest::Images::pack(&work, &program)?),
            false => None,
        };
        let peer = if runs().any(|run| matches!(run.place, Place::Peer(_))) {
            Some(Peer::fetch(&work.join("peer"), &program)?)
        } else {
            None
        };
        let mut examples = Vec::new();
        let mut apps: Vec<(&'static str, Result<PathBuf>)> = Vec::new();
        for run in runs() {
            match run.what {
                What::Example(name, _) => examples.push((name, guest::build_example(name)?)),
                What::App(app) if apps.iter().all(|(known, _)| *known != app.name) => {
                    apps.push((app.name, apps::pack(app, &work, &program)));
                }
                _ => {}
            }
        }
        let cpus = wanted.cpus.unwrap_or(suite.cpus);
        let deadline = wanted.deadline.unwrap_or(Duration::from_secs(suite.deadline_s));
        Ok(Tools { cpus, deadline, program, images, peer, apps, examples })
    }

    fn run(&self, run: &Run, mitigations: Mitigations) -> Result<Vec<(String, f64)>> {
        let deadline = self.deadline;
        let start = |guest, memory_mib, deadline| {
            let cpus = run.cpus.unwrap_or(self.cpus);
            let place = run.place;
            let machine = Machine { place, mitigations, guest, cpus, memory_mib, model: None };
            self.start(&machine, deadline)
        };
        let start_program = |arguments| start(Guest::Program(arguments), ENOUGH_MIB, deadline);
        match run.what {
            What::Program(arguments) => guest::figures(&start_program(arguments)?.finish()?.output),
            What::App(app) => {
                let running = start(Guest::App(app.name), ENOUGH_MIB, deadline)?;
                guest::figures(&running.finish()?.output)
            }
            What::WallOfTrue => {
                let wall = start(Guest::True, ENOUGH_MIB, deadline)?.finish()?.wall;
                Ok(vec![("wall".to_owned(), wall.as_secs_f64() * 1e3)])
            }
            What::Asleep => {
                let mut running = start_program(&[])?;
                running.wait_for_line("asleep")?;
                let share = host_cpu::share_of_machine(running.id())?;
                let mut figures = guest::figures(&running.finish()?.output)?;
                figures.push(("host_cpu".to_owned(), share));
                Ok(figures)
            }
            What::ImageSize => {
                let kernel = match run.place {
                    Place::Peer(_) => self.peer()?.kernel(),
                    Place::Ferry(_) | Place::Host => &default_kernel(),
                };
                footprint::image_size(kernel, &self.images()?.program)
            }
            What::LeastMemory => {
                let least = footprint::least_memory(deadline, |memory_mib, left| {
                    let output =
                        start(Guest::Echo, memory_mib, left.min(ECHO_DEADLINE))?.finish()?.output;
                    if output.lines().any(|line| line.trim() == "alive") {
                        Ok(())
                    } else {
                        bail!("busybox echo printed {output:?}")
                    }
                })?;
                Ok(vec![("least_memory".to_owned(), least.into())])
            }
            What::Example(name, arguments) => {
                let program = self.examples.iter().find(|(known, _)| *known == name);
                let (_, program) = program.context("the example was not built")?;
                let mut command = Command::new(program);
                guest::figures(&boot::run(command.args(arguments), name, deadline)?.output)
            }
        }
    }

    /// Runs the guest program with the model.
    fn model(&self, suite: &Suite, run: &Run) -> Result<Modelled> {
        let What::Program(arguments) = run.what else { bail!("only programs are modelled") };
        let file = self.program.with_extension(format!("{}{MODEL}.json", run.side));
        let machine = Machine {
            place: run.place,
            mitigations: Mitigations::Off,
            guest: Guest::Program(run.modelled.unwrap_or(arguments)),
            cpus: run.cpus.unwrap_or(self.cpus),
            memory_mib: ENOUGH_MIB,
            model: Some(&file),
        };
        let finished = self.start(&machine, self.deadline * MODEL_SLOWNESS)?.finish()?;
        // Its times are of no use, but how much it did is.
        let printed = guest::figures(&finished.output)?;
        Modelled::read(suite.name, run.side, &file, &printed)
    }

    fn peer(&self) -> Result<&Peer> {
        self.peer.as_ref().context("the peer was not prepared")
    }

    fn images(&self) -> Result<&guest::Images> {
        self.images.as_ref().context("the archives were not packed")
    }

    fn app(&self, name: &str) -> Result<&Path> {
        let app = self.apps.iter().find(|(known, _)| *known == name);
        match app.context("the program was not packed")? {
            (_, Ok(archive)) => Ok(archive),
            (_, Err(error)) => bail!("{error:#}"),
        }
    }

    /// Starts a machine, or the guest program on the host.
    fn start(&self, machine: &Machine<'_>, deadline: Duration) -> Result<Running> {
        let Machine { guest, cpus, memory_mib, .. } = *machine;
        match machine.place {
            Place::Ferry(words) => {
                let mut words = words.split(' ');
                let path = words.next().unwrap_or_default();
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["run", "--path", path, "--cpus", &cpus.to_string()]).args(words);
                command.args(["--memory", &format!("{memory_mib}M")]);
                if let Some(file) = machine.model {
                    command.arg("--model").arg(file);
                }
                match guest {
                    Guest::Program(arguments) => {
                        command.arg("--").arg(&self.program).args(arguments)
                    }
                    Guest::App(name) => {
                        command.arg("--rootfs").arg(self.app(name)?).args(["--", "/init", name])
                    }
                    Guest::True => command.args(["--", "true"]),
                    Guest::Echo => command.args(["--", "busybox", "echo", "alive"]),
                };
                Running::start(&mut command, &format!("ferry run --path {path}"), deadline)
            }
            Place::Peer(words) => {
                let (peer, images) = (self.peer()?, self.images()?);
                let (initramfs, words) = match guest {
                    Guest::Program(arguments) => {
                        (images.program.as_path(), format!("{words} -- {}", arguments.join(" ")))
                    }
                    Guest::App(name) => (self.app(name)?, format!("{words} -- {name}")),
                    Guest::True => (images.scripts.as_path(), format!("{words} rdinit=/run-true")),
                    Guest::Echo => (images.scripts.as_path(), format!("{words} rdinit=/run-echo")),
                };
                let mitigations = machine.mitigations;
                let words = &words;
                let model = match machine.model {
                    Some(file) => Some(Model::prepare(file, &[], Some(&self.program))?),
                    None => None,
                };
                let plugin = model.as_ref().map(Model::argument);
                let boot = Boot { initramfs, mitigations, words, cpus, memory_mib, plugin };
                peer.start(&boot, deadline)
            }
            Place::Host => {
                let Guest::Program(arguments) = guest else {
                    bail!("only the guest program runs on the host too");
                };
                let what = self.program.display().to_string();
                Running::start(Command::new(&self.program).args(arguments), &what, deadline)
            }
        }
    }
}

/// One boot, or one start on the host.
struct Machine<'a> {
    place: Place,
    mitigations: Mitigations,
    guest: Guest,
    cpus: u32,
    memory_mib: u32,
    /// Where what the model counts goes, if it does.
    model: Option<&'a Path>,
}

/// What a machine runs.
#[derive(Clone, Copy)]
enum Guest {
    /// The guest program with these arguments.
    Program(&'static [&'static str]),
    /// The guest program as process 1 of the archive of this program, its argument.
    App(&'static str),
    /// `true`.
    True,
    /// `busybox echo alive`.
    Echo,
}
