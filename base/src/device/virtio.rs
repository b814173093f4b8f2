//! Virtio transports and queues as safe objects.
//!
//! The crate `virtio-drivers` gives the register layout and the split queue; this module gives it
//! memory (`DmaMemory`) and hides its unsafe buffer contract behind `BufferQueue`: a queue whose
//! buffers are pages that it owns, so that a device can only ever write into memory set aside for it.
//! Nothing here waits: a full or empty queue says so.

use alloc::vec::Vec;
use core::ptr::NonNull;

use hal::contract::MmioDevice;
use hal::{Contract, Machine, PAGE_SIZE, PhysAddr};
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::mmio::{MmioTransport, VirtIOHeader};
use virtio_drivers::transport::{DeviceType, Transport as _};
use virtio_drivers::{BufferDirection, Hal};

use crate::memory;

/// Buffers of a `BufferQueue`, and entries of its ring.
const QUEUE_SIZE: usize = 16;

/// Gives `virtio-drivers` memory of Ferry's.
pub enum DmaMemory {}

fn physical_address(pointer: NonNull<u8>) -> u64 {
    pointer.as_ptr() as u64 - Machine::phys_to_virt(PhysAddr(0)) as u64
}

// SAFETY: `dma_alloc` returns fresh, zeroed, contiguous pages of the direct map that nobody else
// uses until `dma_dealloc`; all RAM is mapped, so `share` only converts addresses.
unsafe impl Hal for DmaMemory {
    fn dma_alloc(pages: usize, _direction: BufferDirection) -> (u64, NonNull<u8>) {
        match memory::allocate_contiguous(pages) {
            Ok(address) => {
                let pointer = Machine::phys_to_virt(address);
                // SAFETY: the pages were allocated just now and are `pages` long.
                unsafe { pointer.write_bytes(0, pages * PAGE_SIZE) };
                (address.0, NonNull::new(pointer).unwrap_or(NonNull::dangling()))
            }
            Err(_) => (0, NonNull::dangling()),
        }
    }

    unsafe fn dma_dealloc(paddr: u64, _vaddr: NonNull<u8>, pages: usize) -> i32 {
        // SAFETY: the caller's promise: the memory is from `dma_alloc`, and the device and the driver are
        // done with it.
        unsafe { memory::free_contiguous(PhysAddr(paddr), pages) };
        0
    }

    unsafe fn mmio_phys_to_virt(paddr: u64, size: usize) -> NonNull<u8> {
        NonNull::new(Machine::map_device(PhysAddr(paddr), size)).unwrap_or(NonNull::dangling())
    }

    unsafe fn share(buffer: NonNull<[u8]>, _direction: BufferDirection) -> u64 {
        physical_address(buffer.cast())
    }

    unsafe fn unshare(_paddr: u64, _buffer: NonNull<[u8]>, _direction: BufferDirection) {}
}

/// The kinds of device that Ferry has a driver for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// virtio-console.
    Console,
    /// virtio-blk.
    Block,
    /// virtio-net.
    Network,
    /// virtio-9p.
    Files,
    /// Anything else.
    Other,
}

/// A virtio device and its registers.
pub struct Transport {
    pub(super) registers: MmioTransport<'static>,
}

impl Transport {
    /// The device behind a virtio-mmio window; `None` when the window is empty or not virtio.
    pub fn probe(window: &MmioDevice) -> Option<Transport> {
        let header = NonNull::new(Machine::map_device(window.base, window.size))?;
        // SAFETY: the window was just mapped as device registers, lives for ever, and each window is
        // probed once, at boot.
        let registers =
            unsafe { MmioTransport::new(header.cast::<VirtIOHeader>(), window.size) }.ok()?;
        Some(Transport { registers })
    }

    /// What kind of device it is.
    pub fn kind(&self) -> Kind {
        match self.registers.device_type() {
            DeviceType::Console => Kind::Console,
            DeviceType::Block => Kind::Block,
            DeviceType::Network => Kind::Network,
            DeviceType::_9P => Kind::Files,
            _ => Kind::Other,
        }
    }

