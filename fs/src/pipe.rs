//! Pipes and FIFOs.
//!
//! A pipe holds up to `capacity` slots of one page each. Bytes are added to the last slot as long as
//! a whole write fits there, else they begin a new one; so a write of at most `PIPE_BUF` bytes is
//! always in one piece, and a pipe of 16 slots takes 64 KiB of page-sized writes. In packet mode
//! (`O_DIRECT`) each write is a packet that one read takes, and loses what does not fit. `splice` moves
//! whole pages in and out.

mod splice;

pub use splice::{Draining, Filling, Side};

use crate::anonymous::AnonymousInode;
use crate::file::{File, IoctlAnswer, OpenFile, Transfer};
use crate::identity::{Caller, Identity};
use crate::poll::{PollTable, register};
use abi::Errno;
use abi::capability::Capability;
use abi::fs::{OpenFlags, PIPE_BUF, PollEvents};
use abi::terminal::names::FIONREAD;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use base::io::{Sink, Source};
use base::memory::{Frame, PAGE_SIZE};
use base::quota::{Charge, Kind};
use base::sync::{Mutex, rank};
use base::wait::WaitQueue;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Slots of a fresh pipe.
pub const DEFAULT_SLOTS: usize = 16;
/// Slots of the pipes of a user who has too much in pipes.
const LEAST_SLOTS: usize = 2;
/// Pages that the pipes of one user may take before new ones are small and none can grow
/// (`fs.pipe-user-pages-soft`).
pub const USER_PAGES_SOFT: u32 = 16384;
/// Most bytes that somebody without privilege may ask for (`/proc/sys/fs/pipe-max-size`).
pub static MAX_SIZE: AtomicU64 = AtomicU64::new(1 << 20);

struct Slot {
    frame: Frame,
    start: usize,
    end: usize,
    is_packet: bool,
    /// Its writer stopped short at a missing page and goes on here.
    is_open: bool,
}

impl Slot {
    /// Whether so many bytes can be added. Never to a page that somebody else has too.
    fn takes(&self, length: usize) -> bool {
        !self.is_packet && self.end + length <= PAGE_SIZE && !self.frame.is_shared()
    }

    /// Whether a writer that stopped short goes on in it.
    fn goes_on(&self) -> bool {
        self.is_open && !self.frame.is_shared()
    }
}

/// Guarded by the pipe's lock. `openings_*` count opens over all time, so that whoever waits for
/// the other end of a FIFO notices one that came and went.
struct State {
    slots: VecDeque<Slot>,
    capacity: usize,
    spare: Option<Frame>,
    /// The capacity, counted for who made the pipe; none for a FIFO.
    charge: Option<Charge>,
    /// Slots that transfers on their way have room for.
    reserved: usize,
    /// The oldest slots are lent to a transfer: nobody else reads.
    is_lent: bool,
    readers: usize,
    writers: usize,
    reader_openings: u64,
    writer_openings: u64,
}

/// What both ends share.
pub struct Pipe {
    state: Mutex<State>,
    readable: WaitQueue,
    writable: WaitQueue,
}

impl Pipe {
    fn new() -> Arc<Pipe> {
        let state = State {
            slots: VecDeque::new(),
            capacity: DEFAULT_SLOTS,
            spare: None,
            charge: None,
            reserved: 0,
            is_lent: false,
            readers: 0,
            writers: 0,
            reader_openings: 0,
            writer_openings: 0,
        };
        Arc::new(Pipe {
            state: Mutex::new(&rank::PIPE, state),
            readable: WaitQueue::new(),
            writable: WaitQueue::new(),
        })
    }

    /// Counts the pipe for a user. One who has too much in pipes already gets small ones; `ENFILE` when
    /// not even that can be counted.
    fn charge(&self, identity: &Identity) -> Result<(), Errno> {
        let count = |slots: usize, limit| {
            Charge::new(identity.user, Kind::PipePages, u32::try_from(slots).ok()?, limit)
        };
        let mut state = self.state.lock();
        let is_exempt = identity.is_capable(Capability::Resource)
            || identity.is_capable(Capability::Administer);
        let soft = if is_exempt { u32::MAX } else { USER_PAGES_SOFT };
        state.charge = count(DEFAULT_SLOTS, soft);
        if state.charge.is_none() {
            state.capacity = LEAST_SLOTS;
            state.charge = Some(count(LEAST_SLOTS, u32::MAX).ok_or(Errno::ENFILE)?);
        }
        Ok(())
    }

