//! Files: the behaviour behind open file descriptions.
//!
//! `description` has the descriptions themselves, which descriptors refer to; `regular` the behaviour of
//! regular files, directories and mere places.

mod description;
mod direct;
mod owner;
mod regular;
mod signals;
mod watches;

pub(crate) use description::next_id;
pub use description::{
    CHANGEABLE_FLAGS, OpenFile, WriteAccess, WriteDenial, deny_writes, open_count,
};
pub use direct::DirectFile;
pub use owner::{Owner, OwnerKind, Reason, set_sender};
pub(crate) use regular::Limited;
pub use regular::{DirectoryFile, MAX_FILE_SIZE, PathFile, RegularFile};
pub use watches::{Watch, Watches};

use crate::identity::Caller;
use crate::inode::Inode;
use crate::metadata::NodeKind;
use crate::poll::{ALWAYS_READY, PollTable};
use abi::Errno;
use abi::fs::{OpenFlags, PollEvents, seek};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::io::{Sink, Source};
use base::memory::Frame;
use core::any::Any;

/// How one transfer is to be done.
#[derive(Clone, Copy)]
pub struct Transfer<'a> {
    /// Who reads or writes; `None` for the kernel itself.
    pub caller: Option<&'a dyn Caller>,
    /// The time that `File::read_timeout_ns` gave has passed: answer with what is there.
    pub expired: bool,
    /// Answer with what is there rather than wait for more (`O_NONBLOCK`).
    pub nonblocking: bool,
    /// No byte may be written at or past this offset of a regular file (`RLIMIT_FSIZE`).
    pub size_limit: u64,
}

impl Transfer<'_> {
    /// Nothing special.
    pub const PLAIN: Transfer<'static> =
        Transfer { caller: None, expired: false, nonblocking: false, size_limit: u64::MAX };
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
    /// Whether its kind can be read at all: `EINVAL` for every read if not, whatever else is wrong.
    fn can_read(&self) -> bool {
        true
    }
    /// Whether its kind can be written at all, as `can_read`.
    fn can_write(&self) -> bool {
        true
    }
    /// Whether reads and writes happen at an offset; the same for as long as the file is there.
    fn is_seekable(&self) -> bool {
        false
    }
    /// Whether its contents are made when they are read: then `prepare` comes before every read. The same for as
    /// long as the file is there.
    fn is_generated(&self) -> bool {
        false
    }
    /// Called before a read at an offset, with no lock held. `EAGAIN`: it has done a part of what it must
    /// do before that; it is to be called again.
    fn prepare(&self, _offset: u64) -> Result<(), Errno> {
        Ok(())
    }
    /// Whether reads and writes move the position, and reads note the time of access. Devices that
    /// are the same everywhere can do without. The same for as long as the file is there.
    fn has_position(&self) -> bool {
        self.is_seekable()
    }
    /// Device: waits until what was written is where it is kept, as `Inode::sync`.
    fn sync(&self) -> Result<(), Errno> {
        Ok(())
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
    /// As `poll`, for a file whose readiness depends on who asks.
    fn poll_for(
        &self,
        _caller: &dyn Caller,
        events: PollEvents,
        table: Option<&mut PollTable<'_>>,
    ) -> PollEvents {
        self.poll(events, table)
    }
    /// Whether epoll can watch it: its readiness changes, and it says when. Regular files and
    /// directories are always ready.
    fn can_be_watched(&self) -> bool {
        !self.is_seekable()
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
    /// Whether the flag `O_DIRECT` means something: `EINVAL` where it does not.
    fn takes_direct(&self) -> bool {
        false
    }
    /// Whether signals can be asked for when it becomes ready (`FIOASYNC`).
    fn can_signal(&self) -> bool {
        true
    }
    /// `F_SETFL` has changed the status flags.
    fn flags_changed(&self, _flags: OpenFlags) {}
    /// Lines of its own in `/proc/PID/fdinfo`.
    fn information(&self) -> String {
        String::new()
    }
    /// A descriptor of the file in a table was closed; the table is known by its number.
    fn descriptor_closed(&self, _table: u64) {}
    /// The file as its concrete type.
    fn as_any(&self) -> &dyn Any;
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

/// Whether an inode of this kind is a directory.
pub fn is_directory(inode: &Arc<dyn Inode>) -> bool {
    inode.kind() == NodeKind::Directory
}
