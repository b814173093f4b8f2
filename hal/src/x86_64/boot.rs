//! From the loader's jump to Rust: PVH entry, long mode, the upper half.
//!
//! PVH starts core 0 in 32-bit mode without paging and with the address of its start info in ebx; the
//! loader finds the entry in an ELF note. The code here builds one page directory that maps the first
//! GiB, and lets it appear three times: where it is (this code runs there), at the direct map, and at
//! the kernel's addresses. Other cores come from real mode through the trampoline below and use the
//! same tables until they load the kernel's root.
//!
//! PVH: Xen's `docs/misc/pvh.pandoc`; long mode: Intel SDM volume 3, 10.8.5.

use core::arch::global_asm;
use core::sync::atomic::AtomicU64;

use super::paging::STACK_SIZE;

/// Stack of core 0 until it has one with a guard page.
const BOOT_STACK_SIZE: usize = 64 << 10;

#[repr(C, align(4096))]
struct BootStack(core::cell::UnsafeCell<[u8; BOOT_STACK_SIZE]>);

// SAFETY: only core 0 uses it, as its stack.
unsafe impl Sync for BootStack {}

static BOOT_STACK: BootStack = BootStack(core::cell::UnsafeCell::new([0; BOOT_STACK_SIZE]));

/// What the next core to arrive through the trampoline takes: the core that gets the number (by an
/// atomic exchange with 0) owns the stack; others stop for ever.
#[repr(C)]
pub(super) struct Mailbox {
    /// Number of the core to become, 0 when there is nothing to take.
    pub(super) cpu: AtomicU64,
    /// Top of its stack.
    pub(super) stack_top: AtomicU64,
    /// The kernel's root table.
    pub(super) root: AtomicU64,
}

pub(super) static MAILBOX: Mailbox =
    Mailbox { cpu: AtomicU64::new(0), stack_top: AtomicU64::new(0), root: AtomicU64::new(0) };

/// The trampoline's code, to be copied to a page below 1 MiB.
pub(super) fn trampoline() -> &'static [u8] {
    unsafe extern "C" {
        static ap_trampoline_start: u8;
        static ap_trampoline_end: u8;
    }
    let start = (&raw const ap_trampoline_start).addr();
    let length = (&raw const ap_trampoline_end).addr() - start;
    // SAFETY: the linker script places the code between the two symbols; nobody writes to it.
    unsafe { core::slice::from_raw_parts(&raw const ap_trampoline_start, length) }
}

