//! The code by which an unmodified program posts its system calls.
//!
//! A patched site is `call *%rax` where `syscall` was: both are two bytes long. As `rax` is the number
//! of the call, the program arrives in the *low page*, at its number, slides to the end of a field of
//! no-operations, and goes on to the *trampoline*, which lies elsewhere. The low page can be executed
//! but neither read nor written: a null pointer still faults.
//!
//! The trampoline finds everything through GS, which points to the thread's control page (or to a
//! stand-in that permits nothing). It changes what `syscall` changes, `rax`, `rcx` and `r11`, and the
//! arithmetic flags; and eight bytes below the stack pointer: the kernel patches no site that keeps
//! something there. It checks that the return address is one of the sites; else it stops at `bad`, as
//! somebody has called a null pointer.
//!
//! The offsets below are those of `abi::syspage`; the kernel checks that they agree.

use core::arch::global_asm;

use super::cpu::FEATURES;
use super::red_zone;
use crate::contract::{PostTrampoline, TrampolineOffsets};
use core::sync::atomic::Ordering::Relaxed;

global_asm!(
    ".pushsection .rodata.trampoline, \"a\"",
    "ferry_trampoline:",
    // Is the caller a patched site?
    "mov ecx, [rsp]",
    "and ecx, {SITE_MASK}",
    "mov r11, gs:[{SITES}]",
    "mov rcx, [r11 + rcx * 8]",
    "cmp rcx, [rsp]",
    "jne 9f",
    // May this call be posted, and does anybody look?
    "mov ecx, eax",
    "shr ecx, 6",
    "mov r11, gs:[rcx * 8 + {PERMITTED}]",
    "bt r11, rax",
    "jnc 8f",
    "cmp dword ptr gs:[{PARKED}], 0",
    "jne 8f",
    // The next entry; it is free unless somebody else writes to the syspage.
    "mov ecx, gs:[{POSITION}]",
    "and ecx, 63",
    "shl ecx, 6",
    "add rcx, gs:[{ENTRIES}]",
    "cmp dword ptr [rcx], 0",
    "jne 8f",
    "mov [rcx + 8], rdi",
    "mov [rcx + 16], rsi",
    "mov [rcx + 24], rdx",
    "mov [rcx + 32], r10",
    "mov [rcx + 40], r8",
    "mov [rcx + 48], r9",
    "mov [rcx + 4], eax",
    "mov dword ptr [rcx], 1",
    "ferry_trampoline_published:",
    "mov eax, gs:[{SPIN_LIMIT}]",
    "2:",
    "cmp dword ptr [rcx], 2",
    "je 4f",
    "cmp dword ptr gs:[{PARKED}], 0",
    "jne 3f",
    "ferry_trampoline_relax:",
    "xchg ax, ax",
    "dec eax",
    "jnz 2b",
    // Nothing yet: the kernel finishes the call and returns to the site.
    "3:",
    "mov eax, {FINISH}",
    "syscall",
    "hlt",
    "4:",
    "mov rax, [rcx + 56]",
    "mov dword ptr [rcx], 0",
    "ferry_trampoline_consumed:",
    "inc dword ptr gs:[{POSITION}]",
    "ferry_trampoline_counted:",
    "ret",
    "8:",
    "syscall",
    "ferry_trampoline_trapped:",
    "ret",
    "9:",
    "ferry_trampoline_bad:",
    "hlt",
    "ferry_trampoline_end:",
    ".popsection",
    SITE_MASK = const OFFSETS.site_slots - 1,
    SITES = const OFFSETS.sites,
    PERMITTED = const OFFSETS.permitted,
    PARKED = const OFFSETS.parked,
    POSITION = const OFFSETS.position,
    ENTRIES = const OFFSETS.entries,
    SPIN_LIMIT = const OFFSETS.spin_limit,
    FINISH = const OFFSETS.finish_call,
);

/// Where the trampoline expects what.
const OFFSETS: TrampolineOffsets = TrampolineOffsets {
    parked: 8,
    spin_limit: 20,
    entries: 24,
    sites: 32,
    trampoline: 40,
    permitted: 64,
    position: 4096 + 16,
    site_slots: 1024,
    finish_call: 504,
};

unsafe extern "C" {
    static ferry_trampoline: u8;
    static ferry_trampoline_published: u8;
    static ferry_trampoline_relax: u8;
    static ferry_trampoline_consumed: u8;
    static ferry_trampoline_counted: u8;
    static ferry_trampoline_trapped: u8;
    static ferry_trampoline_bad: u8;
    static ferry_trampoline_end: u8;
}

/// Call numbers that the low page has room for.
const NUMBERS: usize = 512;
const NO_OPERATION: u8 = 0x90;
const HALT: u8 = 0xf4;

/// Fills the low page: slides, then `jmp *%gs:trampoline`; behind it, what faults.
fn fill_low_page(page: &mut [u8]) {
    page.fill(HALT);
    for byte in page.iter_mut().take(NUMBERS) {
        *byte = NO_OPERATION;
    }
    let mut jump = [0x65, 0xff, 0x24, 0x25, 0, 0, 0, 0];
    for (byte, of_offset) in jump.iter_mut().skip(4).zip(OFFSETS.trampoline.to_le_bytes()) {
        *byte = of_offset;
    }
    for (to, byte) in page.iter_mut().skip(NUMBERS).zip(jump) {
        *to = byte;
    }
}

/// Fills the page of the trampoline.
fn fill_code_page(page: &mut [u8]) {
    page.fill(HALT);
    let start = &raw const ferry_trampoline;
    let offset = |label: *const u8| label.addr() - start.addr();
    let length = offset(&raw const ferry_trampoline_end);
    // SAFETY: the labels enclose constant bytes of the kernel image.
    let code = unsafe { core::slice::from_raw_parts(start, length) };
    for (to, byte) in page.iter_mut().zip(code) {
        *to = *byte;
    }
    if !FEATURES.is_emulated.load(Relaxed) {
        // `pause` instead of the no-operation of the same size.
        let relax = offset(&raw const ferry_trampoline_relax);
        for (to, byte) in page.iter_mut().skip(relax).zip([0xf3, 0x90]) {
            *to = byte;
        }
    }
}

/// The trampoline, if this processor has memory that can be executed and not read.
pub(super) fn post_trampoline() -> Option<PostTrampoline> {
    if !FEATURES.pku.load(Relaxed) {
        return None;
    }
    let start = &raw const ferry_trampoline;
    let offset = |label: *const u8| (label.addr() - start.addr()) as u64;
    Some(PostTrampoline {
        fill_low_page,
        fill_code_page,
        offsets: OFFSETS,
        trap: [0x0f, 0x05],
        patch: [0xff, 0xd0],
        may_patch: red_zone::is_unused,
        published: offset(&raw const ferry_trampoline_published),
        consumed: offset(&raw const ferry_trampoline_consumed),
        counted: offset(&raw const ferry_trampoline_counted),
        trapped: offset(&raw const ferry_trampoline_trapped),
        bad: offset(&raw const ferry_trampoline_bad),
    })
}
