//! Numbers of threads and processes: which are taken, and which comes next.

use alloc::boxed::Box;
use core::sync::atomic::Ordering;

use abi::Errno;

use super::{Slot, THREAD_LIMIT, Tree, lock};
use crate::process::ids::PID_LIMIT;

const CHUNK_SLOTS: usize = 64;
const CHUNK_COUNT: usize = PID_LIMIT as usize / CHUNK_SLOTS;
/// Numbers that are kept for the kernel when the count starts again.
pub(super) const FIRST_AFTER_WRAP: i32 = 300;

pub(super) struct Chunk {
    /// Bit set: the number is taken.
    taken: u64,
    pub(super) slots: [Slot; CHUNK_SLOTS],
}

/// A number that is taken but names nothing yet. Gives it back when dropped.
pub(in crate::process) struct ReservedNumber(i32);

impl ReservedNumber {
    pub(in crate::process) fn get(&self) -> i32 {
        self.0
    }

    /// The number names something now, which frees it when it goes.
    pub(super) fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for ReservedNumber {
    fn drop(&mut self) {
        lock().release_if_empty(self.0);
    }
}

pub(super) fn split(number: i32) -> Option<(usize, usize)> {
    let number = usize::try_from(number).ok()?;
    Some((number / CHUNK_SLOTS, number % CHUNK_SLOTS))
}

impl Tree {
    /// The lowest free number in a chunk that is not below `from` there.
    fn free_in_chunk(&self, chunk: usize, from: usize) -> Option<usize> {
        let taken = match self.chunks.get(chunk) {
            Some(Some(chunk)) => chunk.taken,
            _ => 0,
        };
        let free = !taken & (u64::MAX << from);
        (free != 0).then(|| free.trailing_zeros() as usize)
    }

    fn take_number(&mut self) -> Result<i32, Errno> {
        let start =
            if self.last_number + 1 >= PID_LIMIT { FIRST_AFTER_WRAP } else { self.last_number + 1 };
        let (first_chunk, mut from) = split(start).ok_or(Errno::EAGAIN)?;
        for step in 0..=CHUNK_COUNT {
            let mut chunk = first_chunk + step;
            if chunk >= CHUNK_COUNT {
                chunk -= CHUNK_COUNT;
                if chunk < FIRST_AFTER_WRAP as usize / CHUNK_SLOTS {
                    continue;
                }
            }
            if let Some(index) = self.free_in_chunk(chunk, from) {
                let number = i32::try_from(chunk * CHUNK_SLOTS + index).unwrap_or(0);
                self.mark_taken(chunk, index)?;
                self.last_number = number;
                return Ok(number);
            }
            from = 0;
        }
        Err(Errno::EAGAIN)
    }

    pub(super) fn mark_taken(&mut self, chunk: usize, index: usize) -> Result<(), Errno> {
        if self.chunks.is_empty() {
            self.chunks.try_reserve_exact(CHUNK_COUNT).map_err(|_| Errno::ENOMEM)?;
            self.chunks.resize_with(CHUNK_COUNT, || None);
        }
        let entry = self.chunks.get_mut(chunk).ok_or(Errno::EAGAIN)?;
        let chunk = entry.get_or_insert_with(|| {
            Box::new(Chunk { taken: 0, slots: core::array::from_fn(|_| Slot::default()) })
        });
        chunk.taken |= 1 << index;
        Ok(())
    }

    /// Makes a number free if it names nothing, and its chunk with it.
    pub(super) fn release_if_empty(&mut self, number: i32) {
        let Some((chunk_index, index)) = split(number) else { return };
        let Some(entry) = self.chunks.get_mut(chunk_index) else { return };
        let Some(chunk) = entry else { return };
        let is_empty = chunk.slots.get(index).is_some_and(|slot| {
            slot.thread.is_none()
                && slot.node.is_none()
                && slot.group.is_none()
                && slot.session.is_none()
        });
        if is_empty {
            chunk.taken &= !(1 << index);
            if chunk.taken == 0 {
                *entry = None;
            }
        }
    }

    /// Takes a number for a new thread of a user. `EAGAIN` at the limit of threads, of numbers, or of
    /// the user (`user_limit`).
    pub(in crate::process) fn reserve_number(
        &mut self,
        user: u32,
        user_limit: u64,
    ) -> Result<ReservedNumber, Errno> {
        if self.thread_count >= THREAD_LIMIT.load(Ordering::Relaxed) {
            return Err(Errno::EAGAIN);
        }
        let of_user = self.threads_of_user.get(&user).copied().unwrap_or(0);
        if of_user as u64 >= user_limit {
            return Err(Errno::EAGAIN);
        }
        Ok(ReservedNumber(self.take_number()?))
    }
}
