//! Open file descriptions: what descriptors refer to, and the behaviour behind them.

use crate::identity::Caller;
use crate::inode::{DirectoryEntry, Inode};
use crate::lock;
use crate::metadata::NodeKind;
use crate::mount::Location;
use crate::poll::{ALWAYS_READY, PollTable};
use crate::terminal::Terminal;
use abi::Errno;
use abi::fs::{OpenFlags, PollEvents, seek};
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::io::{Sink, Source};
use base::memory::Frame;
use base::sync::{Mutex, rank};
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// How one transfer is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The time that `File::read_timeout_ns` gave has passed: answer with what is there.
    pub expired: bool,
    /// Answer with what is there rather than wait for more (`O_NONBLOCK`).
    pub nonblocking: bool,
    /// No byte may be written at or past this offset of a regular file (`RLIMIT_FSIZE`).
    pub size_limit: u64,
}

impl Transfer {
    /// Nothing special.
    pub const PLAIN: Transfer =
        Transfer { expired: false, nonblocking: false, size_limit: u64::MAX };
}

/// What an `ioctl` answers: its return value, and bytes for the caller's argument.
#[derive(Debug, Default)]
pub struct IoctlAnswer {
    /// Return value.
    pub value: u64,
    /// Written to the address in the argument; empty when nothing is.
    pub output: Vec<u8>,
    /// A file that the caller gets a descriptor for, which becomes the return value.
    pub opened: Option<Arc<OpenFile>>,
}

impl IoctlAnswer {
    /// Bytes for the caller.
    pub fn bytes(output: &[u8]) -> IoctlAnswer {
        IoctlAnswer { output: output.to_vec(), ..IoctlAnswer::default() }
    }
}

/// What may be mapped into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Nothing (`ENODEV`).
    None,
    /// The pages that `File::page` gives.
    Pages,
    /// Anonymous memory (`/dev/zero`).
    Anonymous,
}

/// The behaviour behind an open file description. Nothing here waits: what would wait answers
/// `EAGAIN`, and `poll` tells when to try again.
pub trait File: Send + Sync + Any {
    /// Moves bytes to the sink. Less than what is there only when the sink takes no more. Streams
    /// ignore the offset.
    fn read(
        &self,
        _offset: u64,
        _sink: &mut dyn Sink,
        _transfer: Transfer,
    ) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }
    /// Moves bytes from the source. Streams ignore the offset.
    fn write(
        &self,
        _offset: u64,
        _source: &mut dyn Source,
        _transfer: Transfer,
    ) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }
    /// Moves bytes from the source to the end. Gives where they went, and how many.
    fn append(&self, source: &mut dyn Source, transfer: Transfer) -> Result<(u64, usize), Errno> {
        self.write(0, source, transfer).map(|count| (0, count))
    }
    /// Whether reads and writes happen at an offset.
    fn is_seekable(&self) -> bool {
        false
    }
    /// Whether its contents are made when they are read: then `prepare` comes before every read.
    fn is_generated(&self) -> bool {
        false
    }
    /// Called before a read at an offset, with no lock held.
    fn prepare(&self, _offset: u64) -> Result<(), Errno> {
        Ok(())
    }
    /// Whether reads and writes move the position, and reads note the time of access. Devices that
    /// are the same everywhere can do without. The same for as long as the file is there.
    fn has_position(&self) -> bool {
        self.is_seekable()
    }
    /// The new position for `lseek`.
    fn seek(&self, _position: u64, _offset: i64, _whence: i32) -> Result<u64, Errno> {
        Err(Errno::ESPIPE)
    }
    /// Which of the events are there now; `ERR`, `HUP` and `NVAL` are reported unasked. With a table,
    /// the waiter is woken when that may have changed.
    fn poll(&self, events: PollEvents, table: Option<&mut PollTable<'_>>) -> PollEvents {
        let _ = table;
        events & ALWAYS_READY
    }
    /// Whether `admit` may refuse; the same for as long as the file is there.
    fn is_guarded(&self) -> bool {
        false
    }
    /// Called once before a read or write with no lock held: job control of terminals.
    fn admit(&self, _caller: &dyn Caller, _writes: bool) -> Result<(), Errno> {
        Ok(())
    }
    /// How long a read that found nothing may wait at most, in nanoseconds; `None` for ever.
    fn read_timeout_ns(&self) -> Option<u64> {
        None
    }
    /// Bytes of input that an `ioctl` request takes from its argument's address. `ENOTTY` for a
    /// request that the file does not know.
    fn ioctl_input(&self, _request: u32) -> Result<usize, Errno> {
        Err(Errno::ENOTTY)
    }
    /// Carries out an `ioctl`; `input` has the length that `ioctl_input` gave.
    fn ioctl(
        &self,
        _caller: &dyn Caller,
        _request: u32,
        _argument: u64,
        _input: &[u8],
    ) -> Result<IoctlAnswer, Errno> {
        Err(Errno::ENOTTY)
    }
    /// Whether opening is complete; false while a FIFO waits for its other end.
    fn finish_open(
        &self,
        _flags: OpenFlags,
        _table: Option<&mut PollTable<'_>>,
    ) -> Result<bool, Errno> {
        Ok(true)
    }
    /// What may be mapped.
    fn mapping(&self) -> Mapping {
        Mapping::None
    }
    /// The frame of one page, as `Inode::page`.
    fn page(&self, _index: u64) -> Result<Frame, Errno> {
        Err(Errno::ENODEV)
    }
    /// The terminal behind it.
    fn terminal(&self) -> Option<Arc<Terminal>> {
        None
    }
    /// Status flags may not be what a file wants: checked before `F_SETFL`.
    fn check_flags(&self, _flags: OpenFlags) -> Result<(), Errno> {
        Ok(())
    }
    /// The file as its concrete type.
    fn as_any(&self) -> &dyn Any;
}

