//! What is not followed or opened in directories that everybody may write to, such as `/tmp`: traps that
//! others set there. `/proc/sys/fs/protected_*` are these settings; `protected_hardlinks` is always on and
//! stands in `tree::link`.

use crate::identity::Identity;
use crate::metadata::{NodeKind, Permissions};
use abi::Errno;
use abi::fs::S_ISVTX;
use core::sync::atomic::{AtomicU64, Ordering};

/// `protected_symlinks`, 0 or 1.
pub static SYMLINKS: AtomicU64 = AtomicU64::new(1);
/// `protected_fifos`: 0, 1, or 2 for directories that a group may write to as well.
pub static FIFOS: AtomicU64 = AtomicU64::new(1);
/// `protected_regular`, likewise.
pub static REGULAR: AtomicU64 = AtomicU64::new(2);

const WRITABLE_BY_ALL: u32 = 0o002;
const WRITABLE_BY_GROUP: u32 = 0o020;

/// Whether the symbolic link that a path ends in may be followed: in a sticky directory that all may write
/// to, only the identity's own links are, and those of the directory's owner. Nobody is exempt.
///
/// # Errors
/// `EACCES`.
pub fn check_link(
    directory: &Permissions,
    link: &Permissions,
    identity: &Identity,
) -> Result<(), Errno> {
    let shared = S_ISVTX | WRITABLE_BY_ALL;
    let is_trap = directory.mode & shared == shared
        && identity.user != link.user
        && directory.user != link.user;
    if is_trap && SYMLINKS.load(Ordering::Relaxed) != 0 { Err(Errno::EACCES) } else { Ok(()) }
}

/// Whether `O_CREAT` may open a file that exists: in a sticky directory that others may write to, not
/// somebody else's, unless the directory is the same user's. The caller meant to make the file.
///
/// # Errors
/// `EACCES`.
pub fn check_existing(
    directory: &Permissions,
    kind: NodeKind,
    file: &Permissions,
    identity: &Identity,
) -> Result<(), Errno> {
    if directory.mode & S_ISVTX == 0 || file.user == directory.user || file.user == identity.user {
        return Ok(());
    }
    let setting = match kind {
        NodeKind::Regular => REGULAR.load(Ordering::Relaxed),
        NodeKind::Fifo => FIFOS.load(Ordering::Relaxed),
        // As Linux: for what else lies there, no setting lifts the rule.
        _ => 1,
    };
    let by_all = directory.mode & WRITABLE_BY_ALL != 0 && setting >= 1;
    let by_group = directory.mode & WRITABLE_BY_GROUP != 0 && setting >= 2;
    if by_all || by_group { Err(Errno::EACCES) } else { Ok(()) }
}
