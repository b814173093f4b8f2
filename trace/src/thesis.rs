//! The rows of the published giant-lock system (A. Lyons, UNSW 2011): one line of text per call, so that
//! traces of that system can be simulated and its tools can read ours.
//!
//! A row is seven numbers between commas, tabs or spaces: core, application, call, contention, and the
//! moments of lock entry, lock acquired and lock exit in ticks. A call may be a letter, as the document
//! names its 17 calls: A is 0. Empty lines, lines that begin with `#`, and a first line of column names are
//! passed over.

use std::io::{BufRead, Read, Seek, Write};

use abi::trace::{Call, Duration, Header, Lock, LockScheme, MAX_CALL, MAX_CORE, MAX_STAMP, Record};

use super::merged::Merged;
use super::problem::Error;
use super::writer::Writer;

/// The names of the columns.
pub const COLUMNS: &str = "core,application,call,contention,lock_entry,lock_acquired,lock_exit";

/// One call of the published system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Core of the caller.
    pub core: u8,
    /// Application that called.
    pub application: u16,
    /// Number of the call.
    pub call: u16,
    /// Cores in the kernel.
    pub contention: u8,
    /// When the lock was asked for, in ticks.
    pub entry: u64,
    /// When it was acquired.
    pub acquired: u64,
    /// When it was released.
    pub exit: u64,
}

impl Row {
    /// The row in a line of text; none where the line has no row.
    ///
    /// # Errors
    ///
    /// What is wrong with the line.
    pub fn parse(text: &str, is_first: bool) -> Result<Option<Row>, String> {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            return Ok(None);
        }
        let is_between = |letter: char| letter == ',' || letter.is_whitespace();
        let parts: Vec<&str> = text.split(is_between).filter(|part| !part.is_empty()).collect();
        if is_first && parts.first().is_some_and(|part| part.parse::<u64>().is_err()) {
            return Ok(None);
        }
        let [core, application, call, contention, entry, acquired, exit] = parts[..] else {
            return Err(format!("{} values, but a row has 7: {COLUMNS}", parts.len()));
        };
        let row = Row {
            core: number("core", core, u64::from(MAX_CORE))? as u8,
            application: number("application", application, 0x7fff)? as u16,
            call: match call.as_bytes() {
                [letter @ b'A'..=b'Q'] => u16::from(letter - b'A'),
                _ => number("call", call, u64::from(MAX_CALL))? as u16,
            },
            contention: number("contention", contention, 255)? as u8,
            entry: number("lock_entry", entry, MAX_STAMP)?,
            acquired: number("lock_acquired", acquired, MAX_STAMP)?,
            exit: number("lock_exit", exit, MAX_STAMP)?,
        };
        if row.entry > row.acquired || row.acquired > row.exit {
            return Err(format!(
                "the lock was asked for at {entry}, acquired at {acquired} and released at {exit}: each \
                 has to be no earlier than the one before"
            ));
        }
        Ok(Some(row))
    }

    /// The call and its lock as records of Ferry. Waiting for the lock is part of *enter*.
    pub fn records(&self) -> [Record; 2] {
        let short = |ticks: u64| u32::try_from(ticks).unwrap_or(u32::MAX);
        let (waited, held) = (self.acquired - self.entry, self.exit - self.acquired);
        let lock = Lock {
            core: self.core,
            lock: 0,
            scheme: LockScheme::GiantTicket,
            number: self.call,
            application: self.application,
            contention: self.contention,
            entry: self.entry,
            waited: short(waited),
            held: short(held),
            release: Duration(0),
        };
        let call = Call {
            core: self.core,
            server_core: self.core,
            application: self.application,
            number: self.call,
            contention: self.contention,
            start: self.entry,
            enter: Duration::from_ticks(waited),
            poll: Duration::from_ticks(held),
            ..Call::default()
        };
        [Record::Lock(lock), Record::Call(call)]
    }

    /// The row of a lock.
    pub fn of_lock(lock: &Lock) -> Row {
        let acquired = lock.entry + u64::from(lock.waited);
        Row {
            core: lock.core,
            application: lock.application,
            call: lock.number,
            contention: lock.contention,
            entry: lock.entry,
            acquired,
            exit: acquired + u64::from(lock.held),
        }
    }

    /// The row of a call that took no giant lock: as if it had been acquired when the handler began.
    pub fn of_call(call: &Call) -> Row {
        let acquired = call.start + call.enter.ticks() + call.fly_in.ticks();
        Row {
            core: call.core,
            application: call.application,
            call: call.number,
            contention: call.contention,
            entry: call.start,
            acquired,
            exit: acquired + call.poll.ticks(),
        }
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Row { core, application, call, contention, entry, acquired, exit } = self;
        write!(out, "{core},{application},{call},{contention},{entry},{acquired},{exit}")
    }
}

fn number(name: &str, text: &str, most: u64) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(value) if value <= most => Ok(value),
        Ok(value) => Err(format!("{name} is {value}, but at most {most} is possible")),
        Err(_) => Err(format!("{name} is {text:?}, but has to be a number")),
    }
}

/// Rows of text, one after the other.
pub struct Rows<R> {
    input: R,
    line: String,
    number: u64,
}

impl<R: BufRead> Rows<R> {
    /// The rows of a text.
    pub fn new(input: R) -> Rows<R> {
        Rows { input, line: String::new(), number: 0 }
    }

