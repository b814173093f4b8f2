//! Process 1: sets up the root file system, runs the one program that the host asks for as its child,
//! and reports how that ended.
//!
//! It has no user code. It is a task on the core of the devices; orphans are reaped by
//! `process::exit`, which finds process 1 as their parent.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use abi::console::{
    EXIT_NOT_STARTED, EXIT_SIGNAL, EXIT_STATUS, ExitReport, FrameKind, WindowSize,
};
use abi::fs::OpenFlags;
use abi::signal::Signal;
use base::sync::Once;
use base::task;
use fs::{File, Location, OpenFile};
use hal::{Contract, Machine};

use crate::console::{self, Channel, HostInputFile, HostOutputFile, Start};
use crate::memory::StringList;
use crate::process::{self, DirectoryContext, FileTable, Process, Thread};
use crate::signal::SignalInfo;
use crate::{boot, root, run_user};

/// Most descriptors that the first program may have open: the limit only matters for the first three.
const DESCRIPTOR_LIMIT: u64 = 1024;

/// The program that the host asked for.
static PROGRAM: Once<Arc<Process>> = Once::new();

/// Does all of it, and switches the machine off at the end.
pub async fn run() {
    let Some(channel) = console::channel() else { Machine::power_off() };
    if task::spawn(boot::device_core(), channel.pump()).is_err() {
        log::error!("no memory for the console channel");
        Machine::power_off();
    }
    let report = match start_program(channel).await {
        Ok(process) => wait_for(&process).await,
        Err(errno) => ExitReport { reason: EXIT_NOT_STARTED, value: u32::from(errno.number()) },
    };
    log::info!("the program ended: {report:?}");
    channel.finish(report).await;
    Machine::power_off()
}

async fn start_program(channel: &'static Channel) -> Result<Arc<Process>, Errno> {
    let top = root::mount().inspect_err(|errno| log::error!("no root file system: {errno}"))?;
    process::first::start(top.clone())?;
    let start = channel.start_request().await;
    root::set_window(start.window);
    let current = root::resolve(&top, &start.directory)?;
    let directory = Arc::new(DirectoryContext::new(top.clone(), current));
    let files = standard_files(&top, start)?;
    let (thread, context) = process::exec::spawn(
        &start.program,
        strings(&start.arguments)?,
        strings(&start.environment)?,
        files,
        directory,
    )
    .await?;
    let process = thread.process.clone();
    if start.terminals != 0 {
        root::give_terminal(&process);
    }
    PROGRAM.call_once(|| process.clone());
    log::info!("first program after {} us", boot::since_start_ns() / 1000);
    start_thread(thread, context)?;
    Ok(process)
}

fn start_thread(thread: Arc<Thread>, context: base::user::UserContext) -> Result<(), Errno> {
    run_user::start(thread, Box::new(context)).map_err(Errno::from)
}

fn strings(list: &[Vec<u8>]) -> Result<StringList, Errno> {
    let mut strings = StringList::new();
    for string in list {
        strings.push(string)?;
    }
    Ok(strings)
}

/// Descriptors 0 to 2: the console terminal where the host has a terminal, else plain streams.
fn standard_files(top: &Location, start: &Start) -> Result<Arc<FileTable>, Errno> {
    let files = FileTable::new();
    for descriptor in 0..3 {
        let file = if start.terminals >> descriptor & 1 != 0 {
            root::open_console()?
        } else {
            let (file, flags): (Arc<dyn File>, OpenFlags) = match descriptor {
                0 => (Arc::new(HostInputFile), OpenFlags::RDONLY),
                1 => (Arc::new(HostOutputFile::new(FrameKind::Stdout)), OpenFlags::WRONLY),
                _ => (Arc::new(HostOutputFile::new(FrameKind::Stderr)), OpenFlags::WRONLY),
            };
            OpenFile::new(file, root::stream_location(top)?, flags)?
        };
        files.insert(file, false, DESCRIPTOR_LIMIT)?;
    }
    Ok(Arc::new(files))
}

async fn wait_for(process: &Process) -> ExitReport {
    let status = process.thread_events.wait_until(|| process.exit_status()).await;
    match status & 0x7f {
        0 => ExitReport { reason: EXIT_STATUS, value: status >> 8 & 0xff },
        signal => ExitReport { reason: EXIT_SIGNAL, value: signal },
    }
}

/// The host's terminal has another size.
pub fn window_changed(size: WindowSize) {
    root::set_window(size);
}

/// The host wants the program to end: the signal goes to every process of its session.
pub fn terminate(number: u32) {
    let Some(program) = PROGRAM.get() else { return };
    let Some(signal) = i32::try_from(number).ok().and_then(Signal::new) else { return };
    for process in process::table::processes() {
        if process.session() == program.session() {
            let _ = crate::signal::send_to_process(&process, SignalInfo::kernel(signal));
        }
    }
}
