//! Futexes: waiting for a word of user memory to be changed by others.
//!
//! `table` knows who waits for which word and says nothing of memory; this file reads words, decodes
//! operations and waits. The word is compared while both the address space and the waiters' bucket
//! are locked, so a waker that changes the word first and looks for waiters afterwards finds whoever
//! saw the old value.
//!
//! `lock` has the locks that the kernel hands over (`FUTEX_LOCK_PI` and its kin).

mod lock;
mod robust;
mod table;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::task::Poll;

use abi::Errno;
use abi::futex::{Comparison, MATCH_ANY, Operation};
use base::time;

use crate::call::Caller;
use crate::ipc::waiter::Ended;
use crate::memory::{Access, AddressSpace, FutexKey, UserMemory};
use crate::signal::RestartBlock;
use table::{Table, Waiter};

pub use lock::{Patience, leave_locks, lock, unlock};
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

    /// As [`Word::new`]; a word that others may share has to be there as well.
    ///
    /// # Errors
    /// Those of `new`; `EFAULT` when the page cannot be brought in, or is private and read-only.
    pub async fn find(
        memory: UserMemory,
        address: u64,
        is_private: bool,
        access: Access,
    ) -> Result<Word, Errno> {
        let word = Word::new(memory, address, is_private)?;
        let is_shared = matches!(word.key, FutexKey::Shared { .. });
        let is_there = || word.memory.space().with_word(address, true, |_, _| ()).is_some();
        if !is_private && !is_there() {
            let writable = word.memory.bring_in(address, Access::WRITE).await;
            if writable.is_err() && (access.write || !is_shared) {
                return Err(Errno::EFAULT);
            }
            if writable.is_err() {
                word.memory.bring_in(address, Access::READ).await?;
            }
        }
        Ok(word)
    }

    /// Whether both are the same word.
    pub fn is_same(&self, other: &Word) -> bool {
        self.key == other.key
    }

    /// Puts a waiter into the table if the word has the value. It may be one that takes a lock next.
    async fn enqueue(
        &self,
        value: u32,
        bits: u32,
        lock: Option<FutexKey>,
    ) -> Result<Arc<Waiter>, Errno> {
        loop {
            let found = self.memory.space().with_word(self.address, false, |frame, offset| {
                TABLE.enqueue(self.key, bits, lock, || frame.load_u32(offset) == value)
            });
            match found {
                Some(result) => return result,
                None => self.memory.bring_in(self.address, Access::READ).await?,
            }
        }
    }

    /// Wakes up to `count` waiters of which some bit matches; returns how many.
    ///
    /// # Errors
    /// `EINVAL` when somebody waits for it as for a lock.
    pub fn wake(&self, count: usize, bits: u32) -> Result<usize, Errno> {
        wake_key(self.key, count, bits)
    }
}

fn wake_key(key: FutexKey, count: usize, bits: u32) -> Result<usize, Errno> {
    if lock::is_contended(&key) {
        return Err(Errno::EINVAL);
    }
    TABLE.wake(key, count, bits)
}

/// Wakes up to `count` waiters of a word that only threads of this address space share.
///
/// # Errors
/// Those of [`Word::new`] and of [`Word::wake`].
pub fn wake_private(space: &AddressSpace, address: u64, count: usize) -> Result<usize, Errno> {
    wake_key(space.private_futex_key(address)?, count, MATCH_ANY)
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
    let waiter = word.enqueue(value, bits, None).await?;
    match (until_woken(caller, Waiting { waiter }, deadline_ns).await, deadline_ns) {
        (Ok(()), _) => Ok(0),
        (Err(Ended::TimedOut), _) => Err(Errno::ETIMEDOUT),
        (Err(Ended::Interrupted), None) => Err(Errno::ERESTARTSYS),
        (Err(Ended::Interrupted), Some(deadline_ns)) => {
            let address = word.address;
            let block = RestartBlock::Futex { address, value, bits, operation, deadline_ns };
            caller.signals.set_restart(block);
            Err(Errno::ERESTART_RESTARTBLOCK)
        }
    }
}

/// Waits until the waiter is woken. It is out of the table afterwards.
async fn until_woken(
    caller: &Caller,
    waiting: Waiting,
    deadline_ns: Option<u64>,
) -> Result<(), Ended> {
    let woken = poll_fn(|context| {
        if waiting.waiter.poll_woken(context.waker()) { Poll::Ready(()) } else { Poll::Pending }
    });
    let wait = Box::pin(caller.interruptible(time::with_deadline(woken, deadline_ns)));
    let result = wait.await;
    if !TABLE.remove(&waiting.waiter) {
        return Ok(());
    }
    match result {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Ended::TimedOut),
        Err(_) => Err(Ended::Interrupted),
    }
}

