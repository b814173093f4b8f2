//! One run: starts the threads, waits for what happens, and decides the exit status.
//!
//! ```text
//!            Exited                     OutputFinished x3, ChannelClosed
//!  running ----------> draining -------------------------------------> done
//!     |  signal, timeout: Terminate is sent, and after a grace QEMU is killed
//!     |  Panicked, ChannelClosed: without an exit report the kernel has failed
//! ```

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ChildStderr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use abi::Errno;
use abi::console::{
    CoreCounters, EXIT_NOT_STARTED, EXIT_SIGNAL, ExitReport, FrameKind, StageTotals,
};
use abi::trace::ring::Rings;
use anyhow::{Context, Result};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;

use super::channel::{Start, frame_of};
use super::log::{self, LogFile};
use super::options::LogLevel;
use super::stats;
use super::streams::{self, Digest, InputCredit};
use super::terminal::{self, RawMode};
use super::trace::{self, Tracer};
use crate::machine::{Connections, Running};
use crate::status;

/// What the program gets to end by itself after the first Terminate, before it is killed.
const GRACE: Duration = Duration::from_secs(1);
/// What the kernel gets to end after that.
const KILL_GRACE: Duration = Duration::from_secs(1);
/// The same where it has disks to bring in order.
const DISK_GRACE: Duration = Duration::from_secs(20);
/// What the machine gets to switch itself off when the program has ended.
const POWER_OFF_GRACE: Duration = Duration::from_secs(2);
/// What QEMU has to say is remembered up to this length, in bytes.
const MAX_MESSAGES: u64 = 1 << 16;
/// Last lines of the log that are shown when the kernel stops without a word.
const SHOWN_LINES: usize = 10;

/// What can happen during a run.
pub enum Event {
    /// A signal came to this tool.
    Signalled(i32),
    /// The user typed the escape.
    Escaped,
    /// The kernel tells what a core did.
    Counted(CoreCounters),
    /// Where the time of one kind of call went.
    Timed(StageTotals),
    /// Where the records of the trace are.
    Traced(Rings),
    /// The program has ended.
    Exited(ExitReport),
    /// The console channel has ended, perhaps because of what the text says.
    ChannelClosed(Option<String>),
    /// The serial port has ended, and the log is complete.
    SerialClosed,
    /// The kernel has completed a panic message.
    Panicked,
    /// An output stream has been written to its end.
    OutputFinished,
    /// The kernel goes on sending to a stream that is closed.
    Flooded,
    /// QEMU's own messages are complete.
    Messages(String),
}

/// A run before its machine: signals are caught already, so that none can leave a machine behind.
pub struct Session {
    events: Sender<Event>,
    incoming: Receiver<Event>,
    deadline: Option<Instant>,
    tells: Tells,
    tracer: Option<Tracer>,
    kill_grace: Duration,
    digest: Digest,
}

/// What to tell at the end.
pub struct Tells {
    /// What each core did.
    pub counters: bool,
    /// Where the time of calls went.
    pub stages: bool,
    /// Both, to a file, instead of tables on standard error.
    pub figures: Option<PathBuf>,
    /// Nothing comes into the machine while it has something to do, so that it runs the same way each time.
    pub is_deterministic: bool,
}

/// How far the end of a run has come.
struct Ending {
    /// The status that the tool ends with, whatever the program says; set by a timeout.
    forced: Option<u8>,
    /// The status when the program says nothing more.
    fallback: u8,
    /// What to do next, and when: signals for the program, then the end of QEMU.
    steps: VecDeque<(Instant, Step)>,
}

#[derive(Clone, Copy)]
enum Step {
    Terminate(i32),
    Kill,
}

