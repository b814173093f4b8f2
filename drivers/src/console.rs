//! virtio-console, one port: a byte channel to the host that never waits.
//!
//! Specification: Virtual I/O Device 1.2, section 5.3. Sending copies into the queue's own pages and
//! stops when the host has not taken them yet; receiving takes what has come. Whoever has to wait
//! awaits `activity` and tries again; the interrupt, or the kernel core that polls, rings it.

use base::device::virtio::{BufferQueue, Transport};
use base::sync::Mutex;
use base::sync::rank::DEVICE;
use base::wait::WaitQueue;

const RECEIVE_QUEUE: u16 = 0;
const TRANSMIT_QUEUE: u16 = 1;

/// One console port.
pub struct Console {
    port: Mutex<Port>,
    /// Woken when bytes have come or buffers have become free.
    pub activity: WaitQueue,
}

struct Port {
    transport: Transport,
    receive: BufferQueue,
    transmit: BufferQueue,
}

impl Console {
    /// Starts the device; `None` when it does not accept its queues.
    pub fn new(mut transport: Transport) -> Option<Console> {
        let (mut receive, transmit) = transport.start(|transport| {
            Some((
                BufferQueue::new(transport, RECEIVE_QUEUE)?,
                BufferQueue::new(transport, TRANSMIT_QUEUE)?,
            ))
        })?;
        receive.offer_all(&mut transport);
        let port = Port { transport, receive, transmit };
        Some(Console { port: Mutex::new(&DEVICE, port), activity: WaitQueue::new() })
    }

    /// Sends as much as there are buffers for and returns how much that was.
    pub fn send(&self, bytes: &[u8]) -> usize {
        let port = &mut *self.port.lock();
        let mut sent = 0;
        while sent < bytes.len() {
            match port.transmit.send(&mut port.transport, &bytes[sent..]) {
                0 => break,
                count => sent += count,
            }
        }
        sent
    }

    /// Takes one buffer of received bytes; false when none has come.
    pub fn receive(&self, take: impl FnOnce(&[u8])) -> bool {
        let port = &mut *self.port.lock();
        port.receive.receive(&mut port.transport, take)
    }

    /// Takes back the buffers that the host has read; true when it has read everything.
    pub fn reclaim(&self) -> bool {
        self.port.lock().transmit.reclaim()
    }

    /// Whether the host has sent bytes or returned buffers since the last look.
    pub fn has_used(&self) -> bool {
        let port = self.port.lock();
        port.receive.has_used() || port.transmit.has_used()
    }

    /// Wakes who waits if the host did anything; true when it did. Reads memory only.
    pub fn poll(&self) -> bool {
        let active = self.has_used();
        if active {
            self.activity.wake_all();
        }
        active
    }

    /// The device's line fired: acknowledges it, so that it can rise again, and polls.
    pub fn interrupt(&self) {
        self.port.lock().transport.acknowledge();
        self.poll();
    }
}
