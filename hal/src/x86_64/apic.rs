//! Local and I/O APICs: timer, interrupts between cores, device lines.
//!
//! The local APIC is reached through its registers in memory (xAPIC) or, where the processor has
//! x2APIC, through MSRs. Every interrupt is noted in the core's area and acknowledged at once; what it
//! means is for the kernel's loop. Intel SDM volume 3, chapter 11; Intel 82093AA (I/O APIC).

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::Relaxed};

use super::acpi::Tables;
use super::core_area::{CoreArea, PENDING_DEVICE, PENDING_IPI, PENDING_TIMER};
use super::cpu::{self, FEATURES, MSR_APIC_BASE, out8};
use super::lock::SpinLock;
use super::paging;

const VECTOR_TIMER: u8 = 0x30;
const VECTOR_IPI: u8 = 0x31;
const VECTOR_DEVICE: u8 = 0x40;
const VECTOR_ERROR: u8 = 0xfe;
const VECTOR_SPURIOUS: u8 = 0xff;
/// The old controllers are moved here and masked.
const VECTOR_LEGACY: u8 = 0x20;

const ID: u32 = 0x20;
const TASK_PRIORITY: u32 = 0x80;
const END_OF_INTERRUPT: u32 = 0xb0;
const SPURIOUS: u32 = 0xf0;
const COMMAND: u32 = 0x300;
const COMMAND_HIGH: u32 = 0x310;
const TIMER: u32 = 0x320;
const LINE_0: u32 = 0x350;
const LINE_1: u32 = 0x360;
const ERROR: u32 = 0x370;
const TIMER_START: u32 = 0x380;
const TIMER_NOW: u32 = 0x390;
const TIMER_DIVIDE: u32 = 0x3e0;

const MASKED: u32 = 1 << 16;
const ENABLED: u32 = 1 << 8;
const DELIVERY_PENDING: u32 = 1 << 12;
const COMMAND_INIT: u32 = 5 << 8 | 1 << 14;
const COMMAND_START: u32 = 6 << 8 | 1 << 14;
const COMMAND_FIXED: u32 = 1 << 14;
/// Divide by 16: fine enough, and 32 bits last a minute at QEMU's 1 GHz.
const DIVIDE_BY_16: u32 = 3;

const MSR_X2APIC: u32 = 0x800;
const X2APIC_COMMAND: u32 = 0x830;
const BASE_ENABLED: u64 = 1 << 11;
const BASE_X2APIC: u64 = 1 << 10;

static REGISTERS: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static X2APIC: AtomicBool = AtomicBool::new(false);
/// Timer ticks per cycle, as a fraction of 2^32.
static TICKS_PER_CYCLE: AtomicU64 = AtomicU64::new(0);

fn read(register: u32) -> u32 {
    if X2APIC.load(Relaxed) {
        // SAFETY: the register exists in x2APIC mode.
        return unsafe { cpu::read_msr(MSR_X2APIC + (register >> 4)) } as u32;
    }
    // SAFETY: the registers are mapped and are this core's own.
    unsafe { REGISTERS.load(Relaxed).add(register as usize).cast::<u32>().read_volatile() }
}

fn write(register: u32, value: u32) {
    // SAFETY: as in `read`; callers write what the register is for.
    unsafe {
        if X2APIC.load(Relaxed) {
            cpu::write_msr(MSR_X2APIC + (register >> 4), u64::from(value));
        } else {
            REGISTERS.load(Relaxed).add(register as usize).cast::<u32>().write_volatile(value);
        }
    }
}

/// The running core's id, before anything is set up.
pub(super) fn early_id() -> u32 {
    core::arch::x86_64::__cpuid(1).ebx >> 24
}

