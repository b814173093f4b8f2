//! A value that many cores may read or one may change.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use super::{LockClass, order};
use crate::cpu::relax;

/// Set while a writer has the lock or waits for the last readers to go.
const WRITER: u32 = 1 << 31;

/// A value under a spin lock for readers and writers. A waiting writer keeps new readers out. Rule:
/// `value` may be read by whoever is counted in `state`, and changed by who set `WRITER` there and saw
/// no readers.
pub struct RwLock<T: ?Sized> {
    class: &'static LockClass,
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives the value to one writer or to readers that share it.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

impl<T> RwLock<T> {
    /// A free lock of `class` around `value`.
    pub const fn new(class: &'static LockClass, value: T) -> RwLock<T> {
        RwLock { class, state: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// The value, without the lock.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until the value may be read. Panics in checked builds when the order of locks forbids it.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, T> {
        order::acquire(self.class, false);
        loop {
            let state = self.state.load(Ordering::Relaxed);
            if state & WRITER == 0
                && self
                    .state
                    .compare_exchange_weak(state, state + 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return ReadGuard { lock: self, not_send: PhantomData };
            }
            relax();
        }
    }

    /// Waits until the value may be changed. Panics in checked builds when the order of locks forbids
    /// it.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> WriteGuard<'_, T> {
        order::acquire(self.class, false);
        while self.state.fetch_or(WRITER, Ordering::Acquire) & WRITER != 0 {
            relax();
        }
        while self.state.load(Ordering::Acquire) != WRITER {
            relax();
        }
        WriteGuard { lock: self, not_send: PhantomData }
    }

    /// The value: nobody else can have the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: ?Sized> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RwLock({})", self.class.name)
    }
}

/// The right to read the value of a `RwLock`, until dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct ReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    not_send: PhantomData<*const ()>,
}

/// The right to change the value of a `RwLock`, until dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    not_send: PhantomData<*const ()>,
}

impl<T: ?Sized> Deref for ReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is counted as a reader, so nobody writes.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for ReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.state.fetch_sub(1, Ordering::Release);
        order::release(self.lock.class);
    }
}

impl<T: ?Sized> Deref for WriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for WriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for WriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.state.fetch_and(!WRITER, Ordering::Release);
        order::release(self.lock.class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::rank::MOUNTS;

    #[test]
    fn readers_never_see_a_half_written_value() {
        static PAIR: RwLock<(u64, u64)> = RwLock::new(&MOUNTS, (0, 0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let mut pair = PAIR.write();
                        pair.0 += 1;
                        pair.1 += 1;
                    }
                });
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let pair = PAIR.read();
                        assert_eq!(pair.0, pair.1);
                    }
                });
            }
        });
        assert_eq!(*PAIR.read(), (4_000, 4_000));
    }
}
