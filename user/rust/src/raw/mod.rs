//! Everything unsafe: the system-call instruction, the shared pages, and operations, each of which
//! promises that its call harms nothing while its resource is alive.

pub(crate) mod binding;
pub(crate) mod operations;

use std::arch::asm;

/// A system call.
///
/// # Safety
/// What the call does to this process must be sound.
unsafe fn trap(number: usize, arguments: &[u64; 6]) -> i64 {
    let result;
    // SAFETY: the kernel keeps all registers but the three named; what the call does to memory is
    // the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as u64 => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}
