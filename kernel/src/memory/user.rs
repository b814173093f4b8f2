//! Reading and writing the memory of a program on its behalf.
//!
//! The kernel never uses user addresses directly: it walks the page table and copies through the
//! direct map, so this works on every core. A page that is missing is brought in as if the program
//! had touched it; what the program may not touch is `EFAULT`. Addresses at or above `USER_END` are
//! refused before anything is looked up. Memory may change while it is read: every function copies
//! once, and callers decide on the copy.
//!
//! `futex` words are here too, as they need the frame and its identity.

use abi::Errno;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::memory::{Frame, VirtAddr};
use base::user;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::area::AreaFlags;
use super::fault::{Access, FaultSignal};
use super::layout::{PAGE, is_user_range, page_floor};
use super::space::AddressSpace;
use super::user_io::{IoVector, UserSink, UserSource};

/// Values up to this many bytes are read without an allocation.
const SMALL: usize = 512;
/// Values up to this size are written whole or not at all.
const WHOLE_BYTES: usize = 16;
/// Bytes copied with the space locked once.
const CHUNK: usize = 16 * PAGE as usize;

/// The memory of one program. Cheap to clone.
#[derive(Clone)]
pub struct UserMemory {
    space: Arc<AddressSpace>,
}

/// What identifies a futex word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FutexKey {
    /// A word of one address space.
    Private {
        /// `AddressSpace::id`.
        space: u64,
        /// Its address.
        address: u64,
    },
    /// A word of a shared source.
    Shared {
        /// `PageSource::identity`.
        source: u64,
        /// Its byte offset in the source.
        offset: u64,
    },
}

impl UserMemory {
    /// The memory of `space`.
    pub fn new(space: Arc<AddressSpace>) -> UserMemory {
        UserMemory { space }
    }

    /// The space itself.
    pub fn space(&self) -> &Arc<AddressSpace> {
        &self.space
    }

    /// Fills `into` from `address` on.
    ///
    /// # Errors
    /// `EFAULT`; part of `into` may have been written.
    pub async fn read_bytes(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        check_range(address, into.len())?;
        let mut done = 0;
        loop {
            let rest = into.get_mut(done..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(());
            }
            done += self.space.copy_out(address + done as u64, rest);
            if done < into.len() {
                self.bring_in(address + done as u64, Access::READ).await?;
            }
        }
    }

    /// Writes `from` to `address`.
    ///
    /// # Errors
    /// `EFAULT`; part may have been written.
    pub async fn write_bytes(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        check_range(address, from.len())?;
        let last = address + (from.len() as u64).saturating_sub(1);
        if from.len() <= WHOLE_BYTES && page_floor(address) != page_floor(last) {
            // A value is written whole or not at all, even when it crosses into another page.
            self.bring_in(last, Access::WRITE).await?;
        }
        let mut done = 0;
        loop {
            let rest = from.get(done..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(());
            }
            done += self.space.copy_in(address + done as u64, rest);
            if done < from.len() {
                self.bring_in(address + done as u64, Access::WRITE).await?;
            }
        }
    }

    /// Reads a value.
    ///
    /// # Errors
    /// `EFAULT`.
    pub async fn read_value<T: FromBytes>(&self, address: u64) -> Result<T, Errno> {
        if let Some(value) = self.read_small(address) {
            return Ok(value);
        }
        let bytes = self.read_vector(address, size_of::<T>()).await?;
        T::read_from_bytes(&bytes).map_err(|_| Errno::EFAULT)
    }

    /// A small value whose pages are there.
    fn read_small<T: FromBytes>(&self, address: u64) -> Option<T> {
        let size = size_of::<T>();
        let mut buffer = [0; SMALL];
        let bytes = buffer.get_mut(..size)?;
        check_range(address, size).ok()?;
        if self.space.copy_out(address, bytes) < size {
            return None;
        }
        T::read_from_bytes(bytes).ok()
    }

    /// Writes a value.
    ///
    /// # Errors
    /// `EFAULT`.
    pub async fn write_value<T: IntoBytes + Immutable>(
        &self,
        address: u64,
        value: &T,
    ) -> Result<(), Errno> {
        self.write_bytes(address, value.as_bytes()).await
    }

    /// Reads `count` values that lie one after the other.
    ///
    /// # Errors
    /// `EFAULT`; `ENOMEM` when the result does not fit into memory.
    pub async fn read_array<T: FromBytes>(
        &self,
        address: u64,
        count: usize,
    ) -> Result<Vec<T>, Errno> {
        let size = size_of::<T>();
        let length = size.checked_mul(count).ok_or(Errno::EFAULT)?;
        let bytes = self.read_vector(address, length).await?;
        let mut values = Vec::new();
        values.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
        for chunk in bytes.chunks_exact(size.max(1)) {
            values.push(T::read_from_bytes(chunk).map_err(|_| Errno::EFAULT)?);
        }
        Ok(values)
    }