impl Session {
    /// Begins to catch signals and to count the time.
    pub fn prepare(
        timeout: Option<Duration>,
        tells: Tells,
        tracer: Option<Tracer>,
    ) -> Result<Session> {
        let (events, incoming) = channel();
        let caught = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH, SIGCONT];
        let mut signals = Signals::new(caught).context("cannot catch signals")?;
        let sender = events.clone();
        std::thread::spawn(move || {
            for signal in signals.forever() {
                if sender.send(Event::Signalled(signal)).is_err() {
                    break;
                }
            }
        });
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let (digest, kill_grace) = (Digest::default(), KILL_GRACE);
        Ok(Session { events, incoming, deadline, tells, tracer, kill_grace, digest })
    }

    /// The machine has disks that are written back when the program has ended.
    pub fn wait_for_disks(&mut self) {
        self.kill_grace = DISK_GRACE;
    }

    /// The memory that the machine is to have, where somebody looks into it.
    pub fn memory(&self) -> Option<&File> {
        self.tracer.as_ref().map(Tracer::memory)
    }

    /// A digest of all that the machine says.
    pub fn digest(&self) -> Digest {
        self.digest.clone()
    }

    /// Sees a run through to its end; returns the exit status.
    pub fn accompany(
        self,
        mut running: Running,
        connections: Connections,
        start: &Start<'_>,
        mut log: LogFile,
        shown: Option<LogLevel>,
        kernel: &Path,
    ) -> Result<u8> {
        let raw_mode = RawMode::enter();
        let outgoing = connections.channel.try_clone()?;
        let frames = match self.tells.is_deterministic {
            true => streams::send_when_idle(outgoing, running.process()),
            false => streams::send(outgoing),
        };
        drop(frames.send(start.encode(terminal::mask(), terminal::window())?));
        log::receive(connections.serial, &log, shown, self.events.clone())?;
        collect_messages(connections.messages, self.events.clone());
        self.start_streams(connections.channel, &frames)?;

        let mut run = Run {
            frames,
            running: &mut running,
            raw_mode: raw_mode.as_ref(),
            deadline: self.deadline,
            kill_grace: self.kill_grace,
            ending: None,
            is_impatient: false,
            report: None,
            counters: Vec::new(),
            stages: Vec::new(),
            panicked: false,
            problem: None,
            messages: String::new(),
            open_outputs: streams::OUTPUTS.len(),
            channel_open: true,
            serial_open: true,
            messages_open: true,
            tracer: self.tracer,
        };
        run.wait(&self.incoming);
        let Run { ending, report, counters, stages, panicked, problem, messages, tracer, .. } = run;
        drop(raw_mode);
        drop(running);
        let mut is_trace_broken = false;
        let recorded = tracer.map(Tracer::finish).transpose().unwrap_or_else(|error| {
            eprintln!("ferry: {error:#}");
            is_trace_broken = true;
            None
        });
        let recorded = recorded.unwrap_or_default();
        if recorded.lost > 0 {
            let (lost, records) = (recorded.lost, recorded.records);
            eprintln!("ferry: the trace lacks {lost} records that found no room; it has {records}");
        }
        if let Some(file) = &self.tells.figures {
            let text = serde_json::to_string(&stats::figures(&counters, &stages))? + "\n";
            std::fs::write(file, text)
                .with_context(|| format!("cannot write {}", file.display()))?;
        } else if self.tells.stages && !stages.is_empty() {
            eprint!("{}", stats::stages(&stages));
        }
        if self.tells.counters && !counters.is_empty() {
            eprint!("{}", stats::table(&counters));
        }

        let ending = ending.unwrap_or(Ending {
            forced: None,
            fallback: status::SOFTWARE,
            steps: VecDeque::new(),
        });
        if let Some(report) = report.filter(|_| !panicked) {
            log.finish();
            let status = ending.forced.unwrap_or_else(|| status_of(report, start));
            return Ok(if status == 0 && is_trace_broken { status::TRACE } else { status });
        }
        if !messages.is_empty() {
            log.note(&format!("QEMU says: {}", messages.trim_end()));
        }
        let text = log.text();
        if let Some(panic) = super::panic::find(&text) {
            eprint!("ferry: {}", panic.describe(kernel));
            eprint!("{}", trace::describe(&recorded.last));
            eprintln!("ferry: the kernel's log is {}", log.keep().display());
            return Ok(status::SOFTWARE);
        }
        if let Some(forced) = ending.forced {
            log.finish();
            return Ok(forced);
        }
        if ending.fallback == status::SOFTWARE {
            tell_silent_end(problem.as_deref(), &messages, &text);
            eprintln!("ferry: the kernel's log is {}", log.keep().display());
        } else {
            log.finish();
        }
        Ok(ending.fallback)
    }

    fn start_streams(
        &self,
        channel_end: std::os::unix::net::UnixStream,
        frames: &Sender<Vec<u8>>,
    ) -> Result<()> {
        let credit = Arc::new(InputCredit::default());
        let input_is_terminal = terminal::mask() & 1 != 0;
        // A background job that reads its terminal is stopped; it has no input until it is in front.
        if !input_is_terminal || terminal::in_foreground() {
            let (credit, events) = (credit.clone(), self.events.clone());
            streams::read_input(credit, frames.clone(), events, input_is_terminal)?;
        }
        let descriptors = [
            rustix::stdio::stdout(),
            rustix::stdio::stderr(),
            terminal::any().unwrap_or(rustix::stdio::stdout()),
        ];
        let mut queues = Vec::new();
        for (stream, descriptor) in streams::OUTPUTS.into_iter().zip(descriptors) {
            let (frames, events) = (frames.clone(), self.events.clone());
            queues.push(streams::write_output(stream, descriptor, frames, events)?);
        }
        let queues = queues.try_into().ok().context("three output streams")?;
        streams::receive(channel_end, credit, queues, self.events.clone(), self.digest.clone());
        Ok(())
    }
}

