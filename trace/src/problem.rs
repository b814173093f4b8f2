//! What can be wrong with a trace: errors end the reading, problems do not.

use abi::trace::{HeaderError, RecordError, VERSION};

/// Why a trace cannot be read at all, or not further.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read or written.
    #[error("at byte {at}: {source}")]
    Io {
        /// Offset in the file.
        at: u64,
        /// What the system says.
        source: std::io::Error,
    },
    /// The first bytes are no header of a trace that this tool can read.
    #[error("{}", header_text(*.0))]
    Header(HeaderError),
    /// A line of text is no row.
    #[error("line {line}: {what}")]
    Row {
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong with it, and what it should be.
        what: String,
    },
}

fn header_text(error: HeaderError) -> String {
    match error {
        HeaderError::Foreign => {
            "not a trace of Ferry: it does not begin with \"ferrytrc\"; rows of \
            other systems are read by `ferry trace import`"
                .to_owned()
        }
        HeaderError::Short => {
            "cut off within the header: nothing was recorded yet; record the trace again".to_owned()
        }
        HeaderError::Version(found) => format!(
            "a trace of version {found}, but this tool reads version {VERSION}: use the `ferry` that \
             recorded it, or record it again"
        ),
        HeaderError::Damaged => {
            "the header is damaged (its checksum is wrong): restore the file, or record it again"
                .to_owned()
        }
        HeaderError::Field(at) => format!(
            "byte {at} of the header has a value that it cannot have: record the trace again"
        ),
    }
}

/// Something that is wrong in a trace, but does not keep from reading on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Problem {
    /// The file ends within a block.
    #[error(
        "cut off at byte {at}: {missing} records of the last block are missing; what was before is kept"
    )]
    Cut {
        /// Where the file ends.
        at: u64,
        /// Records that the last block should have had.
        missing: u64,
    },
    /// The file has no end.
    #[error(
        "cut off at byte {at}: the trace was not finished (did the guest die, or the disk fill up?); \
        all its blocks are kept"
    )]
    NoEnd {
        /// Where the file ends.
        at: u64,
    },
    /// A block was damaged.
    #[error("the block at byte {at} is damaged: its {count} records of core {ring} are left out")]
    Damaged {
        /// Where its head is.
        at: u64,
        /// Core whose ring it was.
        ring: u8,
        /// Records that were left out.
        count: u32,
    },
    /// Where a block should begin, none does.
    #[error("no block begins at byte {at}: {skipped} bytes were skipped")]
    Skipped {
        /// Where it should begin.
        at: u64,
        /// Bytes up to the next block, or to the end.
        skipped: u64,
    },
    /// A record whose block is not damaged cannot be decoded.
    #[error(
        "the record at byte {at} is {what}: it is left out; was it recorded by a later version?"
    )]
    Record {
        /// Where it is.
        at: u64,
        /// What it is.
        what: String,
    },
    /// The end counts other records than there are.
    #[error("the end counts {said} records, but {found} were read")]
    Count {
        /// What the end says.
        said: u64,
        /// What was read.
        found: u64,
    },
    /// There is something behind the end.
    #[error("{bytes} bytes follow the end at byte {at}; they are not read")]
    AfterEnd {
        /// Where the end was over.
        at: u64,
        /// How many.
        bytes: u64,
    },
}

impl Problem {
    pub(crate) fn record(at: u64, error: RecordError) -> Problem {
        Problem::Record { at, what: error.to_string() }
    }
}
