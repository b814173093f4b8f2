//! What crate `rsext4` is given: a disk that blocks, a clock, random bytes.
//!
//! All of it is used by the fibre of a mount alone. A read or write waits for the disk and gives the core
//! back meanwhile. What was read or written in small pieces, the metadata, stays in a cache of this
//! mount, so that going through it again does not wait; every write goes to the disk before it is answered.

use super::journal::Journal;
use super::mend::Places;
use super::times::FixedTime;
use crate::block::BlockDevice;
use abi::Errno;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::heap::tree;
use base::sync::{Mutex, rank};
use base::task::{fibre, yield_now};
use core::sync::atomic::{AtomicU64, Ordering};
use rsext4::{
    BlockIo, Clock, DeviceCapabilities, DeviceGeometry, EntropySource, Ext4Error, Ext4Result,
    Ext4Timestamp, SectorId,
};

/// Bytes of a piece that is cached.
const LINE: usize = 4096;
/// Longest range that goes through the cache, in bytes.
const MOST_CACHED: usize = 4 * LINE;
/// Operations on the disk that are answered from memory before the core is given to others.
const MOST_IN_A_ROW: u32 = 64;

/// Most reads of one operation on a disk of so many bytes: it may look at each of the smallest blocks some times.
fn most_reads(size: u64) -> u64 {
    const LEAST: u64 = 65_536;
    const EACH: u64 = 8;
    LEAST + size / 1024 * EACH
}

/// What is cached.
struct Lines {
    bytes: BTreeMap<u64, Vec<u8>>,
    /// The lines in the order in which they came.
    order: VecDeque<u64>,
    most: usize,
}

/// See the module. A clone shares the cache.
#[derive(Clone)]
pub struct DiskIo {
    device: Arc<BlockDevice>,
    lines: Arc<Mutex<Lines>>,
    in_a_row: u32,
    /// Reads that the operation under way may still make: what an image says may lead in a circle.
    reads_left: Arc<AtomicU64>,
    journal: Arc<Journal>,
    places: Option<Arc<Places>>,
}

fn failed(error: Errno) -> Ext4Error {
    match error {
        Errno::ENOMEM => Ext4Error::no_memory(),
        Errno::EROFS => Ext4Error::read_only(),
        _ => Ext4Error::io(),
    }
}

impl Lines {
    fn keep(&mut self, line: u64, bytes: &[u8]) {
        let mut copy = Vec::new();
        if copy.try_reserve_exact(LINE).is_err() || self.order.try_reserve(1).is_err() {
            return;
        }
        copy.extend_from_slice(bytes);
        if tree::insert(&mut self.bytes, line, copy).is_none() {
            self.order.push_back(line);
        }
        while self.order.len() > self.most {
            if let Some(oldest) = self.order.pop_front() {
                self.bytes.remove(&oldest);
            }
        }
    }
}

impl DiskIo {
    /// The disk of a mount.
    pub fn new(device: Arc<BlockDevice>, journal: Arc<Journal>) -> DiskIo {
        // A sixty-fourth of the memory, within reason.
        let most = (base::memory::frame_counts().total / 64).clamp(128, 4096);
        let lines = Lines { bytes: BTreeMap::new(), order: VecDeque::new(), most };
        let lines = Arc::new(Mutex::new(&rank::REMOTE_FILES, lines));
        let reads_left = Arc::new(AtomicU64::new(most_reads(device.size())));
        DiskIo { device, lines, in_a_row: 0, reads_left, journal, places: None }
    }

    /// Knows from now on where metadata lies that has to be mended. On the fibre.
    pub fn with_places(mut self) -> DiskIo {
        self.places = Places::of(&self).map(Arc::new);
        self
    }

    /// Whether the journal on the disk is kept.
    pub fn journal(&self) -> Arc<Journal> {
        self.journal.clone()
    }

    /// Nothing is written any more where the journal is lost.
    fn check_journal(&self) -> Ext4Result<()> {
        if self.journal.is_lost() { Err(Ext4Error::read_only()) } else { Ok(()) }
    }

    /// The next operation begins.
    pub fn refill(&self) {
        self.reads_left.store(most_reads(self.device.size()), Ordering::Relaxed);
    }

    /// Counts a read. `EIO` after more of them than any operation needs.
    fn spend(&self) -> Ext4Result<()> {
        let left = self.reads_left.load(Ordering::Relaxed);
        if left == 0 {
            log::error!("ext4 on {}: an operation goes on and on", self.device.name());
            return Err(Ext4Error::io());
        }
        self.reads_left.store(left - 1, Ordering::Relaxed);
        Ok(())
    }

    fn range(&self, sector: SectorId, length: usize) -> Ext4Result<u64> {
        let size = u64::from(self.device.disk().0.geometry().sector_size);
        let offset = sector.raw().checked_mul(size).ok_or_else(Ext4Error::overflow)?;
        let end = offset.checked_add(length as u64).ok_or_else(Ext4Error::overflow)?;
        if end > self.device.size() { Err(Ext4Error::io()) } else { Ok(offset) }
    }

