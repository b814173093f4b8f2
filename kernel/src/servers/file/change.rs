//! Changing the tree: mkdir, mknod, link, symlink, unlink, rename.

use abi::Errno;
use abi::capability::Capability;
use abi::fs::*;
use alloc::sync::Arc;
use fs::inode::NewContent;
use fs::walk::Walker;
use fs::{NodeKind, OpenFile, tree};

use super::support::{Start, path, resolve_or_itself};
use crate::call::{Call, SysResult};

fn masked(call: &Call, mode: u32) -> u32 {
    mode & !(call.thread.directory().umask() & 0o777)
}

pub async fn mkdir(call: &Call) -> SysResult {
    make_directory(call, AT_FDCWD, 0).await
}

pub async fn mkdirat(call: &Call) -> SysResult {
    make_directory(call, call.int(0), 1).await
}

async fn make_directory(call: &Call, directory: i32, index: usize) -> SysResult {
    let path = path(call, index).await?;
    let start = Start::new(call, directory, &path)?;
    let mode = masked(call, call.unsigned(index + 1) & 0o1777);
    tree::create(start.lookup(), &path, NewContent::Directory, mode)?;
    Ok(0)
}

pub async fn mknod(call: &Call) -> SysResult {
    make_node(call, AT_FDCWD, 0).await
}

pub async fn mknodat(call: &Call) -> SysResult {
    make_node(call, call.int(0), 1).await
}

async fn make_node(call: &Call, directory: i32, index: usize) -> SysResult {
    let mode = call.unsigned(index + 1);
    let device = call.unsigned(index + 2);
    // The device number of this call has 12 bits of major and 20 bits of minor number.
    let device = make_device(device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
    let content = match mode & S_IFMT {
        0 | S_IFREG => NewContent::Regular,
        S_IFCHR => NewContent::CharacterDevice(device),
        S_IFBLK => NewContent::BlockDevice(device),
        S_IFIFO => NewContent::Fifo,
        S_IFSOCK => NewContent::Socket,
        S_IFDIR => return Err(Errno::EPERM),
        _ => return Err(Errno::EINVAL),
    };
    let path = path(call, index).await?;
    let start = Start::new(call, directory, &path)?;
    tree::create(start.lookup(), &path, content, masked(call, mode & 0o7777))?;
    Ok(0)
}

pub async fn symlink(call: &Call) -> SysResult {
    make_link(call, AT_FDCWD, 1).await
}

pub async fn symlinkat(call: &Call) -> SysResult {
    make_link(call, call.int(1), 2).await
}

async fn make_link(call: &Call, directory: i32, index: usize) -> SysResult {
    let target = path(call, 0).await?;
    if target.is_empty() {
        return Err(Errno::ENOENT);
    }
    let path = path(call, index).await?;
    let start = Start::new(call, directory, &path)?;
    tree::create(start.lookup(), &path, NewContent::Symlink(&target), 0o777)?;
    Ok(0)
}

pub async fn link(call: &Call) -> SysResult {
    make_name(call, (AT_FDCWD, 0), (AT_FDCWD, 1), 0).await
}

pub async fn linkat(call: &Call) -> SysResult {
    make_name(call, (call.int(0), 1), (call.int(2), 3), call.unsigned(4)).await
}

async fn make_name(
    call: &Call,
    (old_directory, old): (i32, usize),
    (new_directory, new): (i32, usize),
    flags: u32,
) -> SysResult {
    let permitted = AtFlags::SYMLINK_FOLLOW | AtFlags::EMPTY_PATH;
    let flags = AtFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
    if !permitted.contains(flags) {
        return Err(Errno::EINVAL);
    }
    let may_be_empty = flags.contains(AtFlags::EMPTY_PATH);
    let follow = flags.contains(AtFlags::SYMLINK_FOLLOW);
    let (target, identity) =
        resolve_or_itself(call, old_directory, old, follow, may_be_empty).await?;
    let may_link_empty = identity.is_capable(Capability::OverrideSearch);
    if may_be_empty && !may_link_empty && path(call, old).await?.is_empty() {
        return Err(Errno::ENOENT);
    }
    let new_path = path(call, new).await?;
    let start = Start::new(call, new_directory, &new_path)?;
    tree::link(start.lookup(), &target, &new_path)?;
    Ok(0)
}

pub async fn unlink(call: &Call) -> SysResult {
    let path = path(call, 0).await?;
    let start = Start::new(call, AT_FDCWD, &path)?;
    tree::unlink(start.lookup(), &path)?;
    Ok(0)
}

pub async fn rmdir(call: &Call) -> SysResult {
    let path = path(call, 0).await?;
    let start = Start::new(call, AT_FDCWD, &path)?;
    tree::remove_directory(start.lookup(), &path)?;
    Ok(0)
}

pub async fn unlinkat(call: &Call) -> SysResult {
    let flags = call.unsigned(2);
    if flags & !AT_REMOVEDIR != 0 {
        return Err(Errno::EINVAL);
    }
    let path = path(call, 1).await?;
    let start = Start::new(call, call.int(0), &path)?;
    if flags == AT_REMOVEDIR {
        tree::remove_directory(start.lookup(), &path)?;
    } else {
        tree::unlink(start.lookup(), &path)?;
    }
    Ok(0)
}

pub async fn rename(call: &Call) -> SysResult {
    move_name(call, (AT_FDCWD, 0), (AT_FDCWD, 1), RenameFlags::empty()).await
}

pub async fn renameat(call: &Call, flags: u32) -> SysResult {
    let flags = RenameFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
    let others = RenameFlags::NOREPLACE | RenameFlags::WHITEOUT;
    if flags.contains(RenameFlags::EXCHANGE) && flags.intersects(others) {
        return Err(Errno::EINVAL);
    }
    move_name(call, (call.int(0), 1), (call.int(2), 3), flags).await
}

async fn move_name(
    call: &Call,
    (old_directory, old): (i32, usize),
    (new_directory, new): (i32, usize),
    flags: RenameFlags,
) -> SysResult {
    let old_path = path(call, old).await?;
    let from = Start::new(call, old_directory, &old_path)?;
    let new_path = path(call, new).await;
    let new_path = new_path.and_then(|path| Ok((Start::new(call, new_directory, &path)?, path)));
    let (to, new_path) = match new_path {
        Ok(new) => new,
        Err(error) => {
            // What is wrong with the directories of the old path comes first.
            Walker::new(from.lookup(), &old_path)?.to_last()?;
            return Err(error);
        }
    };
    tree::rename(from.lookup(), &old_path, to.lookup(), &new_path, flags)?;
    Ok(0)
}

/// Whether a file is a regular one.
pub fn is_regular(file: &Arc<OpenFile>) -> bool {
    file.inode().kind() == NodeKind::Regular
}
