//! Futexes: waiting for a word of user memory to be changed by others.
//!
//! `table` knows who waits for which word and says nothing of memory; this file reads words, decodes
//! operations and waits. The word is compared while both the address space and the waiters' bucket
//! are locked, so a waker that changes the word first and looks for waiters afterwards finds whoever
//! saw the old value.
//!
//! Not here: priority inheritance (`FUTEX_LOCK_PI` and its kin), which answers `ENOSYS`.

mod robust;
mod table;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::future::poll_fn;
use core::task::Poll;

use abi::Errno;
use abi::futex::{Comparison, MATCH_ANY, Operation};
use base::time;

use crate::call::Caller;
use crate::memory::{Access, FutexKey, UserMemory};
use crate::signal::RestartBlock;
use table::{Table, Waiter};

pub use robust::release_robust_list;

static TABLE: Table = Table::new();

/// A futex word: where it is, and how others find it.
pub struct Word {
    memory: UserMemory,
    address: u64,
    key: FutexKey,
}

impl Word {
    /// The word at an address.
    ///
    /// # Errors
    /// `EINVAL` when it is not aligned, `EFAULT` when it is not user memory.
    pub fn new(memory: UserMemory, address: u64, is_private: bool) -> Result<Word, Errno> {
        let key = memory.futex_key(address, is_private)?;
        Ok(Word { memory, address, key })
    }

    /// Puts a waiter into the table if the word has the value.
    async fn enqueue(&self, value: u32, bits: u32) -> Result<Arc<Waiter>, Errno> {
        loop {
            let found = self.memory.space().with_word(self.address, false, |frame, offset| {
                TABLE.enqueue(self.key, bits, || frame.load_u32(offset) == value)
            });
            match found {
                Some(result) => return result,
                None => self.memory.bring_in(self.address, Access::READ).await?,
            }
        }
    }

    /// Wakes up to `count` waiters of which some bit matches; returns how many.
    pub fn wake(&self, count: usize, bits: u32) -> usize {
        TABLE.wake(self.key, count, bits)
    }
}

/// Waits until the word is woken, if it has the value.
///
/// # Errors
/// `EAGAIN` when the word has another value, `ETIMEDOUT`, a restart code, or those of [`Word::new`].
pub async fn wait(
    caller: &Caller,
    word: &Word,
    value: u32,
    bits: u32,
    deadline_ns: Option<u64>,
    operation: u32,
) -> Result<u64, Errno> {
    let waiter = word.enqueue(value, bits).await?;
    let waiting = Waiting { waiter };
    let woken = poll_fn(|context| {
        if waiting.waiter.poll_woken(context.waker()) { Poll::Ready(()) } else { Poll::Pending }
    });
    let wait = Box::pin(caller.interruptible(time::with_deadline(woken, deadline_ns)));
    let result = wait.await;
    if !TABLE.remove(&waiting.waiter) {
        return Ok(0);
    }
    match (result, deadline_ns) {
        (Ok(Ok(())), _) => Ok(0),
        (Ok(Err(_)), _) => Err(Errno::ETIMEDOUT),
        (Err(_), None) => Err(Errno::ERESTARTSYS),
        (Err(_), Some(deadline_ns)) => {
            let address = word.address;
            let block = RestartBlock::Futex { address, value, bits, operation, deadline_ns };
            caller.signals.set_restart(block);
            Err(Errno::ERESTART_RESTARTBLOCK)
        }
    }
}

/// Takes the waiter out of the table when the wait ends in whatever way.
struct Waiting {
    waiter: Arc<Waiter>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        TABLE.remove(&self.waiter);
    }
}

/// Wakes up to `wake` waiters of `from` and lets up to `move_count` more wait for `to` instead, if
/// the word `from` has the value `expected`. Returns how many were woken or moved.
///
/// # Errors
/// `EAGAIN` when the word has another value; `EFAULT`.
pub async fn requeue(
    from: &Word,
    to: &Word,
    wake: usize,
    move_count: usize,
    expected: Option<u32>,
) -> Result<u64, Errno> {
    let Some(expected) = expected else {
        let count = TABLE.requeue(from.key, to.key, wake, move_count, || true)?;
        return Ok(count as u64);
    };
    loop {
        let result = from.memory.space().with_word(from.address, false, |frame, offset| {
            let matches = || frame.load_u32(offset) == expected;
            TABLE.requeue_held(from.key, to.key, wake, move_count, matches)
        });
        match result {
            Some(result) => return Ok(result?.wake_all() as u64),
            None => from.memory.bring_in(from.address, Access::READ).await?,
        }
    }
}

/// `FUTEX_WAKE_OP`: changes the second word, wakes waiters of the first, and, if the old value of
/// the second compares as asked, waiters of the second too.
///
/// # Errors
/// `EFAULT`.
pub async fn wake_operation(
    first: &Word,
    second: &Word,
    wake_first: usize,
    wake_second: usize,
    change: Operation,
    comparison: Comparison,
) -> Result<u64, Errno> {
    let mut old = second.memory.load_u32(second.address).await?;
    loop {
        let new = change.apply(old);
        match second.memory.compare_exchange_u32(second.address, old, new).await? {
            Ok(_) => break,
            Err(found) => old = found,
        }
    }
    let mut woken = first.wake(wake_first, MATCH_ANY);
    if comparison.holds(old) {
        woken += second.wake(wake_second, MATCH_ANY);
    }
    Ok(woken as u64)
}

/// Wakes waiters of a word without an error for whoever has nobody to tell: for the end of threads.
pub fn wake_address(memory: &UserMemory, address: u64, count: usize) {
    if let Ok(word) = Word::new(memory.clone(), address, false) {
        word.wake(count, MATCH_ANY);
    }
}
