//! How a core that halts, or runs user code, learns of work.
//!
//! The core publishes where it is, *then* looks for work once more, then halts. Whoever has work makes
//! it visible, *then* looks where the core is. A full fence between the two steps on both sides makes
//! at least one of them see the other. So an interrupt is sent only to a core that may miss the work.

use crate::primitives::{AtomicU8, Ordering, constant, fence};

const AWAKE: u8 = 0;
const PARKED: u8 = 1;
const IN_USER: u8 = 2;

/// Where a core is, as far as wakers care.
pub(crate) struct Doorbell(AtomicU8);

impl Doorbell {
    constant! {
        /// The doorbell of a core in the kernel.
        pub(crate) fn new() -> Doorbell {
            Doorbell(AtomicU8::new(AWAKE))
        }
    }

    /// This core is about to halt. It must look for work after this.
    #[inline]
    pub(crate) fn publish_parked(&self) {
        self.0.store(PARKED, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// This core is about to enter user mode. It must look for work after this.
    #[inline]
    pub(crate) fn publish_in_user(&self) {
        self.0.store(IN_USER, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// This core is in the kernel again and looks for work before it publishes anything else.
    #[inline]
    pub(crate) fn publish_awake(&self) {
        self.0.store(AWAKE, Ordering::Relaxed);
    }

    /// Work was made visible. True when the caller must interrupt the core; of several callers only one
    /// is told so.
    #[must_use]
    #[inline]
    pub(crate) fn ring(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) != AWAKE && self.0.swap(AWAKE, Ordering::Relaxed) != AWAKE
    }

    /// Whether the core is neither halted nor in user mode. A hint.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn is_awake(&self) -> bool {
        self.0.load(Ordering::Relaxed) == AWAKE
    }

    /// Whether the core is halted or about to be. A hint.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn is_parked(&self) -> bool {
        self.0.load(Ordering::Relaxed) == PARKED
    }
}