    /// Reads `length` bytes.
    ///
    /// # Errors
    /// `EFAULT`; `ENOMEM` when they do not fit into memory.
    pub async fn read_vector(&self, address: u64, length: usize) -> Result<Vec<u8>, Errno> {
        check_range(address, length)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
        bytes.resize(length, 0);
        self.read_bytes(address, &mut bytes).await?;
        Ok(bytes)
    }

    /// Reads a string that ends with a zero byte, which is left out of the result. At most `limit`
    /// bytes are looked at, the zero byte included.
    ///
    /// # Errors
    /// `EFAULT`; `ENAMETOOLONG` when there is no zero byte among the first `limit`.
    pub async fn read_string(&self, address: u64, limit: usize) -> Result<Vec<u8>, Errno> {
        let mut string = Vec::new();
        while string.len() < limit {
            let at = address + string.len() as u64;
            check_range(at, 1)?;
            let before = string.len();
            if self.read_string_part(at, limit - before, &mut string)? {
                return Ok(string);
            }
            if string.len() == before {
                self.bring_in(at, Access::READ).await?;
            }
        }
        Err(Errno::ENAMETOOLONG)
    }

    /// Adds what is there of a string, at most `limit` bytes; true when its end was among them.
    fn read_string_part(
        &self,
        address: u64,
        limit: usize,
        string: &mut Vec<u8>,
    ) -> Result<bool, Errno> {
        let mut buffer = [0; 256];
        let window = buffer.get_mut(..limit.min(256)).unwrap_or_default();
        let copied = self.space.copy_out(address, window);
        let bytes = window.get(..copied).unwrap_or_default();
        let end = bytes.iter().position(|byte| *byte == 0);
        let part = bytes.get(..end.unwrap_or(copied)).unwrap_or_default();
        string.try_reserve(part.len()).map_err(|_| Errno::ENOMEM)?;
        string.extend_from_slice(part);
        Ok(end.is_some())
    }

    /// Writes zeros.
    ///
    /// # Errors
    /// `EFAULT`.
    pub async fn write_zeros(&self, address: u64, length: u64) -> Result<(), Errno> {
        if !is_user_range(address, length) {
            return Err(Errno::EFAULT);
        }
        let end = address + length;
        let mut at = address;
        while at < end {
            let part = (end - at).min(CHUNK as u64) as usize;
            let done = self.space.lock().table.zero(VirtAddr(at), part);
            at += done as u64;
            if done < part {
                self.bring_in(at, Access::WRITE).await?;
            }
        }
        Ok(())
    }

    /// A sink that fills one range.
    ///
    /// # Errors
    /// `EFAULT` when the range leaves user space.
    pub fn sink(&self, address: u64, length: u64) -> Result<UserSink, Errno> {
        UserSink::new(self.space.clone(), IoVector { address, length }, Vec::new())
    }

    /// A sink that fills the ranges of `vectors` in order (see `read_io_vectors`).
    ///
    /// # Errors
    /// `EFAULT` when a range leaves user space.
    pub fn sink_vector(&self, vectors: Vec<IoVector>) -> Result<UserSink, Errno> {
        UserSink::new(self.space.clone(), IoVector::default(), vectors)
    }

    /// A source that reads one range.
    ///
    /// # Errors
    /// `EFAULT` when the range leaves user space.
    pub fn source(&self, address: u64, length: u64) -> Result<UserSource, Errno> {
        UserSource::new(self.space.clone(), IoVector { address, length }, Vec::new())
    }

    /// A source that reads the ranges of `vectors` in order (see `read_io_vectors`).
    ///
    /// # Errors
    /// `EFAULT` when a range leaves user space.
    pub fn source_vector(&self, vectors: Vec<IoVector>) -> Result<UserSource, Errno> {
        UserSource::new(self.space.clone(), IoVector::default(), vectors)
    }

    /// Reads the array of `struct iovec` that `readv` and its kin take, and checks it.
    ///
    /// # Errors
    /// `EINVAL` when there are more than 1024 or a length is negative; `EFAULT`.
    pub async fn read_io_vectors(&self, address: u64, count: u64) -> Result<Vec<IoVector>, Errno> {
        super::user_io::read_io_vectors(self, address, count).await
    }

    /// Reads the futex word at `address`, which is aligned.
    ///
    /// # Errors
    /// `EINVAL` when it is not aligned; `EFAULT`.
    pub async fn load_u32(&self, address: u64) -> Result<u32, Errno> {
        check_word(address)?;
        loop {
            let value = self.space.lock().table.load_u32(VirtAddr(address));
            if let Some(value) = value {
                return Ok(value);
            }
            self.bring_in(address, Access::READ).await?;
        }
    }

    /// Replaces the futex word at `address` by `new` if it is `old`. `Err` in the inner result is the
    /// value that was found instead.
    ///
    /// # Errors
    /// `EINVAL` when it is not aligned; `EFAULT`.
    pub async fn compare_exchange_u32(
        &self,
        address: u64,
        old: u32,
        new: u32,
    ) -> Result<Result<u32, u32>, Errno> {
        check_word(address)?;
        loop {
            let word = VirtAddr(address);
            let result = self.space.lock().table.compare_exchange_u32(word, old, new);
            if let Some(result) = result {
                return Ok(result);
            }
            self.bring_in(address, Access::WRITE).await?;
        }
    }

