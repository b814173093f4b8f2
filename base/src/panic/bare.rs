//! Panics without an operating system: unwinding by crate `unwinding`, the handler, the backtrace.

use alloc::boxed::Box;
use core::panic::PanicInfo;

use hal::{Contract, MAX_CPUS, Machine};

use super::Panicked;
use crate::cpu::{CpuLocal, LocalSlot};
use crate::logging;

/// How many `catch` this core is in; a panic in none of them is the end.
static DEPTH: CpuLocal<usize> = CpuLocal::new([const { LocalSlot::new(0) }; MAX_CPUS]);

pub(super) fn catch<R>(f: impl FnOnce() -> R) -> Result<R, Panicked> {
    DEPTH.with(|depth| *depth += 1);
    let result = unwinding::panic::catch_unwind(f);
    DEPTH.with(|depth| *depth -= 1);
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
    if DEPTH.with(|depth| *depth) > 0 {
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
