//! A disk, or a part of one, as the server of one file.

use crate::metadata::{InodeId, Metadata, NodeKind, Timestamp};
use crate::remote::Attributes;
use abi::Errno;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::device::Disk;
use core::sync::atomic::{AtomicU64, Ordering};

/// What a disk and its partitions have in common.
#[derive(Default)]
pub(super) struct Family {
    /// Counts writes to the disk, whoever made them.
    writes: AtomicU64,
}

/// See the module.
pub struct BareDisk {
    disk: Arc<dyn Disk>,
    start: u64,
    /// The size of a part; a whole disk says its own.
    size: Option<u64>,
    device: u64,
    family: Arc<Family>,
    /// Writes that came through the file.
    own_writes: AtomicU64,
}

impl BareDisk {
    /// A whole disk.
    pub(super) fn whole(disk: Arc<dyn Disk>, device: u64) -> BareDisk {
        let family = Arc::new(Family::default());
        BareDisk { disk, start: 0, size: None, device, family, own_writes: AtomicU64::new(0) }
    }

    /// A part of a whole disk.
    pub(super) fn part(whole: &BareDisk, device: u64, start: u64, size: u64) -> BareDisk {
        let (disk, family) = (whole.disk.clone(), whole.family.clone());
        let own_writes = AtomicU64::new(0);
        BareDisk { disk, start, size: Some(size), device, family, own_writes }
    }

    /// The disk, and where the part begins, in bytes.
    pub(super) fn disk(&self) -> (&Arc<dyn Disk>, u64) {
        (&self.disk, self.start)
    }

    /// Its size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size.unwrap_or_else(|| self.disk.geometry().size)
    }

    /// Somebody has written without the file.
    pub(super) fn written_elsewhere(&self) {
        self.family.writes.fetch_add(1, Ordering::AcqRel);
    }

    /// What the file is like. Its time of change is the count of writes elsewhere.
    pub(crate) fn attributes(&self) -> Attributes {
        let id = InodeId { device: self.device, number: 1 };
        let writes = self.family.writes.load(Ordering::Acquire);
        let elsewhere = writes.wrapping_sub(self.own_writes.load(Ordering::Acquire));
        let time = Timestamp { seconds: elsewhere.cast_signed(), nanoseconds: 0 };
        let simple = Metadata::simple(id, NodeKind::Regular, 0o600, time);
        Attributes { number: 1, metadata: Metadata { size: self.size(), ..simple } }
    }

    /// The whole sectors around a range: where they begin and end, on this part of the disk.
    fn around(&self, offset: u64, length: u64) -> Result<(u64, u64), Errno> {
        let sector = u64::from(self.disk.geometry().sector_size);
        let end = offset.checked_add(length).filter(|&end| end <= self.size()).ok_or(Errno::EIO)?;
        Ok((offset - offset % sector, end.next_multiple_of(sector)))
    }

    async fn read_sectors(&self, from: u64, to: u64) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        let length = usize::try_from(to - from).map_err(|_| Errno::ENOMEM)?;
        bytes.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
        while bytes.len() < length {
            let part = (length - bytes.len()).min(self.disk.most_bytes());
            let at = self.start + from + bytes.len() as u64;
            bytes.extend_from_slice(&self.disk.read(at, part).await?);
        }
        Ok(bytes)
    }

    async fn write_sectors(&self, from: u64, bytes: &[u8]) -> Result<(), Errno> {
        // Both at once, or a reader of the attributes would believe that others wrote.
        self.own_writes.fetch_add(1, Ordering::AcqRel);
        self.family.writes.fetch_add(1, Ordering::AcqRel);
        let mut at = self.start + from;
        for part in bytes.chunks(self.disk.most_bytes()) {
            self.disk.write(at, part).await?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Bytes of the disk; fewer at its end.
    pub(crate) async fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let length = (length as u64).min(self.size().saturating_sub(offset));
        let (from, to) = self.around(offset, length)?;
        let mut bytes = self.read_sectors(from, to).await?;
        bytes.drain(..((offset - from) as usize).min(bytes.len()));
        bytes.truncate(length as usize);
        Ok(bytes)
    }

    /// Writes bytes, with what is around them in their sectors as it was.
    pub(crate) async fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let (from, to) = self.around(offset, bytes.len() as u64)?;
        if from == offset && to - from == bytes.len() as u64 {
            return self.write_sectors(from, bytes).await;
        }
        let mut sectors = self.read_sectors(from, to).await?;
        let within = (offset - from) as usize;
        let place = sectors.get_mut(within..within + bytes.len()).ok_or(Errno::EIO)?;
        place.copy_from_slice(bytes);
        self.write_sectors(from, &sectors).await
    }

    /// Makes everything durable.
    pub(crate) async fn flush(&self) -> Result<(), Errno> {
        self.disk.flush().await.map(|_| ())
    }
}
