//! virtio-blk: a disk.
//!
//! Specification: Virtual I/O Device 1.2, section 5.2. One queue; each request is a chain with a header, its
//! data and a status, and `IN_FLIGHT` of them may be with the device. An error is that of the request that
//! met it. Nothing is ordered but by waiting: who needs an order waits for the first request and, where the
//! disk has a cache, for `flush`. Forced unit access is a write and a flush, as the device has none.
//!
//! A request has a time (`Disk::timeout_ns`), and is `EIO` after it. A disk that has answered nothing in that time is asked
//! nothing for as long again: who comes meanwhile is told `EIO` at once, and does not wait for one request after the other.
//!
//! Left out: several queues, scatter and gather over the pages of others (data is copied once).

use abi::Errno;
use alloc::boxed::Box;
use alloc::vec::Vec;
use base::device::chains::ChainQueue;
use base::device::virtio::Transport;
use base::device::{Disk, DiskGeometry, Reply};
use base::memory::PAGE_SIZE;

use core::sync::atomic::{AtomicU64, Ordering};

use crate::port::{Answer, Port, Send};

/// Longest time that a request may take at first, waiting for a slot included, in nanoseconds.
const TIMEOUT_NS: u64 = 60_000_000_000;
/// Requests that may be with the device.
const IN_FLIGHT: usize = 16;
/// Entries of the queue.
const RING: usize = 2 * IN_FLIGHT;
/// Pages of a request's buffer: the data, and one for what goes with it.
const PAGES: usize = 16;
/// Unit of places and lengths in requests, in bytes, whatever the sectors of the disk are.
const UNIT: u64 = 512;
/// Most bytes that one discard or writing of zeros is asked for, where the device says nothing less.
const MOST_CLEARED: u64 = 1 << 30;

/// Bits of features.
mod feature {
    pub const READ_ONLY: u64 = 1 << 5;
    pub const BLOCK_SIZE: u64 = 1 << 6;
    pub const FLUSH: u64 = 1 << 9;
    pub const DISCARD: u64 = 1 << 13;
    pub const WRITE_ZEROES: u64 = 1 << 14;
}

/// Where fields of the configuration lie.
mod field {
    pub const CAPACITY: usize = 0;
    pub const BLOCK_SIZE: usize = 20;
    pub const MOST_DISCARDED: usize = 36;
    pub const MOST_ZEROED: usize = 48;
}

/// Kinds of requests.
mod kind {
    pub const READ: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
}

/// One disk.
pub struct BlockDisk {
    port: Port<RING>,
    geometry: DiskGeometry,
    /// Most bytes of one discard, and of one writing of zeros.
    most_cleared: [u64; 2],
    /// Longest time that a request may take, waiting for a slot included, in nanoseconds.
    timeout_ns: AtomicU64,
}

impl BlockDisk {
    /// Starts the device; `None` when it does not accept its queue, says what makes no sense, or there
    /// is no memory.
    pub fn new(mut transport: Transport) -> Option<BlockDisk> {
        let offered = transport.offered_features();
        let wanted = feature::READ_ONLY
            | feature::BLOCK_SIZE
            | feature::FLUSH
            | feature::DISCARD
            | feature::WRITE_ZEROES;
        let start = |transport: &mut Transport| ChainQueue::new(transport, 0, PAGES);
        let queue = transport.start_with(wanted, start)?;
        let has = |feature: u64| offered & feature != 0;
        let sector_size = match has(feature::BLOCK_SIZE) {
            true => transport.configuration_u32(field::BLOCK_SIZE)?,
            false => UNIT as u32,
        };
        if !sector_size.is_power_of_two() || !(512..=PAGE_SIZE as u32).contains(&sector_size) {
            return None;
        }
        let size = transport.configuration_u64(field::CAPACITY)?.checked_mul(UNIT)?;
        let most = |feature: u64, field: usize| {
            let sectors = transport.configuration_u32(field).filter(|_| has(feature));
            sectors.map_or(0, |sectors| (u64::from(sectors) * UNIT).min(MOST_CLEARED))
        };
        let most_cleared = [
            most(feature::DISCARD, field::MOST_DISCARDED),
            most(feature::WRITE_ZEROES, field::MOST_ZEROED),
        ];
        let least = u64::from(sector_size);
        let geometry = DiskGeometry {
            size: size - size % least,
            sector_size,
            is_read_only: has(feature::READ_ONLY),
            has_cache: has(feature::FLUSH),
            can_discard: most_cleared[0] >= least,
            can_write_zeroes: most_cleared[1] >= least,
        };
        let most_cleared = most_cleared.map(|most| most - most % least);
        let timeout_ns = AtomicU64::new(TIMEOUT_NS);
        Some(BlockDisk { port: Port::new(transport, queue), geometry, most_cleared, timeout_ns })
    }

