//! Extended attributes by path, by link and by descriptor.

use abi::Errno;
use abi::fs::{AT_FDCWD, XATTR_LIST_MAX, XATTR_NAME_MAX, XATTR_SIZE_MAX, XattrFlags};
use alloc::vec::Vec;
use fs::{Identity, Location, extended};

use super::support::{resolve, usable};
use crate::call::{Call, SysResult};

/// How a call names its file.
#[derive(Clone, Copy)]
pub enum Target {
    /// By a path, whose last link is followed.
    Path,
    /// By a path, whose last link is meant itself.
    Link,
    /// By a descriptor.
    Descriptor,
}

async fn find(call: &Call, target: Target) -> Result<(Location, Identity), Errno> {
    match target {
        Target::Path => resolve(call, AT_FDCWD, 0, true).await,
        Target::Link => resolve(call, AT_FDCWD, 0, false).await,
        Target::Descriptor => Ok((usable(call, 0)?.location().clone(), call.thread.identity())),
    }
}

/// The name in argument 1: `ERANGE` when it is empty or too long.
async fn name(call: &Call) -> Result<Vec<u8>, Errno> {
    match call.user().read_string(call.argument(1), XATTR_NAME_MAX + 1).await {
        Ok(name) if !name.is_empty() => Ok(name),
        Ok(_) | Err(Errno::ENAMETOOLONG) => Err(Errno::ERANGE),
        Err(error) => Err(error),
    }
}

pub async fn set(call: &Call, target: Target) -> SysResult {
    let flags = XattrFlags::from_bits(call.unsigned(4)).ok_or(Errno::EINVAL)?;
    let (location, identity) = find(call, target).await?;
    let name = name(call).await?;
    let size = usize::try_from(call.argument(3)).unwrap_or(usize::MAX);
    if size > XATTR_SIZE_MAX {
        return Err(Errno::E2BIG);
    }
    let value = call.user().read_vector(call.argument(2), size).await?;
    extended::set(&location, &identity, &name, &value, flags)?;
    Ok(0)
}

pub async fn remove(call: &Call, target: Target) -> SysResult {
    let (location, identity) = find(call, target).await?;
    extended::remove(&location, &identity, &name(call).await?)?;
    Ok(0)
}

pub async fn get(call: &Call, target: Target) -> SysResult {
    let (location, identity) = find(call, target).await?;
    let value = extended::get(&location.inode, &identity, &name(call).await?)?;
    answer(call, 2, &value, XATTR_SIZE_MAX).await
}

pub async fn list(call: &Call, target: Target) -> SysResult {
    let (location, identity) = find(call, target).await?;
    let names = extended::list(&location.inode, &identity)?;
    answer(call, 1, &names, XATTR_LIST_MAX).await
}

/// Writes bytes to the buffer in argument `index`, whose size follows. A size of 0 asks how many there
/// are; `ERANGE` when they do not fit.
async fn answer(call: &Call, index: usize, bytes: &[u8], most: usize) -> SysResult {
    let room = usize::try_from(call.argument(index + 1)).unwrap_or(usize::MAX).min(most);
    if room > 0 {
        if bytes.len() > room {
            return Err(Errno::ERANGE);
        }
        // Where nothing is written, no address is wrong.
        if !bytes.is_empty() {
            call.user().write_bytes(call.argument(index), bytes).await?;
        }
    }
    Ok(bytes.len() as u64)
}
