//! What `splice`, `tee` and `vmsplice` do to a pipe: pages enter and leave it whole, without a lock held
//! while the other side is asked for bytes.
//!
//! ```text
//! fill():  slots are reserved ── the other side fills pages of their own ── commit(): they join the pipe
//! drain(): the oldest slots are lent ── the other side takes bytes ── commit(n): n bytes leave the pipe
//! ```
//!
//! Lent slots share their frames with the pipe; while a frame has two owners nothing is added to it, so
//! what one pipe holds never changes through another. Frames of files never enter a pipe: their bytes are
//! copied into pages of the pipe. While slots are lent, other readers of the pipe wait.

use super::{Pipe, PipeEnd, Slot};
use abi::Errno;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use base::io::{Sink, Source};
use base::memory::{Frame, PAGE_SIZE};

/// Most slots that one transfer reserves or borrows at a time.
const MOST_SLOTS: usize = 256;

impl PipeEnd {
    /// Reserves room for up to `length` bytes. `EPIPE` when nobody reads, `EAGAIN` when the pipe is full.
    pub fn fill(&self, length: usize) -> Result<Filling, Errno> {
        let mut state = self.pipe.state.lock();
        if state.readers == 0 {
            return Err(Errno::EPIPE);
        }
        let free = state.capacity.saturating_sub(state.slots.len() + state.reserved);
        if free == 0 {
            return Err(Errno::EAGAIN);
        }
        let reserved = free.min(length.div_ceil(PAGE_SIZE)).min(MOST_SLOTS);
        let mut slots = VecDeque::new();
        slots.try_reserve_exact(reserved).map_err(|_| Errno::ENOMEM)?;
        state.reserved += reserved;
        let room = length.min(reserved * PAGE_SIZE);
        Ok(Filling { pipe: self.pipe.clone(), reserved, room, slots, is_short_of_memory: false })
    }

    /// Borrows the oldest bytes, `length` at most. `None` at the end of the data; `EAGAIN` when more may
    /// come, and while somebody else borrows.
    pub fn drain(&self, length: usize) -> Result<Option<Draining>, Errno> {
        let mut state = self.pipe.state.lock();
        if state.is_lent {
            return Err(Errno::EAGAIN);
        }
        if state.slots.is_empty() {
            return if state.writers == 0 { Ok(None) } else { Err(Errno::EAGAIN) };
        }
        let mut slots = VecDeque::new();
        slots.try_reserve(state.slots.len().min(MOST_SLOTS)).map_err(|_| Errno::ENOMEM)?;
        let mut left = length;
        for slot in state.slots.iter().take(MOST_SLOTS) {
            let count = (slot.end - slot.start).min(left);
            if count == 0 {
                break;
            }
            left -= count;
            slots.push_back(Slot {
                frame: slot.frame.clone(),
                start: slot.start,
                end: slot.start + count,
                is_packet: slot.is_packet,
                is_open: false,
            });
        }
        state.is_lent = true;
        Ok(Some(Draining { pipe: self.pipe.clone(), slots }))
    }

    /// Passes the oldest bytes, `length` at most, on to another pipe. They leave this one unless they are
    /// to be kept (`tee`). Gives 0 at the end of the data; the error says on which side it is.
    pub fn pass_to(&self, to: &PipeEnd, length: usize, keeps: bool) -> Result<usize, Side> {
        let Some(mut draining) = self.drain(length).map_err(Side::From)? else { return Ok(0) };
        let mut filling = to.fill(draining.slots.len() * PAGE_SIZE).map_err(Side::To)?;
        draining.slots.truncate(filling.reserved);
        filling.slots.append(&mut draining.slots);
        let count = filling.commit();
        draining.commit(if keeps { 0 } else { count });
        Ok(count)
    }
}

/// Which side of a transfer an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The pipe that is read.
    From(Errno),
    /// The pipe that is written.
    To(Errno),
}

/// Room in a pipe, and the pages that shall go there. Dropped without `commit`, nothing has happened.
pub struct Filling {
    pipe: Arc<Pipe>,
    reserved: usize,
    room: usize,
    slots: VecDeque<Slot>,
    is_short_of_memory: bool,
}

impl Filling {
    /// Whether a page could not be had.
    pub fn is_short_of_memory(&self) -> bool {
        self.is_short_of_memory
    }

    /// Takes bytes from a source until there is no room or it gives no more; how many.
    pub fn take_from(&mut self, source: &mut dyn Source) -> usize {
        let mut done = 0;
        while self.room > 0 && source.remaining() > 0 {
            let wanted = self.room.min(source.remaining());
            let count =
                self.add(wanted, |frame, offset, length| frame.write_from(offset, length, source));
            done += count;
            if count == 0 {
                break;
            }
        }
        done
    }

    /// Adds up to `length` bytes to the last page, or to a new one when that is full.
    fn add(&mut self, length: usize, fill: impl FnOnce(&Frame, usize, usize) -> usize) -> usize {
        let length = length.min(self.room);
        if length == 0 {
            return 0;
        }
        if self.slots.back().is_none_or(|last| last.end == PAGE_SIZE) {
            if self.slots.len() == self.reserved {
                return 0;
            }
            let Ok(frame) = base::memory::reserve::uninitialised() else {
                self.is_short_of_memory = true;
                return 0;
            };
            self.slots.push_back(Slot {
                frame,
                start: 0,
                end: 0,
                is_packet: false,
                is_open: false,
            });
        }
        let Some(last) = self.slots.back_mut() else { return 0 };
        let count = fill(&last.frame, last.end, length.min(PAGE_SIZE - last.end));
        last.end += count;
        self.room -= count;
        count
    }

