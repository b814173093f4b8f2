//! Process 1: sets up the root file system, runs the one program that the host asks for as its child,
//! and reports how that ended.
//!
//! It has no user code. It is a task on the core of the devices; orphans are reaped by
//! `process::exit`, which finds process 1 as their parent.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use abi::console::{EXIT_NOT_STARTED, EXIT_SIGNAL, EXIT_STATUS, ExitReport, FrameKind};
use abi::fs::OpenFlags;
use abi::signal::Signal;
use base::sync::Once;
use base::{task, time};
use fs::anonymous::{AnonymousInode, Label};
use fs::metadata::Permissions;
use fs::{File, Location, NodeKind, OpenFile, pending};
use hal::{Contract, Machine};

use crate::console::{self, Channel, HostInputFile, HostOutputFile, Start};
use crate::memory::StringList;
use crate::process::{self, DirectoryContext, FileTable, Process, Thread, session};
use crate::servers::file;
use crate::signal::SignalInfo;
use crate::{calibration, machine, root, run_user, stages, trace};

/// Mode of the plain streams, as pipes have it.
const STREAM_MODE: u32 = 0o600;
/// Most descriptors that the first program may have open: the limit only matters for the first three.
const DESCRIPTOR_LIMIT: u64 = 1024;

/// The program that the host asked for.
static PROGRAM: Once<Arc<Process>> = Once::new();

/// Does all of it, and switches the machine off at the end.
pub async fn run() {
    let Some(channel) = console::channel() else { Machine::power_off() };
    channel.on_terminate(terminate);
    if task::spawn(machine::device_core(), channel.pump()).is_err() {
        log::error!("no memory for the console channel");
        Machine::power_off();
    }
    if let Some(rings) = trace::rings() {
        channel.announce_trace(&rings);
    }
    calibration::run().await;
    if stages::is_traced() {
        trace::compare_clocks().await;
    }
    let report = match start_program(channel).await {
        Ok(process) => {
            let report = wait_for(&process).await;
            drop(process);
            if stages::is_traced() {
                trace::compare_clocks().await;
            }
            settle().await;
            file::sync_all().await;
            file::close_all().await;
            log_counts("end");
            report
        }
        Err(errno) => ExitReport { reason: EXIT_NOT_STARTED, value: u32::from(errno.number()) },
    };
    log::info!("the program ended: {report:?}");
    channel.finish(report).await;
    Machine::power_off()
}

async fn start_program(channel: &'static Channel) -> Result<Arc<Process>, Errno> {
    let top =
        root::mount().await.inspect_err(|errno| log::error!("no root file system: {errno}"))?;
    process::first::start(top.clone())?;
    fs::file::set_sender(file::tell_owner);
    root::mount_shares(&top)
        .await
        .inspect_err(|errno| log::error!("a directory of the host cannot be mounted: {errno}"))?;
    let start = channel.start_request().await;
    let current = pending::complete(|| root::resolve(&top, &start.directory)).await?;
    let program = find_program(&top, start).await?;
    let directory = Arc::new(DirectoryContext::new(top, current));
    log_counts("start");
    let files = Arc::new(FileTable::new());
    let (arguments, environment) = (strings(&start.arguments)?, strings(&start.environment)?);
    let (thread, context) =
        process::exec::spawn(&program, arguments, environment, files.clone(), directory).await?;
    let process = thread.process.clone();
    if start.terminals != 0 {
        attach_terminal(channel, &process, start)?;
    }
    for descriptor in 0..3 {
        let is_terminal = start.terminals >> descriptor & 1 != 0;
        let file = pending::complete(|| standard_file(&thread, descriptor, is_terminal)).await?;
        files.insert(file, false, DESCRIPTOR_LIMIT)?;
    }
    PROGRAM.call_once(|| process.clone());
    log::info!("first program after {} us", time::now_ns() / 1000);
    run_user::start(thread, Box::new(context))?;
    Ok(process)
}

