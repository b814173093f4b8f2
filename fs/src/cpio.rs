//! Unpacks an initramfs: one or more cpio archives of the `newc` format, one after the other, with
//! zeros between them.
//!
//! Files are not copied: they borrow their bytes from the archive, which stays in memory, until a
//! page is written or mapped. So a large initramfs costs a few microseconds per file.
//!
//! An archive is not trusted: whatever is in it, the result is a tree or `EIO`. Names are resolved as
//! a process with this root would, so `..` does not lead out. Missing directories are made. Later
//! entries replace earlier ones. Compressed archives are refused.

use crate::identity::Identity;
use crate::inode::{AttributeChange, Inode, NewContent, NewNode};
use crate::metadata::{InodeId, NodeKind, Timestamp};
use crate::mount::Location;
use crate::tmpfs::Node;
use crate::tree;
use crate::walk::{Lookup, resolve};
use abi::Errno;
use abi::fs::{NAME_MAX, PATH_MAX, make_device};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::heap;

const HEADER_LENGTH: usize = 110;
const TRAILER: &[u8] = b"TRAILER!!!";

/// What was unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Entries of all kinds.
    pub entries: usize,
    /// Bytes of regular files.
    pub bytes: usize,
}

/// One entry of an archive.
struct Entry {
    name: &'static [u8],
    data: &'static [u8],
    inode: u32,
    mode: u32,
    user: u32,
    group: u32,
    links: u32,
    modified_s: u32,
    device: (u32, u32),
    represented_device: u64,
}

/// Reads bytes and numbers, never past the end.
struct Reader {
    bytes: &'static [u8],
    position: usize,
}

impl Reader {
    fn take(&mut self, length: usize) -> Result<&'static [u8], Errno> {
        let end = self.position.checked_add(length).ok_or(Errno::EIO)?;
        let taken = self.bytes.get(self.position..end).ok_or(Errno::EIO)?;
        self.position = end;
        Ok(taken)
    }

    fn hexadecimal(&mut self) -> Result<u32, Errno> {
        self.take(8)?.iter().try_fold(0u32, |value, &byte| {
            let digit = char::from(byte).to_digit(16).ok_or(Errno::EIO)?;
            Ok(value << 4 | digit)
        })
    }

    /// Skips the padding to a multiple of four; the last archive may lack it.
    fn align(&mut self) {
        self.position = self.position.next_multiple_of(4).min(self.bytes.len());
    }

    /// The next entry; `None` when only zeros are left.
    fn entry(&mut self) -> Result<Option<Entry>, Errno> {
        let rest = self.bytes.get(self.position..).unwrap_or(&[]);
        let zeros = rest.iter().take_while(|&&byte| byte == 0).count();
        if zeros == rest.len() {
            return Ok(None);
        }
        self.position += zeros;
        let magic = self.take(6)?;
        if magic != b"070701" && magic != b"070702" {
            return Err(Errno::EIO);
        }
        let mut fields = [0u32; 13];
        for field in &mut fields {
            *field = self.hexadecimal()?;
        }
        let [
            inode,
            mode,
            user,
            group,
            links,
            modified_s,
            size,
            device_major,
            device_minor,
            represented_major,
            represented_minor,
            name_size,
            _checksum,
        ] = fields;
        let name_size = usize::try_from(name_size).map_err(|_| Errno::EIO)?;
        if name_size == 0 || name_size > PATH_MAX {
            return Err(Errno::EIO);
        }
        let name = self.take(name_size)?;
        let name = name.strip_suffix(&[0]).ok_or(Errno::EIO)?;
        if name.contains(&0) {
            return Err(Errno::EIO);
        }
        self.align();
        let data = self.take(usize::try_from(size).map_err(|_| Errno::EIO)?)?;
        self.align();
        Ok(Some(Entry {
            name,
            data,
            inode,
            mode,
            user,
            group,
            links,
            modified_s,
            device: (device_major, device_minor),
            represented_device: make_device(represented_major, represented_minor),
        }))
    }
}

