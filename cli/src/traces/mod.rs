//! `ferry trace`: what is done with a trace once there is one.
//!
//! What was damaged or lost is told on standard error, what could be read is used all the same, and the
//! exit status is then 1.

mod plot;
mod tables;

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use abi::trace::{Events, Header, LockScheme, Origin};
use anyhow::{Context, Result};
use clap::Subcommand;
use trace::summary::Summary;
use trace::{Merged, Reader, thesis};

use crate::run;
use crate::status::Usage;

/// Look into traces of calls, locks and events.
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Example:\n  ferry trace summary program.trace\n\n\
        docs/tracing.md says what the figures mean, docs/abi/trace.md how the file is laid out."
)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Run a program and record its calls, locks and events.
    #[command(
        override_usage = "ferry trace record [OPTIONS] -- PROGRAM [ARGS]...",
        after_help = "All options of `ferry run` may be given. The exit status is that of `ferry run`.\n\n\
            Example:\n  ferry trace record --out ls.trace -- busybox ls -lR /"
    )]
    Record(Box<Recording>),
    /// Is the trace complete and consistent?
    Check {
        /// The trace.
        file: PathBuf,
    },
    /// What calls, paths, cores and locks took.
    Summary {
        /// The trace.
        file: PathBuf,
    },
    /// Write the trace in the format of another tool.
    Export(Export),
    /// Draw time line and distributions into an HTML page.
    Plot {
        /// The trace.
        file: PathBuf,
        /// The page.
        #[arg(long, value_name = "FILE")]
        html: PathBuf,
    },
    /// What is different in another trace.
    Diff {
        /// The trace to compare with.
        first: PathBuf,
        /// The other one.
        second: PathBuf,
    },
    /// Make a trace of the rows of the published giant-lock system.
    Import(Import),
}

#[derive(clap::Args)]
struct Recording {
    /// The trace to write.
    #[arg(long, value_name = "FILE", default_value = "ferry.trace")]
    out: PathBuf,
    /// Record these alone: calls, locks, all, or kinds of events [default: all but allocations].
    #[arg(long, value_name = "LIST", value_parser = run::parse_events)]
    events: Option<Events>,
    #[command(flatten)]
    machine: run::Options,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Format {
    /// For ui.perfetto.dev (its protobuf format).
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// A row of text per record.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// The rows of the published giant-lock system.
    #[arg(long, value_name = "FILE")]
    thesis: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Export {
    /// The trace.
    file: PathBuf,
    #[command(flatten)]
    format: Format,
}

#[derive(clap::Args)]
struct Import {
    /// Rows: core, application, call, contention, lock entry, lock acquired, lock exit.
    #[arg(long, value_name = "FILE")]
    thesis: PathBuf,
    /// The trace to write.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Cores of the machine that was traced.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    cores: u8,
    /// Ticks of its clock per second.
    #[arg(long, default_value_t = sim::published::TICKS_PER_SECOND,
        value_parser = clap::value_parser!(u64).range(1..))]
    hertz: u64,
}

/// Carries out `ferry trace`.
pub fn run(arguments: &Arguments) -> Result<u8> {
    match &arguments.action {
        Action::Record(recording) => record(recording),
        Action::Check { file } => check(file),
        Action::Summary { file } => {
            let read = summarise(file)?;
            let names = |number| call_name(read.origin, number);
            print(&tables::summary(&read.summary, read.ticks_per_second, &names))?;
            Ok(read.status)
        }
        Action::Export(export) => run_export(export),
        Action::Plot { file, html } => {
            let read = summarise(file)?;
            let names = |number| call_name(read.origin, number);
            let page = plot::page(file, &read.summary, &names, open(file)?)?;
            std::fs::write(html, page).with_context(|| cannot_write(html))?;
            Ok(read.status)
        }
        Action::Diff { first, second } => {
            let (first, second) = (summarise(first)?, summarise(second)?);
            let rows = trace::diff::diff(
                (&first.summary, first.ticks_per_second),
                (&second.summary, second.ticks_per_second),
            );
            print(&tables::diff(&rows, &|number| call_name(first.origin, number)))?;
            Ok(first.status.max(second.status))
        }
        Action::Import(import) => run_import(import),
    }
}

fn record(recording: &Recording) -> Result<u8> {
    let mut options = recording.machine.clone();
    if options.run.trace.is_some() || options.run.trace_events.is_some() {
        let text = "`ferry trace record` has --out and --events for --trace and --trace-events";
        return Err(Usage(text.to_owned()).into());
    }
    options.run.trace = Some(recording.out.clone());
    options.run.trace_events = recording.events;
    let status = run::run(&options)?;
    eprintln!("ferry trace: recorded {}", recording.out.display());
    Ok(status)
}

