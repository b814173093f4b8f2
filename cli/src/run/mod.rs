//! `ferry run`: boots Ferry in QEMU, runs one program on it, and is that program to the caller: same
//! streams, same terminal, same exit status.
//!
//! `options` says what can be asked for, `session` keeps a running program company, `streams` moves
//! bytes, `stats` tells what the cores did, `top` shows it meanwhile, `log` keeps what the kernel says and `panic` explains its death.

mod channel;
mod disk;
mod history;
mod log;
mod options;
mod panic;
mod saved;
mod session;
mod stats;
mod streams;
mod terminal;
pub mod top;
mod trace;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::image::Image;
use crate::image::program::GUEST_PATH;
use crate::machine::{self, Machine};
use crate::model::Model;
use crate::status::{NotStarted, Usage};
use channel::Start;
use history::{History, Said};
use options::Root;
pub use options::{Arguments, CallPath, default_kernel, parse_events, parse_seconds, source_root};
pub use saved::Saved;
use session::{Session, Tells};
pub use stats::{CallFigures, Figures};
use top::Top;
use trace::Tracer;

/// Memory that Ferry needs beside the initramfs, which is there twice while it is unpacked, in MiB.
const LEAST_MEMORY_MIB: u64 = 12;

/// The program of this machine that a name means there.
fn locate_on_host(name: &Path, directory: &Path, search_path: &str) -> Result<PathBuf> {
    if name.components().count() > 1 || name.has_root() {
        return Ok(directory.join(name));
    }
    let candidates = std::env::split_paths(search_path).map(|directory| directory.join(name));
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    candidates.into_iter().find(is_program).ok_or_else(|| {
        let message = format!("{} is not in {search_path}", name.display());
        NotStarted { status: crate::status::NOT_FOUND, message }.into()
    })
}

/// Boot Ferry in QEMU and run one Linux program on it.
#[derive(Clone, clap::Args)]
pub struct Options {
    #[command(flatten)]
    pub run: Arguments,
    #[command(flatten)]
    disks: disk::DiskArguments,
}

/// Carries out `ferry run`; returns the exit status.
pub fn run(options: &Options) -> Result<u8> {
    run_with(options, None)
}

