//! Looking: stat, statx, statfs, access, readlink.

use abi::Errno;
use abi::fs::fcntl::{F_GETFD, F_GETFL, F_GETLK, F_SETLK};
use abi::fs::*;
use alloc::sync::Arc;
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use fs::metadata::Wanted;
use fs::mount::Mount;
use fs::{Location, NodeKind, tree};
use policy::table::number;
use zerocopy::IntoBytes;

use super::support::{Start, path, resolve, resolve_or_itself};
use crate::call::{Call, SysResult, encode};
use crate::memory::AddressSpace;
use crate::process::Thread;

async fn answer(call: &Call, location: &Location, index: usize) -> SysResult {
    location.inode.refresh()?;
    let stat = location.inode.metadata().to_stat();
    call.user().write_bytes(call.argument(index), stat.as_bytes()).await?;
    Ok(0)
}

pub async fn stat(call: &Call, follow: bool) -> SysResult {
    let (location, _) = resolve(call, AT_FDCWD, 0, follow).await?;
    answer(call, &location, 1).await
}

pub async fn fstat(call: &Call) -> SysResult {
    let file = call.file(0)?;
    answer(call, file.location(), 1).await
}

/// `fstat` into a page of the caller that is there.
pub fn status_at_once(thread: &Thread, space: &AddressSpace, arguments: &[u64; 6]) -> Option<u64> {
    let file = thread.file(arguments[0] as i32).ok()?;
    let inode = file.inode();
    inode.refresh().ok()?;
    let stat = inode.metadata().to_stat();
    space.put_now(arguments[1], stat.as_bytes()).then_some(0)
}

/// A call that only looks and hardly ever waits, by its handler alone: the way to that one through all
/// servers moves futures that have room for every call. `None` when it would wait.
pub fn look_at_once(thread: &Arc<Thread>, number: usize, arguments: &[u64; 6]) -> Option<u64> {
    let call = Call::trapped(thread, number, *arguments);
    let result = match number {
        number::stat => now(stat(&call, true)),
        number::lstat => now(stat(&call, false)),
        number::newfstatat => now(newfstatat(&call)),
        number::access => now(access(&call)),
        number::faccessat => now(faccessat(&call, 0)),
        number::readlink => now(readlink(&call)),
        number::readlinkat => now(readlinkat(&call)),
        number::fcntl if matches!(call.int(1), F_SETLK | F_GETLK | F_GETFL | F_GETFD) => {
            now(super::control::fcntl(&call))
        }
        _ => None,
    };
    result.map(encode)
}

