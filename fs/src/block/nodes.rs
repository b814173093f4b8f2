//! The nodes of block devices in `/dev`: they come and go with their devices.

use super::{BlockDevice, devices};
use crate::inode::{NewContent, NewNode};
use crate::mount::Location;
use crate::notify::{self, fanotify::Subject};
use abi::Errno;
use abi::fs::notify::Events;
use base::sync::Once;

/// The root of the file system of devices.
static HOME: Once<Location> = Once::new();

/// Says where nodes are, and makes those of the devices that there are. Once, when the kernel starts.
pub(crate) fn populate(directory: &Location) -> Result<(), Errno> {
    let _ = HOME.set(directory.clone());
    devices().iter().try_for_each(|device| make(directory, device))
}

fn make(directory: &Location, device: &BlockDevice) -> Result<(), Errno> {
    let content = NewContent::BlockDevice(device.number());
    let new = NewNode { content, mode: 0o660, user: 0, group: 0 };
    let node = Subject::of(&directory.inode.create(device.name().as_bytes(), &new)?);
    notify::entry(&directory.inode, device.name().as_bytes(), node, Events::CREATE);
    Ok(())
}

/// There is a new device: gives it a node.
pub(super) fn appeared(device: &BlockDevice) {
    let Some(directory) = HOME.get() else { return };
    if let Err(error) = make(directory, device) {
        log::warn!("{} has no node in /dev: {error}", device.name());
    }
}

/// A device is gone, and its node goes with it. A program may have removed the node before, or mounted something on
/// it, which keeps it.
pub(super) fn vanished(device: &BlockDevice) {
    let Some(directory) = HOME.get() else { return };
    let name = device.name().as_bytes();
    let Ok(inode) = directory.inode.lookup(name) else { return };
    let node = Location { mount: directory.mount.clone(), inode };
    if node.is_mount_point() || directory.inode.unlink(name, node.inode.id()).is_err() {
        return;
    }
    notify::event_itself(&node.inode, Events::ATTRIB);
    // The news of its end come before those of its name.
    let gone = Subject::of(&node.inode);
    drop(node);
    notify::entry(&directory.inode, name, gone, Events::DELETE);
}
