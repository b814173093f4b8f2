//! A row of text per record, for spreadsheets and scripts. Moments and durations are ticks of the trace's
//! clock, as recorded.

use std::io::{Read, Seek, Write};

use abi::trace::Record;

use crate::Names;
use crate::problem::Error;
use crate::reader::Reader;

/// The first line.
pub const COLUMNS: &str = "kind,ring,sequence,core,other_core,application,name,path_or_scheme,\
    contention,start,enter,fly_in,poll,wait,fly_out,exit,detail,value";

/// Writes the records in the order of the file. How many.
///
/// # Errors
///
/// [`Error::Io`].
pub fn export<R: Read + Seek>(
    trace: &mut Reader<R>,
    names: Names,
    mut output: impl Write,
) -> Result<u64, Error> {
    let io = |source| Error::Io { at: 0, source };
    writeln!(output, "{COLUMNS}").map_err(io)?;
    let mut count = 0;
    while let Some(entry) = trace.next_entry()? {
        let head = format!("{},{}", entry.ring, entry.sequence);
        let written = match entry.record {
            Record::Call(call) => writeln!(
                output,
                "call,{head},{},{},{},{},{},{},{},{},{},{},{},{},{},,",
                call.core,
                call.server_core,
                call.application,
                names(call.number),
                call.path.name(),
                call.contention,
                call.start,
                call.enter.ticks(),
                call.fly_in.ticks(),
                call.poll.ticks(),
                call.wait.ticks(),
                call.fly_out.ticks(),
                call.exit.ticks(),
            ),
            // A lock is waited for, held and released: wait, poll and exit.
            Record::Lock(lock) => writeln!(
                output,
                "lock,{head},{},,{},{},{},{},{},,,{},{},,{},{},",
                lock.core,
                lock.application,
                names(lock.number),
                lock.scheme.name(),
                lock.contention,
                lock.entry,
                lock.held,
                lock.waited,
                lock.release.ticks(),
                lock.lock,
            ),
            Record::Event(event) => writeln!(
                output,
                "event,{head},{},{},{},{},,,{},,,{},,,,{},{}",
                event.core,
                event.other_core,
                event.application,
                event.kind.name(),
                event.time,
                event.duration.ticks(),
                event.detail,
                event.value,
            ),
        };
        written.map_err(io)?;
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use abi::trace::{Duration, Event, EventKind, Lock};

    use super::*;
    use crate::testing;

    #[test]
    fn every_row_has_all_columns() {
        let mut records = testing::calls(1, 3);
        records.push(Record::Lock(Lock { entry: 9_000_000, ..Lock::default() }));
        records.push(Record::Event(Event {
            core: 0,
            kind: EventKind::Park,
            application: 0,
            other_core: 0,
            detail: 0,
            time: 10_000_000,
            duration: Duration(9),
            value: 1,
        }));
        let bytes = testing::file(1, &records);
        let mut reader = Reader::new(Cursor::new(&bytes)).unwrap();
        let mut text = Vec::new();
        let names = |number: u16| format!("call {number}");
        assert_eq!(export(&mut reader, &names, &mut text).unwrap(), 5);
        let text = String::from_utf8(text).unwrap();
        let columns = COLUMNS.split(',').count();
        assert_eq!(text.lines().count(), 6);
        for line in text.lines() {
            assert_eq!(line.split(',').count(), columns, "{line}");
        }
        assert!(text.contains("call 2,local"));
    }
}
