//! `UserSink` and `UserSource`: how file data moves between a program's buffers and pages of a cache,
//! a pipe or a terminal without a buffer in between.
//!
//! Both walk a list of ranges (`struct iovec`). They copy while the holder of the other side has its
//! locks, so they never bring a page in themselves: at a missing page they stop short. The handler
//! then lets go of its locks, calls `fault_in_next`, and goes on where it stopped:
//!
//! ```text
//! loop { n += file.read(&mut sink)?;  if !sink.is_stopped() { break }  sink.fault_in_next().await? }
//! ```

use abi::Errno;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::{IntoIter, Vec};
use base::io::{Sink, Source};
use base::memory::{Frame, VirtAddr};
use core::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::fault::Access;
use super::layout::{PAGE, is_user_range};
use super::space::AddressSpace;
use super::user::UserMemory;

/// Most ranges of one call (`IOV_MAX`).
pub const MOST_VECTORS: u64 = 1024;
/// Most bytes that one call moves; more are left for the next, as on Linux.
pub const MOST_BYTES: u64 = 0x7fff_f000;

/// What a short read of zeros copies.
const ZEROS: [u8; 256] = [0; 256];

/// Most bytes of a range that is moved at once, without a handler that could wait.
pub const SHORT_BYTES: u64 = 16 * PAGE;

/// `struct iovec`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct IoVector {
    /// Start.
    pub address: u64,
    /// Bytes.
    pub length: u64,
}

pub(super) async fn read_io_vectors(
    memory: &UserMemory,
    address: u64,
    count: u64,
) -> Result<Vec<IoVector>, Errno> {
    if count > MOST_VECTORS {
        return Err(Errno::EINVAL);
    }
    let vectors = memory.read_array::<IoVector>(address, count as usize).await?;
    if vectors.iter().any(|vector| i64::try_from(vector.length).is_err()) {
        return Err(Errno::EINVAL);
    }
    Ok(vectors)
}

/// A position in a list of user ranges.
struct Cursor {
    space: Arc<AddressSpace>,
    current: IoVector,
    following: IntoIter<IoVector>,
    remaining: u64,
    /// Bytes that may still be moved before the next piece.
    piece: u64,
    piece_size: u64,
    /// The last copy stopped at a page that is missing or not permitted.
    is_stopped: bool,
    /// That page is not where the next copy begins, because a record is moved whole.
    missing: Option<u64>,
}

impl Cursor {
    /// A position at the start of `first` and then `following`.
    fn new(
        space: Arc<AddressSpace>,
        first: IoVector,
        following: Vec<IoVector>,
    ) -> Result<Cursor, Errno> {
        let mut remaining = 0_u64;
        for vector in following.iter().chain([&first]) {
            if vector.length > 0 && !is_user_range(vector.address, vector.length) {
                return Err(Errno::EFAULT);
            }
            remaining = remaining.saturating_add(vector.length);
        }
        Ok(Cursor {
            space,
            current: first,
            following: following.into_iter(),
            remaining: remaining.min(MOST_BYTES),
            piece: u64::MAX,
            piece_size: u64::MAX,
            is_stopped: false,
            missing: None,
        })
    }

    /// Moves `length` bytes by `copy`, or goes back to where it was.
    fn whole(&mut self, length: usize, copy: impl FnOnce(&mut Cursor) -> usize) -> bool {
        if self.remaining < length as u64 {
            return false;
        }
        let (current, remaining) = (self.current, self.remaining);
        let crosses = current.length < length as u64;
        let following = if crosses { self.following.clone() } else { IntoIter::default() };
        if copy(self) == length {
            return true;
        }
        self.missing = Some(self.current.address);
        (self.current, self.remaining) = (current, remaining);
        if crosses {
            self.following = following;
        }
        false
    }

    /// Moves up to `limit` bytes; `copy` gets the space, the address, the range of the caller's
    /// buffer, and says how many it moved.
    fn advance(
        &mut self,
        limit: usize,
        mut copy: impl FnMut(&AddressSpace, u64, Range<usize>) -> usize,
    ) -> usize {
        self.is_stopped = false;
        let mut done = 0;
        let limit = limit.min(usize::try_from(self.piece).unwrap_or(limit));
        while done < limit && self.remaining > 0 {
            if self.current.length == 0 {
                match self.following.next() {
                    Some(next) => self.current = next,
                    None => break,
                }
                continue;
            }
            let wanted = (limit - done)
                .min(usize::try_from(self.current.length.min(self.remaining)).unwrap_or(limit));
            let moved = copy(&self.space, self.current.address, done..done + wanted);
            self.current.address += moved as u64;
            self.current.length -= moved as u64;
            self.remaining -= moved as u64;
            self.piece -= moved as u64;
            done += moved;
            if moved < wanted {
                self.is_stopped = true;
                break;
            }
        }
        done
    }

