//! Who waits for which futex word.
//!
//! Buckets of waiters in order of arrival, each under a lock of its own. A waiter knows its bucket;
//! only `requeue` changes that, with both buckets locked (in order of index). A waiter is woken by
//! being taken out of its bucket; so whoever finds it there decides alone what becomes of it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::task::Waker;

use abi::Errno;
use base::sync::rank::FUTEX;
use base::sync::{LockClass, Mutex, MutexGuard};

use crate::memory::FutexKey;

const BUCKETS: usize = 64;

/// The waker of one waiter; taken below a bucket.
static FUTEX_WAITER: LockClass = LockClass { name: "futex waiter", rank: 116 };

/// All waiters.
pub(super) struct Table {
    buckets: [Mutex<Vec<Entry>>; BUCKETS],
}

struct Entry {
    key: FutexKey,
    bits: u32,
    /// The lock that it takes when it is woken (`FUTEX_WAIT_REQUEUE_PI`).
    lock: Option<FutexKey>,
    waiter: Arc<Waiter>,
}

/// One waiting call.
pub(super) struct Waiter {
    /// Index of the bucket that it is in, or was in last.
    bucket: AtomicUsize,
    woken: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Waiter {
    /// Whether it was woken; if not, `waker` will be.
    pub(super) fn poll_woken(&self, waker: &Waker) -> bool {
        if self.woken.load(Ordering::Acquire) {
            return true;
        }
        {
            let mut slot = self.waker.lock();
            if !slot.as_ref().is_some_and(|present| present.will_wake(waker)) {
                *slot = Some(waker.clone());
            }
        }
        self.woken.load(Ordering::Acquire)
    }

    fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Waiters that were taken out and are to be woken once no lock is held.
#[must_use]
pub(super) struct Released {
    waiters: Vec<Arc<Waiter>>,
    moved: usize,
}

impl Released {
    /// Wakes them; returns how many were taken out or moved.
    pub(super) fn wake_all(self) -> usize {
        for waiter in &self.waiters {
            waiter.wake();
        }
        self.waiters.len() + self.moved
    }
}

fn bucket_of(key: &FutexKey) -> usize {
    let (high, low) = match *key {
        FutexKey::Private { space, address } => (space, address),
        FutexKey::Shared { source, offset } => (!source, offset),
    };
    // Fibonacci hashing: the upper bits of the product depend on all bits of the key.
    let mixed = (high.rotate_left(32) ^ (low >> 2)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 58) as usize % BUCKETS
}

impl Table {
    /// Nobody waits.
    pub(super) const fn new() -> Table {
        Table { buckets: [const { Mutex::new(&FUTEX, Vec::new()) }; BUCKETS] }
    }

    fn lock(&self, index: usize) -> MutexGuard<'_, Vec<Entry>> {
        self.buckets[index % BUCKETS].lock()
    }

    /// Adds a waiter if `matches` says, with the bucket locked, that the word still has its value.
    ///
    /// # Errors
    /// `EAGAIN` when it has not, `ENOMEM`.
    pub(super) fn enqueue(
        &self,
        key: FutexKey,
        bits: u32,
        lock: Option<FutexKey>,
        matches: impl FnOnce() -> bool,
    ) -> Result<Arc<Waiter>, Errno> {
        let index = bucket_of(&key);
        let waiter = Arc::new(Waiter {
            bucket: AtomicUsize::new(index),
            woken: AtomicBool::new(false),
            waker: Mutex::new(&FUTEX_WAITER, None),
        });
        let mut bucket = self.lock(index);
        if !matches() {
            return Err(Errno::EAGAIN);
        }
        bucket.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        bucket.push(Entry { key, bits, lock, waiter: waiter.clone() });
        Ok(waiter)
    }

    /// Takes a waiter out; `false` when it was woken already.
    pub(super) fn remove(&self, waiter: &Arc<Waiter>) -> bool {
        loop {
            let index = waiter.bucket.load(Ordering::Acquire);
            let mut bucket = self.lock(index);
            if waiter.bucket.load(Ordering::Acquire) != index {
                continue;
            }
            let position = bucket.iter().position(|entry| Arc::ptr_eq(&entry.waiter, waiter));
            return position.map(|position| bucket.remove(position)).is_some();
        }
    }

    /// Whether somebody waits for a word.
    pub(super) fn has_waiter(&self, key: &FutexKey) -> bool {
        self.lock(bucket_of(key)).iter().any(|entry| entry.key == *key)
    }

    /// Wakes up to `count` waiters of a word whose bits meet `bits`; returns how many.
    ///
    /// # Errors
    /// `EINVAL` when one waits to take a lock; those before it are woken.
    pub(super) fn wake(&self, key: FutexKey, count: usize, bits: u32) -> Result<usize, Errno> {
        let mut released = Vec::new();
        let mut result = Ok(());
        {
            let mut bucket = self.lock(bucket_of(&key));
            let mut position = 0;
            while released.len() < count
                && let Some(entry) = bucket.get(position)
            {
                if entry.key == key && entry.lock.is_some() {
                    result = Err(Errno::EINVAL);
                    break;
                }
                if entry.key == key && entry.bits & bits != 0 {
                    released.push(bucket.remove(position).waiter);
                } else {
                    position += 1;
                }
            }
        }
        let count = Released { waiters: released, moved: 0 }.wake_all();
        result.map(|()| count)
    }

    /// Takes out up to `count` waiters of a word that will take the lock `lock`.
    ///
    /// # Errors
    /// `EAGAIN` when `matches` says no; `EINVAL` when the first waits for anything else; `ENOMEM`.
    pub(super) fn take_for_lock(
        &self,
        key: FutexKey,
        lock: FutexKey,
        count: usize,
        matches: impl FnOnce() -> bool,
    ) -> Result<Released, Errno> {
        let mut bucket = self.lock(bucket_of(&key));
        if !matches() {
            return Err(Errno::EAGAIN);
        }
        let mut released = Released { waiters: Vec::new(), moved: 0 };
        let mut position = 0;
        while released.waiters.len() < count
            && let Some(entry) = bucket.get(position)
        {
            if entry.key != key {
                position += 1;
            } else if entry.lock == Some(lock) {
                released.waiters.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                released.waiters.push(bucket.remove(position).waiter);
            } else if released.waiters.is_empty() {
                return Err(Errno::EINVAL);
            } else {
                break;
            }
        }
        Ok(released)
    }

    /// As [`Table::requeue_held`], for a caller that holds no lock.
    pub(super) fn requeue(
        &self,
        from: FutexKey,
        to: FutexKey,
        wake: usize,
        move_count: usize,
        matches: impl FnOnce() -> bool,
    ) -> Result<usize, Errno> {
        Ok(self.requeue_held(from, to, wake, move_count, matches)?.wake_all())
    }

    /// Takes up to `wake` waiters of `from` out, and moves up to `move_count` further ones to `to`,
    /// behind those that wait there.
    ///
    /// # Errors
    /// `EAGAIN` when `matches` says no, `ENOMEM`.
    pub(super) fn requeue_held(
        &self,
        from: FutexKey,
        to: FutexKey,
        wake: usize,
        move_count: usize,
        matches: impl FnOnce() -> bool,
    ) -> Result<Released, Errno> {
        let (source, target) = (bucket_of(&from), bucket_of(&to));
        let (mut first, mut second);
        let (source_bucket, target_bucket) = if source == target {
            first = self.lock(source);
            (&mut *first, None)
        } else {
            let (low, high) = (source.min(target), source.max(target));
            first = self.lock(low);
            second = self.buckets[high % BUCKETS].lock_nested();
            if source < target {
                (&mut *first, Some(&mut *second))
            } else {
                (&mut *second, Some(&mut *first))
            }
        };
        if !matches() {
            return Err(Errno::EAGAIN);
        }
        let mut released = Released { waiters: Vec::new(), moved: 0 };
        let mut moving = Vec::new();
        let mut position = 0;
        while let Some(entry) = source_bucket.get(position) {
            if entry.key != from {
                position += 1;
            } else if entry.lock.is_some() {
                return Err(Errno::EINVAL);
            } else if released.waiters.len() < wake {
                released.waiters.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                released.waiters.push(source_bucket.remove(position).waiter);
            } else if moving.len() < move_count {
                moving.push(source_bucket.remove(position));
            } else {
                break;
            }
        }
        released.moved = moving.len();
        let destination = target_bucket.unwrap_or(source_bucket);
        for mut entry in moving {
            entry.key = to;
            entry.waiter.bucket.store(target, Ordering::Release);
            destination.push(entry);
        }
        Ok(released)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(address: u64) -> FutexKey {
        FutexKey::Private { space: 1, address }
    }

    fn waiters(table: &Table, address: u64, count: usize) -> Vec<Arc<Waiter>> {
        (0..count).map(|_| table.enqueue(key(address), !0, None, || true).unwrap()).collect()
    }

    fn woken(waiters: &[Arc<Waiter>]) -> Vec<bool> {
        waiters.iter().map(|waiter| waiter.woken.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn a_word_that_changed_is_not_waited_for() {
        let table = Table::new();
        assert_eq!(table.enqueue(key(4), !0, None, || false).err(), Some(Errno::EAGAIN));
        assert_eq!(table.wake(key(4), 1, !0), Ok(0));
    }

    #[test]
    fn waiters_wake_in_order_of_arrival() {
        let table = Table::new();
        let waiting = waiters(&table, 4, 3);
        let other = waiters(&table, 8, 1);
        assert_eq!(table.wake(key(4), 2, !0), Ok(2));
        assert_eq!(woken(&waiting), [true, true, false]);
        assert_eq!(woken(&other), [false]);
    }

    #[test]
    fn only_meeting_bits_wake() {
        let table = Table::new();
        let first = table.enqueue(key(4), 1, None, || true).unwrap();
        let second = table.enqueue(key(4), 2, None, || true).unwrap();
        assert_eq!(table.wake(key(4), 9, 2), Ok(1));
        assert_eq!(woken(&[first, second]), [false, true]);
    }

    #[test]
    fn requeue_wakes_some_and_moves_some() {
        let table = Table::new();
        let waiting = waiters(&table, 4, 5);
        assert_eq!(table.requeue(key(4), key(64), 1, 2, || true), Ok(3));
        assert_eq!(woken(&waiting), [true, false, false, false, false]);
        assert_eq!(table.wake(key(64), 9, !0), Ok(2));
        assert_eq!(table.wake(key(4), 9, !0), Ok(2));
    }

    #[test]
    fn requeue_compares_first() {
        let table = Table::new();
        let _waiting = waiters(&table, 4, 1);
        assert_eq!(table.requeue(key(4), key(8), 1, 1, || false), Err(Errno::EAGAIN));
        assert_eq!(table.wake(key(4), 1, !0), Ok(1));
    }

    #[test]
    fn a_moved_waiter_can_leave() {
        let table = Table::new();
        let waiting = waiters(&table, 4, 2);
        for target in (8..4096).step_by(4) {
            assert_eq!(table.requeue(key(target - 4), key(target), 0, 9, || true), Ok(2));
        }
        assert!(table.remove(&waiting[0]));
        assert!(!table.remove(&waiting[0]));
        assert_eq!(table.wake(key(4092), 9, !0), Ok(1));
        assert!(!table.remove(&waiting[1]));
    }

    #[test]
    fn requeue_onto_the_same_word_keeps_everyone() {
        let table = Table::new();
        let waiting = waiters(&table, 4, 3);
        assert_eq!(table.requeue(key(4), key(4), 0, 9, || true), Ok(3));
        assert_eq!(table.wake(key(4), 9, !0), Ok(waiting.len()));
    }

    #[test]
    fn who_takes_a_lock_is_only_released_for_it() {
        let table = Table::new();
        let first = table.enqueue(key(4), !0, Some(key(8)), || true).unwrap();
        assert_eq!(table.wake(key(4), 1, !0), Err(Errno::EINVAL));
        assert_eq!(table.requeue(key(4), key(8), 1, 1, || true), Err(Errno::EINVAL));
        assert_eq!(table.take_for_lock(key(4), key(12), 1, || true).err(), Some(Errno::EINVAL));
        assert_eq!(table.take_for_lock(key(4), key(8), 1, || false).err(), Some(Errno::EAGAIN));
        assert_eq!(table.take_for_lock(key(4), key(8), 1, || true).unwrap().wake_all(), 1);
        assert_eq!(woken(&[first]), [true]);
    }

    proptest! {
        #[test]
        fn nobody_is_lost_or_woken_twice(
            steps in prop::collection::vec((0u64..4, 0u64..4, 0usize..3, 0usize..3), 1..60),
        ) {
            let table = Table::new();
            let mut added = 0;
            let mut woken = 0;
            for (from, to, wake, move_count) in steps {
                let _waiter = table.enqueue(key(from * 4), !0, None, || true).unwrap();
                added += 1;
                woken += table.wake(key(to * 4), wake, !0).unwrap();
                let counted = table.requeue(key(from * 4), key(to * 4), 0, move_count, || true);
                prop_assert!(counted.unwrap() <= move_count);
            }
            for address in 0..4 {
                woken += table.wake(key(address * 4), usize::MAX, !0).unwrap();
            }
            prop_assert_eq!(added, woken);
        }
    }
}
