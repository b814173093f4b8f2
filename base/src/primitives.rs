//! The atomics and cells that the lock-free algorithms use: the real ones, or loom's, which try every
//! order of events. Code that is written against this module is the code that the models check.

#[cfg(not(loom))]
mod chosen {
    pub use core::sync::atomic::{
        AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };

    /// `core::cell::UnsafeCell` with loom's interface.
    #[derive(Debug)]
    pub struct UnsafeCell<T: ?Sized>(core::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub const fn new(value: T) -> Self {
            UnsafeCell(core::cell::UnsafeCell::new(value))
        }

        pub fn into_inner(self) -> T {
            self.0.into_inner()
        }
    }

    impl<T: ?Sized> UnsafeCell<T> {
        #[inline(always)]
        pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        #[inline(always)]
        pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }

    /// One turn of a spin loop.
    #[inline(always)]
    pub fn relax() {
        crate::cpu::relax();
    }

    /// Hints that a line of memory is about to be read and written.
    #[inline(always)]
    pub fn prepare_write<T>(line: &T) {
        <hal::Machine as hal::Contract>::prepare_write(core::ptr::from_ref(line).cast());
    }

    /// Makes a function `const` where the primitives are.
    macro_rules! constant {
        ($(#[$meta:meta])* $visibility:vis fn $($rest:tt)*) => {
            $(#[$meta])* $visibility const fn $($rest)*
        };
    }
    /// An array of values of their own, made by an expression.
    macro_rules! repeated {
        ($value:expr) => {
            [const { $value }; _]
        };
    }
    pub(crate) use {constant, repeated};
}

#[cfg(loom)]
mod chosen {
    pub use loom::cell::UnsafeCell;
    pub use loom::sync::atomic::{
        AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };

    pub fn relax() {
        loom::thread::yield_now();
    }

    pub fn prepare_write<T>(_line: &T) {}

    macro_rules! constant {
        ($(#[$meta:meta])* $visibility:vis fn $($rest:tt)*) => {
            $(#[$meta])* $visibility fn $($rest)*
        };
    }
    macro_rules! repeated {
        ($value:expr) => {
            core::array::from_fn(|_| $value)
        };
    }
    pub(crate) use {constant, repeated};
}

pub(crate) use chosen::*;