    /// What identifies the futex word at `address`: `is_private` as the caller's `FUTEX_PRIVATE_FLAG`.
    ///
    /// # Errors
    /// `EINVAL` when it is not aligned; `EFAULT` when a shared futex is not mapped.
    pub fn futex_key(&self, address: u64, is_private: bool) -> Result<FutexKey, Errno> {
        let private = self.space.private_futex_key(address)?;
        if is_private {
            return Ok(private);
        }
        let inner = self.space.lock();
        let (start, area) = inner.areas.find(address).ok_or(Errno::EFAULT)?;
        if area.flags.contains(AreaFlags::HIDDEN) {
            return Err(Errno::EFAULT);
        }
        if !area.flags.contains(AreaFlags::SHARED) {
            return Ok(private);
        }
        match area.object_page(page_floor(address) - start) {
            Some((object, index)) => Ok(FutexKey::Shared {
                source: object.source.identity(),
                offset: index * PAGE + address % PAGE,
            }),
            None => Ok(private),
        }
    }

    /// Brings the page of `address` in.
    ///
    /// # Errors
    /// `EFAULT` when the program itself would get a signal.
    pub async fn bring_in(&self, address: u64, access: Access) -> Result<(), Errno> {
        // On the heap, so that the futures of all calls that use memory stay small.
        let fault = Box::pin(self.space.fault(VirtAddr(address), access));
        fault.await.map_err(|_: FaultSignal| Errno::EFAULT)
    }
}

impl AddressSpace {
    /// Copies out of user memory until a page is missing or not readable; returns how many bytes.
    /// The range must lie in user space.
    pub(super) fn copy_out(&self, address: u64, into: &mut [u8]) -> usize {
        if user::read_loaded(self.handle(), VirtAddr(address), into) {
            return into.len();
        }
        let mut done = 0;
        for chunk in into.chunks_mut(CHUNK) {
            let copied = self.lock().table.copy_out(VirtAddr(address + done as u64), chunk);
            done += copied;
            if copied < chunk.len() {
                break;
            }
        }
        done
    }

    /// Copies into user memory until a page is missing or not writable; returns how many bytes.
    /// The range must lie in user space.
    pub(super) fn copy_in(&self, address: u64, from: &[u8]) -> usize {
        if user::write_loaded(self.handle(), VirtAddr(address), from) {
            return from.len();
        }
        let mut done = 0;
        for chunk in from.chunks(CHUNK) {
            let copied = self.lock().table.copy_in(VirtAddr(address + done as u64), chunk);
            done += copied;
            if copied < chunk.len() {
                break;
            }
        }
        done
    }

    /// Copies bytes of a frame, from `offset` on, to user memory as `copy_in` does.
    pub(super) fn copy_in_from_frame(
        &self,
        address: u64,
        frame: &Frame,
        offset: usize,
        length: usize,
    ) -> usize {
        let place = VirtAddr(address);
        if user::write_loaded_from_frame(self.handle(), place, frame, offset, length) {
            return length;
        }
        self.lock().table.copy_in_from_frame(place, frame, offset, length)
    }

    /// Copies user memory into a frame, from `offset` on, as `copy_out` does.
    pub(super) fn copy_out_to_frame(
        &self,
        address: u64,
        frame: &Frame,
        offset: usize,
        length: usize,
    ) -> usize {
        let place = VirtAddr(address);
        if user::read_loaded_to_frame(self.handle(), place, frame, offset, length) {
            return length;
        }
        self.lock().table.copy_out_to_frame(place, frame, offset, length)
    }

    /// Runs `action` on the frame and offset of an aligned word if it is there with that right.
    pub fn with_word<R>(
        &self,
        address: u64,
        write: bool,
        action: impl FnOnce(&Frame, usize) -> R,
    ) -> Option<R> {
        let page = VirtAddr(page_floor(address));
        let inner = self.lock();
        let mapping = inner.table.lookup(page)?;
        if !mapping.rights.user || mapping.rights.hidden || (write && !mapping.rights.write) {
            return None;
        }
        Some(action(&mapping.frame, (address % PAGE) as usize))
    }
}

fn check_range(address: u64, length: usize) -> Result<(), Errno> {
    if is_user_range(address, length as u64) { Ok(()) } else { Err(Errno::EFAULT) }
}

impl AddressSpace {
    /// The key of a futex that only threads of this space share.
    ///
    /// # Errors
    /// `EINVAL` when it is not aligned, `EFAULT` when it is not user memory.
    pub fn private_futex_key(&self, address: u64) -> Result<FutexKey, Errno> {
        check_word(address)?;
        Ok(FutexKey::Private { space: self.id(), address })
    }
}

fn check_word(address: u64) -> Result<(), Errno> {
    if !address.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    check_range(address, 4)
}
