//! Instances that watch instances: no circles, and no deeper than Linux allows.
//!
//! The rule, checked when an instance is added to another: neither is the adding one below the added,
//! nor does a chain of instances become longer than `LONGEST_CHAIN` (`ELOOP`). So a wake-up that goes
//! up from instance to instance ends soon.
//!
//! One search runs at a time, under a lock of its own that is held until the interest is in place; it
//! visits each instance once.

use super::Epoll;
use super::interest::Interest;
use crate::file::OpenFile;
use abi::Errno;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::sync::{Mutex, MutexGuard, rank};
use core::sync::atomic::{AtomicU64, Ordering};

/// Instances of which each watches the next.
const LONGEST_CHAIN: u64 = 5;

/// Number of the last search.
static NESTING: Mutex<u64> = Mutex::new(&rank::EPOLL_NESTING, 0);

/// What searches note about an instance; used by whoever holds `NESTING`.
pub(super) struct Marks {
    seen: AtomicU64,
    result: AtomicU64,
}

impl Marks {
    pub(super) fn new() -> Marks {
        Marks { seen: AtomicU64::new(0), result: AtomicU64::new(0) }
    }

    fn get(&self, number: u64) -> Option<u64> {
        (self.seen.load(Ordering::Relaxed) == number).then(|| self.result.load(Ordering::Relaxed))
    }

    fn set(&self, number: u64, result: u64) {
        self.result.store(result, Ordering::Relaxed);
        self.seen.store(number, Ordering::Relaxed);
    }
}

/// The right to search and to add an instance. The fields are dropped in this order: the lock first,
/// then what may be closed by it.
pub(super) struct Search {
    number: MutexGuard<'static, u64>,
    /// What was met on the way, so that nothing is closed while the lock is held.
    files: Vec<Arc<OpenFile>>,
    instances: Vec<Arc<Epoll>>,
    interests: Vec<Arc<Interest>>,
}

impl Search {
    pub(super) fn begin() -> Search {
        Search {
            number: NESTING.lock(),
            files: Vec::new(),
            instances: Vec::new(),
            interests: Vec::new(),
        }
    }

    /// The instances that `epoll` watches.
    fn below(&mut self, epoll: &Epoll) -> Vec<Arc<OpenFile>> {
        let interests: Vec<Arc<Interest>> = epoll.state.lock().nested.values().cloned().collect();
        let files: Vec<Arc<OpenFile>> =
            interests.iter().filter_map(|interest| interest.file()).collect();
        self.interests.extend(interests);
        self.files.extend(files.iter().cloned());
        files
    }

    /// The instances that watch `epoll`.
    fn above(&mut self, epoll: &Epoll) -> Vec<Arc<Epoll>> {
        let interests: Vec<Arc<Interest>> =
            epoll.state.lock().outer.values().filter_map(|outer| outer.upgrade()).collect();
        let instances: Vec<Arc<Epoll>> =
            interests.iter().filter_map(|interest| interest.epoll()).collect();
        self.interests.extend(interests);
        self.instances.extend(instances.iter().cloned());
        instances
    }

    /// `ELOOP` when `outer` may not watch `inner`.
    pub(super) fn check(&mut self, outer: &Epoll, inner: &Epoll) -> Result<(), Errno> {
        *self.number += 1;
        let below = self.levels_below(*self.number, outer, inner)?;
        *self.number += 1;
        let above = self.levels_above(*self.number, outer);
        // Both ends of the new link are counted too.
        if below + above + 2 > LONGEST_CHAIN { Err(Errno::ELOOP) } else { Ok(()) }
    }

    /// Instances on the longest way down from `epoll`, itself not counted; `ELOOP` when `outer` is one.
    fn levels_below(&mut self, number: u64, outer: &Epoll, epoll: &Epoll) -> Result<u64, Errno> {
        if let Some(levels) = epoll.marks.get(number) {
            return Ok(levels);
        }
        let mut levels = 0;
        for file in self.below(epoll) {
            let Ok(inner) = Epoll::of(&file) else { continue };
            if core::ptr::eq(inner, outer) {
                return Err(Errno::ELOOP);
            }
            levels = levels.max(1 + self.levels_below(number, outer, inner)?);
        }
        epoll.marks.set(number, levels);
        Ok(levels)
    }

    /// Instances on the longest way up from `epoll`, itself not counted.
    fn levels_above(&mut self, number: u64, epoll: &Epoll) -> u64 {
        if let Some(levels) = epoll.marks.get(number) {
            return levels;
        }
        let mut levels = 0;
        for outer in self.above(epoll) {
            levels = levels.max(1 + self.levels_above(number, &outer));
        }
        epoll.marks.set(number, levels);
        levels
    }
}
