//! Changes of stacks within the kernel: a core leaves what it does on one stack and goes on with what was
//! left on another.
//!
//! Only what a called function must keep is saved. The kernel has no floating-point state, and on the host
//! both sides run with the same control words.

use core::arch::global_asm;

global_asm!(
    r#"
    # (where to note the stack pointer, the stack pointer to go on with)
    .text
    .global hal_switch_stack
hal_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    retq

    # What a fresh stack begins with: calls the function in r14 with what is in r15.
    .global hal_begin_stack
hal_begin_stack:
    movq %r15, %rdi
    callq *%r14
    ud2
    "#,
    options(att_syntax),
);

unsafe extern "C" {
    fn hal_switch_stack(save: *mut u64, stack: u64);
    fn hal_begin_stack();
}

/// See `Contract::switch_stack`.
///
/// # Safety
/// As there.
pub(super) unsafe fn switch(save: *mut u64, stack: u64) {
    // SAFETY: the caller's promise: `stack` was saved by this function, or made by `prepare`.
    unsafe { hal_switch_stack(save, stack) };
}

/// See `Contract::prepare_stack`.
///
/// # Safety
/// As there.
pub(super) unsafe fn prepare(
    top: *mut u8,
    function: extern "C" fn(usize) -> !,
    argument: usize,
) -> u64 {
    let begin = hal_begin_stack as unsafe extern "C" fn() as usize as u64;
    // r15, r14, r13, r12, rbx, rbp, and where to go: after that the stack is aligned to 16.
    let words = [argument as u64, function as usize as u64, 0, 0, 0, 0, begin];
    let first = top.cast::<u64>().wrapping_sub(words.len());
    for (index, word) in words.into_iter().enumerate() {
        // SAFETY: the words lie at the end of a stack that nobody else uses.
        unsafe { first.wrapping_add(index).write(word) };
    }
    first.expose_provenance() as u64
}
