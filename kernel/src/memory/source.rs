//! What stands behind a mapping: something that has pages.
//!
//! `PageSource` is the one interface between address spaces and files. A source hands out the
//! frames of its page cache; a shared mapping maps them writable, a private one read-only until the
//! first write. `SharedStore` is the source of shared anonymous memory: pages that exist from their
//! first use until the last mapping is gone.

use abi::Errno;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use base::heap::tree;
use base::memory::Frame;
use base::sync::{Mutex, Once, rank};
use core::sync::atomic::{AtomicU64, Ordering};
use fs::metadata::InodeId;

use super::layout::PAGE;

/// Something whose pages can be mapped. Never called with an address space locked.
pub trait PageSource: Send + Sync {
    /// Bytes.
    fn size(&self) -> u64;

    /// The frame of page `index`, shared with everybody who maps or reads it.
    ///
    /// # Errors
    /// `EFAULT` for a page that lies wholly past the end, `ENOMEM`, or `EIO` when it cannot be read.
    fn page(&self, index: u64) -> Result<Frame, Errno>;

    /// Fills `into` with the frames of the pages from `first` on, as far as they can be had without
    /// waiting and without making them. What is there already stays.
    fn pages_present(&self, _first: u64, _into: &mut [Option<Frame>]) {}

    /// Device number for `/proc/PID/maps`.
    fn device(&self) -> u64 {
        0
    }

    /// Inode number for `/proc/PID/maps`.
    fn inode(&self) -> u64 {
        0
    }

    /// A number that is the same for two handles of one source; no other source ever has or had it.
    fn identity(&self) -> u64;

    /// Copies bytes out and returns how many: fewer than asked only at the end.
    ///
    /// # Errors
    /// Those of `page`.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < into.len() {
            let Some(position) = offset.checked_add(done as u64) else { break };
            let left = self.size().saturating_sub(position);
            let within = (position % PAGE) as usize;
            let length = (into.len() - done)
                .min(PAGE as usize - within)
                .min(usize::try_from(left).unwrap_or(usize::MAX));
            if length == 0 {
                break;
            }
            let frame = self.page(position / PAGE)?;
            let Some(target) = into.get_mut(done..done + length) else { break };
            frame.read(within, target);
            done += length;
        }
        Ok(done)
    }

    /// A program begins to write to a page through a shared mapping.
    fn note_write(&self) {}

    /// Device and number of the inode that the pages belong to.
    fn content(&self) -> InodeId {
        InodeId { device: self.device(), number: self.inode() }
    }

    /// Whether pages of shared mappings have to be announced before they are written to.
    fn tracks_writes(&self) -> bool {
        false
    }

    /// A page may be written to through a shared mapping. False when the frame is not the page's any more.
    ///
    /// # Errors
    /// Those of `page`, and `ENOSPC`.
    fn page_written(&self, _index: u64, _frame: &Frame) -> Result<bool, Errno> {
        Ok(true)
    }

    /// Writes changes back to where they are kept, and waits for it.
    ///
    /// # Errors
    /// `EIO`.
    fn sync(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// Gives the bytes of pages `first..end` back, so that they read as zero (`MADV_REMOVE`).
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the source cannot.
    fn punch(&self, _first: u64, _end: u64) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
}

/// Number of the device that sources live on which are no files.
fn nameless_device() -> u64 {
    static DEVICE: Once<u64> = Once::new();
    *DEVICE.call_once(fs::inode::anonymous_device)
}

/// A number on that device that no other source has or had.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The identity of a source that has a number on a device.
pub(super) fn identity_of(device: u64, number: u64) -> u64 {
    device.rotate_left(40) ^ number
}

/// An identity for a source that is no file.
pub(super) fn new_identity() -> u64 {
    identity_of(nameless_device(), next_number())
}

/// Pages of shared anonymous memory: made on first use, zero at first, freed with the last mapping.
pub struct SharedStore {
    number: u64,
    size: u64,
    /// Guarded by its own lock; nothing else is taken while it is held.
    pages: Mutex<BTreeMap<u64, Frame>>,
}

impl SharedStore {
    /// A store of `size` bytes. No memory is used yet.
    pub fn new(size: u64) -> Arc<SharedStore> {
        let pages = Mutex::new(&rank::INODE, BTreeMap::new());
        Arc::new(SharedStore { number: next_number(), size, pages })
    }
}

impl SharedStore {
    /// Pages in memory.
    pub fn resident(&self) -> u64 {
        self.pages.lock().len() as u64
    }
}

impl Drop for SharedStore {
    fn drop(&mut self) {
        fs::tmpfs::bury(core::mem::take(self.pages.get_mut()));
    }
}

impl PageSource for SharedStore {
    fn size(&self) -> u64 {
        self.size
    }

    fn page(&self, index: u64) -> Result<Frame, Errno> {
        if index >= self.size.div_ceil(PAGE) {
            return Err(Errno::EFAULT);
        }
        let mut pages = self.pages.lock();
        if let Some(frame) = pages.get(&index) {
            return Ok(frame.clone());
        }
        let frame = base::memory::reserve::zeroed()?;
        tree::insert(&mut pages, index, frame.clone());
        Ok(frame)
    }

    fn pages_present(&self, first: u64, into: &mut [Option<Frame>]) {
        let pages = self.pages.lock();
        for (slot, index) in into.iter_mut().zip(first..) {
            if slot.is_none() {
                *slot = pages.get(&index).cloned();
            }
        }
    }

    fn device(&self) -> u64 {
        nameless_device()
    }

    fn inode(&self) -> u64 {
        self.number
    }

    fn identity(&self) -> u64 {
        identity_of(nameless_device(), self.number)
    }

    fn punch(&self, first: u64, end: u64) -> Result<(), Errno> {
        let mut pages = self.pages.lock();
        while let Some((&index, _)) = pages.range(first..end).next() {
            pages.remove(&index);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_gives_the_same_frame_again() {
        let store = SharedStore::new(3 * PAGE);
        let first = store.page(1).unwrap();
        first.write(5, b"ferry");
        assert_eq!(store.page(1).unwrap().address(), first.address());
        let mut bytes = [0; 5];
        assert_eq!(store.read_at(PAGE + 5, &mut bytes), Ok(5));
        assert_eq!(&bytes, b"ferry");
    }

    #[test]
    fn identities_are_no_addresses_and_do_not_come_back() {
        let first = SharedStore::new(PAGE);
        let (identity, address) = (first.identity(), (&raw const *first) as u64);
        assert_ne!(first.inode(), address);
        drop(first);
        for _ in 0..100 {
            assert_ne!(SharedStore::new(PAGE).identity(), identity);
        }
    }

    #[test]
    fn reading_stops_at_the_end() {
        let store = SharedStore::new(PAGE + 10);
        let mut bytes = [1; 64];
        assert_eq!(store.read_at(PAGE, &mut bytes), Ok(10));
        assert_eq!(store.read_at(PAGE + 10, &mut bytes), Ok(0));
        assert_eq!(store.read_at(u64::MAX, &mut bytes), Ok(0));
    }

    #[test]
    fn a_punched_page_is_zero_again() {
        let store = SharedStore::new(3 * PAGE);
        for index in 0..3 {
            store.page(index).unwrap().write(0, &[7]);
        }
        store.punch(1, 2).unwrap();
        let read = |index| {
            let mut byte = [9];
            store.page(index).unwrap().read(0, &mut byte);
            byte[0]
        };
        assert_eq!([read(0), read(1), read(2)], [7, 0, 7]);
    }
}
