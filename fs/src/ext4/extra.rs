//! What inodes of an ext4 have besides names and bytes in order: extended attributes, reserved and punched
//! ranges, holes, and no name at all.
//!
//! The crate makes every inode with a name. One that shall have none is made in the root under a name that is
//! hidden from everybody, and loses it at once, or, when it may be given one, when nobody holds it any more. What a
//! machine that stopped left there is removed by the next mount.

use super::operations::{copied, name_of, number_of};
use super::{Held, Mounted, Volume, errno, reap};
use crate::remote::Owner;
use crate::remote::server::Attributes;
use abi::Errno;
use abi::fs::{AllocateFlags, XattrFlags};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use rsext4::{
    DirectoryCursor, Ext4ErrorKind, FileExtentState, FileExtentTarget, FileName, FilePermissions,
    InodeNumber, MutationContext, PreallocationOptions, RangeOperation, RenameOptions,
    XattrNamespace, XattrSetMode, ZeroRangeOptions,
};

/// How hidden names in the root begin.
const HIDDEN: &[u8] = b".\x01ferry-nameless-";
/// Extents that are looked at together.
const EXTENTS: usize = 256;
/// Bytes of a range that is reserved, punched or zeroed in one operation.
const MOST_AT_ONCE: u64 = 16 << 20;

/// Name spaces with their prefixes.
const SPACES: [(XattrNamespace, &[u8]); 3] = [
    (XattrNamespace::User, b"user."),
    (XattrNamespace::Trusted, b"trusted."),
    (XattrNamespace::Security, b"security."),
];

fn space_of(name: &[u8]) -> Result<(XattrNamespace, Vec<u8>), Errno> {
    for (space, prefix) in SPACES {
        if let Some(rest) = name.strip_prefix(prefix) {
            return Ok((space, copied(rest)?));
        }
    }
    Err(Errno::EOPNOTSUPP)
}

/// Errors about an attribute: what is not found is not the file.
fn attribute_errno(error: rsext4::Ext4Error) -> Errno {
    match error.kind() {
        Ext4ErrorKind::NotFound => Errno::ENODATA,
        Ext4ErrorKind::FileTooLarge | Ext4ErrorKind::Overflow => Errno::ENOSPC,
        _ => errno(error),
    }
}

/// Whether a name of the root is for nobody to see.
pub(super) fn is_hidden(directory: InodeNumber, name: &[u8]) -> bool {
    directory.raw() == 2 && name.starts_with(HIDDEN)
}

fn hidden_name(index: u64) -> Vec<u8> {
    [HIDDEN, alloc::format!("{index}").as_bytes()].concat()
}

/// Removes what an earlier mount left without a name.
pub(super) fn remove_hidden(mounted: &mut Mounted) {
    let root = mounted.root_inode();
    let mut cursor = DirectoryCursor::Start;
    let mut found = Vec::new();
    while let Ok(part) = mounted.read_directory(root, cursor, EXTENTS) {
        let Some(last) = part.last() else { break };
        cursor = last.next_cursor;
        found.extend(part.into_iter().map(|entry| entry.name).filter(|name| is_hidden(root, name)));
        if cursor == DirectoryCursor::End || found.len() > EXTENTS {
            break;
        }
    }
    for name in found {
        if let Ok(name) = FileName::new(&name)
            && let Ok(outcome) = mounted.unlink(root, name)
            && outcome.requires_reap()
        {
            reap(mounted, outcome.inode.raw());
        }
    }
}

/// Takes the hidden name of an inode away that nobody holds any more.
pub(super) fn remove_nameless(mounted: &mut Mounted, index: u64) {
    let name = hidden_name(index);
    let root = mounted.root_inode();
    if let Ok(name) = FileName::new(&name) {
        match mounted.unlink(root, name) {
            Ok(outcome) if outcome.requires_reap() => reap(mounted, outcome.inode.raw()),
            Ok(_) => {}
            Err(error) => log::error!("ext4: a file without a name cannot be removed: {error}"),
        }
    }
}

