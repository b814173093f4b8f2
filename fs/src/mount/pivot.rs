//! `pivot_root`: another mount takes the place of the root, which goes on below it.

use super::{Location, Mount, TREE, is_below};
use abi::Errno;
use alloc::sync::Arc;

/// Whether a place lies below a directory as seen through mounts.
fn is_reachable(place: &Location, from: &Location) -> bool {
    let mut here = place.clone();
    while here.mount.id != from.mount.id {
        match here.mount.attached_at() {
            Some(above) => here = above,
            None => return false,
        }
    }
    is_below(&here.inode, &from.inode)
}

/// Puts the mount at `new` where `root` is attached and attaches `root`'s mount at `old`, which lies below `new`. `top`
/// is the topmost mount of the caller's tree. Gives the topmost mount if that is `new`'s from now on.
///
/// # Errors
/// `EINVAL` when a mount is of another tree, when `root` or `new` is not the root of its mount, when `new` is attached
/// nowhere, or when one place cannot be reached from the other; `ENOENT` for an `old` that was removed; `EBUSY` when
/// `new` or `old` is on the mount of `root`.
pub fn pivot(
    root: &Location,
    new: &Location,
    old: &Location,
    top: &Arc<Mount>,
) -> Result<Option<Arc<Mount>>, Errno> {
    if old.inode.metadata().links == 0 {
        return Err(Errno::ENOENT);
    }
    if root.mount.top() != top.id || new.mount.top() != top.id {
        return Err(Errno::EINVAL);
    }
    if [new, old].iter().any(|place| place.mount.id == root.mount.id) {
        return Err(Errno::EBUSY);
    }
    if !root.is_mount_root()
        || !new.is_mount_root()
        || new.mount.attached_at().is_none()
        || !is_reachable(old, new)
        || !is_reachable(new, root)
    {
        return Err(Errno::EINVAL);
    }
    let mut tree = TREE.write();
    let moved = tree.detach(new.mount.id).ok_or(Errno::EINVAL)?;
    let place = tree.detach(root.mount.id);
    let mut below = old.clone();
    while let Some(upper) = tree.mounted_at(&below) {
        below = Location::root_of(upper);
    }
    tree.attach(&below, root.mount.clone());
    let is_top = place.is_none();
    match &place {
        Some(place) => {
            let at = Location { mount: place.parent.clone(), inode: place.place.clone() };
            tree.attach(&at, new.mount.clone());
        }
        None if tree.root.as_ref().is_some_and(|first| first.id == root.mount.id) => {
            tree.root = Some(new.mount.clone());
        }
        None => {}
    }
    drop(tree);
    drop((moved, place));
    Ok(is_top.then(|| new.mount.clone()))
}
