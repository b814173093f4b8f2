//! Copies between kernel and user memory by the translations that are loaded, without a look at page
//! tables. A page fault in here is no bug: it ends the copy (`fault::kernel_trap`).

use core::arch::{asm, global_asm};
use core::sync::atomic::Ordering::Relaxed;

use super::cpu::FEATURES;
use super::xsave;

global_asm!(
    ".pushsection .text.user_copy, \"ax\"",
    // rdi: to, rsi: from, rdx: length. eax: 0 when all of it was copied, 1 after a fault.
    ".globl ferry_user_copy, ferry_user_copy_faulted",
    "ferry_user_copy:",
    "cmp rdx, 64",
    "jb 3f",
    // Whole blocks, counted from their end on.
    "mov rcx, rdx",
    "and rcx, -64",
    "add rdi, rcx",
    "add rsi, rcx",
    "neg rcx",
    "2:",
    "mov rax, [rsi + rcx]",
    "mov r8, [rsi + rcx + 8]",
    "mov r9, [rsi + rcx + 16]",
    "mov r10, [rsi + rcx + 24]",
    "mov [rdi + rcx], rax",
    "mov [rdi + rcx + 8], r8",
    "mov [rdi + rcx + 16], r9",
    "mov [rdi + rcx + 24], r10",
    "mov rax, [rsi + rcx + 32]",
    "mov r8, [rsi + rcx + 40]",
    "mov r9, [rsi + rcx + 48]",
    "mov r10, [rsi + rcx + 56]",
    "mov [rdi + rcx + 32], rax",
    "mov [rdi + rcx + 40], r8",
    "mov [rdi + rcx + 48], r9",
    "mov [rdi + rcx + 56], r10",
    "add rcx, 64",
    "jnz 2b",
    // Fewer than 64 bytes are left; the lower bits of rdx say how many.
    "3:",
    "test dl, 32",
    "jz 3f",
    "mov rax, [rsi]",
    "mov rcx, [rsi + 8]",
    "mov r8, [rsi + 16]",
    "mov r9, [rsi + 24]",
    "mov [rdi], rax",
    "mov [rdi + 8], rcx",
    "mov [rdi + 16], r8",
    "mov [rdi + 24], r9",
    "add rsi, 32",
    "add rdi, 32",
    "3:",
    "test dl, 16",
    "jz 4f",
    "mov rax, [rsi]",
    "mov rcx, [rsi + 8]",
    "mov [rdi], rax",
    "mov [rdi + 8], rcx",
    "add rsi, 16",
    "add rdi, 16",
    "4:",
    "test dl, 8",
    "jz 5f",
    "mov rax, [rsi]",
    "mov [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "5:",
    "test dl, 7",
    "jz 9f",
    "test dl, 4",
    "jz 6f",
    "mov eax, [rsi]",
    "mov [rdi], eax",
    "add rsi, 4",
    "add rdi, 4",
    "6:",
    "test dl, 2",
    "jz 7f",
    "mov ax, [rsi]",
    "mov [rdi], ax",
    "add rsi, 2",
    "add rdi, 2",
    "7:",
    "test dl, 1",
    "jz 9f",
    "mov al, [rsi]",
    "mov [rdi], al",
    "9:",
    "xor eax, eax",
    "ret",
    "ferry_user_copy_faulted:",
    "mov eax, 1",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn ferry_user_copy(to: *mut u8, from: *const u8, length: usize) -> u32;
    static ferry_user_copy_faulted: u8;
}

/// Where the kernel goes on after a page fault at `instruction`, if that was a copy.
pub(super) fn after_fault(instruction: u64) -> Option<u64> {
    let start = ferry_user_copy as *const () as u64;
    let end = (&raw const ferry_user_copy_faulted).addr() as u64;
    (start..end).contains(&instruction).then_some(end)
}

/// `Contract::copy_user`. Refuses while the thread whose state is live has other rights by protection keys
/// than a new program.
///
/// # Safety
/// As `Contract::copy_user` says.
#[inline]
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, length: usize) -> bool {
    if FEATURES.pku.load(Relaxed) && keys() != xsave::KEYS_AT_RESET {
        return false;
    }
    if !FEATURES.smap.load(Relaxed) {
        // SAFETY: the caller's promise; faults in user memory are caught.
        return unsafe { ferry_user_copy(to, from, length) } == 0;
    }
    // SAFETY: the processor has the instructions; nothing but the copy runs in between.
    unsafe {
        asm!("stac", options(nomem, nostack));
        let outcome = ferry_user_copy(to, from, length);
        asm!("clac", options(nomem, nostack));
        outcome == 0
    }
}

/// PKRU.
#[inline]
fn keys() -> u32 {
    let keys: u32;
    // SAFETY: reads a register, which the processor has.
    unsafe {
        asm!("rdpkru", in("ecx") 0, out("eax") keys, out("edx") _,
            options(nomem, nostack, preserves_flags));
    }
    keys
}
