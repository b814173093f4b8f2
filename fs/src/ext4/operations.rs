//! What `remote` asks an ext4 for: one function per question, each an operation of the fibre.

use super::extra::{is_hidden, link_nameless};
use super::{Held, Volume, errno, kind_of};
use crate::listing::Entry;
use crate::metadata::{NodeKind, Timestamp};
use crate::remote::server::{Attributes, Change, NewTime, is_plain_name};
use crate::remote::{Made, Owner};
use abi::Errno;
use abi::fs::{RenameFlags, device_major, device_minor};
use alloc::sync::Arc;
use alloc::vec::Vec;
use rsext4::{
    DeviceNumber, DirectoryCursor, Ext4Timestamp, FileName, FilePermissions, InodeMetadataUpdate,
    InodeNumber, MountOptions, MutationContext, RenameOptions, SpecialInodeKind,
};

/// Entries of a directory that are read at a time.
const ENTRIES: usize = 256;
/// Most entries of one directory.
const MOST_ENTRIES: usize = 1 << 20;
/// Longest text of a symbolic link, in bytes.
const LONGEST_LINK: usize = 4095;

pub(super) fn number_of(held: &Held) -> Result<InodeNumber, Errno> {
    InodeNumber::new(held.number).map_err(errno)
}

pub(super) fn name_of(name: &[u8]) -> Result<FileName<'_>, Errno> {
    FileName::new(name).map_err(errno)
}

pub(super) fn copied(bytes: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| Errno::ENOMEM)?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

impl Volume {
    pub(crate) async fn walk(
        self: &Arc<Volume>,
        directory: &Held,
        name: &[u8],
    ) -> Result<(Held, Attributes), Errno> {
        let (directory, name) = (number_of(directory)?, copied(name)?);
        self.run_holding(move |mounted| {
            if is_hidden(directory, &name) {
                return Err(Errno::ENOENT);
            }
            let found = mounted.lookup_child(directory, name_of(&name)?).map_err(errno)?;
            found.ok_or(Errno::ENOENT)
        })
        .await
    }

    pub(crate) async fn attributes(&self, file: &Held) -> Result<Attributes, Errno> {
        let (number, volume) = (number_of(file)?, file.volume.clone());
        self.run(move |mounted| volume.attributes_of(&mounted.inode(number).map_err(errno)?)).await
    }

    pub(crate) async fn change(&self, file: &Held, change: &Change) -> Result<(), Errno> {
        let (number, change, volume) = (number_of(file)?, *change, file.volume.clone());
        self.run(move |mounted| {
            let now = volume.begin_now()?;
            if let Some(size) = change.size {
                mounted.truncate_inode(number, size).map_err(errno)?;
            }
            let time = |time: Option<NewTime>| {
                let time = match time? {
                    NewTime::Now => now,
                    NewTime::At(time) => time,
                };
                Some(time)
            };
            let disk = |time: Timestamp| Ext4Timestamp::new(time.seconds, time.nanoseconds);
            let (accessed, modified) = (time(change.accessed), time(change.modified));
            let cut = change.size.map(|_| now);
            let permissions = match change.mode {
                Some(mode) => Some(FilePermissions::new(mode as u16 & 0o7777).map_err(errno)?),
                None => None,
            };
            let owner = match (change.user, change.group) {
                (None, None) => None,
                (user, group) => {
                    let info = mounted.inode(number).map_err(errno)?;
                    Some((user.unwrap_or(info.uid), group.unwrap_or(info.gid)))
                }
            };
            let update = InodeMetadataUpdate {
                permissions,
                owner,
                atime: accessed.map(disk),
                mtime: modified.map(disk),
                ..InodeMetadataUpdate::default()
            };
            mounted.update_inode_metadata(number, update).map_err(errno)?;
            volume.note_times(number, [accessed, modified.or(cut), Some(now), None]);
            Ok(())
        })
        .await
    }

