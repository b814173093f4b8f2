//! Whether a trace is complete and consistent.
//!
//! - *Complete*: no record was lost or damaged, and the trace was finished.
//! - *Pairs*: a local call was handled on its caller's core and did not travel; a lock was held by one at
//!   a time.
//! - *Order*: the records of a ring end one after the other, and their cores exist. Doorbells are left out:
//!   an answer may ring before the record of its call is written.
//! - *Clocks*: what clock events compared agrees within their uncertainty.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

use abi::trace::{Call, Event, EventKind, Lock, MOST_DETAIL, Path, Record};

use super::merged::Merged;
use super::problem::{Error, Problem};
use super::reader::Entry;

/// Findings that are kept; more are only counted.
const FINDING_LIMIT: usize = 100;

/// Something that a consistent trace does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    /// The file itself is damaged or cut off.
    #[error("{0}")]
    File(Problem),
    /// Records were lost while the trace was recorded.
    #[error("{count} records were lost while recording: use larger rings or fewer kinds of events")]
    Lost {
        /// How many.
        count: u64,
    },
    /// A record names a core that the trace does not have.
    #[error("record {sequence} of core {ring} names core {core}, but the trace has {cores}")]
    Core {
        /// Ring and number of the record.
        ring: u8,
        /// Number of the record in its ring.
        sequence: u64,
        /// The core.
        core: u8,
        /// Cores of the trace.
        cores: u8,
    },
    /// A record ends before the one before it.
    #[error("record {sequence} of core {ring} ends {ticks} ticks before the record ahead of it")]
    Order {
        /// Ring of the record.
        ring: u8,
        /// Number of the record in its ring.
        sequence: u64,
        /// How much earlier.
        ticks: u64,
    },
    /// A call that says local, but travelled.
    #[error(
        "record {sequence} of core {ring} is a local call that travelled or was handled elsewhere"
    )]
    Travelled {
        /// Ring of the record.
        ring: u8,
        /// Number of the record in its ring.
        sequence: u64,
    },
    /// Two had a lock at once, or their clocks differ by more than what they held it.
    #[error(
        "lock {lock} was acquired by core {core} at {acquired}, {ticks} ticks before core {holder} \
         released it: either the lock does not lock, or the clocks of the two cores disagree"
    )]
    Overlap {
        /// Which lock.
        lock: u8,
        /// Who took it.
        core: u8,
        /// Who had it.
        holder: u8,
        /// When it was acquired.
        acquired: u64,
        /// How much too early.
        ticks: u64,
    },
    /// Clocks of two cores disagree.
    #[error(
        "the clock of core {other} is {ticks} ticks off that of core {core} at {time}, which is more \
        than the uncertainty of {uncertainty}"
    )]
    Clocks {
        /// Whose clock was read first.
        core: u8,
        /// Whose clock was compared.
        other: u8,
        /// When.
        time: u64,
        /// By how much they differ.
        ticks: u64,
        /// What the comparison allows for.
        uncertainty: u32,
    },
}

/// What the check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records that were read.
    pub records: u64,
    /// The first findings.
    pub findings: Vec<Finding>,
    /// Number of findings.
    pub count: u64,
    /// Comparisons of clocks that the trace has; without any and without locks, clocks are not checked.
    pub clocks_compared: u64,
    /// Locks that were held, for the same reason.
    pub locks_held: u64,
}

impl Report {
    fn add(&mut self, finding: Finding) {
        self.count += 1;
        if self.findings.len() < FINDING_LIMIT {
            self.findings.push(finding);
        }
    }
}

/// Checks a whole trace.
///
/// # Errors
///
/// [`Error::Io`] where the file cannot be read.
pub fn check<R: Read + Seek>(mut trace: Merged<R>) -> Result<Report, Error> {
    let mut checker = Checker { cores: trace.header().cores, ..Checker::default() };
    while let Some(entry) = trace.next_entry()? {
        checker.take(&entry);
    }
    let mut report = checker.report;
    if trace.lost() > 0 {
        report.add(Finding::Lost { count: trace.lost() });
    }
    trace.problems().into_iter().for_each(|problem| report.add(Finding::File(problem)));
    Ok(report)
}

#[derive(Default)]
struct Checker {
    cores: u8,
    /// By ring: when its last record ended.
    ends: BTreeMap<u8, u64>,
    /// By lock: when it was last released, and by whom.
    released: BTreeMap<u8, (u64, u8)>,
    report: Report,
}

impl Checker {
    fn take(&mut self, entry: &Entry) {
        let Entry { ring, sequence, record } = *entry;
        self.report.records += 1;
        let cores = self.cores;
        let core = match record {
            Record::Call(call) => call.core.max(call.server_core),
            Record::Event(event) => event.core.max(event.other_core),
            Record::Lock(lock) => lock.core,
        };
        if core.max(ring) >= cores {
            self.report.add(Finding::Core { ring, sequence, core: core.max(ring), cores });
        }
        let is_doorbell =
            matches!(record, Record::Event(event) if event.kind == EventKind::Doorbell);
        if !is_doorbell {
            self.take_end(ring, sequence, &record);
        }
        match record {
            Record::Call(call) if call.path == Path::Local && !stayed(&call) => {
                self.report.add(Finding::Travelled { ring, sequence });
            }
            Record::Call(_) => {}
            Record::Lock(lock) => self.take_lock(&lock),
            Record::Event(event) if event.kind == EventKind::Clock => self.take_clock(&event),
            Record::Event(_) => {}
        }
    }

