//! What drivers are built on, and what they offer. Drivers, file systems and network meet here and nowhere
//! else.

use abi::Errno;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::Pin;

pub mod chains;
pub mod virtio;

/// What a disk is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskGeometry {
    /// Size in bytes, a multiple of `sector_size`.
    pub size: u64,
    /// Smallest piece that can be read or written, in bytes: a power of two of at least 512.
    pub sector_size: u32,
    /// Nothing can be written.
    pub is_read_only: bool,
    /// It keeps what was written in memory of its own until `flush`.
    pub has_cache: bool,
    /// It can be told what is not needed any more.
    pub can_discard: bool,
    /// It can write zeros by itself.
    pub can_write_zeroes: bool,
}

/// A disk: many requests may be under way at once, and they end in any order. All ranges are whole sectors, in bytes.
/// Every request ends, with `EIO` after a time of the disk's.
pub trait Disk: Send + Sync {
    /// What it is like. Never changes.
    fn geometry(&self) -> DiskGeometry;

    /// Most bytes of one read or write.
    fn most_bytes(&self) -> usize;

    /// For how long a request may wait for its answer, in nanoseconds; 0 where that is not known.
    fn timeout_ns(&self) -> u64 {
        0
    }

    /// Gives requests that come from now on another time, in nanoseconds.
    fn set_timeout_ns(&self, _timeout_ns: u64) {}

    /// Reads `length` bytes from `offset` on.
    ///
    /// # Errors
    /// `EIO` when the disk fails or the range lies outside; `ENOMEM`.
    fn read(&self, offset: u64, length: usize) -> Reply<'_>;

    /// Writes bytes from `offset` on. They are durable after the next `flush` only.
    ///
    /// # Errors
    /// As `read`; `EROFS`; `ENOSPC` where the disk says so is `EIO` here.
    fn write<'a>(&'a self, offset: u64, bytes: &'a [u8]) -> Reply<'a>;

    /// Waits until everything that was written before is durable.
    ///
    /// # Errors
    /// `EIO`.
    fn flush(&self) -> Reply<'_>;

    /// Says that a range is not needed any more; what it reads as is not known then.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where it cannot; as `write`.
    fn discard(&self, offset: u64, length: u64) -> Reply<'_>;

    /// Makes a range read as zeros.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where it cannot; as `write`.
    fn write_zeroes(&self, offset: u64, length: u64) -> Reply<'_>;
}

/// The answer to a message, when it comes.
pub type Reply<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, Errno>> + Send + 'a>>;

/// A channel on which each message gets one answer, in any order: a file server on the other side.
pub trait Exchange: Send + Sync {
    /// Sends a message and waits for its answer, no longer than a time of the channel's.
    ///
    /// # Errors
    /// `EIO` when the message is too long, no answer comes in time, or it is longer than its room; `ENOMEM`.
    fn exchange(&self, message: Vec<u8>) -> Reply<'_>;

    /// Longest message and longest answer, in bytes.
    fn longest(&self) -> (usize, usize);
}
