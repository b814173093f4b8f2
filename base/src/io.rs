//! How bytes move between handlers, files and users without being copied twice, and without a fault
//! while a lock is held.
//!
//! A sink takes what it can take now: when a page of the user is missing it takes less than was given,
//! the caller keeps the rest, releases its locks, lets the page be brought in, and goes on. The same
//! holds for sources.

use alloc::vec::Vec;

use crate::memory::Frame;

/// Bytes that pass through the stack at a time where memory cannot be lent.
const PART: usize = 512;

/// Where bytes go to.
pub trait Sink {
    /// Takes bytes from the beginning of `bytes`; how many. Fewer than given when a page is missing or
    /// nothing remains.
    fn write(&mut self, bytes: &[u8]) -> usize;

    /// How many bytes it still wants.
    fn remaining(&self) -> usize;

    /// Takes up to `length` bytes of a page from `offset` on; how many.
    fn write_from_frame(&mut self, frame: &Frame, offset: usize, length: usize) -> usize {
        let length = length.min(self.remaining());
        let mut bytes = [0; PART];
        let mut done = 0;
        while done < length {
            let part = &mut bytes[..PART.min(length - done)];
            frame.read(offset + done, part);
            let taken = self.write(part);
            done += taken;
            if taken < part.len() {
                break;
            }
        }
        done
    }

    /// Takes all of `bytes` or, when there is no room or a page is missing, none: for records that must
    /// not be torn.
    fn write_record(&mut self, bytes: &[u8]) -> bool {
        // Only a sink that can stop at a missing page has to do more.
        self.remaining() >= bytes.len() && self.write(bytes) == bytes.len()
    }

    /// Takes up to `length` zeros; how many.
    fn write_zeros(&mut self, length: usize) -> usize {
        let length = length.min(self.remaining());
        let mut done = 0;
        while done < length {
            let part = PART.min(length - done);
            let taken = self.write(&[0; PART][..part]);
            done += taken;
            if taken < part {
                break;
            }
        }
        done
    }
}

/// Where bytes come from.
pub trait Source {
    /// Fills `into` from its beginning; how many bytes. Fewer than asked when a page is missing or
    /// nothing remains.
    fn read(&mut self, into: &mut [u8]) -> usize;

    /// How many bytes it still has.
    fn remaining(&self) -> usize;

    /// Fills all of `into` or, when there are too few bytes or a page is missing, takes none.
    fn read_record(&mut self, into: &mut [u8]) -> bool {
        // Only a source that can stop at a missing page has to do more.
        self.remaining() >= into.len() && self.read(into) == into.len()
    }

    /// Fills up to `length` bytes of a page from `offset` on; how many.
    fn read_to_frame(&mut self, frame: &Frame, offset: usize, length: usize) -> usize {
        let length = length.min(self.remaining());
        let mut bytes = [0; PART];
        let mut done = 0;
        while done < length {
            let part = &mut bytes[..PART.min(length - done)];
            let given = self.read(part);
            frame.write(offset + done, &part[..given.min(part.len())]);
            done += given;
            if given < part.len() {
                break;
            }
        }
        done
    }
}

impl Sink for &mut [u8] {
    fn write(&mut self, bytes: &[u8]) -> usize {
        let length = bytes.len().min(self.len());
        let (filled, rest) = core::mem::take(self).split_at_mut(length);
        filled.copy_from_slice(&bytes[..length]);
        *self = rest;
        length
    }

    fn remaining(&self) -> usize {
        self.len()
    }

    fn write_from_frame(&mut self, frame: &Frame, offset: usize, length: usize) -> usize {
        let length = length.min(self.len());
        let (filled, rest) = core::mem::take(self).split_at_mut(length);
        frame.read(offset, filled);
        *self = rest;
        length
    }
}

impl Source for &[u8] {
    fn read(&mut self, into: &mut [u8]) -> usize {
        let length = into.len().min(self.len());
        let (taken, rest) = self.split_at(length);
        into[..length].copy_from_slice(taken);
        *self = rest;
        length
    }

    fn remaining(&self) -> usize {
        self.len()
    }

    fn read_to_frame(&mut self, frame: &Frame, offset: usize, length: usize) -> usize {
        let (taken, rest) = self.split_at(length.min(self.len()));
        frame.write(offset, taken);
        *self = rest;
        taken.len()
    }
}

/// Takes everything, up to a limit: for answers that are composed in the kernel.
impl Sink for Vec<u8> {
    fn write(&mut self, bytes: &[u8]) -> usize {
        if self.try_reserve(bytes.len()).is_err() {
            return 0;
        }
        self.extend_from_slice(bytes);
        bytes.len()
    }

    fn remaining(&self) -> usize {
        (isize::MAX as usize).saturating_sub(self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `budget` bytes, then nothing, like a user buffer whose next page is missing.
    struct Stingy {
        bytes: Vec<u8>,
        budget: usize,
    }

    impl Sink for Stingy {
        fn write(&mut self, bytes: &[u8]) -> usize {
            let taken = bytes.len().min(self.budget);
            self.budget -= taken;
            self.bytes.extend_from_slice(&bytes[..taken]);
            taken
        }

        fn remaining(&self) -> usize {
            4096
        }
    }

    #[test]
    fn slices_are_filled_and_emptied_from_the_front() {
        let mut buffer = [0; 8];
        let mut sink = &mut buffer[..];
        assert_eq!(sink.write(b"abc"), 3);
        assert_eq!(sink.write(b"defghijk"), 5);
        assert_eq!((sink.write(b"x"), sink.remaining()), (0, 0));
        assert_eq!(&buffer, b"abcdefgh");
        let mut source = &buffer[..];
        let mut out = [0; 5];
        assert_eq!((source.read(&mut out), source.remaining()), (5, 3));
        assert_eq!((source.read(&mut out), &out[..3]), (3, &b"fgh"[..]));
    }

    #[test]
    fn a_frame_passes_exactly_what_the_sink_takes() {
        let frame = Frame::zeroed().unwrap();
        let bytes: Vec<u8> = (0..4096).map(|index| (index % 251) as u8).collect();
        assert_eq!(frame.write_from(96, 4000, &mut &bytes[..]), 4000);
        let mut sink = Stingy { bytes: Vec::new(), budget: 700 };
        assert_eq!(frame.read_into(96, 2000, &mut sink), 700);
        assert_eq!(sink.bytes, bytes[..700]);
        let mut all = vec![0; 4000];
        assert_eq!(frame.read_into(96, 4000, &mut &mut all[..]), 4000);
        assert_eq!(all, bytes[..4000]);
    }

    #[test]
    fn zeros_are_written_up_to_what_remains() {
        let mut bytes = [1; 1500];
        let mut sink = &mut bytes[..1200];
        assert_eq!(sink.write_zeros(5000), 1200);
        assert!(bytes[..1200].iter().all(|byte| *byte == 0) && bytes[1200] == 1);
    }
}
