//! Allocations that fail because a test wants it: in kernels with debug assertions only.
//!
//! A core counts its allocations down while it is armed; the one that reaches zero fails.

#[cfg(debug_assertions)]
mod armed {
    use core::sync::atomic::{AtomicU32, Ordering};

    use hal::MAX_CPUS;

    use crate::cpu::PerCpu;

    /// Allocations until one fails; 0 while nothing is armed. Only the core itself touches it.
    static LEFT: PerCpu<AtomicU32> = PerCpu::new([const { AtomicU32::new(0) }; MAX_CPUS]);

    /// Makes the allocation number `left` from now on this core fail; 0 for none.
    pub fn arm(left: u32) {
        LEFT.here().store(left, Ordering::Relaxed);
    }

    /// Takes back what `arm` said: how many allocations are left until the one that fails.
    pub fn disarm() -> u32 {
        LEFT.here().swap(0, Ordering::Relaxed)
    }

    /// Runs `f`, whose allocations neither fail nor count.
    #[inline]
    pub(crate) fn paused<R>(f: impl FnOnce() -> R) -> R {
        let left = disarm();
        let result = f();
        arm(left);
        result
    }

    #[inline]
    pub(crate) fn strikes() -> bool {
        let left = LEFT.here();
        match left.load(Ordering::Relaxed) {
            0 => false,
            now => {
                left.store(now - 1, Ordering::Relaxed);
                now == 1
            }
        }
    }
}

#[cfg(not(debug_assertions))]
mod armed {
    #[inline(always)]
    pub(crate) fn paused<R>(f: impl FnOnce() -> R) -> R {
        f()
    }

    #[inline(always)]
    pub(crate) fn strikes() -> bool {
        false
    }
}

#[cfg(debug_assertions)]
pub use armed::{arm, disarm};
pub(crate) use armed::{paused, strikes};
