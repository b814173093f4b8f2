//! What is committed when, beside what `fsync` asks for, and what becomes of a volume whose journal cannot be kept.
//!
//! A write that the disk refused may have been data alone, so everything is committed at once: where that fails too, or
//! the disk could not flush, nobody knows any more what is durable. Then the volume is only read, until it is mounted again, as
//! with `errors=remount-ro` of Linux: changes are `EROFS`, the mounts show `ro`, and what was changed since the last commit is
//! lost, which `fsync` tells each description once. Files are read as memory has them.

use super::{Mounted, Volume, errno};
use crate::block::BlockDevice;
use crate::mount;
use abi::Errno;
use core::sync::atomic::{AtomicBool, Ordering};
use rsext4::Ext4ErrorKind;

/// Whether the journal of a volume is kept.
#[derive(Default)]
pub struct Journal {
    /// The disk has refused a write since this was looked at last.
    has_failed: AtomicBool,
    /// The disk could not flush.
    is_unknown: AtomicBool,
    is_lost: AtomicBool,
    /// Blocks have been freed since the last commit.
    has_freed: AtomicBool,
}

impl Journal {
    /// Blocks have been freed. Until that is committed a cut of power gives them back to whom they belonged.
    pub(super) fn freed(&self) {
        self.has_freed.store(true, Ordering::Relaxed);
    }

    /// Before data is written: the crate may put it into blocks that have just been freed, where a cut would leave it in
    /// the file that had them. So what was freed is committed first. On the fibre.
    pub(super) fn commit_freed(&self, mounted: &mut Mounted) -> Result<(), Errno> {
        if self.has_freed.load(Ordering::Relaxed) { self.commit(mounted) } else { Ok(()) }
    }

    /// Commits everything. On the fibre.
    pub(super) fn commit(&self, mounted: &mut Mounted) -> Result<(), Errno> {
        mounted.sync().map_err(errno)?;
        self.has_freed.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// The disk has refused a write.
    pub(super) fn write_failed(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// The disk could not say that what was written is durable. Saying so the next time would mean nothing.
    pub(super) fn flush_failed(&self) {
        self.is_unknown.store(true, Ordering::Relaxed);
        self.write_failed();
    }

    /// Whether nothing can be changed any more.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// After an operation: finds out what a write that failed means. On the fibre, before anybody is told of the operation.
    pub(super) fn look_after(&self, mounted: &mut Mounted, device: &BlockDevice) {
        if !self.has_failed.swap(false, Ordering::Relaxed)
            || self.is_lost()
            || mounted.options().readonly
        {
            return;
        }
        let outcome = mounted.sync();
        let is_unknown = self.is_unknown.load(Ordering::Relaxed);
        match outcome {
            Ok(()) if !is_unknown => {}
            // The next operation tries again.
            Err(error) if error.kind() == Ext4ErrorKind::NoMemory && !is_unknown => {
                self.write_failed();
            }
            _ => {
                self.is_lost.store(true, Ordering::Release);
                log::error!("ext4 on {}: the journal cannot be kept: read-only now", device.name());
                mount::freeze(device.number(), true);
            }
        }
    }
}

impl Volume {
    /// `EROFS` where nothing can be changed any more.
    pub(super) fn check_journal(&self) -> Result<(), Errno> {
        if self.has_lost_journal() { Err(Errno::EROFS) } else { Ok(()) }
    }

    /// Whether changes have been lost, and no others are taken.
    pub(crate) fn has_lost_journal(&self) -> bool {
        self.journal.is_lost()
    }
}
