//! `futex` in the Linux ABI: operations, flags of the word, and the encoded operation of
//! `FUTEX_WAKE_OP`.

use crate::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Wait if the word has a value.
pub const FUTEX_WAIT: u32 = 0;
/// Wake waiters.
pub const FUTEX_WAKE: u32 = 1;
/// Wake some waiters and let others wait for another word.
pub const FUTEX_REQUEUE: u32 = 3;
/// As `FUTEX_REQUEUE`, if the word has a value.
pub const FUTEX_CMP_REQUEUE: u32 = 4;
/// Change a word and wake waiters of two.
pub const FUTEX_WAKE_OP: u32 = 5;
/// Take a lock that the kernel hands over.
pub const FUTEX_LOCK_PI: u32 = 6;
/// Give it up.
pub const FUTEX_UNLOCK_PI: u32 = 7;
/// Take it if it is free.
pub const FUTEX_TRYLOCK_PI: u32 = 8;
/// As `FUTEX_WAIT`, with bits to be woken by, until an absolute time.
pub const FUTEX_WAIT_BITSET: u32 = 9;
/// As `FUTEX_WAKE`, of those whose bits meet.
pub const FUTEX_WAKE_BITSET: u32 = 10;
/// Wait until an absolute time, and take a lock when woken.
pub const FUTEX_WAIT_REQUEUE_PI: u32 = 11;
/// As `FUTEX_CMP_REQUEUE`, of those who take a lock.
pub const FUTEX_CMP_REQUEUE_PI: u32 = 12;
/// As `FUTEX_LOCK_PI`, with the monotonic clock.
pub const FUTEX_LOCK_PI2: u32 = 13;
/// Flag: the word is in memory of one process.
pub const FUTEX_PRIVATE_FLAG: u32 = 128;
/// Flag: the timeout is on the wall clock.
pub const FUTEX_CLOCK_REALTIME: u32 = 256;
/// The operation without its flags.
pub const FUTEX_COMMAND_MASK: u32 = !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
/// Bits that meet every other.
pub const MATCH_ANY: u32 = !0;

/// `futex_waitv`: the word has 32 bits.
pub const FUTEX_32: u32 = 2;
/// Most words of `futex_waitv`.
pub const FUTEX_WAITV_MAX: u32 = 128;

/// `struct futex_waitv`
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WaitedWord {
    /// Expected value.
    pub value: u64,
    /// Where it is.
    pub address: u64,
    /// `FUTEX_32`, `FUTEX_PRIVATE_FLAG`.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

/// In a robust lock: somebody waits.
pub const FUTEX_WAITERS: u32 = 0x8000_0000;
/// In a robust lock: the owner ended.
pub const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
/// In a robust lock: number of the owner's thread.
pub const FUTEX_TID_MASK: u32 = 0x3fff_ffff;

/// `struct robust_list_head`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RobustListHead {
    /// First link, or the head itself.
    pub next: u64,
    /// From a link to its lock's word.
    pub offset: i64,
    /// Link of the lock that is being taken or released; 0 for none.
    pub pending: u64,
}

/// How `FUTEX_WAKE_OP` changes the second word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Sets it.
    Set(u32),
    /// Adds.
    Add(u32),
    /// Sets bits.
    Or(u32),
    /// Clears bits.
    AndNot(u32),
    /// Flips bits.
    Xor(u32),
}

impl Operation {
    /// The changed word.
    pub const fn apply(self, old: u32) -> u32 {
        match self {
            Operation::Set(value) => value,
            Operation::Add(value) => old.wrapping_add(value),
            Operation::Or(value) => old | value,
            Operation::AndNot(value) => old & !value,
            Operation::Xor(value) => old ^ value,
        }
    }
}

/// What `FUTEX_WAKE_OP` asks of the second word's old value, which counts as signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// Equal.
    Equal(i32),
    /// Not equal.
    NotEqual(i32),
    /// Less.
    Less(i32),
    /// Less or equal.
    LessOrEqual(i32),
    /// Greater.
    Greater(i32),
    /// Greater or equal.
    GreaterOrEqual(i32),
}

impl Comparison {
    /// Whether it holds.
    pub const fn holds(self, old: u32) -> bool {
        let old = old.cast_signed();
        match self {
            Comparison::Equal(value) => old == value,
            Comparison::NotEqual(value) => old != value,
            Comparison::Less(value) => old < value,
            Comparison::LessOrEqual(value) => old <= value,
            Comparison::Greater(value) => old > value,
            Comparison::GreaterOrEqual(value) => old >= value,
        }
    }
}

/// Decodes the last argument of `FUTEX_WAKE_OP`: 4 bits of operation (the highest makes the operand a
/// bit number), 4 of comparison, 12 of operand, 12 of comparand; the last two are signed.
///
/// # Errors
/// `ENOSYS` for an unknown operation or comparison.
pub fn decode_wake_operation(encoded: u32) -> Result<(Operation, Comparison), Errno> {
    let signed = |bits: u32| (bits << 20).cast_signed() >> 20;
    let operand = signed(encoded >> 12 & 0xfff);
    let comparand = signed(encoded & 0xfff);
    let operand = if encoded >> 31 != 0 { 1 << (operand & 31) } else { operand.cast_unsigned() };
    let operation = match encoded >> 28 & 7 {
        0 => Operation::Set(operand),
        1 => Operation::Add(operand),
        2 => Operation::Or(operand),
        3 => Operation::AndNot(operand),
        4 => Operation::Xor(operand),
        _ => return Err(Errno::ENOSYS),
    };
    let comparison = match encoded >> 24 & 15 {
        0 => Comparison::Equal(comparand),
        1 => Comparison::NotEqual(comparand),
        2 => Comparison::Less(comparand),
        3 => Comparison::LessOrEqual(comparand),
        4 => Comparison::Greater(comparand),
        5 => Comparison::GreaterOrEqual(comparand),
        _ => return Err(Errno::ENOSYS),
    };
    Ok((operation, comparison))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_signed_and_may_be_bit_numbers() {
        let (operation, comparison) = decode_wake_operation(1 << 28 | 0xfff << 12 | 0xffe).unwrap();
        assert_eq!(operation, Operation::Add(u32::MAX));
        assert_eq!(comparison, Comparison::Equal(-2));
        let (operation, _) = decode_wake_operation(8 << 28 | 5 << 12).unwrap();
        assert_eq!(operation, Operation::Set(32));
    }

    #[test]
    fn unknown_operations_and_comparisons_are_refused() {
        assert_eq!(decode_wake_operation(5 << 28), Err(Errno::ENOSYS));
        assert_eq!(decode_wake_operation(6 << 24), Err(Errno::ENOSYS));
    }

    #[test]
    fn old_values_compare_as_signed() {
        assert!(Comparison::Less(0).holds(0xffff_ffff));
        assert!(!Comparison::GreaterOrEqual(0).holds(0x8000_0000));
    }

    #[test]
    fn operations_change_the_word() {
        assert_eq!(Operation::AndNot(6).apply(7), 1);
        assert_eq!(Operation::Xor(5).apply(6), 3);
    }
}
