//! Open file descriptions: what descriptors refer to.

use super::owner::OwnerCell;
use super::watches::Watches;
use super::{File, Transfer, signals};
use crate::identity::Caller;
use crate::inode::{DirectoryEntry, Inode};
use crate::lease;
use crate::lock::Holder;
use crate::metadata::NodeKind;
use crate::mount::Location;
use crate::notify;
use abi::Errno;
use abi::fs::OpenFlags;
use abi::fs::notify::Events;
use alloc::sync::Arc;
use base::io::{Sink, Source};
use base::sync::{Mutex, rank};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Flags that `F_SETFL` can change, besides `O_ASYNC`.
pub const CHANGEABLE_FLAGS: OpenFlags =
    OpenFlags::APPEND.union(OpenFlags::NONBLOCK).union(OpenFlags::DIRECT).union(OpenFlags::NOATIME);

/// An open file description: what `open` makes and `dup` and `fork` share.
///
/// `position` has a lock of its own, held for one transfer, so that concurrent readers get different
/// bytes. The rest are independent atomic words, or never change.
pub struct OpenFile {
    file: Arc<dyn File>,
    /// What `file` and its inode say of themselves, at hand for every transfer.
    has_position: bool,
    is_guarded: bool,
    is_seekable: bool,
    is_generated: bool,
    kind: NodeKind,
    location: Location,
    flags: AtomicU32,
    position: Mutex<u64>,
    counts_as_writer: bool,
    /// Locks that are taken through it; released with it.
    locks: Holder,
    /// Some lease was taken through it; to be given up with it.
    has_leases: AtomicBool,
    /// Somebody is told of what happens in this directory; to be forgotten with it.
    watches_directory: AtomicBool,
    pub(super) owner: OwnerCell,
    id: u64,
    /// Who watches it until it is closed.
    watches: Watches,
    /// Lost writes that `sync` has told of.
    errors_told: AtomicU64,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// A number above those of all descriptions that were made until now.
pub(crate) fn next_id() -> u64 {
    NEXT_ID.load(Ordering::Relaxed)
}

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
                add_writer(writers)?;
                location.mount.add_writer();
                true
            }
            _ => false,
        };
        // Unlike `!`, this keeps bits without a name.
        let kept = flags.difference(
            OpenFlags::CREAT
                | OpenFlags::EXCL
                | OpenFlags::NOCTTY
                | OpenFlags::TRUNC
                | OpenFlags::CLOEXEC,
        );
        OPEN.fetch_add(1, Ordering::Relaxed);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let locks = Holder::new(location.inode.id(), id);
        Ok(Arc::new(OpenFile {
            has_position: file.has_position(),
            is_guarded: file.is_guarded(),
            is_seekable: file.is_seekable(),
            is_generated: file.is_generated(),
            kind: location.inode.kind(),
            file,
            location,
            flags: AtomicU32::new(kept.bits()),
            position: Mutex::new(&rank::OPEN_FILE, 0),
            counts_as_writer,
            locks,
            has_leases: AtomicBool::new(false),
            watches_directory: AtomicBool::new(false),
            owner: OwnerCell::new(),
            id,
            watches: Watches::new(),
            errors_told: AtomicU64::new(0),
        }))
    }

    /// Waits until what was written to the file is where it is kept, as `Inode::sync`. A write that was lost since
    /// this description was made is told once.
    pub fn sync(&self) -> Result<(), Errno> {
        if self.kind == NodeKind::BlockDevice {
            return self.file.sync();
        }
        let result = self.inode().sync();
        if result == Err(Errno::EIOCBQUEUED) {
            return result;
        }
        match self.inode().lost_write() {
            Some(lost)
                if self.id < lost.before
                    && self.errors_told.fetch_max(lost.count, Ordering::Relaxed) < lost.count =>
            {
                result.and(Err(lost.error))
            }
            _ => result,
        }
    }

    /// A number that no other description has or had.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Who watches it until it is closed: interests of epoll instances.
    pub(crate) fn watches(&self) -> &Watches {
        &self.watches
    }

    /// What it is to the table of locks.
    pub fn locks(&self) -> &Holder {
        &self.locks
    }

    pub(crate) fn note_lease(&self) {
        self.has_leases.store(true, Ordering::Release);
    }

    /// The behaviour.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Whether reads and writes happen at an offset, as `File::is_seekable`.
    #[inline]
    pub fn is_seekable(&self) -> bool {
        self.is_seekable
    }

    /// Whether its contents are made when they are read, as `File::is_generated`.
    #[inline]
    pub fn is_generated(&self) -> bool {
        self.is_generated
    }

    /// Kind of what it is on.
    #[inline]
    pub fn kind(&self) -> NodeKind {
        self.kind
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
        if self.is_generated {
            self.file.prepare(self.position())?;
        }
        let mut position = self.position.lock();
        let count = self.file.read(*position, sink, transfer)?;
        *position = position.saturating_add(count as u64);
        drop(position);
        self.note_access(count);
        Ok(count)
    }

    /// Writes at the position, or at the end when it appends, and moves the position.
    pub fn write(&self, source: &mut dyn Source, transfer: Transfer) -> Result<usize, Errno> {
        self.write_as(source, transfer, self.flags().contains(OpenFlags::APPEND))
    }

    /// As `write`, whatever the flags say about appending.
    pub fn write_as(
        &self,
        source: &mut dyn Source,
        transfer: Transfer,
        appends: bool,
    ) -> Result<usize, Errno> {
        if !self.is_seekable {
            return self.file.write(0, source, transfer);
        }
        if self.is_generated {
            // Whoever takes the text may lock what comes before an open file.
            let position = self.position();
            let count = self.file.write(position, source, transfer)?;
            *self.position.lock() = position.saturating_add(count as u64);
            return Ok(count);
        }
        if appends && source.remaining() == 0 {
            // The position stays where it is.
            return Ok(0);
        }
        let mut position = self.position.lock();
        let (start, count) = if appends {
            self.file.append(source, transfer)?
        } else {
            (*position, self.file.write(*position, source, transfer)?)
        };
        *position = start.saturating_add(count as u64);
        drop(position);
        self.note_change(count);
        Ok(count)
    }

    /// Reads at an offset. `ESPIPE` for streams.
    pub fn read_at(
        &self,
        offset: u64,
        sink: &mut dyn Sink,
        transfer: Transfer,
    ) -> Result<usize, Errno> {
        if !self.is_seekable {
            return Err(Errno::ESPIPE);
        }
        if self.is_generated {
            self.file.prepare(offset)?;
        }
        let count = self.file.read(offset, sink, transfer)?;
        self.note_access(count);
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
        if !self.is_seekable {
            return Err(Errno::ESPIPE);
        }
        let count = if append {
            self.file.append(source, transfer)?.1
        } else {
            self.file.write(offset, source, transfer)?
        };
        self.note_change(count);
        Ok(count)
    }

    /// Something was done through it: those who watch the file are told, but for what a listener does with a
    /// descriptor that an event gave it.
    #[inline]
    pub(crate) fn tell(&self, events: Events) {
        if notify::is_anybody_listening() && !self.is_silent() {
            notify::event_at(&self.location, events);
        }
    }

    /// Whether nobody is told or asked about what is done through it.
    pub fn is_silent(&self) -> bool {
        self.flags().bits() & OpenFlags::SILENT != 0
    }

    /// Bytes were written: those who watch the file are told.
    #[inline]
    fn note_change(&self, count: usize) {
        if count > 0 {
            self.tell(Events::MODIFY);
        }
    }

    /// Something was read: notes the time, and tells those who watch the file.
    #[inline]
    fn note_access(&self, count: usize) {
        if count > 0 {
            self.tell(Events::ACCESS);
        }
        if !self.flags().contains(OpenFlags::NOATIME) {
            self.location.note_access();
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
        self.note_access(1);
        Ok(())
    }

    /// Whether somebody may be told of what happens in this directory (`F_NOTIFY`).
    pub fn watches_directory(&self) -> bool {
        self.watches_directory.load(Ordering::Acquire)
    }

    pub(crate) fn note_directory_watch(&self) {
        self.watches_directory.store(true, Ordering::Release);
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
        self.watches.end();
        if self.counts_as_writer
            && let Some(writers) = self.location.inode.writers()
        {
            writers.fetch_sub(1, Ordering::AcqRel);
            self.location.mount.remove_writer();
        }
        if *self.has_leases.get_mut() {
            lease::give_up(self);
        }
        if *self.watches_directory.get_mut() {
            notify::forget_description(self);
        }
        let flags = self.flags();
        if flags.contains(OpenFlags::ASYNC) {
            signals::forget(self.id);
        }
        if !flags.contains(OpenFlags::PATH) {
            let writes = flags.writes();
            let closed = if writes { Events::CLOSE_WRITE } else { Events::CLOSE_NOWRITE };
            self.tell(closed);
        }
    }
}

/// Keeps a file from being executed while it is changed through no descriptor that may write.
pub struct WriteAccess<'a>(Option<&'a AtomicI32>);

impl<'a> WriteAccess<'a> {
    /// `ETXTBSY` when the file is being executed.
    pub fn to(inode: &'a Arc<dyn Inode>) -> Result<WriteAccess<'a>, Errno> {
        let writers = inode.writers();
        if let Some(writers) = writers {
            add_writer(writers)?;
        }
        Ok(WriteAccess(writers))
    }
}

impl Drop for WriteAccess<'_> {
    fn drop(&mut self) {
        if let Some(writers) = self.0 {
            writers.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn add_writer(writers: &AtomicI32) -> Result<(), Errno> {
    let add = |count: i32| if count < 0 { None } else { count.checked_add(1) };
    let added = writers.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
    added.map(|_| ()).map_err(|_| Errno::ETXTBSY)
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

impl core::fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "OpenFile({}, {:?}, {:?})", self.id, self.location.inode, self.flags())
    }
}
