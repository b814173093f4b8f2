//! Regular files that were opened with `O_DIRECT`.
//!
//! Transfers go through the cache all the same, so that they agree with what others read, write and map. What is asked
//! of offsets and lengths is asked here, so that a program that relies on the errors finds them; where the memory of the
//! caller begins is not looked at.

use super::regular::RegularFile;
use super::{File, IoctlAnswer, Mapping, Transfer};
use crate::identity::Caller;
use crate::inode::Inode;
use abi::Errno;
use alloc::sync::Arc;
use base::io::{Sink, Source};
use base::memory::Frame;
use core::any::Any;

/// See the module.
pub struct DirectFile {
    file: RegularFile,
    /// In bytes.
    unit: u64,
}

impl DirectFile {
    /// The file of an inode. `EINVAL` where the file system has no such transfers.
    pub fn new(inode: Arc<dyn Inode>) -> Result<DirectFile, Errno> {
        let unit = inode.direct_unit().ok_or(Errno::EINVAL)?;
        Ok(DirectFile { file: RegularFile::new(inode), unit: u64::from(unit.max(1)) })
    }

    fn check(&self, offset: u64, length: usize) -> Result<(), Errno> {
        let is_aligned =
            offset.is_multiple_of(self.unit) && (length as u64).is_multiple_of(self.unit);
        if is_aligned { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

impl File for DirectFile {
    fn read(&self, offset: u64, sink: &mut dyn Sink, transfer: Transfer) -> Result<usize, Errno> {
        self.check(offset, sink.remaining())?;
        self.file.read(offset, sink, transfer)
    }

    fn write(
        &self,
        offset: u64,
        source: &mut dyn Source,
        transfer: Transfer,
    ) -> Result<usize, Errno> {
        self.check(offset, source.remaining())?;
        self.file.write(offset, source, transfer)
    }

    fn append(&self, source: &mut dyn Source, transfer: Transfer) -> Result<(u64, usize), Errno> {
        self.check(0, source.remaining())?;
        self.file.append(source, transfer)
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn takes_direct(&self) -> bool {
        true
    }

    fn seek(&self, position: u64, offset: i64, whence: i32) -> Result<u64, Errno> {
        self.file.seek(position, offset, whence)
    }

    fn ioctl_input(&self, request: u32) -> Result<usize, Errno> {
        self.file.ioctl_input(request)
    }

    fn ioctl(
        &self,
        caller: &dyn Caller,
        request: u32,
        argument: u64,
        input: &[u8],
    ) -> Result<IoctlAnswer, Errno> {
        self.file.ioctl(caller, request, argument, input)
    }

    fn mapping(&self) -> Mapping {
        self.file.mapping()
    }

    fn page(&self, index: u64) -> Result<Frame, Errno> {
        self.file.page(index)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