    pub(crate) async fn make(
        self: &Arc<Volume>,
        directory: &Held,
        name: &[u8],
        owner: Owner,
        content: Made,
    ) -> Result<(Held, Attributes), Errno> {
        const KIND: u32 = 0o170_000;
        let (directory, name) = (number_of(directory)?, copied(name)?);
        let volume = self.clone();
        self.run_holding(move |mounted| {
            if is_hidden(directory, &name) {
                return Err(Errno::EINVAL);
            }
            let now = volume.begin_now()?;
            let context = MutationContext::new(owner.user, owner.group, 0, 0);
            let name = name_of(&name)?;
            let mode = FilePermissions::new(owner.mode as u16 & 0o7777).map_err(errno)?;
            if matches!(content, Made::Directory | Made::Link(_)) {
                volume.journal.commit_freed(mounted)?;
            }
            match content {
                Made::File => mounted.create_regular_file(context, directory, name, mode),
                Made::Directory => mounted.create_directory(context, directory, name, mode),
                Made::Link(target) => mounted.create_symlink(context, directory, name, &target),
                Made::Node(kind, number) => {
                    let number = || {
                        DeviceNumber::new(device_major(number), device_minor(number)).map_err(errno)
                    };
                    let kind = match NodeKind::from_mode(kind & KIND) {
                        Some(NodeKind::CharacterDevice) => {
                            SpecialInodeKind::CharacterDevice(number()?)
                        }
                        Some(NodeKind::BlockDevice) => SpecialInodeKind::BlockDevice(number()?),
                        Some(NodeKind::Fifo) => SpecialInodeKind::Fifo,
                        Some(NodeKind::Socket) => SpecialInodeKind::Socket,
                        _ => return Err(Errno::EINVAL),
                    };
                    mounted.create_special_inode(context, directory, name, mode, kind)
                }
            }
            .map_err(errno)
            .inspect(|info| {
                volume.note_times(info.number, [Some(now); 4]);
                volume.note_change(directory, now);
            })
        })
        .await
    }

    pub(crate) async fn link(
        self: &Arc<Volume>,
        directory: &Held,
        file: &Held,
        name: &[u8],
    ) -> Result<(), Errno> {
        let (directory, file, name) = (number_of(directory)?, number_of(file)?, copied(name)?);
        if is_hidden(directory, &name) {
            return Err(Errno::EINVAL);
        }
        let volume = self.clone();
        self.run(move |mounted| {
            let now = volume.begin_now()?;
            volume.note_change(directory, now);
            volume.note_times(file, [None, None, Some(now), None]);
            if let Some(index) = volume.take_nameless(file.raw()) {
                return link_nameless(mounted, index, directory, name_of(&name)?)
                    .inspect_err(|_| volume.keep_nameless(file.raw(), index));
            }
            mounted.hard_link(file, directory, name_of(&name)?).map(|_| ()).map_err(errno)
        })
        .await
    }

    pub(crate) async fn unlink(
        self: &Arc<Volume>,
        directory: &Held,
        name: &[u8],
        is_directory: bool,
    ) -> Result<(), Errno> {
        let (directory, name, volume) = (number_of(directory)?, copied(name)?, self.clone());
        self.run(move |mounted| {
            let name = name_of(&name)?;
            let now = volume.begin_now()?;
            let outcome = match is_directory {
                true => mounted.remove_empty_directory(directory, name),
                false => mounted.unlink(directory, name),
            }
            .map_err(errno)?;
            volume.note_change(directory, now);
            volume.note_times(outcome.inode, [None, None, Some(now), None]);
            if outcome.requires_reap() {
                volume.lost_its_name(mounted, outcome.inode.raw());
            }
            Ok(())
        })
        .await
    }

