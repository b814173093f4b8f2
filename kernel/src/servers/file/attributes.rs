//! Changing attributes and sizes: chmod, chown, utimes, truncate, fallocate.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use abi::Errno;
use abi::fs::notify::Events;
use abi::fs::*;
use abi::signal::Signal;
use base::memory::PAGE_SIZE;
use base::task;
use fs::tree::{self, NewTime};
use fs::{Identity, Inode, Location, NodeKind, Timestamp, notify};

use super::change::is_regular;
use super::support::{raise, resolve, resolve_or_itself, usable};
use crate::call::{Call, SysResult};
use crate::process::{Resource, mapped};

pub async fn chmod(call: &Call) -> SysResult {
    let (location, identity) = resolve(call, AT_FDCWD, 0, true).await?;
    tree::change_mode(&location, &identity, call.unsigned(1))?;
    Ok(0)
}

pub fn fchmod(call: &Call) -> SysResult {
    let file = usable(call, 0)?;
    tree::change_mode(file.location(), &call.thread.identity(), call.unsigned(1))?;
    Ok(0)
}

/// What the first two arguments of an `*at` call name, for the flags that change attributes.
async fn resolve_at(call: &Call, flags: u32) -> Result<(Location, Identity), Errno> {
    let permitted = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    let flags = AtFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
    if !permitted.contains(flags) {
        return Err(Errno::EINVAL);
    }
    let follow = !flags.contains(AtFlags::SYMLINK_NOFOLLOW);
    let may_be_empty = flags.contains(AtFlags::EMPTY_PATH);
    resolve_or_itself(call, call.int(0), 1, follow, may_be_empty).await
}

pub async fn fchmodat(call: &Call, flags: u32) -> SysResult {
    let (location, identity) = resolve_at(call, flags).await?;
    tree::change_mode(&location, &identity, call.unsigned(2))?;
    Ok(0)
}

/// An id that `chown` shall set; -1 leaves it.
fn new_id(value: u32) -> Option<u32> {
    if value == u32::MAX { None } else { Some(value) }
}

fn change_owner(call: &Call, location: &Location, identity: &Identity, index: usize) -> SysResult {
    let (user, group) = (new_id(call.unsigned(index)), new_id(call.unsigned(index + 1)));
    tree::change_owner(location, identity, user, group)?;
    Ok(0)
}

pub async fn chown(call: &Call, follow: bool) -> SysResult {
    let (location, identity) = resolve(call, AT_FDCWD, 0, follow).await?;
    change_owner(call, &location, &identity, 1)
}

pub fn fchown(call: &Call) -> SysResult {
    let file = usable(call, 0)?;
    change_owner(call, file.location(), &call.thread.identity(), 1)
}

pub async fn fchownat(call: &Call) -> SysResult {
    let (location, identity) = resolve_at(call, call.unsigned(4)).await?;
    change_owner(call, &location, &identity, 2)
}

/// A time of `utimensat`.
fn new_time(time: FileTime) -> Result<NewTime, Errno> {
    match time.nanoseconds {
        UTIME_NOW => Ok(NewTime::Now),
        UTIME_OMIT => Ok(NewTime::Keep),
        nanoseconds => {
            let nanoseconds = u32::try_from(nanoseconds)
                .ok()
                .filter(|&nanoseconds| nanoseconds < 1_000_000_000)
                .ok_or(Errno::EINVAL)?;
            Ok(NewTime::At(Timestamp { seconds: time.seconds, nanoseconds }))
        }
    }
}

pub async fn utimensat(call: &Call) -> SysResult {
    let user = call.user();
    let address = call.argument(2);
    // What is wrong with the times is said when the file has been found.
    let times = if address == 0 {
        Ok((NewTime::Now, NewTime::Now))
    } else {
        let [accessed, modified]: [FileTime; 2] = user.read_value(address).await?;
        if (accessed.nanoseconds, modified.nanoseconds) == (UTIME_OMIT, UTIME_OMIT) {
            return Ok(0);
        }
        new_time(accessed).and_then(|accessed| Ok((accessed, new_time(modified)?)))
    };
    let flags = AtFlags::from_bits(call.unsigned(3)).ok_or(Errno::EINVAL)?;
    // Without a path the times are those of the descriptor's file.
    if call.argument(1) == 0 && call.int(0) != AT_FDCWD {
        if !flags.is_empty() {
            return Err(Errno::EINVAL);
        }
        let file = usable(call, 0)?;
        let (accessed, modified) = times?;
        tree::change_times(file.location(), &call.thread.identity(), accessed, modified)?;
        return Ok(0);
    }
    let permitted = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    if !permitted.contains(flags) {
        return Err(Errno::EINVAL);
    }
    let follow = !flags.contains(AtFlags::SYMLINK_NOFOLLOW);
    let may_be_empty = flags.contains(AtFlags::EMPTY_PATH) && call.argument(1) != 0;
    let (location, identity) =
        resolve_or_itself(call, call.int(0), 1, follow, may_be_empty).await?;
    let (accessed, modified) = times?;
    tree::change_times(&location, &identity, accessed, modified)?;
    Ok(0)
}