    /// The next row; none at the end.
    ///
    /// # Errors
    ///
    /// [`Error::Row`] with the line's number, [`Error::Io`].
    pub fn next_row(&mut self) -> Result<Option<Row>, Error> {
        loop {
            self.line.clear();
            // A line has seven numbers; what is much longer is no text.
            let read = self.input.by_ref().take(1024).read_line(&mut self.line);
            let row = |what| Error::Row { line: self.number + 1, what };
            match read {
                Ok(0) => return Ok(None),
                Ok(1024) => return Err(row("too long for a row: is this a text?".to_owned())),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    return Err(row("not a text".to_owned()));
                }
                Err(source) => return Err(Error::Io { at: 0, source }),
            }
            let parsed = Row::parse(&self.line, self.number == 0).map_err(row)?;
            self.number += 1;
            if parsed.is_some() {
                return Ok(parsed);
            }
        }
    }
}

/// How an import ended.
#[derive(Debug)]
pub struct Imported {
    /// Rows that were read and written.
    pub rows: u64,
    /// What ended the import early; what was read before is kept.
    pub error: Option<Error>,
}

/// Makes a trace of rows. A row that cannot be read ends it; the trace of the rows before is whole.
///
/// # Errors
///
/// [`Error::Io`] where the trace cannot be written.
pub fn import<W: Write>(
    input: impl BufRead,
    output: W,
    header: &Header,
) -> Result<Imported, Error> {
    let mut rows = Rows::new(input);
    let mut writer = Writer::new(output, header)?;
    let mut imported = Imported { rows: 0, error: None };
    loop {
        match rows.next_row() {
            Ok(Some(row)) if row.core >= header.cores => {
                let what =
                    format!("core {}, but the trace was said to have {}", row.core, header.cores);
                imported.error = Some(Error::Row { line: rows.number, what });
                break;
            }
            Ok(Some(row)) => {
                for record in row.records() {
                    writer.push(row.core, &record)?;
                }
                imported.rows += 1;
            }
            Ok(None) => break,
            Err(error) => {
                imported.error = Some(error);
                break;
            }
        }
    }
    writer.finish()?;
    Ok(imported)
}

/// Writes the rows of a trace: of its giant lock where it has one, else of its calls. How many.
///
/// # Errors
///
/// [`Error::Io`].
pub fn export<R: Read + Seek>(trace: &mut Merged<R>, mut output: impl Write) -> Result<u64, Error> {
    let is_giant = !matches!(trace.header().scheme, LockScheme::Fine | LockScheme::Coarse);
    let io = |source| Error::Io { at: 0, source };
    writeln!(output, "{COLUMNS}").map_err(io)?;
    let mut rows = 0;
    while let Some(entry) = trace.next_entry()? {
        let row = match entry.record {
            Record::Lock(lock) if is_giant => Row::of_lock(&lock),
            Record::Call(call) if !is_giant => Row::of_call(&call),
            _ => continue,
        };
        writeln!(output, "{row}").map_err(io)?;
        rows += 1;
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use abi::trace::Origin;

    use super::*;
    use crate::testing;

    fn header() -> Header {
        let (origin, scheme) = (Origin::Imported, LockScheme::GiantTicket);
        Header { origin, scheme, ticks_per_second: 399_000_000, ..testing::header(2) }
    }

    #[test]
    fn rows_survive_the_way_through_a_trace() {
        let text = "0,1,16,2,100,450,10000\n1,2,0,0,9000,10000,4294000000\n";
        let mut bytes = Vec::new();
        let imported = import(text.as_bytes(), &mut bytes, &header()).unwrap();
        assert_eq!((imported.rows, imported.error.is_none()), (2, true));
        let mut merged = Merged::open(|| Ok(Cursor::new(&bytes))).unwrap();
        let mut exported = Vec::new();
        assert_eq!(export(&mut merged, &mut exported).unwrap(), 2);
        assert_eq!(String::from_utf8(exported).unwrap(), format!("{COLUMNS}\n{text}"));
    }

    #[test]
    fn letters_spaces_comments_and_a_head_are_read() {
        let text = format!("{COLUMNS}\n# a comment\n\n  1 2\tQ 0 5 6 7 \n");
        let mut rows = Rows::new(text.as_bytes());
        let row = rows.next_row().unwrap().unwrap();
        assert_eq!((row.core, row.application, row.call, row.exit), (1, 2, 16, 7));
        assert_eq!(rows.next_row().unwrap(), None);
    }

    #[test]
    fn what_is_no_row_is_told_with_its_line_and_the_rows_before_are_kept() {
        for (line, what) in [
            ("0,0,0,0,1,2", "6 values"),
            ("64,0,0,0,1,2,3", "core is 64"),
            ("0,0,R,0,1,2,3", "call is \"R\""),
            ("0,0,0,0,3,2,4", "no earlier"),
            ("5,0,0,0,1,2,3", "said to have 2"),
            ("0,0,0,0,1,2,-3", "has to be a number"),
        ] {
            let text = format!("0,0,0,0,1,2,3\n{line}\n0,0,0,0,4,5,6\n");
            let mut bytes = Vec::new();
            let imported = import(text.as_bytes(), &mut bytes, &header()).unwrap();
            assert_eq!(imported.rows, 1, "{line}");
            let message = imported.error.unwrap().to_string();
            assert!(message.starts_with("line 2: ") && message.contains(what), "{message}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_end_in_an_error_and_never_in_a_panic() {
        let mut random = testing::Random::new(3);
        for _ in 0..2_000 {
            let length = random.below(200);
            let mut text = b"0,0,0,0,1,2,3\n".to_vec();
            text.extend((0..length).map(|_| match random.below(3) {
                0 => b'0' + random.below(10) as u8,
                1 => b", \n\tA#"[random.below(6) as usize],
                _ => random.below(256) as u8,
            }));
            let mut bytes = Vec::new();
            let imported = import(&text[..], &mut bytes, &header()).unwrap();
            assert!(imported.rows >= 1);
        }
        let long = vec![b'1'; 5_000];
        assert!(import(&long[..], Vec::new(), &header()).unwrap().error.is_some());
    }
}
