//! `name_to_handle_at` and `open_by_handle_at`: files by number instead of by path, on tmpfs and ext4.
//!
//! A handle has the number of the inode, as on Linux. A file is found again by walking the tree of its file
//! system, so one that has no name any more is stale.

use abi::Errno;
use abi::fs::AtFlags;
use alloc::sync::Arc;
use alloc::vec::Vec;
use fs::inode::Inode;
use fs::notify::fanotify::{HANDLE_SIZE as HANDLE, HANDLE_TYPE as PLAIN, handle_of};
use fs::open::{self, Request};
use fs::{Location, NodeKind};

use super::descriptor::{descriptor_limit, wait_until_open};
use super::support::resolve_or_itself;
use crate::call::{Call, Pace, SysResult};
use crate::process::{Capability, mapped};

/// Most bytes of a handle.
const LONGEST: u32 = 128;
/// Bytes of a handle's head: size, type.
const HEAD: u64 = 8;
/// Entries of a directory that are looked at in one go.
const ENTRIES_AT_ONCE: u64 = 1024;

/// Whether the files of a file system have handles.
pub(super) fn gives_handles(location: &Location) -> bool {
    matches!(location.mount.file_system().type_name(), "tmpfs" | "ramfs" | "ext4")
}

/// `name_to_handle_at(directory, path, handle, mount, flags)`
pub async fn name_to_handle_at(call: &Call) -> SysResult {
    /// `AT_SYMLINK_FOLLOW`
    const FOLLOW: u32 = 0x400;
    let flags = call.unsigned(4);
    if flags & !(FOLLOW | AtFlags::EMPTY_PATH.bits()) != 0 {
        return Err(Errno::EINVAL);
    }
    let may_be_empty = flags & AtFlags::EMPTY_PATH.bits() != 0;
    let (location, _) =
        resolve_or_itself(call, call.int(0), 1, flags & FOLLOW != 0, may_be_empty).await?;
    if !gives_handles(&location) {
        return Err(Errno::EOPNOTSUPP);
    }
    let (user, at) = (call.user(), call.argument(2));
    let room: u32 = user.read_value(at).await?;
    if room > LONGEST {
        return Err(Errno::EINVAL);
    }
    let mut bytes = Vec::with_capacity(HEAD as usize + HANDLE);
    bytes.extend_from_slice(&(HANDLE as u32).to_ne_bytes());
    bytes.extend_from_slice(&PLAIN.to_ne_bytes());
    let fits = room as usize >= HANDLE;
    if fits {
        bytes.extend_from_slice(&handle_of(location.inode.id()));
    }
    let mount = i32::try_from(location.mount.id()).map_err(|_| Errno::EOVERFLOW)?;
    user.write_value(call.argument(3), &mount).await?;
    user.write_bytes(at, &bytes).await?;
    if fits { Ok(0) } else { Err(Errno::EOVERFLOW) }
}

/// `open_by_handle_at(mount, handle, flags)`
pub async fn open_by_handle_at(call: &Call) -> SysResult {
    call.thread.credentials().require(Capability::OverrideSearch)?;
    let (user, at) = (call.user(), call.argument(1));
    let [size, kind]: [u32; 2] = user.read_value(at).await?;
    if size == 0 || size > LONGEST {
        return Err(Errno::EINVAL);
    }
    let place = at.checked_add(HEAD).ok_or(Errno::EFAULT)?;
    let bytes = user.read_vector(place, size as usize).await?;
    let start = match call.int(0) {
        abi::fs::AT_FDCWD => call.thread.directory().current(),
        descriptor => call.thread.files().get(descriptor)?.location().clone(),
    };
    let number = bytes.get(4..HANDLE).and_then(|word| word.try_into().ok());
    let number = number.map(u64::from_ne_bytes).ok_or(Errno::ESTALE)?;
    if kind != PLAIN.cast_unsigned() || !gives_handles(&start) {
        return Err(Errno::ESTALE);
    }
    let root = start.mount.file_system().root();
    let inode = find(call, root, number).await?.ok_or(Errno::ESTALE)?;
    let location = Location { mount: start.mount.clone(), inode };
    let request = Request::new(
        call.unsigned(2) | abi::fs::OpenFlags::LARGEFILE.bits(),
        0,
        call.thread.directory().umask(),
    )?;
    let closes = request.flags.contains(abi::fs::OpenFlags::CLOEXEC);
    let reservation = call.thread.files().reserve(closes, descriptor_limit(call))?;
    let identity = call.thread.identity();
    let opened = open::open_location(location, request, &identity, &**call.thread, false);
    mapped::settled(&call.thread).await;
    let file = opened?;
    wait_until_open(call, &file, request.flags).await?;
    Ok(u64::from(reservation.install(file).unsigned_abs()))
}

/// The inode of a number in the tree below a directory.
async fn find(
    call: &Call,
    root: Arc<dyn Inode>,
    number: u64,
) -> Result<Option<Arc<dyn Inode>>, Errno> {
    if root.id().number == number {
        return Ok(Some(root));
    }
    let mut pace = Pace::new();
    let mut directories = Vec::from([root]);
    while let Some(directory) = directories.pop() {
        let mut cursor = Some(0);
        while let Some(from) = cursor.take() {
            let mut found = None;
            let mut below: Vec<Vec<u8>> = Vec::new();
            let mut count = 0;
            directory.read_directory(from, &mut |entry| {
                count += 1;
                let is_dot = matches!(entry.name, b"." | b"..");
                if entry.number == number && !is_dot {
                    found = Some(entry.name.to_vec());
                } else if entry.kind == NodeKind::Directory && !is_dot {
                    below.push(entry.name.to_vec());
                }
                cursor = (count == ENTRIES_AT_ONCE).then_some(entry.next);
                found.is_none() && cursor.is_none()
            })?;
            if let Some(name) = found {
                // It may have gone just now.
                return Ok(directory
                    .lookup(&name)
                    .ok()
                    .filter(|inode| inode.id().number == number));
            }
            directories.extend(below.iter().filter_map(|name| directory.lookup(name).ok()));
            pace.spend(&call.thread, count / 16 + 1).await.map_err(|_| Errno::EINTR)?;
        }
    }
    Ok(None)
}
