//! Writes a trace.

use std::io::Write;

use abi::trace::{Block, Chunk, End, Header, Record, Words, bytes_of, checksum};

use super::problem::Error;

/// Records of a block that is written.
const BLOCK_RECORDS: usize = 4096;

/// A trace that is being written. Holds at most one block per ring.
pub struct Writer<W> {
    output: W,
    rings: Vec<Ring>,
    written: u64,
    lost: u64,
    offset: u64,
}

#[derive(Default)]
struct Ring {
    records: Vec<Words>,
    sequence: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn new(output: W, header: &Header) -> Result<Writer<W>, Error> {
        let mut rings = Vec::new();
        rings.resize_with(usize::from(header.cores), Ring::default);
        let mut writer = Writer { output, rings, written: 0, lost: 0, offset: 0 };
        writer.write(&header.encode())?;
        Ok(writer)
    }

    /// Adds a record to a core's ring. Of one ring, they come in the order of their ends.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; a ring that the header does not have is one too.
    pub fn push(&mut self, ring: u8, record: &Record) -> Result<(), Error> {
        let Some(records) = self.rings.get_mut(usize::from(ring)) else {
            let text = format!("core {ring} of a trace of {} cores", self.rings.len());
            let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, text);
            return Err(Error::Io { at: self.offset, source });
        };
        records.records.push(record.encode());
        if records.records.len() == BLOCK_RECORDS { self.flush(ring) } else { Ok(()) }
    }

    /// Records of a ring were lost here.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn lose(&mut self, ring: u8, count: u64) -> Result<(), Error> {
        self.flush(ring)?;
        if let Some(ring) = self.rings.get_mut(usize::from(ring)) {
            ring.sequence += count;
            self.lost += count;
        }
        Ok(())
    }

    /// Writes what is left and the end; the output.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn finish(mut self) -> Result<W, Error> {
        for ring in 0..self.rings.len() as u8 {
            self.flush(ring)?;
        }
        let end = Block::End(End { records: self.written, lost: self.lost });
        self.write(&bytes_of(&end.encode()))?;
        let flushed = self.output.flush();
        flushed.map_err(|source| Error::Io { at: self.offset, source })?;
        Ok(self.output)
    }

    fn flush(&mut self, number: u8) -> Result<(), Error> {
        let Some(ring) = self.rings.get_mut(usize::from(number)) else { return Ok(()) };
        let records = std::mem::take(&mut ring.records);
        if records.is_empty() {
            return Ok(());
        }
        let chunk = Chunk {
            ring: number,
            // No block has more than `BLOCK_RECORDS`.
            count: records.len() as u32,
            sequence: ring.sequence,
            checksum: checksum(&records),
        };
        ring.sequence += records.len() as u64;
        self.written += records.len() as u64;
        let mut bytes = Vec::with_capacity((records.len() + 1) * 24);
        bytes.extend(bytes_of(&Block::Chunk(chunk).encode()));
        records.iter().for_each(|words| bytes.extend(bytes_of(words)));
        self.write(&bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.output.write_all(bytes);
        written.map_err(|source| Error::Io { at: self.offset, source })?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::Reader;
    use crate::testing;

    #[test]
    fn lost_records_are_counted() {
        let mut writer = Writer::new(Vec::new(), &testing::header(1)).unwrap();
        let records = testing::calls(1, 2);
        writer.push(0, &records[0]).unwrap();
        writer.lose(0, 41).unwrap();
        writer.push(0, &records[1]).unwrap();
        let bytes = writer.finish().unwrap();
        let mut reader = Reader::new(Cursor::new(bytes)).unwrap();
        reader.next_entry().unwrap();
        assert_eq!(reader.next_entry().unwrap().unwrap().sequence, 42);
        assert_eq!(reader.next_entry().unwrap(), None);
        assert_eq!((reader.lost(), reader.problems().len()), (41, 0));
    }

    #[test]
    fn a_full_disk_is_an_error_that_says_where() {
        let mut space = [0; 100];
        let mut writer = Writer::new(&mut space[..], &testing::header(1)).unwrap();
        testing::calls(1, 50).iter().for_each(|record| writer.push(0, record).unwrap());
        assert!(matches!(writer.finish(), Err(Error::Io { at: 64, .. })));
    }

    #[test]
    fn a_core_that_the_header_does_not_have_is_refused() {
        let mut writer = Writer::new(Vec::new(), &testing::header(1)).unwrap();
        assert!(writer.push(1, &testing::calls(1, 1)[0]).is_err());
    }
}
