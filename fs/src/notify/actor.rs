//! Who acts, for listeners that are told: the process and thread whose call a core is carrying out.
//!
//! Handlers say so around each of their polls, while there are listeners that want to know. A core does nothing else
//! during a poll, so the word is that of the call, whichever core serves it.

use super::fanotify;
use base::cpu::{MAX_CPUS, PerCpu};
use core::sync::atomic::{AtomicU64, Ordering};

/// A process and one of its threads; zeroes for the kernel itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Actor {
    /// The process.
    pub process: i32,
    /// The thread.
    pub thread: i32,
}

/// Process in the upper half, thread in the lower. Only the core itself touches its word.
static ACTING: PerCpu<AtomicU64> = PerCpu::new([const { AtomicU64::new(0) }; MAX_CPUS]);

/// Carries out a part of a call of an actor, without waiting.
#[inline]
pub fn acting<R>(process: i32, thread: i32, act: impl FnOnce() -> R) -> R {
    if !fanotify::is_used() {
        return act();
    }
    let word = u64::from(process.cast_unsigned()) << 32 | u64::from(thread.cast_unsigned());
    let before = ACTING.here().swap(word, Ordering::Relaxed);
    let result = act();
    ACTING.here().store(before, Ordering::Relaxed);
    result
}

/// Who acts on this core.
pub(super) fn current() -> Actor {
    let word = ACTING.here().load(Ordering::Relaxed);
    Actor { process: ((word >> 32) as u32).cast_signed(), thread: (word as u32).cast_signed() }
}
