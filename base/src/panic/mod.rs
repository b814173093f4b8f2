//! A panic ends what it happened in, not the machine.
//!
//! `catch` runs code and survives its panics; `contain` does the same for a future. The executor
//! catches around every poll, so a panic ends one task at most. A panic outside is the end: it is
//! reported with a backtrace and the machine is switched off.
//!
//! An allocation that fails where nobody asked for a `Result` unwinds in the same way, and the call that
//! wanted the memory answers `ENOMEM`. Unwinding needs a little memory itself, which each core keeps
//! back (`prepare_core`).

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use abi::Errno;

#[cfg(target_os = "none")]
mod bare;

/// Code was unwound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Panicked {
    /// Something panicked; the panic handler has reported what and where.
    Bug,
    /// There was no memory for something that cannot do without.
    OutOfMemory,
}

impl From<Panicked> for Errno {
    fn from(panicked: Panicked) -> Errno {
        match panicked {
            Panicked::Bug => Errno::EIO,
            Panicked::OutOfMemory => Errno::ENOMEM,
        }
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Panicked::Bug => "a panic was caught",
            Panicked::OutOfMemory => "an allocation failed",
        })
    }
}

/// Sets memory aside with which this core can unwind when there is none. Called once per core.
pub fn prepare_core() {
    #[cfg(target_os = "none")]
    crate::heap::stock_emergency();
}

/// Runs `f` and catches its panic. What `f` borrowed may be left half changed: throw it away, or be
/// sure that every step leaves it valid.
#[inline]
pub fn catch<R>(f: impl FnOnce() -> R) -> Result<R, Panicked> {
    #[cfg(target_os = "none")]
    return bare::catch(f);
    #[cfg(not(target_os = "none"))]
    std::panic::catch_unwind(core::panic::AssertUnwindSafe(f)).map_err(|_| Panicked::Bug)
}

/// A future that ends with `Err(Panicked)` when a poll of `future` panics. The future is dropped at
/// once then.
pub fn contain<F: Future>(future: F) -> Contain<F> {
    Contain { future: Some(future) }
}

/// Polls a future and catches its panic: the future is dropped at once then, and must not be polled
/// again. For futures that are too large to be moved into `contain` for every call.
pub fn poll_contained<F: Future>(
    mut place: Pin<&mut Option<F>>,
    context: &mut Context<'_>,
) -> Poll<Result<F::Output, Panicked>> {
    match catch(|| place.as_mut().as_pin_mut().map(|future| future.poll(context))) {
        Ok(Some(Poll::Pending)) => Poll::Pending,
        Ok(Some(Poll::Ready(value))) => Poll::Ready(Ok(value)),
        Ok(None) => Poll::Ready(Err(Panicked::Bug)),
        Err(panicked) => {
            let _ = catch(|| place.set(None));
            Poll::Ready(Err(panicked))
        }
    }
}

/// See `contain`.
#[must_use = "futures do nothing unless awaited"]
pub struct Contain<F> {
    future: Option<F>,
}

impl<F: Future> Future for Contain<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: `future` is pinned with us: it is only polled in place, and dropped in place by
        // `Pin::set`.
        let place = unsafe { self.map_unchecked_mut(|contain| &mut contain.future) };
        poll_contained(place, context)
    }
}