    /// The pipe behind a FIFO, with no end open.
    pub fn for_fifo() -> Arc<Pipe> {
        Pipe::new()
    }

    fn wake(&self) {
        self.readable.wake_all();
        self.writable.wake_all();
    }

    fn open_end(self: &Arc<Pipe>, reads: bool, writes: bool, is_packets: bool) -> PipeEnd {
        let (reader_openings, writer_openings) = {
            let mut state = self.state.lock();
            if reads {
                state.readers += 1;
                state.reader_openings += 1;
            }
            if writes {
                state.writers += 1;
                state.writer_openings += 1;
            }
            // With a writer there already, its leaving is a hang-up: remember a count that never is.
            let writer_openings = if state.writers > 0 { u64::MAX } else { state.writer_openings };
            (state.reader_openings, writer_openings)
        };
        self.wake();
        PipeEnd {
            pipe: self.clone(),
            reads,
            writes,
            is_packets: AtomicBool::new(is_packets),
            waits: true,
            reader_openings,
            writer_openings,
        }
    }

    /// Opens an end as `open` on a FIFO does. `ENXIO` for writing without waiting when nobody reads.
    pub fn open_fifo(self: &Arc<Pipe>, flags: OpenFlags) -> Result<Arc<dyn File>, Errno> {
        let (reads, writes) = (flags.reads(), flags.writes());
        if writes && !reads && flags.contains(OpenFlags::NONBLOCK) && self.state.lock().readers == 0
        {
            return Err(Errno::ENXIO);
        }
        Ok(Arc::new(self.open_end(reads, writes, flags.contains(OpenFlags::DIRECT))))
    }

    /// Opens one more end of a pipe that has no name: nobody waits, and an end that has gone stays
    /// gone.
    pub fn open_again(self: &Arc<Pipe>, flags: OpenFlags) -> Arc<dyn File> {
        let mut end =
            self.open_end(flags.reads(), flags.writes(), flags.contains(OpenFlags::DIRECT));
        end.waits = false;
        end.writer_openings = u64::MAX;
        Arc::new(end)
    }
}

/// A new pipe: its reading and its writing end. `flags` may have `NONBLOCK` and `DIRECT`.
pub fn pipe(
    flags: OpenFlags,
    identity: &Identity,
) -> Result<(Arc<OpenFile>, Arc<OpenFile>), Errno> {
    let pipe = Pipe::new();
    pipe.charge(identity)?;
    let location = AnonymousInode::pipe_location(pipe.clone(), identity.user, identity.group);
    let packets = flags.contains(OpenFlags::DIRECT);
    let kept = flags & (OpenFlags::NONBLOCK | OpenFlags::DIRECT);
    let reader =
        OpenFile::new(Arc::new(pipe.open_end(true, false, packets)), location.clone(), kept)?;
    let writer = OpenFile::new(
        Arc::new(pipe.open_end(false, true, packets)),
        location,
        kept | OpenFlags::WRONLY,
    )?;
    Ok((reader, writer))
}

/// One open end.
pub struct PipeEnd {
    pipe: Arc<Pipe>,
    reads: bool,
    writes: bool,
    /// Writes are packets (`O_DIRECT`, which can change).
    is_packets: AtomicBool,
    /// Opening is complete only when the other end is open too.
    waits: bool,
    /// Openings of the other end when this one was opened.
    reader_openings: u64,
    writer_openings: u64,
}

impl PipeEnd {
    /// Bytes that the pipe can hold.
    pub fn capacity(&self) -> usize {
        self.pipe.state.lock().capacity * PAGE_SIZE
    }

