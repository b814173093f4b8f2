//! Moving bytes in RAM that others may change at the same time.
//!
//! A page that is mapped in user space changes whenever a user core likes, so it is only ever touched by
//! relaxed atomic accesses of aligned words. Loops move eight words per turn: string instructions cost
//! a turn of the emulator per word, and single words spend their time on the loop.
//!
//! Words and bytes of one place are so accessed by atomics of different sizes, at the same time as by
//! user programs with any instruction. Rust's memory model has no rule for races of different sizes; here
//! they stand for what the machine does: on every machine that Ferry runs on, an aligned access of up to
//! eight bytes reads or writes each byte once, and relaxed accesses compile to such instructions and to
//! nothing else. Nothing in the kernel depends on what a racing program sees or leaves: bytes that
//! were read are a copy that is checked afterwards, and no pointer and no length of the kernel's is ever
//! kept in such a page.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORD: usize = 8;
const UNROLL: usize = 8;

#[inline(always)]
unsafe fn load(pointer: *const u8) -> u64 {
    // SAFETY: the caller gives an aligned address of RAM that is accessed atomically only; loading
    // through a pointer that was made mutable changes nothing.
    unsafe { AtomicU64::from_ptr(pointer.cast_mut().cast()) }.load(Ordering::Relaxed)
}

#[inline(always)]
unsafe fn store(pointer: *mut u8, value: u64) {
    // SAFETY: as for `load`.
    unsafe { AtomicU64::from_ptr(pointer.cast()) }.store(value, Ordering::Relaxed);
}

#[inline(always)]
unsafe fn load_byte(pointer: *const u8) -> u8 {
    // SAFETY: as for `load`; bytes have no alignment.
    unsafe { AtomicU8::from_ptr(pointer.cast_mut()) }.load(Ordering::Relaxed)
}

#[inline(always)]
unsafe fn store_byte(pointer: *mut u8, value: u8) {
    // SAFETY: as for `load_byte`.
    unsafe { AtomicU8::from_ptr(pointer) }.store(value, Ordering::Relaxed);
}

/// Bytes before the next word boundary, at most `length`.
#[inline(always)]
fn head(pointer: *const u8, length: usize) -> usize {
    ((pointer as usize).wrapping_neg() % WORD).min(length)
}

/// Copies `length` bytes of shared memory to private memory.
///
/// # Safety
/// `from` is `length` bytes of RAM that stay mapped; `into` is as many bytes of the caller's alone.
pub unsafe fn from_shared(mut into: *mut u8, mut from: *const u8, mut length: usize) {
    let first = head(from, length);
    for _ in 0..first {
        // SAFETY: within both areas, by the caller's promise.
        unsafe {
            into.write(load_byte(from));
            (into, from) = (into.add(1), from.add(1));
        }
    }
    length -= first;
    while length >= WORD * UNROLL {
        for index in 0..UNROLL {
            // SAFETY: at least `WORD * UNROLL` bytes are left in both areas; `from` is aligned.
            unsafe {
                let word = load(from.add(index * WORD));
                into.add(index * WORD).cast::<u64>().write_unaligned(word);
            }
        }
        // SAFETY: as above.
        (into, from) = unsafe { (into.add(WORD * UNROLL), from.add(WORD * UNROLL)) };
        length -= WORD * UNROLL;
    }
    while length >= WORD {
        // SAFETY: at least a word is left in both areas; `from` is aligned.
        unsafe {
            into.cast::<u64>().write_unaligned(load(from));
            (into, from) = (into.add(WORD), from.add(WORD));
        }
        length -= WORD;
    }
    for _ in 0..length {
        // SAFETY: within both areas.
        unsafe {
            into.write(load_byte(from));
            (into, from) = (into.add(1), from.add(1));
        }
    }
}

/// Copies `length` bytes of private memory to shared memory.
///
/// # Safety
/// `into` is `length` bytes of RAM that stay mapped; `from` is as many readable bytes that do not
/// change.
pub unsafe fn to_shared(mut into: *mut u8, mut from: *const u8, mut length: usize) {
    let first = head(into, length);
    for _ in 0..first {
        // SAFETY: within both areas, by the caller's promise.
        unsafe {
            store_byte(into, from.read());
            (into, from) = (into.add(1), from.add(1));
        }
    }
    length -= first;
    while length >= WORD * UNROLL {
        for index in 0..UNROLL {
            // SAFETY: at least `WORD * UNROLL` bytes are left in both areas; `into` is aligned.
            unsafe {
                let word = from.add(index * WORD).cast::<u64>().read_unaligned();
                store(into.add(index * WORD), word);
            }
        }
        // SAFETY: as above.
        (into, from) = unsafe { (into.add(WORD * UNROLL), from.add(WORD * UNROLL)) };
        length -= WORD * UNROLL;
    }
    while length >= WORD {
        // SAFETY: at least a word is left in both areas; `into` is aligned.
        unsafe {
            store(into, from.cast::<u64>().read_unaligned());
            (into, from) = (into.add(WORD), from.add(WORD));
        }
        length -= WORD;
    }
    for _ in 0..length {
        // SAFETY: within both areas.
        unsafe {
            store_byte(into, from.read());
            (into, from) = (into.add(1), from.add(1));
        }
    }
}

