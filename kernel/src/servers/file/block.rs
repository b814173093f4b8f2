//! `ioctl` of disks, as far as it waits for the disk or for other descriptors: partitions, discarding, loop devices.

use abi::Errno;
use alloc::sync::Arc;
use alloc::vec::Vec;
use fs::block::{BlockDevice, BlockFile, loops};
use fs::pending::complete;

use crate::call::{Call, SysResult};
use crate::process::Capability;

const BLKRRPART: u32 = 0x125f;
const BLKFLSBUF: u32 = 0x1261;
const BLKDISCARD: u32 = 0x1277;
const BLKSECDISCARD: u32 = 0x127d;
const BLKZEROOUT: u32 = 0x127f;
/// Bytes of zeros that are written at a time.
const ZEROS: usize = 32 << 10;

/// Carries out a request; `None` for one that the file answers by itself.
pub async fn ioctl(
    call: &Call,
    file: &BlockFile,
    request: u32,
    argument: u64,
) -> Option<SysResult> {
    use loops::request::*;
    let device = file.device();
    Some(match request {
        BLKRRPART => rescan(call, device).await,
        BLKFLSBUF => flush(call, device).await,
        BLKDISCARD | BLKSECDISCARD | BLKZEROOUT => clear(call, file, request, argument).await,
        LOOP_SET_FD | LOOP_CONFIGURE | LOOP_CLR_FD | LOOP_SET_STATUS64 | LOOP_GET_STATUS64
        | LOOP_CHANGE_FD | LOOP_SET_CAPACITY | LOOP_SET_DIRECT_IO | LOOP_SET_BLOCK_SIZE
            if device.as_loop().is_some() =>
        {
            change_loop(call, file, request, argument).await
        }
        _ => return None,
    })
}

async fn settle(device: &Arc<BlockDevice>) -> Result<(), Errno> {
    complete(|| device.settle()).await
}

async fn rescan(call: &Call, device: &Arc<BlockDevice>) -> SysResult {
    call.thread.credentials().require(Capability::Administer)?;
    let is_scanned = match device.as_loop() {
        // Only one that is asked to has partitions.
        Some(disk) => disk.info().is_ok_and(|info| info.flags & loops::flag::PARTSCAN != 0),
        None => true,
    };
    if !is_scanned || device.whole().is_some() {
        return Err(Errno::EINVAL);
    }
    settle(device).await?;
    complete(|| device.rescan()).await.map(|()| 0)
}

async fn flush(call: &Call, device: &Arc<BlockDevice>) -> SysResult {
    call.thread.credentials().require(Capability::Administer)?;
    settle(device).await.map(|()| 0)
}

/// Discards a range or makes it zero: `{ offset, length }`, both whole sectors.
async fn clear(call: &Call, file: &BlockFile, request: u32, argument: u64) -> SysResult {
    if !file.is_writable() {
        return Err(Errno::EBADF);
    }
    let device = file.device();
    let geometry = device.geometry();
    let bytes = call.user().read_vector(argument, 16).await?;
    let mut words = bytes.chunks_exact(8).filter_map(|word| word.try_into().ok());
    let mut next = || words.next().map_or(0, u64::from_ne_bytes);
    let (offset, length) = (next(), next());
    if request == BLKSECDISCARD || (request == BLKDISCARD && !geometry.can_discard) {
        return Err(Errno::EOPNOTSUPP);
    }
    if geometry.is_read_only {
        return Err(Errno::EPERM);
    }
    let sector = u64::from(geometry.sector_size);
    let is_whole = offset.is_multiple_of(sector) && length.is_multiple_of(sector);
    let end = offset.checked_add(length).ok_or(Errno::EINVAL)?;
    if !is_whole || end > device.size() || (length == 0 && request == BLKDISCARD) {
        return Err(Errno::EINVAL);
    }
    // What was written before comes before.
    settle(device).await?;
    let (disk, start) = device.disk();
    let result = match request {
        BLKDISCARD => disk.discard(start + offset, length).await.map(|_| ()),
        _ if geometry.can_write_zeroes => {
            disk.write_zeroes(start + offset, length).await.map(|_| ())
        }
        _ => write_zeros(device, offset, length).await,
    };
    device.forget();
    result.map(|()| 0)
}

