//! How fast the cycle counter and the APIC timer run, and what the time of day is.
//!
//! Calibration watches both for two milliseconds of the programmable interval timer. Each look is
//! taken between two readings of the cycle counter, several times, and the shortest is kept; so an
//! emulator's delays do not matter. Where there is no interval timer (QEMU's `pit=off`) and the APIC
//! timer is known to count nanoseconds, that is the reference.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::cpu::{self, FEATURES, in8, out8};
use super::{apic, clock, cpu::cycles};

static CYCLES_PER_SECOND: AtomicU64 = AtomicU64::new(1_000_000_000);

const PIT_HZ: u64 = 1_193_182;
/// How long the counters are watched.
const WATCH_TICKS: u64 = PIT_HZ * 2 / 1000;
/// Looks at each end, of which the quickest is kept.
const LOOKS: u32 = 4;
/// Readings without progress after which the interval timer is taken to be absent.
const PATIENCE: u32 = 10_000;

pub(super) fn cycles_per_second() -> u64 {
    CYCLES_PER_SECOND.load(Relaxed)
}

#[derive(Clone, Copy)]
struct Look {
    reference: u64,
    apic: u64,
    cycles: u64,
    width: u64,
}

fn look(reference: &impl Fn() -> u64, apic: &impl Fn() -> u32) -> Look {
    let mut best = Look { reference: 0, apic: 0, cycles: 0, width: u64::MAX };
    for _ in 0..LOOKS {
        let before = cycles();
        let reference = reference();
        let after = cycles();
        let width = after - before;
        if width < best.width {
            best = Look { reference, apic: 0, cycles: before + width / 2, width };
        }
    }
    let mut width = u64::MAX;
    for _ in 0..LOOKS {
        let before = cycles();
        let ticks = u64::from(apic());
        let after = cycles();
        if after - before < width {
            width = after - before;
            // Its own moment is a little later; the difference is the same at both ends.
            best.apic = ticks;
        }
    }
    best
}

/// Measures. Core 0, once, after its APIC is set up.
pub(super) fn calibrate() {
    let apic = apic::start_counting();
    start_interval_timer();
    let interval = || u64::from(interval_timer());
    let (start, end) = if is_counting() {
        let start = look(&interval, &apic);
        while start.reference - interval().min(start.reference) < WATCH_TICKS {}
        (start, look(&interval, &apic))
    } else {
        watch_apic(&apic)
    };
    let cycles = end.cycles.saturating_sub(start.cycles);
    let ticks = end.apic.saturating_sub(start.apic);
    let counted = end.reference.saturating_sub(start.reference);
    let rate = if start.reference > end.reference {
        // The interval timer counts down.
        cycles * PIT_HZ / (start.reference - end.reference)
    } else if FEATURES.is_emulated.load(Relaxed) && counted > 0 {
        cycles * apic::EMULATED_TICKS_PER_SECOND / counted
    } else {
        return apic::set_rate(ticks, cycles);
    };
    CYCLES_PER_SECOND.store(rate.max(1), Relaxed);
    apic::set_rate(ticks, cycles);
}

fn watch_apic(apic: &impl Fn() -> u32) -> (Look, Look) {
    let reference = || u64::from(apic());
    let start = look(&reference, apic);
    let wanted = apic::EMULATED_TICKS_PER_SECOND * 2 / 1000;
    for _ in 0..PATIENCE {
        if u64::from(apic()) - start.apic >= wanted {
            break;
        }
    }
    (start, look(&reference, apic))
}

const PIT_CHANNEL_2: u16 = 0x42;
const PIT_COMMAND: u16 = 0x43;
const SPEAKER: u16 = 0x61;

/// Channel 2, counting down once from 65535, speaker off.
fn start_interval_timer() {
    // SAFETY: the ports belong to the interval timer or to nothing.
    unsafe {
        out8(SPEAKER, in8(SPEAKER) & !3 | 1);
        out8(PIT_COMMAND, 0b1011_0000);
        out8(PIT_CHANNEL_2, 0xff);
        out8(PIT_CHANNEL_2, 0xff);
    }
}

fn interval_timer() -> u16 {
    // SAFETY: as above.
    unsafe {
        out8(PIT_COMMAND, 0b1000_0000);
        let low = in8(PIT_CHANNEL_2);
        u16::from_le_bytes([low, in8(PIT_CHANNEL_2)])
    }
}

fn is_counting() -> bool {
    let first = interval_timer();
    (0..PATIENCE / 100).any(|_| {
        let now = interval_timer();
        now < first && now != 0
    })
}

/// Nanoseconds since 1970 from the battery-backed clock, which gives whole seconds. 0 when there is none.
pub(super) fn wall_clock_ns() -> u64 {
    // Two equal readings in a row were not torn by an update.
    let mut last = read_clock();
    for _ in 0..PATIENCE {
        let again = read_clock();
        if again == last {
            break;
        }
        last = again;
    }
    clock::to_seconds(last).map_or(0, |seconds| seconds * 1_000_000_000)
}

fn clock_register(register: u8) -> u8 {
    // SAFETY: selects and reads a register of the clock; the upper bit keeps NMI as it is.
    unsafe {
        out8(0x70, register);
        in8(0x71)
    }
}

/// Second, minute, hour, day, month, year, century, mode.
fn read_clock() -> [u8; 8] {
    [0, 2, 4, 7, 8, 9, 0x32, 0x0b].map(clock_register)
}

/// Waits so long, by the cycle counter.
pub(super) fn delay_us(microseconds: u64) {
    let end = cycles() + cycles_per_second() / 1_000_000 * microseconds;
    while cycles() < end {
        cpu::relax();
    }
}