/// What a call is called: imported traces have the calls of the published system.
fn call_name(origin: Origin, number: u16) -> String {
    let published = sim::published::CALLS.get(usize::from(number));
    if let (Origin::Imported, Some(name)) = (origin, published) {
        return (*name).to_owned();
    }
    let row = policy::route::route(usize::from(number));
    row.map_or_else(|| format!("call {number}"), |row| row.name.to_owned())
}

/// Opens a trace; what is no trace is a matter of the command line.
pub fn open(file: &Path) -> Result<Reader<BufReader<File>>> {
    let input = File::open(file)
        .map_err(|error| Usage(format!("cannot open {}: {error}", file.display())))?;
    let reader = Reader::new(BufReader::new(input));
    reader.map_err(|error| Usage(format!("{}: {error}", file.display())).into())
}

/// All rings of a trace in the order of time.
pub fn open_merged(file: &Path) -> Result<Merged<BufReader<File>>> {
    drop(open(file)?);
    Merged::open(|| File::open(file).map(BufReader::new))
        .with_context(|| format!("cannot read {}", file.display()))
}

/// Tells what was wrong with a trace; the exit status.
fn tell(file: &Path, problems: &[trace::Problem], count: u64, lost: u64) -> u8 {
    for problem in problems {
        eprintln!("ferry trace: {}: {problem}", file.display());
    }
    if count > problems.len() as u64 {
        eprintln!("ferry trace: {}: and so on, {count} in all", file.display());
    }
    if lost > 0 {
        eprintln!("ferry trace: {}: {lost} records were lost while recording", file.display());
    }
    u8::from(count > 0)
}

struct Summarised {
    summary: Summary,
    ticks_per_second: u64,
    origin: Origin,
    status: u8,
}

fn summarise(file: &Path) -> Result<Summarised> {
    let mut reader = open(file)?;
    let mut summary = Summary::default();
    while let Some(entry) = reader.next_entry().with_context(|| file.display().to_string())? {
        summary.add(&entry.record);
    }
    let status = tell(file, reader.problems(), reader.problem_count(), reader.lost());
    let Header { ticks_per_second, origin, .. } = *reader.header();
    Ok(Summarised { summary, ticks_per_second, origin, status })
}

fn check(file: &Path) -> Result<u8> {
    let report = trace::check::check(open_merged(file)?)?;
    for finding in &report.findings {
        println!("{finding}");
    }
    if report.count > report.findings.len() as u64 {
        println!("and so on, {} in all", report.count);
    }
    if report.count == 0 {
        println!("{} records, complete and consistent", report.records);
    } else {
        println!("{} records could be read", report.records);
    }
    if report.clocks_compared == 0 && report.locks_held == 0 {
        println!("clocks of cores: not checked, since the trace compares none");
    }
    Ok(u8::from(report.count > 0))
}

fn run_export(export: &Export) -> Result<u8> {
    let file = &export.file;
    let Format { perfetto, csv, thesis } = &export.format;
    if let Some(path) = thesis {
        let mut merged = open_merged(file)?;
        let output = create(path)?;
        thesis::export(&mut merged, output).with_context(|| cannot_write(path))?;
        let problems = merged.problems();
        return Ok(tell(file, &problems, problems.len() as u64, merged.lost()));
    }
    let mut reader = open(file)?;
    let origin = reader.header().origin;
    let names = |number| call_name(origin, number);
    if let Some(path) = perfetto {
        trace::export::perfetto::export(&mut reader, &names, create(path)?)
            .with_context(|| cannot_write(path))?;
    }
    if let Some(path) = csv {
        trace::export::csv::export(&mut reader, &names, create(path)?)
            .with_context(|| cannot_write(path))?;
    }
    Ok(tell(file, reader.problems(), reader.problem_count(), reader.lost()))
}

fn run_import(import: &Import) -> Result<u8> {
    let input = File::open(&import.thesis)
        .map_err(|error| Usage(format!("cannot open {}: {error}", import.thesis.display())))?;
    let header = Header {
        cores: import.cores,
        overwrites: false,
        origin: Origin::Imported,
        ticks_per_second: import.hertz,
        began_unix_ns: 0,
        scheme: LockScheme::GiantTicket,
    };
    let output = create(&import.out)?;
    let imported = thesis::import(BufReader::new(input), output, &header)
        .with_context(|| cannot_write(&import.out))?;
    let Some(error) = imported.error else {
        eprintln!("ferry trace: {} rows", imported.rows);
        return Ok(0);
    };
    eprintln!("ferry trace: {}: {error}", import.thesis.display());
    eprintln!("ferry trace: {} has the {} rows before", import.out.display(), imported.rows);
    Ok(1)
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    File::create(path).map(BufWriter::new).with_context(|| cannot_write(path))
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// Prints a text; whoever closed standard output does not want to read it.
pub fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
