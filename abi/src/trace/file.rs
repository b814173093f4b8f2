//! The file: a header, then blocks of records of one ring each, then an end.

use super::kinds::LockScheme;
use super::record::MAX_CORE;
use super::{RECORD_WORDS, Words, field};

/// Version of the format. A reader refuses later ones and says so.
pub const VERSION: u16 = 1;
/// Bytes of a header of this version; a file says how many it has, for later ones.
pub const HEADER_BYTES: usize = 64;

const MAGIC: [u8; 8] = *b"ferrytrc";
const KIND_CHUNK: u64 = 15;
const KIND_END: u64 = 14;
/// So that a reader can tell the head of a block from anything else.
const MARK: u64 = 0x6b6e_6863;

/// Where a trace comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Origin {
    /// A kernel recorded it.
    #[default]
    Recorded = 0,
    /// It was made of another format.
    Imported = 1,
    /// The simulator wrote it.
    Simulated = 2,
}

/// What stands at the beginning of a file.
///
/// | bytes | what |
/// |---|---|
/// | 0–7 | `ferrytrc` |
/// | 8–9 | version |
/// | 10–11 | bytes of the header, at least 64 |
/// | 12 | words of a record |
/// | 13 | cores |
/// | 14 | what a full ring did: 0 stopped, 1 overwrote |
/// | 15 | origin |
/// | 16–23 | ticks of the clock per second |
/// | 24–31 | when the trace began, in nanoseconds since 1970 |
/// | 32 | lock scheme |
/// | 33–59 | 0 |
/// | 60–63 | checksum of bytes 0–59 and four bytes of 0 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of cores, 1 to 64.
    pub cores: u8,
    /// What a full ring did: overwrote its oldest records, or stopped.
    pub overwrites: bool,
    /// Where the trace comes from.
    pub origin: Origin,
    /// Ticks of the clock per second.
    pub ticks_per_second: u64,
    /// When the trace began, in nanoseconds since 1970; 0 if not known.
    pub began_unix_ns: u64,
    /// The lock scheme in force.
    pub scheme: LockScheme,
}

/// Why the first bytes of a file are no header that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Not a trace of Ferry.
    Foreign,
    /// Fewer bytes than a header has.
    Short,
    /// A version that this tool does not know.
    Version(u16),
    /// The checksum is wrong.
    Damaged,
    /// A field has a value that it cannot have; the byte at which the field begins.
    Field(u8),
}

impl Header {
    /// The bytes of the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&(HEADER_BYTES as u16).to_le_bytes());
        bytes[12] = RECORD_WORDS as u8;
        bytes[13] = self.cores;
        bytes[14] = u8::from(self.overwrites);
        bytes[15] = self.origin as u8;
        bytes[16..24].copy_from_slice(&self.ticks_per_second.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.began_unix_ns.to_le_bytes());
        bytes[32] = self.scheme as u8;
        let sum = header_checksum(&bytes);
        bytes[60..64].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The header in the first bytes of a file, and how many bytes of the file it takes.
    ///
    /// # Errors
    ///
    /// Anything that is not a header of this version; see [`HeaderError`].
    pub fn decode(bytes: &[u8]) -> Result<(Header, usize), HeaderError> {
        let magic_length = bytes.len().min(MAGIC.len());
        if bytes[..magic_length] != MAGIC[..magic_length] || bytes.is_empty() {
            return Err(HeaderError::Foreign);
        }
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(HeaderError::Short)?;
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        if bytes[60..64] != header_checksum(bytes).to_le_bytes() {
            return Err(HeaderError::Damaged);
        }
        let length = usize::from(u16::from_le_bytes([bytes[10], bytes[11]]));
        let word = |at: usize| {
            bytes[at..at + 8].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
        };
        let header = Header {
            cores: bytes[13],
            overwrites: bytes[14] == 1,
            origin: match bytes[15] {
                0 => Origin::Recorded,
                1 => Origin::Imported,
                2 => Origin::Simulated,
                _ => return Err(HeaderError::Field(15)),
            },
            ticks_per_second: word(16),
            began_unix_ns: word(24),
            scheme: LockScheme::from_code(u64::from(bytes[32]))
                .map_err(|_| HeaderError::Field(32))?,
        };
        let wrong = [
            (10, length < HEADER_BYTES),
            (12, usize::from(bytes[12]) != RECORD_WORDS),
            (13, header.cores == 0 || header.cores > MAX_CORE + 1),
            (14, bytes[14] > 1),
            (16, header.ticks_per_second == 0),
            (33, bytes[33..60].iter().any(|&byte| byte != 0)),
        ];
        match wrong.iter().find(|(_, is_wrong)| *is_wrong) {
            Some(&(at, _)) => Err(HeaderError::Field(at)),
            None => Ok((header, length)),
        }
    }
}

fn header_checksum(bytes: &[u8; HEADER_BYTES]) -> u32 {
    let mut sum = Sum::new();
    for (at, word) in bytes.chunks_exact(8).enumerate() {
        let word = word.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        sum.add(if at == 7 { word & 0xffff_ffff } else { word });
    }
    sum.finish()
}

/// Multiplies and folds as FNV-1a does, a word at a time: finds damage, not malice.
struct Sum(u64);