    /// Reads bytes as the disk has them, through the cache.
    pub fn peek(&self, offset: u64, into: &mut [u8]) -> Ext4Result<()> {
        if offset.checked_add(into.len() as u64).is_none_or(|end| end > self.device.size()) {
            return Err(Ext4Error::io());
        }
        for (line, within, range) in parts(offset, into.len()) {
            let into = into.get_mut(range).ok_or_else(Ext4Error::io)?;
            if !self.copy_line(line, within, into) {
                let start = line * LINE as u64;
                let mut bytes = [0; LINE];
                let length = (self.device.size() - start).min(LINE as u64) as usize;
                self.fetch(start, bytes.get_mut(..length).ok_or_else(Ext4Error::io)?)?;
                if length == LINE {
                    self.lines.lock().keep(line, &bytes);
                }
                into.copy_from_slice(&bytes[within..within + into.len()]);
            }
        }
        Ok(())
    }

    /// Copies from a cached line; false when it is not cached.
    fn copy_line(&self, line: u64, within: usize, into: &mut [u8]) -> bool {
        let lines = self.lines.lock();
        let bytes = lines.bytes.get(&line).and_then(|bytes| bytes.get(within..within + into.len()));
        bytes.map(|bytes| into.copy_from_slice(bytes)).is_some()
    }

    /// Reads from the disk itself.
    fn fetch(&self, offset: u64, into: &mut [u8]) -> Ext4Result<()> {
        let (disk, start) = self.device.disk();
        let mut at = start + offset;
        for part in into.chunks_mut(disk.most_bytes()) {
            let bytes = fibre::wait(disk.read(at, part.len())).map_err(failed)?;
            part.copy_from_slice(bytes.get(..part.len()).ok_or_else(Ext4Error::io)?);
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Whether every line that a range touches lies on the disk as a whole.
    fn is_cachable(&self, offset: u64, length: usize) -> bool {
        let end = (offset + length as u64).next_multiple_of(LINE as u64);
        length <= MOST_CACHED && end <= self.device.size()
    }

    fn take_turns(&mut self) {
        self.in_a_row += 1;
        if self.in_a_row > MOST_IN_A_ROW {
            self.in_a_row = 0;
            fibre::wait(yield_now());
        }
    }
}

/// The parts of a range by line: the line, where in it, and which bytes of the range.
fn parts(
    offset: u64,
    length: usize,
) -> impl Iterator<Item = (u64, usize, core::ops::Range<usize>)> {
    let mut done = 0;
    core::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % LINE as u64) as usize;
        let count = (LINE - within).min(length - done);
        let part = (at / LINE as u64, within, done..done + count);
        done += count;
        (count > 0).then_some(part)
    })
}

impl BlockIo for DiskIo {
    fn read(&mut self, buffer: &mut [u8], sector: SectorId, _count: u32) -> Ext4Result<()> {
        let offset = self.range(sector, buffer.len())?;
        self.spend()?;
        if !self.is_cachable(offset, buffer.len()) {
            self.in_a_row = 0;
            return self.fetch(offset, buffer);
        }
        self.take_turns();
        self.peek(offset, buffer)
    }

    fn write(&mut self, buffer: &[u8], sector: SectorId, _count: u32) -> Ext4Result<()> {
        self.check_journal()?;
        let offset = self.range(sector, buffer.len())?;
        self.in_a_row = 0;
        let mended = self.places.as_ref().and_then(|places| places.mended(offset, buffer));
        let buffer = mended.as_deref().unwrap_or(buffer);
        let mut result = Ok(());
        {
            let (disk, start) = self.device.disk();
            let mut at = start + offset;
            for part in buffer.chunks(disk.most_bytes()) {
                result = fibre::wait(disk.write(at, part)).map_err(failed).map(|_| ());
                if result.is_err() {
                    break;
                }
                at += part.len() as u64;
            }
        }
        match result {
            Ok(()) => self.journal.has_written(buffer.len()),
            Err(_) => self.journal.write_failed(),
        }
        let keeps = result.is_ok() && self.is_cachable(offset, buffer.len());
        let mut lines = self.lines.lock();
        for (line, within, range) in parts(offset, buffer.len()) {
            let from = buffer.get(range).unwrap_or_default();
            if result.is_err() {
                // Nobody knows what the disk has now.
                lines.bytes.remove(&line);
                lines.order.retain(|other| *other != line);
            } else if let Some(bytes) = lines.bytes.get_mut(&line) {
                bytes[within..within + from.len()].copy_from_slice(from);
            } else if keeps && from.len() == LINE {
                lines.keep(line, from);
            }
        }
        drop(lines);
        result
    }

    fn geometry(&self) -> DeviceGeometry {
        let sector = self.device.disk().0.geometry().sector_size;
        DeviceGeometry::new(sector, self.device.size() / u64::from(sector))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let geometry = self.device.disk().0.geometry();
        DeviceCapabilities {
            read_only: geometry.is_read_only,
            flush: true,
            ..DeviceCapabilities::default()
        }
    }

    fn flush(&mut self) -> Ext4Result<()> {
        self.check_journal()?;
        self.in_a_row = 0;
        let result = fibre::wait(self.device.disk().0.flush()).map_err(failed).map(|_| ());
        if result.is_err() {
            self.journal.flush_failed();
        }
        result
    }
}

/// The time of day, or that of the operation that runs.
pub struct WallClock(pub Arc<FixedTime>);

impl Clock for WallClock {
    fn now(&self) -> Ext4Result<Ext4Timestamp> {
        let now = self.0.shown();
        Ok(Ext4Timestamp::new(now.seconds, now.nanoseconds))
    }
}

/// Ferry's random bytes.
pub struct Random;

impl EntropySource for Random {
    fn fill_bytes(&mut self, output: &mut [u8]) -> Ext4Result<()> {
        base::random::fill(output);
        Ok(())
    }
}
