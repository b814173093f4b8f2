//! A value that is made once and read ever after.

use core::fmt;
use core::mem::MaybeUninit;

use crate::primitives::{AtomicU8, Ordering, UnsafeCell, constant, relax};

const EMPTY: u8 = 0;
const BUSY: u8 = 1;
const FULL: u8 = 2;

/// A value that the first caller makes; others wait for it. Rule: `value` is written only by who moved
/// `state` from empty to busy, and read only after it is full.
pub struct Once<T> {
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value moves from the thread that made it to the one that drops it.
unsafe impl<T: Send> Send for Once<T> {}
// SAFETY: as above, and all readers share it.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

/// Makes the cell empty again when the maker panics.
struct Undo<'a>(&'a AtomicU8);

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        self.0.store(EMPTY, Ordering::Release);
    }
}

impl<T> Once<T> {
    constant! {
        /// An empty cell.
        pub fn new() -> Once<T> {
            Once { state: AtomicU8::new(EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) }
        }
    }

    /// The value, if it was made.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        if self.state.load(Ordering::Acquire) != FULL {
            return None;
        }
        // SAFETY: the cell is full, so the value was written and never changes again.
        Some(self.value.with(|value| unsafe { (*value).assume_init_ref() }))
    }

    /// The value; `make` makes it if nobody has. A `make` that uses the same cell waits for ever.
    pub fn call_once(&self, make: impl FnOnce() -> T) -> &T {
        let mut make = Some(make);
        loop {
            if let Some(value) = self.get() {
                return value;
            }
            let begun =
                self.state.compare_exchange(EMPTY, BUSY, Ordering::Acquire, Ordering::Relaxed);
            match (begun, make.take()) {
                (Ok(_), Some(make)) => {
                    let undo = Undo(&self.state);
                    let made = make();
                    // SAFETY: this caller alone moved the cell to busy; nobody reads it yet.
                    self.value.with_mut(|value| unsafe { (*value).write(made) });
                    core::mem::forget(undo);
                    self.state.store(FULL, Ordering::Release);
                }
                (_, unused) => {
                    make = unused;
                    relax();
                }
            }
        }
    }

    /// Fills the cell; gives the value back when it is full or being filled.
    pub fn set(&self, value: T) -> Result<(), T> {
        if self.state.compare_exchange(EMPTY, BUSY, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Err(value);
        }
        // SAFETY: this caller alone moved the cell to busy; nobody reads it yet.
        self.value.with_mut(|cell| unsafe { (*cell).write(value) });
        self.state.store(FULL, Ordering::Release);
        Ok(())
    }
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Once::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for Once<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Once").field(&self.get()).finish()
    }
}

impl<T> Drop for Once<T> {
    fn drop(&mut self) {
        if self.state.load(Ordering::Acquire) == FULL {
            // SAFETY: the cell is full and nobody else has it any more.
            self.value.with_mut(|value| unsafe { (*value).assume_init_drop() });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicUsize;

    #[test]
    fn one_of_many_makes_the_value() {
        static CELL: Once<usize> = Once::new();
        static MADE: AtomicUsize = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let value = CELL.call_once(|| MADE.fetch_add(1, Ordering::SeqCst) + 41);
                    assert_eq!(*value, 41);
                });
            }
        });
        assert_eq!(MADE.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_panicking_maker_leaves_the_cell_empty() {
        let cell = Once::<u32>::new();
        let made = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
            cell.call_once(|| panic!("no value today"));
        }));
        assert!(made.is_err());
        assert_eq!(*cell.call_once(|| 7), 7);
        assert_eq!(cell.set(8), Err(8));
    }
}
