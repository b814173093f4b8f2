//! Tables of partitions: MBR with logical partitions, and GPT.
//!
//! What is on a disk is not trusted: sums are checked, numbers are limited, a chain of logical partitions ends after
//! `MOST` of them, and a partition that lies beyond the end or overlaps an earlier one is left out, as is one of no size. A table
//! that makes no sense is none.
//!
//! Sources: UEFI 2.10, chapter 5; for logical partitions what `fdisk` of util-linux writes.

use abi::Errno;
use alloc::vec::Vec;

/// Most partitions of a disk.
pub const MOST: usize = 128;
/// Bytes of an entry of an MBR, and where its entries begin.
const MBR_ENTRY: usize = 16;
const MBR_ENTRIES: usize = 446;
/// Logical partitions begin with this number.
const FIRST_LOGICAL: u32 = 5;
/// Smallest and largest size of an entry of a GPT, in bytes.
const GPT_ENTRY: core::ops::RangeInclusive<usize> = 128..=1024;

/// A part of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, from 1.
    pub number: u32,
    /// Where it begins, in bytes.
    pub start: u64,
    /// Its size in bytes.
    pub size: u64,
}

/// Reads bytes of the disk.
type Read<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> Result<(), Errno>;

struct Disk<'a> {
    size: u64,
    sector: u64,
    read: Read<'a>,
}

/// The partitions of a disk of `size` bytes, in the order of their numbers; none when there is no table.
///
/// # Errors
/// Those of `read`; `ENOMEM`.
pub fn read(size: u64, sector: u64, read: Read<'_>) -> Result<Vec<Partition>, Errno> {
    let mut found = Found { partitions: Vec::new(), size, extended: 0 };
    if sector < 512 || size < 2 * sector {
        return Ok(found.partitions);
    }
    let mut disk = Disk { size, sector, read };
    let first = disk.sector_at(0)?;
    let Some(entries) = mbr_entries(&first) else { return Ok(found.partitions) };
    const PROTECTIVE: u8 = 0xee;
    if entries.iter().any(|entry| entry.kind == PROTECTIVE) {
        let last = size / sector - 1;
        for place in [1, last] {
            if gpt(&mut disk, place, &mut found)? {
                return Ok(found.partitions);
            }
        }
        return Ok(found.partitions);
    }
    mbr(&mut disk, &entries, &mut found)?;
    Ok(found.partitions)
}

/// What was found so far.
struct Found {
    partitions: Vec<Partition>,
    size: u64,
    /// Bits of the numbers of extended partitions, in which others lie.
    extended: u32,
}

impl Found {
    /// Adds a partition if it makes sense; one that is too long ends with the disk where `cuts`.
    fn add(&mut self, number: u32, start: u64, size: u64, cuts: bool) -> Result<(), Errno> {
        let Some(end) = start.checked_add(size) else { return Ok(()) };
        let end = if cuts { end.min(self.size) } else { end };
        let overlaps = |other: &Partition| {
            let holds_others = self.extended >> other.number.min(31) & 1 != 0;
            !holds_others && start < other.start + other.size && other.start < end
        };
        let is_good = start > 0 && start < end && end <= self.size;
        if !is_good || self.partitions.len() >= MOST || self.partitions.iter().any(overlaps) {
            log::warn!("partition {number} is left out: bytes {start} to {end} of {}", self.size);
            return Ok(());
        }
        self.partitions.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.partitions.push(Partition { number, start, size: end - start });
        Ok(())
    }
}

impl Disk<'_> {
    fn sector_at(&mut self, number: u64) -> Result<Vec<u8>, Errno> {
        self.bytes(number, self.sector as usize)
    }

    /// `length` bytes from a sector on; `EIO` beyond the end.
    fn bytes(&mut self, sector: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let start = sector.checked_mul(self.sector).ok_or(Errno::EIO)?;
        let end = start.checked_add(length as u64).ok_or(Errno::EIO)?;
        if end > self.size {
            return Err(Errno::EIO);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
        bytes.resize(length, 0);
        (self.read)(start, &mut bytes)?;
        Ok(bytes)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// An entry of an MBR, in sectors.
#[derive(Clone, Copy)]
struct MbrEntry {
    kind: u8,
    start: u64,
    size: u64,
}

impl MbrEntry {
    fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85) && self.size > 0
    }

    fn is_partition(&self) -> bool {
        self.kind != 0 && self.size > 0 && !self.is_extended()
    }
}

/// The four entries of a sector; `None` when it has no table: a boot sector of a file system has the same signature, but not
/// four marks that are 0 or 0x80.
fn mbr_entries(sector: &[u8]) -> Option<[MbrEntry; 4]> {
    const SIGNATURE: [u8; 2] = [0x55, 0xaa];
    if sector.get(510..512)? != SIGNATURE {
        return None;
    }
    let mut entries = [MbrEntry { kind: 0, start: 0, size: 0 }; 4];
    for (index, entry) in entries.iter_mut().enumerate() {
        let at = MBR_ENTRIES + index * MBR_ENTRY;
        if !matches!(sector.get(at)?, 0 | 0x80) {
            return None;
        }
        let (start, size) = (u32_at(sector, at + 8), u32_at(sector, at + 12));
        *entry = MbrEntry { kind: *sector.get(at + 4)?, start: start.into(), size: size.into() };
    }
    Some(entries)
}

