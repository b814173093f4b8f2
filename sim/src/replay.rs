//! Work from traces: Ferry's own, and the rows of the published giant-lock system.
//!
//! A simulated application core p replays the calls of traced core r, where r is the (p mod n)-th of the n
//! cores that made calls; so a trace of two cores can be replayed on any number. Each simulated core reads
//! the file by itself, block by block: memory does not grow with the trace, only with cores.

use std::io::{BufRead, Read, Seek};

use abi::trace::{Call, Header, Origin, Record};
use trace::thesis::{self, Row};
use trace::{Merged, Problem, Reader};

use crate::error::Error;
use crate::work::{Source, Timeline, Work};

/// What has to be known of a trace before it is replayed.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Its header.
    pub header: Header,
    /// The cores that made calls.
    pub callers: Vec<u8>,
    /// Mean of the stage *enter* of trapped calls, in ticks.
    pub enter: u64,
    /// Mean of the stage *exit* of trapped calls, in ticks.
    pub exit: u64,
    /// Damage that was passed over.
    pub problems: Vec<Problem>,
}

impl Profile {
    /// Reads a trace once.
    ///
    /// # Errors
    ///
    /// Where it cannot be read, or has no calls.
    pub fn read<R: Read + Seek>(input: R) -> Result<Profile, Error> {
        let mut reader = Reader::new(input)?;
        let mut calls_of = [0_u64; 64];
        let (mut enter, mut exit, mut trapped) = (0_u128, 0_u128, 0_u128);
        while let Some(entry) = reader.next_entry()? {
            let Record::Call(call) = entry.record else { continue };
            calls_of[usize::from(call.core)] += 1;
            if call.path != abi::trace::Path::Posted {
                enter += u128::from(call.enter.ticks());
                exit += u128::from(call.exit.ticks());
                trapped += 1;
            }
        }
        let mean = |sum: u128| u64::try_from(sum / trapped.max(1)).unwrap_or(u64::MAX);
        let callers: Vec<u8> = (0..64).filter(|&core| calls_of[usize::from(core)] > 0).collect();
        if callers.is_empty() {
            return Err(Error::Empty { core: 0 });
        }
        Ok(Profile {
            header: *reader.header(),
            callers,
            enter: mean(enter),
            exit: mean(exit),
            problems: reader.problems().to_vec(),
        })
    }
}

/// A trace that is replayed.
pub struct Replay<R> {
    streams: Vec<ReplayStream<R>>,
}

struct ReplayStream<R> {
    trace: Merged<R>,
    core: u8,
    calls: Timeline,
    rows: RowTimeline,
    /// What the call at hand waited for locks, by the records ahead of it.
    lock_wait: u64,
    is_imported: bool,
}

impl<R: Read + Seek> Replay<R> {
    /// Replays a trace on so many application cores. `open` gives a new view of the file each time.
    ///
    /// # Errors
    ///
    /// Where the trace cannot be opened.
    pub fn new(
        profile: &Profile,
        streams: usize,
        mut open: impl FnMut() -> std::io::Result<R>,
    ) -> Result<Replay<R>, Error> {
        let stream = |number: usize| {
            Ok(ReplayStream {
                trace: Merged::open(&mut open)?,
                core: profile.callers[number % profile.callers.len()],
                calls: Timeline::default(),
                rows: RowTimeline::default(),
                lock_wait: 0,
                is_imported: profile.header.origin == Origin::Imported,
            })
        };
        let streams = (0..streams).map(stream).collect::<Result<_, Error>>()?;
        Ok(Replay { streams })
    }
}

impl<R: Read + Seek> Source for Replay<R> {
    fn next(&mut self, stream: usize, _now: u64, work: &mut Work) -> Result<bool, Error> {
        let stream = &mut self.streams[stream];
        while let Some(entry) = stream.trace.next_entry()? {
            if entry.record.core() != stream.core {
                continue;
            }
            match entry.record {
                Record::Lock(lock) if stream.is_imported => {
                    *work = stream.rows.take(&Row::of_lock(&lock));
                    return Ok(true);
                }
                Record::Lock(lock) => stream.lock_wait += u64::from(lock.waited),
                Record::Call(call) if !stream.is_imported => {
                    let waited = std::mem::take(&mut stream.lock_wait);
                    *work = without_lock_wait(stream.calls.take(&call), &call, waited);
                    return Ok(true);
                }
                _ => {}
            }
        }
        Ok(false)
    }
}

/// Waiting for a lock is part of the handler's time in a trace; the simulator decides it anew.
fn without_lock_wait(work: Work, call: &Call, waited: u64) -> Work {
    Work { poll: call.poll.ticks().saturating_sub(waited), ..work }
}

/// The time line of one core, built from rows: idle from one lock exit to the next lock entry.
#[derive(Clone, Copy, Debug, Default)]
struct RowTimeline {
    exit: Option<u64>,
}

impl RowTimeline {
    fn take(&mut self, row: &Row) -> Work {
        let idle = row.entry.saturating_sub(self.exit.unwrap_or(0));
        self.exit = Some(row.exit);
        Work {
            idle,
            number: row.call,
            application: row.application,
            poll: row.exit - row.acquired,
            ..Work::default()
        }
    }
}

/// The log of the published system, replayed as it was there: row r belongs to simulated processor p if
/// p mod actual cores is r's core.
pub struct Rows<R> {
    streams: Vec<(thesis::Rows<R>, RowTimeline)>,
    actual_cores: usize,
    began: u64,
}