/// The program's path: a name without a slash is looked for in the directories of `PATH`, as the root is not one that the
/// host looks into.
async fn find_program(top: &Location, start: &Start) -> Result<Vec<u8>, Errno> {
    const EXECUTABLE: u32 = 0o111;
    if start.program.contains(&b'/') {
        return Ok(start.program.clone());
    }
    let path = start.environment.iter().find_map(|entry| entry.strip_prefix(b"PATH="));
    for directory in path.unwrap_or_default().split(|&byte| byte == b':') {
        let mut candidate = directory.to_vec();
        candidate.push(b'/');
        candidate.extend_from_slice(&start.program);
        match pending::complete(|| root::resolve(top, &candidate)).await {
            Ok(found) if found.inode.kind() == NodeKind::Regular => {
                if found.inode.metadata().permissions.mode & EXECUTABLE != 0 {
                    return Ok(candidate);
                }
            }
            Ok(_) | Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ENAMETOOLONG) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::ENOENT)
}

fn strings(list: &[Vec<u8>]) -> Result<StringList, Errno> {
    let mut strings = StringList::new();
    for string in list {
        strings.push(string)?;
    }
    Ok(strings)
}

/// Makes the console terminal the one that controls the program's session.
fn attach_terminal(
    channel: &'static Channel,
    process: &Process,
    start: &Start,
) -> Result<(), Errno> {
    let terminal = console::terminal();
    terminal.set_window(start.window);
    terminal.enter_session(process.session().0, process.group().0);
    session::set_terminal(process.session(), Some(terminal.clone()));
    task::spawn(machine::device_core(), channel.pump_terminal_output())?;
    if start.terminals & 1 != 0 {
        task::spawn(machine::device_core(), channel.pump_terminal_input())?;
    }
    Ok(())
}

/// The file for one of the descriptors 0 to 2: the console terminal where the host has a terminal,
/// else a plain stream.
fn standard_file(
    thread: &Thread,
    descriptor: i32,
    is_terminal: bool,
) -> Result<Arc<OpenFile>, Errno> {
    if is_terminal {
        let root = thread.directory().root();
        let place = root::resolve(&root, b"/dev/console")?;
        let file = console::terminal().open(OpenFlags::RDWR, thread, false)?;
        return OpenFile::new(file, place, OpenFlags::RDWR);
    }
    let (file, flags): (Arc<dyn File>, OpenFlags) = match descriptor {
        0 => (Arc::new(HostInputFile), OpenFlags::empty()),
        1 => (Arc::new(HostOutputFile::new(FrameKind::Stdout)), OpenFlags::WRONLY),
        _ => (Arc::new(HostOutputFile::new(FrameKind::Stderr)), OpenFlags::WRONLY),
    };
    let permissions = Permissions { mode: STREAM_MODE, user: 0, group: 0 };
    let place = AnonymousInode::location_of(
        file.clone(),
        NodeKind::Fifo,
        Label::Numbered("pipe"),
        permissions,
    );
    OpenFile::new(file, place, flags)
}

/// Gives threads that have ended a moment to give up what they have. Processes that the program left
/// behind are not waited for.
async fn settle() {
    const STEP_NS: u64 = 1_000_000;
    const STEPS: usize = 50;
    for _ in 0..STEPS {
        if (0..hal::MAX_CPUS).all(|core| machine::thread_count(core) == 0) {
            break;
        }
        time::sleep_for(STEP_NS).await;
    }
}

/// What is in use: free frames, tasks, threads. Equal numbers at start and end mean that nothing leaked.
fn log_counts(when: &str) {
    let tasks = task::task_counts();
    let threads: usize = (0..hal::MAX_CPUS).map(machine::thread_count).sum();
    log::info!(
        "counts at {when}: frames={} tasks={} threads={threads} files={}",
        base::memory::frame_counts().free,
        tasks.started.wrapping_sub(tasks.ended),
        fs::file::open_count(),
    );
}

async fn wait_for(process: &Process) -> ExitReport {
    let status = process.thread_events.wait_until(|| process.exit_status()).await;
    match status & 0x7f {
        0 => ExitReport { reason: EXIT_STATUS, value: status >> 8 & 0xff },
        signal => ExitReport { reason: EXIT_SIGNAL, value: signal },
    }
}

/// The host wants the program to end: the signal goes to every process of its session.
fn terminate(number: u32) {
    let Some(program) = PROGRAM.get() else { return };
    let Some(signal) = i32::try_from(number).ok().and_then(Signal::new) else { return };
    for process in process::table::processes() {
        if process.session() == program.session() {
            let _ = crate::signal::send_to_process(&process, SignalInfo::kernel(signal));
        }
    }
}
