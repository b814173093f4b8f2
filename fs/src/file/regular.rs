//! The behaviour of what needs none of its own: regular files, directories, and mere places.

use super::{File, IoctlAnswer, Mapping, Transfer, seek_in};
use crate::identity::Caller;
use crate::inode::Inode;
use crate::poll::PollTable;
use abi::Errno;
use abi::fs::{PollEvents, seek};
use alloc::sync::Arc;
use base::io::{Sink, Source};
use base::memory::Frame;
use core::any::Any;

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
pub(crate) struct Limited<'a> {
    pub(crate) inner: &'a mut dyn Source,
    /// How many are left.
    pub(crate) left: usize,
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
        // A directory has no end to count from.
        if whence == seek::SEEK_END {
            return Err(Errno::EINVAL);
        }
        seek_in(0, position, offset, whence)
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