impl<R: BufRead> Rows<R> {
    /// Replays a log on so many processors. `open` gives a new view of the file each time.
    ///
    /// # Errors
    ///
    /// Where the log cannot be opened, or its first row cannot be read.
    pub fn new(
        streams: usize,
        actual_cores: usize,
        mut open: impl FnMut() -> std::io::Result<R>,
    ) -> Result<Rows<R>, Error> {
        let mut view = || open().map_err(|source| trace::Error::Io { at: 0, source });
        let first = thesis::Rows::new(view()?).next_row()?;
        // A processor is idle from the log's first row to its own.
        let began = first.ok_or(Error::Empty { core: 0 })?.entry;
        let stream = |_| {
            let rows = thesis::Rows::new(view()?);
            Ok((rows, RowTimeline { exit: Some(began) }))
        };
        let streams = (0..streams).map(stream).collect::<Result<_, Error>>()?;
        Ok(Rows { streams, actual_cores, began })
    }

    /// When the log begins, in ticks.
    pub fn began(&self) -> u64 {
        self.began
    }
}

impl<R: BufRead> Source for Rows<R> {
    fn next(&mut self, stream: usize, _now: u64, work: &mut Work) -> Result<bool, Error> {
        let core = stream % self.actual_cores;
        let (rows, timeline) = &mut self.streams[stream];
        while let Some(row) = rows.next_row()? {
            if usize::from(row.core) == core {
                *work = timeline.take(&row);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use abi::trace::{Duration, LockScheme};

    use super::*;
    use crate::costs::Costs;
    use crate::engine::run;
    use crate::machine::{Locking, symmetric};

    fn header(cores: u8) -> Header {
        Header {
            cores,
            overwrites: false,
            origin: Origin::Recorded,
            ticks_per_second: 1_000_000_000,
            began_unix_ns: 0,
            scheme: LockScheme::Fine,
        }
    }

    /// Two cores with calls of different lengths.
    fn recorded() -> (Vec<u8>, u64) {
        let mut writer = trace::Writer::new(Vec::new(), &header(2)).unwrap();
        let mut ends = [0_u64; 2];
        for at in 0..2_000_u64 {
            let core = (at % 2) as u8;
            let call = Call {
                core,
                server_core: core,
                number: 39,
                start: ends[usize::from(core)] + 100 + at % 7,
                enter: Duration(20),
                poll: Duration(50 + 30 * u16::from(core)),
                exit: Duration(10),
                ..Call::default()
            };
            ends[usize::from(core)] = call.end();
            writer.push(core, &Record::Call(call)).unwrap();
        }
        (writer.finish().unwrap(), ends[0].max(ends[1]))
    }

    #[test]
    fn replay_on_the_same_cores_takes_the_traced_time() {
        let (bytes, end) = recorded();
        let open = || Ok(Cursor::new(&bytes));
        let profile = Profile::read(Cursor::new(&bytes)).unwrap();
        assert_eq!((profile.callers.clone(), profile.enter, profile.exit), (vec![0, 1], 20, 10));
        let scheme = Locking::Scheme(LockScheme::Fine);
        let machine = symmetric(2, 1_000_000_000, scheme, Costs::default());
        let outcome = run(&machine, Replay::new(&profile, 2, open).unwrap()).unwrap();
        assert_eq!((outcome.ended, outcome.calls()), (end, 2_000));
    }

    #[test]
    fn more_cores_replay_the_traced_ones_in_turn() {
        let (bytes, end) = recorded();
        let open = || Ok(Cursor::new(&bytes));
        let profile = Profile::read(Cursor::new(&bytes)).unwrap();
        let scheme = Locking::Scheme(LockScheme::Fine);
        let machine = symmetric(5, 1_000_000_000, scheme, Costs::default());
        let outcome = run(&machine, Replay::new(&profile, 5, open).unwrap()).unwrap();
        let finished: Vec<u64> = outcome.streams.iter().map(|stream| stream.finished).collect();
        assert_eq!(outcome.ended, end);
        assert!(
            finished[0] == finished[2] && finished[2] == finished[4] && finished[1] == finished[3]
        );
        assert_eq!(outcome.calls(), 5_000);
    }

    #[test]
    fn rows_are_dealt_out_as_published() {
        let text = "0,1,0,0,1000,1010,1100\n1,1,0,0,1050,1200,1300\n0,1,0,0,1500,1500,1600\n";
        let mut rows = Rows::new(3, 2, || Ok(text.as_bytes())).unwrap();
        let mut all = |stream: usize| {
            let mut work = Work::default();
            std::iter::from_fn(|| rows.next(stream, 0, &mut work).unwrap().then_some(work))
                .map(|work| (work.idle, work.poll))
                .collect::<Vec<_>>()
        };
        assert_eq!(all(0), [(0, 90), (400, 100)]);
        assert_eq!(all(1), [(50, 100)]);
        assert_eq!(all(2), [(0, 90), (400, 100)]);
    }

    #[test]
    fn an_empty_trace_is_refused() {
        let bytes = trace::Writer::new(Vec::new(), &header(1)).unwrap().finish().unwrap();
        assert!(matches!(Profile::read(Cursor::new(&bytes)), Err(Error::Empty { .. })));
        assert!(Rows::new(1, 1, || Ok(&b""[..])).is_err());
    }
}
