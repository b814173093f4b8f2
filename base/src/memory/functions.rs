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

/// Copies the first and the last bytes that make a `T`, which may overlap: `length` is that of one `T` at least
/// and of two at most.
#[inline(always)]
unsafe fn copy_ends<T>(into: *mut u8, from: *const u8, length: usize) {
    let last = length - size_of::<T>();
    // SAFETY: the caller gives `length` bytes of each, and both ends lie within.
    unsafe {
        let first = from.cast::<T>().read_unaligned();
        let second = from.add(last).cast::<T>().read_unaligned();
        into.cast::<T>().write_unaligned(first);
        into.add(last).cast::<T>().write_unaligned(second);
    }
}

/// Copies between places that do not overlap.
#[inline(always)]
unsafe fn copy_apart(into: *mut u8, from: *const u8, length: usize) {
    // SAFETY: the caller gives `length` bytes of each; blocks begin before the last one, which ends with them.
    unsafe {
        match length {
            BLOCK.. => {
                let (mut at, last) = (0, length - BLOCK);
                while at < last {
                    let source = from.add(at).cast::<[u64; 8]>().read_unaligned();
                    into.add(at).cast::<[u64; 8]>().write_unaligned(source);
                    at += BLOCK;
                    barrier();
                }
                let source = from.add(last).cast::<[u64; 8]>().read_unaligned();
                into.add(last).cast::<[u64; 8]>().write_unaligned(source);
            }
            32.. => copy_ends::<[u64; 4]>(into, from, length),
            16.. => copy_ends::<[u64; 2]>(into, from, length),
            8.. => copy_ends::<u64>(into, from, length),
            4.. => copy_ends::<u32>(into, from, length),
            2.. => copy_ends::<u16>(into, from, length),
            1 => into.write(from.read()),
            0 => {}
        }
    }
}

/// Writes the first and the last bytes that make a `T`, as `copy_ends`.
#[inline(always)]
unsafe fn fill_ends<T: Copy>(into: *mut u8, value: T, length: usize) {
    // SAFETY: the caller gives `length` bytes, and both ends lie within.
    unsafe {
        into.cast::<T>().write_unaligned(value);
        into.add(length - size_of::<T>()).cast::<T>().write_unaligned(value);
    }
}

/// Fills with a byte, of which `word` has eight.
#[inline(always)]
unsafe fn fill(into: *mut u8, word: u64, length: usize) {
    // SAFETY: the caller gives `length` bytes; blocks begin before the last one, which ends with them.
    unsafe {
        match length {
            BLOCK.. => {
                let (mut at, last) = (0, length - BLOCK);
                while at < last {
                    into.add(at).cast::<[u64; 8]>().write_unaligned([word; 8]);
                    at += BLOCK;
                    barrier();
                }
                into.add(last).cast::<[u64; 8]>().write_unaligned([word; 8]);
            }
            32.. => fill_ends(into, [word; 4], length),
            16.. => fill_ends(into, [word; 2], length),
            8.. => fill_ends(into, word, length),
            4.. => fill_ends(into, word as u32, length),
            2.. => fill_ends(into, word as u16, length),
            1 => into.write(word as u8),
            0 => {}
        }
    }
}

/// C's `memcpy`.
///
/// # Safety
/// As in C: `length` bytes of each, not overlapping.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub unsafe extern "C" fn memcpy(into: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    // SAFETY: by the caller's promise.
    unsafe { copy_apart(into, from, length) };
    into
}

/// C's `memmove`.
///
/// # Safety
/// As in C: `length` bytes of each.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
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
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub unsafe extern "C" fn memset(into: *mut u8, byte: i32, length: usize) -> *mut u8 {
    let word = u64::from(byte as u8) * 0x0101_0101_0101_0101;
    // SAFETY: by the caller's promise.
    unsafe { fill(into, word, length) };
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
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub unsafe extern "C" fn memcmp(first: *const u8, second: *const u8, length: usize) -> i32 {
    // SAFETY: by the caller's promise.
    unsafe { compare(first, second, length) }
}

/// C's `bcmp`.
///
/// # Safety
/// As in C: `length` readable bytes of each.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub unsafe extern "C" fn bcmp(first: *const u8, second: *const u8, length: usize) -> i32 {
    // SAFETY: by the caller's promise.
    unsafe { compare(first, second, length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 300;

    fn numbered() -> [u8; MOST] {
        core::array::from_fn(|index| (index % 251) as u8)
    }

    #[test]
    fn every_length_is_copied_whole_and_nothing_else() {
        for length in 0..MOST - 2 {
            let (from, mut into) = (numbered(), [0xee; MOST]);
            // SAFETY: both have more than `length + 1` bytes.
            unsafe { memcpy(into.as_mut_ptr().add(1), from.as_ptr(), length) };
            assert_eq!(into[1..=length], from[..length], "{length} bytes");
            assert!(into[0] == 0xee && into[length + 1] == 0xee, "{length} bytes");
        }
    }

    #[test]
    fn every_length_is_filled_whole_and_nothing_else() {
        for length in 0..MOST - 2 {
            let mut into = [0xee; MOST];
            // SAFETY: it has more than `length + 1` bytes.
            unsafe { memset(into.as_mut_ptr().add(1), 0x15a, length) };
            assert!(into[1..=length].iter().all(|byte| *byte == 0x5a), "{length} bytes");
            assert!(into[0] == 0xee && into[length + 1] == 0xee, "{length} bytes");
        }
    }

    #[test]
    fn the_first_byte_that_differs_decides() {
        for (at, length) in [(0, 1), (7, 8), (8, 9), (20, 23)] {
            let (one, mut other) = (numbered(), numbered());
            other[at] += 1;
            // SAFETY: both have that many bytes.
            let compare = |first: &[u8; MOST], second: &[u8; MOST], length| unsafe {
                (memcmp(first.as_ptr(), second.as_ptr(), length) as i64).signum()
            };
            assert_eq!((compare(&one, &other, length), compare(&other, &one, length)), (-1, 1));
            // SAFETY: likewise.
            assert_eq!(unsafe { bcmp(one.as_ptr(), other.as_ptr(), at) }, 0);
        }
    }

    #[test]
    fn places_that_overlap_are_moved_as_if_they_did_not() {
        for (target, source) in [(0, 1), (1, 0), (0, 70), (70, 0), (3, 60), (60, 3)] {
            for length in 0..MOST - 70 {
                let mut bytes = numbered();
                let start = bytes.as_mut_ptr();
                // SAFETY: both places lie within.
                unsafe { memmove(start.add(target), start.add(source), length) };
                assert_eq!(bytes[target..target + length], numbered()[source..source + length]);
            }
        }
    }
}
