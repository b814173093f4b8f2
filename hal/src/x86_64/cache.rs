//! Hints to the caches; of the hosted machine too.

use core::arch::asm;

/// See `Contract::prepare_write`.
#[inline]
pub fn prepare_write(line: *const u8) {
    // SAFETY: a prefetch changes no register or memory and never faults; a processor without this one
    // takes it for a no-operation.
    unsafe { asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly)) };
}
