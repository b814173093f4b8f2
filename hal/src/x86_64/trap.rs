//! The way into user mode and back.
//!
//! `enter` loads a thread's registers and goes to user mode; it returns when the thread traps. To Rust
//! it is an ordinary call that takes long. Two ways lead back: `syscall_entry`, kept as short as can
//! be, and the stubs of the interrupt gates. Both save the thread's registers into its `Registers`
//! and return from `enter` on the kernel stack that it was called on. There is no other kernel stack
//! per thread.
//!
//! ```text
//!   enter ──sysret/iret──► user mode ──syscall──► syscall_entry ──┐
//!     ▲                        └──exception, interrupt──► stub ───┤
//!     └───────────────────────── ret, eax = 0 or 1 ───────────────┘
//! ```
//!
//! GS is the kernel's in the kernel and the user's in user mode; `swapgs` is the first instruction
//! after entry and the last before leaving. Traps that cannot be masked have stacks of their own, as
//! they may hit in between. A trap in the kernel itself goes to `kernel_trap`.
//!
//! Instructions: Intel SDM volume 2; the processor's frame: volume 3, 6.14.

use core::arch::naked_asm;
use core::mem::offset_of;

use super::core_area::{OFFSET_KERNEL_STACK, OFFSET_REGISTERS, OFFSET_SCRATCH};
use super::registers::{RETURN_BY_INTERRUPT_FRAME, RETURN_BY_SYSRET, Registers};
use super::segments::{USER_CODE, USER_DATA};

/// Bytes from one stub to the next.
const STUB_SIZE: usize = 16;

/// Result of `enter` after a system call.
pub(super) const CALL: u32 = 0;

/// Where the stub of a vector begins.
pub(super) fn stub_address(vector: u8) -> u64 {
    stubs as *const () as u64 + u64::from(vector) * STUB_SIZE as u64
}

/// A naked function's instructions, with the places of what all ways save or load; then, after a
/// semicolon, its further operands.
macro_rules! naked_asm_with_registers {
    ($($instruction:literal,)* ; $($operand:tt)*) => {
        naked_asm!(
            $($instruction,)*
            KERNEL_STACK = const OFFSET_KERNEL_STACK,
            REGISTERS = const OFFSET_REGISTERS,
            RETURN_BY = const offset_of!(Registers, return_by),
            RAX = const offset_of!(Registers, rax),
            RBX = const offset_of!(Registers, rbx),
            RDX = const offset_of!(Registers, rdx),
            RSI = const offset_of!(Registers, rsi),
            RDI = const offset_of!(Registers, rdi),
            RBP = const offset_of!(Registers, rbp),
            RSP = const offset_of!(Registers, rsp),
            R8 = const offset_of!(Registers, r8),
            R9 = const offset_of!(Registers, r9),
            R10 = const offset_of!(Registers, r10),
            R12 = const offset_of!(Registers, r12),
            R13 = const offset_of!(Registers, r13),
            R14 = const offset_of!(Registers, r14),
            R15 = const offset_of!(Registers, r15),
            RIP = const offset_of!(Registers, rip),
            RFLAGS = const offset_of!(Registers, rflags),
            $($operand)*
        )
    };
}

/// Runs user mode with `registers` until it traps: `CALL` after a system call, 1 after anything else.
///
/// # Safety
/// `registers` is this thread's alone; its `rip` is a user address and its flags are a user's; the
/// root table, segment bases and floating-point state are the thread's; interrupts are off.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn enter(registers: &mut Registers) -> u32 {
    naked_asm_with_registers!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov gs:[{KERNEL_STACK}], rsp",
        "mov gs:[{REGISTERS}], rdi",
        "cmp qword ptr [rdi + {RETURN_BY}], {SYSRET}",
        "mov rax, [rdi + {RAX}]",
        "mov rbx, [rdi + {RBX}]",
        "mov rdx, [rdi + {RDX}]",
        "mov rsi, [rdi + {RSI}]",
        "mov rbp, [rdi + {RBP}]",
        "mov r8, [rdi + {R8}]",
        "mov r9, [rdi + {R9}]",
        "mov r10, [rdi + {R10}]",
        "mov r12, [rdi + {R12}]",
        "mov r13, [rdi + {R13}]",
        "mov r14, [rdi + {R14}]",
        "mov r15, [rdi + {R15}]",
        "jne 2f",
        "mov rcx, [rdi + {RIP}]",
        "mov r11, [rdi + {RFLAGS}]",
        "mov rsp, [rdi + {RSP}]",
        "mov rdi, [rdi + {RDI}]",
        "swapgs",
        "sysretq",
        "2:",
        "push {USER_DATA}",
        "push qword ptr [rdi + {RSP}]",
        "push qword ptr [rdi + {RFLAGS}]",
        "push {USER_CODE}",
        "push qword ptr [rdi + {RIP}]",
        "mov rcx, [rdi + {RCX}]",
        "mov r11, [rdi + {R11}]",
        "mov rdi, [rdi + {RDI}]",
        "swapgs",
        "iretq",
        ;
        SYSRET = const RETURN_BY_SYSRET,
        USER_DATA = const USER_DATA,
        USER_CODE = const USER_CODE,
        RCX = const offset_of!(Registers, rcx),
        R11 = const offset_of!(Registers, r11),
    )
}

