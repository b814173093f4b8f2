//! Robust futexes: locks whose owner ended without releasing them.
//!
//! The thread has left a list of the locks that it holds in its own memory. Everything in it may be
//! wrong; so the walk is bounded, and what cannot be read ends it.

use core::sync::atomic::Ordering;

use abi::Errno;
use abi::futex::{FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS, RobustListHead};

use super::wake_address;
use crate::memory::UserMemory;
use crate::process::Thread;

/// Most locks that are released.
const LIMIT: usize = 2048;
/// Set in a link to a lock with priority inheritance.
const PRIORITY_INHERITANCE: u64 = 1;

/// Marks the locks in the list of an ending thread as left by their dead owner, and wakes one waiter
/// of each. The thread's memory must still be there.
pub async fn release_robust_list(thread: &Thread) {
    let head = thread.robust_list.swap(0, Ordering::Relaxed);
    if head != 0 {
        // Nobody is left to be told of a bad list.
        let _ = release(&UserMemory::new(thread.space()), head, thread.tid().0).await;
    }
}

async fn release(memory: &UserMemory, head: u64, tid: i32) -> Result<(), Errno> {
    let list: RobustListHead = memory.read_value(head).await?;
    let pending = list.pending & !PRIORITY_INHERITANCE;
    let mut entry = list.next;
    for _ in 0..LIMIT {
        let link = entry & !PRIORITY_INHERITANCE;
        if link == head {
            break;
        }
        let next = memory.read_value::<u64>(link).await;
        // The lock that was being taken or released may be in the list as well.
        if link != pending {
            let inherits = entry & PRIORITY_INHERITANCE != 0;
            let word = link.wrapping_add_signed(list.offset);
            abandon(memory, word, tid, inherits, false).await?;
        }
        entry = next?;
    }
    if pending != 0 {
        let inherits = list.pending & PRIORITY_INHERITANCE != 0;
        let word = pending.wrapping_add_signed(list.offset);
        abandon(memory, word, tid, inherits, true).await?;
    }
    Ok(())
}

async fn abandon(
    memory: &UserMemory,
    address: u64,
    tid: i32,
    inherits: bool,
    is_pending: bool,
) -> Result<(), Errno> {
    let mut value = memory.load_u32(address).await?;
    loop {
        if value & FUTEX_TID_MASK != tid.unsigned_abs() {
            // It was released already, but the owner may have ended before it woke a waiter.
            if is_pending && !inherits && value == 0 {
                wake_address(memory, address, 1);
            }
            return Ok(());
        }
        let left = value & FUTEX_WAITERS | FUTEX_OWNER_DIED;
        match memory.compare_exchange_u32(address, value, left).await? {
            Ok(_) => break,
            Err(found) => value = found,
        }
    }
    if !inherits && value & FUTEX_WAITERS != 0 {
        wake_address(memory, address, 1);
    }
    Ok(())
}
