//! Loop devices: a file, or a part of one, as a disk (`/dev/loop0` and its like, `/dev/loop-control`).
//!
//! ```text
//!  BlockDevice ── its one file, a mount or a partition ──> LoopDisk: Disk ──> the backing file, by its own operations
//! ```
//!
//! A device has no size while it has no file. One that clears itself (`LO_FLAGS_AUTOCLEAR`) loses its file when nobody has
//! it open and nothing is mounted from it. Requests are those of Linux's loop(4).
//!
//! Left out: encryption; direct I/O of the backing file (the flag is kept and changes nothing).

use super::{BlockDevice, Kind, insert, nodes};
use crate::block::bare::BareDisk;
use crate::file::{File, IoctlAnswer, OpenFile, Transfer};
use crate::identity::Caller;
use crate::metadata::NodeKind;
use crate::pending::complete;
use crate::remote::Options;
use abi::Errno;
use abi::fs::make_device;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::cpu::CpuId;
use base::device::{Disk, DiskGeometry, Reply};
use base::sync::{Mutex, Once, rank};
use base::task;
use core::any::Any;

/// Major number of loop devices.
const MAJOR: u32 = 7;
/// Devices that are there from the start, and most that there may be.
const AT_START: u32 = 8;
const MOST: u32 = 256;
/// Unit of sizes, in bytes.
const UNIT: u64 = 512;
/// Most bytes that one request moves.
const MOST_BYTES: usize = 60 << 10;
/// Most loop devices that stand on one another.
const MOST_LEVELS: usize = 8;

/// Requests of `ioctl`.
pub mod request {
    #![allow(missing_docs, reason = "the names are those of loop(4)")]
    pub const LOOP_SET_FD: u32 = 0x4c00;
    pub const LOOP_CLR_FD: u32 = 0x4c01;
    pub const LOOP_SET_STATUS64: u32 = 0x4c04;
    pub const LOOP_GET_STATUS64: u32 = 0x4c05;
    pub const LOOP_CHANGE_FD: u32 = 0x4c06;
    pub const LOOP_SET_CAPACITY: u32 = 0x4c07;
    pub const LOOP_SET_DIRECT_IO: u32 = 0x4c08;
    pub const LOOP_SET_BLOCK_SIZE: u32 = 0x4c09;
    pub const LOOP_CONFIGURE: u32 = 0x4c0a;
    pub const LOOP_CTL_ADD: u32 = 0x4c80;
    pub const LOOP_CTL_REMOVE: u32 = 0x4c81;
    pub const LOOP_CTL_GET_FREE: u32 = 0x4c82;
}

/// Flags of a device.
pub mod flag {
    /// Nothing can be written.
    pub const READ_ONLY: u32 = 1;
    /// It loses its file when nobody uses it any more.
    pub const AUTOCLEAR: u32 = 4;
    /// Its table of partitions is read.
    pub const PARTSCAN: u32 = 8;
    /// The page cache of the file is not used.
    pub const DIRECT_IO: u32 = 16;
    /// What can be set when the device gets its file, and changed later.
    pub const SETTABLE: u32 = READ_ONLY | AUTOCLEAR | PARTSCAN | DIRECT_IO;
    /// What `LOOP_SET_STATUS64` can set, and what it can take away.
    pub const LATER_SET: u32 = AUTOCLEAR | PARTSCAN;
    /// See above.
    pub const LATER_CLEARED: u32 = AUTOCLEAR;
}

/// Bytes of `struct loop_info64` and of `struct loop_config`.
pub const INFO_SIZE: usize = 232;
/// See above.
pub const CONFIG_SIZE: usize = 304;
const NAME_SIZE: usize = 64;

/// What can be said of a device: the part of `struct loop_info64` that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Its largest size in bytes; 0 for all that the file has.
    pub limit: u64,
    /// See `flag`.
    pub flags: u32,
    /// The name of the file, as whoever set the device up says.
    pub name: [u8; NAME_SIZE],
}

impl Info {
    /// Nothing said.
    pub const NONE: Info = Info { offset: 0, limit: 0, flags: 0, name: [0; NAME_SIZE] };

