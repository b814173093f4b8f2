//! Hints about cache lines.

use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};

/// See `Contract::prepare_write`.
#[inline(always)]
pub fn prepare_write(line: *const u8) {
    // SAFETY: a prefetch reads and writes nothing and never faults; a processor without this one
    // ignores it.
    unsafe { _mm_prefetch::<_MM_HINT_ET0>(line.cast()) };
}
