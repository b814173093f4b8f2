//! What drivers are built on, and what they offer. Drivers, file systems and network meet here and nowhere
//! else.

use abi::Errno;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::Pin;

pub mod chains;
pub mod virtio;

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