/// Unpacks the archives into the tree at `root`, a tmpfs. `EIO` when they are damaged; what came
/// before the damage is there then.
pub fn unpack(archive: &'static [u8], root: &Location) -> Result<Unpacked, Errno> {
    let identity = Identity::kernel();
    let mut unpacker = Unpacker {
        lookup: Lookup { root, start: root, identity: &identity },
        linked: BTreeMap::new(),
        directories: Vec::new(),
        last_directory: None,
    };
    let mut reader = Reader { bytes: archive, position: 0 };
    let mut unpacked = Unpacked::default();
    if archive.len() < HEADER_LENGTH && archive.iter().any(|&byte| byte != 0) {
        return Err(Errno::EIO);
    }
    while let Some(entry) = reader.entry()? {
        if entry.name == TRAILER {
            unpacker.linked.clear();
            continue;
        }
        unpacker.place(&entry).map_err(|error| match error {
            Errno::ENOMEM | Errno::ENOSPC => error,
            _ => Errno::EIO,
        })?;
        unpacked.entries += 1;
        unpacked.bytes += entry.data.len();
    }
    // What was put into directories has changed their times.
    for (inode, time_s) in unpacker.directories {
        restore_time(&inode, time_s);
    }
    Ok(unpacked)
}

fn restore_time(inode: &Arc<dyn Inode>, time_s: u32) {
    if let Some(node) = inode.as_any().downcast_ref::<Node>() {
        node.restore_times(Timestamp { seconds: i64::from(time_s), nanoseconds: 0 });
    }
}

/// A tree that is being filled.
struct Unpacker<'a> {
    lookup: Lookup<'a>,
    /// First names of files with several, by inode and device numbers of the archive.
    linked: BTreeMap<(u32, u32, u32), Location>,
    /// Directories and the times that they get at the end.
    directories: Vec<(Arc<dyn Inode>, u32)>,
    /// The directory of the last entry and its path: mostly the next one is in it, too.
    last_directory: Option<(&'static [u8], Location)>,
}

impl Unpacker<'_> {
    fn place(&mut self, entry: &Entry) -> Result<(), Errno> {
        let kind = NodeKind::from_mode(entry.mode).ok_or(Errno::EIO)?;
        let path = strip(entry.name);
        let content = match kind {
            NodeKind::Regular => NewContent::Regular,
            NodeKind::Directory => NewContent::Directory,
            NodeKind::Symlink if entry.data.is_empty() || entry.data.len() >= PATH_MAX => {
                return Err(Errno::EIO);
            }
            NodeKind::Symlink => NewContent::Symlink(entry.data),
            NodeKind::CharacterDevice => NewContent::CharacterDevice(entry.represented_device),
            NodeKind::BlockDevice => NewContent::BlockDevice(entry.represented_device),
            NodeKind::Fifo => NewContent::Fifo,
            NodeKind::Socket => NewContent::Socket,
            NodeKind::Anonymous => return Err(Errno::EIO),
        };
        let key = (entry.inode, entry.device.0, entry.device.1);
        let is_linked = kind == NodeKind::Regular && entry.links > 1;
        let first = self.linked.get(&key).filter(|_| is_linked).cloned();
        let location = match (first, self.create_quickly(path, content, entry)?) {
            (None, Some(location)) => location,
            (Some(first), _) => self.link(path, first)?,
            (None, None) => self.create(path, content, entry)?,
        };
        let node = location.inode.as_any().downcast_ref::<Node>().ok_or(Errno::EIO)?;
        if kind == NodeKind::Regular && !entry.data.is_empty() {
            node.truncate(0)?;
            node.borrow_content(entry.data)?;
        }
        if is_linked {
            heap::tree::insert(&mut self.linked, key, location.clone());
        }
        restore_time(&location.inode, entry.modified_s);
        if kind == NodeKind::Directory {
            self.directories.push((location.inode, entry.modified_s));
        }
        Ok(())
    }

    /// Creates an entry in the directory of the one before. `None` when it is in another one, or the
    /// name is taken, or there is more to it.
    fn create_quickly(
        &self,
        path: &[u8],
        content: NewContent<'_>,
        entry: &Entry,
    ) -> Result<Option<Location>, Errno> {
        let Some((directory, name)) = split(path) else { return Ok(None) };
        let Some((_, place)) = self.last_directory.as_ref().filter(|(last, _)| *last == directory)
        else {
            return Ok(None);
        };
        if entry.links > 1 && content.kind() == NodeKind::Regular {
            return Ok(None);
        }
        match place.inode.create(name, &entry.new_node(content)) {
            Ok(inode) => Ok(Some(Location { mount: place.mount.clone(), inode })),
            Err(Errno::EEXIST) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create(
        &mut self,
        path: &'static [u8],
        content: NewContent<'_>,
        entry: &Entry,
    ) -> Result<Location, Errno> {
        let location = match clear(self.lookup, path, content.kind(), None)? {
            Some(directory) => directory,
            None => {
                make_parents(self.lookup, path)?;
                tree::create(self.lookup, path, content, entry.mode & 0o7777)?
            }
        };
        location.inode.set_attributes(&AttributeChange {
            mode: Some(entry.mode & 0o7777),
            user: Some(entry.user),
            group: Some(entry.group),
            ..AttributeChange::default()
        })?;
        self.remember_directory(path);
        Ok(location)
    }

    fn link(&mut self, path: &'static [u8], first: Location) -> Result<Location, Errno> {
        clear(self.lookup, path, NodeKind::Regular, Some(first.inode.id()))?;
        make_parents(self.lookup, path)?;
        match tree::link(self.lookup, &first, path) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error),
        }
        self.remember_directory(path);
        Ok(first)
    }

    /// Something was looked up in full, so what is remembered may be another directory by now.
    fn remember_directory(&mut self, path: &'static [u8]) {
        self.last_directory = split(path).and_then(|(directory, _)| {
            let whole: &[u8] = if directory.is_empty() { b"." } else { directory };
            Some((directory, resolve(self.lookup, whole, true).ok()?))
        });
    }
}