fn mbr(disk: &mut Disk<'_>, entries: &[MbrEntry; 4], found: &mut Found) -> Result<(), Errno> {
    let sector = disk.sector;
    for (number, entry) in (1..).zip(entries) {
        if entry.is_partition() {
            found.add(number, entry.start * sector, entry.size * sector, true)?;
        } else if entry.is_extended() {
            // As on Linux: so much that a loader fits in. What is in it gets numbers of its own.
            let size = (entry.size * sector).min(sector.max(1024));
            found.add(number, entry.start * sector, size, true)?;
            found.extended |= 1 << number;
        }
    }
    let mut number = FIRST_LOGICAL;
    for entry in entries.iter().filter(|entry| entry.is_extended()) {
        logical(disk, entry, &mut number, found)?;
    }
    Ok(())
}

/// Follows the chain of logical partitions of an extended one.
fn logical(
    disk: &mut Disk<'_>,
    extended: &MbrEntry,
    number: &mut u32,
    found: &mut Found,
) -> Result<(), Errno> {
    let sector = disk.sector;
    let end = extended.start + extended.size;
    let mut here = extended.start;
    // A chain may lead back to where it has been.
    for _ in 0..MOST {
        if here == 0 || (here + 1) * sector > disk.size {
            return Ok(());
        }
        let bytes = disk.sector_at(here)?;
        let Some(entries) = mbr_entries(&bytes) else { return Ok(()) };
        for entry in entries.iter().filter(|entry| entry.is_partition()) {
            let start = here + entry.start;
            if start > here && start + entry.size <= end {
                let before = found.partitions.len();
                found.add(*number, start * sector, entry.size * sector, true)?;
                if found.partitions.len() == before {
                    // The chain is at a place where it was already, or is made up.
                    return Ok(());
                }
                *number += 1;
            }
        }
        let Some(next) = entries.iter().find(|entry| entry.is_extended()) else { return Ok(()) };
        here = extended.start + next.start;
        if next.start >= extended.size {
            return Ok(());
        }
    }
    Ok(())
}

/// Reads the GPT whose header is in a sector; false when there is none that is whole.
fn gpt(disk: &mut Disk<'_>, place: u64, found: &mut Found) -> Result<bool, Errno> {
    const SIGNATURE: &[u8] = b"EFI PART";
    const LEAST_HEADER: usize = 92;
    let header = disk.sector_at(place)?;
    let length = u32_at(&header, 12) as usize;
    if header.get(..8) != Some(SIGNATURE) || length < LEAST_HEADER {
        return Ok(false);
    }
    let Some(summed) = header.get(..length) else { return Ok(false) };
    let mut summed = summed.to_vec();
    if let Some(sum) = summed.get_mut(16..20) {
        sum.fill(0);
    }
    if crc32(&summed) != u32_at(&header, 16) || u64_at(&header, 24) != place {
        return Ok(false);
    }
    let (first_usable, last_usable) = (u64_at(&header, 40), u64_at(&header, 48));
    let (entries_at, count) = (u64_at(&header, 72), u32_at(&header, 80) as usize);
    let entry_size = u32_at(&header, 84) as usize;
    let is_good = GPT_ENTRY.contains(&entry_size)
        && entry_size.is_power_of_two()
        && (1..=MOST).contains(&count)
        && first_usable <= last_usable
        && last_usable < disk.size / disk.sector;
    if !is_good {
        return Ok(false);
    }
    let sector = disk.sector;
    let length = (count * entry_size).next_multiple_of(sector as usize);
    let is_there = entries_at
        .checked_mul(sector)
        .and_then(|start| start.checked_add(length as u64))
        .is_some_and(|end| end <= disk.size);
    if !is_there {
        return Ok(false);
    }
    let bytes = disk.bytes(entries_at, length)?;
    let Some(entries) = bytes.get(..count * entry_size) else { return Ok(false) };
    if crc32(entries) != u32_at(&header, 88) {
        return Ok(false);
    }
    for (number, entry) in (1..).zip(entries.chunks_exact(entry_size)) {
        let is_used = entry.iter().take(16).any(|&byte| byte != 0);
        let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
        if is_used && first >= first_usable && first <= last && last <= last_usable {
            found.add(number, first * sector, (last - first + 1) * sector, false)?;
        } else if is_used {
            log::warn!("partition {number} is left out: sectors {first} to {last}");
        }
    }
    Ok(true)
}

/// The sum that a GPT has (CRC-32 of IEEE 802.3).
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let mut sum = u32::MAX;
    for &byte in bytes {
        sum ^= u32::from(byte);
        for _ in 0..8 {
            let is_odd = sum & 1 != 0;
            sum >>= 1;
            if is_odd {
                sum ^= POLYNOMIAL;
            }
        }
    }
    !sum
}