    /// Reads a `struct loop_info64`. `EINVAL` when it asks for encryption.
    pub fn read(bytes: &[u8; INFO_SIZE]) -> Result<Info, Errno> {
        let word = |at: usize| {
            let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
            word.map_or(0, u64::from_ne_bytes)
        };
        let encryption = word(40) >> 32;
        if encryption != 0 {
            return Err(Errno::EINVAL);
        }
        let mut name = [0; NAME_SIZE];
        name.copy_from_slice(bytes.get(56..120).ok_or(Errno::EINVAL)?);
        let [.., last] = &mut name;
        *last = 0;
        Ok(Info { offset: word(24), limit: word(32), flags: (word(48) >> 32) as u32, name })
    }
}

/// A file and how it is shown.
struct Backing {
    file: Arc<OpenFile>,
    info: Info,
    sector_size: u32,
    size: u64,
}

impl Backing {
    /// The size that it has now, in bytes.
    fn measured(file: &OpenFile, info: &Info) -> u64 {
        let size = match super::file_of(file) {
            Some(block) => block.device().size(),
            None => file.inode().metadata().size,
        };
        let left = size.saturating_sub(info.offset);
        let size = if info.limit > 0 { left.min(info.limit) } else { left };
        size - size % UNIT
    }
}

/// The disk of a loop device.
pub struct LoopDisk {
    number: u32,
    backing: Mutex<Option<Backing>>,
}