    pub(crate) async fn rename(
        self: &Arc<Volume>,
        (from, old): (&Held, &[u8]),
        (to, new): (&Held, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let (from, to) = (number_of(from)?, number_of(to)?);
        let (old, new, volume) = (copied(old)?, copied(new)?, self.clone());
        self.run(move |mounted| {
            if is_hidden(from, &old) || is_hidden(to, &new) {
                return Err(Errno::EINVAL);
            }
            let (old, new) = (name_of(&old)?, name_of(&new)?);
            let options = match flags.contains(RenameFlags::EXCHANGE) {
                true => RenameOptions::EXCHANGE,
                false => RenameOptions::REPLACE,
            };
            let now = volume.begin_now()?;
            let outcome = mounted.rename(from, old, to, new, options).map_err(errno)?;
            volume.note_change(from, now);
            volume.note_change(to, now);
            for (directory, name) in [(from, old), (to, new)] {
                if let Ok(Some(info)) = mounted.lookup_child(directory, name) {
                    volume.note_times(info.number, [None, None, Some(now), None]);
                }
            }
            if let Some(replaced) = outcome.replaced.filter(|replaced| replaced.requires_reap()) {
                volume.lost_its_name(mounted, replaced.inode.raw());
            }
            if flags.contains(RenameFlags::WHITEOUT) {
                let context = MutationContext::new(0, 0, 0, 0);
                let mode = FilePermissions::new(0).map_err(errno)?;
                let number = DeviceNumber::new(0, 0).map_err(errno)?;
                let kind = SpecialInodeKind::CharacterDevice(number);
                let made = mounted.create_special_inode(context, from, old, mode, kind);
                volume.note_times(made.map_err(errno)?.number, [Some(now); 4]);
            }
            Ok(())
        })
        .await
    }

    pub(crate) async fn read_link(&self, file: &Held) -> Result<Vec<u8>, Errno> {
        let text = self.read(file, 0, LONGEST_LINK + 1).await?;
        let is_good = !text.is_empty() && text.len() <= LONGEST_LINK && !text.contains(&0);
        if is_good { Ok(text) } else { Err(Errno::EIO) }
    }

    pub(crate) async fn read(
        &self,
        file: &Held,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, Errno> {
        let (number, journal) = (number_of(file)?, self.journal.clone());
        self.run(move |mounted| {
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
            bytes.resize(length, 0);
            let count = match mounted.read_inode(number, offset, &mut bytes) {
                // The bytes are there; the time of access cannot be kept.
                Err(error) if journal.is_lost() && errno(error) == Errno::EROFS => {
                    let size = mounted.inode(number).map_err(errno)?.size;
                    usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX)
                }
                result => result.map_err(errno)?,
            };
            bytes.truncate(count);
            Ok(bytes)
        })
        .await
    }

    /// Writes bytes that were given at a time.
    pub(crate) async fn write(
        &self,
        file: &Held,
        offset: u64,
        bytes: &[u8],
        when: Timestamp,
    ) -> Result<(), Errno> {
        let (number, bytes, volume) = (number_of(file)?, copied(bytes)?, file.volume.clone());
        self.run(move |mounted| {
            volume.begin_at(when)?;
            volume.journal.commit_freed(mounted)?;
            mounted.write_inode(number, offset, &bytes).map_err(errno)?;
            volume.note_change(number, when);
            Ok(())
        })
        .await
    }

    /// Commits everything. `EROFS` where what was changed has been lost.
    pub(crate) async fn sync(&self) -> Result<(), Errno> {
        let journal = self.journal.clone();
        self.run(move |mounted| {
            if journal.is_lost() {
                return Err(Errno::EROFS);
            }
            journal.commit(mounted)
        })
        .await
    }

    pub(crate) async fn entries(&self, directory: &Held) -> Result<Vec<Entry>, Errno> {
        let number = number_of(directory)?;
        let mut entries = Vec::new();
        let mut cursor = DirectoryCursor::Start;
        loop {
            // A part at a time: a large directory must not keep others waiting.
            let part = self
                .run(move |mounted| mounted.read_directory(number, cursor, ENTRIES).map_err(errno))
                .await?;
            let Some(last) = part.last() else { return Ok(entries) };
            cursor = last.next_cursor;
            if entries.len() + part.len() > MOST_ENTRIES {
                // Perhaps the same ones again and again.
                return Err(Errno::EIO);
            }
            entries.try_reserve(part.len()).map_err(|_| Errno::ENOMEM)?;
            for entry in part {
                if entry.name == b"." || entry.name == b".." || is_hidden(number, &entry.name) {
                    continue;
                }
                if !is_plain_name(&entry.name) {
                    return Err(Errno::EIO);
                }
                let kind = kind_of(entry.file_type).unwrap_or(NodeKind::Regular);
                let name = Arc::from(entry.name);
                entries.push(Entry { name, number: entry.inode.as_u64(), kind });
            }
            if cursor == DirectoryCursor::End {
                return Ok(entries);
            }
        }
    }

    /// Block size, blocks, free blocks, inodes, free inodes, after the last operation.
    pub(crate) fn statistics(&self) -> [u64; 5] {
        self.shared.queue.lock().statistics
    }

    pub(crate) async fn set_read_only(&self, is_read_only: bool) -> Result<(), Errno> {
        let journal = self.journal.clone();
        self.run(move |mounted| {
            if journal.is_lost() {
                return if is_read_only { Ok(()) } else { Err(Errno::EROFS) };
            }
            let options = MountOptions { readonly: is_read_only, ..mounted.options() };
            mounted.remount(options).map_err(errno)
        })
        .await
    }
}
