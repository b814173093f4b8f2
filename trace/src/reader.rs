//! Reads a trace block by block.
//!
//! Memory: one block, at most 65,536 records of 24 bytes. Damage is noted and passed over: a damaged
//! block is left out as a whole, since its records cannot be trusted; where no block begins, the reader
//! looks for the next one; of a block that was cut off, what is there is kept.

use std::io::{self, Read, Seek, SeekFrom};

use abi::trace::{
    Block, Chunk, HEADER_BYTES, Header, RECORD_BYTES, Record, Words, checksum, words_of,
};

use super::problem::{Error, Problem};

/// Problems that are kept; more are only counted.
const PROBLEM_LIMIT: usize = 100;

/// A record and where it stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Core whose ring it was in.
    pub ring: u8,
    /// Its number among all that the ring ever had.
    pub sequence: u64,
    /// The record.
    pub record: Record,
}

/// A trace that is being read.
pub struct Reader<R> {
    input: R,
    header: Header,
    /// Where the next block begins.
    offset: u64,
    block: Vec<Words>,
    /// Where the records of the block begin.
    block_offset: u64,
    chunk: Chunk,
    /// The next record of the block.
    next: usize,
    only_ring: Option<u8>,
    is_over: bool,
    /// Number of the next record expected of each ring; none before its first block.
    expected: [Option<u64>; 64],
    read: u64,
    skipped: u64,
    lost: u64,
    problems: Vec<Problem>,
    problem_count: u64,
}