    /// The pages join the pipe; how many bytes.
    pub fn commit(mut self) -> usize {
        let mut slots = core::mem::take(&mut self.slots);
        slots.retain(|slot| slot.end > slot.start);
        let count = slots.iter().map(|slot| slot.end - slot.start).sum();
        let mut state = self.pipe.state.lock();
        // With all readers gone meanwhile, the bytes are as lost as those of a writer just before.
        if state.readers > 0 {
            state.slots.append(&mut slots);
        }
        drop(state);
        if count > 0 {
            self.pipe.readable.wake_all();
        }
        count
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        let mut state = self.pipe.state.lock();
        state.reserved -= self.reserved;
        drop(state);
        self.pipe.writable.wake_all();
    }
}

impl Sink for Filling {
    fn write(&mut self, bytes: &[u8]) -> usize {
        self.take_from(&mut &*bytes)
    }

    fn remaining(&self) -> usize {
        self.room
    }

    fn write_from_frame(&mut self, frame: &Frame, offset: usize, length: usize) -> usize {
        let mut done = 0;
        while done < length {
            let count = self.add(length - done, |to, at, length| {
                to.copy_part(at, frame, offset + done, length);
                length
            });
            done += count;
            if count == 0 {
                break;
            }
        }
        done
    }
}

/// Bytes that a pipe has lent. Dropped without `commit`, they are all still there.
pub struct Draining {
    pipe: Arc<Pipe>,
    slots: VecDeque<Slot>,
}

impl Draining {
    /// The first `count` of the bytes leave the pipe.
    pub fn commit(self, count: usize) {
        let mut left = count;
        let mut gone = VecDeque::new();
        let mut state = self.pipe.state.lock();
        while left > 0 {
            let Some(slot) = state.slots.front_mut() else { break };
            let part = left.min(slot.end - slot.start);
            slot.start += part;
            left -= part;
            if slot.start == slot.end {
                gone.extend(state.slots.pop_front());
            }
        }
        drop(state);
        drop(gone);
    }
}

impl Drop for Draining {
    fn drop(&mut self) {
        self.pipe.state.lock().is_lent = false;
        self.pipe.wake();
    }
}

impl Source for Draining {
    fn read(&mut self, into: &mut [u8]) -> usize {
        let mut done = 0;
        while let (Some(slot), Some(rest)) = (self.slots.front_mut(), into.get_mut(done..)) {
            let count = rest.len().min(slot.end - slot.start);
            if count == 0 {
                break;
            }
            slot.frame.read(slot.start, rest.get_mut(..count).unwrap_or_default());
            slot.start += count;
            done += count;
            if slot.start == slot.end {
                self.slots.pop_front();
            }
        }
        done
    }

    fn remaining(&self) -> usize {
        self.slots.iter().map(|slot| slot.end - slot.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::pipe;
    use super::*;
    use crate::file::Transfer;
    use crate::identity::Identity;
    use abi::fs::OpenFlags;

    fn ends() -> (Arc<crate::OpenFile>, Arc<crate::OpenFile>) {
        pipe(OpenFlags::empty(), &Identity::kernel()).unwrap()
    }

    fn end(file: &crate::OpenFile) -> &PipeEnd {
        file.file().as_any().downcast_ref().unwrap()
    }

    fn write(file: &crate::OpenFile, bytes: &[u8]) -> Result<usize, Errno> {
        file.write(&mut &*bytes, Transfer::PLAIN)
    }

    fn read(file: &crate::OpenFile) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; 100];
        let count = file.read(&mut &mut bytes[..], Transfer::PLAIN)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    use alloc::vec::Vec;

    #[test]
    fn what_was_duplicated_does_not_change_with_later_writes() {
        let ((reader, writer), (second, into)) = (ends(), ends());
        write(&writer, b"one").unwrap();
        assert_eq!(end(&reader).pass_to(end(&into), 100, true), Ok(3));
        write(&writer, b"two").unwrap();
        write(&into, b"six").unwrap();
        assert_eq!(read(&reader).unwrap(), b"onetwo");
        assert_eq!(read(&second).unwrap(), b"onesix");
    }

    #[test]
    fn borrowed_bytes_are_nobody_elses_and_stay_when_not_taken() {
        let (reader, writer) = ends();
        write(&writer, b"abcdef").unwrap();
        let mut draining = end(&reader).drain(4).unwrap().unwrap();
        assert_eq!(read(&reader), Err(Errno::EAGAIN));
        let mut into = [0; 3];
        assert_eq!((draining.read(&mut into), &into), (3, b"abc"));
        draining.commit(2);
        assert_eq!(read(&reader).unwrap(), b"cdef");
    }

    #[test]
    fn reserved_room_is_not_for_other_writers() {
        let (reader, writer) = ends();
        let filling = end(&writer).fill(usize::MAX).unwrap();
        assert_eq!(write(&writer, b"x"), Err(Errno::EAGAIN));
        drop(filling);
        assert_eq!(write(&writer, b"x"), Ok(1));
        drop(reader);
        assert_eq!(end(&writer).fill(1).err(), Some(Errno::EPIPE));
    }
}