/// `futex_waitv`: waits until one of the words is woken, if all have their values. Returns the index of
/// one that was.
///
/// # Errors
/// `EAGAIN` when a word has another value, `ETIMEDOUT`, `ENOMEM`, `EFAULT`, or a restart code.
pub async fn wait_for_any(
    caller: &Caller,
    words: &[(Word, u32)],
    deadline_ns: Option<u64>,
) -> Result<u64, Errno> {
    let mut waiting: Vec<Waiting> = Vec::new();
    waiting.try_reserve_exact(words.len()).map_err(|_| Errno::ENOMEM)?;
    let mut result = Ok(());
    for (word, value) in words {
        match word.enqueue(*value, MATCH_ANY, None).await {
            Ok(waiter) => waiting.push(Waiting { waiter }),
            Err(errno) => {
                result = Err(errno);
                break;
            }
        }
    }
    if result.is_ok() {
        let woken = poll_fn(|context| {
            // Each registers the waker.
            let count = waiting.iter().filter(|it| it.waiter.poll_woken(context.waker())).count();
            if count > 0 { Poll::Ready(()) } else { Poll::Pending }
        });
        let wait = Box::pin(caller.interruptible(time::with_deadline(woken, deadline_ns)));
        result = match wait.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Errno::ETIMEDOUT),
            Err(_) => Err(Errno::ERESTARTSYS),
        };
    }
    let mut woken = None;
    for (index, it) in (0..).zip(&waiting) {
        if !TABLE.remove(&it.waiter) {
            woken = Some(index);
        }
    }
    match woken {
        Some(index) => Ok(index),
        None => Err(result.err().unwrap_or(Errno::EAGAIN)),
    }
}

/// `FUTEX_WAIT_REQUEUE_PI`: waits for a word until it is to take the lock `lock`, and takes it.
///
/// # Errors
/// `EAGAIN` when the word has another value, or when a signal ends the wait for the lock; those of
/// [`lock()`].
pub async fn wait_for_lock(
    caller: &Caller,
    word: &Word,
    value: u32,
    deadline_ns: Option<u64>,
    lock: &Word,
) -> Result<u64, Errno> {
    let waiter = word.enqueue(value, MATCH_ANY, Some(lock.key)).await?;
    match until_woken(caller, Waiting { waiter }, deadline_ns).await {
        Ok(()) => {}
        Err(Ended::TimedOut) => return Err(Errno::ETIMEDOUT),
        Err(Ended::Interrupted) => return Err(Errno::ERESTARTNOINTR),
    }
    match lock::lock(caller, lock, Patience::Until(deadline_ns)).await {
        Err(Errno::ERESTARTNOINTR) => Err(Errno::EAGAIN),
        result => result,
    }
}

/// `FUTEX_CMP_REQUEUE_PI`: lets up to `count` who wait for `from` take the lock `to`. Each does so itself.
/// Returns how many.
///
/// # Errors
/// `EAGAIN` when the word has another value, `EINVAL` when the first waits for something else, `EFAULT`.
pub async fn release_for_lock(
    from: &Word,
    to: &Word,
    count: usize,
    expected: u32,
) -> Result<u64, Errno> {
    loop {
        let result = from.memory.space().with_word(from.address, false, |frame, offset| {
            TABLE.take_for_lock(from.key, to.key, count, || frame.load_u32(offset) == expected)
        });
        match result {
            Some(result) => return Ok(result?.wake_all() as u64),
            None => from.memory.bring_in(from.address, Access::READ).await?,
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
    let mut woken = first.wake(wake_first, MATCH_ANY)?;
    if comparison.holds(old) {
        woken += second.wake(wake_second, MATCH_ANY)?;
    }
    Ok(woken as u64)
}

/// Wakes waiters of a word without an error for whoever has nobody to tell: for the end of threads.
pub fn wake_address(memory: &UserMemory, address: u64, count: usize) {
    if let Ok(word) = Word::new(memory.clone(), address, false) {
        // A word that is waited for otherwise is no business of the ending thread.
        let _ = word.wake(count, MATCH_ANY);
    }
}