/// Gives an inode without a name one.
pub(super) fn link_nameless(
    mounted: &mut Mounted,
    index: u64,
    directory: InodeNumber,
    name: FileName<'_>,
) -> Result<(), Errno> {
    let hidden = hidden_name(index);
    let (root, hidden) = (mounted.root_inode(), name_of(&hidden)?);
    let options = RenameOptions::NO_REPLACE;
    mounted.rename(root, hidden, directory, name, options).map(|_| ()).map_err(errno)
}

/// Bytes of a range that no extent keeps, as far as the file reaches.
fn missing(
    mounted: &mut Mounted,
    number: InodeNumber,
    offset: u64,
    length: u64,
) -> Result<u64, Errno> {
    let target = FileExtentTarget::Data;
    let limit = usize::MAX;
    let map = mounted.inode_extents(number, offset, length, target, limit).map_err(errno)?;
    let end = offset.saturating_add(length);
    let kept = map.extents.iter().map(|extent| {
        let extent_end = extent.logical_start.saturating_add(extent.length);
        extent_end.min(end).saturating_sub(extent.logical_start.max(offset))
    });
    Ok(length.saturating_sub(kept.sum()))
}

impl Volume {
    pub(crate) async fn make_nameless(
        self: &Arc<Volume>,
        owner: Owner,
        is_linkable: bool,
    ) -> Result<(Held, Attributes), Errno> {
        let volume = self.clone();
        let (held, mut attributes) = self
            .run_holding(move |mounted| {
                let now = volume.begin_now()?;
                let context = MutationContext::new(owner.user, owner.group, 0, 0);
                let index = volume.next_nameless();
                let name = hidden_name(index);
                let (root, name) = (mounted.root_inode(), name_of(&name)?);
                let mode = FilePermissions::new(owner.mode as u16 & 0o7777).map_err(errno)?;
                let info = mounted.create_regular_file(context, root, name, mode).map_err(errno)?;
                if !is_linkable {
                    // It is held below, and given back after that.
                    let _ = mounted.unlink(root, name).map_err(errno)?;
                }
                volume.has_no_name(info.number.raw(), is_linkable.then_some(index));
                volume.note_times(info.number, [Some(now); 4]);
                Ok(info)
            })
            .await?;
        attributes.metadata.links = 0;
        Ok((held, attributes))
    }

    pub(crate) async fn extended(&self, file: &Held, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let (number, (space, name)) = (number_of(file)?, space_of(name)?);
        self.run(move |mounted| mounted.get_xattr(number, space, &name).map_err(attribute_errno))
            .await
    }

    pub(crate) async fn extended_names(&self, file: &Held) -> Result<Vec<u8>, Errno> {
        let number = number_of(file)?;
        let names =
            self.run(move |mounted| mounted.list_xattrs(number).map_err(attribute_errno)).await?;
        let mut all = Vec::new();
        for name in names {
            let space = SPACES.iter().find(|(space, _)| *space == name.namespace);
            if let Some((_, prefix)) = space {
                all.try_reserve(prefix.len() + name.name.len() + 1).map_err(|_| Errno::ENOMEM)?;
                all.extend_from_slice(prefix);
                all.extend(name.name.iter().copied().chain([0]));
            }
        }
        Ok(all)
    }

