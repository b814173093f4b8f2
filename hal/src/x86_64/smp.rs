//! Starting the other cores, one after the other.
//!
//! Each goes through the trampoline and takes its number and stack from the mailbox. A core that does
//! not come in time is left out, and the next one gets its number; if it comes after all it finds the
//! mailbox empty and stops. Intel SDM volume 3, 9.4.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::boot::{MAILBOX, trampoline};
use super::core_area::CoreArea;
use super::lock::SpinLock;
use super::start::Plan;
use super::{apic, cpu, paging, segments, serial, time};

/// What started cores run.
static ENTRY: SpinLock<Option<fn(usize) -> !>> = SpinLock::new(None);
/// Numbers of cores that have arrived, plus one.
static ARRIVED: AtomicUsize = AtomicUsize::new(0);

/// How long one core may take; far more than an idle machine needs.
const DEADLINE_US: u64 = 2_000_000;
/// After so long the start command is given again; a core that has started ignores it.
const AGAIN_US: u64 = 1_000;

/// Starts all cores of the plan but the running one; returns how many run.
pub(super) fn start_cores(plan: &Plan, entry: fn(usize) -> !) -> usize {
    let others = plan.cores.get(1..plan.core_count).unwrap_or_default();
    if others.is_empty() {
        return 1;
    }
    let Some(page) = plan.trampoline else {
        serial::write(b"machine: no memory below 1 MiB to start other cores from\n");
        return 1;
    };
    *ENTRY.lock() = Some(entry);
    let code = trampoline();
    // SAFETY: the page is RAM that nothing uses, and the code is shorter than a page.
    unsafe {
        paging::direct(u64::from(page) << 12).copy_from_nonoverlapping(code.as_ptr(), code.len());
    }
    MAILBOX.root.store(paging::root().0, Ordering::Relaxed);
    let mut running = 1;
    for &target in others {
        if start(target, page, running, plan.stacks[running]) {
            running += 1;
        } else {
            serial::write(b"machine: a core did not start and is left out\n");
        }
    }
    running
}

fn start(target: u32, page: u8, number: usize, stack: (u64, u64)) -> bool {
    if let Some(area) = CoreArea::of(number) {
        area.stack.set(stack);
    }
    MAILBOX.stack_top.store(stack.1, Ordering::Relaxed);
    MAILBOX.cpu.store(number as u64, Ordering::Release);
    apic::send_init(target);
    for _ in 0..DEADLINE_US / AGAIN_US {
        apic::send_start(target, page);
        if has_arrived(number, AGAIN_US) {
            return true;
        }
    }
    // Taken in the last moment: then it will arrive.
    MAILBOX.cpu.swap(0, Ordering::AcqRel) == 0 && has_arrived(number, DEADLINE_US)
}

fn has_arrived(number: usize, patience_us: u64) -> bool {
    let end = cpu::cycles() + time::cycles_per_second() / 1_000_000 * patience_us;
    loop {
        if ARRIVED.load(Ordering::Acquire) == number + 1 {
            return true;
        }
        if cpu::cycles() >= end {
            return false;
        }
        cpu::relax();
    }
}

/// First Rust on a started core, on its own stack.
pub(super) extern "C" fn start_other(number: usize) -> ! {
    // SAFETY: the mailbox gives each number once.
    let area = unsafe { CoreArea::adopt(number) };
    cpu::set_up(number);
    segments::load(area);
    apic::set_up(area);
    let entry = *ENTRY.lock();
    ARRIVED.store(number + 1, Ordering::Release);
    match entry {
        Some(entry) => entry(number),
        None => cpu::halt(),
    }
}