/// Maps the registers and silences the old controllers. Core 0, once.
pub(super) fn find(tables: &Tables) {
    X2APIC.store(FEATURES.x2apic.load(Relaxed), Relaxed);
    REGISTERS.store(paging::map_device(tables.local_apic, 4096), Relaxed);
    for (port, value) in [
        (0x20, 0x11),
        (0xa0, 0x11),
        (0x21, VECTOR_LEGACY),
        (0xa1, VECTOR_LEGACY + 8),
        (0x21, 4),
        (0xa1, 2),
        (0x21, 1),
        (0xa1, 1),
        (0x21, 0xff),
        (0xa1, 0xff),
    ] {
        // SAFETY: the ports belong to the old interrupt controllers or to nothing.
        unsafe { out8(port, value) };
    }
    let mut controllers = IO_APICS.lock();
    for (slot, found) in controllers.list.iter_mut().zip(tables.io_apics) {
        *slot = found.map(|found| Controller::new(found.address, found.first));
    }
    controllers.overrides = tables.overrides;
}

/// Switches on this core's APIC. Every core, once.
pub(super) fn set_up(core: &CoreArea) {
    // SAFETY: switches the APIC on, at the address where it is.
    unsafe {
        let mut base = cpu::read_msr(MSR_APIC_BASE) | BASE_ENABLED;
        cpu::write_msr(MSR_APIC_BASE, base);
        if X2APIC.load(Relaxed) {
            base |= BASE_X2APIC;
            cpu::write_msr(MSR_APIC_BASE, base);
        }
    }
    write(TASK_PRIORITY, 0);
    write(LINE_0, MASKED);
    write(LINE_1, MASKED);
    write(ERROR, u32::from(VECTOR_ERROR));
    write(SPURIOUS, ENABLED | u32::from(VECTOR_SPURIOUS));
    write(TIMER_DIVIDE, DIVIDE_BY_16);
    write(TIMER, u32::from(VECTOR_TIMER));
    let id = read(ID);
    core.apic_id.set(if X2APIC.load(Relaxed) { id } else { id >> 24 });
}

/// Notes what an interrupt was and acknowledges it.
pub(super) fn note_interrupt(vector: u8, core: &CoreArea) {
    match vector {
        VECTOR_TIMER => timer_fired(core),
        VECTOR_IPI => core.note(PENDING_IPI),
        VECTOR_DEVICE => core.note(PENDING_DEVICE),
        VECTOR_SPURIOUS => return,
        vector if (VECTOR_LEGACY..VECTOR_LEGACY + 16).contains(&vector) => return,
        // Not ours: acknowledged all the same, or no other would come.
        _ => {}
    }
    write(END_OF_INTERRUPT, 0);
}

/// The timer's counter is too narrow for long waits, and its rate is only known to some permille; so
/// it may have fired early.
fn timer_fired(core: &CoreArea) {
    let deadline = core.deadline_cycles.get();
    if deadline == u64::MAX {
        return;
    }
    if cpu::cycles() >= deadline {
        core.deadline_cycles.set(u64::MAX);
        core.note(PENDING_TIMER);
    } else {
        start_timer(deadline);
    }
}

/// Arms or disarms the timer.
pub(super) fn set_timer(core: &CoreArea, deadline_cycles: Option<u64>) {
    match deadline_cycles {
        Some(deadline) => {
            core.deadline_cycles.set(deadline.min(u64::MAX - 1));
            start_timer(deadline);
        }
        None => {
            if core.deadline_cycles.replace(u64::MAX) != u64::MAX {
                write(TIMER_START, 0);
            }
        }
    }
}

fn start_timer(deadline: u64) {
    let cycles = deadline.saturating_sub(cpu::cycles());
    let ticks = u128::from(cycles) * u128::from(TICKS_PER_CYCLE.load(Relaxed)) >> 32;
    // One more, as the fraction is cut; never 0, which would disarm it.
    let ticks = u32::try_from(ticks).unwrap_or(u32::MAX).saturating_add(1);
    write(TIMER_START, ticks);
}

/// Starts the timer's counter for calibration, with its interrupt masked, and returns how to read it.
pub(super) fn start_counting() -> impl Fn() -> u32 {
    write(TIMER, MASKED | u32::from(VECTOR_TIMER));
    write(TIMER_START, u32::MAX);
    || u32::MAX - read(TIMER_NOW)
}