    /// Byte `offset` of the device's configuration; `None` past its end.
    pub fn configuration(&self, offset: usize) -> Option<u8> {
        self.registers.read_config_space::<u8>(offset).ok()
    }

    /// Eight bytes of the device's configuration from `offset` on; `None` past its end.
    pub fn configuration_u64(&self, offset: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = self.configuration(offset + index)?;
        }
        Some(u64::from_le_bytes(bytes))
    }

    /// Four bytes of the device's configuration from `offset` on; `None` past its end.
    pub fn configuration_u32(&self, offset: usize) -> Option<u32> {
        let mut bytes = [0; 4];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = self.configuration(offset + index)?;
        }
        Some(u32::from_le_bytes(bytes))
    }

    /// The optional features that the device offers.
    pub fn offered_features(&mut self) -> u64 {
        self.registers.read_device_features()
    }

    /// Starts the device with none of its optional features and the queues that `make` creates.
    pub fn start<R>(&mut self, make: impl FnOnce(&mut Transport) -> Option<R>) -> Option<R> {
        self.start_with(0, make)
    }

    /// As `start`, with those of the optional `features` that the device offers.
    pub fn start_with<R>(
        &mut self,
        features: u64,
        make: impl FnOnce(&mut Transport) -> Option<R>,
    ) -> Option<R> {
        const VERSION_1: u64 = 1 << 32;
        let offered = {
            self.registers.set_status(virtio_drivers::transport::DeviceStatus::empty());
            self.registers.set_status(
                virtio_drivers::transport::DeviceStatus::ACKNOWLEDGE
                    | virtio_drivers::transport::DeviceStatus::DRIVER,
            );
            self.registers.read_device_features()
        };
        self.registers.write_driver_features(offered & (VERSION_1 | features));
        self.registers.set_status(
            virtio_drivers::transport::DeviceStatus::ACKNOWLEDGE
                | virtio_drivers::transport::DeviceStatus::DRIVER
                | virtio_drivers::transport::DeviceStatus::FEATURES_OK,
        );
        self.registers.set_guest_page_size(PAGE_SIZE as u32);
        let made = make(self)?;
        self.registers.finish_init();
        Some(made)
    }

    /// Acknowledges the device's interrupt, so that its line can rise again.
    pub fn acknowledge(&mut self) {
        self.registers.ack_interrupt();
    }
}

/// A virtqueue that owns one page of memory per entry.
pub struct BufferQueue {
    queue: VirtQueue<DmaMemory, QUEUE_SIZE>,
    index: u16,
    /// Page of each entry, by slot.
    pages: Vec<NonNull<u8>>,
    /// Which slot an outstanding entry uses, by token.
    slot_of_token: [u8; QUEUE_SIZE],
    /// Bytes offered to the device, by slot.
    length: [u16; QUEUE_SIZE],
    free_slots: Vec<u8>,
}

// SAFETY: the pages belong to this queue alone, and every access to them goes through `&mut self`.
unsafe impl Send for BufferQueue {}

impl BufferQueue {
    /// Largest number of bytes in one buffer.
    pub const BUFFER_BYTES: usize = PAGE_SIZE;

    /// Sets up queue `index` of the device.
    pub fn new(transport: &mut Transport, index: u16) -> Option<BufferQueue> {
        let queue = VirtQueue::new(&mut transport.registers, index, false, false).ok()?;
        let mut pages = Vec::new();
        for _ in 0..QUEUE_SIZE {
            let (address, pointer) = DmaMemory::dma_alloc(1, BufferDirection::Both);
            if address == 0 {
                return None;
            }
            pages.push(pointer);
        }
        Some(BufferQueue {
            queue,
            index,
            pages,
            slot_of_token: [0; QUEUE_SIZE],
            length: [0; QUEUE_SIZE],
            free_slots: (0..QUEUE_SIZE as u8).collect(),
        })
    }