    /// Changes how many bytes the pipe can hold, one page at least; gives what it is then. `EPERM` above
    /// a limit without privilege, `EBUSY` when more is in it, `EINVAL` for absurd sizes.
    pub fn set_capacity(&self, bytes: u64, privileged: bool) -> Result<usize, Errno> {
        if bytes > 1 << 31 {
            return Err(Errno::EINVAL);
        }
        let size = usize::try_from(bytes).map_err(|_| Errno::EINVAL)?.max(PAGE_SIZE);
        let slots = size.div_ceil(PAGE_SIZE).next_power_of_two();
        let mut state = self.pipe.state.lock();
        if slots > state.capacity
            && (slots * PAGE_SIZE) as u64 > MAX_SIZE.load(Ordering::Relaxed)
            && !privileged
        {
            return Err(Errno::EPERM);
        }
        if slots < state.slots.len() + state.reserved {
            return Err(Errno::EBUSY);
        }
        let limit = if privileged { u32::MAX } else { USER_PAGES_SOFT };
        let amount = u32::try_from(slots).unwrap_or(u32::MAX);
        if state.charge.as_mut().is_some_and(|charge| !charge.change(amount, limit)) {
            return Err(Errno::EPERM);
        }
        state.capacity = slots;
        drop(state);
        self.pipe.writable.wake_all();
        Ok(slots * PAGE_SIZE)
    }

    /// Whether both ends belong to one pipe.
    pub fn is_same_pipe(&self, other: &PipeEnd) -> bool {
        Arc::ptr_eq(&self.pipe, &other.pipe)
    }
}

impl State {
    fn take_frame(&mut self) -> Result<Frame, Errno> {
        match self.spare.take() {
            Some(frame) => Ok(frame),
            None => base::memory::reserve::uninitialised().map_err(Errno::from),
        }
    }

    fn read(&mut self, sink: &mut dyn Sink) -> usize {
        let mut done = 0;
        while let Some(slot) = self.slots.front_mut() {
            let wanted = (slot.end - slot.start).min(sink.remaining());
            if wanted == 0 {
                break;
            }
            let count = slot.frame.read_into(slot.start, wanted, sink);
            slot.start += count;
            done += count;
            let is_packet = slot.is_packet;
            if slot.start == slot.end || (is_packet && count == wanted) {
                if let Some(slot) = self.slots.pop_front()
                    && !slot.frame.is_shared()
                {
                    self.spare = Some(slot.frame);
                }
                if is_packet {
                    break;
                }
            }
            if count < wanted {
                break;
            }
        }
        done
    }

    fn add_slot(
        &mut self,
        length: usize,
        is_packet: bool,
        source: &mut dyn Source,
    ) -> Result<usize, Errno> {
        let frame = self.take_frame()?;
        let count = frame.write_from(0, length, source);
        if count == 0 {
            self.spare = Some(frame);
        } else {
            let is_open = count < length && !is_packet;
            self.slots.push_back(Slot { frame, start: 0, end: count, is_packet, is_open });
        }
        Ok(count)
    }