/// The same, with a view of what the machine does.
fn run_with(Options { run: arguments, disks }: &Options, top: Option<Top>) -> Result<u8> {
    let arguments = &*arguments.with_saved_layout()?;
    let layout = arguments.layout()?;
    let environment = arguments.environment()?;
    let value = |name: &str| {
        let prefix = format!("{name}=");
        environment.iter().find_map(|entry| entry.strip_prefix(&prefix).map(str::to_string))
    };
    let library_path = value("LD_LIBRARY_PATH")
        .map(|paths| std::env::split_paths(&paths).collect())
        .unwrap_or_default();
    let is_packed = arguments.root == Root::Ram;
    let adds_files = !arguments.files.is_empty() || !arguments.packages.is_empty();
    if !is_packed && (arguments.rootfs.is_some() || adds_files) {
        let text = "--root host and --root disk have files already; they take no --rootfs, no --file \
            and no --package";
        return Err(Usage(text.to_string()).into());
    }
    if arguments.root == Root::Disk {
        disks.check_root()?;
    }
    let mut image = match &arguments.rootfs {
        Some(rootfs) => Image::with_rootfs(rootfs)?,
        None if is_packed => Image::with_default_root(library_path)?,
        None => Image::empty(),
    };
    for file in &arguments.files {
        image.add_file(file)?;
    }
    for package in &arguments.packages {
        image.add_package(package)?;
    }
    let search_path = value("PATH").unwrap_or_else(|| GUEST_PATH.to_string());
    let (name, _) = arguments.program.split_first().context("no program given")?;
    let directory = &arguments.working_directory;
    let path = match arguments.root {
        Root::Host => locate_on_host(Path::new(name), directory, &search_path)?,
        // The guest looks for it.
        Root::Disk => PathBuf::from(name),
        Root::Ram => image.locate_program(Path::new(name), directory, &search_path)?,
    };
    for warning in &image.warnings {
        eprintln!("ferry: warning: {warning}");
    }

    let (initramfs, length) = image.write_to_memory()?;
    let needed_mib = LEAST_MEMORY_MIB + 2 * length.div_ceil(1 << 20);
    if arguments.memory_mib < needed_mib {
        let (given, files) = (arguments.memory_mib, length.div_ceil(1 << 20));
        let message = format!(
            "{given} MiB of memory are too few for {files} MiB of files; use --memory {needed_mib}M"
        );
        return Err(NotStarted { status: crate::status::NOT_RUNNABLE, message }.into());
    }
    let start = Start {
        path: &path,
        working_directory: directory,
        arguments: &arguments.program,
        environment: &environment,
    };
    let log = log::LogFile::create(arguments.log_file.as_deref())?;
    let kernel = arguments.kernel();
    // With the default root the program is the host's, of the same name.
    let is_of_host = arguments.rootfs.is_none() && arguments.root != Root::Disk;
    let program = Some(path.as_path()).filter(|path| is_of_host && path.is_file());
    let model = match &arguments.model {
        Some(out) => Some(Model::prepare(out, &arguments.model_size, program)?),
        None => None,
    };
    let tells = Tells {
        counters: arguments.stats,
        stages: arguments.stages,
        figures: arguments.figures.clone(),
        is_deterministic: arguments.record.is_some() || arguments.replay.is_some(),
    };
    let tracer = match (&arguments.trace, top) {
        (None, None) => None,
        (path, top) => {
            let path = path.as_deref();
            Some(Tracer::prepare(path, arguments.memory_mib, arguments.locks, top)?)
        }
    };
    let locked = disks.lock()?;
    let history = history_of(arguments, &layout, &initramfs, !locked.is_empty())?;
    let mut session = Session::prepare(arguments.timeout, tells, tracer)?;
    if locked.iter().any(|disk| !disk.is_read_only()) {
        session.wait_for_disks();
    }
    let digest = session.digest();
    let (running, connections) = machine::start(&Machine {
        kernel: &kernel,
        initramfs: &initramfs,
        command_line: arguments.command_line(&layout),
        cpus: arguments.cpus,
        memory_mib: arguments.memory_mib,
        memory: session.memory(),
        determinism: history.as_ref().map(|history| &history.determinism),
        plugin: model.as_ref().map(Model::argument),
        shares: arguments.shared_directories(),
        disks: disks.options(&locked),
    })?;
    // QEMU has its own reference; ours would keep the memory for the whole run.
    drop(initramfs);
    let mut status =
        session.accompany(running, connections, &start, log, arguments.log_level, &kernel)?;
    if let Some(model) = model {
        // The program has had its run: what it said is what the caller gets.
        if let Err(error) = model.finish(&kernel, program) {
            eprintln!("ferry: warning: {error:#}");
        }
    }
    if let Some(history) = history {
        status = history.finish(Said { digest: digest.value(), status })?;
    }
    Ok(status)
}

/// What `--record` and `--replay` ask for.
fn history_of(
    arguments: &Arguments,
    layout: &policy::place::Layout,
    initramfs: &std::fs::File,
    has_disks: bool,
) -> Result<Option<History>> {
    let (Some(file), is_replayed) = (match &arguments.replay {
        Some(file) => (Some(file), true),
        None => (arguments.record.as_ref(), false),
    }) else {
        return Ok(None);
    };
    if has_disks || !arguments.shared_directories().is_empty() {
        let text = "disks and shares are not recorded: --record and --replay take none of them";
        return Err(Usage(text.to_string()).into());
    }
    let kernel = arguments.kernel();
    machine::find_kernel(&kernel)?;
    let kernel = std::fs::File::open(&kernel)
        .with_context(|| format!("cannot open {}", kernel.display()))?;
    let parts = [
        ("kernel", history::fingerprint(&kernel)?),
        ("content of its files", history::fingerprint(initramfs)?),
        ("command line", arguments.command_line(layout)),
        ("number of cores", arguments.cpus.to_string()),
        ("memory, MiB", arguments.memory_mib.to_string()),
    ];
    let parts = parts.map(|(name, value)| (name.to_string(), value)).into();
    let history = match is_replayed {
        true => History::replay(file, &parts)?,
        false => History::record(file, parts)?,
    };
    Ok(Some(history))
}
