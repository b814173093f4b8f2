//! Who keeps the files: a server of 9P2000.L, an ext4 on a disk, or a bare disk, and what each can be asked.
//!
//! Every question is a future that ends, with an error if need be.

use super::nine;
use super::{Found, Made, Outcome, Owner};
use crate::block::BareDisk;
use crate::ext4::{Held, Volume};
use crate::listing::Entry;
use crate::metadata::{Metadata, Timestamp};
use abi::Errno;
use abi::fs::{AllocateFlags, NAME_MAX, RenameFlags, XattrFlags};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

/// What the server says about a file.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// Its number there.
    pub number: u64,
    /// All the rest, with the number of this file system.
    pub metadata: Metadata,
}

/// A change of attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub user: Option<u32>,
    /// Group.
    pub group: Option<u32>,
    /// Size.
    pub size: Option<u64>,
    /// Time of access.
    pub accessed: Option<NewTime>,
    /// Time of change.
    pub modified: Option<NewTime>,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTime {
    /// The server's present.
    Now,
    /// This one.
    At(Timestamp),
}

impl NewTime {
    /// Seconds and nanoseconds of what is to be set, if it is a certain time.
    pub fn parts(time: Option<NewTime>) -> Option<(u64, u64)> {
        match time? {
            NewTime::Now => None,
            NewTime::At(time) => Some((time.seconds.cast_unsigned(), u64::from(time.nanoseconds))),
        }
    }
}

/// Whether a server may give something this name: a plain name that stays in its directory.
pub fn is_plain_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= NAME_MAX
        && name != b"."
        && name != b".."
        && !name.iter().any(|&byte| byte == b'/' || byte == 0)
}

/// A file by the number that its server has for it.
pub enum Handle {
    /// At a server of 9P.
    Nine(nine::Handle),
    /// The one file that a bare disk is.
    Disk,
    /// On an ext4.
    Ext4(Held),
}

/// See the module.
#[derive(Clone)]
pub enum Server {
    /// A server of 9P.
    Nine(Arc<nine::Client>),
    /// A bare disk.
    Disk(Arc<BareDisk>),
    /// An ext4.
    Ext4(Arc<Volume>),
}

/// The fid of a handle of a server of 9P.
fn fid(handle: &Handle) -> Result<&nine::Handle, Errno> {
    match handle {
        Handle::Nine(handle) => Ok(handle),
        _ => Err(Errno::EIO),
    }
}

/// The inode of a handle on an ext4.
fn held(handle: &Handle) -> Result<&Held, Errno> {
    match handle {
        Handle::Ext4(held) => Ok(held),
        _ => Err(Errno::EIO),
    }
}

impl Server {
    /// The file of a name in a directory.
    pub async fn walk(
        &self,
        directory: &Handle,
        name: &[u8],
    ) -> Result<(Handle, Attributes), Errno> {
        match self {
            Server::Nine(client) => {
                let (handle, attributes) = client.walk(fid(directory)?, name).await?;
                Ok((Handle::Nine(handle), attributes))
            }
            Server::Ext4(volume) => {
                let (held, attributes) = volume.walk(held(directory)?, name).await?;
                Ok((Handle::Ext4(held), attributes))
            }
            Server::Disk(_) => Err(Errno::ENOTDIR),
        }
    }

    /// Attributes of a file.
    pub async fn attributes(&self, handle: &Handle) -> Result<Attributes, Errno> {
        match self {
            Server::Nine(client) => client.attributes(fid(handle)?).await,
            Server::Ext4(volume) => volume.attributes(held(handle)?).await,
            Server::Disk(disk) => Ok(disk.attributes()),
        }
    }

    /// Changes attributes.
    pub async fn change(&self, handle: &Handle, change: &Change) -> Result<(), Errno> {
        match self {
            Server::Nine(client) => client.change(fid(handle)?, change).await,
            Server::Ext4(volume) => volume.change(held(handle)?, change).await,
            Server::Disk(_) => Err(Errno::EINVAL),
        }
    }

    /// A handle that is open for reading, and for writing if `writes`.
    pub async fn open(&self, handle: &Handle, writes: bool) -> Result<Handle, Errno> {
        match self {
            Server::Nine(client) => client.open_file(fid(handle)?, writes).await.map(Handle::Nine),
            Server::Ext4(volume) => volume.again(held(handle)?).map(Handle::Ext4),
            Server::Disk(_) => Ok(Handle::Disk),
        }
    }

