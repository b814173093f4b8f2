//! All rings of a trace in the order of time.
//!
//! Each ring is read by a reader of its own that passes over the blocks of the others, so the memory is
//! one block per core, however long the trace is and however its blocks are mixed.

use std::io::{Read, Seek};

use abi::trace::Header;

use super::problem::{Error, Problem};
use super::reader::{Entry, Reader};

/// A trace that is being read in the order of the records' ends.
pub struct Merged<R> {
    readers: Vec<Reader<R>>,
    heads: Vec<Option<Entry>>,
}

impl<R: Read + Seek> Merged<R> {
    /// Begins to read; `open` gives a new view of the same file, from its beginning, for each core.
    ///
    /// # Errors
    ///
    /// As [`Reader::new`]; and what `open` answers.
    pub fn open(mut open: impl FnMut() -> std::io::Result<R>) -> Result<Merged<R>, Error> {
        let mut view = || open().map_err(|source| Error::Io { at: 0, source });
        let first = Reader::new(view()?)?.only_ring(0);
        let mut readers = vec![first];
        for ring in 1..readers[0].header().cores {
            readers.push(Reader::new(view()?)?.only_ring(ring));
        }
        let heads = readers.iter_mut().map(Reader::next_entry).collect::<Result<_, _>>()?;
        Ok(Merged { readers, heads })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        self.readers[0].header()
    }

    /// The record that ended first among those not read yet, the lowest ring among equals.
    ///
    /// # Errors
    ///
    /// As [`Reader::next_entry`].
    pub fn next_entry(&mut self) -> Result<Option<Entry>, Error> {
        let end = |head: &Option<Entry>| head.map_or(u64::MAX, |entry| entry.record.end());
        let first = (0..self.heads.len()).min_by_key(|&ring| end(&self.heads[ring]));
        match first {
            Some(ring) => self.next_of(ring),
            None => Ok(None),
        }
    }

    /// The next record of one ring, for who reads them side by side; none where there is no such ring.
    ///
    /// # Errors
    ///
    /// As [`Reader::next_entry`].
    pub fn next_of(&mut self, ring: usize) -> Result<Option<Entry>, Error> {
        let Some(reader) = self.readers.get_mut(ring) else { return Ok(None) };
        let next = reader.next_entry()?;
        Ok(std::mem::replace(&mut self.heads[ring], next))
    }

    /// What was wrong so far, in no order of time. Damage that several readers pass is told once.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems: Vec<Problem> =
            self.readers.iter().flat_map(|reader| reader.problems().iter().cloned()).collect();
        problems.sort();
        problems.dedup();
        problems
    }

    /// Records that were lost before they reached the file, as far as it was read.
    pub fn lost(&self) -> u64 {
        // Until its end is read, a reader knows of its own ring alone.
        let of_rings: u64 = self.readers.iter().map(Reader::lost).sum();
        let of_end = self.readers.iter().map(Reader::lost).max().unwrap_or(0);
        if self.heads.iter().all(Option::is_none) { of_end } else { of_rings }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::testing;

    #[test]
    fn rings_come_in_order_of_time() {
        let records = testing::calls(3, 9_000);
        let bytes = testing::file(3, &records);
        let mut merged = Merged::open(|| Ok(Cursor::new(&bytes))).unwrap();
        let mut last = 0;
        let mut count = 0;
        while let Some(entry) = merged.next_entry().unwrap() {
            assert!(entry.record.end() >= last);
            last = entry.record.end();
            count += 1;
        }
        assert_eq!((count, merged.problems().len(), merged.lost()), (9_000, 0, 0));
    }

    #[test]
    fn damage_is_told_once() {
        let mut bytes = testing::file(3, &testing::calls(3, 9_000));
        let length = bytes.len();
        bytes.truncate(length - 24);
        let mut merged = Merged::open(|| Ok(Cursor::new(&bytes))).unwrap();
        while merged.next_entry().unwrap().is_some() {}
        assert_eq!(merged.problems().len(), 1);
    }
}
