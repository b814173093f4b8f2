//! What all sockets remember of their options.

use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

/// Most bytes that somebody without privilege may ask for as a buffer (`wmem_max`, `rmem_max`).
pub const BUFFER_LIMIT: u64 = 212_992;
/// The buffers of a new socket.
const DEFAULT_BUFFER: usize = 212_992;
/// The smallest buffer for sending.
const LEAST_SEND_BUFFER: usize = 4608;
/// The smallest buffer for receiving.
const LEAST_RECEIVE_BUFFER: usize = 2304;
/// No time limit.
const FOREVER: u64 = u64::MAX;

/// A time limit in nanoseconds.
#[derive(Debug)]
pub struct Limit(AtomicU64);

impl Limit {
    /// The limit, if there is one.
    pub fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&limit_ns| limit_ns != FOREVER)
    }

    /// Changes it.
    pub fn set(&self, limit_ns: Option<u64>) {
        self.0.store(limit_ns.unwrap_or(FOREVER), Ordering::Relaxed);
    }
}

/// Options of one socket. Each is a word of its own; none depends on another.
#[derive(Debug)]
pub struct Options {
    /// Options that are on or off, one bit each, by their number.
    switches: AtomicU64,
    send_buffer: AtomicUsize,
    receive_buffer: AtomicUsize,
    /// How long a receiver waits.
    pub receive_limit: Limit,
    /// How long a sender waits.
    pub send_limit: Limit,
    /// Bytes that a receiver waits for.
    pub low_water: AtomicI32,
    /// `SO_PRIORITY`.
    pub priority: AtomicI32,
    /// `SO_MARK`.
    pub mark: AtomicI32,
    /// Seconds of `SO_LINGER`.
    pub linger_seconds: AtomicI32,
    /// Where the next `MSG_PEEK` begins; negative: at the front.
    pub peek_offset: AtomicI32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            switches: AtomicU64::new(0),
            send_buffer: AtomicUsize::new(DEFAULT_BUFFER),
            receive_buffer: AtomicUsize::new(DEFAULT_BUFFER),
            receive_limit: Limit(AtomicU64::new(FOREVER)),
            send_limit: Limit(AtomicU64::new(FOREVER)),
            low_water: AtomicI32::new(1),
            priority: AtomicI32::new(0),
            mark: AtomicI32::new(0),
            linger_seconds: AtomicI32::new(0),
            peek_offset: AtomicI32::new(-1),
        }
    }
}

impl Options {
    /// Whether an option below 64 is on.
    pub fn is_on(&self, option: i32) -> bool {
        self.switches.load(Ordering::Relaxed) >> (option & 63) & 1 != 0
    }

    /// Turns an option below 64 on or off.
    pub fn turn(&self, option: i32, is_on: bool) {
        let bit = 1 << (option & 63);
        if is_on {
            self.switches.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.switches.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Bytes that may wait to be received from this socket.
    pub fn send_buffer(&self) -> usize {
        self.send_buffer.load(Ordering::Relaxed)
    }

    /// Bytes that may wait to be received by this socket.
    pub fn receive_buffer(&self) -> usize {
        self.receive_buffer.load(Ordering::Relaxed)
    }

    /// As `SO_SNDBUF`: twice what is asked for, for the cost of keeping messages.
    pub fn set_send_buffer(&self, bytes: u64) {
        self.send_buffer.store(doubled(bytes, LEAST_SEND_BUFFER), Ordering::Relaxed);
    }

    /// As `SO_RCVBUF`.
    pub fn set_receive_buffer(&self, bytes: u64) {
        self.receive_buffer.store(doubled(bytes, LEAST_RECEIVE_BUFFER), Ordering::Relaxed);
    }
}

fn doubled(bytes: u64, least: usize) -> usize {
    let most = i32::MAX as u64 / 2;
    usize::try_from(bytes.min(most) * 2).unwrap_or(least).max(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_doubled_and_have_a_least_size() {
        let options = Options::default();
        options.set_send_buffer(10_000);
        options.set_receive_buffer(0);
        assert_eq!((options.send_buffer(), options.receive_buffer()), (20_000, 2304));
        options.set_send_buffer(u64::MAX);
        assert_eq!(options.send_buffer(), 2_147_483_646);
    }

    #[test]
    fn switches_do_not_touch_one_another() {
        let options = Options::default();
        options.turn(2, true);
        options.turn(16, true);
        options.turn(2, false);
        assert_eq!((options.is_on(2), options.is_on(16)), (false, true));
    }
}