    /// Takes answers in, if there are any, and wakes who waits; true when there were.
    pub fn poll(&self) -> bool {
        self.port.poll()
    }

    /// The device's line fired: acknowledges it, so that it can rise again, and polls.
    pub fn interrupt(&self) {
        self.port.interrupt();
    }

    /// `EIO` for a range that is not one of whole sectors of the disk.
    fn check(&self, offset: u64, length: u64) -> Result<(), Errno> {
        let sector = u64::from(self.geometry.sector_size);
        let end = offset.checked_add(length).ok_or(Errno::EIO)?;
        let is_whole = offset.is_multiple_of(sector) && length.is_multiple_of(sector);
        if is_whole && end <= self.geometry.size { Ok(()) } else { Err(Errno::EIO) }
    }

    /// Carries out one request; gives `room` bytes of data that the device has written.
    async fn request(
        &self,
        kind: u32,
        offset: u64,
        data: &[u8],
        room: usize,
    ) -> Result<Vec<u8>, Errno> {
        const OK: u8 = 0;
        const UNSUPPORTED: u8 = 2;
        if self.port.is_silent() {
            return Err(Errno::EIO);
        }
        let mut header = [0; 16];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..].copy_from_slice(&(offset / UNIT).to_le_bytes());
        let send = |_slot: usize, send: &mut Send<'_>| send(&[&header, data]);
        // The status stands behind the data.
        let Answer { mut bytes, .. } =
            self.port.exchange(send, room + 1, self.timeout_ns()).await?;
        match bytes.pop() {
            Some(OK) => Ok(bytes),
            Some(UNSUPPORTED) => Err(Errno::EOPNOTSUPP),
            _ => Err(Errno::EIO),
        }
    }

    /// Discards a range or makes it zero, as large a part at a time as the device takes.
    async fn clear(
        &self,
        kind: u32,
        most: u64,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>, Errno> {
        self.check_write(offset, length)?;
        if most == 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let part = (end - at).min(most);
            let mut range = [0; 16];
            range[..8].copy_from_slice(&(at / UNIT).to_le_bytes());
            range[8..12].copy_from_slice(&((part / UNIT) as u32).to_le_bytes());
            self.request(kind, 0, &range, 0).await?;
            at += part;
        }
        Ok(Vec::new())
    }

    fn check_write(&self, offset: u64, length: u64) -> Result<(), Errno> {
        self.check(offset, length)?;
        if self.geometry.is_read_only { Err(Errno::EROFS) } else { Ok(()) }
    }
}

impl Disk for BlockDisk {
    fn geometry(&self) -> DiskGeometry {
        self.geometry
    }

    fn most_bytes(&self) -> usize {
        (PAGES - 1) * PAGE_SIZE
    }

    fn timeout_ns(&self) -> u64 {
        self.timeout_ns.load(Ordering::Relaxed)
    }

    fn set_timeout_ns(&self, timeout_ns: u64) {
        self.timeout_ns.store(timeout_ns, Ordering::Relaxed);
    }

    fn read(&self, offset: u64, length: usize) -> Reply<'_> {
        Box::pin(async move {
            self.check(offset, length as u64)?;
            self.request(kind::READ, offset, &[], length).await
        })
    }

    fn write<'a>(&'a self, offset: u64, bytes: &'a [u8]) -> Reply<'a> {
        Box::pin(async move {
            self.check_write(offset, bytes.len() as u64)?;
            self.request(kind::WRITE, offset, bytes, 0).await
        })
    }

    fn flush(&self) -> Reply<'_> {
        Box::pin(async move {
            if !self.geometry.has_cache {
                return Ok(Vec::new());
            }
            self.request(kind::FLUSH, 0, &[], 0).await
        })
    }

    fn discard(&self, offset: u64, length: u64) -> Reply<'_> {
        Box::pin(self.clear(kind::DISCARD, self.most_cleared[0], offset, length))
    }

    fn write_zeroes(&self, offset: u64, length: u64) -> Reply<'_> {
        Box::pin(self.clear(kind::WRITE_ZEROES, self.most_cleared[1], offset, length))
    }
}