/// The result of a handler that does not wait. One that would is dropped.
#[inline(always)]
fn now(handler: impl Future<Output = SysResult>) -> Option<SysResult> {
    match pin!(handler).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

pub async fn newfstatat(call: &Call) -> SysResult {
    let permitted = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    let flags = AtFlags::from_bits(call.unsigned(3)).ok_or(Errno::EINVAL)?;
    if !permitted.contains(flags) {
        return Err(Errno::EINVAL);
    }
    let follow = !flags.contains(AtFlags::SYMLINK_NOFOLLOW);
    let may_be_empty = flags.contains(AtFlags::EMPTY_PATH);
    let (location, _) = resolve_or_itself(call, call.int(0), 1, follow, may_be_empty).await?;
    answer(call, &location, 2).await
}

pub async fn statx(call: &Call) -> SysResult {
    let sync_types = AtFlags::STATX_FORCE_SYNC | AtFlags::STATX_DONT_SYNC;
    let permitted =
        AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH | sync_types;
    let flags = AtFlags::from_bits(call.unsigned(2)).ok_or(Errno::EINVAL)?;
    if call.unsigned(3) & STATX_RESERVED != 0
        || flags.contains(sync_types)
        || !permitted.contains(flags)
    {
        return Err(Errno::EINVAL);
    }
    let follow = !flags.contains(AtFlags::SYMLINK_NOFOLLOW);
    let may_be_empty = flags.contains(AtFlags::EMPTY_PATH);
    let (location, _) = resolve_or_itself(call, call.int(0), 1, follow, may_be_empty).await?;
    location.inode.refresh()?;
    let metadata = location.inode.metadata();
    let statx = metadata.to_statx(location.mount.id(), location.is_mount_root());
    call.user().write_bytes(call.argument(4), statx.as_bytes()).await?;
    Ok(0)
}

fn statistics(mount: &Arc<Mount>) -> StatFs {
    let numbers = mount.file_system().statistics();
    let device = mount.file_system().device();
    let kept = mount::MS_RDONLY | mount::MS_NOSUID | mount::MS_NODEV | mount::MS_NOEXEC;
    let flags = mount.flags();
    // `ST_` bits differ from `MS_` bits only for access times.
    let mut shown = (flags & kept) as i64 | ST_VALID;
    shown |= match flags & (mount::MS_NOATIME | mount::MS_STRICTATIME) {
        0 => 4096,
        mount::MS_NOATIME => 1024,
        _ => 0,
    };
    if flags & mount::MS_NOSYMFOLLOW != 0 {
        shown |= 0x2000;
    }
    if flags & mount::MS_NODIRATIME != 0 {
        shown |= 2048;
    }
    StatFs {
        kind: numbers.magic,
        block_size: i64::from(numbers.block_size),
        blocks: numbers.blocks,
        free_blocks: numbers.free_blocks,
        available_blocks: numbers.free_blocks,
        files: numbers.inodes,
        free_files: numbers.free_inodes,
        identity: [(device & 0x7fff_ffff) as i32, (device >> 32) as i32],
        name_length: NAME_MAX as i64,
        fragment_size: i64::from(numbers.block_size),
        flags: shown,
        ..StatFs::default()
    }
}

pub async fn statfs(call: &Call) -> SysResult {
    let (location, _) = resolve(call, AT_FDCWD, 0, true).await?;
    location.mount.file_system().refresh()?;
    let numbers = statistics(&location.mount);
    call.user().write_bytes(call.argument(1), numbers.as_bytes()).await?;
    Ok(0)
}

pub async fn fstatfs(call: &Call) -> SysResult {
    let file = call.file(0)?;
    file.location().mount.file_system().refresh()?;
    let numbers = statistics(&file.location().mount);
    call.user().write_bytes(call.argument(1), numbers.as_bytes()).await?;
    Ok(0)
}

pub async fn access(call: &Call) -> SysResult {
    check_access(call, AT_FDCWD, 0, call.unsigned(1), AtFlags::empty()).await
}

pub async fn faccessat(call: &Call, flags: u32) -> SysResult {
    let permitted = AtFlags::EACCESS | AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    let flags = AtFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
    if !permitted.contains(flags) {
        return Err(Errno::EINVAL);
    }
    check_access(call, call.int(0), 1, call.unsigned(2), flags).await
}

async fn check_access(
    call: &Call,
    directory: i32,
    index: usize,
    mode: u32,
    flags: AtFlags,
) -> SysResult {
    if mode & !7 != 0 {
        return Err(Errno::EINVAL);
    }
    let wanted = Wanted(mode);
    let thread = &call.thread;
    let identity = if flags.contains(AtFlags::EACCESS) {
        thread.identity()
    } else {
        thread.credentials().real_identity(thread.process.pid, thread.tid())
    };
    let path = path(call, index).await?;
    let location = if path.is_empty() && flags.contains(AtFlags::EMPTY_PATH) {
        resolve_or_itself(call, directory, index, true, true).await?.0
    } else {
        let start = Start::for_identity(call, directory, &path, identity.clone())?;
        start.resolve(&path, !flags.contains(AtFlags::SYMLINK_NOFOLLOW))?
    };
    let kind = location.inode.kind();
    if wanted.includes(Wanted::EXECUTE)
        && kind == NodeKind::Regular
        && location.mount.flags() & mount::MS_NOEXEC != 0
    {
        return Err(Errno::EACCES);
    }
    tree::check(&location.inode, &identity, wanted)?;
    let is_file = matches!(kind, NodeKind::Regular | NodeKind::Directory | NodeKind::Symlink);
    if wanted.includes(Wanted::WRITE) && is_file {
        location.mount.check_writable()?;
    }
    Ok(0)
}

pub async fn readlink(call: &Call) -> SysResult {
    read_link(call, AT_FDCWD, 0).await
}

pub async fn readlinkat(call: &Call) -> SysResult {
    read_link(call, call.int(0), 1).await
}

async fn read_link(call: &Call, directory: i32, index: usize) -> SysResult {
    let size = call.int(index + 2);
    let Some(size) = usize::try_from(size).ok().filter(|&size| size > 0) else {
        return Err(Errno::EINVAL);
    };
    let is_itself = path(call, index).await?.is_empty();
    if is_itself && directory == AT_FDCWD {
        return Err(Errno::ENOENT);
    }
    let (location, identity) = resolve_or_itself(call, directory, index, false, true).await?;
    if location.inode.kind() != NodeKind::Symlink {
        return Err(if is_itself { Errno::ENOENT } else { Errno::EINVAL });
    }
    let text = location.inode.read_link(&identity)?;
    location.note_access();
    let text = text.get(..size).unwrap_or(&text);
    call.user().write_bytes(call.argument(index + 1), text).await?;
    Ok(text.len() as u64)
}
