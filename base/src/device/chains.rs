//! A virtqueue on which each message gets one answer.
//!
//! A slot is a pair of buffers that the queue owns: one that the device reads, one that it writes. They
//! belong to the device from `submit` until the device returns them, however long that takes; who gave up
//! waiting leaves the slot to it. A device that returns what it was not given is used no more.

use alloc::vec::Vec;
use core::ptr::NonNull;

use hal::PAGE_SIZE;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::{BufferDirection, Hal};

use super::virtio::{DmaMemory, Transport};

/// Entries of the ring: two per slot, a power of two.
const RING: usize = 16;
/// Messages that may be with the device at the same time.
pub const SLOTS: usize = RING / 2;

struct Slot {
    message: NonNull<u8>,
    answer: NonNull<u8>,
    /// Bytes of the message that the device has; `None` while it has none.
    given: Option<usize>,
}

/// See the module.
pub struct ChainQueue {
    queue: VirtQueue<DmaMemory, RING>,
    index: u16,
    message_size: usize,
    answer_size: usize,
    slots: Vec<Slot>,
    /// Which slot an outstanding chain uses, by token.
    slot_of_token: [Option<u8>; RING],
    is_broken: bool,
}

// SAFETY: the buffers belong to this queue alone, and every access to them goes through `&mut self`.
unsafe impl Send for ChainQueue {}

impl ChainQueue {
    /// Sets up queue `index` of the device with buffers of these sizes, in pages. `None` when there is no
    /// memory or the device does not take the queue.
    pub fn new(
        transport: &mut Transport,
        index: u16,
        message_pages: usize,
        answer_pages: usize,
    ) -> Option<ChainQueue> {
        let queue = VirtQueue::new(&mut transport.registers, index, false, false).ok()?;
        let allocate = |pages| {
            let (address, pointer) = DmaMemory::dma_alloc(pages, BufferDirection::Both);
            (address != 0).then_some(pointer)
        };
        let mut slots = Vec::new();
        for _ in 0..SLOTS {
            let (message, answer) = (allocate(message_pages)?, allocate(answer_pages)?);
            slots.push(Slot { message, answer, given: None });
        }
        Some(ChainQueue {
            queue,
            index,
            message_size: message_pages * PAGE_SIZE,
            answer_size: answer_pages * PAGE_SIZE,
            slots,
            slot_of_token: [None; RING],
            is_broken: false,
        })
    }

    /// Longest message and longest answer, in bytes.
    pub fn longest(&self) -> (usize, usize) {
        (self.message_size, self.answer_size)
    }

    /// Whether the device broke the rules.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// A slot that the device does not hold, of those that `is_free` accepts.
    pub fn free_slot(&self, is_free: impl Fn(usize) -> bool) -> Option<usize> {
        (0..SLOTS).find(|&slot| self.slots[slot].given.is_none() && is_free(slot))
    }

    /// Gives the device a message in a free slot. False when it does not fit or the queue is full.
    pub fn submit(&mut self, transport: &mut Transport, slot: usize, message: &[u8]) -> bool {
        let Some(place) = self.slots.get_mut(slot) else { return false };
        let fits = !message.is_empty() && message.len() <= self.message_size;
        if !fits || place.given.is_some() || self.is_broken {
            return false;
        }
        // SAFETY: both buffers are this queue's alone and as long as said, are never freed, and the device
        // does not hold them, because nothing was given.
        let (outgoing, incoming) = unsafe {
            (
                core::slice::from_raw_parts_mut(place.message.as_ptr(), message.len()),
                core::slice::from_raw_parts_mut(place.answer.as_ptr(), self.answer_size),
            )
        };
        outgoing.copy_from_slice(message);
        // SAFETY: neither buffer is touched until the device returns the token.
        let Ok(token) = (unsafe { self.queue.add(&[&*outgoing], &mut [incoming]) }) else {
            return false;
        };
        place.given = Some(message.len());
        if let Some(noted) = self.slot_of_token.get_mut(usize::from(token)) {
            *noted = Some(slot as u8);
        }
        if self.queue.should_notify() {
            use virtio_drivers::transport::Transport as _;
            transport.registers.notify(self.index);
        }
        true
    }

    /// Takes back a slot that the device has answered in, with its number and answer.
    pub fn take<R>(&mut self, take: impl FnOnce(usize, &[u8]) -> R) -> Option<R> {
        if self.is_broken {
            return None;
        }
        let token = self.queue.peek_used()?;
        let noted = self.slot_of_token.get_mut(usize::from(token)).and_then(Option::take);
        let place = noted.map(usize::from).and_then(|slot| Some((slot, self.slots.get_mut(slot)?)));
        let Some((slot, place)) = place else {
            self.is_broken = true;
            return None;
        };
        let length = place.given.take().unwrap_or(0);
        // SAFETY: the same buffers as were passed to `add` for this token, and the device has returned it.
        let (used, answer) = unsafe {
            let outgoing = core::slice::from_raw_parts(place.message.as_ptr(), length);
            let incoming = core::slice::from_raw_parts_mut(place.answer.as_ptr(), self.answer_size);
            let used = self.queue.pop_used(token, &[outgoing], &mut [&mut *incoming]);
            (used, &*incoming)
        };
        match used {
            Ok(used) => {
                let used = usize::try_from(used).unwrap_or(usize::MAX).min(answer.len());
                Some(take(slot, &answer[..used]))
            }
            Err(_) => {
                self.is_broken = true;
                None
            }
        }
    }

    /// Whether the device has answered something that was not taken yet: two loads.
    pub fn has_used(&self) -> bool {
        self.queue.can_pop()
    }
}
