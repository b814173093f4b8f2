//! An open disk.

use super::BlockDevice;
use crate::file::{File, IoctlAnswer, Limited, Transfer, seek_in};
use crate::identity::Caller;
use crate::inode::Inode;
use abi::Errno;
use abi::fs::OpenFlags;
use alloc::sync::Arc;
use base::io::{Sink, Source};
use core::any::Any;
use core::sync::atomic::Ordering;

/// Unit of sizes in old requests, in bytes.
const UNIT: u64 = 512;

/// Requests of `ioctl`.
mod request {
    pub const BLKROGET: u32 = 0x125e;
    pub const BLKGETSIZE: u32 = 0x1260;
    pub const BLKFLSBUF: u32 = 0x1261;
    pub const BLKSSZGET: u32 = 0x1268;
    pub const BLKIOMIN: u32 = 0x1278;
    pub const BLKIOOPT: u32 = 0x1279;
    pub const BLKALIGNOFF: u32 = 0x127a;
    pub const BLKPBSZGET: u32 = 0x127b;
    pub const BLKDISCARDZEROES: u32 = 0x127c;
    pub const BLKROTATIONAL: u32 = 0x127e;
    pub const BLKBSZGET: u32 = 0x8008_1270;
    pub const BLKGETSIZE64: u32 = 0x8008_1272;
}

/// See the module.
pub struct BlockFile {
    device: Arc<BlockDevice>,
    /// It was opened with `O_EXCL`.
    has_claim: bool,
    is_writable: bool,
}

impl BlockFile {
    pub(super) fn new(device: Arc<BlockDevice>, flags: OpenFlags) -> Result<BlockFile, Errno> {
        let has_claim = flags.contains(OpenFlags::EXCL);
        if has_claim {
            device.claim()?;
        }
        device.openers.fetch_add(1, Ordering::AcqRel);
        Ok(BlockFile { device, has_claim, is_writable: flags.writes() })
    }

    /// The device.
    pub fn device(&self) -> &Arc<BlockDevice> {
        &self.device
    }

    /// Whether it was opened for writing.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }
}

impl Drop for BlockFile {
    fn drop(&mut self) {
        self.device.openers.fetch_sub(1, Ordering::AcqRel);
        match self.has_claim {
            true => self.device.release(),
            false => self.device.left(),
        }
    }
}

impl File for BlockFile {
    fn read(&self, offset: u64, sink: &mut dyn Sink, _: Transfer) -> Result<usize, Errno> {
        self.device.node.read_at(offset, sink)
    }

    fn write(&self, offset: u64, source: &mut dyn Source, _: Transfer) -> Result<usize, Errno> {
        if self.device.geometry().is_read_only {
            return Err(Errno::EPERM);
        }
        if source.remaining() == 0 {
            return Ok(0);
        }
        let room = self.device.size().saturating_sub(offset);
        if room == 0 {
            return Err(Errno::ENOSPC);
        }
        let left = usize::try_from(room).unwrap_or(usize::MAX).min(source.remaining());
        self.device.node.write_at(offset, &mut Limited { inner: source, left })
    }

    fn append(&self, _: &mut dyn Source, _: Transfer) -> Result<(u64, usize), Errno> {
        Err(Errno::ENOSPC)
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn takes_direct(&self) -> bool {
        true
    }

    fn seek(&self, position: u64, offset: i64, whence: i32) -> Result<u64, Errno> {
        let size = self.device.size();
        let moved = seek_in(size, position, offset, whence)?;
        // As on Linux: nothing lies behind the end.
        if moved > size { Err(Errno::EINVAL) } else { Ok(moved) }
    }

    fn sync(&self) -> Result<(), Errno> {
        self.device.node.sync()
    }

    fn ioctl_input(&self, request: u32) -> Result<usize, Errno> {
        use request::*;
        match request {
            BLKROGET | BLKGETSIZE | BLKFLSBUF | BLKSSZGET | BLKIOMIN | BLKIOOPT | BLKALIGNOFF
            | BLKPBSZGET | BLKDISCARDZEROES | BLKROTATIONAL | BLKBSZGET | BLKGETSIZE64 => Ok(0),
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
        use request::*;
        let geometry = self.device.geometry();
        let int = |value: u32| Ok(IoctlAnswer::bytes(&value.to_ne_bytes()));
        let long = |value: u64| Ok(IoctlAnswer::bytes(&value.to_ne_bytes()));
        match request {
            BLKROGET => int(geometry.is_read_only.into()),
            BLKSSZGET | BLKPBSZGET | BLKIOMIN => int(geometry.sector_size),
            BLKIOOPT | BLKALIGNOFF | BLKDISCARDZEROES => int(0),
            BLKROTATIONAL => Ok(IoctlAnswer::bytes(&1_u16.to_ne_bytes())),
            BLKBSZGET => int(4096),
            BLKGETSIZE => long(self.device.size() / UNIT),
            BLKGETSIZE64 => long(self.device.size()),
            BLKFLSBUF => {
                self.device.settle()?;
                Ok(IoctlAnswer::default())
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