    /// What it may move now.
    fn open(&self) -> usize {
        usize::try_from(self.remaining.min(self.piece)).unwrap_or(usize::MAX)
    }

    /// A piece has come to its end, and there is more: begins the next one.
    fn next_piece(&mut self) -> bool {
        if self.piece > 0 || self.remaining == 0 {
            return false;
        }
        self.piece = self.piece_size;
        true
    }

    async fn fault_in_next(&mut self, access: Access) -> Result<(), Errno> {
        if let Some(missing) = self.missing.take() {
            self.is_stopped = false;
            let fault = Box::pin(self.space.fault(VirtAddr(missing), access));
            return fault.await.map_err(|_| Errno::EFAULT);
        }
        while self.current.length == 0 {
            match self.following.next() {
                Some(next) => self.current = next,
                None => return Ok(()),
            }
        }
        self.is_stopped = false;
        let fault = Box::pin(self.space.fault(VirtAddr(self.current.address), access));
        fault.await.map_err(|_| Errno::EFAULT)
    }
}

/// Where a read puts its bytes.
pub struct UserSink {
    cursor: Cursor,
}

impl UserSink {
    /// The same, stopping after each piece of so many bytes until `next_piece`.
    pub fn in_pieces(mut self, size: u64) -> UserSink {
        (self.cursor.piece, self.cursor.piece_size) = (size, size);
        self
    }

    /// Begins the next piece; false when this one has not come to its end, or was the last.
    pub fn next_piece(&mut self) -> bool {
        self.cursor.next_piece()
    }

    pub(super) fn new(
        space: Arc<AddressSpace>,
        first: IoVector,
        following: Vec<IoVector>,
    ) -> Result<UserSink, Errno> {
        Ok(UserSink { cursor: Cursor::new(space, first, following)? })
    }

    /// Whether the last write stopped at a page that must be brought in first.
    pub fn is_stopped(&self) -> bool {
        self.cursor.is_stopped
    }

    /// Brings in the page that the next byte goes to.
    ///
    /// # Errors
    /// `EFAULT`.
    pub async fn fault_in_next(&mut self) -> Result<(), Errno> {
        self.cursor.fault_in_next(Access::WRITE).await
    }
}

impl Cursor {
    fn take(&mut self, bytes: &[u8]) -> usize {
        self.advance(bytes.len(), |space, address, range| {
            space.copy_in(address, bytes.get(range).unwrap_or_default())
        })
    }

    fn give(&mut self, into: &mut [u8]) -> usize {
        self.advance(into.len(), |space, address, range| {
            space.copy_out(address, into.get_mut(range).unwrap_or_default())
        })
    }
}

impl Sink for UserSink {
    fn write(&mut self, bytes: &[u8]) -> usize {
        self.cursor.take(bytes)
    }

    fn write_record(&mut self, bytes: &[u8]) -> bool {
        self.cursor.whole(bytes.len(), |cursor| cursor.take(bytes))
    }

    fn remaining(&self) -> usize {
        self.cursor.open()
    }

    fn write_from_frame(&mut self, frame: &Frame, offset: usize, length: usize) -> usize {
        self.cursor.advance(length, |space, address, range| {
            space.copy_in_from_frame(address, frame, offset + range.start, range.len())
        })
    }

    fn write_zeros(&mut self, length: usize) -> usize {
        self.cursor.advance(length, |space, address, range| {
            space.lock().table.zero(VirtAddr(address), range.len())
        })
    }
}

/// A range of a few pages of a program, as the sink of a short read or the source of a short write. All of
/// it was there when it was made. It stops early only when another thread takes pages away meanwhile: at
/// its start when it lies within one page, and then nothing has happened and the call takes the long way.
pub struct ShortRange<'a> {
    space: &'a AddressSpace,
    address: u64,
    length: usize,
    /// The page was missing.
    is_stopped: bool,
}

