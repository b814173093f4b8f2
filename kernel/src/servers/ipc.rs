//! Calls of class ipc: futexes. Pipes are of this class too; their handlers are with the files.

use abi::Errno;
use abi::futex::{self as flags, decode_wake_operation};
use abi::time::Timespec;
use base::time;
use policy::table::number;

use crate::call::{Call, SysResult};
use crate::dispatch;
use crate::futex::{self, Word};
use crate::memory::Access;

/// Carries out a call of this class.
pub async fn serve(call: &Call) -> SysResult {
    match call.number() {
        number::futex => futex(call).await,
        number::pipe => super::file::pipe(call).await,
        number::pipe2 => super::file::pipe2(call).await,
        _ => Err(dispatch::unknown(call.number())),
    }
}

fn word(call: &Call, index: usize, operation: u32) -> Result<Word, Errno> {
    let is_private = operation & flags::FUTEX_PRIVATE_FLAG != 0;
    Word::new(call.user(), call.argument(index), is_private)
}

/// A count of waiters to wake. As on Linux, one is woken even if fewer are asked for.
fn wake_count(value: u32) -> usize {
    usize::try_from(value.cast_signed()).unwrap_or(1).max(1)
}

/// A count of waiters to wake or move by a requeue operation; `EINVAL` when negative.
fn count(value: u32) -> Result<usize, Errno> {
    usize::try_from(value.cast_signed()).map_err(|_| Errno::EINVAL)
}

/// The end of a wait on the monotonic clock. `FUTEX_WAIT` takes a span, `FUTEX_WAIT_BITSET` a time on
/// either clock.
async fn deadline(call: &Call, operation: u32) -> Result<Option<u64>, Errno> {
    let address = call.argument(3);
    if address == 0 {
        return Ok(None);
    }
    let timeout_ns = call.user().read_value::<Timespec>(address).await?.to_ns()?;
    let now_ns = time::now_ns();
    Ok(Some(if operation & flags::FUTEX_COMMAND_MASK == flags::FUTEX_WAIT {
        now_ns.saturating_add(timeout_ns)
    } else if operation & flags::FUTEX_CLOCK_REALTIME != 0 {
        now_ns.saturating_add(timeout_ns.saturating_sub(time::wall_ns()))
    } else {
        timeout_ns
    }))
}

async fn futex(call: &Call) -> SysResult {
    let operation = call.unsigned(1);
    let value = call.unsigned(2);
    let second_value = call.argument(3) as u32;
    let bits = call.unsigned(5);
    let command = operation & flags::FUTEX_COMMAND_MASK;
    let on_wall_clock = operation & flags::FUTEX_CLOCK_REALTIME != 0;
    if on_wall_clock && command != flags::FUTEX_WAIT_BITSET {
        return Err(Errno::ENOSYS);
    }
    match command {
        flags::FUTEX_WAIT | flags::FUTEX_WAIT_BITSET => {
            let bits = if command == flags::FUTEX_WAIT { flags::MATCH_ANY } else { bits };
            let deadline_ns = deadline(call, operation).await?;
            if bits == 0 {
                return Err(Errno::EINVAL);
            }
            let word = word(call, 0, operation)?;
            futex::wait(&call.thread, &word, value, bits, deadline_ns, operation).await
        }
        flags::FUTEX_WAKE => {
            let word = word(call, 0, operation)?;
            Ok(word.wake(wake_count(value), flags::MATCH_ANY) as u64)
        }
        flags::FUTEX_WAKE_BITSET => {
            if bits == 0 {
                return Err(Errno::EINVAL);
            }
            Ok(word(call, 0, operation)?.wake(wake_count(value), bits) as u64)
        }
        flags::FUTEX_REQUEUE | flags::FUTEX_CMP_REQUEUE => {
            let (wake, move_count) = (count(value)?, count(second_value)?);
            let (from, to) = (word(call, 0, operation)?, word(call, 4, operation)?);
            let expected = (command == flags::FUTEX_CMP_REQUEUE).then_some(bits);
            if operation & flags::FUTEX_PRIVATE_FLAG == 0 {
                // As on Linux, a word that others may share has to be there.
                call.user().bring_in(call.argument(4), Access::WRITE).await?;
            }
            futex::requeue(&from, &to, wake, move_count, expected).await
        }
        flags::FUTEX_WAKE_OP => {
            let (first, second) = (word(call, 0, operation)?, word(call, 4, operation)?);
            let (change, comparison) = decode_wake_operation(bits)?;
            let (wake_first, wake_second) = (wake_count(value), wake_count(second_value));
            futex::wake_operation(&first, &second, wake_first, wake_second, change, comparison)
                .await
        }
        _ => Err(Errno::ENOSYS),
    }
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
