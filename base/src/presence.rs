//! How a change of mappings reaches the cores that run in them: the part without a machine, so that
//! its model can be checked. `user` is the part with one.
//!
//! ```text
//!   core that enters                            core that changes mappings
//!   begin_stay                                  change entries
//!   full fence (`Doorbell::publish_in_user`)    advance (with a full fence)
//!   is_stale? flush                             stay_in? interrupt that core, wait for has_left
//!   user mode
//!   end_stay
//! ```
//!
//! Because of the two fences at least one side sees the other: either the core flushes, or it is
//! interrupted and waited for. What the change took away may be used again after that.
//!
//! Tables are another matter than pages: a core in the kernel whose root is loaded may still walk them, on
//! its own initiative, until it flushes. It is not interrupted for that: `has_forgotten` tells whether it has
//! flushed since, or has another root loaded. Root and generation change together, under a count that is
//! odd meanwhile.

use crate::primitives::{AtomicU64, Ordering, constant, fence};

/// How often translations of a space became wrong.
pub(crate) struct Generation(AtomicU64);

impl Generation {
    constant! {
        /// The first generation.
        pub(crate) fn new() -> Generation {
            Generation(AtomicU64::new(1))
        }
    }

    /// The present one.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Entries were changed; returns the generation before.
    #[inline]
    pub(crate) fn advance(&self) -> u64 {
        let before = self.0.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        before
    }
}

/// Where a core is, as far as spaces care. Only the core itself writes it.
pub(crate) struct Presence {
    /// Odd while in user mode; grows with every entry and exit.
    stay: AtomicU64,
    /// Root of the loaded space, 0 for none; changes only while `stay` is even.
    root: AtomicU64,
    /// The generation that this core's translations are good for.
    generation: AtomicU64,
    /// Odd while the core loads a root; grows with every load.
    loads: AtomicU64,
}

impl Presence {
    constant! {
        /// A core in the kernel with no space loaded.
        pub(crate) fn new() -> Presence {
            Presence {
                stay: AtomicU64::new(0),
                root: AtomicU64::new(0),
                generation: AtomicU64::new(0),
                loads: AtomicU64::new(0),
            }
        }
    }

    /// Whether this core has loaded the space with this root.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn has_loaded(&self, root: u64) -> bool {
        self.root.load(Ordering::Relaxed) == root
    }

    /// This core loads a space, or none (0), whose generation was read before: `load` loads the root, which
    /// makes it forget all translations.
    pub(crate) fn load(&self, root: u64, generation: u64, load: impl FnOnce()) {
        let loads = self.loads.load(Ordering::Relaxed);
        self.loads.store(loads + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.generation.store(generation, Ordering::Relaxed);
        self.root.store(root, Ordering::Relaxed);
        load();
        self.loads.store(loads + 2, Ordering::Release);
    }

    /// Whether this core walks no table that was taken out of the space with this root before the space had
    /// `generation`. Call it after `Generation::advance`.
    pub(crate) fn has_forgotten(&self, root: u64, generation: u64) -> bool {
        let loads = self.loads.load(Ordering::Acquire);
        let loaded = self.root.load(Ordering::Relaxed);
        let known = self.generation.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_stable = loads.is_multiple_of(2) && self.loads.load(Ordering::Relaxed) == loads;
        is_stable && (loaded != root || known >= generation)
    }

    /// This core enters user mode, unless it finds a reason not to; a full fence must follow before it
    /// looks for one.
    #[inline]
    #[must_use]
    pub(crate) fn begin_stay(&self) -> u64 {
        let stay = self.stay.load(Ordering::Relaxed) + 1;
        self.stay.store(stay, Ordering::Relaxed);
        stay
    }

    /// The present generation of the space that this core has loaded, if it must load the root again
    /// before it goes on into user mode.
    #[inline]
    pub(crate) fn is_stale(&self, generation: &Generation) -> Option<u64> {
        let now = generation.now();
        (self.generation.load(Ordering::Relaxed) != now).then_some(now)
    }

    /// This core has left user mode.
    #[inline]
    pub(crate) fn end_stay(&self, stay: u64) {
        self.stay.store(stay + 1, Ordering::Release);
    }

    /// One page changed, which made generation `before` old. Whether this core need only forget that
    /// page, because it has the space loaded and knew of everything before; it is taken to do so.
    #[cfg(not(loom))]
    #[inline]
    #[must_use]
    pub(crate) fn forgets_one(&self, root: u64, before: u64) -> bool {
        let one = self.has_loaded(root) && self.generation.load(Ordering::Relaxed) == before;
        if one {
            self.generation.store(before + 1, Ordering::Relaxed);
        }
        one
    }

    /// The stay of this core, when it is in user mode of the space, or about to be. Call it after
    /// `Generation::advance`.
    #[inline]
    pub(crate) fn stay_in(&self, root: u64) -> Option<u64> {
        let stay = self.stay.load(Ordering::Acquire);
        (stay % 2 == 1 && self.root.load(Ordering::Acquire) == root).then_some(stay)
    }

    /// Whether that stay is over.
    #[inline]
    pub(crate) fn has_left(&self, stay: u64) -> bool {
        self.stay.load(Ordering::Acquire) != stay
    }
}
