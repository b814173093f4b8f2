//! The program's standard streams when the host's are not terminals: plain byte streams, as pipes are.
//!
//! Input is granted to the host in credits, so at most `INPUT_LIMIT` bytes wait here unread.

use alloc::collections::VecDeque;
use core::any::Any;

use abi::console::MAX_PAYLOAD;
use abi::fs::PollEvents;
use abi::terminal::FIONREAD;
use base::io::{Sink, Source};
use base::sync::Mutex;
use base::sync::rank::PIPE;
use base::wait::WaitQueue;

use fs::file::{IoctlAnswer, Transfer};
use fs::poll::PollTable;
use fs::{Caller, File};

use super::output::StreamState;
use super::*;

/// Most bytes that wait for the program to read them.
const INPUT_LIMIT: usize = 64 * 1024;
/// The smallest grant worth a frame, unless the queue is empty.
const GRANT_STEP: usize = 16 * 1024;

/// Bytes from the host, not yet read.
pub struct HostInput {
    state: Mutex<State>,
    /// Woken when bytes have come, the stream has ended, or bytes were read.
    pub changed: WaitQueue,
}

struct State {
    bytes: VecDeque<u8>,
    /// Granted to the host and not yet received.
    granted: usize,
    ended: bool,
}

impl Default for HostInput {
    fn default() -> HostInput {
        HostInput::new()
    }
}

impl HostInput {
    /// An empty stream; nothing is granted yet.
    pub fn new() -> HostInput {
        let state = State { bytes: VecDeque::new(), granted: 0, ended: false };
        HostInput { state: Mutex::new(&PIPE, state), changed: WaitQueue::new() }
    }

    /// Takes bytes from the host.
    pub fn receive(&self, bytes: &[u8]) {
        let state = &mut *self.state.lock();
        state.granted = state.granted.saturating_sub(bytes.len());
        state.bytes.extend(bytes);
        self.changed.wake_all();
    }

    /// Whether bytes wait to be read.
    pub fn has_bytes(&self) -> bool {
        !self.state.lock().bytes.is_empty()
    }

    /// Hands waiting bytes to `take`, which says how many it took, until it takes no more.
    pub fn feed(&self, mut take: impl FnMut(&[u8]) -> usize) -> usize {
        let mut piece = [0; 256];
        let mut total = 0;
        loop {
            let length = {
                let state = self.state.lock();
                let (front, _) = state.bytes.as_slices();
                let length = front.len().min(piece.len());
                piece[..length].copy_from_slice(&front[..length]);
                length
            };
            // No lock is held: a terminal that takes bytes sends signals.
            let taken = take(&piece[..length]);
            self.state.lock().bytes.drain(..taken);
            total += taken;
            if taken == 0 {
                break;
            }
        }
        self.changed.wake_all();
        total
    }

    /// The host has no more.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.changed.wake_all();
    }

    /// Bytes that may be granted now; 0 while a grant would be too small to be worth a frame.
    fn grantable(&self) -> usize {
        let state = self.state.lock();
        let free = INPUT_LIMIT.saturating_sub(state.bytes.len() + state.granted);
        if state.ended || free < GRANT_STEP { 0 } else { free }
    }

    /// Whether `grant` would grant something.
    pub fn has_grant(&self) -> bool {
        self.grantable() > 0
    }

    /// Grants the host what there is room for.
    pub fn grant(&self, output: &Output, port: &Console) {
        let free = self.grantable();
        if free > 0 {
            self.state.lock().granted += free;
            let count = u32::try_from(free).unwrap_or(u32::MAX);
            output.write_control(port, FrameKind::StdinCredit, count.as_bytes());
        }
    }
}

/// Standard input as a file.
pub struct HostInputFile;

impl File for HostInputFile {
    fn read(&self, _offset: u64, sink: &mut dyn Sink, _: Transfer) -> Result<usize, Errno> {
        let input = &channel().ok_or(Errno::EIO)?.input;
        let mut total = 0;
        let mut state = input.state.lock();
        if state.bytes.is_empty() && !state.ended && sink.remaining() > 0 {
            return Err(Errno::EAGAIN);
        }
        loop {
            let (front, _) = state.bytes.as_slices();
            if front.is_empty() {
                break;
            }
            let taken = sink.write(front);
            if taken == 0 {
                break;
            }
            state.bytes.drain(..taken);
            total += taken;
        }
        drop(state);
        input.changed.wake_all();
        Ok(total)
    }

    fn poll(&self, events: PollEvents, table: Option<&mut PollTable<'_>>) -> PollEvents {
        let Some(channel) = channel() else { return PollEvents::ERR };
        fs::poll::register(table, &channel.input.changed);
        let state = channel.input.state.lock();
        let mut ready = PollEvents::empty();
        if !state.bytes.is_empty() || state.ended {
            ready |= PollEvents::READABLE & events;
        }
        if state.ended {
            ready |= PollEvents::HUP;
        }
        ready
    }

    fn ioctl_input(&self, request: u32) -> Result<usize, Errno> {
        if request == FIONREAD { Ok(0) } else { Err(Errno::ENOTTY) }
    }

    fn ioctl(
        &self,
        _caller: &dyn Caller,
        request: u32,
        _argument: u64,
        _input: &[u8],
    ) -> Result<IoctlAnswer, Errno> {
        let channel = channel().ok_or(Errno::EIO)?;
        if request != FIONREAD {
            return Err(Errno::ENOTTY);
        }
        let waiting = i32::try_from(channel.input.state.lock().bytes.len()).unwrap_or(i32::MAX);
        Ok(IoctlAnswer::bytes(&waiting.to_ne_bytes()))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Standard output or standard error as a file.
pub struct HostOutputFile {
    stream: FrameKind,
    /// Held for one piece: bytes are taken from a writer only when there is credit for them.
    piece: Mutex<()>,
}

impl HostOutputFile {
    /// The file of one stream: `FrameKind::Stdout` or `FrameKind::Stderr`.
    pub fn new(stream: FrameKind) -> HostOutputFile {
        HostOutputFile { stream, piece: Mutex::new(&PIPE, ()) }
    }
}

impl File for HostOutputFile {
    fn write(&self, _offset: u64, source: &mut dyn Source, _: Transfer) -> Result<usize, Errno> {
        let channel = channel().ok_or(Errno::EIO)?;
        let _piece = self.piece.lock();
        let mut total = 0;
        let mut buffer = [0; MAX_PAYLOAD];
        while source.remaining() > 0 {
            match channel.output.state_of(self.stream) {
                StreamState::Ready => {}
                StreamState::Full if total == 0 => return Err(Errno::EAGAIN),
                StreamState::Full => break,
                StreamState::Closed(errno) if total == 0 => return Err(errno),
                StreamState::Closed(_) => break,
            }
            let count = source.read(&mut buffer);
            if count == 0 {
                break;
            }
            channel.write(self.stream, &buffer[..count]);
            total += count;
        }
        Ok(total)
    }

    fn poll(&self, events: PollEvents, table: Option<&mut PollTable<'_>>) -> PollEvents {
        let Some(channel) = channel() else { return PollEvents::ERR };
        fs::poll::register(table, &channel.output.room);
        match channel.output.state_of(self.stream) {
            StreamState::Ready => PollEvents::WRITABLE & events,
            StreamState::Full => PollEvents::empty(),
            StreamState::Closed(_) => PollEvents::WRITABLE & events | PollEvents::ERR,
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
