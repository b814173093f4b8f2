//! Times to the nanosecond. The crate keeps them on the disk and tells whole seconds.
//!
//! An operation that changes something has one time, which the crate's clock shows as long as it runs; so it is known
//! what it has set. What an earlier mount has set is read where inodes lie on the disk, past the crate. Both
//! count only where the seconds are those that the crate tells.

use super::Volume;
use super::io::DiskIo;
use crate::metadata::{Metadata, Timestamp};
use abi::Errno;
use alloc::collections::BTreeMap;
use base::heap::tree;
use base::sync::{Mutex, rank};
use core::sync::atomic::{AtomicU64, Ordering};
use rsext4::InodeNumber;

/// Inodes whose times are remembered.
const MOST_KNOWN: usize = 32_768;
/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// Times of an inode, as far as they are known: of access, change of content, change of attributes, birth.
pub(super) type Known = [Option<Timestamp>; 4];

/// What the crate's clock shows: nanoseconds since 1970 while an operation has a time, else 0.
#[derive(Default)]
pub(super) struct FixedTime(AtomicU64);

impl FixedTime {
    pub(super) fn shown(&self) -> Timestamp {
        match self.0.load(Ordering::Relaxed) {
            0 => Timestamp::now(),
            ns => Timestamp {
                seconds: (ns / SECOND_NS).cast_signed(),
                nanoseconds: (ns % SECOND_NS) as u32,
            },
        }
    }

    fn fix(&self, time: Timestamp) {
        let ns = time.seconds.max(0).unsigned_abs().saturating_mul(SECOND_NS);
        self.0.store(ns.saturating_add(time.nanoseconds.into()), Ordering::Relaxed);
    }

