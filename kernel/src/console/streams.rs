//! The program's standard streams when the host's are not terminals: plain byte streams, as pipes are.
//!
//! Input is granted to the host in credits, so at most `INPUT_LIMIT` bytes wait here unread.

use alloc::collections::VecDeque;

use base::sync::Mutex;
use base::sync::rank::PIPE;
use base::wait::WaitQueue;

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
