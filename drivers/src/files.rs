//! virtio-9p: messages to a file server and its answers.
//!
//! Specification: Virtual I/O Device 1.2, section 5.10 of the list of device types; the messages are those
//! of 9P2000.L (`fs::remote`). The driver looks at nothing but the tag, which it sets to the number of
//! the slot: two messages under way never have the same.

use abi::Errno;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use base::device::chains::ChainQueue;
use base::device::virtio::Transport;
use base::device::{Exchange, Reply};
use base::memory::PAGE_SIZE;
use core::ops::Range;

use crate::port::Port;

/// Longest time that an answer may take, waiting for a slot included, in nanoseconds.
const TIMEOUT_NS: u64 = 60_000_000_000;
/// Entries of the queue: two for each message under way.
const RING: usize = 16;
/// Pages of a message, and of an answer.
const PAGES: usize = 32;
/// Feature: the configuration holds the tag of the mount.
const MOUNT_TAG: u64 = 1;
/// Where the tag stands in every message and answer.
const TAG: Range<usize> = 5..7;

/// One file server.
pub struct Files {
    port: Port<RING>,
    name: String,
}

impl Files {
    /// Starts the device; `None` when it does not accept its queue, or there is no memory.
    pub fn new(mut transport: Transport) -> Option<Files> {
        let start = |transport: &mut Transport| ChainQueue::new(transport, 0, 2 * PAGES);
        let queue = transport.start_with(MOUNT_TAG, start)?;
        let byte = |offset| transport.configuration(offset);
        let length = usize::from(byte(0)?) | usize::from(byte(1)?) << 8;
        let name: Vec<u8> = (0..length.min(256)).map_while(|index| byte(2 + index)).collect();
        let name = String::from_utf8_lossy(&name).into_owned();
        Some(Files { port: Port::new(transport, queue), name })
    }

    /// The tag by which the host names what it shares.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes answers in, if there are any, and wakes who waits; true when there were.
    pub fn poll(&self) -> bool {
        self.port.poll()
    }

    /// The device's line fired: acknowledges it, so that it can rise again, and polls.
    pub fn interrupt(&self) {
        self.port.interrupt();
    }
}

impl Exchange for Files {
    fn exchange(&self, mut message: Vec<u8>) -> Reply<'_> {
        Box::pin(async move {
            let mut tag = [0; 2];
            let send = |slot: usize, send: &mut crate::port::Send<'_>| {
                tag = (slot as u16).to_le_bytes();
                let Some(place) = message.get_mut(TAG) else { return false };
                place.copy_from_slice(&tag);
                send(&[&message])
            };
            let answer = self.port.exchange(send, PAGES * PAGE_SIZE, TIMEOUT_NS).await?;
            let mut bytes = answer.bytes;
            bytes.truncate(answer.used);
            // That of another slot is of no use.
            if bytes.get(TAG) == Some(&tag) { Ok(bytes) } else { Err(Errno::EIO) }
        })
    }

    fn longest(&self) -> (usize, usize) {
        (PAGES * PAGE_SIZE, PAGES * PAGE_SIZE)
    }
}