/// A time in microseconds (`struct timeval`).
fn from_microseconds(time: FileTime) -> Result<NewTime, Errno> {
    let microseconds = u32::try_from(time.nanoseconds)
        .ok()
        .filter(|&microseconds| microseconds < 1_000_000)
        .ok_or(Errno::EINVAL)?;
    let nanoseconds = microseconds * 1000;
    Ok(NewTime::At(Timestamp { seconds: time.seconds, nanoseconds }))
}

async fn change_by_microseconds(call: &Call, directory: i32, index: usize) -> SysResult {
    let address = call.argument(index + 1);
    let (accessed, modified) = if address == 0 {
        (NewTime::Now, NewTime::Now)
    } else {
        let [accessed, modified]: [FileTime; 2] = call.user().read_value(address).await?;
        (from_microseconds(accessed)?, from_microseconds(modified)?)
    };
    if call.argument(index) == 0 && directory != AT_FDCWD {
        let file = usable(call, 0)?;
        tree::change_times(file.location(), &call.thread.identity(), accessed, modified)?;
        return Ok(0);
    }
    let (location, identity) = resolve(call, directory, index, true).await?;
    tree::change_times(&location, &identity, accessed, modified)?;
    Ok(0)
}

pub async fn utimes(call: &Call) -> SysResult {
    change_by_microseconds(call, AT_FDCWD, 0).await
}

pub async fn futimesat(call: &Call) -> SysResult {
    change_by_microseconds(call, call.int(0), 1).await
}

pub async fn utime(call: &Call) -> SysResult {
    let address = call.argument(1);
    let (accessed, modified) = if address == 0 {
        (NewTime::Now, NewTime::Now)
    } else {
        let times: [i64; 2] = call.user().read_value(address).await?;
        let [accessed, modified] =
            times.map(|seconds| NewTime::At(Timestamp { seconds, nanoseconds: 0 }));
        (accessed, modified)
    };
    let (location, identity) = resolve(call, AT_FDCWD, 0, true).await?;
    tree::change_times(&location, &identity, accessed, modified)?;
    Ok(0)
}

/// The size in an argument: `EINVAL` when negative; `EFBIG` and a signal past the caller's limit.
fn new_size(call: &Call, index: usize) -> Result<u64, Errno> {
    let size = call.argument(index);
    if i64::try_from(size).is_err() {
        return Err(Errno::EINVAL);
    }
    Ok(size)
}

fn check_limit(call: &Call, old_size: u64, size: u64) -> Result<(), Errno> {
    let limit = call.process().limits.soft(Resource::FileSize);
    if size > limit && size > old_size {
        raise(call, Signal::SIGXFSZ);
        return Err(Errno::EFBIG);
    }
    Ok(())
}

pub async fn truncate(call: &Call) -> SysResult {
    let size = new_size(call, 1)?;
    let (location, identity) = resolve(call, AT_FDCWD, 0, true).await?;
    tree::check_truncate(&location, &identity)?;
    super::lease::give_way_to(call, &location.inode, true, false).await?;
    check_limit(call, location.inode.metadata().size, size)?;
    let result = tree::resize(&location.inode, &identity, size);
    mapped::settled(&call.thread).await;
    result.map(|()| 0)
}

pub async fn ftruncate(call: &Call) -> SysResult {
    let size = new_size(call, 1)?;
    let file = usable(call, 0)?;
    if !is_regular(&file) || !file.flags().writes() {
        return Err(Errno::EINVAL);
    }
    check_limit(call, file.inode().metadata().size, size)?;
    let result = tree::resize(file.inode(), &call.thread.identity(), size);
    mapped::settled(&call.thread).await;
    result.map(|()| 0)
}