/// Flags that `F_SETFL` can change.
pub const CHANGEABLE_FLAGS: OpenFlags = OpenFlags::APPEND
    .union(OpenFlags::NONBLOCK)
    .union(OpenFlags::ASYNC)
    .union(OpenFlags::DIRECT)
    .union(OpenFlags::NOATIME);

/// An open file description: what `open` makes and `dup` and `fork` share.
///
/// `position` has a lock of its own, held for one transfer, so that concurrent readers get different
/// bytes. The rest are independent atomic words, or never change.
pub struct OpenFile {
    file: Arc<dyn File>,
    /// What `file` says of itself, at hand for every transfer.
    has_position: bool,
    is_guarded: bool,
    location: Location,
    flags: AtomicU32,
    position: Mutex<u64>,
    counts_as_writer: bool,
    /// Some lock was taken through it; to be released with it.
    pub(crate) has_locks: AtomicBool,
    owner_kind: AtomicI32,
    owner: AtomicI32,
    owner_signal: AtomicI32,
    id: u64,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Open file descriptions that exist.
pub fn open_count() -> usize {
    OPEN.load(Ordering::Relaxed)
}

impl OpenFile {
    /// A new description. `ETXTBSY` when it would write to a file that is being executed.
    pub fn new(
        file: Arc<dyn File>,
        location: Location,
        flags: OpenFlags,
    ) -> Result<Arc<OpenFile>, Errno> {
        let path_only = flags.contains(OpenFlags::PATH);
        let counts_as_writer = match location.inode.writers() {
            Some(writers) if flags.writes() && !path_only => {
                let add = |count: i32| if count < 0 { None } else { Some(count + 1) };
                writers
                    .fetch_update(Ordering::AcqRel, Ordering::Acquire, add)
                    .map_err(|_| Errno::ETXTBSY)?;
                true
            }
            _ => false,
        };
        let kept = flags
            & !(OpenFlags::CREAT
                | OpenFlags::EXCL
                | OpenFlags::NOCTTY
                | OpenFlags::TRUNC
                | OpenFlags::CLOEXEC);
        OPEN.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(OpenFile {
            has_position: file.has_position(),
            is_guarded: file.is_guarded(),
            file,
            location,
            flags: AtomicU32::new(kept.bits()),
            position: Mutex::new(&rank::OPEN_FILE, 0),
            counts_as_writer,
            has_locks: AtomicBool::new(false),
            owner_kind: AtomicI32::new(1),
            owner: AtomicI32::new(0),
            owner_signal: AtomicI32::new(0),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        }))
    }

    /// A number that no other description has or had.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The behaviour.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Where it is.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// What it is on.
    pub fn inode(&self) -> &Arc<dyn Inode> {
        &self.location.inode
    }

