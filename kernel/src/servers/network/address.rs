//! Addresses in a program's memory.

use abi::Errno;
use abi::fs::AT_FDCWD;
use abi::socket::{ADDRESS_LIMIT, AF_UNIX, UNIX_ADDRESS_SIZE, UNIX_PATH_OFFSET};
use alloc::vec::Vec;
use fs::metadata::Wanted;
use fs::{NodeKind, tree};
use net::unix::Target;

use super::super::file::support::Start;
use crate::call::Call;

/// Reads an address; empty when its length is 0. `EINVAL` when no address is that long.
pub async fn read(call: &Call, address: u64, length: i32) -> Result<Vec<u8>, Errno> {
    let length = usize::try_from(length).map_err(|_| Errno::EINVAL)?;
    if length > ADDRESS_LIMIT {
        return Err(Errno::EINVAL);
    }
    if length == 0 {
        return Ok(Vec::new());
    }
    call.user().read_vector(address, length).await
}

/// Writes an address, as much of it as the program has room for, and its true length.
pub async fn write(
    call: &Call,
    bytes: &[u8],
    address: u64,
    length_address: u64,
) -> Result<(), Errno> {
    let user = call.user();
    let room: i32 = user.read_value(length_address).await?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    user.write_bytes(address, bytes.get(..room).unwrap_or(bytes)).await?;
    let length = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
    user.write_value(length_address, &length).await
}

/// The family that an address names; `None` when it is too short for one.
pub fn family(bytes: &[u8]) -> Option<i32> {
    let family = bytes.first_chunk().copied().map(u16::from_ne_bytes)?;
    Some(i32::from(family))
}

/// What an address of the local domain names: `EINVAL` for other families and wrong lengths.
pub fn path(bytes: &[u8]) -> Result<&[u8], Errno> {
    if bytes.len() > UNIX_ADDRESS_SIZE || family(bytes) != Some(AF_UNIX) {
        return Err(Errno::EINVAL);
    }
    match bytes.get(UNIX_PATH_OFFSET..) {
        None | Some([]) => Err(Errno::EINVAL),
        Some(path) => Ok(path),
    }
}

/// The part of a path before its end.
pub fn text(path: &[u8]) -> &[u8] {
    let end = path.iter().position(|&byte| byte == 0).unwrap_or(path.len());
    path.get(..end).unwrap_or(path)
}

/// Finds what an address of the local domain names. A path must lead to a socket that the caller may
/// write to: `EACCES`, `ECONNREFUSED`.
pub fn target(call: &Call, bytes: &[u8]) -> Result<Target, Errno> {
    let path = path(bytes)?;
    if path.first() == Some(&0) {
        return Ok(Target::Abstract(path.to_vec()));
    }
    let path = text(path);
    let start = Start::new(call, AT_FDCWD, path)?;
    let location = start.resolve(path, true)?;
    tree::check(&location.inode, &start.identity, Wanted::WRITE)?;
    if location.inode.kind() != NodeKind::Socket {
        return Err(Errno::ECONNREFUSED);
    }
    let id = location.inode.id();
    Ok(Target::Inode((id.device, id.number)))
}
