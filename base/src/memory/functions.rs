//! `memcpy`, `memmove`, `memset` and `memcmp` of the kernel, which the compiler calls by name.
//!
//! Those of `compiler_builtins` use string instructions, which cost a turn of the emulator per word;
//! these move eight words per turn of a loop. They are strong symbols and replace the weak ones.

use core::arch::asm;

const WORD: usize = 8;
const BLOCK: usize = 64;

/// Keeps the compiler from recognising a loop as the function that it is in.
#[inline(always)]
fn barrier() {
    // SAFETY: no instruction at all.
    unsafe { asm!("", options(nostack, preserves_flags)) };
}

#[inline(always)]
unsafe fn move_word(into: *mut u8, from: *const u8) {
    // SAFETY: the caller gives a word of each.
    unsafe { into.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()) };
}

/// Copies upwards.
#[inline(always)]
unsafe fn copy_up(mut into: *mut u8, mut from: *const u8, mut length: usize) {
    // SAFETY: the caller gives `length` bytes of each; what is done is subtracted.
    unsafe {
        while length >= BLOCK {
            let source = from.cast::<[u64; 8]>().read_unaligned();
            into.cast::<[u64; 8]>().write_unaligned(source);
            (into, from) = (into.add(BLOCK), from.add(BLOCK));
            length -= BLOCK;
            barrier();
        }
        while length >= WORD {
            move_word(into, from);
            (into, from) = (into.add(WORD), from.add(WORD));
            length -= WORD;
            barrier();
        }
        while length > 0 {
            into.write(from.read());
            (into, from) = (into.add(1), from.add(1));
            length -= 1;
            barrier();
        }
    }
}

/// Copies downwards.
#[inline(always)]
unsafe fn copy_down(into: *mut u8, from: *const u8, mut length: usize) {
    // SAFETY: the caller gives `length` bytes of each; `length` is what is left below.
    unsafe {
        while length >= WORD {
            length -= WORD;
            move_word(into.add(length), from.add(length));
            barrier();
        }
        while length > 0 {
            length -= 1;
            into.add(length).write(from.add(length).read());
            barrier();
        }
    }
}

/// C's `memcpy`.
///
/// # Safety
/// As in C: `length` bytes of each, not overlapping.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(into: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    // SAFETY: by the caller's promise.
    unsafe { copy_up(into, from, length) };
    into
}

/// C's `memmove`.
///
/// # Safety
/// As in C: `length` bytes of each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(into: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    // Upwards is right unless the target begins inside the source; a block is read before it is
    // written, so a target below the source by less than a block is right too.
    if (into as usize).wrapping_sub(from as usize) >= length {
        // SAFETY: by the caller's promise; nothing is overwritten before it was read.
        unsafe { copy_up(into, from, length) };
    } else {
        // SAFETY: as above.
        unsafe { copy_down(into, from, length) };
    }
    into
}

/// C's `memset`.
///
/// # Safety
/// As in C: `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memset(into: *mut u8, byte: i32, mut length: usize) -> *mut u8 {
    let word = u64::from(byte as u8) * 0x0101_0101_0101_0101;
    let mut at = into;
    // SAFETY: the caller gives `length` bytes; what is done is subtracted.
    unsafe {
        while length >= BLOCK {
            at.cast::<[u64; 8]>().write_unaligned([word; 8]);
            at = at.add(BLOCK);
            length -= BLOCK;
            barrier();
        }
        while length >= WORD {
            at.cast::<u64>().write_unaligned(word);
            at = at.add(WORD);
            length -= WORD;
            barrier();
        }
        while length > 0 {
            at.write(byte as u8);
            at = at.add(1);
            length -= 1;
            barrier();
        }
    }
    into
}

#[inline(always)]
unsafe fn compare(mut first: *const u8, mut second: *const u8, mut length: usize) -> i32 {
    // SAFETY: the caller gives `length` bytes of each; what is done is subtracted.
    unsafe {
        while length >= WORD {
            let one = first.cast::<u64>().read_unaligned();
            let two = second.cast::<u64>().read_unaligned();
            if one != two {
                return if u64::from_be(one) < u64::from_be(two) { -1 } else { 1 };
            }
            (first, second) = (first.add(WORD), second.add(WORD));
            length -= WORD;
            barrier();
        }
        while length > 0 {
            let difference = i32::from(first.read()) - i32::from(second.read());
            if difference != 0 {
                return difference;
            }
            (first, second) = (first.add(1), second.add(1));
            length -= 1;
            barrier();
        }
    }
    0
}

/// C's `memcmp`.
///
/// # Safety
/// As in C: `length` readable bytes of each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcmp(first: *const u8, second: *const u8, length: usize) -> i32 {
    // SAFETY: by the caller's promise.
    unsafe { compare(first, second, length) }
}

/// C's `bcmp`.
///
/// # Safety
/// As in C: `length` readable bytes of each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bcmp(first: *const u8, second: *const u8, length: usize) -> i32 {
    // SAFETY: by the caller's promise.
    unsafe { compare(first, second, length) }
}
