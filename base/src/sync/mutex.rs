//! A value that one core at a time may use.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use super::{LockClass, TicketLock, order};
use crate::primitives::{UnsafeCell, constant};

/// A value under a spin lock of a class. Rule: `value` belongs to whoever holds `lock`.
pub struct Mutex<T: ?Sized> {
    class: &'static LockClass,
    lock: TicketLock,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives the value to one core at a time.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    constant! {
        /// A free lock of `class` around `value`.
        pub fn new(class: &'static LockClass, value: T) -> Mutex<T> {
            Mutex { class, lock: TicketLock::new(), value: UnsafeCell::new(value) }
        }
    }

    /// The value, without the lock.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock. Panics in checked builds when the core holds a lock of the same or a higher
    /// rank.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        order::acquire(self.class, false);
        self.lock.wait();
        MutexGuard { mutex: self, not_send: PhantomData }
    }

    /// Waits for the lock while another of the same class is held. The caller sees to it that the two
    /// are always taken in the same order.
    #[inline]
    #[track_caller]
    pub fn lock_nested(&self) -> MutexGuard<'_, T> {
        order::acquire(self.class, true);
        self.lock.wait();
        MutexGuard { mutex: self, not_send: PhantomData }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        if !self.lock.try_acquire() {
            return None;
        }
        order::acquired_without_waiting(self.class);
        Some(MutexGuard { mutex: self, not_send: PhantomData })
    }

    /// The value: nobody else can have the lock.
    #[cfg(not(loom))]
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self` excludes every other use.
        self.value.with_mut(|value| unsafe { &mut *value })
    }

    /// The class that it was made with.
    pub const fn class(&self) -> &'static LockClass {
        self.class
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(guard) => f.debug_tuple("Mutex").field(&&*guard).finish(),
            None => f.write_str("Mutex(held)"),
        }
    }
}

/// The right to use the value of a `Mutex`, until dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// A guard belongs to its core.
    not_send: PhantomData<*const ()>,
}

// SAFETY: sharing a guard shares the value by reference.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock.
        self.mutex.value.with(|value| unsafe { &*value })
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock.
        self.mutex.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.lock.give_on();
        order::release(self.mutex.class);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::rank::{INODE, PIPE, PROCESS};

    #[test]
    fn threads_exclude_each_other() {
        static COUNT: Mutex<u64> = Mutex::new(&PIPE, 0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        *COUNT.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*COUNT.lock(), 20_000);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn falling_rank_is_found() {
        let low = Mutex::new(&PROCESS, ());
        let high = Mutex::new(&PIPE, ());
        let rising = crate::panic::catch(|| {
            let _first = low.lock();
            let _second = high.lock();
        });
        assert!(rising.is_ok());
        let falling = crate::panic::catch(|| {
            let _first = high.lock();
            let _second = low.lock();
        });
        assert!(falling.is_err());
        assert!(high.try_lock().is_some(), "the guard was released while unwinding");
    }

    #[test]
    #[cfg(debug_assertions)]
    fn the_same_rank_nests_only_when_asked() {
        let parent = Mutex::new(&INODE, ());
        let child = Mutex::new(&INODE, ());
        let held = parent.lock();
        drop(child.lock_nested());
        assert!(crate::panic::catch(|| drop(child.lock())).is_err());
        drop(held);
    }

    #[test]
    fn a_held_lock_is_not_given_to_a_second() {
        let mutex = Mutex::new(&PIPE, 1);
        let held = mutex.lock();
        assert!(mutex.try_lock().is_none());
        drop(held);
        assert_eq!(mutex.try_lock().map(|guard| *guard), Some(1));
    }
}
