//! An address space with a page of code, a page of data and a stack, and the code itself.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use hal::{Contract, Entry, Machine, PAGE_SIZE, PageRights, PhysAddr};

pub const CODE: u64 = 0x40_0000;
pub const DATA: u64 = 0x50_0000;
pub const STACK_TOP: u64 = DATA + PAGE_SIZE as u64;

/// Bytes taken from the end of the largest free range.
static TAKEN: AtomicU64 = AtomicU64::new(0);

fn frame() -> PhysAddr {
    let free = Machine::boot_info().free_memory;
    let size = |range: &&hal::MemoryRange| range.end.0 - range.start.0;
    let last = free.iter().max_by_key(size).expect("there is memory");
    let taken = TAKEN.fetch_add(PAGE_SIZE as u64, Ordering::Relaxed) + PAGE_SIZE as u64;
    let frame = PhysAddr(last.end.0 - taken);
    assert!(frame.0 >= last.start.0, "out of memory");
    // SAFETY: the frame is free RAM and given away once.
    unsafe { Machine::phys_to_virt(frame).write_bytes(0, PAGE_SIZE) };
    frame
}

fn entry(frame: PhysAddr, rights: PageRights) -> Entry {
    Entry { frame, rights, accessed: false, dirty: false, software: 0 }
}

fn map(root: PhysAddr, page: u64, frame_to_map: PhysAddr, rights: PageRights) {
    let mut table = root;
    for level in (0..Machine::TABLE_LEVELS).rev() {
        let index = (page >> (12 + 9 * level) & 511) as usize;
        let slot = Machine::phys_to_virt(table).cast::<u64>().wrapping_add(index);
        // SAFETY: the table is ours; no core uses this address space yet.
        unsafe {
            if level == 0 {
                slot.write(Machine::encode_entry(entry(frame_to_map, rights), true));
            } else if let Some(lower) = Machine::decode_entry(slot.read()) {
                table = lower.frame;
            } else {
                table = frame();
                let rights = PageRights { write: true, execute: true, user: true, hidden: false };
                slot.write(Machine::encode_entry(entry(table, rights), false));
            }
        }
    }
}

/// A fresh address space with the code.
pub fn new() -> PhysAddr {
    let root = frame();
    // SAFETY: the frame is fresh.
    unsafe { Machine::prepare_root(root) };
    let code = frame();
    let start = (&raw const user_start).addr();
    let length = (&raw const user_end).addr() - start;
    assert!(length <= PAGE_SIZE);
    // SAFETY: the code lies between the symbols; the frame is a page and ours.
    unsafe { Machine::phys_to_virt(code).copy_from_nonoverlapping(&raw const user_start, length) };
    let user = PageRights { user: true, ..PageRights::default() };
    map(root, CODE, code, PageRights { execute: true, ..user });
    map(root, DATA, frame(), PageRights { write: true, ..user });
    root
}

unsafe extern "C" {
    static user_start: u8;
    static user_end: u8;
}

/// The user address of a label of the code below.
#[macro_export]
macro_rules! user {
    ($label:ident) => {{
        unsafe extern "C" {
            static user_start: u8;
            static $label: u8;
        }
        $crate::space::CODE + ((&raw const $label).addr() - (&raw const user_start).addr()) as u64
    }};
}

global_asm!(
    r#"
    .section .rodata
    .global user_start, user_end
user_start:

    .global user_calls
user_calls:
    syscall
    jmp user_calls

    .global user_spin
user_spin:
    jmp user_spin

    .global user_divide
user_divide:
    xor ecx, ecx
    div ecx

    .global user_undefined
user_undefined:
    ud2

    .global user_breakpoint
user_breakpoint:
    int3

    .global user_step
user_step:
    push 0x302
    popfq
    nop
    .global user_stepped
user_stepped:
    nop

    .global user_halt
user_halt:
    hlt

    .global user_old_call
user_old_call:
    int 0x80

    .global user_read_null
user_read_null:
    xor eax, eax
    mov rax, [rax]

    .global user_write_code
user_write_code:
    mov [rip + user_start], eax

    .global user_write_kernel
user_write_kernel:
    mov rax, 0xffff800000200000
    mov [rax], eax

    .global user_read_odd
user_read_odd:
    mov rax, 0x800000000000
    mov rax, [rax]

    .global user_jump_data
user_jump_data:
    mov eax, 0x500000
    jmp rax

    .global user_misaligned
user_misaligned:
    pushfq
    or qword ptr [rsp], 0x40000
    popfq
    mov eax, [rip + user_start + 1]
    ud2

    .global user_sse_divide
user_sse_divide:
    push 0x1d80
    ldmxcsr [rsp]
    xorps xmm0, xmm0
    mov eax, 1
    cvtsi2ss xmm1, eax
    divss xmm1, xmm0
    ud2

    .global user_x87_divide
user_x87_divide:
    push 0x037b
    fldcw [rsp]
    fld1
    fldz
    fdivp
    fwait
    ud2

    # rdi is put everywhere; after the call everything must still be there.
    .macro keep label, bases
    .global \label
\label:
    movq xmm0, rdi
    movq xmm15, rdi
    .if \bases
    wrfsbase rdi
    .endif
    .irp register, rbx, rbp, r12, r13, r14, r15, rsi, rdx, r8, r9, r10
    mov \register, rdi
    .endr
1:  xor eax, eax
    syscall
    xor eax, eax
    movq rcx, xmm0
    xor rcx, rdi
    or rax, rcx
    movq rcx, xmm15
    xor rcx, rdi
    or rax, rcx
    .if \bases
    rdfsbase rcx
    xor rcx, rdi
    or rax, rcx
    .endif
    .irp register, rbx, rbp, r12, r13, r14, r15, rsi, rdx, r8, r9, r10
    mov rcx, \register
    xor rcx, rdi
    or rax, rcx
    .endr
    test rax, rax
    jz 1b
    ud2
    .endm
    keep user_keep, 1
    keep user_keep_plain, 0

user_end:
    .text
    "#
);