async fn write_zeros(device: &BlockDevice, offset: u64, length: u64) -> Result<(), Errno> {
    let (disk, start) = device.disk();
    let mut zeros: Vec<u8> = Vec::new();
    let most = ZEROS.min(disk.most_bytes());
    zeros.try_reserve_exact(most).map_err(|_| Errno::ENOMEM)?;
    zeros.resize(most, 0);
    let mut done = 0;
    while done < length {
        let part = (length - done).min(most as u64) as usize;
        let part = zeros.get(..part).ok_or(Errno::EIO)?;
        disk.write(start + offset + done, part).await?;
        done += part.len() as u64;
        base::task::yield_now().await;
    }
    Ok(())
}

async fn change_loop(call: &Call, file: &BlockFile, request: u32, argument: u64) -> SysResult {
    use loops::request::*;
    let device = file.device();
    let disk = device.as_loop().ok_or(Errno::ENOTTY)?;
    match request {
        LOOP_SET_FD => {
            let backing = call.thread.files().get(argument as u32 as i32)?;
            loops::bind(device, backing, loops::Info::NONE, 0)?;
            return Ok(0);
        }
        LOOP_CONFIGURE => return configure(call, device, argument).await,
        LOOP_GET_STATUS64 => {
            call.user().write_bytes(argument, &disk.status()?).await?;
            return Ok(0);
        }
        _ => {}
    }
    if !disk.is_bound() {
        return Err(Errno::ENXIO);
    }
    if !file.is_writable() && request != LOOP_CLR_FD {
        call.thread.credentials().require(Capability::Administer)?;
    }
    match request {
        LOOP_CLR_FD => {
            settle(device).await?;
            if device.openers() > 1 || device.partitions().iter().any(|part| part.is_used()) {
                // Whoever else has it open keeps it; the last one takes it along.
                loops::clear_itself(device)?;
            } else {
                loops::unbind(device)?;
            }
        }
        LOOP_SET_STATUS64 => {
            let info = read_info(&call.user().read_vector(argument, loops::INFO_SIZE).await?)?;
            settle(device).await?;
            let was_scanned = disk.info()?.flags & loops::flag::PARTSCAN != 0;
            loops::set_info(device, &info)?;
            if !was_scanned && disk.info()?.flags & loops::flag::PARTSCAN != 0 {
                complete(|| device.rescan()).await?;
            }
        }
        LOOP_SET_CAPACITY => {
            settle(device).await?;
            loops::set_capacity(device)?;
        }
        LOOP_SET_DIRECT_IO => loops::set_direct(device, argument != 0)?,
        LOOP_SET_BLOCK_SIZE => {
            settle(device).await?;
            loops::set_sector_size(device, argument)?;
        }
        // Only read-only devices could change their file.
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

fn read_info(bytes: &[u8]) -> Result<loops::Info, Errno> {
    loops::Info::read(bytes.try_into().map_err(|_| Errno::EINVAL)?)
}

/// `LOOP_CONFIGURE`: descriptor, size of sectors and what is said of the device, in one step.
async fn configure(call: &Call, device: &Arc<BlockDevice>, argument: u64) -> SysResult {
    let bytes = call.user().read_vector(argument, loops::CONFIG_SIZE).await?;
    let word = |at: usize| {
        let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
        word.map_or(0, u32::from_ne_bytes)
    };
    let info = read_info(bytes.get(8..8 + loops::INFO_SIZE).ok_or(Errno::EINVAL)?)?;
    let backing = call.thread.files().get(word(0) as i32)?;
    loops::bind(device, backing, info, word(4))?;
    if info.flags & loops::flag::PARTSCAN != 0 {
        // A table that cannot be read is no reason to give the device back.
        let _ = complete(|| device.rescan()).await;
    }
    Ok(0)
}