impl Entry {
    fn new_node<'a>(&self, content: NewContent<'a>) -> NewNode<'a> {
        NewNode { content, mode: self.mode & 0o7777, user: self.user, group: self.group }
    }
}

/// The directory and the plain name of a path; `None` when the last component is anything else.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let (directory, name) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (path.get(..slash)?, path.get(slash + 1..)?),
        None => (&path[..0], path),
    };
    let is_plain = !matches!(name, b"" | b"." | b"..") && name.len() <= NAME_MAX;
    if is_plain { Some((directory, name)) } else { None }
}

fn strip(name: &'static [u8]) -> &'static [u8] {
    let mut name = name;
    loop {
        name = match name {
            [b'/', rest @ ..] => rest,
            [b'.', b'/', rest @ ..] => rest,
            [] => return b".",
            _ => return name,
        };
    }
}

/// Makes room for an entry: gives an existing directory back when one is wanted, removes anything
/// else, except the inode `keep`.
fn clear(
    lookup: Lookup<'_>,
    path: &[u8],
    kind: NodeKind,
    keep: Option<InodeId>,
) -> Result<Option<Location>, Errno> {
    let found = match resolve(lookup, path, false) {
        Ok(found) => found,
        Err(Errno::ENOENT) => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_directory = found.inode.kind() == NodeKind::Directory;
    if is_directory && kind == NodeKind::Directory {
        return Ok(Some(found));
    }
    if Some(found.inode.id()) == keep {
        return Ok(None);
    }
    if is_directory {
        tree::remove_directory(lookup, path)?;
    } else {
        tree::unlink(lookup, path)?;
    }
    Ok(None)
}

fn make_parents(lookup: Lookup<'_>, path: &[u8]) -> Result<(), Errno> {
    let Some(end) = path.iter().rposition(|&byte| byte == b'/') else { return Ok(()) };
    if resolve(lookup, path.get(..end).unwrap_or(&[]), true).is_ok() {
        return Ok(());
    }
    let slashes = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
    for (index, _) in slashes {
        let parent = path.get(..index).filter(|parent| !parent.is_empty());
        let Some(parent) = parent else { continue };
        match tree::create(lookup, parent, NewContent::Directory, 0o755) {
            Ok(_) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