    pub(crate) async fn set_extended(
        &self,
        file: &Held,
        name: &[u8],
        value: Option<Vec<u8>>,
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        let (number, (space, name)) = (number_of(file)?, space_of(name)?);
        let volume = file.volume.clone();
        self.run(move |mounted| {
            let now = volume.begin_now()?;
            volume.note_times(number, [None, None, Some(now), None]);
            let Some(value) = value else {
                return mounted.remove_xattr(number, space, &name).map_err(attribute_errno);
            };
            let mode = if flags == XattrFlags::CREATE | XattrFlags::REPLACE {
                // It has to be there, and must not be.
                mounted.get_xattr(number, space, &name).map_err(attribute_errno)?;
                return Err(Errno::EEXIST);
            } else if flags.contains(XattrFlags::CREATE) {
                XattrSetMode::Create
            } else if flags.contains(XattrFlags::REPLACE) {
                XattrSetMode::Replace
            } else {
                XattrSetMode::Upsert
            };
            mounted.set_xattr(number, space, &name, &value, mode).map_err(attribute_errno)
        })
        .await
    }

    pub(crate) async fn allocate(
        &self,
        file: &Held,
        flags: AllocateFlags,
        range: Range<u64>,
        available: u64,
    ) -> Result<(), Errno> {
        let number = number_of(file)?;
        let keep_size = flags.contains(AllocateFlags::KEEP_SIZE);
        let kind = flags & !AllocateFlags::KEEP_SIZE;
        let operation = if kind.is_empty() {
            RangeOperation::Allocate(PreallocationOptions { keep_size })
        } else if kind == AllocateFlags::PUNCH_HOLE {
            RangeOperation::PunchHole
        } else if kind == AllocateFlags::ZERO_RANGE {
            RangeOperation::Zero(ZeroRangeOptions { keep_size })
        } else if flags == AllocateFlags::COLLAPSE_RANGE {
            RangeOperation::Collapse
        } else if flags == AllocateFlags::INSERT_RANGE {
            RangeOperation::Insert
        } else {
            return Err(Errno::EOPNOTSUPP);
        };
        let moves = matches!(operation, RangeOperation::Collapse | RangeOperation::Insert);
        let reserves = matches!(operation, RangeOperation::Allocate(_) | RangeOperation::Zero(_));
        let (mut at, mut available) = (range.start, available);
        while at < range.end {
            // A part at a time: others wait meanwhile.
            let left = range.end - at;
            let volume = file.volume.clone();
            let part = if moves { left } else { left.min(MOST_AT_ONCE - at % MOST_AT_ONCE) };
            available = self
                .run(move |mounted| {
                    let needed = if reserves { missing(mounted, number, at, part)? } else { 0 };
                    let rest = available.checked_sub(needed).ok_or(Errno::ENOSPC)?;
                    volume.note_change(number, volume.begin_now()?);
                    mounted.operate_inode_range(number, at, part, operation).map_err(errno)?;
                    Ok(rest)
                })
                .await?;
            at += part;
        }
        Ok(())
    }

    pub(crate) async fn seek(&self, file: &Held, offset: u64, hole: bool) -> Result<u64, Errno> {
        let number = number_of(file)?;
        self.run(move |mounted| {
            let size = mounted.inode(number).map_err(errno)?.size;
            let mut at = offset;
            while at < size {
                let target = FileExtentTarget::Data;
                let map =
                    mounted.inode_extents(number, at, size - at, target, EXTENTS).map_err(errno)?;
                for extent in &map.extents {
                    let end = extent.logical_start.saturating_add(extent.length);
                    // What is only reserved reads as zeros.
                    if extent.state == FileExtentState::Unwritten || end <= at {
                        continue;
                    }
                    if extent.logical_start > at {
                        if hole {
                            return Ok(at);
                        }
                        return Ok(extent.logical_start.min(size));
                    }
                    if !hole {
                        return Ok(at);
                    }
                    at = end;
                }
                if map.complete {
                    break;
                }
                let last = map.extents.last().ok_or(Errno::EIO)?;
                let reached = last.logical_start.saturating_add(last.length);
                if hole && reached > at {
                    return Ok(at);
                }
                at = at.max(reached);
            }
            match hole {
                true => Ok(at.min(size)),
                false => Err(Errno::ENXIO),
            }
        })
        .await
    }
}