impl Sum {
    const fn new() -> Sum {
        Sum(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    const fn finish(self) -> u32 {
        (self.0 ^ self.0 >> 32) as u32
    }
}

/// The checksum of the records of a block.
pub fn checksum<'a>(records: impl IntoIterator<Item = &'a Words>) -> u32 {
    let mut sum = Sum::new();
    records.into_iter().flatten().for_each(|&word| sum.add(word));
    sum.finish()
}

/// What stands where no record stands: the head of a block, or the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// Records of one ring follow.
    Chunk(Chunk),
    /// Nothing follows.
    End(End),
}

/// The head of a block of records of one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Core whose ring it was.
    pub ring: u8,
    /// Records that follow, at most `MAX_COUNT`.
    pub count: u32,
    /// Number of the first of them, counting all records of the ring from 0, lost ones included.
    pub sequence: u64,
    /// [`checksum`] of the records.
    pub checksum: u32,
}

impl Chunk {
    /// Records of one block, at most, so that a reader can hold a whole one.
    pub const MAX_COUNT: u32 = 1 << 16;
}

/// The end of a trace that was finished; without it, the file was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Records in the file.
    pub records: u64,
    /// Records that were lost in all rings.
    pub lost: u64,
}

impl Block {
    /// The words of the head.
    pub const fn encode(&self) -> Words {
        match self {
            Block::Chunk(chunk) => [
                KIND_CHUNK
                    | (chunk.ring as u64) << 4
                    | field(chunk.count as u64, 0, 22) << 10
                    | MARK << 32,
                chunk.sequence,
                chunk.checksum as u64,
            ],
            Block::End(end) => [KIND_END | MARK << 32, end.records, end.lost],
        }
    }

    /// The head in three words, if they are one.
    pub const fn decode(words: &Words) -> Option<Block> {
        let head = words[0];
        if head >> 32 != MARK {
            return None;
        }
        match head & 15 {
            KIND_CHUNK if words[2] >> 32 == 0 && field(head, 10, 22) <= Chunk::MAX_COUNT as u64 => {
                Some(Block::Chunk(Chunk {
                    ring: field(head, 4, 6) as u8,
                    count: field(head, 10, 22) as u32,
                    sequence: words[1],
                    checksum: words[2] as u32,
                }))
            }
            KIND_END if field(head, 4, 28) == 0 => {
                Some(Block::End(End { records: words[1], lost: words[2] }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            cores: 4,
            overwrites: true,
            origin: Origin::Imported,
            ticks_per_second: 399_000_000,
            began_unix_ns: 1_700_000_000_000_000_000,
            scheme: LockScheme::GiantClh,
        }
    }

    #[test]
    fn headers_survive() {
        for scheme in LockScheme::ALL {
            for cores in 1..=64 {
                let header = Header { cores, scheme, ..header() };
                assert_eq!(Header::decode(&header.encode()), Ok((header, HEADER_BYTES)));
            }
        }
    }

    #[test]
    fn every_single_damaged_bit_of_a_header_is_found() {
        for bit in 0..HEADER_BYTES * 8 {
            let mut bytes = header().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_header_is_told_apart() {
        let bytes = header().encode();
        assert_eq!(Header::decode(b"\x7fELF"), Err(HeaderError::Foreign));
        assert_eq!(Header::decode(b""), Err(HeaderError::Foreign));
        assert_eq!(Header::decode(&bytes[..63]), Err(HeaderError::Short));
        let mut later = bytes;
        later[8] = 2;
        assert_eq!(Header::decode(&later), Err(HeaderError::Version(2)));
        assert_eq!(
            Header::decode(&Header { cores: 65, ..header() }.encode()),
            Err(HeaderError::Field(13))
        );
        let still = Header { ticks_per_second: 0, ..header() };
        assert_eq!(Header::decode(&still.encode()), Err(HeaderError::Field(16)));
    }

    #[test]
    fn heads_of_blocks_survive_and_are_never_taken_for_records() {
        for ring in 0..64 {
            for count in [0, 1, 4096, Chunk::MAX_COUNT] {
                let chunk = Chunk { ring, count, sequence: u64::MAX - 1, checksum: 0xdead_beef };
                let words = Block::Chunk(chunk).encode();
                assert_eq!(Block::decode(&words), Some(Block::Chunk(chunk)));
                assert!(super::super::Record::decode(&words).is_err());
            }
        }
        let end = Block::End(End { records: 7, lost: u64::MAX });
        assert_eq!(Block::decode(&end.encode()), Some(end));
        assert!(super::super::Record::decode(&end.encode()).is_err());
    }

    #[test]
    fn checksums_see_changed_missing_and_swapped_records() {
        let records: Vec<Words> = vec![[1, 2, 3], [4, 5, 6]];
        let swapped: Vec<Words> = vec![[4, 5, 6], [1, 2, 3]];
        assert_ne!(checksum(&records), checksum(&swapped));
        assert_ne!(checksum(&records), checksum(&records[..1]));
        assert_ne!(checksum(&records), checksum(&[[1, 2, 3], [4, 5, 7]]));
    }

    extern crate std;
    use std::{vec, vec::Vec};
}