    /// The operation has ended.
    pub(super) fn release(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Where inodes lie.
struct Layout {
    inodes_per_group: u32,
    inode_size: u64,
    block_size: u64,
    descriptors: u64,
    descriptor_size: u64,
}

/// Times of the inodes of a mount.
pub(super) struct Times {
    known: Mutex<BTreeMap<u32, Known>>,
    layout: Option<Layout>,
    io: DiskIo,
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

impl Layout {
    /// Of the superblock; `None` where inodes have whole seconds alone, or nothing makes sense.
    fn of(superblock: &[u8]) -> Option<Layout> {
        let block_size = 1024_u64.checked_shl(u32_at(superblock, 24)?)?;
        let inode_size = u64::from(u16_at(superblock, 88)?);
        let is_wide = u32_at(superblock, 96)? & 0x80 != 0;
        let wide_size = u64::from(u16_at(superblock, 254)?).max(32);
        let descriptor_size = if is_wide { wide_size } else { 32 };
        let inodes_per_group = u32_at(superblock, 40)?;
        let first_block = u64::from(u32_at(superblock, 20)?);
        let makes_sense = inode_size > 128 && block_size <= 65_536 && inodes_per_group > 0;
        makes_sense.then_some(Layout {
            inodes_per_group,
            inode_size,
            block_size,
            descriptors: (first_block + 1) * block_size,
            descriptor_size,
        })
    }
}

impl Times {
    /// Of the file system on a disk. Called on the fibre.
    pub(super) fn new(io: DiskIo) -> Times {
        let mut superblock = [0; 1024];
        let layout =
            io.peek(1024, &mut superblock).ok().and_then(|()| Layout::of(superblock.as_slice()));
        let known = Mutex::new(&rank::REMOTE_FILES, BTreeMap::new());
        Times { known, layout, io }
    }

    /// The times of an inode as the disk has them.
    fn on_disk(&self, number: u32) -> Option<Known> {
        let layout = self.layout.as_ref()?;
        let index = number.checked_sub(1)?;
        let (group, index) = (index / layout.inodes_per_group, index % layout.inodes_per_group);
        let mut descriptor = [0; 64];
        let size = (layout.descriptor_size as usize).min(64);
        let at = layout.descriptors.checked_add(u64::from(group) * layout.descriptor_size)?;
        self.io.peek(at, descriptor.get_mut(..size)?).ok()?;
        let (low, high) = (u32_at(&descriptor, 8)?, u32_at(&descriptor, 40)?);
        let table = u64::from(low) | u64::from(high) << 32;
        let at = table
            .checked_mul(layout.block_size)?
            .checked_add(u64::from(index) * layout.inode_size)?;
        let mut inode = [0; 160];
        let length = (layout.inode_size as usize).min(160);
        self.io.peek(at, inode.get_mut(..length)?).ok()?;
        let extra = usize::from(u16_at(&inode, 128)?);
        let time = |seconds: usize, more: usize| {
            let seconds = i64::from(u32_at(&inode, seconds)?.cast_signed());
            if more + 4 > 128 + extra {
                return None;
            }
            let more = u32_at(&inode, more)?;
            let nanoseconds = more >> 2;
            let seconds = seconds + (i64::from(more & 3) << 32);
            (u64::from(nanoseconds) < SECOND_NS).then_some(Timestamp { seconds, nanoseconds })
        };
        Some([time(8, 140), time(16, 136), time(12, 132), time(144, 148)])
    }
}

impl Volume {
    /// Gives the change that runs a time. `EROFS` where nothing can be changed any more.
    pub(super) fn begin_at(&self, time: Timestamp) -> Result<Timestamp, Errno> {
        self.check_journal()?;
        self.journal.begin_change();
        self.clock.fix(time);
        Ok(time)
    }

    /// Gives the change that runs the present for its time. `EROFS` as `begin_at`.
    pub(super) fn begin_now(&self) -> Result<Timestamp, Errno> {
        self.begin_at(Timestamp::now())
    }

    /// An operation has set these times of an inode.
    pub(super) fn note_times(&self, number: InodeNumber, set: Known) {
        let Some(times) = self.times.get() else { return };
        let mut known = times.known.lock();
        match known.get_mut(&number.raw()) {
            Some(known) => {
                for (known, set) in known.iter_mut().zip(set) {
                    *known = set.or(*known);
                }
            }
            None => {
                if known.len() >= MOST_KNOWN {
                    known.pop_first();
                }
                tree::insert(&mut known, number.raw(), set);
            }
        }
    }

    /// The content of an inode has changed at a time.
    pub(super) fn note_change(&self, number: InodeNumber, time: Timestamp) {
        self.note_times(number, [None, Some(time), Some(time), None]);
    }

    /// Makes times of whole seconds exact.
    pub(super) fn make_exact(&self, number: u32, metadata: &mut Metadata) {
        let Some(times) = self.times.get() else { return };
        let known = times.known.lock().get(&number).copied().unwrap_or_default();
        let is_same =
            |told: Timestamp, exact: Timestamp| told.seconds as u32 == exact.seconds as u32;
        let told = [metadata.accessed, metadata.modified, metadata.changed, metadata.born];
        let is_complete = known
            .iter()
            .zip(told)
            .all(|(known, told)| known.is_some_and(|known| is_same(told, known)));
        let on_disk = if is_complete { None } else { times.on_disk(number) };
        let on_disk = on_disk.unwrap_or_default();
        let exact = |index: usize| {
            let told = told.get(index).copied().unwrap_or_default();
            let known = known.get(index).copied().flatten().filter(|known| is_same(told, *known));
            let on_disk = on_disk.get(index).copied().flatten();
            known.or(on_disk.filter(|on_disk| is_same(told, *on_disk))).unwrap_or(told)
        };
        (metadata.accessed, metadata.modified) = (exact(0), exact(1));
        (metadata.changed, metadata.born) = (exact(2), exact(3));
        if !is_complete && let Ok(number) = InodeNumber::new(number) {
            let now = [metadata.accessed, metadata.modified, metadata.changed, metadata.born];
            self.note_times(number, now.map(Some));
        }
    }
}
