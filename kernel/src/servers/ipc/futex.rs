//! `futex` and `futex_waitv`.

use alloc::vec::Vec;

use abi::Errno;
use abi::futex::{self as flags, decode_wake_operation};
use abi::time::{CLOCK_MONOTONIC, CLOCK_REALTIME, Timespec};
use base::time;

use crate::call::{Call, SysResult, encode};
use crate::futex::{self, Patience, Word};
use crate::memory::{Access, AddressSpace};

async fn word(call: &Call, index: usize, operation: u32) -> Result<Word, Errno> {
    word_for(call, index, operation, Access::READ).await
}

async fn word_for(
    call: &Call,
    index: usize,
    operation: u32,
    access: Access,
) -> Result<Word, Errno> {
    let is_private = operation & flags::FUTEX_PRIVATE_FLAG != 0;
    Word::find(call.user(), call.argument(index), is_private, access).await
}

/// A count of waiters to wake. As on Linux, one is woken even if fewer are asked for.
fn wake_count(value: u32) -> usize {
    usize::try_from(value.cast_signed()).unwrap_or(1).max(1)
}

/// A count of waiters to wake or move by a requeue operation; `EINVAL` when negative.
fn count(value: u32) -> Result<usize, Errno> {
    usize::try_from(value.cast_signed()).map_err(|_| Errno::EINVAL)
}

/// The end of a wait, given as a time on one of the two clocks, on the monotonic clock.
fn on_monotonic(time_ns: u64, is_wall_time: bool) -> u64 {
    if is_wall_time {
        time::now_ns().saturating_add(time_ns.saturating_sub(time::wall_ns()))
    } else {
        time_ns
    }
}

/// The end of a wait on the monotonic clock. `FUTEX_WAIT` takes a span, `FUTEX_LOCK_PI` a time on the wall
/// clock, others a time on the clock that a flag says.
async fn deadline(call: &Call, operation: u32) -> Result<Option<u64>, Errno> {
    let address = call.argument(3);
    if address == 0 {
        return Ok(None);
    }
    let timeout_ns = call.user().read_value::<Timespec>(address).await?.to_ns()?;
    let is_wall_time = operation & flags::FUTEX_CLOCK_REALTIME != 0;
    Ok(Some(match operation & flags::FUTEX_COMMAND_MASK {
        flags::FUTEX_WAIT => time::now_ns().saturating_add(timeout_ns),
        flags::FUTEX_LOCK_PI => on_monotonic(timeout_ns, true),
        _ => on_monotonic(timeout_ns, is_wall_time),
    }))
}

/// `FUTEX_WAKE` of a private word, which neither waits nor looks at the word. `None` for everything else.
pub fn wake_at_once(space: &AddressSpace, arguments: &[u64; 6]) -> Option<u64> {
    let [address, operation, value, ..] = *arguments;
    if operation as u32 != flags::FUTEX_WAKE | flags::FUTEX_PRIVATE_FLAG {
        return None;
    }
    let woken = futex::wake_private(space, address, wake_count(value as u32));
    Some(encode(woken.map(|count| count as u64)))
}

/// `futex(address, operation, value, timeout, second, last)`
pub async fn futex(call: &Call) -> SysResult {
    let operation = call.unsigned(1);
    let value = call.unsigned(2);
    let second_value = call.argument(3) as u32;
    let bits = call.unsigned(5);
    let command = operation & flags::FUTEX_COMMAND_MASK;
    let knows_wall_time = matches!(
        command,
        flags::FUTEX_WAIT_BITSET | flags::FUTEX_WAIT_REQUEUE_PI | flags::FUTEX_LOCK_PI2
    );
    if operation & flags::FUTEX_CLOCK_REALTIME != 0 && !knows_wall_time {
        return Err(Errno::ENOSYS);
    }
    match command {
        flags::FUTEX_WAIT | flags::FUTEX_WAIT_BITSET => {
            let bits = if command == flags::FUTEX_WAIT { flags::MATCH_ANY } else { bits };
            let deadline_ns = deadline(call, operation).await?;
            if bits == 0 {
                return Err(Errno::EINVAL);
            }
            let word = word(call, 0, operation).await?;
            futex::wait(&call.thread, &word, value, bits, deadline_ns, operation).await
        }
        flags::FUTEX_WAKE => {
            let word = word(call, 0, operation).await?;
            Ok(word.wake(wake_count(value), flags::MATCH_ANY)? as u64)
        }
        flags::FUTEX_WAKE_BITSET => {
            if bits == 0 {
                return Err(Errno::EINVAL);
            }
            Ok(word(call, 0, operation).await?.wake(wake_count(value), bits)? as u64)
        }
        flags::FUTEX_REQUEUE | flags::FUTEX_CMP_REQUEUE => {
            let (wake, move_count) = (count(value)?, count(second_value)?);
            let from = word(call, 0, operation).await?;
            let to = word_for(call, 4, operation, Access::READ).await?;
            let expected = (command == flags::FUTEX_CMP_REQUEUE).then_some(bits);
            futex::requeue(&from, &to, wake, move_count, expected).await
        }
        flags::FUTEX_CMP_REQUEUE_PI => {
            let (wake, move_count) = (count(value)?, count(second_value)?);
            if wake != 1 || call.argument(0) == call.argument(4) {
                return Err(Errno::EINVAL);
            }
            let from = word(call, 0, operation).await?;
            let to = word_for(call, 4, operation, Access::WRITE).await?;
            if from.is_same(&to) {
                return Err(Errno::EINVAL);
            }
            futex::release_for_lock(&from, &to, move_count.saturating_add(1), bits).await
        }
        flags::FUTEX_WAKE_OP => {
            let first = word(call, 0, operation).await?;
            let second = word_for(call, 4, operation, Access::WRITE).await?;
            let (change, comparison) = decode_wake_operation(bits)?;
            let (wake_first, wake_second) = (wake_count(value), wake_count(second_value));
            futex::wake_operation(&first, &second, wake_first, wake_second, change, comparison)
                .await
        }
        _ => lock_operation(call, operation).await,
    }
}

