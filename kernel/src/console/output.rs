//! Frames to the host: straight to the device while it has room, else through a bounded queue.

use alloc::collections::VecDeque;

use abi::console::MAX_PAYLOAD;
use base::sync::Mutex;
use base::sync::rank::CONSOLE;

use super::*;

/// Most bytes that wait for the device.
const QUEUE_LIMIT: usize = 64 * 1024;

/// Frames on their way to the host.
pub struct Output {
    /// Bytes that the device had no room for yet. Guards the order of frames, too.
    queued: Mutex<VecDeque<u8>>,
    /// Woken when the queue has become shorter.
    pub room: base::wait::WaitQueue,
}

impl Output {
    /// An empty queue.
    pub fn new() -> Output {
        Output { queued: Mutex::new(&CONSOLE, VecDeque::new()), room: base::wait::WaitQueue::new() }
    }

    /// Sends bytes as one or more frames and returns how many were taken: fewer than given when the
    /// queue has become full.
    pub fn write(&self, port: &Console, kind: FrameKind, bytes: &[u8]) -> usize {
        let mut queued = self.queued.lock();
        let mut taken = 0;
        for payload in bytes.chunks(MAX_PAYLOAD - size_of::<FrameHeader>()) {
            if queued.len() >= QUEUE_LIMIT {
                break;
            }
            append(&mut queued, port, kind, payload);
            taken += payload.len();
        }
        taken
    }

    /// Sends one short frame whether the queue is full or not.
    pub fn write_urgent(&self, port: &Console, kind: FrameKind, payload: &[u8]) {
        append(&mut self.queued.lock(), port, kind, payload);
    }

    /// Moves queued bytes to the device; true when some moved.
    pub fn flush(&self, port: &Console) -> bool {
        let moved = drain(&mut self.queued.lock(), port);
        if moved {
            self.room.wake_all();
        }
        moved
    }

    /// Whether `write` would take bytes now.
    pub fn has_room(&self) -> bool {
        self.queued.lock().len() < QUEUE_LIMIT
    }

    /// Whether nothing waits for the device.
    pub fn is_empty(&self) -> bool {
        self.queued.lock().is_empty()
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
