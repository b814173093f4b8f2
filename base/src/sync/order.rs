//! Checks that locks are taken in rising rank, per core (in host tests: per thread). In builds
//! without debug assertions every function here is empty.

use super::LockClass;

/// Locks held at once by one core; more is a mistake in itself.
#[cfg(debug_assertions)]
const MOST_HELD: usize = 16;

#[cfg(debug_assertions)]
pub(super) struct Held {
    classes: [Option<&'static LockClass>; MOST_HELD],
    count: usize,
}

#[cfg(debug_assertions)]
impl Held {
    const fn new() -> Held {
        Held { classes: [None; MOST_HELD], count: 0 }
    }

    fn highest(&self) -> Option<&'static LockClass> {
        self.classes[..self.count].iter().flatten().copied().max_by_key(|class| class.rank)
    }

    fn add(&mut self, class: &'static LockClass) -> bool {
        let free = self.classes.get_mut(self.count);
        let found = free.is_some();
        if let Some(place) = free {
            *place = Some(class);
            self.count += 1;
        }
        found
    }

    fn remove(&mut self, class: &'static LockClass) {
        let found = self.classes[..self.count]
            .iter()
            .rposition(|held| held.is_some_and(|held| core::ptr::eq(held, class)));
        if let Some(index) = found {
            self.classes.copy_within(index + 1..self.count, index);
            self.count -= 1;
            self.classes[self.count] = None;
        }
    }
}

#[cfg(all(debug_assertions, target_os = "none"))]
fn with_held<R>(f: impl FnOnce(&mut Held) -> R) -> R {
    use crate::cpu::{CpuLocal, LocalSlot};
    static HELD: CpuLocal<Held> =
        CpuLocal::new([const { LocalSlot::new(Held::new()) }; hal::MAX_CPUS]);
    HELD.with(f)
}

#[cfg(all(debug_assertions, not(target_os = "none")))]
fn with_held<R>(f: impl FnOnce(&mut Held) -> R) -> R {
    use std::cell::RefCell;
    std::thread_local!(static HELD: RefCell<Held> = const { RefCell::new(Held::new()) });
    HELD.with_borrow_mut(f)
}

/// A lock of this class is about to be waited for. Panics when the order forbids it.
#[inline(always)]
#[track_caller]
pub(super) fn acquire(class: &'static LockClass, nested: bool) {
    #[cfg(debug_assertions)]
    {
        let highest = with_held(|held| held.highest());
        if let Some(highest) = highest {
            let allowed =
                if nested { class.rank >= highest.rank } else { class.rank > highest.rank };
            assert!(
                allowed,
                "lock order: {} (rank {}) taken while holding {} (rank {})",
                class.name, class.rank, highest.name, highest.rank
            );
        }
        assert!(with_held(|held| held.add(class)), "lock order: too many locks held");
    }
    #[cfg(not(debug_assertions))]
    let _ = (class, nested);
}

/// A lock of this class was taken without waiting, so its rank does not matter.
#[inline(always)]
pub(super) fn acquired_without_waiting(class: &'static LockClass) {
    #[cfg(debug_assertions)]
    assert!(with_held(|held| held.add(class)), "lock order: too many locks held");
    #[cfg(not(debug_assertions))]
    let _ = class;
}

/// A lock of this class was released.
#[inline(always)]
pub(super) fn release(class: &'static LockClass) {
    #[cfg(debug_assertions)]
    with_held(|held| held.remove(class));
    #[cfg(not(debug_assertions))]
    let _ = class;
}

/// Panics when this core holds a lock: called where it may wait or leave the kernel.
#[inline(always)]
#[track_caller]
pub(crate) fn assert_none_held() {
    #[cfg(debug_assertions)]
    {
        let highest = with_held(|held| held.highest());
        if let Some(highest) = highest {
            panic!("lock order: {} is held where nothing may be", highest.name);
        }
    }
}