    fn take_end(&mut self, ring: u8, sequence: u64, record: &Record) {
        // The end of either may be off by as much as its own duration was rounded.
        let (end, earliest) = (record.end(), record.end().saturating_sub(rounding(record)));
        let before = self.ends.get(&ring).copied().unwrap_or(0);
        if end.saturating_add(rounding(record)) < before {
            self.report.add(Finding::Order { ring, sequence, ticks: before - end });
        } else {
            self.ends.insert(ring, earliest);
        }
    }

    fn take_lock(&mut self, lock: &Lock) {
        self.report.locks_held += 1;
        let acquired = lock.entry + u64::from(lock.waited);
        let released = acquired + u64::from(lock.held);
        let last = self.released.entry(lock.lock).or_insert((0, lock.core));
        if acquired < last.0 {
            let (ticks, holder) = (last.0 - acquired, last.1);
            let (lock, core) = (lock.lock, lock.core);
            self.report.add(Finding::Overlap { lock, core, holder, acquired, ticks });
        }
        let last = self.released.entry(lock.lock).or_insert((0, lock.core));
        *last = (*last).max((released, lock.core));
    }

    fn take_clock(&mut self, event: &Event) {
        if event.detail == MOST_DETAIL {
            // It took too long to say anything.
            return;
        }
        self.report.clocks_compared += 1;
        let ticks = event.time.abs_diff(event.value);
        if ticks > u64::from(event.detail) {
            self.report.add(Finding::Clocks {
                core: event.core,
                other: event.other_core,
                time: event.time,
                ticks,
                uncertainty: event.detail,
            });
        }
    }
}

fn stayed(call: &Call) -> bool {
    call.server_core == call.core && call.fly_in.ticks() == 0 && call.fly_out.ticks() == 0
}

/// By how much the end of a record may be off because its durations are rounded.
fn rounding(record: &Record) -> u64 {
    2 * ((record.end() - record.start()) / 4096 + 6)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use abi::trace::{Duration, LockScheme};

    use super::*;
    use crate::testing;

    fn check_records(cores: u8, records: &[Record]) -> Report {
        let bytes = testing::file(cores, records);
        check(Merged::open(|| Ok(Cursor::new(&bytes))).unwrap()).unwrap()
    }

    fn event(kind: EventKind) -> Event {
        Event {
            core: 0,
            kind,
            application: 0,
            other_core: 1,
            detail: 10,
            time: 1_000,
            duration: Duration(0),
            value: 1_000,
        }
    }

    #[test]
    fn a_good_trace_has_no_findings() {
        let report = check_records(2, &testing::calls(2, 5_000));
        assert_eq!((report.records, report.findings), (5_000, vec![]));
    }

    #[test]
    fn lost_records_and_missing_ends_are_found() {
        let mut writer = crate::Writer::new(Vec::new(), &testing::header(1)).unwrap();
        writer.lose(0, 3).unwrap();
        writer.push(0, &testing::calls(1, 1)[0]).unwrap();
        let mut bytes = writer.finish().unwrap();
        bytes.truncate(bytes.len() - 24);
        let report = check(Merged::open(|| Ok(Cursor::new(&bytes))).unwrap()).unwrap();
        assert!(report.findings.contains(&Finding::Lost { count: 3 }));
        assert!(matches!(report.findings[1], Finding::File(Problem::NoEnd { .. })));
    }

    #[test]
    fn records_out_of_order_are_found() {
        let mut records = testing::calls(1, 10);
        records.swap(3, 7);
        assert!(
            check_records(1, &records)
                .findings
                .iter()
                .any(|finding| matches!(finding, Finding::Order { ring: 0, .. }))
        );
    }

    #[test]
    fn a_local_call_that_travelled_is_found() {
        let call = Call { server_core: 1, ..Call::default() };
        let report = check_records(2, &[Record::Call(call)]);
        assert_eq!(report.findings, [Finding::Travelled { ring: 0, sequence: 0 }]);
    }

    #[test]
    fn a_core_that_is_not_there_is_found() {
        let call = Call { server_core: 5, path: Path::Remote, ..Call::default() };
        let report = check_records(1, &[Record::Call(call)]);
        assert!(matches!(report.findings[..], [Finding::Core { core: 5, .. }]));
    }

    #[test]
    fn two_holders_at_once_are_found_and_hand_overs_are_not() {
        let lock = |core, entry, waited| {
            let scheme = LockScheme::GiantClh;
            Record::Lock(Lock { core, scheme, entry, waited, held: 100, ..Lock::default() })
        };
        assert_eq!(check_records(2, &[lock(0, 0, 0), lock(1, 50, 50)]).findings, []);
        let report = check_records(2, &[lock(0, 0, 0), lock(1, 50, 49)]);
        assert!(matches!(report.findings[..], [Finding::Overlap { ticks: 1, holder: 0, .. }]));
    }

    #[test]
    fn clocks_that_differ_by_more_than_the_uncertainty_are_found() {
        let good = Record::Event(event(EventKind::Clock));
        let report = check_records(2, &[good]);
        assert_eq!((report.findings, report.clocks_compared), (vec![], 1));
        let bad = Record::Event(Event { value: 1_011, ..event(EventKind::Clock) });
        let report = check_records(2, &[bad]);
        assert!(matches!(report.findings[..], [Finding::Clocks { ticks: 11, .. }]));
        let detail = MOST_DETAIL;
        let slow = Event { value: u64::MAX >> 1, detail, ..event(EventKind::Clock) };
        let report = check_records(2, &[Record::Event(slow)]);
        assert_eq!((report.findings, report.clocks_compared), (vec![], 0));
    }
}
