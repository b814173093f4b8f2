//! Frames to the host: straight to the device while it has room, else through a queue.
//!
//! The queue is bounded by the protocol: of each stream at most `OUTPUT_WINDOW` frames are under way,
//! and a writer without credit waits until the host has passed earlier ones on.

use alloc::collections::VecDeque;

use abi::Errno;
use abi::console::{MAX_PAYLOAD, OUTPUT_WINDOW};
use base::sync::Mutex;
use base::sync::rank::CONSOLE;

use super::*;

/// The output streams, in the order of their credits.
const STREAMS: [FrameKind; 3] = [FrameKind::Stdout, FrameKind::Stderr, FrameKind::Terminal];

/// Frames on their way to the host.
pub struct Output {
    state: Mutex<State>,
    /// Woken when a stream has got credit or was closed.
    pub room: base::wait::WaitQueue,
}

struct State {
    /// Bytes that the device had no room for yet.
    queued: VecDeque<u8>,
    /// Frames that each stream may still send.
    credits: [u32; STREAMS.len()],
    /// The error of streams that nobody reads any more.
    closed: [Option<Errno>; STREAMS.len()],
}

/// Whether a stream takes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// It takes at least one frame.
    Ready,
    /// It has no credit; wait for `Output::room`.
    Full,
    /// Nobody reads it any more.
    Closed(Errno),
}

fn stream_index(kind: FrameKind) -> Option<usize> {
    STREAMS.iter().position(|&stream| stream == kind)
}

impl Default for Output {
    fn default() -> Output {
        Output::new()
    }
}

impl Output {
    /// An empty queue with full windows.
    pub fn new() -> Output {
        let state = State {
            queued: VecDeque::new(),
            credits: [OUTPUT_WINDOW; STREAMS.len()],
            closed: [None; STREAMS.len()],
        };
        Output { state: Mutex::new(&CONSOLE, state), room: base::wait::WaitQueue::new() }
    }

    /// Sends bytes of a stream as one or more frames, as far as its credit goes, and returns how many
    /// were taken.
    pub fn write(&self, port: &Console, stream: FrameKind, bytes: &[u8]) -> usize {
        let Some(index) = stream_index(stream) else { return 0 };
        let state = &mut *self.state.lock();
        let mut taken = 0;
        for payload in bytes.chunks(MAX_PAYLOAD) {
            if state.credits[index] == 0 || state.closed[index].is_some() {
                break;
            }
            state.credits[index] -= 1;
            append(&mut state.queued, port, stream, payload);
            taken += payload.len();
        }
        taken
    }

    /// Sends one short frame that needs no credit.
    pub fn write_control(&self, port: &Console, kind: FrameKind, payload: &[u8]) {
        append(&mut self.state.lock().queued, port, kind, payload);
    }

    /// The host has passed `frames` frames of a stream on.
    pub fn credit(&self, stream: u32, frames: u32) {
        if let Some(index) = FrameKind::from_number(stream).and_then(stream_index) {
            let credits = &mut self.state.lock().credits[index];
            *credits = credits.saturating_add(frames).min(OUTPUT_WINDOW);
        }
        self.note_sent();
        self.room.wake_all();
    }

    /// Tells the terminal if the host has passed on all that was taken from it.
    pub fn note_sent(&self) {
        let Some(index) = stream_index(FrameKind::Terminal) else { return };
        let is_sent = {
            let state = self.state.lock();
            state.credits[index] == OUTPUT_WINDOW || state.closed[index].is_some()
        };
        if is_sent {
            terminal().all_sent();
        }
    }

    /// Nobody reads a stream any more; later writes get this error.
    pub fn close(&self, stream: u32, errno: Errno) {
        if let Some(index) = FrameKind::from_number(stream).and_then(stream_index) {
            self.state.lock().closed[index] = Some(errno);
        }
        self.note_sent();
        self.room.wake_all();
    }

    /// Whether `write` would take bytes of the stream now.
    pub fn state_of(&self, stream: FrameKind) -> StreamState {
        let Some(index) = stream_index(stream) else { return StreamState::Closed(Errno::EIO) };
        let state = self.state.lock();
        match state.closed[index] {
            Some(errno) => StreamState::Closed(errno),
            None if state.credits[index] == 0 => StreamState::Full,
            None => StreamState::Ready,
        }
    }

    /// Moves queued bytes to the device; true when some moved.
    pub fn flush(&self, port: &Console) -> bool {
        drain(&mut self.state.lock().queued, port)
    }

    /// Whether nothing waits for the device.
    pub fn is_empty(&self) -> bool {
        self.state.lock().queued.is_empty()
    }
}

fn append(queued: &mut VecDeque<u8>, port: &Console, kind: FrameKind, payload: &[u8]) {
    let header = FrameHeader { kind: kind as u32, length: payload.len() as u32 };
    queued.extend(header.as_bytes());
    queued.extend(payload);
    drain(queued, port);
}

fn drain(queued: &mut VecDeque<u8>, port: &Console) -> bool {
    let mut moved = false;
    loop {
        let (front, _) = queued.as_slices();
        if front.is_empty() {
            return moved;
        }
        match port.send(front) {
            0 => return moved,
            sent => {
                queued.drain(..sent);
                moved = true;
            }
        }
    }
}
