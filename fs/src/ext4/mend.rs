//! What the crate leaves wrong in its metadata is put right on the way to the disk.
//!
//! - The bitmap of the inodes of a group that `mke2fs` left uninitialised: bits past the last inode must be set.
//! - The count of blocks of a directory: those of its extent tree are missing.
//!
//! Only what is written to its own place is looked at, not the journal: a journal that somebody else replays brings the crate's
//! version back, which `e2fsck` complains of, until the block is written the next time. The crate sees its own version as
//! long as it remembers the block; neither difference means anything to it.

use super::io::DiskIo;
use super::times::{u16_at, u32_at};
use alloc::vec::Vec;
use rsext4::crc32c::{crc32c_append, crc32c_init};

/// Most groups of a volume that is looked after.
const MOST_GROUPS: u64 = 1 << 16;
/// Descriptors of groups in a place of their own.
const META_BG: u32 = 0x10;
/// The seed of checksums is in the superblock.
const CSUM_SEED: u32 = 0x2000;
/// Descriptors may be wider than 32 bytes.
const WIDE: u32 = 0x80;
/// Metadata has checksums.
const METADATA_CSUM: u32 = 0x400;
/// Flags of an inode: has extents; its blocks are counted in blocks and not in units of 512 bytes.
const EXTENTS: u32 = 0x80000;
const HUGE_FILE: u32 = 0x40000;
const EXTENT_MAGIC: u16 = 0xf30a;

/// Where the metadata of a volume lies, in bytes.
pub(super) struct Places {
    block_size: u64,
    /// Inode bitmaps, in order.
    bitmaps: Vec<u64>,
    /// Bytes of a bitmap that stand for inodes.
    bitmap_bytes: usize,
    /// Inode tables and their groups, in order.
    tables: Vec<(u64, u32)>,
    table_bytes: u64,
    inodes_per_group: u32,
    inode_size: usize,
    /// For checksums; `None` where there are none.
    seed: Option<u32>,
}

impl Places {
    /// Of the volume on a disk; `None` where nothing makes sense, or its layout is not one of those that are known.
    pub(super) fn of(io: &DiskIo) -> Option<Places> {
        let mut superblock = [0; 1024];
        io.peek(1024, &mut superblock).ok()?;
        let field = |at: usize| u32_at(&superblock, at);
        let block_size = 1024_u64.checked_shl(field(24)?).filter(|size| *size <= 65_536)?;
        let (incompatible, read_only_compatible) = (field(96)?, field(100)?);
        if incompatible & META_BG != 0 {
            return None;
        }
        let is_wide = incompatible & WIDE != 0;
        let width = if is_wide { u64::from(u16_at(&superblock, 254)?) } else { 32 };
        let (first_block, inodes_per_group) = (u64::from(field(20)?), field(40)?);
        let blocks = u64::from(field(4)?) | if is_wide { u64::from(field(336)?) << 32 } else { 0 };
        let blocks_per_group = u64::from(field(32)?);
        let inode_size = usize::from(u16_at(&superblock, 88)?);
        let groups = blocks.checked_sub(first_block)?.div_ceil(blocks_per_group.max(1));
        let has_sense = (32..=1024).contains(&width)
            && (1..=MOST_GROUPS).contains(&groups)
            && inodes_per_group % 8 == 0
            && (1..=block_size * 8).contains(&u64::from(inodes_per_group))
            && inode_size >= 128
            && inode_size as u64 <= block_size;
        if !has_sense {
            return None;
        }
        let seed = match incompatible & CSUM_SEED {
            0 => crc32c_append(crc32c_init(), superblock.get(104..120)?),
            _ => field(624)?,
        };
        let mut places = Places {
            block_size,
            bitmaps: Vec::new(),
            bitmap_bytes: (inodes_per_group / 8) as usize,
            tables: Vec::new(),
            table_bytes: u64::from(inodes_per_group) * inode_size as u64,
            inodes_per_group,
            inode_size,
            seed: (read_only_compatible & METADATA_CSUM != 0).then_some(seed),
        };
        places.bitmaps.try_reserve_exact(groups as usize).ok()?;
        places.tables.try_reserve_exact(groups as usize).ok()?;
        for group in 0..groups {
            let mut descriptor = [0; 64];
            let length = (width as usize).min(64);
            let at = (first_block + 1) * block_size + group * width;
            io.peek(at, descriptor.get_mut(..length)?).ok()?;
            let place = |low: usize, high: usize| {
                let block = u64::from(u32_at(&descriptor, low)?)
                    | u64::from(u32_at(&descriptor, high)?) << 32;
                block.checked_mul(block_size)
            };
            places.bitmaps.push(place(4, 36)?);
            places.tables.push((place(8, 40)?, group as u32));
        }
        places.bitmaps.sort_unstable();
        places.tables.sort_unstable();
        Some(places)
    }