impl LoopDisk {
    fn with<R>(&self, look: impl FnOnce(&mut Backing) -> R) -> Result<R, Errno> {
        self.backing.lock().as_mut().map(look).ok_or(Errno::ENXIO)
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether it has a file.
    pub fn is_bound(&self) -> bool {
        self.backing.lock().is_some()
    }

    /// What was said of it. `ENXIO` when it has no file.
    pub fn info(&self) -> Result<Info, Errno> {
        self.with(|backing| backing.info)
    }

    /// Its file. `ENXIO` when it has none.
    pub fn file(&self) -> Result<Arc<OpenFile>, Errno> {
        self.with(|backing| backing.file.clone())
    }

    /// What `struct loop_info64` says. `ENXIO` when it has no file.
    pub fn status(&self) -> Result<[u8; INFO_SIZE], Errno> {
        let (file, info) = self.with(|backing| (backing.file.clone(), backing.info))?;
        let metadata = file.inode().metadata();
        let mut bytes = [0; INFO_SIZE];
        let mut put = |at: usize, word: u64| {
            if let Some(place) = bytes.get_mut(at..at + 8) {
                place.copy_from_slice(&word.to_ne_bytes());
            }
        };
        put(0, metadata.id.device);
        put(8, metadata.id.number);
        put(16, metadata.represented_device);
        put(24, info.offset);
        put(32, info.limit);
        put(40, u64::from(self.number));
        put(48, u64::from(info.flags) << 32);
        if let Some(place) = bytes.get_mut(56..120) {
            place.copy_from_slice(&info.name);
        }
        Ok(bytes)
    }

    pub(super) fn clears_itself(&self) -> bool {
        self.info().is_ok_and(|info| info.flags & flag::AUTOCLEAR != 0)
    }
}

/// Checks that a file can be shown as a disk: `EINVAL` unless it is a regular file or a block device, `EBADF` when it stands on
/// this device itself.
fn check(device: &BlockDevice, file: &Arc<OpenFile>) -> Result<(), Errno> {
    if !matches!(file.inode().kind(), NodeKind::Regular | NodeKind::BlockDevice) {
        return Err(Errno::EINVAL);
    }
    let mut below = Some(file.clone());
    for _ in 0..MOST_LEVELS {
        let Some(file) = below else { return Ok(()) };
        let Some(block) = super::file_of(&file) else { return Ok(()) };
        let here = block.device().whole().map_or(block.device(), |(whole, _)| whole);
        if here.number() == device.number() {
            return Err(Errno::EBADF);
        }
        below = here.as_loop().and_then(|disk| disk.file().ok());
    }
    Err(Errno::EBADF)
}

/// Sizes of sectors that a device may have.
fn is_sector_size(size: u32) -> bool {
    size.is_power_of_two() && (512..=4096).contains(&size)
}

/// Gives a loop device its file.
///
/// # Errors
/// `EBUSY` when it has one, `EINVAL` for a file or numbers that do not fit, `EBADF` for a file that cannot be read or stands on
/// the device itself.
pub fn bind(
    device: &BlockDevice,
    file: Arc<OpenFile>,
    info: Info,
    sector_size: u32,
) -> Result<(), Errno> {
    let disk = device.as_loop().ok_or(Errno::ENOTTY)?;
    check(device, &file)?;
    if !file.flags().reads() {
        return Err(Errno::EBADF);
    }
    let sector_size = if sector_size == 0 { UNIT as u32 } else { sector_size };
    if !is_sector_size(sector_size) || info.flags & !flag::SETTABLE != 0 {
        return Err(Errno::EINVAL);
    }
    if i64::try_from(info.offset).is_err() {
        return Err(Errno::EOVERFLOW);
    }
    let mut info = info;
    if !file.flags().writes() {
        info.flags |= flag::READ_ONLY;
    }
    let size = Backing::measured(&file, &info);
    let mut backing = disk.backing.lock();
    if backing.is_some() {
        return Err(Errno::EBUSY);
    }
    *backing = Some(Backing { file, info, sector_size, size });
    drop(backing);
    device.forget();
    Ok(())
}

/// Changes what is said of a device that has a file; what was written through it has arrived.
///
/// # Errors
/// `ENXIO` without a file, `EOVERFLOW` for an offset that no file has.
pub fn set_info(device: &BlockDevice, new: &Info) -> Result<(), Errno> {
    let disk = device.as_loop().ok_or(Errno::ENOTTY)?;
    if i64::try_from(new.offset).is_err() {
        return Err(Errno::EOVERFLOW);
    }
    disk.with(|backing| {
        let old = backing.info.flags;
        let set = new.flags & flag::LATER_SET;
        let cleared = !new.flags & flag::LATER_CLEARED;
        backing.info = Info { flags: (old | set) & !cleared, ..*new };
    })?;
    set_capacity(device)
}

/// The file has another size now, or another offset.
pub fn set_capacity(device: &BlockDevice) -> Result<(), Errno> {
    let disk = device.as_loop().ok_or(Errno::ENOTTY)?;
    let (file, info) = disk.with(|backing| (backing.file.clone(), backing.info))?;
    let size = Backing::measured(&file, &info);
    disk.with(|backing| backing.size = size)?;
    device.forget();
    Ok(())
}

/// Gives the device another size of sectors. `EINVAL` for one that there is not.
pub fn set_sector_size(device: &BlockDevice, size: u64) -> Result<(), Errno> {
    let disk = device.as_loop().ok_or(Errno::ENOTTY)?;
    let size = u32::try_from(size).ok().filter(|&size| is_sector_size(size));
    let size = size.ok_or(Errno::EINVAL)?;
    disk.with(|backing| backing.sector_size = size)?;
    device.forget();
    Ok(())
}

/// Says whether the page cache of the file is to be used; kept only.
pub fn set_direct(device: &BlockDevice, is_direct: bool) -> Result<(), Errno> {
    let disk = device.as_loop().ok_or(Errno::ENOTTY)?;
    disk.with(|backing| match is_direct {
        true => backing.info.flags |= flag::DIRECT_IO,
        false => backing.info.flags &= !flag::DIRECT_IO,
    })
}

/// The device is to lose its file when nobody uses it any more.
pub fn clear_itself(device: &BlockDevice) -> Result<(), Errno> {
    let disk = device.as_loop().ok_or(Errno::ENOTTY)?;
    disk.with(|backing| backing.info.flags |= flag::AUTOCLEAR)
}

/// Takes its file away. Everything that was written has arrived, or nobody has it any more.
///
/// # Errors
/// `ENXIO` when it has none, `EBUSY` while a partition of it is used.
pub fn unbind(device: &Arc<BlockDevice>) -> Result<(), Errno> {
    let disk = device.as_loop().ok_or(Errno::ENOTTY)?;
    if !disk.is_bound() {
        return Err(Errno::ENXIO);
    }
    device.replace_partitions(&[])?;
    let old = disk.backing.lock().take();
    drop(old);
    device.forget();
    Ok(())
}

fn is_unused(device: &BlockDevice) -> bool {
    !device.is_used() && device.partitions().iter().all(|partition| !partition.is_used())
}

/// Whoever had a device that clears itself has left it. At once, unless something is still on its way to the file.
pub(super) fn clear_when_unused(number: u64, core: CpuId) {
    let Some(device) = super::find(number).filter(|device| is_unused(device)) else { return };
    let settled = async move {
        for partition in device.partitions() {
            let _ = complete(|| partition.settle()).await;
        }
        // What could not be written is lost: nobody is there to be told.
        let _ = complete(|| device.settle()).await;
        if is_unused(&device) && device.as_loop().is_some_and(|disk| disk.clears_itself()) {
            // Somebody else may have been as fast.
            let _ = unbind(&device);
        }
    };
    if task::spawn(core, settled).is_err() {
        log::warn!("no memory to clear a loop device");
    }
}

impl Disk for LoopDisk {
    fn geometry(&self) -> DiskGeometry {
        let backing = self.backing.lock();
        let (size, sector_size, flags) = backing.as_ref().map_or((0, UNIT as u32, 0), |backing| {
            (backing.size, backing.sector_size, backing.info.flags)
        });
        DiskGeometry {
            size: size - size % u64::from(sector_size),
            sector_size,
            is_read_only: flags & flag::READ_ONLY != 0,
            has_cache: true,
            can_discard: false,
            can_write_zeroes: false,
        }
    }

