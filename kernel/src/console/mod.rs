//! The console channel: the three streams of the program, its start and its end, over one
//! virtio-console port. The frames are those of `abi::console`.
//!
//! One task, `pump`, takes frames from the host and hands them on; output goes straight from the
//! writer to the device as long as there is room, and otherwise waits in a bounded queue. A writer
//! that finds that queue full waits until the host has read.

mod output;
mod parser;
mod streams;
mod terminal;

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
pub use abi::console::WindowSize;
use abi::console::{
    ExitReport, FrameHeader, FrameKind, MAX_START, OutputClosed, OutputCredit, PROTOCOL_VERSION,
    StartHeader,
};
use abi::trace::ring::Rings;
use base::cpu::CpuId;
use base::device::virtio::Transport;
use base::sync::Once;
use drivers::console::Console;
use zerocopy::{FromBytes, IntoBytes};

pub use output::{Output, StreamState};
pub use parser::{Start, parse_start};
pub use streams::{HostInput, HostInputFile, HostOutputFile};
pub use terminal::terminal;

use parser::FrameParser;

/// The port, its output queue and its input stream.
pub struct Channel {
    port: Console,
    /// Frames to the host.
    pub output: Output,
    /// Bytes from the host for standard input.
    pub input: Arc<HostInput>,
    start: Once<Start>,
    start_arrived: base::wait::WaitQueue,
    /// What is done when the host wants the program to end.
    terminate: Once<fn(u32)>,
}

static CHANNEL: Once<Option<Channel>> = Once::new();

/// Starts the console device. Called once, at boot; false when it cannot be used.
pub fn start(transport: Transport) -> bool {
    CHANNEL
        .call_once(|| {
            Some(Channel {
                port: Console::new(transport)?,
                output: Output::new(),
                input: Arc::new(HostInput::new()),
                start: Once::new(),
                start_arrived: base::wait::WaitQueue::new(),
                terminate: Once::new(),
            })
        })
        .is_some()
}

/// The channel, if the machine has a console device.
pub fn channel() -> Option<&'static Channel> {
    CHANNEL.get()?.as_ref()
}

/// Looks whether the host did anything; true when it did. Reads memory only.
pub fn poll() -> bool {
    channel().is_some_and(|channel| channel.port.poll())
}

/// The device's line fired.
pub fn interrupt() {
    if let Some(channel) = channel() {
        channel.port.interrupt();
    }
}

impl Channel {
    /// Says what is done with a signal number when the host wants the program to end.
    pub fn on_terminate(&self, terminate: fn(u32)) {
        self.terminate.call_once(|| terminate);
    }

    /// What to run; waits until the host has said it.
    pub async fn start_request(&self) -> &Start {
        self.start_arrived.wait_until(|| self.start.get()).await
    }

    /// Takes frames from the host and moves queued output on, for ever.
    pub async fn pump(&'static self) {
        let mut parser = FrameParser::new(MAX_START);
        let mut arrived = Vec::new();
        loop {
            let mut progress = self.output.flush(&self.port);
            arrived.clear();
            progress |= self.port.receive(|bytes| arrived.extend_from_slice(bytes));
            // The port is no longer locked: a frame may send signals or take any lock.
            parser.feed(&arrived, |kind, payload| self.take_frame(kind, payload));
            self.input.grant(&self.output, &self.port);
            self.port.reclaim();
            if !progress {
                self.port.activity.wait_until(|| self.has_work().then_some(())).await;
            }
        }
    }

    fn has_work(&self) -> bool {
        self.port.has_used() || self.input.has_grant()
    }

    fn take_frame(&self, kind: FrameKind, payload: &[u8]) {
        match kind {
            FrameKind::Start => match parse_start(payload) {
                Ok(start) => {
                    self.start.call_once(|| start);
                    self.start_arrived.wake_all();
                }
                Err(reason) => log::error!("the start frame cannot be used: {reason}"),
            },
            FrameKind::Stdin => self.input.receive(payload),
            FrameKind::StdinEnd => self.input.end(),
            FrameKind::WindowSize => {
                if let Ok(size) = WindowSize::read_from_bytes(payload) {
                    terminal().set_window(size);
                }
            }
            FrameKind::Terminate => {
                if let Ok(signal) = u32::read_from_bytes(payload)
                    && let Some(terminate) = self.terminate.get()
                {
                    terminate(signal);
                }
            }
            FrameKind::OutputCredit => {
                if let Ok(credit) = OutputCredit::read_from_bytes(payload) {
                    self.output.credit(credit.stream, credit.frames);
                }
            }
            FrameKind::OutputClosed => {
                if let Ok(closed) = OutputClosed::read_from_bytes(payload) {
                    let errno = Errno::from_number(closed.error).unwrap_or(Errno::EIO);
                    self.output.close(closed.stream, errno);
                }
            }
            other => log::error!("the host sent a {other:?} frame, which is not for the kernel"),
        }
    }

    /// Sends bytes of an output stream and returns how many were taken.
    pub fn write(&self, stream: FrameKind, bytes: &[u8]) -> usize {
        self.output.write(&self.port, stream, bytes)
    }

    /// Says where the host finds the records of the trace.
    pub fn announce_trace(&self, rings: &Rings) {
        self.output.write_control(&self.port, FrameKind::Trace, rings.as_bytes());
    }

    /// Says how the program ended and what each core did, and waits until the host has everything.
    pub async fn finish(&self, report: ExitReport) {
        for (number, way, stamps) in crate::stages::all() {
            let totals = stamps.totals(number, way);
            self.output.write_control(&self.port, FrameKind::Stages, totals.as_bytes());
        }
        for core in CpuId::all() {
            let counters = crate::counters::of_core(core);
            self.output.write_control(&self.port, FrameKind::Counters, counters.as_bytes());
        }
        self.output.write_control(&self.port, FrameKind::Exit, report.as_bytes());
        let drained = || (self.output.is_empty() && self.port.reclaim()).then_some(());
        self.port.activity.wait_until(drained).await;
    }
}