    /// What is to be written at a place of the disk instead of these bytes, if anything is wrong in them.
    pub(super) fn mended(&self, offset: u64, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut changed = None;
        // Without memory the rest stays as the crate has it.
        let _ = self.pad_bitmaps(offset, bytes, &mut changed);
        let _ = self.count_blocks(offset, bytes, &mut changed);
        changed
    }

    fn pad_bitmaps(&self, offset: u64, bytes: &[u8], changed: &mut Option<Vec<u8>>) -> Option<()> {
        let end = offset + bytes.len() as u64;
        let first = self.bitmaps.partition_point(|place| *place < offset);
        for place in self.bitmaps.get(first..)?.iter().take_while(|place| **place < end) {
            let start = (place - offset) as usize + self.bitmap_bytes;
            let padding = start..((place - offset + self.block_size) as usize).min(bytes.len());
            if bytes.get(padding.clone())?.iter().any(|byte| *byte != 0xff) {
                copy_of(changed, bytes)?.get_mut(padding)?.fill(0xff);
            }
        }
        Some(())
    }

    fn count_blocks(&self, offset: u64, bytes: &[u8], changed: &mut Option<Vec<u8>>) -> Option<()> {
        let next = self.tables.partition_point(|(place, _)| *place <= offset);
        let (table, group) = *self.tables.get(next.checked_sub(1)?)?;
        let size = self.inode_size as u64;
        let is_inside = offset + bytes.len() as u64 - table <= self.table_bytes;
        if !is_inside || !(offset - table).is_multiple_of(size) {
            return None;
        }
        let first = ((offset - table) / size) as u32;
        for (index, raw) in bytes.chunks_exact(self.inode_size).enumerate() {
            let Some(count) = self.count_of_directory(raw) else { continue };
            let number = group.wrapping_mul(self.inodes_per_group);
            let number = number.wrapping_add(first + index as u32 + 1);
            let start = index * self.inode_size;
            let raw = copy_of(changed, bytes)?.get_mut(start..start + self.inode_size)?;
            self.set_count(raw, number, count);
        }
        Some(())
    }

    /// What the count of blocks of an inode ought to be, in units of 512 bytes, where the inode is that of a directory whose
    /// count lacks blocks of its extent tree. `None` for a tree of more than one level below its root.
    fn count_of_directory(&self, raw: &[u8]) -> Option<u32> {
        let flags = u32_at(raw, 32)?;
        let is_directory = u16_at(raw, 0)? & 0xf000 == 0x4000;
        if !is_directory || flags & EXTENTS == 0 || flags & HUGE_FILE != 0 {
            return None;
        }
        let (magic, leaves, depth) = (u16_at(raw, 40)?, u16_at(raw, 42)?, u16_at(raw, 46)?);
        if magic != EXTENT_MAGIC || depth != 1 || u16_at(raw, 116)? != 0 {
            return None;
        }
        let size = u64::from(u32_at(raw, 4)?) | u64::from(u32_at(raw, 108)?) << 32;
        let has_attributes = u32_at(raw, 104)? != 0 || u16_at(raw, 118)? != 0;
        let unit = self.block_size / 512;
        let least = size.div_ceil(self.block_size).checked_add(has_attributes.into())?;
        let (least, count) =
            (least.checked_mul(unit)?, (least + u64::from(leaves)).checked_mul(unit)?);
        let said = u64::from(u32_at(raw, 28)?);
        (least <= said && said < count).then(|| u32::try_from(count).ok()).flatten()
    }

    fn set_count(&self, raw: &mut [u8], number: u32, count: u32) {
        put(raw, 28, &count.to_le_bytes());
        let Some(seed) = self.seed else { return };
        let is_long = self.inode_size > 128 && u16_at(raw, 128).is_some_and(|extra| extra >= 4);
        put(raw, 124, &[0; 2]);
        if is_long {
            put(raw, 130, &[0; 2]);
        }
        let sum = crc32c_append(seed, &number.to_le_bytes());
        let sum = crc32c_append(sum, raw.get(100..104).unwrap_or_default());
        let [low, more, high, highest] = crc32c_append(sum, raw).to_le_bytes();
        put(raw, 124, &[low, more]);
        if is_long {
            put(raw, 130, &[high, highest]);
        }
    }
}

fn put(raw: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(field) = raw.get_mut(at..at + bytes.len()) {
        field.copy_from_slice(bytes);
    }
}

/// The copy of these bytes that is changed; `None` without memory.
fn copy_of<'a>(changed: &'a mut Option<Vec<u8>>, bytes: &[u8]) -> Option<&'a mut [u8]> {
    if changed.is_none() {
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes.len()).ok()?;
        copy.extend_from_slice(bytes);
        *changed = Some(copy);
    }
    changed.as_deref_mut()
}
