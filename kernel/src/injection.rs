//! Failed allocations for tests, in kernels with debug assertions only: `/proc/ferry/panic` says that an
//! allocation of the handlers of one process is to fail, and which.

#[cfg(debug_assertions)]
mod armed {
    use core::sync::atomic::{AtomicU64, Ordering};

    use base::heap::injection;

    /// Process in the upper half, allocations until one fails in the lower; 0 for nobody.
    static ARMED: AtomicU64 = AtomicU64::new(0);

    /// Makes the allocation number `count` of the handlers of a process fail, counted from its next call
    /// on. One process at a time; 0 takes it back.
    pub fn arm(pid: i32, count: u32) {
        ARMED.store(u64::from(pid.cast_unsigned()) << 32 | u64::from(count), Ordering::Relaxed);
    }

    /// Polls a handler of a process.
    #[inline]
    pub fn during<R>(pid: i32, poll: impl FnOnce() -> R) -> R {
        let armed = ARMED.load(Ordering::Relaxed);
        let left = armed as u32;
        if left == 0 || armed >> 32 != u64::from(pid.cast_unsigned()) {
            return poll();
        }
        injection::arm(left);
        let result = poll();
        let new = armed & !u64::from(u32::MAX) | u64::from(injection::disarm());
        // The poll itself may have armed it.
        let _ = ARMED.compare_exchange(armed, new, Ordering::Relaxed, Ordering::Relaxed);
        result
    }
}

#[cfg(not(debug_assertions))]
mod armed {
    /// Polls a handler of a process.
    #[inline(always)]
    pub fn during<R>(_: i32, poll: impl FnOnce() -> R) -> R {
        poll()
    }
}

pub use armed::*;
