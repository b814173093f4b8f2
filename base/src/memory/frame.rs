//! One page of RAM with an owner, or several who share it.
//!
//! A frame may be mapped in user space, so its bytes can change at any moment: no reference to them
//! ever exists, only copies in and out. Offsets and lengths beyond the page are a mistake of the caller;
//! they are cut off, and builds with debug assertions stop.

use core::fmt;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use hal::{Contract, Machine, PAGE_SIZE, PhysAddr};

use super::allocator::{address_of, give_frame, number_of, record_of, take_frame};
use super::buddy::Record;
use super::{OutOfMemory, copy};
use crate::heap::injection;
use crate::io::{Sink, Source};
use crate::sync::Once;

/// An owned, counted page of RAM: `clone` adds an owner, dropping the last one frees the page.
pub struct Frame {
    number: NonZeroU32,
}

impl Frame {
    /// A page of zeros.
    #[inline]
    pub fn zeroed() -> Result<Frame, OutOfMemory> {
        let frame = Frame::uninitialised()?;
        // SAFETY: the page is this frame's alone.
        unsafe { copy::zero_shared(frame.pointer(), PAGE_SIZE) };
        Ok(frame)
    }

    /// A page whose contents are whatever was there before. Fill it before anyone else sees it.
    #[inline]
    pub fn uninitialised() -> Result<Frame, OutOfMemory> {
        if injection::strikes() {
            return Err(OutOfMemory);
        }
        let number = take_frame()?;
        let number = NonZeroU32::new(number).ok_or(OutOfMemory)?;
        let frame = Frame { number };
        frame.record().references.store(1, Ordering::Relaxed);
        Ok(frame)
    }

    /// Where it is.
    #[inline]
    pub fn address(&self) -> PhysAddr {
        address_of(self.number.get())
    }

    /// Whether there is another owner. When not, nobody else can become one meanwhile, except through
    /// this very reference.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.references() != 1
    }

    /// Number of owners.
    #[inline]
    pub fn references(&self) -> u32 {
        self.record().references.load(Ordering::Acquire)
    }

    /// Whether both are the same page.
    #[inline]
    pub fn is_same(&self, other: &Frame) -> bool {
        self.number == other.number
    }

    #[inline]
    fn record(&self) -> &'static Record {
        // SAFETY: handles are made for frames that were taken from the allocator.
        unsafe { record_of(self.number.get()) }
    }

    #[inline]
    pub(crate) fn pointer(&self) -> *mut u8 {
        Machine::phys_to_virt(self.address())
    }

    /// Gives up the handle without giving up the ownership: the address now carries it.
    #[inline]
    pub(crate) fn into_address(self) -> PhysAddr {
        let address = self.address();
        core::mem::forget(self);
        address
    }

    /// Takes the ownership back.
    ///
    /// # Safety
    /// `address` came from `into_address` and is used for this once.
    #[inline]
    pub(crate) unsafe fn from_address(address: PhysAddr) -> Frame {
        let number = number_of(address);
        debug_assert_ne!(number, 0);
        // SAFETY: frame 0 is never handed out, so `into_address` never returned it.
        Frame { number: unsafe { NonZeroU32::new_unchecked(number) } }
    }

    /// Adds an owner to the frame that an address carries.
    ///
    /// # Safety
    /// `address` came from `into_address` and still carries the ownership.
    #[inline]
    pub(crate) unsafe fn another_owner(address: PhysAddr) -> Frame {
        // SAFETY: by the caller's promise the frame is owned; the temporary handle is not dropped.
        let owner = core::mem::ManuallyDrop::new(unsafe { Frame::from_address(address) });
        Frame::clone(&owner)
    }

    /// The part of `length` that lies in the page from `offset` on.
    #[inline]
    fn clamp(offset: usize, length: usize) -> usize {
        debug_assert!(
            offset <= PAGE_SIZE && length <= PAGE_SIZE - offset,
            "{length} bytes at {offset} are not in a page"
        );
        length.min(PAGE_SIZE.saturating_sub(offset))
    }

    /// Copies bytes from `offset` on out of the page.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        let length = Self::clamp(offset, into.len());
        if length > 0 {
            // SAFETY: `clamp` keeps the area in the page, and `into` is at least as long.
            unsafe { copy::from_shared(into.as_mut_ptr(), self.pointer().add(offset), length) };
        }
    }

    /// Copies bytes into the page from `offset` on.
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) {
        let length = Self::clamp(offset, from.len());
        if length > 0 {
            // SAFETY: `clamp` keeps the area in the page, and `from` is at least as long.
            unsafe { copy::to_shared(self.pointer().add(offset), from.as_ptr(), length) };
        }
    }

    /// Zeroes `length` bytes from `offset` on.
    #[inline]
    pub fn zero(&self, offset: usize, length: usize) {
        let length = Self::clamp(offset, length);
        if length > 0 {
            // SAFETY: `clamp` keeps the area in the page.
            unsafe { copy::zero_shared(self.pointer().add(offset), length) };
        }
    }

    /// Copies a whole page from another frame.
    #[inline]
    pub fn copy_from(&self, other: &Frame) {
        self.copy_part(0, other, 0, PAGE_SIZE);
    }

    /// Copies `length` bytes of `other` from `other_offset` on to `offset` of this page.
    #[inline]
    pub fn copy_part(&self, offset: usize, other: &Frame, other_offset: usize, length: usize) {
        let length = Self::clamp(offset, length).min(Self::clamp(other_offset, length));
        if length > 0 && !self.is_same(other) {
            // SAFETY: both areas lie in their pages, which are different ones, and words do not cross
            // the ends of pages.
            unsafe {
                copy::between_shared(
                    self.pointer().add(offset),
                    other.pointer().add(other_offset),
                    length,
                );
            }
        } else {
            let mut bytes = [0; 64];
            for start in (0..length).step_by(bytes.len()) {
                let part = bytes.len().min(length - start);
                other.read(other_offset + start, &mut bytes[..part]);
                self.write(offset + start, &bytes[..part]);
            }
        }
    }

    /// Fills `length` bytes from `offset` on from a source, and returns how many it gave.
    pub fn write_from(&self, offset: usize, length: usize, source: &mut dyn Source) -> usize {
        source.read_to_frame(self, offset, Self::clamp(offset, length))
    }

    /// Passes `length` bytes from `offset` on to a sink, and returns how many it took.
    pub fn read_into(&self, offset: usize, length: usize, sink: &mut dyn Sink) -> usize {
        sink.write_from_frame(self, offset, Self::clamp(offset, length))
    }

    #[inline]
    fn word_u32(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(
            offset.is_multiple_of(4) && offset + 4 <= PAGE_SIZE,
            "no 32-bit word at {offset}"
        );
        let offset = offset & (PAGE_SIZE - 4);
        // SAFETY: an aligned word of the page, which lives as long as this handle and is accessed
        // atomically only.
        unsafe { AtomicU32::from_ptr(self.pointer().add(offset).cast()) }
    }

    #[inline]
    fn word_u64(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(
            offset.is_multiple_of(8) && offset + 8 <= PAGE_SIZE,
            "no 64-bit word at {offset}"
        );
        let offset = offset & (PAGE_SIZE - 8);
        // SAFETY: as for `word_u32`.
        unsafe { AtomicU64::from_ptr(self.pointer().add(offset).cast()) }
    }

    /// The aligned 32-bit word at `offset`, with acquire.
    #[inline]
    pub fn load_u32(&self, offset: usize) -> u32 {
        self.word_u32(offset).load(Ordering::SeqCst)
    }

    /// Sets the aligned 32-bit word at `offset`, with release.
    #[inline]
    pub fn store_u32(&self, offset: usize, value: u32) {
        self.word_u32(offset).store(value, Ordering::SeqCst);
    }

    /// Replaces the aligned 32-bit word at `offset` if it is `old`; the value found otherwise.
    #[inline]
    pub fn compare_exchange_u32(&self, offset: usize, old: u32, new: u32) -> Result<u32, u32> {
        self.word_u32(offset).compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
    }

    /// The aligned 64-bit word at `offset`, with acquire.
    #[inline]
    pub fn load_u64(&self, offset: usize) -> u64 {
        self.word_u64(offset).load(Ordering::SeqCst)
    }

    /// Sets the aligned 64-bit word at `offset`, with release.
    #[inline]
    pub fn store_u64(&self, offset: usize, value: u64) {
        self.word_u64(offset).store(value, Ordering::SeqCst);
    }
}