    /// Access mode and status flags.
    #[inline]
    pub fn flags(&self) -> OpenFlags {
        OpenFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Changes the flags in `which` to those of `to`.
    pub fn change_flags(&self, which: OpenFlags, to: OpenFlags) {
        let change = |bits: u32| Some(bits & !which.bits() | (to & which).bits());
        // The closure never refuses, so there is always a new value.
        let _ = self.flags.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// Whether it is a mere place (`O_PATH`), good for nothing but the `*at` calls and `fstat`.
    pub fn is_path_only(&self) -> bool {
        self.flags().contains(OpenFlags::PATH)
    }

    /// Whether transfers do not wait.
    #[inline]
    pub fn is_nonblocking(&self) -> bool {
        self.flags().contains(OpenFlags::NONBLOCK)
    }

    /// Whether `caller` may read or write now, as `File::admit`.
    #[inline]
    pub fn admit(&self, caller: &dyn Caller, writes: bool) -> Result<(), Errno> {
        if self.is_guarded { self.file.admit(caller, writes) } else { Ok(()) }
    }

    /// Reads at the position and moves it.
    #[inline]
    pub fn read(&self, sink: &mut dyn Sink, transfer: Transfer) -> Result<usize, Errno> {
        if self.has_position {
            self.read_at_position(sink, transfer)
        } else {
            self.file.read(0, sink, transfer)
        }
    }

    fn read_at_position(&self, sink: &mut dyn Sink, transfer: Transfer) -> Result<usize, Errno> {
        if self.file.is_generated() {
            self.file.prepare(self.position())?;
        }
        let mut position = self.position.lock();
        let count = self.file.read(*position, sink, transfer)?;
        *position = position.saturating_add(count as u64);
        drop(position);
        self.note_access();
        Ok(count)
    }

    /// Writes at the position, or at the end when it appends, and moves the position.
    pub fn write(&self, source: &mut dyn Source, transfer: Transfer) -> Result<usize, Errno> {
        if !self.file.is_seekable() {
            return self.file.write(0, source, transfer);
        }
        if self.file.is_generated() {
            // Whoever takes the text may lock what comes before an open file.
            let position = self.position();
            let count = self.file.write(position, source, transfer)?;
            *self.position.lock() = position.saturating_add(count as u64);
            return Ok(count);
        }
        let mut position = self.position.lock();
        let (start, count) = if self.flags().contains(OpenFlags::APPEND) {
            self.file.append(source, transfer)?
        } else {
            (*position, self.file.write(*position, source, transfer)?)
        };
        *position = start.saturating_add(count as u64);
        Ok(count)
    }

    /// Reads at an offset. `ESPIPE` for streams.
    pub fn read_at(
        &self,
        offset: u64,
        sink: &mut dyn Sink,
        transfer: Transfer,
    ) -> Result<usize, Errno> {
        if !self.file.is_seekable() {
            return Err(Errno::ESPIPE);
        }
        if self.file.is_generated() {
            self.file.prepare(offset)?;
        }
        let count = self.file.read(offset, sink, transfer)?;
        self.note_access();
        Ok(count)
    }

    /// Writes at an offset; as in Linux, at the end when it appends. `ESPIPE` for streams.
    pub fn write_at(
        &self,
        offset: u64,
        source: &mut dyn Source,
        transfer: Transfer,
        append: bool,
    ) -> Result<usize, Errno> {
        if !self.file.is_seekable() {
            return Err(Errno::ESPIPE);
        }
        if append {
            return self.file.append(source, transfer).map(|(_, count)| count);
        }
        self.file.write(offset, source, transfer)
    }

    fn note_access(&self) {
        if !self.flags().contains(OpenFlags::NOATIME) && self.location.mount.updates_access_time() {
            self.location.inode.note_access();
        }
    }

    /// Moves the position.
    pub fn seek(&self, offset: i64, whence: i32) -> Result<u64, Errno> {
        let mut position = self.position.lock();
        let moved = self.file.seek(*position, offset, whence)?;
        *position = moved;
        Ok(moved)
    }

    /// The position.
    pub fn position(&self) -> u64 {
        *self.position.lock()
    }

    /// Gives the directory entries from the position on to `emit` until it returns false, and moves
    /// the position past those that it took.
    pub fn read_directory(
        &self,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        // Not under the lock: a pseudo-directory may lock what comes before an open file. Two readers
        // of one description at the same time may so see an entry twice.
        let start = self.position();
        let mut reached = start;
        self.location.inode.read_directory(start, &mut |entry| {
            let next = entry.next;
            let taken = emit(entry);
            if taken {
                reached = next;
            }
            taken
        })?;
        *self.position.lock() = reached;
        self.note_access();
        Ok(())
    }

    /// Who gets `SIGIO`: kind (0 thread, 1 process, 2 group) and id.
    pub fn owner(&self) -> (i32, i32) {
        (self.owner_kind.load(Ordering::Relaxed), self.owner.load(Ordering::Relaxed))
    }

    /// Changes who gets `SIGIO`.
    pub fn set_owner(&self, kind: i32, id: i32) {
        self.owner_kind.store(kind, Ordering::Relaxed);
        self.owner.store(id, Ordering::Relaxed);
    }

    /// The signal that is sent instead of `SIGIO`; 0 for `SIGIO`.
    pub fn owner_signal(&self) -> i32 {
        self.owner_signal.load(Ordering::Relaxed)
    }

    /// Changes the signal that is sent instead of `SIGIO`.
    pub fn set_owner_signal(&self, signal: i32) {
        self.owner_signal.store(signal, Ordering::Relaxed);
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
        if self.counts_as_writer
            && let Some(writers) = self.location.inode.writers()
        {
            writers.fetch_sub(1, Ordering::AcqRel);
        }
        if *self.has_locks.get_mut() {
            lock::release_description(self);
        }
    }
}

/// Keeps a file from being opened for writing while it is executed.
pub struct WriteDenial {
    inode: Arc<dyn Inode>,
}

/// Denies writing to an inode until the result is dropped. `ETXTBSY` when somebody writes.
pub fn deny_writes(inode: &Arc<dyn Inode>) -> Result<WriteDenial, Errno> {
    if let Some(writers) = inode.writers() {
        let add = |count: i32| if count > 0 { None } else { Some(count - 1) };
        writers
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, add)
            .map_err(|_| Errno::ETXTBSY)?;
    }
    Ok(WriteDenial { inode: inode.clone() })
}

impl Clone for WriteDenial {
    fn clone(&self) -> WriteDenial {
        if let Some(writers) = self.inode.writers() {
            writers.fetch_sub(1, Ordering::AcqRel);
        }
        WriteDenial { inode: self.inode.clone() }
    }
}

impl Drop for WriteDenial {
    fn drop(&mut self) {
        if let Some(writers) = self.inode.writers() {
            writers.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// The position that `lseek` gives in something of a known size. `SEEK_DATA` and `SEEK_HOLE` are not
/// handled here.
pub fn seek_in(size: u64, position: u64, offset: i64, whence: i32) -> Result<u64, Errno> {
    let base = match whence {
        seek::SEEK_SET => 0,
        seek::SEEK_CUR => position,
        seek::SEEK_END => size,
        _ => return Err(Errno::EINVAL),
    };
    let base = i64::try_from(base).map_err(|_| Errno::EINVAL)?;
    let moved = base.checked_add(offset).ok_or(Errno::EINVAL)?;
    u64::try_from(moved).map_err(|_| Errno::EINVAL)
}

/// The ordinary behaviour of a regular file: that of its inode.
pub struct RegularFile {
    inode: Arc<dyn Inode>,
}

impl RegularFile {
    /// The file of an inode.
    pub fn new(inode: Arc<dyn Inode>) -> RegularFile {
        RegularFile { inode }
    }
}

/// Largest size of a file, in bytes.
pub const MAX_FILE_SIZE: u64 = i64::MAX as u64;

/// `EINVAL` for a transfer whose end is no offset of a file.
fn check_range(offset: u64, length: usize) -> Result<(), Errno> {
    match offset.checked_add(length as u64) {
        Some(end) if end <= MAX_FILE_SIZE => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// A source that ends after some bytes.
struct Limited<'a> {
    inner: &'a mut dyn Source,
    left: usize,
}

impl Source for Limited<'_> {
    fn read(&mut self, into: &mut [u8]) -> usize {
        let wanted = into.len().min(self.left);
        let count = into.get_mut(..wanted).map_or(0, |into| self.inner.read(into));
        self.left -= count;
        count
    }

    fn remaining(&self) -> usize {
        self.left.min(self.inner.remaining())
    }
}

impl File for RegularFile {
    fn read(&self, offset: u64, sink: &mut dyn Sink, _: Transfer) -> Result<usize, Errno> {
        check_range(offset, sink.remaining())?;
        self.inode.read_at(offset, sink)
    }

    fn write(
        &self,
        offset: u64,
        source: &mut dyn Source,
        transfer: Transfer,
    ) -> Result<usize, Errno> {
        if source.remaining() == 0 {
            return Ok(0);
        }
        check_range(offset, source.remaining())?;
        let limit = transfer.size_limit.min(MAX_FILE_SIZE);
        let room = limit.checked_sub(offset).filter(|&room| room > 0).ok_or(Errno::EFBIG)?;
        let left = usize::try_from(room).unwrap_or(usize::MAX);
        if left >= source.remaining() {
            return self.inode.write_at(offset, source);
        }
        self.inode.write_at(offset, &mut Limited { inner: source, left })
    }

    fn append(&self, source: &mut dyn Source, transfer: Transfer) -> Result<(u64, usize), Errno> {
        if transfer.size_limit == u64::MAX {
            return self.inode.append(source);
        }
        // With a limit, somebody else's growth between the two steps moves the limit by as much.
        let end = self.inode.metadata().size;
        let room = transfer.size_limit.saturating_sub(end);
        if room == 0 && source.remaining() > 0 {
            return Err(Errno::EFBIG);
        }
        let left = usize::try_from(room).unwrap_or(usize::MAX);
        self.inode.append(&mut Limited { inner: source, left })
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn seek(&self, position: u64, offset: i64, whence: i32) -> Result<u64, Errno> {
        match whence {
            seek::SEEK_DATA | seek::SEEK_HOLE => {
                let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
                self.inode.seek_content(offset, whence == seek::SEEK_HOLE)
            }
            seek::SEEK_END => seek_in(self.inode.metadata().size, position, offset, whence),
            _ => seek_in(0, position, offset, whence),
        }
    }

    fn ioctl_input(&self, request: u32) -> Result<usize, Errno> {
        match request {
            abi::terminal::names::FIOQSIZE => Ok(0),
            _ => Err(Errno::ENOTTY),
        }
    }

    fn ioctl(
        &self,
        _caller: &dyn Caller,
        request: u32,
        _argument: u64,
        _input: &[u8],
    ) -> Result<IoctlAnswer, Errno> {
        match request {
            abi::terminal::names::FIOQSIZE => {
                Ok(IoctlAnswer::bytes(&self.inode.metadata().size.to_ne_bytes()))
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    fn mapping(&self) -> Mapping {
        Mapping::Pages
    }

    fn page(&self, index: u64) -> Result<Frame, Errno> {
        self.inode.page(index)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The behaviour of an open directory: its entries are read through `OpenFile::read_directory`.
pub struct DirectoryFile;

impl File for DirectoryFile {
    fn read(&self, _: u64, _: &mut dyn Sink, _: Transfer) -> Result<usize, Errno> {
        Err(Errno::EISDIR)
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn seek(&self, position: u64, offset: i64, whence: i32) -> Result<u64, Errno> {
        seek_in(i64::MAX as u64, position, offset, whence)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What `O_PATH` opens: a place without behaviour.
pub struct PathFile;

impl File for PathFile {
    fn read(&self, _: u64, _: &mut dyn Sink, _: Transfer) -> Result<usize, Errno> {
        Err(Errno::EBADF)
    }

    fn write(&self, _: u64, _: &mut dyn Source, _: Transfer) -> Result<usize, Errno> {
        Err(Errno::EBADF)
    }

    fn poll(&self, _: PollEvents, _: Option<&mut PollTable<'_>>) -> PollEvents {
        PollEvents::NVAL
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Whether an inode of this kind is a directory.
pub fn is_directory(inode: &Arc<dyn Inode>) -> bool {
    inode.kind() == NodeKind::Directory
}

impl core::fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "OpenFile({}, {:?}, {:?})", self.id, self.location.inode, self.flags())
    }
}