    fn most_bytes(&self) -> usize {
        MOST_BYTES
    }

    fn read(&self, offset: u64, length: usize) -> Reply<'_> {
        Box::pin(async move {
            let (file, start) = self.place(offset, length)?;
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
            bytes.resize(length, 0);
            let mut done = 0;
            while done < length {
                let at = start + done as u64;
                let count = complete(|| {
                    let mut rest = bytes.get_mut(done..).unwrap_or_default();
                    file.file().read(at, &mut rest, Transfer::PLAIN)
                })
                .await?;
                if count == 0 {
                    // The file has become shorter: as on Linux, the rest is zero.
                    break;
                }
                done += count;
            }
            Ok(bytes)
        })
    }

    fn write<'a>(&'a self, offset: u64, bytes: &'a [u8]) -> Reply<'a> {
        Box::pin(async move {
            if self.geometry().is_read_only {
                return Err(Errno::EROFS);
            }
            let (file, start) = self.place(offset, bytes.len())?;
            let mut done = 0;
            while done < bytes.len() {
                let at = start + done as u64;
                let written = complete(|| {
                    let mut rest = bytes.get(done..).unwrap_or_default();
                    file.file().write(at, &mut rest, Transfer::PLAIN)
                });
                // Whatever is wrong below is an error of the disk.
                let count = written.await.map_err(|_| Errno::EIO)?;
                if count == 0 {
                    return Err(Errno::EIO);
                }
                done += count;
            }
            Ok(Vec::new())
        })
    }

    fn flush(&self) -> Reply<'_> {
        Box::pin(async move {
            let file = self.file()?;
            complete(|| match file.inode().kind() {
                NodeKind::Regular => file.inode().sync(),
                _ => file.file().sync(),
            })
            .await
            .map_err(|_| Errno::EIO)?;
            Ok(Vec::new())
        })
    }

    fn discard(&self, _: u64, _: u64) -> Reply<'_> {
        Box::pin(async { Err(Errno::EOPNOTSUPP) })
    }

    fn write_zeroes(&self, _: u64, _: u64) -> Reply<'_> {
        Box::pin(async { Err(Errno::EOPNOTSUPP) })
    }
}