global_asm!(
    r#"
    .section .note.pvh, "a", @note
    .balign 4
    .long 4                     # bytes of the name
    .long 8                     # bytes of the value
    .long 18                    # XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .quad pvh_start

    .section .boot.tables, "aw", @nobits
    .balign 4096
boot_root:      .skip 4096
boot_pointers:  .skip 4096
boot_directory: .skip 4096

    .section .boot.text, "ax", @progbits
    .code32
    .global pvh_start
pvh_start:
    cld
    rdtsc
    movl %eax, %edi             # the first cycle goes to Rust in edi and ebp
    movl %edx, %ebp

    xorl %eax, %eax             # the loader should have cleared the tables; do not count on it
    movl $boot_root, %edx
0:  movl %eax, (%edx)
    addl $4, %edx
    cmpl $boot_directory, %edx
    jb 0b

    movl $boot_pointers + 3, %eax
    movl %eax, boot_root
    movl %eax, boot_root + 256 * 8
    movl %eax, boot_root + 511 * 8
    movl $boot_directory + 3, %eax
    movl %eax, boot_pointers
    movl %eax, boot_pointers + 510 * 8
    movl $0x83, %eax            # present, writable, 2 MiB
    xorl %ecx, %ecx
1:  movl %eax, boot_directory(,%ecx,8)
    movl $0, boot_directory + 4(,%ecx,8)
    addl $0x200000, %eax
    incl %ecx
    cmpl $512, %ecx
    jb 1b

    movl $boot_root, %eax
    movl %eax, %cr3
    movl $0x20, %eax            # physical-address extension
    movl %eax, %cr4
    movl $0xc0000080, %ecx      # EFER
    movl $0x901, %eax           # syscall, long mode, no-execute
    xorl %edx, %edx
    wrmsr
    movl $0x80010033, %eax      # paging, write protection, numeric errors, monitor, protection
    movl %eax, %cr0
    lgdt boot_gdt_pointer
    ljmp $0x10, $2f
    .code64
2:  movabsq $boot_upper, %rax
    jmpq *%rax

    .balign 8
boot_gdt:
    .quad 0, 0
    .quad 0x00af9b000000ffff    # 0x10: 64-bit code
    .quad 0x00cf93000000ffff    # 0x18: data
boot_gdt_end:
boot_gdt_pointer:
    .word boot_gdt_end - boot_gdt - 1
    .quad boot_gdt

    .text
boot_upper:
    xorl %eax, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl %eax, %fs
    movl %eax, %gs
    leaq {stack} + {stack_size}(%rip), %rsp
    movl %edi, %esi
    shlq $32, %rbp
    orq %rbp, %rsi              # second argument: the first cycle
    movl %ebx, %edi             # first argument: the start info
    xorl %ebp, %ebp
    callq {start}
    ud2

    # Leaves the boot stack for good: (stack top, function).
    .global hal_call_on_stack
hal_call_on_stack:
    movq %rdi, %rsp
    xorl %ebp, %ebp
    callq *%rsi
    ud2

    # A started core arrives here with the boot tables loaded and no stack.
ap_upper:
    xorl %eax, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl %eax, %fs
    movl %eax, %gs
    xorl %edi, %edi
    xchgq %rdi, {mailbox}(%rip)
    testq %rdi, %rdi
    jz 3f
    movq {mailbox} + 16(%rip), %rax
    movq %rax, %cr3
    movq {mailbox} + 8(%rip), %rsp
    xorl %ebp, %ebp
    callq {start_other}
3:  cli
    hlt
    jmp 3b

    # Copied below 1 MiB and run from there in real mode. It finds its own address from cs.
    .section .rodata.trampoline, "a", @progbits
    .code16
    .global ap_trampoline_start, ap_trampoline_end
ap_trampoline_start:
    cli
    cld
    movw %cs, %ax
    movw %ax, %ds
    xorl %ebx, %ebx
    movw %ax, %bx
    shll $4, %ebx               # where the trampoline lies
    leal (ap_trampoline_long - ap_trampoline_start)(%ebx), %eax
    movl %eax, ap_trampoline_jump - ap_trampoline_start
    leal (ap_trampoline_gdt - ap_trampoline_start)(%ebx), %eax
    movl %eax, ap_trampoline_gdt_pointer - ap_trampoline_start + 2
    movl $boot_root, %eax
    movl %eax, %cr3
    movl $0x20, %eax
    movl %eax, %cr4
    movl $0xc0000080, %ecx
    movl $0x901, %eax
    xorl %edx, %edx
    wrmsr
    lgdtl ap_trampoline_gdt_pointer - ap_trampoline_start
    movl $0x80010033, %eax
    movl %eax, %cr0
    ljmpl *(ap_trampoline_jump - ap_trampoline_start)
    .code64
ap_trampoline_long:
    movabsq $ap_upper, %rax
    jmpq *%rax
    .balign 8
ap_trampoline_gdt:
    .quad 0, 0
    .quad 0x00af9b000000ffff
ap_trampoline_gdt_pointer:
    .word 23
    .long 0
ap_trampoline_jump:
    .long 0
    .word 0x10
ap_trampoline_end:
    .text
    "#,
    stack = sym BOOT_STACK,
    stack_size = const BOOT_STACK_SIZE,
    mailbox = sym MAILBOX,
    start = sym super::start::start,
    start_other = sym super::smp::start_other,
    options(att_syntax),
);

unsafe extern "C" {
    /// Continues in `function` on the stack that ends at `stack_top`.
    pub(super) fn hal_call_on_stack(stack_top: u64, function: extern "C" fn() -> !) -> !;
}

const _: () = assert!(BOOT_STACK_SIZE <= STACK_SIZE);
