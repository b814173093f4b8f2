//! POSIX message queues: messages with priorities, in queues that have names in a file system.
//!
//! `queue` is one queue and who waits for it; `files` the file system and what its files do when they are
//! opened. A message that a receiver waits for never gets into the queue. The state of a queue is under a
//! lock of rank `IPC_OBJECT`; the names are under one of rank `INODE`.

mod files;
mod queue;

pub use files::{Attributes, Files, Maker, QueueFile, check_name};
pub use queue::{MOST_PRIORITY, Message, Notification, Queue};

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use base::heap::tree;
use base::sync::{Mutex, rank};

/// What one message and one priority take besides the text, in the account of a user.
const MESSAGE_COST: u64 = 48;
const PRIORITY_COST: u64 = 48;
/// Bytes of the queues of each user.
static USED: Mutex<BTreeMap<u32, u64>> = Mutex::new(&rank::IPC_TABLE, BTreeMap::new());

/// What a queue may take, counted for a user until it is dropped.
struct Account {
    user: u32,
    bytes: u64,
    /// Queues of the namespace.
    count: Arc<AtomicU64>,
}

impl Account {
    /// Counts a queue.
    ///
    /// # Errors
    /// `EMFILE` when the user's queues take more than `limit`; `EOVERFLOW`.
    fn open(
        user: u32,
        messages: u64,
        size: u64,
        limit: u64,
        count: &Arc<AtomicU64>,
    ) -> Result<Account, Errno> {
        let headers =
            messages * MESSAGE_COST + messages.min(u64::from(MOST_PRIORITY)) * PRIORITY_COST;
        let bytes = messages.checked_mul(size).and_then(|bytes| bytes.checked_add(headers));
        let bytes = bytes.ok_or(Errno::EOVERFLOW)?;
        let mut used = USED.lock();
        let own = tree::get_or_insert(&mut used, user, u64::default);
        if own.saturating_add(bytes) > limit {
            return Err(Errno::EMFILE);
        }
        *own += bytes;
        count.fetch_add(1, Ordering::Relaxed);
        Ok(Account { user, bytes, count: count.clone() })
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut used = USED.lock();
        if let Some(own) = used.get_mut(&self.user) {
            *own -= self.bytes;
            if *own == 0 {
                used.remove(&self.user);
            }
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