/// A run in progress, as the thread that waits for events sees it.
struct Run<'a> {
    frames: Sender<Vec<u8>>,
    running: &'a mut Running,
    raw_mode: Option<&'a RawMode>,
    deadline: Option<Instant>,
    kill_grace: Duration,
    ending: Option<Ending>,
    /// Somebody wants the tool to end, with or without the rest of the output.
    is_impatient: bool,
    report: Option<ExitReport>,
    counters: Vec<CoreCounters>,
    stages: Vec<StageTotals>,
    panicked: bool,
    problem: Option<String>,
    messages: String,
    open_outputs: usize,
    channel_open: bool,
    serial_open: bool,
    messages_open: bool,
    tracer: Option<Tracer>,
}

impl Run<'_> {
    /// Waits until everything has ended: the program, its output, and QEMU.
    fn wait(&mut self, incoming: &Receiver<Event>) {
        while self.open_outputs > 0 || self.channel_open || self.serial_open || self.messages_open {
            let next = self.next_step();
            let event = match next {
                None => incoming.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => incoming.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            match event {
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => self.take_step(),
                // Every thread has ended: there is nothing left to wait for.
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.stops_waiting_for_output() {
                return;
            }
        }
    }

    /// Whoever wants the tool to end does not wait for a reader of its output who does not read.
    fn stops_waiting_for_output(&self) -> bool {
        let is_over = !self.channel_open && !self.serial_open && !self.messages_open;
        let ending = self.ending.as_ref();
        is_over && self.is_impatient && ending.is_some_and(|ending| ending.steps.is_empty())
    }

    fn next_step(&self) -> Option<Instant> {
        let step = self.ending.as_ref().and_then(|ending| ending.steps.front()).map(|(at, _)| *at);
        step.into_iter().chain(self.deadline).min()
    }

    fn take_step(&mut self) {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.deadline = None;
            self.end(SIGTERM, Some(status::TIMED_OUT));
        }
        let Some(ending) = &mut self.ending else { return };
        match ending.steps.front() {
            Some((at, step)) if *at <= Instant::now() => {
                let step = *step;
                ending.steps.pop_front();
                match step {
                    Step::Terminate(signal) => self.terminate(signal),
                    Step::Kill => self.running.kill(),
                }
            }
            _ => {}
        }
    }

    /// Begins to end the run: the program gets the signal, later SIGKILL, and QEMU dies at last.
    fn end(&mut self, signal: i32, forced: Option<u8>) {
        self.is_impatient = true;
        if let Some(ending) = &mut self.ending {
            // The second wish to end is granted at once.
            ending.steps.clear();
            self.running.kill();
            return;
        }
        let now = Instant::now();
        let number = u8::try_from(signal).unwrap_or(0);
        self.ending = Some(Ending {
            forced,
            fallback: forced.unwrap_or(status::SIGNALLED + number),
            steps: VecDeque::from([
                (now + GRACE, Step::Terminate(SIGKILL)),
                (now + GRACE + self.kill_grace, Step::Kill),
            ]),
        });
        self.terminate(signal);
    }

    fn terminate(&self, signal: i32) {
        drop(self.frames.send(frame_of(FrameKind::Terminate, &signal)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Signalled(SIGWINCH) => {
                drop(self.frames.send(frame_of(FrameKind::WindowSize, &terminal::window())));
            }
            Event::Signalled(SIGCONT) => {
                if let Some(mode) = self.raw_mode {
                    mode.apply();
                }
            }
            Event::Signalled(signal) => self.end(signal, None),
            Event::Escaped => self.end(SIGTERM, None),
            Event::Flooded => self.terminate(SIGPIPE),
            Event::Counted(counters) => self.counters.push(counters),
            Event::Timed(totals) => self.stages.push(totals),
            Event::Traced(rings) => {
                if let Some(tracer) = &mut self.tracer {
                    tracer.begin(rings);
                }
            }
            Event::Exited(report) => {
                self.report = Some(report);
                self.kill_after(POWER_OFF_GRACE);
            }
            Event::Panicked => {
                self.panicked = true;
                self.kill_after(POWER_OFF_GRACE);
            }
            Event::ChannelClosed(problem) => {
                self.channel_open = false;
                if self.report.is_none() {
                    self.problem = problem;
                    self.kill_after(POWER_OFF_GRACE);
                }
            }
            Event::SerialClosed => self.serial_open = false,
            Event::OutputFinished => self.open_outputs = self.open_outputs.saturating_sub(1),
            Event::Messages(messages) => {
                self.messages = messages;
                self.messages_open = false;
            }
        }
    }

    /// The rest is QEMU's own end, which is waited for only so long.
    fn kill_after(&mut self, grace: Duration) {
        let ending = self.ending.get_or_insert(Ending {
            forced: None,
            fallback: status::SOFTWARE,
            steps: VecDeque::new(),
        });
        ending.steps = VecDeque::from([(Instant::now() + grace, Step::Kill)]);
    }
}

/// Starts the thread that keeps what QEMU says.
fn collect_messages(messages: ChildStderr, events: Sender<Event>) {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let mut messages = messages.take(MAX_MESSAGES);
        // An error ends the messages, as their end does.
        drop(messages.read_to_end(&mut text));
        drop(std::io::copy(messages.get_mut(), &mut std::io::sink()));
        drop(events.send(Event::Messages(String::from_utf8_lossy(&text).into_owned())));
    });
}