impl LoopDisk {
    /// The file, and where in it a range of the disk begins. `EIO` for one that is not on the disk.
    fn place(&self, offset: u64, length: usize) -> Result<(Arc<OpenFile>, u64), Errno> {
        let (file, size, start) = self
            .with(|backing| (backing.file.clone(), backing.size, backing.info.offset))
            .map_err(|_| Errno::EIO)?;
        let end = offset.checked_add(length as u64).ok_or(Errno::EIO)?;
        if end > size {
            return Err(Errno::EIO);
        }
        Ok((file, start.checked_add(offset).ok_or(Errno::EIO)?))
    }
}

/// How loop devices carry their questions; set when the first ones are made.
static OPTIONS: Once<Options> = Once::new();

/// Makes the devices that are there from the start. Once, at boot.
pub fn start(options: Options) {
    let options = *OPTIONS.call_once(|| options);
    for number in 0..AT_START {
        if make(number, options).is_err() {
            log::error!("no memory for loop devices");
        }
    }
}

fn make(number: u32, options: Options) -> Result<Arc<BlockDevice>, Errno> {
    let name = alloc::format!("loop{number}");
    let backing = Mutex::new(&rank::REMOTE_ANSWER, None);
    let disk = Arc::new(LoopDisk { number, backing });
    let id = make_device(MAJOR, number);
    let bare = BareDisk::whole(disk.clone(), id);
    let device = BlockDevice::made(name, id, Kind::Loop(disk), bare, options);
    insert(device.clone())?;
    nodes::appeared(&device);
    Ok(device)
}

fn find(number: u32) -> Option<Arc<BlockDevice>> {
    super::find(make_device(MAJOR, number))
}

/// `/dev/loop-control`, which finds and makes loop devices.
pub struct Control;

impl File for Control {
    fn ioctl_input(&self, request: u32) -> Result<usize, Errno> {
        use request::*;
        match request {
            LOOP_CTL_ADD | LOOP_CTL_REMOVE | LOOP_CTL_GET_FREE => Ok(0),
            _ => Err(Errno::ENOSYS),
        }
    }

    fn ioctl(
        &self,
        _caller: &dyn Caller,
        request: u32,
        argument: u64,
        _input: &[u8],
    ) -> Result<IoctlAnswer, Errno> {
        use request::*;
        let wanted = argument as u32 as i32;
        let options = *OPTIONS.get().ok_or(Errno::ENODEV)?;
        let number = match request {
            LOOP_CTL_GET_FREE => free(options)?,
            LOOP_CTL_ADD => match u32::try_from(wanted) {
                Ok(number) if find(number).is_some() => return Err(Errno::EEXIST),
                Ok(number) if number < MOST => make(number, options).map(|_| number)?,
                Ok(_) => return Err(Errno::ENOSPC),
                Err(_) => unmade(options)?,
            },
            _ => remove(wanted)?,
        };
        Ok(IoctlAnswer { value: number.into(), ..IoctlAnswer::default() })
    }

    fn information(&self) -> String {
        String::new()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The first device without a file, made if need be.
fn free(options: Options) -> Result<u32, Errno> {
    for number in 0..MOST {
        match find(number) {
            Some(device) if device.as_loop().is_some_and(|disk| disk.is_bound()) => {}
            Some(_) => return Ok(number),
            None => return make(number, options).map(|_| number),
        }
    }
    Err(Errno::ENOSPC)
}

/// A device with the first number that is not taken.
fn unmade(options: Options) -> Result<u32, Errno> {
    let number = (0..MOST).find(|&number| find(number).is_none()).ok_or(Errno::ENOSPC)?;
    make(number, options).map(|_| number)
}

fn remove(number: i32) -> Result<u32, Errno> {
    let number = u32::try_from(number).map_err(|_| Errno::EINVAL)?;
    let device = find(number).ok_or(Errno::ENODEV)?;
    let is_bound = device.as_loop().is_some_and(|disk| disk.is_bound());
    if is_bound || device.is_used() {
        return Err(Errno::EBUSY);
    }
    super::DEVICES.write().retain(|other| other.number() != device.number());
    nodes::vanished(&device);
    Ok(number)
}
