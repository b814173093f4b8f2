//! Panics and failed allocations without an operating system: unwinding by crate `unwinding`, the
//! handlers, the backtrace.

use alloc::boxed::Box;
use core::alloc::Layout;
use core::any::Any;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hal::{Contract, MAX_CPUS, Machine};

use super::Panicked;
use crate::cpu::PerCpu;
use crate::{heap, logging};

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
    result.map_err(|payload| unwound(&*payload))
}

/// What an unwinding with an empty payload that is not of this type is: a panic.
struct NoMemory;

#[cold]
fn unwound(payload: &(dyn Any + Send)) -> Panicked {
    heap::stock_emergency();
    if payload.is::<NoMemory>() { Panicked::OutOfMemory } else { Panicked::Bug }
}

/// Unwinds to the innermost `catch`. Comes back only when that cannot be, such as within an unwinding.
fn unwind(payload: Box<dyn Any + Send>) -> ! {
    heap::open_emergency();
    let code = unwinding::panic::begin_panic(payload);
    logging::line(format_args!("panic: cannot unwind (code {})", code.0));
    Machine::power_off()
}

/// Allocations that failed and ended what they happened in.
static FAILURES: AtomicU64 = AtomicU64::new(0);

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
    // A panic within an unwinding, or where nothing may unwind, comes through here a second time.
    if DEPTH.here().load(Ordering::Relaxed) > 0 && !heap::is_emergency_open() {
        report("contained", info);
        unwind(Box::new(()))
    }
    report("panic", info);
    logging::line(format_args!("panic: end"));
    Machine::power_off()
}

/// An allocation failed whose caller does not take no for an answer.
#[alloc_error_handler]
fn out_of_memory(layout: Layout) -> ! {
    if DEPTH.here().load(Ordering::Relaxed) > 0 && !heap::is_emergency_open() {
        let count = FAILURES.fetch_add(1, Ordering::Relaxed) + 1;
        // A program can make this happen as often as it likes.
        if count <= 8 || count.is_power_of_two() {
            let size = layout.size();
            logging::line(format_args!("no memory for {size} bytes ({count} times so far)"));
        }
        unwind(Box::new(NoMemory))
    }
    panic!("there is no memory for {} bytes, and nothing to end instead", layout.size())
}
