//! Disks as files: `/dev/vda`, its partitions and loop devices.
//!
//! A disk is the one file of a file system of its own (`remote`), whose server is the disk: pages are cached, writes
//! go on behind the writer's back, in order, and `fsync` waits for them and for the disk's own cache. A partition is a
//! part of a disk with pages of its own. Whoever writes past the pages of a file (a mount, a partition of the disk, the disk
//! of a partition) makes them old: they are dropped at the next opening.
//!
//! A device belongs to one user who has claimed it: a mount, or who opened it with `O_EXCL`. A disk and its partitions cannot
//! be claimed at the same time.
//!
//! Left out: mapping a disk into memory (`ENODEV`).

mod bare;
mod file;
pub mod loops;
pub(crate) mod nodes;
pub mod table;

pub use bare::BareDisk;
pub use file::BlockFile;

use crate::file::{File, OpenFile};
use crate::identity::Identity;
use crate::inode::{FileSystem, Inode};
use crate::pending::complete;
use crate::remote::{Node, Options, RemoteFs};
use abi::Errno;
use abi::fs::{OpenFlags, make_device};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::device::{Disk, DiskGeometry};
use base::sync::{Mutex, RwLock, rank};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use loops::LoopDisk;
use table::Partition;

/// Major number of disks.
const MAJOR: u32 = 254;
/// Minor numbers of each disk: itself and its partitions.
const MINORS: u32 = 16;
/// Major number of partitions that find no place there.
const EXTENDED_MAJOR: u32 = 259;

/// What a device is part of.
enum Kind {
    Disk,
    Partition { of: Arc<BlockDevice>, table: Partition },
    Loop(Arc<LoopDisk>),
}

/// A disk that has a device number.
pub struct BlockDevice {
    name: String,
    number: u64,
    kind: Kind,
    bare: Arc<BareDisk>,
    file_system: Arc<dyn FileSystem>,
    node: Arc<Node>,
    options: Options,
    /// Somebody has it alone.
    is_claimed: AtomicBool,
    /// Open files of it.
    openers: AtomicUsize,
}

static DEVICES: RwLock<Vec<Arc<BlockDevice>>> = RwLock::new(&rank::MOUNTS, Vec::new());
/// Held while a device is claimed, or while it is made sure that it is not.
static CLAIMS: Mutex<()> = Mutex::new(&rank::TREE_CHANGE, ());

impl BlockDevice {
    /// Disk number `index` of the machine.
    pub(crate) fn new(index: u32, disk: Arc<dyn Disk>, options: Options) -> Arc<BlockDevice> {
        let letter = char::from(b'a' + (index % 26) as u8);
        let name = alloc::format!("vd{letter}");
        let number = make_device(MAJOR, index * MINORS);
        let bare = BareDisk::whole(disk, number);
        BlockDevice::made(name, number, Kind::Disk, bare, options)
    }

    fn made(
        name: String,
        number: u64,
        kind: Kind,
        bare: BareDisk,
        options: Options,
    ) -> Arc<BlockDevice> {
        let bare = Arc::new(bare);
        let (file_system, node) = RemoteFs::of_disk(bare.clone(), number, options);
        Arc::new(BlockDevice {
            name,
            number,
            kind,
            bare,
            file_system,
            node,
            options,
            is_claimed: AtomicBool::new(false),
            openers: AtomicUsize::new(0),
        })
    }

