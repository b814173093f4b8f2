//! Disks as files: `/dev/vda` and its like.
//!
//! A disk is the one file of a file system of its own (`remote`), whose server is the disk: pages are cached, writes
//! go on behind the writer's back, in order, and `fsync` waits for them and for the disk's own cache. What is
//! mounted from a disk does not go through these pages; they are dropped at the next opening when it wrote.
//!
//! Left out: mapping a disk into memory (`ENODEV`).

use crate::file::{File, IoctlAnswer, Limited, Transfer, seek_in};
use crate::identity::{Caller, Identity};
use crate::inode::{FileSystem, Inode};
use crate::metadata::{InodeId, Metadata, NodeKind, Timestamp};
use crate::remote::{Attributes, Node, Options, RemoteFs};
use abi::Errno;
use abi::fs::{OpenFlags, make_device};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::device::{Disk, DiskGeometry};
use base::io::{Sink, Source};
use base::sync::{RwLock, rank};
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Major number of disks.
const MAJOR: u32 = 254;
/// Minor numbers of each disk: itself and its partitions.
const MINORS: u32 = 16;
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

/// A disk, or a part of one, as the server of its one file.
pub struct BareDisk {
    disk: Arc<dyn Disk>,
    start: u64,
    size: u64,
    device: u64,
    /// Counts writes that did not come through the file.
    version: AtomicU64,
}

impl BareDisk {
    /// What the file is like. Its time of change is the count of writes elsewhere.
    pub(crate) fn attributes(&self) -> Attributes {
        let id = InodeId { device: self.device, number: 1 };
        let version = self.version.load(Ordering::Acquire).cast_signed();
        let time = Timestamp { seconds: version, nanoseconds: 0 };
        let simple = Metadata::simple(id, NodeKind::Regular, 0o600, time);
        Attributes { number: 1, metadata: Metadata { size: self.size, ..simple } }
    }

    /// The whole sectors around a range: where they begin and end, on this part of the disk.
    fn around(&self, offset: u64, length: u64) -> Result<(u64, u64), Errno> {
        let sector = u64::from(self.disk.geometry().sector_size);
        let end = offset.checked_add(length).filter(|&end| end <= self.size).ok_or(Errno::EIO)?;
        Ok((offset - offset % sector, end.next_multiple_of(sector)))
    }

    async fn read_sectors(&self, from: u64, to: u64) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        let length = usize::try_from(to - from).map_err(|_| Errno::ENOMEM)?;
        bytes.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
        while bytes.len() < length {
            let part = (length - bytes.len()).min(self.disk.most_bytes());
            let at = self.start + from + bytes.len() as u64;
            bytes.extend_from_slice(&self.disk.read(at, part).await?);
        }
        Ok(bytes)
    }

    async fn write_sectors(&self, from: u64, bytes: &[u8]) -> Result<(), Errno> {
        let mut at = self.start + from;
        for part in bytes.chunks(self.disk.most_bytes()) {
            self.disk.write(at, part).await?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Bytes of the disk; fewer at its end.
    pub(crate) async fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let length = (length as u64).min(self.size.saturating_sub(offset));
        let (from, to) = self.around(offset, length)?;
        let mut bytes = self.read_sectors(from, to).await?;
        bytes.drain(..((offset - from) as usize).min(bytes.len()));
        bytes.truncate(length as usize);
        Ok(bytes)
    }

    /// Writes bytes, with what is around them in their sectors as it was.
    pub(crate) async fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let (from, to) = self.around(offset, bytes.len() as u64)?;
        if from == offset && to - from == bytes.len() as u64 {
            return self.write_sectors(from, bytes).await;
        }
        let mut sectors = self.read_sectors(from, to).await?;
        let within = (offset - from) as usize;
        let place = sectors.get_mut(within..within + bytes.len()).ok_or(Errno::EIO)?;
        place.copy_from_slice(bytes);
        self.write_sectors(from, &sectors).await
    }

    /// Makes everything durable.
    pub(crate) async fn flush(&self) -> Result<(), Errno> {
        self.disk.flush().await.map(|_| ())
    }
}

/// A disk that has a device number.
pub struct BlockDevice {
    name: String,
    number: u64,
    bare: Arc<BareDisk>,
    file_system: Arc<dyn FileSystem>,
    node: Arc<Node>,
    /// Something is mounted from it.
    is_claimed: AtomicBool,
}

static DEVICES: RwLock<Vec<Arc<BlockDevice>>> = RwLock::new(&rank::MOUNTS, Vec::new());

impl BlockDevice {
    /// Disk number `index` of the machine.
    pub(crate) fn new(index: u32, disk: Arc<dyn Disk>, options: Options) -> Arc<BlockDevice> {
        let letter = char::from(b'a' + (index % 26) as u8);
        let name = alloc::format!("vd{letter}");
        let size = disk.geometry().size;
        let number = make_device(MAJOR, index * MINORS);
        let version = AtomicU64::new(1);
        let bare = Arc::new(BareDisk { disk, start: 0, size, device: number, version });
        let (file_system, node) = RemoteFs::of_disk(bare.clone(), number, options);
        let is_claimed = AtomicBool::new(false);
        Arc::new(BlockDevice { name, number, bare, file_system, node, is_claimed })
    }

    /// Its name in `/dev`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its device number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.bare.size
    }

    /// The disk that it is on, and where it begins there, in bytes.
    pub fn disk(&self) -> (&Arc<dyn Disk>, u64) {
        (&self.bare.disk, self.bare.start)
    }

    /// Waits until everything that was written through the file is on the disk, and drops what is cached.
    /// `EIOCBQUEUED` as an operation of an inode.
    pub fn settle(&self) -> Result<(), Errno> {
        self.file_system.sync()?;
        self.written_elsewhere();
        Ok(())
    }

    /// Somebody has written to the disk without the file.
    pub fn written_elsewhere(&self) {
        self.bare.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes it for a mount. `EBUSY` while another has it.
    pub(crate) fn claim(&self) -> Result<(), Errno> {
        match self.is_claimed.swap(true, Ordering::AcqRel) {
            true => Err(Errno::EBUSY),
            false => Ok(()),
        }
    }

    /// The mount has ended.
    pub(crate) fn release(&self) {
        self.is_claimed.store(false, Ordering::Release);
    }

    /// Bytes of it, past all caches.
    pub(crate) async fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
        self.bare.read(offset, length).await
    }

    fn geometry(&self) -> DiskGeometry {
        self.bare.disk.geometry()
    }
}

/// Gives a disk its name and device number; the first is `vda`.
pub fn register(disk: Arc<dyn Disk>, options: Options) {
    // Only while the machine starts, one after the other.
    let index = DEVICES.read().len() as u32;
    let device = BlockDevice::new(index, disk, options);
    DEVICES.write().push(device);
}

/// All of them.
pub fn devices() -> Vec<Arc<BlockDevice>> {
    DEVICES.read().clone()
}

/// The device of a number.
pub fn find(number: u64) -> Option<Arc<BlockDevice>> {
    DEVICES.read().iter().find(|device| device.number == number).cloned()
}

/// Opens the device of a number: `ENXIO` when there is none.
pub(crate) fn open(number: u64, flags: OpenFlags) -> Result<Arc<dyn File>, Errno> {
    let device = find(number).ok_or(Errno::ENXIO)?;
    device.node.open(flags, &Identity::kernel())?;
    Ok(Arc::new(BlockFile { device }))
}

/// An open disk.
struct BlockFile {
    device: Arc<BlockDevice>,
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
