//! `/proc/ferry/panic`, in builds with debug assertions only: provokes the faults that the kernel
//! promises to contain, so that tests can look at what comes of them.
//!
//! Writing `handler` panics within the handler of that very write: the call answers `EIO` and its
//! server is restarted. Writing `allocation PID COUNT` makes that allocation of the handlers of that
//! process fail, counted from its next call on; 0 takes it back. Writing `kernel` panics a little later outside of every handler and task, where
//! nothing contains it: the machine stops and says where. Reading counts the restarts.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::future::Future;
use core::task::{Context, Waker};

use abi::Errno;
use fs::Identity;
use fs::pseudo::{Content, Entry};
use policy::route::CLASSES;

use crate::{counters, injection};

/// Until the kernel panics that was told to.
const DELAY_NS: u64 = 10_000_000;

struct Fault;

/// Panics when it is woken: by the timers, in the loop of a core.
struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        panic!("a test asks the kernel to panic");
    }
}

/// Winds up a timer that nothing stops.
fn arm() {
    let sleep = Box::leak(Box::new(base::time::sleep_for(DELAY_NS)));
    let waker = Waker::from(Arc::new(Bomb));
    // It cannot be over yet, and if it were, there would be nothing to wait for.
    let _ = core::pin::Pin::new(sleep).poll(&mut Context::from_waker(&waker));
}

/// The file.
pub(super) fn entry(number: u64) -> Entry {
    Entry::file(number, Arc::new(Fault)).with_mode(0o600)
}

impl Content for Fault {
    fn generate(&self, _: &Identity) -> Result<Vec<u8>, Errno> {
        let restarts: u64 = CLASSES.iter().map(|class| counters::restarts(*class).count).sum();
        Ok(format!("restarts {restarts}\n").into_bytes())
    }

    fn write(&self, _: &Identity, _: u64, bytes: &[u8]) -> Result<usize, Errno> {
        match bytes.trim_ascii_end() {
            b"handler" => panic!("a test asks this handler to panic"),
            b"kernel" => {
                arm();
                Ok(bytes.len())
            }
            words => {
                let words = core::str::from_utf8(words).map_err(|_| Errno::EINVAL)?;
                let mut words = words.split(' ');
                let number = |word: Option<&str>| word.and_then(|word| word.parse::<u32>().ok());
                match (words.next(), number(words.next()), number(words.next())) {
                    (Some("allocation"), Some(pid), Some(count)) => {
                        injection::arm(pid.cast_signed(), count);
                        Ok(bytes.len())
                    }
                    _ => Err(Errno::EINVAL),
                }
            }
        }
    }
}