impl<'a> ShortRange<'a> {
    /// `None` when the range crosses a page or does not lie in user space.
    pub fn new(space: &'a AddressSpace, address: u64, length: u64) -> Option<ShortRange<'a>> {
        if length > PAGE - address % PAGE || !is_user_range(address, length) {
            return None;
        }
        let length = usize::try_from(length).ok()?;
        Some(ShortRange { space, address, length, is_stopped: false })
    }

    /// A range of up to `SHORT_BYTES` that may cross pages, which are there; `write` says what the program
    /// must be permitted. `None` else.
    pub fn across(
        space: &'a AddressSpace,
        address: u64,
        length: u64,
        write: bool,
    ) -> Option<ShortRange<'a>> {
        if length <= PAGE - address % PAGE {
            return ShortRange::new(space, address, length);
        }
        if length > SHORT_BYTES || !space.is_there(address, length, write) {
            return None;
        }
        let length = usize::try_from(length).ok()?;
        Some(ShortRange { space, address, length, is_stopped: false })
    }

    /// Whether the page was missing when bytes were to be moved.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    fn advance(&mut self, wanted: usize, done: usize) -> usize {
        self.is_stopped |= done < wanted;
        self.address += done as u64;
        self.length -= done;
        done
    }
}

impl Sink for ShortRange<'_> {
    fn write(&mut self, bytes: &[u8]) -> usize {
        let bytes = bytes.get(..self.length).unwrap_or(bytes);
        let done = self.space.copy_in(self.address, bytes);
        self.advance(bytes.len(), done)
    }

    fn remaining(&self) -> usize {
        self.length
    }

    fn write_from_frame(&mut self, frame: &Frame, offset: usize, length: usize) -> usize {
        let length = length.min(self.length);
        let done = self.space.copy_in_from_frame(self.address, frame, offset, length);
        self.advance(length, done)
    }

    fn write_zeros(&mut self, length: usize) -> usize {
        let length = length.min(self.length);
        let done = match ZEROS.get(..length) {
            Some(zeros) => self.space.copy_in(self.address, zeros),
            None => self.space.lock().table.zero(VirtAddr(self.address), length),
        };
        self.advance(length, done)
    }
}

impl Source for ShortRange<'_> {
    fn read(&mut self, into: &mut [u8]) -> usize {
        let length = into.len().min(self.length);
        let into = into.get_mut(..length).unwrap_or_default();
        let done = self.space.copy_out(self.address, into);
        self.advance(length, done)
    }

    fn remaining(&self) -> usize {
        self.length
    }

    fn read_to_frame(&mut self, frame: &Frame, offset: usize, length: usize) -> usize {
        let length = length.min(self.length);
        let done = self.space.copy_out_to_frame(self.address, frame, offset, length);
        self.advance(length, done)
    }
}

/// Where a write takes its bytes from.
pub struct UserSource {
    cursor: Cursor,
}

impl UserSource {
    /// The same, stopping after each piece of so many bytes until `next_piece`.
    pub fn in_pieces(mut self, size: u64) -> UserSource {
        (self.cursor.piece, self.cursor.piece_size) = (size, size);
        self
    }

    /// Begins the next piece; false when this one has not come to its end, or was the last.
    pub fn next_piece(&mut self) -> bool {
        self.cursor.next_piece()
    }

    pub(super) fn new(
        space: Arc<AddressSpace>,
        first: IoVector,
        following: Vec<IoVector>,
    ) -> Result<UserSource, Errno> {
        Ok(UserSource { cursor: Cursor::new(space, first, following)? })
    }

    /// Whether the last read stopped at a page that must be brought in first.
    pub fn is_stopped(&self) -> bool {
        self.cursor.is_stopped
    }

    /// Brings in the page that the next byte comes from.
    ///
    /// # Errors
    /// `EFAULT`.
    pub async fn fault_in_next(&mut self) -> Result<(), Errno> {
        self.cursor.fault_in_next(Access::READ).await
    }
}

impl Source for UserSource {
    fn read(&mut self, into: &mut [u8]) -> usize {
        self.cursor.give(into)
    }

    fn read_record(&mut self, into: &mut [u8]) -> bool {
        self.cursor.whole(into.len(), |cursor| cursor.give(into))
    }

    fn remaining(&self) -> usize {
        self.cursor.open()
    }

    fn read_to_frame(&mut self, frame: &Frame, offset: usize, length: usize) -> usize {
        self.cursor.advance(length, |space, address, range| {
            space.copy_out_to_frame(address, frame, offset + range.start, range.len())
        })
    }
}
