//! A bell: many ring, one looks. However often it is rung, one message at a time is under way to the one
//! who looks; what was made visible before a ring is seen by a look behind it.

use crate::primitives::{AtomicU32, Ordering};

/// See the top of the file.
#[derive(Default)]
pub struct Bell(AtomicU32);

impl Bell {
    /// A bell that nobody has rung.
    pub fn new() -> Bell {
        Bell(AtomicU32::new(0))
    }

    /// Something was made visible. True when the caller must send the message; else one is under way.
    #[must_use]
    pub fn ring(&self) -> bool {
        self.0.swap(1, Ordering::AcqRel) == 0
    }

    /// The message has come; whoever took it looks *after* this.
    ///
    /// An exchange, not a store: either it sees the ring, and with it what that made visible, or the
    /// ring sees that no message is under way. A store may become visible after the look.
    pub fn answer(&self) {
        self.0.swap(0, Ordering::AcqRel);
    }

    /// How it must not be done, for the model that finds it out.
    #[cfg(loom)]
    pub(crate) fn answer_by_a_store(&self) {
        self.0.store(0, Ordering::Release);
    }
}