    fn write(&mut self, is_packets: bool, source: &mut dyn Source) -> Result<usize, Errno> {
        let mut done = 0;
        if let Some(last) = self.slots.back_mut()
            && last.goes_on()
        {
            let room = (PAGE_SIZE - last.end).min(source.remaining());
            let count = last.frame.write_from(last.end, room, source);
            last.end += count;
            done += count;
            if count < room {
                return Ok(done);
            }
            last.is_open = false;
        }
        // What goes beyond whole pages joins the last slot if all of it fits there.
        let odd = source.remaining() % PAGE_SIZE;
        if odd > 0
            && !is_packets
            && let Some(last) = self.slots.back_mut()
            && last.takes(odd)
        {
            let count = last.frame.write_from(last.end, odd, source);
            last.end += count;
            done += count;
            if count < odd {
                return Ok(done);
            }
        }
        while source.remaining() > 0 && self.has_free_slot() {
            let length = source.remaining().min(PAGE_SIZE);
            match self.add_slot(length, is_packets, source) {
                Ok(count) => {
                    done += count;
                    if count < length {
                        break;
                    }
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    fn has_room_for(&self, length: usize, is_packets: bool) -> bool {
        let fits_last = !is_packets && self.slots.back().is_some_and(|last| last.takes(length));
        fits_last || self.has_free_slot()
    }

    fn has_free_slot(&self) -> bool {
        self.slots.len() + self.reserved < self.capacity
    }

    /// Whether a read finds something now.
    fn is_readable(&self) -> bool {
        !self.slots.is_empty() && !self.is_lent
    }
}

impl File for PipeEnd {
    fn read(&self, _: u64, sink: &mut dyn Sink, _: Transfer) -> Result<usize, Errno> {
        if sink.remaining() == 0 {
            return Ok(0);
        }
        let mut state = self.pipe.state.lock();
        if !state.is_readable() {
            let is_at_end = state.slots.is_empty() && state.writers == 0;
            return if is_at_end { Ok(0) } else { Err(Errno::EAGAIN) };
        }
        let was_full = state.slots.len() >= state.capacity;
        let count = state.read(sink);
        let has_room = state.slots.len() < state.capacity;
        drop(state);
        if was_full && has_room {
            self.pipe.writable.notify(PollEvents::WRITABLE);
        }
        Ok(count)
    }

    fn write(&self, _: u64, source: &mut dyn Source, _: Transfer) -> Result<usize, Errno> {
        let length = source.remaining();
        if length == 0 {
            return Ok(0);
        }
        let is_packets = self.is_packets.load(Ordering::Relaxed);
        let mut state = self.pipe.state.lock();
        if state.readers == 0 {
            return Err(Errno::EPIPE);
        }
        let piece = if length <= PIPE_BUF { length } else { PAGE_SIZE };
        let has_room = state.has_room_for(piece, is_packets)
            || (length > PIPE_BUF && state.slots.back().is_some_and(Slot::goes_on))
            || (length > PIPE_BUF
                && !length.is_multiple_of(PAGE_SIZE)
                && state.has_room_for(length % PAGE_SIZE, is_packets));
        if !has_room {
            return Err(Errno::EAGAIN);
        }
        let count = state.write(is_packets, source)?;
        drop(state);
        if count > 0 {
            self.pipe.readable.notify(PollEvents::READABLE);
        }
        Ok(count)
    }

    fn poll(&self, events: PollEvents, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            if self.reads {
                table.register(&self.pipe.readable);
            }
            if self.writes {
                table.register(&self.pipe.writable);
            }
        }
        let state = self.pipe.state.lock();
        let mut ready = PollEvents::empty();
        if self.reads {
            if state.is_readable() {
                ready |= PollEvents::READABLE;
            }
            // A FIFO whose reader did not wait hangs up only after a writer has come and gone.
            if state.writers == 0 && state.writer_openings != self.writer_openings {
                ready |= PollEvents::HUP;
            }
        }
        if self.writes {
            if state.has_free_slot() {
                ready |= PollEvents::WRITABLE;
            }
            if state.readers == 0 {
                ready |= PollEvents::ERR;
            }
        }
        ready & (events | PollEvents::ALWAYS)
    }

    fn takes_direct(&self) -> bool {
        true
    }

    fn flags_changed(&self, flags: OpenFlags) {
        self.is_packets.store(flags.contains(OpenFlags::DIRECT), Ordering::Relaxed);
    }

    fn ioctl_input(&self, request: u32) -> Result<usize, Errno> {
        if request == FIONREAD { Ok(0) } else { Err(Errno::ENOTTY) }
    }

    fn ioctl(
        &self,
        _caller: &dyn Caller,
        request: u32,
        _argument: u64,
        _input: &[u8],
    ) -> Result<IoctlAnswer, Errno> {
        if request != FIONREAD {
            return Err(Errno::ENOTTY);
        }
        let state = self.pipe.state.lock();
        let count: usize = state.slots.iter().map(|slot| slot.end - slot.start).sum();
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        Ok(IoctlAnswer::bytes(&count.to_ne_bytes()))
    }

    fn finish_open(
        &self,
        flags: OpenFlags,
        table: Option<&mut PollTable<'_>>,
    ) -> Result<bool, Errno> {
        if !self.waits || flags.contains(OpenFlags::NONBLOCK) || (self.reads && self.writes) {
            return Ok(true);
        }
        let queue = if self.reads { &self.pipe.readable } else { &self.pipe.writable };
        register(table, queue);
        let state = self.pipe.state.lock();
        Ok(if self.reads {
            state.writers > 0 || state.writer_openings != self.writer_openings
        } else {
            state.readers > 0 || state.reader_openings != self.reader_openings
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        let left = {
            let mut state = self.pipe.state.lock();
            state.readers -= usize::from(self.reads);
            state.writers -= usize::from(self.writes);
            if state.readers == 0 && state.writers == 0 {
                state.spare = None;
                core::mem::take(&mut state.slots)
            } else {
                VecDeque::new()
            }
        };
        drop(left);
        self.pipe.wake();
    }
}

#[cfg(test)]
#[path = "pipe_tests.rs"]
mod tests;
