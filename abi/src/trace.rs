//! The format of traces: what a core writes for every call, and how a file of such records is laid out.
//!
//! Every record has three words of 64 bits, so that a ring of records needs no lengths and a reader finds
//! the next record after a damaged one. `docs/abi/trace.md` is the page for people; this is the same for
//! compilers. Encoding and decoding are pure functions of words: they allocate nothing, and decoding
//! refuses what encoding never writes.

mod duration;
mod file;
mod kinds;
mod record;
pub mod ring;

pub use duration::{Duration, LONGEST};
pub use file::{Block, Chunk, End, HEADER_BYTES, Header, HeaderError, Origin, VERSION, checksum};
pub use kinds::{EventKind, Events, LockScheme, Path};
pub use record::{
    Call, Event, Lock, MAX_APPLICATION, MAX_CALL, MAX_CORE, MAX_STAMP, MOST_DETAIL, Record,
    RecordError,
};

/// Words of a record.
pub const RECORD_WORDS: usize = 3;
/// Bytes of a record.
pub const RECORD_BYTES: usize = 8 * RECORD_WORDS;

/// One record, or one head of a block, as it stands in a ring and in a file (little endian there).
pub type Words = [u64; RECORD_WORDS];

/// The words in the bytes of a file.
pub fn words_of(bytes: &[u8; RECORD_BYTES]) -> Words {
    let mut words = [0; RECORD_WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
    }
    words
}

/// The bytes of a file for the words.
pub fn bytes_of(words: &Words) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Bits `shift` to `shift + bits - 1` of a word.
const fn field(word: u64, shift: u32, bits: u32) -> u64 {
    word >> shift & ((1 << bits) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_way_through_bytes() {
        let words = [0x0123_4567_89ab_cdef, u64::MAX, 1];
        assert_eq!(words_of(&bytes_of(&words)), words);
        assert_eq!(bytes_of(&words)[0], 0xef);
    }
}