/// The operations on locks that the kernel hands over.
async fn lock_operation(call: &Call, operation: u32) -> SysResult {
    let value = call.unsigned(2);
    let needed = Access::WRITE;
    match operation & flags::FUTEX_COMMAND_MASK {
        flags::FUTEX_LOCK_PI | flags::FUTEX_LOCK_PI2 => {
            let deadline_ns = deadline(call, operation).await?;
            let word = word_for(call, 0, operation, needed).await?;
            futex::lock(&call.thread, &word, Patience::Until(deadline_ns)).await
        }
        flags::FUTEX_TRYLOCK_PI => {
            let word = word_for(call, 0, operation, needed).await?;
            futex::lock(&call.thread, &word, Patience::None).await
        }
        flags::FUTEX_UNLOCK_PI => {
            let word = word_for(call, 0, operation, needed).await?;
            futex::unlock(&call.thread, &word).await
        }
        flags::FUTEX_WAIT_REQUEUE_PI => {
            let deadline_ns = deadline(call, operation).await?;
            if call.argument(0) == call.argument(4) {
                return Err(Errno::EINVAL);
            }
            let lock = word_for(call, 4, operation, needed).await?;
            let word = word(call, 0, operation).await?;
            if word.is_same(&lock) {
                return Err(Errno::EINVAL);
            }
            futex::wait_for_lock(&call.thread, &word, value, deadline_ns, &lock).await
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// `futex_waitv(words, count, flags, timeout, clock)`
pub async fn futex_waitv(call: &Call) -> SysResult {
    let (array, count) = (call.argument(0), call.unsigned(1));
    let user = call.user();
    if call.unsigned(2) != 0 || count == 0 || count > flags::FUTEX_WAITV_MAX || array == 0 {
        return Err(Errno::EINVAL);
    }
    let deadline_ns = match call.argument(3) {
        0 => None,
        address => {
            let is_wall_time = match call.int(4) {
                CLOCK_REALTIME => true,
                CLOCK_MONOTONIC => false,
                _ => return Err(Errno::EINVAL),
            };
            let time_ns = user.read_value::<Timespec>(address).await?.to_ns()?;
            Some(on_monotonic(time_ns, is_wall_time))
        }
    };
    let waited: Vec<flags::WaitedWord> = user.read_array(array, count as usize).await?;
    let known = flags::FUTEX_32 | flags::FUTEX_PRIVATE_FLAG;
    let is_valid = |word: &flags::WaitedWord| {
        word.flags & !known == 0 && word.flags & flags::FUTEX_32 != 0 && word.reserved == 0
    };
    if !waited.iter().all(is_valid) {
        return Err(Errno::EINVAL);
    }
    let mut words = Vec::new();
    words.try_reserve_exact(waited.len()).map_err(|_| Errno::ENOMEM)?;
    for word in &waited {
        let is_private = word.flags & flags::FUTEX_PRIVATE_FLAG != 0;
        let found = Word::find(call.user(), word.address, is_private, Access::READ).await?;
        words.push((found, word.value as u32));
    }
    futex::wait_for_any(&call.thread, &words, deadline_ns).await
}

/// Continues a wait for `restart_syscall`.
pub async fn continue_futex_wait(
    call: &Call,
    address: u64,
    value: u32,
    bits: u32,
    operation: u32,
    deadline_ns: u64,
) -> SysResult {
    let is_private = operation & flags::FUTEX_PRIVATE_FLAG != 0;
    let word = Word::new(call.user(), address, is_private)?;
    futex::wait(&call.thread, &word, value, bits, Some(deadline_ns), operation).await
}
