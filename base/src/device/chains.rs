//! A virtqueue on which each message gets one answer.
//!
//! A slot is a buffer that the queue owns: its first part is what the device reads, the rest what it writes.
//! It belongs to the device from `submit` until the device returns it, however long that takes; who gave up
//! waiting leaves the slot to it. A device that returns what it was not given is used no more.

use alloc::vec::Vec;
use core::ptr::NonNull;

use hal::PAGE_SIZE;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::{BufferDirection, Hal};

use super::virtio::{DmaMemory, Transport};

/// What the buffer of a slot is aligned to, and the answer in it, in bytes.
const ALIGNMENT: usize = 16;

struct Slot {
    buffer: NonNull<u8>,
    /// Bytes of the message and of the answer that the device has; `None` while it has none.
    given: Option<(usize, usize)>,
}

impl Slot {
    /// The two parts of the buffer.
    ///
    /// # Safety
    /// Both fit into the buffer, and nobody else uses it for as long as the result lives.
    unsafe fn parts(
        &self,
        message: usize,
        answer: usize,
    ) -> (&'static mut [u8], &'static mut [u8]) {
        let second = message.next_multiple_of(ALIGNMENT);
        // SAFETY: the buffer is a queue's alone, is never freed, and the caller's promise.
        unsafe {
            (
                core::slice::from_raw_parts_mut(self.buffer.as_ptr(), message),
                core::slice::from_raw_parts_mut(self.buffer.as_ptr().add(second), answer),
            )
        }
    }
}

/// See the module. `RING` is the number of entries of the ring, a power of two: two for each slot.
pub struct ChainQueue<const RING: usize> {
    queue: VirtQueue<DmaMemory, RING>,
    index: u16,
    /// Bytes of the buffer of a slot.
    room: usize,
    slots: Vec<Slot>,
    /// Which slot an outstanding chain uses, by token.
    slot_of_token: [Option<u8>; RING],
    is_broken: bool,
}

// SAFETY: the buffers belong to this queue alone, and every access to them goes through `&mut self`.
unsafe impl<const RING: usize> Send for ChainQueue<RING> {}

impl<const RING: usize> ChainQueue<RING> {
    /// Messages that may be with the device at the same time.
    pub const SLOTS: usize = RING / 2;

    /// Sets up queue `index` of the device; a message and its answer share `pages` pages. `None` when
    /// there is no memory or the device does not take the queue.
    pub fn new(transport: &mut Transport, index: u16, pages: usize) -> Option<ChainQueue<RING>> {
        let queue = VirtQueue::new(&mut transport.registers, index, false, false).ok()?;
        let mut slots = Vec::new();
        for _ in 0..Self::SLOTS {
            let (address, buffer) = DmaMemory::dma_alloc(pages, BufferDirection::Both);
            if address == 0 {
                return None;
            }
            slots.push(Slot { buffer, given: None });
        }
        let slot_of_token = [None; RING];
        let room = pages * PAGE_SIZE;
        Some(ChainQueue { queue, index, room, slots, slot_of_token, is_broken: false })
    }

    /// Whether the device broke the rules.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// A slot that the device does not hold, of those that `is_free` accepts.
    pub fn free_slot(&self, is_free: impl Fn(usize) -> bool) -> Option<usize> {
        (0..self.slots.len()).find(|&slot| {
            self.slots.get(slot).is_some_and(|place| place.given.is_none()) && is_free(slot)
        })
    }

    /// Gives the device the message that lies in `parts`, one behind the other, in a free slot, and room
    /// for `answer` bytes. False when they do not fit or the queue is full.
    pub fn submit(
        &mut self,
        transport: &mut Transport,
        slot: usize,
        parts: &[&[u8]],
        answer: usize,
    ) -> bool {
        let message: usize = parts.iter().map(|part| part.len()).sum();
        let Some(place) = self.slots.get_mut(slot) else { return false };
        let fits = message > 0
            && answer > 0
            && message <= self.room
            && answer <= self.room - message.next_multiple_of(ALIGNMENT).min(self.room);
        if !fits || place.given.is_some() || self.is_broken {
            return false;
        }
        // SAFETY: both fit, and the device does not hold the buffer, because nothing was given.
        let (outgoing, incoming) = unsafe { place.parts(message, answer) };
        let mut at = 0;
        for part in parts {
            outgoing[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        // SAFETY: neither part is touched until the device returns the token.
        let Ok(token) = (unsafe { self.queue.add(&[&*outgoing], &mut [incoming]) }) else {
            return false;
        };
        place.given = Some((message, answer));
        if let Some(noted) = self.slot_of_token.get_mut(usize::from(token)) {
            *noted = Some(slot as u8);
        }
        if self.queue.should_notify() {
            use virtio_drivers::transport::Transport as _;
            transport.registers.notify(self.index);
        }
        true
    }

    /// Takes back a slot that the device has answered in, with its number, the room for the answer, and
    /// how many of these bytes the device says that it has written.
    pub fn take<R>(&mut self, take: impl FnOnce(usize, &[u8], usize) -> R) -> Option<R> {
        if self.is_broken {
            return None;
        }
        let token = self.queue.peek_used()?;
        let noted = self.slot_of_token.get_mut(usize::from(token)).and_then(Option::take);
        let place = noted.map(usize::from).and_then(|slot| Some((slot, self.slots.get_mut(slot)?)));
        let given = place.and_then(|(slot, place)| Some((slot, place.given.take()?, place)));
        let Some((slot, (message, answer), place)) = given else {
            self.is_broken = true;
            return None;
        };
        // SAFETY: the same parts as were passed to `add` for this token, and the device has returned it.
        let (used, answer) = unsafe {
            let (outgoing, incoming) = place.parts(message, answer);
            let used = self.queue.pop_used(token, &[&*outgoing], &mut [&mut *incoming]);
            (used, &*incoming)
        };
        match used {
            Ok(used) => {
                let used = usize::try_from(used).unwrap_or(usize::MAX).min(answer.len());
                Some(take(slot, answer, used))
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