/// The exit status for what the kernel reports; says why when the program was not started.
fn status_of(report: ExitReport, start: &Start<'_>) -> u8 {
    let low = (report.value & 0xff) as u8;
    match report.reason {
        EXIT_SIGNAL => status::SIGNALLED.saturating_add(low & 0x7f),
        EXIT_NOT_STARTED => {
            let number = i32::try_from(report.value).unwrap_or(0);
            let reason = std::io::Error::from_raw_os_error(number);
            eprintln!("ferry: {}: {reason}", start.path.display());
            let is_missing = number == i32::from(Errno::ENOENT.number());
            if is_missing { status::NOT_FOUND } else { status::NOT_RUNNABLE }
        }
        _ => low,
    }
}

/// Tells what is known when the machine ended without an exit status and without a panic.
fn tell_silent_end(problem: Option<&str>, messages: &str, log: &str) {
    match problem {
        Some(problem) => eprintln!("ferry: the kernel broke the console protocol: {problem}"),
        None => eprintln!("ferry: the machine stopped before the program ended"),
    }
    if !messages.is_empty() {
        eprintln!("ferry: QEMU says: {}", messages.trim_end());
    }
    let lines: Vec<&str> = log.lines().collect();
    for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
        eprintln!("  {}", line.trim_end());
    }
}