/// Ends the calibration: so many ticks were counted in so many cycles.
pub(super) fn set_rate(ticks: u64, cycles: u64) {
    write(TIMER_START, 0);
    write(TIMER, u32::from(VECTOR_TIMER));
    let rate = (u128::from(ticks) << 32) / u128::from(cycles.max(1));
    TICKS_PER_CYCLE.store(u64::try_from(rate).unwrap_or(u64::MAX), Relaxed);
}

/// Ticks per second of a timer that counts the nanoseconds of QEMU's emulated bus.
pub(super) const EMULATED_TICKS_PER_SECOND: u64 = 1_000_000_000 / 16;

fn command(target: u32, value: u32) {
    if X2APIC.load(Relaxed) {
        // SAFETY: a valid command; in x2APIC mode it is one write.
        unsafe { cpu::write_msr(X2APIC_COMMAND, u64::from(target) << 32 | u64::from(value)) };
        return;
    }
    /// A command is delivered in far less; a dead target must not stop the sender.
    const PATIENCE: u32 = 100_000;
    // Each access to the registers leaves an emulator's translated code. There a command is delivered at
    // once, so there is nothing to wait for.
    if !FEATURES.is_emulated.load(Relaxed) {
        for _ in 0..PATIENCE {
            if read(COMMAND) & DELIVERY_PENDING == 0 {
                break;
            }
            cpu::relax();
        }
    }
    if CoreArea::here().command_target.replace(target) != target {
        write(COMMAND_HIGH, target << 24);
    }
    write(COMMAND, value);
}

/// Resets another core.
pub(super) fn send_init(target: u32) {
    command(target, COMMAND_INIT);
}

/// Starts another core in real mode at `page * 4096`.
pub(super) fn send_start(target: u32, page: u8) {
    command(target, COMMAND_START | u32::from(page));
}

/// Interrupts another core.
pub(super) fn send_ipi(target: u32) {
    command(target, COMMAND_FIXED | u32::from(VECTOR_IPI));
}

struct Controller {
    registers: *mut u8,
    first: u32,
    lines: u32,
}

struct IoApics {
    list: [Option<Controller>; 4],
    overrides: [Option<(u32, u32)>; 16],
}

// SAFETY: device registers may be used by any core that holds the lock.
unsafe impl Send for IoApics {}

static IO_APICS: SpinLock<IoApics> =
    SpinLock::new(IoApics { list: [const { None }; 4], overrides: [None; 16] });

impl Controller {
    fn new(address: u64, first: u32) -> Self {
        const VERSION: u32 = 1;
        let mut controller = Self { registers: paging::map_device(address, 32), first, lines: 0 };
        controller.lines = (controller.read(VERSION) >> 16 & 0xff) + 1;
        for line in 0..controller.lines {
            controller.write(0x10 + 2 * line, MASKED);
        }
        controller
    }

    fn read(&self, register: u32) -> u32 {
        // SAFETY: the registers are mapped: a selector and a window.
        unsafe {
            self.registers.cast::<u32>().write_volatile(register);
            self.registers.add(16).cast::<u32>().read_volatile()
        }
    }

    fn write(&self, register: u32, value: u32) {
        // SAFETY: as in `read`.
        unsafe {
            self.registers.cast::<u32>().write_volatile(register);
            self.registers.add(16).cast::<u32>().write_volatile(value);
        }
    }
}

/// Routes a line, edge-triggered and active high, to a core and unmasks it. A line that no controller
/// has stays silent.
pub(super) fn enable_line(line: u32, cpu: usize) {
    let controllers = IO_APICS.lock();
    let wired = controllers.overrides.iter().flatten().find(|(legacy, _)| *legacy == line);
    let global = wired.map_or(line, |(_, global)| *global);
    let Some(target) = CoreArea::of(cpu).map(|area| area.apic_id.get()) else { return };
    let controller = controllers.list.iter().flatten().find(|controller| {
        global.checked_sub(controller.first).is_some_and(|line| line < controller.lines)
    });
    if let Some(controller) = controller {
        let register = 0x10 + 2 * (global - controller.first);
        controller.write(register + 1, target << 24);
        controller.write(register, u32::from(VECTOR_DEVICE));
    }
}