    /// The memory of a slot that the device does not hold.
    fn buffer(&mut self, slot: u8, length: usize) -> &'static mut [u8] {
        // SAFETY: the page is a whole one, this queue's alone, never freed, and no other slice to it
        // is live: callers pass the slice to the queue or copy from it at once.
        unsafe { core::slice::from_raw_parts_mut(self.pages[usize::from(slot)].as_ptr(), length) }
    }

    fn notify(&self, transport: &mut Transport) {
        if self.queue.should_notify() {
            transport.registers.notify(self.index);
        }
    }

    /// Gives the device one buffer with `bytes` to read (at most `BUFFER_BYTES` are taken) and
    /// returns how many were taken: 0 when all buffers are with the device.
    pub fn send(&mut self, transport: &mut Transport, bytes: &[u8]) -> usize {
        self.reclaim();
        let Some(slot) = self.free_slots.pop() else { return 0 };
        let length = bytes.len().min(Self::BUFFER_BYTES);
        let buffer = self.buffer(slot, length);
        buffer.copy_from_slice(&bytes[..length]);
        // SAFETY: the buffer is a page of this queue that is not freed and not touched until the
        // device returns the token.
        match unsafe { self.queue.add(&[&*buffer], &mut []) } {
            Ok(token) => {
                self.note(token, slot, length);
                self.notify(transport);
                length
            }
            Err(_) => {
                self.free_slots.push(slot);
                0
            }
        }
    }

    /// Takes back the buffers that the device has read; true when it holds none any more.
    pub fn reclaim(&mut self) -> bool {
        while let Some(token) = self.queue.peek_used() {
            let (slot, length) = self.noted(token);
            let buffer = self.buffer(slot, length);
            // SAFETY: the same buffer as was passed to `add` for this token.
            if unsafe { self.queue.pop_used(token, &[&*buffer], &mut []) }.is_err() {
                break;
            }
            self.free_slots.push(slot);
        }
        self.free_slots.len() == QUEUE_SIZE
    }

    /// Gives the device every free buffer to write into.
    pub fn offer_all(&mut self, transport: &mut Transport) {
        while let Some(slot) = self.free_slots.pop() {
            let buffer = self.buffer(slot, Self::BUFFER_BYTES);
            // SAFETY: as in `send`.
            match unsafe { self.queue.add(&[], &mut [buffer]) } {
                Ok(token) => self.note(token, slot, Self::BUFFER_BYTES),
                Err(_) => {
                    self.free_slots.push(slot);
                    break;
                }
            }
        }
        self.notify(transport);
    }

    /// Takes one buffer that the device has filled, hands its bytes to `take`, and gives the buffer
    /// back to the device. Returns false when there was none.
    pub fn receive(&mut self, transport: &mut Transport, take: impl FnOnce(&[u8])) -> bool {
        let Some(token) = self.queue.peek_used() else { return false };
        let (slot, length) = self.noted(token);
        let buffer = self.buffer(slot, length);
        // SAFETY: the same buffer as was passed to `add` for this token.
        let Ok(used) = (unsafe { self.queue.pop_used(token, &[], &mut [buffer]) }) else {
            return false;
        };
        take(&self.buffer(slot, length)[..(used as usize).min(length)]);
        self.free_slots.push(slot);
        self.offer_all(transport);
        true
    }

    /// Whether the device has returned a buffer that was not taken yet: two loads.
    pub fn has_used(&self) -> bool {
        self.queue.can_pop()
    }

    fn note(&mut self, token: u16, slot: u8, length: usize) {
        let place = usize::from(token) % QUEUE_SIZE;
        self.slot_of_token[place] = slot;
        self.length[usize::from(slot)] = length as u16;
    }

    fn noted(&self, token: u16) -> (u8, usize) {
        let slot = self.slot_of_token[usize::from(token) % QUEUE_SIZE];
        (slot, usize::from(self.length[usize::from(slot)]))
    }
}
