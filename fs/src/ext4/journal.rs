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
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use rsext4::{Ext4Error, Ext4ErrorKind, FileName};

/// Operations between two looks at the room in the journal. Each dirties at most one block outside of a handle, and the
/// handle that looks asks for more room than so many blocks.
const LOOK_EVERY: u32 = 32;
/// Bytes of a transaction at which it is committed. The crate copies all of it at the beginning of each handle, three or
/// four times per file: without a limit a transaction grows to a third of the journal, and a file in a large directory costs
/// so many copies.
const MOST_IN_TRANSACTION: u64 = 192 << 10;
/// Bytes that a change adds to a transaction, before one has been committed.
const FIRST_GUESS: u64 = 4096;

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
    /// Operations since the room in the journal was looked at.
    since_look: AtomicU32,
    /// Changes since the last commit.
    changes: AtomicU64,
    /// Bytes that a change added to the last transaction; 0 before there was one.
    bytes_each: AtomicU64,
    /// Bytes written to the disk.
    written: AtomicU64,
}

/// Begins a transaction's handle that changes nothing. The crate commits and checkpoints at the beginning of a handle, as
/// far as the journal lacks room; where the first block of a transaction is changed outside of one, it finds that the
/// block is being changed, and refuses both with `Busy`.
fn make_room(mounted: &mut Mounted) {
    let root = mounted.root_inode();
    if let Ok(name) = FileName::new(b".") {
        // Nobody can make this name: always an error, and no journal is lost by it.
        let _ = mounted.hard_link(root, root, name);
    }
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
        self.commit_all(mounted).map_err(errno)
    }

    fn commit_all(&self, mounted: &mut Mounted) -> Result<(), Ext4Error> {
        let written = self.written.load(Ordering::Relaxed);
        mounted.sync()?;
        self.has_freed.store(false, Ordering::Relaxed);
        let bytes = self.written.load(Ordering::Relaxed).saturating_sub(written);
        let changes = self.changes.swap(0, Ordering::Relaxed);
        if let Some(each) = bytes.checked_div(changes) {
            self.bytes_each.store(each, Ordering::Relaxed);
        }
        // The next transaction is empty.
        make_room(mounted);
        Ok(())
    }

    /// An operation changes something.
    pub(super) fn begin_change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes have been written to the disk.
    pub(super) fn has_written(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Whether the transaction is so large that its copies cost more than a commit. The crate does not tell its size: each
    /// change counts for what one of the last transaction has added.
    fn is_large(&self) -> bool {
        let changes = self.changes.load(Ordering::Relaxed);
        let each = match self.bytes_each.load(Ordering::Relaxed) {
            0 => FIRST_GUESS,
            each => each,
        };
        changes.saturating_mul(each) >= MOST_IN_TRANSACTION
    }

    /// Before an operation: the transaction is not too large, and the journal has room for what the operation changes
    /// outside of a handle. On the fibre.
    pub(super) fn keep_room(&self, mounted: &mut Mounted) {
        if self.is_large()
            && !mounted.options().readonly
            && !self.is_lost()
            && let Err(error) = self.commit_all(mounted)
        {
            // What was written that failed is looked after behind the operation.
            log::warn!("ext4: a commit failed: {error}");
        }
        let since = self.since_look.load(Ordering::Relaxed);
        self.since_look.store((since + 1) % LOOK_EVERY, Ordering::Relaxed);
        if since == 0 && !mounted.options().readonly && !self.is_lost() {
            make_room(mounted);
        }
    }

    /// Commits, writes everything to its place and ends. On the fibre.
    pub(super) fn unmount(&self, mounted: &mut Mounted) -> Result<(), Ext4Error> {
        if !mounted.options().readonly {
            self.commit_all(mounted)?;
        }
        mounted.unmount()
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
        let outcome = self.commit_all(mounted);
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