    /// As `open`, where nobody must be asked.
    pub fn open_now(&self, handle: &Handle) -> Option<Handle> {
        match (self, handle) {
            (Server::Ext4(volume), Handle::Ext4(held)) => volume.again(held).ok().map(Handle::Ext4),
            (Server::Disk(_), _) => Some(Handle::Disk),
            _ => None,
        }
    }

    /// Makes an inode without a name.
    pub async fn make_nameless(
        &self,
        owner: Owner,
        is_linkable: bool,
    ) -> Result<(Handle, Attributes), Errno> {
        match self {
            Server::Ext4(volume) => {
                let (held, attributes) = volume.make_nameless(owner, is_linkable).await?;
                Ok((Handle::Ext4(held), attributes))
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// The value of an extended attribute.
    pub async fn extended(&self, handle: &Handle, name: &[u8]) -> Result<Vec<u8>, Errno> {
        match self {
            Server::Ext4(volume) => volume.extended(held(handle)?, name).await,
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// The names of all extended attributes, each with a zero at its end.
    pub async fn extended_names(&self, handle: &Handle) -> Result<Vec<u8>, Errno> {
        match self {
            Server::Ext4(volume) => volume.extended_names(held(handle)?).await,
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Gives an extended attribute a value, or takes it away.
    pub async fn set_extended(
        &self,
        handle: &Handle,
        name: &[u8],
        value: Option<Vec<u8>>,
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        match self {
            Server::Ext4(volume) => volume.set_extended(held(handle)?, name, value, flags).await,
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Reserves, punches, zeroes, cuts out or inserts a range of bytes, with so many bytes of room.
    pub async fn allocate(
        &self,
        handle: &Handle,
        flags: AllocateFlags,
        range: Range<u64>,
        available: u64,
    ) -> Result<(), Errno> {
        match self {
            Server::Ext4(volume) => volume.allocate(held(handle)?, flags, range, available).await,
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// The first data, or hole, at or after an offset. `ENXIO` when there is none.
    pub async fn seek(&self, handle: &Handle, offset: u64, hole: bool) -> Result<u64, Errno> {
        match self {
            Server::Ext4(volume) => volume.seek(held(handle)?, offset, hole).await,
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Whether holes of files are known.
    pub fn knows_holes(&self) -> bool {
        matches!(self, Server::Ext4(_))
    }

    /// Whether inodes have extended attributes.
    pub fn has_extended(&self) -> bool {
        matches!(self, Server::Ext4(_))
    }

    /// Makes something in a directory.
    pub async fn make(
        &self,
        directory: &Handle,
        name: &[u8],
        owner: Owner,
        content: Made,
    ) -> Outcome {
        match self {
            Server::Nine(client) => {
                let (handle, attributes, open) =
                    client.make(fid(directory)?, name, owner, content).await?;
                Ok(Found::Made(Handle::Nine(handle), attributes, open.map(Handle::Nine)))
            }
            Server::Ext4(volume) => {
                let (held, attributes) =
                    volume.make(held(directory)?, name, owner, content).await?;
                Ok(Found::Made(Handle::Ext4(held), attributes, None))
            }
            Server::Disk(_) => Err(Errno::ENOTDIR),
        }
    }

    /// Gives a file one more name.
    pub async fn link(&self, directory: &Handle, file: &Handle, name: &[u8]) -> Result<(), Errno> {
        match self {
            Server::Nine(client) => client.link(fid(directory)?, fid(file)?, name).await,
            Server::Ext4(volume) => volume.link(held(directory)?, held(file)?, name).await,
            Server::Disk(_) => Err(Errno::ENOTDIR),
        }
    }

    /// Removes a name; of a directory when and only when `is_directory`.
    pub async fn unlink(
        &self,
        directory: &Handle,
        name: &[u8],
        is_directory: bool,
    ) -> Result<(), Errno> {
        match self {
            Server::Nine(client) => client.unlink(fid(directory)?, name, is_directory).await,
            Server::Ext4(volume) => volume.unlink(held(directory)?, name, is_directory).await,
            Server::Disk(_) => Err(Errno::ENOTDIR),
        }
    }

    /// Moves a name, exchanges two, or leaves a whiteout behind.
    pub async fn rename(
        &self,
        (from, old): (&Handle, &[u8]),
        (to, new): (&Handle, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        match self {
            Server::Nine(client) => client.rename((fid(from)?, old), (fid(to)?, new)).await,
            Server::Ext4(volume) => {
                volume.rename((held(from)?, old), (held(to)?, new), flags).await
            }
            Server::Disk(_) => Err(Errno::ENOTDIR),
        }
    }

    /// The text of a symbolic link.
    pub async fn read_link(&self, handle: &Handle) -> Result<Vec<u8>, Errno> {
        match self {
            Server::Nine(client) => client.read_link(fid(handle)?).await,
            Server::Ext4(volume) => volume.read_link(held(handle)?).await,
            Server::Disk(_) => Err(Errno::EINVAL),
        }
    }

    /// Up to `length` bytes of an open file from an offset on; fewer at its end.
    pub async fn read(
        &self,
        handle: &Handle,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, Errno> {
        match self {
            Server::Nine(client) => client.read(fid(handle)?, offset, length).await,
            Server::Ext4(volume) => volume.read(held(handle)?, offset, length).await,
            Server::Disk(disk) => disk.read(offset, length).await,
        }
    }

    /// Writes all of `bytes`, which were given at a time, to an open file.
    pub async fn write(
        &self,
        handle: &Handle,
        offset: u64,
        bytes: &[u8],
        when: Timestamp,
    ) -> Result<(), Errno> {
        match self {
            Server::Nine(client) => client.write(fid(handle)?, offset, bytes).await,
            Server::Ext4(volume) => volume.write(held(handle)?, offset, bytes, when).await,
            Server::Disk(disk) => disk.write(offset, bytes).await,
        }
    }

    /// Makes what was written to an open file durable.
    pub async fn sync(&self, handle: &Handle) -> Result<(), Errno> {
        match self {
            Server::Nine(client) => client.sync(fid(handle)?).await,
            Server::Ext4(volume) => volume.sync().await,
            Server::Disk(disk) => disk.flush().await,
        }
    }

    /// Whether what has arrived is durable only after `flush`.
    pub fn has_cache(&self) -> bool {
        match self {
            Server::Nine(_) => false,
            Server::Disk(_) | Server::Ext4(_) => true,
        }
    }

    /// Makes everything that has arrived durable, where there is a way to.
    pub async fn flush(&self) -> Result<(), Errno> {
        match self {
            Server::Nine(_) => Ok(()),
            Server::Ext4(volume) => volume.sync().await,
            Server::Disk(disk) => disk.flush().await,
        }
    }

    /// All entries of a directory but `.` and `..`. `EIO` when a name could lead elsewhere.
    pub async fn entries(&self, directory: &Handle) -> Result<Vec<Entry>, Errno> {
        match self {
            Server::Nine(client) => client.entries(fid(directory)?).await,
            Server::Ext4(volume) => volume.entries(held(directory)?).await,
            Server::Disk(_) => Err(Errno::ENOTDIR),
        }
    }

    /// Numbers of the file system behind a handle: block size, blocks, free blocks, files, free files.
    pub async fn statistics(&self, handle: &Handle) -> Result<[u64; 5], Errno> {
        match self {
            Server::Nine(client) => client.statistics(fid(handle)?).await,
            Server::Ext4(volume) => Ok(volume.statistics()),
            Server::Disk(_) => Ok([4096, 0, 0, 0, 0]),
        }
    }

    /// Writes everything and ends, where that can be.
    pub async fn close(&self) -> Result<(), Errno> {
        match self {
            Server::Ext4(volume) => volume.close().await,
            _ => Ok(()),
        }
    }

    /// From now on nothing is changed, or something may be again.
    pub async fn set_read_only(&self, is_read_only: bool) -> Result<(), Errno> {
        match self {
            Server::Ext4(volume) => volume.set_read_only(is_read_only).await,
            _ => Ok(()),
        }
    }

    /// Whether changes have been lost, so that no others are taken.
    pub fn has_lost_journal(&self) -> bool {
        matches!(self, Server::Ext4(volume) if volume.has_lost_journal())
    }

    /// Name and magic number of the type, and its options for `/proc/mounts`.
    pub fn kind(&self) -> (&'static str, i64, &'static str) {
        match self {
            Server::Nine(_) => ("9p", 0x0102_1997, ",trans=virtio,version=9p2000.L"),
            Server::Disk(_) => ("bdev", 0x6264_6576, ""),
            Server::Ext4(_) => ("ext4", 0xef53, ""),
        }
    }

    /// Whether nobody but this kernel writes there.
    pub fn is_ours_alone(&self) -> bool {
        matches!(self, Server::Ext4(_))
    }
}
