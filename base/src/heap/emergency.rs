//! A few small objects per core that only an unwinding gets: it makes a box for what it carries, and the
//! destructors that it runs may want a little.

use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use hal::MAX_CPUS;

use super::class::{CLASS_COUNT, Class};
use super::{Magazine, Magazines, slab};
use crate::cpu::{CpuLocal, LocalSlot, PerCpu};

/// Objects of each class.
const STOCK: usize = 4;
/// Bytes of the largest objects that are kept.
const LARGEST: usize = 192;

static STOCKS: CpuLocal<Magazines> = CpuLocal::new(
    [const {
        LocalSlot::new(Magazines(
            [const { Magazine { first: ptr::null_mut(), count: 0 } }; CLASS_COUNT],
        ))
    }; MAX_CPUS],
);
/// This core unwinds. Only the core itself touches it.
static IS_OPEN: PerCpu<AtomicBool> = PerCpu::new([const { AtomicBool::new(false) }; MAX_CPUS]);

/// Fills up what this core keeps, as far as there is memory, and closes it.
#[cfg_attr(not(target_os = "none"), expect(dead_code, reason = "host tests unwind with memory"))]
pub(crate) fn stock() {
    IS_OPEN.here().store(false, Ordering::Relaxed);
    STOCKS.with(|stocks| {
        for class in Class::all().filter(|class| class.size() <= LARGEST) {
            let stock = &mut stocks.0[class.index()];
            let missing = STOCK.saturating_sub(stock.count);
            if missing > 0 {
                slab::take(class, missing, |object| stock.push(object));
            }
        }
    });
}

/// From here on allocations that find no memory take what this core keeps, until the next `stock`.
#[cfg_attr(not(target_os = "none"), expect(dead_code, reason = "host tests unwind with memory"))]
pub(crate) fn open() {
    IS_OPEN.here().store(true, Ordering::Relaxed);
}

/// Whether this core unwinds.
#[cfg_attr(not(target_os = "none"), expect(dead_code, reason = "host tests unwind with memory"))]
pub(crate) fn is_open() -> bool {
    IS_OPEN.here().load(Ordering::Relaxed)
}

/// An object for an unwinding that finds no memory; null for everybody else.
#[cold]
pub(super) fn take(class: Class) -> *mut u8 {
    if !IS_OPEN.here().load(Ordering::Relaxed) {
        return ptr::null_mut();
    }
    STOCKS
        .with(|stocks| stocks.0[class.index()].pop())
        .map_or(ptr::null_mut(), |object| object.as_ptr().cast())
}