impl<R: Read + Seek> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// [`Error::Header`] where the file is no trace of this version, [`Error::Io`].
    pub fn new(mut input: R) -> Result<Reader<R>, Error> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        let io = |source| Error::Io { at: 0, source };
        input.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut bytes).map_err(io)?;
        let (header, length) = Header::decode(&bytes).map_err(Error::Header)?;
        let offset = length as u64;
        input.seek(SeekFrom::Start(offset)).map_err(io)?;
        Ok(Reader {
            input,
            header,
            offset,
            block: Vec::new(),
            block_offset: offset,
            chunk: Chunk { ring: 0, count: 0, sequence: 0, checksum: 0 },
            next: 0,
            only_ring: None,
            is_over: false,
            expected: [None; 64],
            read: 0,
            skipped: 0,
            lost: 0,
            problems: Vec::new(),
            problem_count: 0,
        })
    }

    /// Only the records of one core's ring; blocks of the others are passed over without reading them.
    pub fn only_ring(mut self, ring: u8) -> Reader<R> {
        self.only_ring = Some(ring);
        self
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What was wrong so far, the first of it.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// How much was wrong so far.
    pub fn problem_count(&self) -> u64 {
        self.problem_count
    }

    /// Records that were lost before they reached the file, as far as it was read.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The next record; none at the end.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] where the file cannot be read; what was read before stands.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, Error> {
        loop {
            while let Some(words) = self.block.get(self.next) {
                let at = self.next as u64;
                self.next += 1;
                match Record::decode(words) {
                    Ok(record) => {
                        let sequence = self.chunk.sequence.saturating_add(at);
                        return Ok(Some(Entry { ring: self.chunk.ring, sequence, record }));
                    }
                    Err(error) => {
                        let at = self.block_offset + at * RECORD_BYTES as u64;
                        self.note(Problem::record(at, error));
                    }
                }
            }
            if self.is_over {
                return Ok(None);
            }
            self.next_block()?;
        }
    }

    fn note(&mut self, problem: Problem) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEM_LIMIT {
            self.problems.push(problem);
        }
    }

    fn io<T>(&self, result: io::Result<T>) -> Result<T, Error> {
        result.map_err(|source| Error::Io { at: self.offset, source })
    }

    /// Three words at the offset; none where the file ends before.
    fn words(&mut self) -> Result<Option<Words>, Error> {
        let mut bytes = [0; RECORD_BYTES];
        let mut filled = 0;
        while filled < bytes.len() {
            match self.input.read(&mut bytes[filled..]) {
                Ok(0) => {
                    self.offset += filled as u64;
                    return Ok(None);
                }
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.io(Err(error)),
            }
        }
        self.offset += filled as u64;
        Ok(Some(words_of(&bytes)))
    }

    /// Goes on to the next block that is wanted and whole, or to the end.
    fn next_block(&mut self) -> Result<(), Error> {
        self.block.clear();
        self.next = 0;
        let head = self.offset;
        let Some(words) = self.words()? else {
            self.is_over = true;
            self.note(Problem::NoEnd { at: self.offset });
            return Ok(());
        };
        match Block::decode(&words) {
            Some(Block::Chunk(chunk)) => self.take_chunk(head, chunk),
            Some(Block::End(end)) => {
                self.is_over = true;
                self.lost = self.lost.max(end.lost);
                let found = self.read + self.skipped;
                if end.records != found {
                    self.note(Problem::Count { said: end.records, found });
                }
                let stop = self.input.seek(SeekFrom::End(0));
                let stop = self.io(stop)?;
                if stop > self.offset {
                    let (at, bytes) = (self.offset, stop - self.offset);
                    self.note(Problem::AfterEnd { at, bytes });
                }
                Ok(())
            }
            None => self.find_block(head),
        }
    }

    fn take_chunk(&mut self, head: u64, chunk: Chunk) -> Result<(), Error> {
        let bytes = u64::from(chunk.count) * RECORD_BYTES as u64;
        if self.only_ring.is_some_and(|ring| ring != chunk.ring) {
            // A file that ends before is noticed by the next read.
            self.offset += bytes;
            self.skipped += u64::from(chunk.count);
            let moved = self.input.seek(SeekFrom::Start(self.offset));
            return self.io(moved).map(drop);
        }
        self.chunk = chunk;
        self.block_offset = self.offset;
        let mut buffer = Vec::new();
        let read = self.input.by_ref().take(bytes).read_to_end(&mut buffer);
        let read = self.io(read)? as u64;
        self.offset += read;
        let (whole, _) = buffer.as_chunks::<RECORD_BYTES>();
        self.block.extend(whole.iter().map(words_of));
        if read < bytes {
            self.is_over = true;
            let missing = u64::from(chunk.count) - self.block.len() as u64;
            self.note(Problem::Cut { at: self.offset, missing });
        } else if checksum(&self.block) != chunk.checksum {
            self.block.clear();
            self.note(Problem::Damaged { at: head, ring: chunk.ring, count: chunk.count });
            // The head may be what is damaged: the next block is looked for within, too.
            self.offset = self.block_offset;
            let moved = self.input.seek(SeekFrom::Start(self.offset));
            self.io(moved)?;
            return self.skip_to_block(None);
        }
        self.count_lost(chunk);
        self.read += self.block.len() as u64;
        Ok(())
    }

    fn count_lost(&mut self, chunk: Chunk) {
        let expected = &mut self.expected[usize::from(chunk.ring)];
        let before = expected.unwrap_or(0);
        self.lost = self.lost.saturating_add(chunk.sequence.saturating_sub(before));
        *expected = Some(chunk.sequence.saturating_add(u64::from(chunk.count)));
    }

    /// No block begins at `head`: looks for the next one.
    fn find_block(&mut self, head: u64) -> Result<(), Error> {
        self.offset = head;
        let moved = self.input.seek(SeekFrom::Start(head));
        self.io(moved)?;
        self.skip_to_block(Some(head))
    }

    /// Passes over records that are no head. Heads lie whole records apart, since nothing else is in a
    /// file. What is passed over is noted if it began where a block should.
    fn skip_to_block(&mut self, should_begin: Option<u64>) -> Result<(), Error> {
        loop {
            let at = self.offset;
            let words = self.words()?;
            let is_head = words.is_some_and(|words| Block::decode(&words).is_some());
            if words.is_some() && !is_head {
                continue;
            }
            if is_head {
                self.offset = at;
                let moved = self.input.seek(SeekFrom::Start(at));
                self.io(moved)?;
            } else {
                self.is_over = true;
            }
            if let Some(begin) = should_begin {
                self.note(Problem::Skipped { at: begin, skipped: self.offset - begin });
            }
            if self.is_over {
                self.note(Problem::NoEnd { at: self.offset });
            }
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::testing;

    fn read(bytes: &[u8]) -> (Vec<Entry>, Vec<Problem>) {
        let mut reader = Reader::new(Cursor::new(bytes)).unwrap();
        let mut entries = Vec::new();
        while let Some(entry) = reader.next_entry().unwrap() {
            entries.push(entry);
        }
        (entries, reader.problems().to_vec())
    }

    #[test]
    fn what_was_written_is_read() {
        let records = testing::calls(2, 10_000);
        let (entries, problems) = read(&testing::file(2, &records));
        assert_eq!(problems, []);
        assert_eq!(entries.len(), records.len());
        for ring in 0..2 {
            let of_ring = |entry: &&Entry| entry.ring == ring;
            let found: Vec<Record> =
                entries.iter().filter(of_ring).map(|entry| entry.record).collect();
            let wanted: Vec<Record> =
                records.iter().filter(|record| record.core() == ring).copied().collect();
            assert_eq!(found, wanted);
            let numbers = entries.iter().filter(of_ring).map(|entry| entry.sequence);
            assert!(numbers.eq(0..wanted.len() as u64));
        }
    }

    #[test]
    fn one_ring_alone_skips_the_others() {
        let bytes = testing::file(2, &testing::calls(2, 10_000));
        let mut reader = Reader::new(Cursor::new(&bytes)).unwrap().only_ring(1);
        let mut count = 0;
        while let Some(entry) = reader.next_entry().unwrap() {
            assert_eq!(entry.ring, 1);
            count += 1;
        }
        assert_eq!((count, reader.problems()), (5_000, &[] as &[Problem]));
    }

    #[test]
    fn a_file_that_was_cut_off_anywhere_keeps_what_is_before() {
        let bytes = testing::file(1, &testing::calls(1, 100));
        let records_before = |length: usize| (length.saturating_sub(64 + 24) / 24).min(100);
        for length in 64..bytes.len() {
            let (entries, problems) = read(&bytes[..length]);
            assert_eq!(entries.len(), records_before(length), "cut at {length}");
            assert_eq!(problems.len(), 1, "cut at {length}: {problems:?}");
        }
    }

    #[test]
    fn a_damaged_block_is_left_out_and_the_others_are_kept() {
        let mut bytes = testing::file(1, &testing::calls(1, 10_000));
        bytes[64 + 24 + 500] ^= 4;
        let (entries, problems) = read(&bytes);
        assert_eq!(entries.len(), 10_000 - 4_096);
        assert_eq!(problems[0], Problem::Damaged { at: 64, ring: 0, count: 4_096 });
    }

    #[test]
    fn after_a_damaged_head_the_next_block_is_found() {
        let mut bytes = testing::file(1, &testing::calls(1, 10_000));
        bytes[64 + 5] ^= 0xff;
        let (entries, problems) = read(&bytes);
        assert_eq!(entries.len(), 10_000 - 4_096);
        assert_eq!(problems[0], Problem::Skipped { at: 64, skipped: 4_097 * 24 });
    }

    #[test]
    fn bytes_behind_the_end_are_told() {
        let mut bytes = testing::file(1, &testing::calls(1, 3));
        bytes.extend([1; 7]);
        assert!(matches!(read(&bytes).1[..], [Problem::AfterEnd { bytes: 7, .. }]));
    }

    #[test]
    fn damage_of_any_kind_ends_in_problems_and_never_in_a_panic() {
        let original = testing::file(2, &testing::calls(2, 300));
        let mut random = testing::Random::new(1);
        let mut noticed = 0;
        for _ in 0..3_000 {
            let mut bytes = original.clone();
            for _ in 0..1 + random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                match random.below(5) {
                    0 => bytes.truncate(at),
                    1 => bytes[at] ^= 1 << random.below(8),
                    2 => bytes[at] = random.below(256) as u8,
                    3 => drop(bytes.splice(at..at, [random.below(256) as u8; 3])),
                    _ => drop(bytes.drain(at..(at + 24).min(bytes.len()))),
                }
                if bytes.is_empty() {
                    break;
                }
            }
            match Reader::new(Cursor::new(&bytes)) {
                Err(_) => noticed += 1,
                Ok(mut reader) => {
                    let mut count = 0_u64;
                    while reader.next_entry().unwrap().is_some() {
                        count += 1;
                    }
                    assert!(count <= bytes.len() as u64 / 24);
                    noticed += u64::from(reader.problem_count() > 0);
                }
            }
        }
        // Some mutations cancel out, and two bytes of a header are free.
        assert!(noticed > 2_900, "{noticed}");
    }
}
