//! Extended attributes: names with values on inodes, and who may see and change them.
//!
//! | names | who may | on what |
//! |---|---|---|
//! | `user.*` | as the permission bits say; in a sticky directory only its owner writes | regular files, directories |
//! | `trusted.*` | the superuser; for others they do not exist | everything |
//! | `security.*` | everybody reads, the superuser writes | everything |
//!
//! Other names, such as those of access control lists, answer `EOPNOTSUPP`. The values are data: nothing
//! here acts by them.

use crate::identity::Identity;
use crate::inode::{ExtendedAttributes, Inode};
use crate::metadata::{NodeKind, Wanted};
use crate::mount::Location;
use crate::notify;
use crate::tree::check;
use abi::Errno;
use abi::capability::Capability;
use abi::fs::notify::Events;
use abi::fs::{S_ISVTX, XATTR_LIST_MAX, XattrFlags};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Name spaces, with the dot at their end.
const USER: &[u8] = b"user.";
const TRUSTED: &[u8] = b"trusted.";
const SECURITY: &[u8] = b"security.";
/// Capabilities of a program, whose value has a form.
const CAPABILITIES: &[u8] = b"security.capability";

fn store(inode: &Arc<dyn Inode>) -> Result<&dyn ExtendedAttributes, Errno> {
    inode.extended().ok_or(Errno::EOPNOTSUPP)
}

/// `EOPNOTSUPP` for a name outside of the known spaces, `EINVAL` for a space alone.
fn check_name(name: &[u8]) -> Result<(), Errno> {
    let known = [USER, TRUSTED, SECURITY];
    let space = known.into_iter().find(|space| name.starts_with(space));
    if space.ok_or(Errno::EOPNOTSUPP)?.len() == name.len() { Err(Errno::EINVAL) } else { Ok(()) }
}

fn permit(
    inode: &Arc<dyn Inode>,
    identity: &Identity,
    name: &[u8],
    writes: bool,
) -> Result<(), Errno> {
    let hidden = if writes { Errno::EPERM } else { Errno::ENODATA };
    if name.starts_with(SECURITY) {
        return if writes && !identity.is_capable(Capability::Administer) {
            Err(Errno::EPERM)
        } else {
            Ok(())
        };
    }
    if name.starts_with(TRUSTED) {
        return if identity.is_capable(Capability::Administer) { Ok(()) } else { Err(hidden) };
    }
    if name.starts_with(USER) {
        match inode.kind() {
            NodeKind::Regular => {}
            NodeKind::Directory => {
                let permissions = inode.permissions();
                let is_sticky = permissions.mode & S_ISVTX != 0;
                if writes && is_sticky && !identity.owns(permissions.user) {
                    return Err(Errno::EPERM);
                }
            }
            _ => return Err(hidden),
        }
    }
    check(inode, identity, if writes { Wanted::WRITE } else { Wanted::READ })
}

/// Gives a name a value.
///
/// # Errors
/// Those of the table above, `EROFS`, `EINVAL` for capabilities that are none, `ENOSPC`.
pub fn set(
    location: &Location,
    identity: &Identity,
    name: &[u8],
    value: &[u8],
    flags: XattrFlags,
) -> Result<(), Errno> {
    location.mount.check_writable()?;
    if name == CAPABILITIES && !value.is_empty() && !are_capabilities(value) {
        return Err(Errno::EINVAL);
    }
    let inode = &location.inode;
    permit(inode, identity, name, true)?;
    let store = store(inode)?;
    check_name(name)?;
    store.set(name, Some(value), flags)?;
    notify::event(inode, Events::ATTRIB);
    Ok(())
}

/// Whether a value is a `struct vfs_cap_data` of version 2, or of version 3 with a user.
fn are_capabilities(value: &[u8]) -> bool {
    matches!((value.get(3), value.len()), (Some(2), 20) | (Some(3), 24))
}

/// Takes a name away. `ENODATA` when it is not there.
pub fn remove(location: &Location, identity: &Identity, name: &[u8]) -> Result<(), Errno> {
    location.mount.check_writable()?;
    let inode = &location.inode;
    permit(inode, identity, name, true)?;
    let store = store(inode)?;
    check_name(name)?;
    store.set(name, None, XattrFlags::REPLACE)?;
    notify::event(inode, Events::ATTRIB);
    Ok(())
}

/// The value of a name.
pub fn get(inode: &Arc<dyn Inode>, identity: &Identity, name: &[u8]) -> Result<Arc<[u8]>, Errno> {
    permit(inode, identity, name, false)?;
    let store = store(inode)?;
    check_name(name)?;
    store.get(name)
}

/// The names that the identity may know of, each with a zero at its end. `E2BIG` when they are too many
/// for any caller.
pub fn list(inode: &Arc<dyn Inode>, identity: &Identity) -> Result<Vec<u8>, Errno> {
    let mut names = Vec::new();
    let mut result = Ok(());
    let Some(store) = inode.extended() else { return Ok(names) };
    store.for_each_name(&mut |name| {
        if result.is_err()
            || (name.starts_with(TRUSTED) && !identity.is_capable(Capability::Administer))
        {
            return;
        }
        if names.len() + name.len() >= XATTR_LIST_MAX {
            result = Err(Errno::E2BIG);
        } else if names.try_reserve(name.len() + 1).is_err() {
            result = Err(Errno::ENOMEM);
        } else {
            names.extend_from_slice(name);
            names.push(0);
        }
    })?;
    result.map(|()| names)
}