/// Copies `length` bytes between two shared areas that do not overlap.
///
/// # Safety
/// Both areas are `length` bytes of RAM that stay mapped, and so is every aligned word that holds one
/// of their bytes.
pub unsafe fn between_shared(mut into: *mut u8, mut from: *const u8, mut length: usize) {
    let first = head(into, length);
    for _ in 0..first {
        // SAFETY: within both areas, by the caller's promise.
        unsafe {
            store_byte(into, load_byte(from));
            (into, from) = (into.add(1), from.add(1));
        }
    }
    length -= first;
    let shift = from as usize % WORD;
    if shift == 0 {
        while length >= WORD * UNROLL {
            for index in 0..UNROLL {
                // SAFETY: at least `WORD * UNROLL` bytes are left; both are aligned.
                unsafe { store(into.add(index * WORD), load(from.add(index * WORD))) };
            }
            // SAFETY: as above.
            (into, from) = unsafe { (into.add(WORD * UNROLL), from.add(WORD * UNROLL)) };
            length -= WORD * UNROLL;
        }
        while length >= WORD {
            // SAFETY: at least a word is left; both are aligned.
            unsafe {
                store(into, load(from));
                (into, from) = (into.add(WORD), from.add(WORD));
            }
            length -= WORD;
        }
    } else if length >= WORD {
        // The words of the source lie across those of the target: each one gives its end to one word
        // and its beginning to the next.
        let (low, high) = (8 * shift as u32, 64 - 8 * shift as u32);
        // SAFETY: the word that holds the first byte left.
        let mut before = unsafe { load(from.sub(shift)) }.to_le();
        while length >= WORD {
            // SAFETY: a word is left, so its last byte lies in the source word that follows `before`.
            unsafe {
                let after = load(from.sub(shift).add(WORD)).to_le();
                store(into, u64::from_le(before >> low | after << high));
                before = after;
                (into, from) = (into.add(WORD), from.add(WORD));
            }
            length -= WORD;
        }
    }
    for _ in 0..length {
        // SAFETY: within both areas.
        unsafe {
            store_byte(into, load_byte(from));
            (into, from) = (into.add(1), from.add(1));
        }
    }
}

/// Zeroes `length` bytes of shared memory.
///
/// # Safety
/// `into` is `length` bytes of RAM that stay mapped.
pub unsafe fn zero_shared(mut into: *mut u8, mut length: usize) {
    let first = head(into, length);
    for _ in 0..first {
        // SAFETY: within the area, by the caller's promise.
        unsafe {
            store_byte(into, 0);
            into = into.add(1);
        }
    }
    length -= first;
    while length >= WORD * UNROLL {
        for index in 0..UNROLL {
            // SAFETY: at least `WORD * UNROLL` bytes are left; `into` is aligned.
            unsafe { store(into.add(index * WORD), 0) };
        }
        // SAFETY: as above.
        into = unsafe { into.add(WORD * UNROLL) };
        length -= WORD * UNROLL;
    }
    for index in 0..length {
        // SAFETY: within the area.
        unsafe { store_byte(into.add(index), 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|index| (index * 7 + index / 251) as u8).collect()
    }

    #[test]
    fn every_alignment_and_length_is_copied_exactly() {
        let mut source = vec![0_u64; 64];
        let mut target = vec![0_u64; 64];
        let bytes = pattern(512);
        for (from_at, into_at, length) in (0..9).flat_map(|from| {
            (0..9).flat_map(move |into| {
                [0, 1, 7, 8, 9, 63, 64, 65, 130, 200].map(|length| (from, into, length))
            })
        }) {
            let source = source.as_mut_ptr().cast::<u8>();
            let target = target.as_mut_ptr().cast::<u8>();
            let expected = &bytes[..length];
            let mut out = vec![0; length];
            // SAFETY: all areas lie within 512 bytes of their vectors.
            unsafe {
                zero_shared(source, 512);
                zero_shared(target, 512);
                to_shared(source.add(from_at), bytes.as_ptr(), length);
                between_shared(target.add(into_at), source.add(from_at), length);
                from_shared(out.as_mut_ptr(), target.add(into_at), length);
                assert_eq!(out, expected, "{from_at} {into_at} {length}");
                let mut after = [1; 1];
                from_shared(after.as_mut_ptr(), target.add(into_at + length), 1);
                assert_eq!(after, [0], "a byte too many: {from_at} {into_at} {length}");
                let mut before = [0; 8];
                from_shared(before.as_mut_ptr(), target, into_at.min(8));
                assert_eq!(before, [0; 8], "a byte too early");
            }
        }
    }

    #[test]
    fn zeroing_stops_at_both_ends() {
        for (at, length) in (0..9).flat_map(|at| [0, 1, 8, 64, 70].map(|length| (at, length))) {
            let mut words = [u64::MAX; 16];
            // SAFETY: within the array.
            unsafe { zero_shared(words.as_mut_ptr().cast::<u8>().add(at), length) };
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            for (index, byte) in bytes.iter().enumerate() {
                let inside = (at..at + length).contains(&index);
                assert_eq!(*byte == 0, inside, "{at} {length} {index}");
            }
        }
    }
}
