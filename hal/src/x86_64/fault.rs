//! What a trap means: for a user thread as Linux would tell it, for the kernel itself a panic.

use core::arch::asm;

use super::apic;
use super::core_area::{self, CoreArea};
use super::registers::Registers;
use super::trap::KernelFrame;
use super::{Machine, user_copy};
use crate::contract::{Contract, Trap, VirtAddr};

const SIGILL: u8 = 4;
const SIGTRAP: u8 = 5;
const SIGBUS: u8 = 7;
const SIGFPE: u8 = 8;
const SIGSEGV: u8 = 11;

/// The kernel itself sends the signal and has no address to tell.
const SI_KERNEL: i32 = 0x80;
const ILL_ILLOPN: i32 = 2;
const TRAP_BRKPT: i32 = 1;
const TRAP_TRACE: i32 = 2;
const TRAP_HWBKPT: i32 = 4;
const BUS_ADRALN: i32 = 1;
const FPE_INTDIV: i32 = 1;
const FPE_FLTDIV: i32 = 3;
const FPE_FLTOVF: i32 = 4;
const FPE_FLTUND: i32 = 5;
const FPE_FLTRES: i32 = 6;
const FPE_FLTINV: i32 = 7;

/// First vector that is an interrupt and not an exception.
const FIRST_INTERRUPT: u64 = 32;
const VECTOR_NMI: u64 = 2;
const VECTOR_DOUBLE_FAULT: u64 = 8;
const VECTOR_PAGE_FAULT: u64 = 14;
const VECTOR_MACHINE_CHECK: u64 = 18;

/// The fault of a thread whose program counter is no user address.
pub(super) fn bad_instruction_pointer() -> Trap {
    fault(SIGSEGV, SI_KERNEL, 0, 13, 0)
}

fn fault(signal: u8, code: i32, address: u64, vector: u64, error: u64) -> Trap {
    Trap::Fault {
        signal,
        code,
        address: VirtAddr(address),
        vector: vector as u32,
        error: error as u32,
    }
}

/// Says why user mode was left. Called with the processor still as the trap left it (CR2, DR6).
pub(super) fn classify(registers: &Registers, core: &CoreArea) -> Trap {
    let Registers { vector, error, rip, .. } = *registers;
    let told = |signal, code, address| fault(signal, code, address, vector, error);
    match vector {
        0 => told(SIGFPE, FPE_INTDIV, rip),
        1 => {
            let condition = take_debug_condition();
            let code = if condition & (1 << 14 | 1 << 15) != 0 {
                TRAP_TRACE
            } else if condition & 15 != 0 {
                TRAP_HWBKPT
            } else {
                TRAP_BRKPT
            };
            told(SIGTRAP, code, rip)
        }
        VECTOR_NMI => Trap::Interrupt,
        3 => told(SIGTRAP, SI_KERNEL, 0),
        6 => told(SIGILL, ILL_ILLOPN, rip),
        9 => told(SIGFPE, SI_KERNEL, 0),
        11 | 12 => told(SIGBUS, SI_KERNEL, 0),
        VECTOR_PAGE_FAULT => Trap::PageFault {
            address: VirtAddr(fault_address()),
            write: error & 2 != 0,
            execute: error & 16 != 0,
            present: error & 1 != 0,
            by_key: error & 32 != 0,
        },
        16 => told_by_status(x87_status(), rip, vector),
        17 => told(SIGBUS, BUS_ADRALN, 0),
        19 => told_by_status(sse_status(), rip, vector),
        VECTOR_DOUBLE_FAULT | VECTOR_MACHINE_CHECK => {
            panic!("machine: exception {vector} in user mode at {rip:#x}, error {error:#x}")
        }
        FIRST_INTERRUPT.. => {
            apic::note_interrupt(vector as u8, core);
            Trap::Interrupt
        }
        _ => told(SIGSEGV, SI_KERNEL, 0),
    }
}

