//! A queue of a virtio device on which each message gets one answer, and those who wait for the answers.
//!
//! Every message has an end: an answer that does not come in time is `EIO`. Its slot stays with the device
//! until the device returns it, and nobody looks at that answer then. A device that answered nothing while a message
//! waited for all of its time is silent: `is_silent` tells, for as long again or until it answers.

use abi::Errno;
use alloc::vec::Vec;
use base::device::chains::ChainQueue;
use base::device::virtio::Transport;
use base::sync::Mutex;
use base::sync::rank::DEVICE;
use base::time;
use base::wait::WaitQueue;

/// Gives the device a message in parts; false when it does not fit.
pub type Send<'a> = dyn FnMut(&[&[u8]]) -> bool + 'a;

/// The port of a device whose queue has `RING` entries.
pub struct Port<const RING: usize> {
    inner: Mutex<Inner<RING>>,
    /// Woken when an answer has come or a slot has become free.
    activity: WaitQueue,
}

struct Inner<const RING: usize> {
    transport: Transport,
    queue: ChainQueue<RING>,
    waiting: Vec<Waiter>,
    /// Counts answers.
    answers: u64,
    /// Until when the device is taken for silent, on the clock of `time::now_ns`; 0 when it is not.
    silent_until_ns: u64,
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
    Answered(Result<Answer, Errno>),
}

/// What the device wrote.
pub struct Answer {
    /// All the room that it had.
    pub bytes: Vec<u8>,
    /// How many bytes it says that it has written.
    pub used: usize,
}

impl<const RING: usize> Port<RING> {
    /// Of a device that was started with this queue.
    pub fn new(transport: Transport, queue: ChainQueue<RING>) -> Port<RING> {
        let waiting = (0..ChainQueue::<RING>::SLOTS).map(|_| Waiter::None).collect();
        let inner = Inner { transport, queue, waiting, answers: 0, silent_until_ns: 0 };
        let inner = Mutex::new(&DEVICE, inner);
        Port { inner, activity: WaitQueue::new() }
    }

    /// Takes answers in, if there are any, and wakes who waits; true when there were.
    pub fn poll(&self) -> bool {
        let mut inner = self.inner.lock();
        if !inner.queue.has_used() {
            return false;
        }
        let Inner { queue, waiting, answers, silent_until_ns, .. } = &mut *inner;
        let mut deliver = |slot: usize, answer: &[u8], used: usize| {
            *answers += 1;
            *silent_until_ns = 0;
            let Some(waiter) = waiting.get_mut(slot) else { return };
            *waiter = match waiter {
                Waiter::Waits => Waiter::Answered(copied(answer, used)),
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
        drop(inner);
        self.activity.wake_all();
        true
    }

    /// The device's line fired: acknowledges it, so that it can rise again, and polls.
    pub fn interrupt(&self) {
        self.inner.lock().transport.acknowledge();
        self.poll();
    }

    /// Sends a message and waits for an answer of up to `room` bytes, no longer than `timeout_ns`, waiting
    /// for a slot included. `message` is given the number of the slot and sends the parts of the message.
    ///
    /// # Errors
    /// `EIO` when the message does not fit, no answer comes in time, or the device broke the rules; `ENOMEM`.
    pub async fn exchange(
        &self,
        mut message: impl FnMut(usize, &mut Send<'_>) -> bool,
        room: usize,
        timeout_ns: u64,
    ) -> Result<Answer, Errno> {
        let deadline_ns = Some(time::now_ns().saturating_add(timeout_ns));
        let answers = self.inner.lock().answers;
        let is_late = |_| {
            self.is_late(answers, timeout_ns);
            Errno::EIO
        };
        let submit = || self.submit(&mut message, room).transpose();
        let slot = time::with_deadline(self.activity.wait_until(submit), deadline_ns).await;
        let slot = slot.map_err(is_late)??;
        let held = Held { port: self, slot };
        let answer = self.activity.wait_until(|| self.take(slot));
        let answer = time::with_deadline(answer, deadline_ns).await;
        let answer = answer.map_err(is_late)?;
        // The slot is free already, and perhaps somebody else's.
        core::mem::forget(held);
        self.activity.wake_all();
        answer
    }

    /// Whether the device has answered nothing for the whole time of a message, and for how long again that is believed.
    pub fn is_silent(&self) -> bool {
        let inner = self.inner.lock();
        inner.silent_until_ns != 0 && time::now_ns() < inner.silent_until_ns
    }

    /// A message has had no answer in its time. There had been so many answers when it came.
    fn is_late(&self, answers: u64, timeout_ns: u64) {
        let mut inner = self.inner.lock();
        if inner.answers != answers {
            return;
        }
        inner.silent_until_ns = time::now_ns().saturating_add(timeout_ns).max(1);
    }

    /// Gives the device a message; the slot that has it, or `None` when all are taken.
    fn submit(
        &self,
        message: &mut impl FnMut(usize, &mut Send<'_>) -> bool,
        room: usize,
    ) -> Result<Option<usize>, Errno> {
        let Inner { transport, queue, waiting, .. } = &mut *self.inner.lock();
        if queue.is_broken() {
            return Err(Errno::EIO);
        }
        let is_free = |slot: usize| matches!(waiting.get(slot), Some(Waiter::None));
        let Some(slot) = queue.free_slot(is_free) else { return Ok(None) };
        if !message(slot, &mut |parts| queue.submit(transport, slot, parts, room)) {
            return Err(Errno::EIO);
        }
        if let Some(waiter) = waiting.get_mut(slot) {
            *waiter = Waiter::Waits;
        }
        Ok(Some(slot))
    }

    fn take(&self, slot: usize) -> Option<Result<Answer, Errno>> {
        let mut inner = self.inner.lock();
        let waiter = inner.waiting.get_mut(slot)?;
        match core::mem::replace(waiter, Waiter::None) {
            Waiter::Answered(answer) => Some(answer),
            other => {
                *waiter = other;
                None
            }
        }
    }
}

fn copied(answer: &[u8], used: usize) -> Result<Answer, Errno> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(answer.len()).map_err(|_| Errno::ENOMEM)?;
    bytes.extend_from_slice(answer);
    Ok(Answer { bytes, used })
}

/// A slot that somebody has; given back when he goes.
struct Held<'a, const RING: usize> {
    port: &'a Port<RING>,
    slot: usize,
}

impl<const RING: usize> Drop for Held<'_, RING> {
    fn drop(&mut self) {
        let mut inner = self.port.inner.lock();
        if let Some(waiter) = inner.waiting.get_mut(self.slot) {
            *waiter = match waiter {
                Waiter::Waits => Waiter::Gone,
                _ => Waiter::None,
            };
        }
        drop(inner);
        // Somebody may wait for a slot.
        self.port.activity.wake_all();
    }
}
