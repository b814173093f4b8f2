//! File systems that take no changes, through whatever mount: `mount -o remount,ro`, and an ext4 that has lost its journal.
//!
//! Each mount has a flag of its own for that, so that asking costs nothing.

use super::{TREE, shown};
use core::sync::atomic::Ordering;

/// Bit of a mount's flags: its file system takes no changes.
pub(super) const FROZEN: u64 = 1 << 63;

/// The file system of a device number takes no changes from now on, or takes them again: all its mounts show that.
pub fn freeze(device: u64, is_frozen: bool) {
    let tree = TREE.read();
    for mount in shown(&tree, device) {
        match is_frozen {
            true => mount.flags.fetch_or(FROZEN, Ordering::Relaxed),
            false => mount.flags.fetch_and(!FROZEN, Ordering::Relaxed),
        };
    }
}

/// Whether a regular file of the file system of a device number is open for writing, through whatever mount.
pub fn has_writers(device: u64) -> bool {
    let tree = TREE.read();
    shown(&tree, device).any(|mount| mount.has_writers())
}