/// A floating-point exception. With none pending it is spurious and the thread goes on.
fn told_by_status(pending: u32, rip: u64, vector: u64) -> Trap {
    let code = if pending & 1 != 0 {
        FPE_FLTINV
    } else if pending & 4 != 0 {
        FPE_FLTDIV
    } else if pending & 8 != 0 {
        FPE_FLTOVF
    } else if pending & 0x12 != 0 {
        FPE_FLTUND
    } else if pending & 0x20 != 0 {
        FPE_FLTRES
    } else {
        return Trap::Interrupt;
    };
    fault(SIGFPE, code, rip, vector, 0)
}

/// x87 exceptions that are raised and not masked.
fn x87_status() -> u32 {
    let status: u16;
    let mut control: u16 = 0;
    // SAFETY: reads the thread's x87 registers, which are live on this core.
    unsafe {
        asm!("fnstsw ax", out("ax") status, options(nomem, nostack, preserves_flags));
        asm!("fnstcw [{}]", in(reg) &mut control, options(nostack, preserves_flags));
    }
    u32::from(status & !control) & 0x3f
}

/// SSE exceptions that are raised and not masked.
fn sse_status() -> u32 {
    let mut status: u32 = 0;
    // SAFETY: reads the thread's MXCSR, which is live on this core.
    unsafe { asm!("stmxcsr [{}]", in(reg) &mut status, options(nostack, preserves_flags)) };
    status & !(status >> 7) & 0x3f
}

fn fault_address() -> u64 {
    let address: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) };
    address
}

/// Reads and clears what the debug exception was for.
fn take_debug_condition() -> u64 {
    let condition: u64;
    // SAFETY: user code cannot set breakpoints, so the registers hold nothing else.
    unsafe {
        asm!("mov {}, dr6", out(reg) condition, options(nomem, nostack, preserves_flags));
        asm!("mov dr6, {}", in(reg) 0xffff_0ff0_u64, options(nomem, nostack, preserves_flags));
    }
    condition
}

/// A trap while the kernel ran.
pub(super) extern "C" fn kernel_trap(frame: &mut KernelFrame) {
    match frame.vector {
        FIRST_INTERRUPT.. => apic::note_interrupt(frame.vector as u8, CoreArea::here()),
        // Nobody sends these; a debug exception can only be a user's that was delayed.
        VECTOR_NMI | 1 => {}
        VECTOR_PAGE_FAULT if fault_address() < Machine::USER_END => {
            match user_copy::after_fault(frame.rip) {
                Some(address) => frame.rip = address,
                None => kernel_fault(frame),
            }
        }
        _ => kernel_fault(frame),
    }
}

#[cold]
fn kernel_fault(frame: &KernelFrame) -> ! {
    if !CoreArea::is_loaded() {
        // SAFETY: the trap hit between entry from user mode and `swapgs`.
        unsafe { asm!("swapgs", options(nomem, nostack, preserves_flags)) };
    }
    let KernelFrame { vector, error, rip, rflags, rsp, .. } = *frame;
    let [r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rbx, rax, rbp] = frame.general;
    let name = name(vector);
    let address = fault_address();
    let core = core_area::number();
    panic!(
        "kernel {name} (exception {vector}, error {error:#x}) on core {core} at {rip:#x}, cr2 {address:#x}\n\
         rax {rax:016x} rbx {rbx:016x} rcx {rcx:016x} rdx {rdx:016x}\n\
         rsi {rsi:016x} rdi {rdi:016x} rbp {rbp:016x} rsp {rsp:016x}\n\
         r8  {r8:016x} r9  {r9:016x} r10 {r10:016x} r11 {r11:016x}\n\
         r12 {r12:016x} r13 {r13:016x} r14 {r14:016x} r15 {r15:016x}\n\
         flags {rflags:#x}"
    )
}

fn name(vector: u64) -> &'static str {
    match vector {
        0 => "division error",
        3 => "breakpoint",
        6 => "invalid opcode",
        8 => "double fault (stack overflow?)",
        12 => "stack fault",
        13 => "general protection fault",
        14 => "page fault",
        18 => "machine check",
        _ => "exception",
    }
}
