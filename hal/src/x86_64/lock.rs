//! A spin lock for the little that this layer shares between cores. Interrupts are off in the kernel,
//! so nothing else is needed; `base` has the real locks.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

use super::cpu;

pub(super) struct SpinLock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached by who holds the lock.
unsafe impl<T: Send> Sync for SpinLock<T> {}

pub(super) struct Guard<'a, T>(&'a SpinLock<T>);

impl<T> SpinLock<T> {
    pub(super) const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    pub(super) fn lock(&self) -> Guard<'_, T> {
        while self.taken.swap(true, Ordering::Acquire) {
            cpu::relax();
        }
        Guard(self)
    }

    /// Tries so many times and gives up.
    pub(super) fn lock_for(&self, tries: u32) -> Option<Guard<'_, T>> {
        for _ in 0..tries {
            if !self.taken.swap(true, Ordering::Acquire) {
                return Some(Guard(self));
            }
            cpu::relax();
        }
        None
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and is borrowed for writing.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}