impl Clone for Frame {
    #[inline]
    fn clone(&self) -> Frame {
        self.record().references.fetch_add(1, Ordering::Relaxed);
        Frame { number: self.number }
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        let references = &self.record().references;
        // The only owner need not count atomically: nobody is left to count with it.
        if references.load(Ordering::Acquire) == 1 {
            references.store(0, Ordering::Relaxed);
        } else {
            if references.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            fence(Ordering::Acquire);
        }
        give_frame(self.number.get());
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({:#x}, {} owners)", self.address(), self.references())
    }
}

/// The shared page of zeros, for reads of memory that nobody has written. Nobody may write to it; it
/// must be mapped without the right to.
pub fn zero_frame() -> Frame {
    static ZERO: Once<Frame> = Once::new();
    ZERO.call_once(|| match Frame::zeroed() {
        Ok(frame) => frame,
        Err(OutOfMemory) => panic!("no memory for the page of zeros"),
    })
    .clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_survive_and_clones_share_them() {
        let frame = Frame::zeroed().unwrap();
        assert!(!frame.is_shared());
        frame.write(4090, b"ferry!");
        let other = frame.clone();
        assert!(frame.is_shared() && other.is_same(&frame));
        let mut bytes = [0; 6];
        other.read(4090, &mut bytes);
        assert_eq!(&bytes, b"ferry!");
        drop(frame);
        assert!(!other.is_shared());
    }

    #[test]
    fn a_reused_page_is_zero_again() {
        for _ in 0..300 {
            let frame = Frame::zeroed().unwrap();
            let mut bytes = [1; PAGE_SIZE];
            frame.read(0, &mut bytes);
            assert!(bytes.iter().all(|byte| *byte == 0));
            frame.write(0, &[0xaa; PAGE_SIZE]);
        }
    }

    #[test]
    fn pages_and_parts_of_pages_are_copied() {
        let (first, second) = (Frame::zeroed().unwrap(), Frame::zeroed().unwrap());
        first.write(100, b"0123456789abcdef");
        second.copy_from(&first);
        let mut bytes = [0; 16];
        second.read(100, &mut bytes);
        assert_eq!(&bytes, b"0123456789abcdef");
        second.copy_part(3, &first, 101, 9);
        second.read(3, &mut bytes[..9]);
        assert_eq!(&bytes[..9], b"123456789");
    }

    #[test]
    fn words_are_exchanged_only_when_they_match() {
        let frame = Frame::zeroed().unwrap();
        frame.store_u32(8, 5);
        assert_eq!(frame.compare_exchange_u32(8, 4, 6), Err(5));
        assert_eq!(frame.compare_exchange_u32(8, 5, 6), Ok(5));
        assert_eq!(frame.load_u32(8), 6);
    }
}