/// Where `syscall` arrives: rcx is the user's rip, r11 its flags, rsp still its stack.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn syscall_entry() {
    naked_asm_with_registers!(
        "swapgs",
        "mov gs:[{SCRATCH}], rsp",
        "mov rsp, gs:[{REGISTERS}]",
        "mov [rsp + {RAX}], rax",
        "mov [rsp + {RBX}], rbx",
        "mov [rsp + {RDX}], rdx",
        "mov [rsp + {RSI}], rsi",
        "mov [rsp + {RDI}], rdi",
        "mov [rsp + {RBP}], rbp",
        "mov [rsp + {R8}], r8",
        "mov [rsp + {R9}], r9",
        "mov [rsp + {R10}], r10",
        "mov [rsp + {R12}], r12",
        "mov [rsp + {R13}], r13",
        "mov [rsp + {R14}], r14",
        "mov [rsp + {R15}], r15",
        "mov [rsp + {RIP}], rcx",
        "mov [rsp + {RFLAGS}], r11",
        "mov rax, gs:[{SCRATCH}]",
        "mov [rsp + {RSP}], rax",
        "mov qword ptr [rsp + {RETURN_BY}], {SYSRET}",
        "mov rsp, gs:[{KERNEL_STACK}]",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "xor eax, eax",
        "ret",
        ;
        SCRATCH = const OFFSET_SCRATCH,
        SYSRET = const RETURN_BY_SYSRET,
    )
}

/// One stub per vector: makes the stack look alike (error code, vector) and goes on.
#[unsafe(naked)]
unsafe extern "C" fn stubs() {
    naked_asm!(
        ".set vector, 0",
        ".rept 256",
        ".balign {SIZE}",
        // Vectors for which the processor pushes an error code: 8, 10-14, 17, 21, 29, 30.
        ".if ((0x60227d00 >> vector) & 1) == 0 || vector >= 32",
        "push 0",
        ".endif",
        "push vector",
        "jmp {common}",
        ".set vector, vector + 1",
        ".endr",
        SIZE = const STUB_SIZE,
        common = sym common,
    )
}

/// Any trap but a system call. The stack: vector, error, rip, cs, rflags, rsp, ss.
#[unsafe(naked)]
unsafe extern "C" fn common() {
    naked_asm_with_registers!(
        "test byte ptr [rsp + 24], 3",
        "jz {kernel}",
        "swapgs",
        // The user's direction and alignment-check flags are still set.
        "push 2",
        "popfq",
        "push rax",
        "mov rax, gs:[{REGISTERS}]",
        "mov [rax + {RBX}], rbx",
        "mov [rax + {RCX}], rcx",
        "mov [rax + {RDX}], rdx",
        "mov [rax + {RSI}], rsi",
        "mov [rax + {RDI}], rdi",
        "mov [rax + {RBP}], rbp",
        "mov [rax + {R8}], r8",
        "mov [rax + {R9}], r9",
        "mov [rax + {R10}], r10",
        "mov [rax + {R11}], r11",
        "mov [rax + {R12}], r12",
        "mov [rax + {R13}], r13",
        "mov [rax + {R14}], r14",
        "mov [rax + {R15}], r15",
        "pop qword ptr [rax + {RAX}]",
        "pop qword ptr [rax + {VECTOR}]",
        "pop qword ptr [rax + {ERROR}]",
        "pop qword ptr [rax + {RIP}]",
        "pop rcx",
        "pop qword ptr [rax + {RFLAGS}]",
        "pop qword ptr [rax + {RSP}]",
        "mov qword ptr [rax + {RETURN_BY}], {FRAME}",
        "mov rsp, gs:[{KERNEL_STACK}]",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "mov eax, 1",
        "ret",
        ;
        kernel = sym kernel,
        FRAME = const RETURN_BY_INTERRUPT_FRAME,
        VECTOR = const offset_of!(Registers, vector),
        ERROR = const offset_of!(Registers, error),
        RCX = const offset_of!(Registers, rcx),
        R11 = const offset_of!(Registers, r11),
    )
}

/// What the stack holds when the kernel itself was interrupted.
#[repr(C)]
pub(super) struct KernelFrame {
    /// r15 r14 r13 r12 r11 r10 r9 r8 rdi rsi rdx rcx rbx rax rbp
    pub(super) general: [u64; 15],
    pub(super) vector: u64,
    pub(super) error: u64,
    pub(super) rip: u64,
    pub(super) cs: u64,
    pub(super) rflags: u64,
    pub(super) rsp: u64,
    pub(super) ss: u64,
}

/// A trap in the kernel: an interrupt while it waits for one, or a fault.
#[unsafe(naked)]
unsafe extern "C" fn kernel() {
    naked_asm!(
        "push rbp",
        "push rax",
        "push rbx",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov rdi, rsp",
        // A link of the frame-pointer chain that names the interrupted instruction.
        "push [rsp + {RIP}]",
        "push rbp",
        "mov rbp, rsp",
        "mov rbx, rsp",
        "and rsp, -16",
        "cld",
        "call {handle}",
        "lea rsp, [rbx + 16]",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop rbx",
        "pop rax",
        "pop rbp",
        "add rsp, 16",
        "iretq",
        handle = sym super::fault::kernel_trap,
        RIP = const offset_of!(KernelFrame, rip),
    )
}