    /// A part of it.
    fn partition(self: &Arc<BlockDevice>, table: Partition) -> Arc<BlockDevice> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let is_numbered = self.name.ends_with(|c: char| c.is_ascii_digit());
        let between = if is_numbered { "p" } else { "" };
        let name = alloc::format!("{}{between}{}", self.name, table.number);
        let number = match self.kind {
            Kind::Disk if table.number < MINORS => self.number + u64::from(table.number),
            _ => make_device(EXTENDED_MAJOR, NEXT.fetch_add(1, Ordering::Relaxed)),
        };
        let bare = BareDisk::part(&self.bare, number, table.start, table.size);
        let kind = Kind::Partition { of: self.clone(), table };
        BlockDevice::made(name, number, kind, bare, self.options)
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
        self.bare.size()
    }

    /// The disk that it is on, and where it begins there, in bytes.
    pub fn disk(&self) -> (&Arc<dyn Disk>, u64) {
        self.bare.disk()
    }

    /// What the disk below is like.
    pub fn geometry(&self) -> DiskGeometry {
        self.bare.disk().0.geometry()
    }

    /// The disk that it is a partition of, and its number there.
    pub fn whole(&self) -> Option<(&Arc<BlockDevice>, u32)> {
        match &self.kind {
            Kind::Partition { of, table } => Some((of, table.number)),
            _ => None,
        }
    }

    /// The loop device that it is.
    pub fn as_loop(&self) -> Option<&Arc<LoopDisk>> {
        match &self.kind {
            Kind::Loop(disk) => Some(disk),
            _ => None,
        }
    }

    /// Its partitions, in order.
    pub fn partitions(&self) -> Vec<Arc<BlockDevice>> {
        let is_ours = |device: &&Arc<BlockDevice>| {
            device.whole().is_some_and(|(whole, _)| whole.number == self.number)
        };
        DEVICES.read().iter().filter(is_ours).cloned().collect()
    }

    /// Waits until everything that was written through the file is on the disk, and drops what is cached.
    /// `EIOCBQUEUED` as an operation of an inode.
    pub fn settle(&self) -> Result<(), Errno> {
        self.file_system.sync()?;
        self.forget();
        Ok(())
    }

    /// Drops what is cached, and takes over the size of the disk.
    pub fn forget(&self) {
        self.written_elsewhere();
        self.node.told(&self.bare.attributes());
    }

    /// Somebody has written to the disk without the file.
    pub fn written_elsewhere(&self) {
        self.bare.written_elsewhere();
    }

    /// Takes it for one user. `EBUSY` while another has it, one of its partitions, or the disk that it is part of.
    pub(crate) fn claim(&self) -> Result<(), Errno> {
        let partitions = self.partitions();
        let is_taken = |device: &BlockDevice| device.is_claimed.load(Ordering::Acquire);
        let claims = CLAIMS.lock();
        let is_busy = is_taken(self)
            || self.whole().is_some_and(|(whole, _)| is_taken(whole))
            || partitions.iter().any(|partition| is_taken(partition));
        if !is_busy {
            self.is_claimed.store(true, Ordering::Release);
        }
        drop(claims);
        if is_busy { Err(Errno::EBUSY) } else { Ok(()) }
    }

    /// That user has it no more.
    pub(crate) fn release(&self) {
        self.is_claimed.store(false, Ordering::Release);
        self.left();
    }

    /// Whether somebody uses it.
    pub fn is_used(&self) -> bool {
        self.openers.load(Ordering::Acquire) > 0 || self.is_claimed.load(Ordering::Acquire)
    }

    /// How many files of it are open.
    pub fn openers(&self) -> usize {
        self.openers.load(Ordering::Acquire)
    }

    /// Somebody has left it: a loop device may end now.
    fn left(&self) {
        let device = self.whole().map_or(self, |(whole, _)| whole);
        if let Some(disk) = device.as_loop()
            && disk.clears_itself()
        {
            loops::clear_when_unused(device.number, device.options.core);
        }
    }

    /// Bytes of it, past all caches.
    pub(crate) async fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
        self.bare.read(offset, length).await
    }

    /// Reads the table of partitions and makes devices of what it has. `EIOCBQUEUED` as an operation of an inode.
    ///
    /// # Errors
    /// `EINVAL` for a partition, `EBUSY` while one of its partitions is used; `EIO`.
    pub fn rescan(self: &Arc<BlockDevice>) -> Result<(), Errno> {
        if self.whole().is_some() {
            return Err(Errno::EINVAL);
        }
        let mut read = |offset: u64, mut bytes: &mut [u8]| {
            let mut at = offset;
            while !bytes.is_empty() {
                let count = self.node.read_at(at, &mut bytes)?;
                if count == 0 {
                    return Err(Errno::EIO);
                }
                at += count as u64;
            }
            Ok(())
        };
        let found = table::read(self.size(), self.geometry().sector_size.into(), &mut read)?;
        self.replace_partitions(&found)
    }

    /// Has these partitions instead of those of now. `EBUSY` while one of those is used.
    pub fn replace_partitions(self: &Arc<BlockDevice>, found: &[Partition]) -> Result<(), Errno> {
        let old = self.partitions();
        if old.iter().any(|partition| partition.is_used()) {
            return Err(Errno::EBUSY);
        }
        for partition in &old {
            DEVICES.write().retain(|device| device.number != partition.number);
            nodes::vanished(partition);
        }
        for partition in found {
            let partition = self.partition(*partition);
            insert(partition.clone())?;
            nodes::appeared(&partition);
        }
        Ok(())
    }
}

/// Adds a device: a disk at the end, a partition behind those of its disk.
fn insert(device: Arc<BlockDevice>) -> Result<(), Errno> {
    let mut devices = DEVICES.write();
    devices.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    let family = device.whole().map(|(whole, _)| whole.number);
    let is_family = |other: &Arc<BlockDevice>| {
        Some(other.number) == family || other.whole().map(|(whole, _)| whole.number) == family
    };
    let at = match family {
        Some(_) => devices.iter().rposition(is_family).map_or(devices.len(), |last| last + 1),
        None => devices.len(),
    };
    devices.insert(at, device);
    Ok(())
}

/// Gives a disk its name and device number; the first is `vda`.
pub fn register(disk: Arc<dyn Disk>, options: Options) {
    // Only while the machine starts, one after the other.
    let index = DEVICES.read().iter().filter(|it| matches!(it.kind, Kind::Disk)).count() as u32;
    let device = BlockDevice::new(index, disk, options);
    // There is memory while the machine starts.
    let _ = insert(device);
}

/// All of them, partitions behind their disk.
pub fn devices() -> Vec<Arc<BlockDevice>> {
    DEVICES.read().clone()
}

/// The device of a number.
pub fn find(number: u64) -> Option<Arc<BlockDevice>> {
    DEVICES.read().iter().find(|device| device.number == number).cloned()
}

/// Opens the device of a number: `ENXIO` when there is none, `EBUSY` with `O_EXCL` when somebody has claimed it.
pub(crate) fn open(number: u64, flags: OpenFlags) -> Result<Arc<dyn File>, Errno> {
    let device = find(number).ok_or(Errno::ENXIO)?;
    device.node.open(flags, &Identity::kernel())?;
    Ok(Arc::new(BlockFile::new(device, flags)?))
}

/// The open disk that a file is.
fn file_of(file: &OpenFile) -> Option<&BlockFile> {
    file.file().as_any().downcast_ref()
}

/// Reads the tables of partitions of all disks. Once, at boot; a disk whose table cannot be read has none.
pub async fn scan_all() {
    for device in devices() {
        if device.whole().is_none()
            && let Err(error) = complete(|| device.rescan()).await
        {
            log::warn!("the partitions of {} cannot be read: {error}", device.name());
        }
    }
}

#[cfg(test)]
mod tests;
