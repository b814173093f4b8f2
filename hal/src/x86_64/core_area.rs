//! What each core keeps for itself, reached through GS while the kernel runs.
//!
//! Every field is used by its own core only, with interrupts off; so plain cells do. The assembly in
//! `trap.rs` knows fields by `offset_of!`.

use core::arch::asm;
use core::cell::{Cell, UnsafeCell};
use core::mem::offset_of;

use super::context::Extended;
use super::segments::{Descriptors, TaskState};
use crate::contract::MAX_CPUS;

/// A stack that only trap code uses.
#[repr(C, align(64))]
pub(super) struct TrapStack<const SIZE: usize>(UnsafeCell<[u8; SIZE]>);

impl<const SIZE: usize> TrapStack<SIZE> {
    const fn new() -> Self {
        Self(UnsafeCell::new([0; SIZE]))
    }

    fn bounds(&self) -> (u64, u64) {
        (self.top() - SIZE as u64, self.top())
    }

    /// Its upper end.
    pub(super) fn top(&self) -> u64 {
        self.0.get().addr() as u64 + SIZE as u64
    }
}

/// One core's own data.
#[repr(C, align(64))]
pub(super) struct CoreArea {
    /// Address of this structure.
    itself: Cell<u64>,
    /// Number of the core.
    pub(super) number: Cell<u64>,
    /// The kernel's stack pointer while user mode runs.
    pub(super) kernel_stack: Cell<u64>,
    /// Registers of the user thread that runs or ran last.
    pub(super) registers: Cell<u64>,
    /// Holds the user's stack pointer for a moment.
    pub(super) scratch: Cell<u64>,
    /// Whose floating-point state and segment bases are in this core's registers; null: nobody's.
    pub(super) live: Cell<*mut Extended>,
    /// `PENDING_…` bits noted by handlers.
    pub(super) pending: Cell<u8>,
    /// When the timer is to fire, in cycles; `u64::MAX` when disarmed.
    pub(super) deadline_cycles: Cell<u64>,
    /// Local APIC id.
    pub(super) apic_id: Cell<u32>,
    /// Whom the APIC's command register is addressed to; no id at first.
    pub(super) command_target: Cell<u32>,
    /// Bounds of the stack that the core's kernel code runs on.
    pub(super) stack: Cell<(u64, u64)>,
    pub(super) descriptors: UnsafeCell<Descriptors>,
    pub(super) task_state: UnsafeCell<TaskState>,
    /// Where the processor pushes its frame when user mode is left by an interrupt or exception.
    pub(super) trap_stack: TrapStack<1024>,
    pub(super) nmi_stack: TrapStack<4096>,
    pub(super) debug_stack: TrapStack<4096>,
    pub(super) double_fault_stack: TrapStack<32768>,
}

// SAFETY: each area is only used by its core, except `apic_id` and the constant parts, which are
// written before other cores look at them.
unsafe impl Sync for CoreArea {}

pub(super) const PENDING_TIMER: u8 = 1;
pub(super) const PENDING_IPI: u8 = 2;
pub(super) const PENDING_DEVICE: u8 = 4;

pub(super) const OFFSET_KERNEL_STACK: usize = offset_of!(CoreArea, kernel_stack);
pub(super) const OFFSET_REGISTERS: usize = offset_of!(CoreArea, registers);
pub(super) const OFFSET_SCRATCH: usize = offset_of!(CoreArea, scratch);

impl CoreArea {
    const fn new() -> Self {
        Self {
            itself: Cell::new(0),
            number: Cell::new(0),
            kernel_stack: Cell::new(0),
            registers: Cell::new(0),
            scratch: Cell::new(0),
            live: Cell::new(core::ptr::null_mut()),
            pending: Cell::new(0),
            deadline_cycles: Cell::new(u64::MAX),
            apic_id: Cell::new(0),
            command_target: Cell::new(u32::MAX),
            stack: Cell::new((0, 0)),
            descriptors: UnsafeCell::new(Descriptors::new()),
            task_state: UnsafeCell::new(TaskState::new()),
            trap_stack: TrapStack::new(),
            nmi_stack: TrapStack::new(),
            debug_stack: TrapStack::new(),
            double_fault_stack: TrapStack::new(),
        }
    }

    /// The area of core `number`; only for what other cores may see.
    pub(super) fn of(number: usize) -> Option<&'static Self> {
        AREAS.get(number)
    }

    /// The running core's area.
    #[inline]
    pub(super) fn here() -> &'static Self {
        let address: u64;
        // `nomem` holds although a word is read: it is written once, before GS points to the area, and
        // never again, so the answer depends on the core alone and not on any state of memory; no write
        // that Rust can see is ordered against it.
        // SAFETY: GS points to the core's area while the kernel runs, and its first field is its
        // address; the area is never written through another path while borrowed, as its fields are
        // cells.
        unsafe {
            asm!("mov {}, gs:[{}]", out(reg) address, const offset_of!(CoreArea, itself),
                options(pure, nomem, nostack, preserves_flags));
            &*core::ptr::with_exposed_provenance(address as usize)
        }
    }

    /// Whether two words at `address` lie in one of this core's stacks.
    pub(super) fn is_stack(&self, address: u64) -> bool {
        let inside =
            |(start, end): (u64, u64)| address >= start && address.saturating_add(16) <= end;
        address % 8 == 0 && (inside(self.stack.get()) || inside(self.double_fault_stack.bounds()))
    }

    /// Whether both addresses are in the ordinary stack, or both in another.
    pub(super) fn is_same_stack(&self, one: u64, other: u64) -> bool {
        let (start, end) = self.stack.get();
        (start..end).contains(&one) == (start..end).contains(&other)
    }

    /// Notes that something came.
    pub(super) fn note(&self, bits: u8) {
        self.pending.set(self.pending.get() | bits);
    }

    /// Makes the area its core's own.
    ///
    /// # Safety
    /// Called once on each core, with a number that no other core has, before `here`.
    pub(super) unsafe fn adopt(number: usize) -> &'static Self {
        let area = &AREAS[number];
        let address = core::ptr::from_ref(area).expose_provenance() as u64;
        area.itself.set(address);
        area.number.set(number as u64);
        // SAFETY: the address is canonical; GS is not used before.
        unsafe {
            super::cpu::write_msr(super::cpu::MSR_GS_BASE, address);
            super::cpu::write_msr(super::cpu::MSR_KERNEL_GS_BASE, 0);
        }
        area
    }

    /// Whether the GS base is the kernel's: not so when a non-maskable trap hit the few instructions
    /// after entry from user mode.
    pub(super) fn is_loaded() -> bool {
        // SAFETY: the MSR exists in long mode.
        let base = unsafe { super::cpu::read_msr(super::cpu::MSR_GS_BASE) };
        let first = AREAS.as_ptr().addr() as u64;
        (first..first + size_of_val(&AREAS) as u64).contains(&base)
    }
}

/// Number of the running core.
#[inline]
pub(super) fn number() -> usize {
    let number: u64;
    // SAFETY: GS points to the core's area while the kernel runs; the number is written once, before GS
    // points there, so `nomem` holds as in `here`.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) number, const offset_of!(CoreArea, number),
            options(pure, nomem, nostack, preserves_flags));
    }
    number as usize
}

static AREAS: [CoreArea; MAX_CPUS] = [const { CoreArea::new() }; MAX_CPUS];
