//! Panics without an operating system: unwinding by crate `unwinding`, the handler, the backtrace.

use alloc::boxed::Box;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicUsize, Ordering};

use hal::{Contract, MAX_CPUS, Machine};

use super::Panicked;
use crate::cpu::PerCpu;
use crate::logging;

/// How many `catch` this core is in; a panic in none of them is the end. Only the core itself touches
/// its count.
static DEPTH: PerCpu<AtomicUsize> = PerCpu::new([const { AtomicUsize::new(0) }; MAX_CPUS]);

#[inline]
pub(super) fn catch<R>(f: impl FnOnce() -> R) -> Result<R, Panicked> {
    let depth = DEPTH.here();
    let outer = depth.load(Ordering::Relaxed);
    depth.store(outer + 1, Ordering::Relaxed);
    let result = unwinding::panic::catch_unwind(f);
    depth.store(outer, Ordering::Relaxed);
    result.map_err(|_payload| Panicked)
}

/// Writes what happened in the form that the host tool reads.
fn report(what: &str, info: &PanicInfo<'_>) {
    logging::line(format_args!("{what}: {}", info.message()));
    if let Some(place) = info.location() {
        logging::line(format_args!("at {place}"));
    }
    Machine::backtrace(&mut |address| logging::line(format_args!("backtrace: {address:#x}")));
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    if DEPTH.here().load(Ordering::Relaxed) > 0 {
        report("contained", info);
        // Comes back only when nothing catches it, such as a panic while unwinding.
        let code = unwinding::panic::begin_panic(Box::new(()));
        logging::line(format_args!("panic: cannot unwind (code {})", code.0));
    } else {
        report("panic", info);
        logging::line(format_args!("panic: end"));
    }
    Machine::power_off()
}
