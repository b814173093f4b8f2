//! Reading and writing user memory through the table, page by page, as far as pages are there and the
//! user may. Nothing is brought in here: callers see how far it went.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hal::{Contract, Machine, PAGE_SIZE, PhysAddr, VirtAddr};

use super::{PAGE, PageTable};
use crate::memory::{Frame, copy};

impl PageTable {
    /// The part of a copy that lies in the page of `address`: where in RAM, and how many bytes.
    /// "Accessed" and "dirty" are noted as the machine would.
    #[inline]
    fn reach(&self, address: u64, length: usize, write: bool) -> Option<(*mut u8, usize)> {
        let place = self.entry(address)?;
        let raw = place.load(Ordering::Acquire);
        let frame = match Machine::used_page(raw, write) {
            Some(frame) => frame,
            None => Self::use_page(place, raw, write)?,
        };
        let offset = (address % PAGE) as usize;
        let pointer = Machine::phys_to_virt(frame).wrapping_add(offset);
        Some((pointer, length.min(PAGE_SIZE - offset)))
    }

    /// Marks a page as accessed, or written, if the user may do that.
    #[cold]
    fn use_page(place: &AtomicU64, raw: u64, write: bool) -> Option<PhysAddr> {
        let entry = Machine::decode_entry(raw)?;
        if !entry.rights.user || entry.rights.hidden || (write && !entry.rights.write) {
            return None;
        }
        let _ = Self::change(place, |entry| {
            entry.accessed = true;
            entry.dirty |= write;
        });
        Some(entry.frame)
    }

    /// Goes through the pages of a user buffer. `step` gets where in RAM the part is, how many bytes
    /// were done before it and how long it is. Returns the bytes up to the first page that is missing or
    /// not permitted.
    #[inline]
    fn walk(
        &self,
        address: VirtAddr,
        length: usize,
        write: bool,
        mut step: impl FnMut(*mut u8, usize, usize),
    ) -> usize {
        let mut done = 0;
        while done < length {
            let Some(at) = address.0.checked_add(done as u64) else { break };
            let Some((pointer, part)) = self.reach(at, length - done, write) else { break };
            step(pointer, done, part);
            done += part;
        }
        done
    }

    /// How many bytes a copy would move: those up to the first page that is missing or not permitted.
    pub fn reaches(&self, address: VirtAddr, length: usize, write: bool) -> usize {
        self.walk(address, length, write, |_, _, _| {})
    }

    /// Copies user bytes out, up to the first page that is missing or that the user may not read; how
    /// many.
    #[inline]
    pub fn copy_out(&self, address: VirtAddr, into: &mut [u8]) -> usize {
        let target = into.as_mut_ptr();
        self.walk(address, into.len(), false, |pointer, done, part| {
            // SAFETY: the part lies in one page that the table owns while we hold `&self`, and in
            // `into` from `done` on.
            unsafe { copy::from_shared(target.add(done), pointer, part) };
        })
    }

    /// Copies bytes to user memory, up to the first page that is missing or that the user may not write;
    /// how many.
    #[inline]
    pub fn copy_in(&self, address: VirtAddr, from: &[u8]) -> usize {
        self.walk(address, from.len(), true, |pointer, done, part| {
            // SAFETY: as for `copy_out`.
            unsafe { copy::to_shared(pointer, from.as_ptr().add(done), part) };
        })
    }

    /// Zeroes user memory, up to the first page that is missing or that the user may not write; how
    /// many bytes.
    pub fn zero(&self, address: VirtAddr, length: usize) -> usize {
        self.walk(address, length, true, |pointer, _, part| {
            // SAFETY: the part lies in one page that the table owns while we hold `&self`.
            unsafe { copy::zero_shared(pointer, part) };
        })
    }

    /// Copies user bytes into a frame; how many, as for `copy_out`.
    pub fn copy_out_to_frame(
        &self,
        address: VirtAddr,
        frame: &Frame,
        offset: usize,
        length: usize,
    ) -> usize {
        let length = length.min(PAGE_SIZE.saturating_sub(offset));
        let target = Machine::phys_to_virt(frame.address());
        self.walk(address, length, false, |pointer, done, part| {
            // SAFETY: the part lies in one page of each; when both are the same page the areas may
            // overlap, and then words are read after they were written, which is still only bytes.
            unsafe { copy::between_shared(target.add(offset + done), pointer, part) };
        })
    }

    /// Copies bytes of a frame to user memory; how many, as for `copy_in`.
    pub fn copy_in_from_frame(
        &self,
        address: VirtAddr,
        frame: &Frame,
        offset: usize,
        length: usize,
    ) -> usize {
        let length = length.min(PAGE_SIZE.saturating_sub(offset));
        let source = Machine::phys_to_virt(frame.address());
        self.walk(address, length, true, |pointer, done, part| {
            // SAFETY: as for `copy_out_to_frame`.
            unsafe { copy::between_shared(pointer, source.add(offset + done), part) };
        })
    }

    /// The aligned 32-bit word at a user address, to be read or also written.
    fn word(&self, address: VirtAddr, write: bool) -> Option<&AtomicU32> {
        let (pointer, _) =
            self.reach(address.0, 4, write).filter(|_| address.0.is_multiple_of(4))?;
        // SAFETY: an aligned word of a page that the table owns, accessed atomically only.
        Some(unsafe { AtomicU32::from_ptr(pointer.cast()) })
    }

    /// The aligned 32-bit word at a user address; `None` when the page is missing or not readable.
    pub fn load_u32(&self, address: VirtAddr) -> Option<u32> {
        Some(self.word(address, false)?.load(Ordering::SeqCst))
    }

    /// Replaces the aligned 32-bit word at a user address if it is `old`; `None` when the page is
    /// missing or not writable, the value found otherwise.
    pub fn compare_exchange_u32(
        &self,
        address: VirtAddr,
        old: u32,
        new: u32,
    ) -> Option<Result<u32, u32>> {
        let word = self.word(address, true)?;
        Some(word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst))
    }
}
