//! virtio-9p: messages to a file server and its answers.
//!
//! Specification: Virtual I/O Device 1.2, section 5.10 of the list of device types; the messages are those
//! of 9P2000.L (`fs::remote`). The driver looks at nothing but the tag, which it sets to the number of
//! the slot: two messages under way never have the same.
//!
//! Every message has an end: an answer that does not come in time is `EIO`. Its slot stays with the device
//! until the device returns it, and nobody looks at that answer then.

use abi::Errno;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use base::device::chains::{ChainQueue, SLOTS};
use base::device::virtio::Transport;
use base::device::{Exchange, Reply};
use base::sync::Mutex;
use base::sync::rank::DEVICE;
use base::time;
use base::wait::WaitQueue;
use core::ops::Range;

/// Longest time that an answer may take, waiting for a slot included, in nanoseconds.
const TIMEOUT_NS: u64 = 60_000_000_000;
/// Pages of a message, and of an answer.
const MESSAGE_PAGES: usize = 32;
const ANSWER_PAGES: usize = 32;
/// Feature: the configuration holds the tag of the mount.
const MOUNT_TAG: u64 = 1;
/// Where the tag stands in every message and answer.
const TAG: Range<usize> = 5..7;

/// One file server.
pub struct Files {
    port: Mutex<Port>,
    name: String,
    /// Woken when an answer has come.
    activity: WaitQueue,
}

struct Port {
    transport: Transport,
    queue: ChainQueue,
    waiting: [Waiter; SLOTS],
}

/// Who has a slot.
enum Waiter {
    /// Nobody.
    None,
    /// Somebody waits for the answer.
    Waits,
    /// Somebody gave up; the device still has the slot.
    Gone,
    /// The answer is there.
    Answered(Result<Vec<u8>, Errno>),
}

impl Files {
    /// Starts the device; `None` when it does not accept its queue, or there is no memory.
    pub fn new(mut transport: Transport) -> Option<Files> {
        let queue = transport.start_with(MOUNT_TAG, |transport| {
            ChainQueue::new(transport, 0, MESSAGE_PAGES, ANSWER_PAGES)
        })?;
        let byte = |offset| transport.configuration(offset);
        let length = usize::from(byte(0)?) | usize::from(byte(1)?) << 8;
        let name: Vec<u8> = (0..length.min(256)).map_while(|index| byte(2 + index)).collect();
        let name = String::from_utf8_lossy(&name).into_owned();
        let waiting = [const { Waiter::None }; SLOTS];
        let port = Mutex::new(&DEVICE, Port { transport, queue, waiting });
        Some(Files { port, name, activity: WaitQueue::new() })
    }

    /// The tag by which the host names what it shares.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes answers in, if there are any, and wakes who waits; true when there were.
    pub fn poll(&self) -> bool {
        let mut port = self.port.lock();
        if !port.queue.has_used() {
            return false;
        }
        let Port { queue, waiting, .. } = &mut *port;
        let mut deliver = |slot: usize, answer: &[u8]| {
            let Some(waiter) = waiting.get_mut(slot) else { return };
            *waiter = match waiter {
                Waiter::Waits => Waiter::Answered(checked(slot, answer)),
                _ => Waiter::None,
            };
        };
        while queue.take(&mut deliver).is_some() {}
        if queue.is_broken() {
            // No answer comes any more.
            for waiter in waiting.iter_mut().filter(|waiter| matches!(waiter, Waiter::Waits)) {
                *waiter = Waiter::Answered(Err(Errno::EIO));
            }
        }
        drop(port);
        self.activity.wake_all();
        true
    }

    /// The device's line fired: acknowledges it, so that it can rise again, and polls.
    pub fn interrupt(&self) {
        self.port.lock().transport.acknowledge();
        self.poll();
    }

    /// Gives the device a message; the slot that has it, or `None` when all are taken.
    fn submit(&self, message: &mut [u8]) -> Result<Option<usize>, Errno> {
        let Port { transport, queue, waiting } = &mut *self.port.lock();
        if queue.is_broken() {
            return Err(Errno::EIO);
        }
        let is_free = |slot: usize| matches!(waiting.get(slot), Some(Waiter::None));
        let Some(slot) = queue.free_slot(is_free) else { return Ok(None) };
        message.get_mut(TAG).ok_or(Errno::EIO)?.copy_from_slice(&(slot as u16).to_le_bytes());
        if !queue.submit(transport, slot, message) {
            return Err(Errno::EIO);
        }
        if let Some(waiter) = waiting.get_mut(slot) {
            *waiter = Waiter::Waits;
        }
        Ok(Some(slot))
    }

    fn take(&self, slot: usize) -> Option<Result<Vec<u8>, Errno>> {
        let mut port = self.port.lock();
        let waiter = port.waiting.get_mut(slot)?;
        match core::mem::replace(waiter, Waiter::None) {
            Waiter::Answered(answer) => Some(answer),
            other => {
                *waiter = other;
                None
            }
        }
    }
}

/// The answer of a slot, if it is that of this slot.
fn checked(slot: usize, answer: &[u8]) -> Result<Vec<u8>, Errno> {
    if answer.get(TAG) != Some((slot as u16).to_le_bytes().as_slice()) {
        return Err(Errno::EIO);
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(answer.len()).map_err(|_| Errno::ENOMEM)?;
    bytes.extend_from_slice(answer);
    Ok(bytes)
}

/// A slot that somebody has; given back when he goes.
struct Held<'a> {
    files: &'a Files,
    slot: usize,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut port = self.files.port.lock();
        if let Some(waiter) = port.waiting.get_mut(self.slot) {
            *waiter = match waiter {
                Waiter::Waits => Waiter::Gone,
                _ => Waiter::None,
            };
        }
        drop(port);
        // Somebody may wait for a slot.
        self.files.activity.wake_all();
    }
}

impl Exchange for Files {
    fn exchange(&self, mut message: Vec<u8>) -> Reply<'_> {
        Box::pin(async move {
            let deadline_ns = Some(time::now_ns().saturating_add(TIMEOUT_NS));
            let submit = || match self.submit(&mut message) {
                Ok(None) => None,
                Ok(Some(slot)) => Some(Ok(slot)),
                Err(error) => Some(Err(error)),
            };
            let slot = self.activity.wait_until(submit);
            let slot = time::with_deadline(slot, deadline_ns).await.map_err(|_| Errno::EIO)??;
            let held = Held { files: self, slot };
            let answer = self.activity.wait_until(|| self.take(slot));
            let answer = time::with_deadline(answer, deadline_ns).await;
            let answer = answer.map_err(|_| Errno::EIO)?;
            // The slot is free already, and perhaps somebody else's.
            core::mem::forget(held);
            self.activity.wake_all();
            answer
        })
    }

    fn longest(&self) -> (usize, usize) {
        self.port.lock().queue.longest()
    }
}
