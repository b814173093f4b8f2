//! How mounts and places are shown: as paths below a root, and in lists.

use super::{Location, Mount};
use crate::inode::{FileSystem, Inode, Place};
use abi::fs::{device_major, device_minor};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The path of a location as a process with this root sees it. The second value is false when the
/// location lies outside of the root; `None` when its name has been removed.
pub fn path_of(location: &Location, root: &Location) -> (Option<Vec<u8>>, bool) {
    let (path, removed, reachable) = describe(location, root);
    (if removed { None } else { Some(path) }, reachable)
}

/// The path for `/proc/PID/fd` and `maps`: as Linux, with ` (deleted)` behind a removed name, and
/// the label of what has no path.
pub fn display_path(location: &Location, root: &Location) -> Vec<u8> {
    if let Some(label) = location.inode.label() {
        return label.into_bytes();
    }
    let (mut path, removed, _) = describe(location, root);
    if removed {
        path.extend_from_slice(b" (deleted)");
    }
    path
}

fn describe(location: &Location, root: &Location) -> (Vec<u8>, bool, bool) {
    let mut names: Vec<Arc<[u8]>> = Vec::new();
    let mut here = location.clone();
    let mut any_removed = false;
    let mut reachable = true;
    while !here.is_same(root) {
        if here.is_mount_root() {
            match here.mount.attached_at() {
                Some(place) => here = place,
                None => {
                    reachable = false;
                    break;
                }
            }
            continue;
        }
        let Some(Place { parent, name, removed }) = here.inode.place() else {
            any_removed = true;
            break;
        };
        any_removed |= removed;
        names.push(name);
        here = Location { mount: here.mount, inode: parent };
    }
    (joined(&names), any_removed, reachable)
}

/// The path with these names, the last one first.
fn joined(names: &[Arc<[u8]>]) -> Vec<u8> {
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    path
}

/// One line of `/proc/mounts`.
pub struct MountLine {
    /// What is mounted.
    pub source: String,
    /// Where, as the given root sees it.
    pub path: Vec<u8>,
    /// What of the file system is seen there, as a path from its root.
    pub root: Vec<u8>,
    /// Type of the file system.
    pub type_name: &'static str,
    /// Options, comma-separated.
    pub options: String,
    /// Id of the mount.
    pub id: u64,
    /// Id of the mount that it is attached to; its own when it is attached nowhere.
    pub parent: u64,
    /// Device number of the file system.
    pub device: u64,
}

/// The path of an inode from the root of its file system.
fn path_in_file_system(inode: &Arc<dyn Inode>) -> Vec<u8> {
    let mut names: Vec<Arc<[u8]>> = Vec::new();
    let mut here = inode.clone();
    let mut any_removed = false;
    while let Some(Place { parent, name, removed }) = here.place() {
        any_removed |= removed;
        names.push(name);
        here = parent;
    }
    let mut path = joined(&names);
    if any_removed {
        path.extend_from_slice(b"//deleted");
    }
    path
}

/// The mount of this root and all below it, lower ones first.
fn visible(root: &Location) -> Vec<Arc<Mount>> {
    let mut mounts: Vec<Arc<Mount>> = Vec::new();
    mounts.push(root.mount.clone());
    let mut next = 0;
    while let Some(mount) = mounts.get(next).cloned() {
        next += 1;
        mounts.extend(mount.children().into_iter().map(|(_, child)| child));
    }
    mounts
}

/// All mounts that a process with this root sees, lower ones first.
pub fn list(root: &Location) -> Vec<MountLine> {
    visible(root)
        .iter()
        .filter_map(|mount| {
            let (path, reachable) = path_of(&Location::root_of(mount), root);
            let path = path.filter(|_| reachable)?;
            Some(MountLine {
                source: mount.source.clone(),
                path,
                root: path_in_file_system(&mount.root),
                type_name: mount.file_system.type_name(),
                options: mount.options_text(),
                id: mount.id,
                parent: mount.attached_at().map_or(mount.id, |place| place.mount.id),
                device: mount.file_system.device(),
            })
        })
        .collect()
}

/// The file system of a device number that a process with this root sees mounted.
pub fn find_device(root: &Location, major: u32, minor: u32) -> Option<Arc<dyn FileSystem>> {
    let mut systems = visible(root).into_iter().map(|mount| mount.file_system.clone());
    systems.find(|system| {
        let device = system.device();
        (device_major(device), device_minor(device)) == (major, minor)
    })
}
