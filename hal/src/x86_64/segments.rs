//! Descriptor tables: segments, task state and interrupt gates.
//!
//! Selectors are Linux's, because programs see them in signal frames. There is no 32-bit code segment,
//! so user mode is 64-bit or faults.

use core::arch::asm;
use core::cell::UnsafeCell;

use super::core_area::CoreArea;
use super::cpu::{self, MSR_LSTAR, MSR_SFMASK, MSR_STAR};
use super::trap;

pub(super) const KERNEL_CODE: u16 = 0x10;
const KERNEL_DATA: u16 = 0x18;
pub(super) const USER_DATA: u16 = 0x2b;
pub(super) const USER_CODE: u16 = 0x33;
const TASK: u16 = 0x40;

/// A core's global descriptor table.
#[repr(C, align(16))]
pub(super) struct Descriptors([u64; 10]);

impl Descriptors {
    pub(super) const fn new() -> Self {
        Self([
            0,
            0,
            0x00af_9b00_0000_ffff, // 0x10 kernel code
            0x00cf_9300_0000_ffff, // 0x18 kernel data
            0,                     // 0x20 32-bit user code: absent
            0x00cf_f300_0000_ffff, // 0x28 user data
            0x00af_fb00_0000_ffff, // 0x30 user code
            0,
            0, // 0x40 task state, two words
            0,
        ])
    }

    fn set_task_state(&mut self, address: u64) {
        let limit = size_of::<TaskState>() as u64 - 1;
        self.0[8] = limit | (address & 0xff_ffff) << 16 | 0x89 << 40 | (address >> 24 & 0xff) << 56;
        self.0[9] = address >> 32;
    }
}

/// The 64-bit task-state segment: stacks for entries from user mode and for the traps that can come
/// at any instruction.
#[repr(C, packed(4))]
pub(super) struct TaskState {
    reserved_0: u32,
    privilege_stacks: [u64; 3],
    reserved_1: u64,
    interrupt_stacks: [u64; 7],
    reserved_2: u64,
    reserved_3: u16,
    io_map: u16,
}

impl TaskState {
    pub(super) const fn new() -> Self {
        Self {
            reserved_0: 0,
            privilege_stacks: [0; 3],
            reserved_1: 0,
            interrupt_stacks: [0; 7],
            reserved_2: 0,
            reserved_3: 0,
            // Beyond the segment: no port is open to user mode.
            io_map: size_of::<Self>() as u16,
        }
    }
}

const STACK_DOUBLE_FAULT: u8 = 1;
const STACK_NMI: u8 = 2;
const STACK_DEBUG: u8 = 3;

#[derive(Clone, Copy)]
#[repr(C)]
struct Gate {
    low: u64,
    high: u64,
}

#[repr(C, align(4096))]
struct Gates(UnsafeCell<[Gate; 256]>);

// SAFETY: core 0 writes it before any other core runs; afterwards it is only read.
unsafe impl Sync for Gates {}

static GATES: Gates = Gates(UnsafeCell::new([Gate { low: 0, high: 0 }; 256]));

fn gate(address: u64, stack: u8, privilege: u64) -> Gate {
    Gate {
        low: address & 0xffff
            | u64::from(KERNEL_CODE) << 16
            | u64::from(stack) << 32
            | 0x8e << 40
            | privilege << 45
            | (address >> 16 & 0xffff) << 48,
        high: address >> 32,
    }
}

/// Fills the interrupt gates. Core 0, once, before any core loads them.
pub(super) fn fill_gates() {
    let gates = GATES.0.get();
    for vector in 0..=255u8 {
        let stack = match vector {
            1 => STACK_DEBUG,
            2 => STACK_NMI,
            // These end in a panic, which needs room.
            8 | 18 => STACK_DOUBLE_FAULT,
            _ => 0,
        };
        // Programs may execute `int3` and `int 4`.
        let privilege = if matches!(vector, 3 | 4) { 3 } else { 0 };
        // SAFETY: only core 0 runs yet, and no core has loaded the table.
        unsafe {
            (*gates)[usize::from(vector)] = gate(trap::stub_address(vector), stack, privilege)
        };
    }
}

#[repr(C, packed)]
struct TablePointer {
    limit: u16,
    base: u64,
}

/// Loads this core's tables and the entry of system calls.
pub(super) fn load(area: &CoreArea) {
    // SAFETY: the area is this core's and its tables are not loaded yet; afterwards only the processor
    // reads them. All addresses are of code and stacks that live for ever.
    unsafe {
        let state = &mut *area.task_state.get();
        state.privilege_stacks[0] = area.trap_stack.top();
        let mut stacks = [0; 7];
        stacks[usize::from(STACK_DOUBLE_FAULT) - 1] = area.double_fault_stack.top();
        stacks[usize::from(STACK_NMI) - 1] = area.nmi_stack.top();
        stacks[usize::from(STACK_DEBUG) - 1] = area.debug_stack.top();
        state.interrupt_stacks = stacks;
        let descriptors = &mut *area.descriptors.get();
        descriptors.set_task_state(area.task_state.get().addr() as u64);
        let pointer = TablePointer {
            limit: size_of::<Descriptors>() as u16 - 1,
            base: area.descriptors.get().addr() as u64,
        };
        asm!("lgdt [{}]", in(reg) &pointer, options(readonly, nostack, preserves_flags));
        asm!(
            "push {code}",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "retfq",
            "2:",
            "mov ss, {data:e}",
            "xor {scratch:e}, {scratch:e}",
            "lldt {scratch:x}",
            code = const KERNEL_CODE,
            data = in(reg) u32::from(KERNEL_DATA),
            scratch = out(reg) _,
        );
        asm!("ltr {:x}", in(reg) TASK, options(nostack, preserves_flags));
        let pointer = TablePointer {
            limit: size_of::<Gates>() as u16 - 1,
            base: GATES.0.get().addr() as u64,
        };
        asm!("lidt [{}]", in(reg) &pointer, options(readonly, nostack, preserves_flags));

        // SYSRET adds 8 and 16 to the upper selector.
        cpu::write_msr(MSR_STAR, u64::from(USER_DATA - 8) << 48 | u64::from(KERNEL_CODE) << 32);
        cpu::write_msr(MSR_LSTAR, trap::syscall_entry as *const () as u64);
        // Cleared on entry: everything that can trap or mislead the kernel (TF IF DF IOPL NT AC …).
        cpu::write_msr(MSR_SFMASK, 0x0025_7fd5);
    }
}
