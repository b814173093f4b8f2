//! Lock schemes: what a core holds while it polls a handler.
//!
//! | scheme | held around each poll |
//! |---|---|
//! | fine (the default) | nothing: each object has a lock of its own |
//! | coarse | the lock of the call's class, unless the route table says that it needs none |
//! | giant | one lock, of three kinds |
//!
//! The locks of objects are there under every scheme, since what is not a handler (devices, timers, the end
//! of a thread) uses objects too. A lock of a scheme is taken first and released last, is never held
//! across a wait, and is released when a handler panics. One core holds one of them at most.
//!
//! This is the one place where they are taken: for calls that are answered at once and for polls of
//! handlers, on every path. Under the fine scheme that is a branch; in a kernel built without the feature
//! `lock-schemes` it is nothing.

#[cfg(feature = "lock-schemes")]
mod chosen {
    use core::sync::atomic::{AtomicU8, Ordering};

    use abi::trace::LockScheme;
    use base::sync::KernelLock;
    use policy::route::{self, CLASS_COUNT, Class, Locks};

    use crate::trace::{self, TracedLock};

    /// The scheme in force, as `LockScheme` numbers them.
    static SCHEME: AtomicU8 = AtomicU8::new(LockScheme::Fine as u8);

    static TICKET: KernelLock = KernelLock::ticket();
    static CLH: KernelLock = KernelLock::clh();
    static MCS: KernelLock = KernelLock::mcs();

    /// On lines of its own.
    #[repr(align(128))]
    struct OfClass(KernelLock);

    static COARSE: [OfClass; CLASS_COUNT] = [const { OfClass(KernelLock::ticket()) }; CLASS_COUNT];

    /// Says which scheme is in force; false when this kernel does not have it. Called once, at boot, before
    /// there are calls.
    pub fn set(scheme: LockScheme) -> bool {
        SCHEME.store(scheme as u8, Ordering::Relaxed);
        true
    }

    /// The scheme in force.
    pub fn scheme() -> LockScheme {
        let code = SCHEME.load(Ordering::Relaxed);
        LockScheme::ALL.into_iter().find(|scheme| *scheme as u8 == code).unwrap_or_default()
    }

    /// Carries out a step of the call of this number and of the thread of this number: an answer at once,
    /// or a poll of its handler.
    #[inline(always)]
    pub fn during<R>(number: usize, thread: u32, step: impl FnOnce() -> R) -> R {
        if SCHEME.load(Ordering::Relaxed) == LockScheme::Fine as u8 {
            return step();
        }
        locked(number, thread, step)
    }

    #[cold]
    #[inline(never)]
    fn locked<R>(number: usize, thread: u32, step: impl FnOnce() -> R) -> R {
        let scheme = scheme();
        let Some((lock, id)) = lock_of(scheme, number) else { return step() };
        let asked = trace::stamp();
        let hold = lock.hold();
        let acquired = trace::stamp();
        let result = step();
        let releasing = trace::stamp();
        drop(hold);
        if asked != 0 {
            let traced = TracedLock { scheme, lock: id, number, thread };
            trace::lock(&traced, [asked, acquired, releasing]);
        }
        result
    }

    /// What a call needs under a scheme: the lock, and its number in traces.
    fn lock_of(scheme: LockScheme, number: usize) -> Option<(&'static KernelLock, u8)> {
        match scheme {
            LockScheme::Fine => None,
            LockScheme::GiantTicket => Some((&TICKET, 0)),
            LockScheme::GiantClh => Some((&CLH, 0)),
            LockScheme::GiantMcs => Some((&MCS, 0)),
            LockScheme::Coarse => {
                let row = route::route(number);
                if row.is_some_and(|row| row.locks == Locks::None) {
                    return None;
                }
                let class = row.map_or(Class::Other, |row| row.class);
                Some((&COARSE[class as usize].0, class as u8))
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use policy::table::number;

        fn same(one: usize, other: usize, scheme: LockScheme) -> bool {
            match (lock_of(scheme, one), lock_of(scheme, other)) {
                (Some((one, _)), Some((other, _))) => core::ptr::eq(one, other),
                _ => false,
            }
        }

        #[test]
        fn a_giant_lock_is_that_of_every_call() {
            for scheme in [LockScheme::GiantTicket, LockScheme::GiantClh, LockScheme::GiantMcs] {
                assert!(same(number::getpid, number::read, scheme));
                assert!(same(number::mmap, 511, scheme), "a number that is nobody's");
            }
        }

        #[test]
        fn coarse_locks_are_those_of_classes_and_some_calls_need_none() {
            assert!(same(number::read, number::open, LockScheme::Coarse));
            assert!(!same(number::read, number::mmap, LockScheme::Coarse));
            assert!(lock_of(LockScheme::Coarse, number::getpid).is_none());
            assert!(lock_of(LockScheme::Fine, number::read).is_none());
        }

        #[test]
        fn a_step_that_panics_releases_the_lock() {
            let lock = KernelLock::mcs();
            let panicked = base::panic::catch(|| {
                let _hold = lock.hold();
                panic!("on purpose");
            });
            assert!(panicked.is_err());
            drop(lock.hold());
        }
    }
}

#[cfg(not(feature = "lock-schemes"))]
mod chosen {
    use abi::trace::LockScheme;

    /// Only the fine scheme is built in.
    pub fn set(scheme: LockScheme) -> bool {
        scheme == LockScheme::Fine
    }

    /// The fine one.
    pub fn scheme() -> LockScheme {
        LockScheme::Fine
    }

    /// Carries out a step of a call.
    #[inline(always)]
    pub fn during<R>(_number: usize, _thread: u32, step: impl FnOnce() -> R) -> R {
        step()
    }
}

pub use chosen::*;