pub async fn fallocate(call: &Call) -> SysResult {
    let file = usable(call, 0)?;
    let (offset, length) = (call.argument(2) as i64, call.argument(3) as i64);
    if offset < 0 || length <= 0 {
        return Err(Errno::EINVAL);
    }
    let flags = AllocateFlags::from_bits(call.unsigned(1)).ok_or(Errno::EOPNOTSUPP)?;
    let moves = flags.intersects(AllocateFlags::COLLAPSE_RANGE | AllocateFlags::INSERT_RANGE);
    let punches = flags.contains(AllocateFlags::PUNCH_HOLE);
    if punches
        && (flags.contains(AllocateFlags::ZERO_RANGE) || !flags.contains(AllocateFlags::KEEP_SIZE))
    {
        return Err(Errno::EOPNOTSUPP);
    }
    if moves && flags.bits().count_ones() > 1 {
        return Err(Errno::EINVAL);
    }
    if !file.flags().writes() {
        return Err(Errno::EBADF);
    }
    match file.inode().kind() {
        NodeKind::Regular => {}
        NodeKind::Fifo => return Err(Errno::ESPIPE),
        NodeKind::Directory => return Err(Errno::EISDIR),
        _ => return Err(Errno::ENODEV),
    }
    let (offset, length) = (offset.unsigned_abs(), length.unsigned_abs());
    let end = offset.checked_add(length).filter(|&end| i64::try_from(end).is_ok());
    let end = end.ok_or(Errno::EFBIG)?;
    let size = file.inode().metadata().size;
    if flags.contains(AllocateFlags::INSERT_RANGE) {
        check_limit(call, size, size.checked_add(length).ok_or(Errno::EFBIG)?)?;
    } else if !flags.intersects(AllocateFlags::KEEP_SIZE | AllocateFlags::COLLAPSE_RANGE) {
        check_limit(call, size, end)?;
    }
    let mut made = Vec::new();
    if let Err(error) = allocate(call, file.inode(), flags, offset..end, &mut made).await {
        // All or nothing.
        for range in made {
            for start in range.clone().step_by(GIVEN_BACK_AT_ONCE) {
                file.inode().give_back(start..range.end.min(start + GIVEN_BACK_AT_ONCE as u64));
                task::yield_now().await;
            }
        }
        return Err(error);
    }
    notify::event(file.inode(), Events::MODIFY);
    Ok(0)
}

/// `POSIX_FADV_DONTNEED`
const DONT_NEED: i32 = 4;
/// Pages that one poll gives back.
const GIVEN_BACK_AT_ONCE: usize = 256;

async fn allocate(
    call: &Call,
    inode: &Arc<dyn Inode>,
    flags: AllocateFlags,
    range: Range<u64>,
    made: &mut Vec<Range<u64>>,
) -> Result<(), Errno> {
    let mut at = range.start;
    while at < range.end {
        let result = inode.allocate(flags, at, range.end - at, made);
        mapped::settled(&call.thread).await;
        at += result?;
        if at < range.end {
            task::yield_now().await;
            if call.thread.is_killed() {
                return Err(Errno::EINTR);
            }
        }
    }
    Ok(())
}

/// Of all advice, that a file is not needed any more is taken.
pub fn fadvise64(call: &Call) -> SysResult {
    let file = usable(call, 0)?;
    if file.inode().kind() == NodeKind::Fifo {
        return Err(Errno::ESPIPE);
    }
    let (length, advice) = (call.argument(2) as i64, call.int(3));
    if length < 0 || !(0..=5).contains(&advice) {
        return Err(Errno::EINVAL);
    }
    if advice == DONT_NEED && file.inode().kind() == NodeKind::Regular {
        let offset = call.argument(1);
        let end = match length.unsigned_abs() {
            0 => u64::MAX,
            length => offset.saturating_add(length),
        };
        // Pages that are wanted in part stay.
        file.inode().drop_cached(offset.div_ceil(PAGE_SIZE as u64)..end / PAGE_SIZE as u64);
    }
    Ok(0)
}

/// All files are in memory: there is nothing to read ahead.
pub fn readahead(call: &Call) -> SysResult {
    let file = usable(call, 0)?;
    if !file.flags().reads() {
        return Err(Errno::EBADF);
    }
    let has_pages = matches!(file.inode().kind(), NodeKind::Regular | NodeKind::BlockDevice);
    if !has_pages || i64::try_from(call.argument(2)).is_err() {
        return Err(Errno::EINVAL);
    }
    Ok(0)
}
