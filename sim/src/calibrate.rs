//! Cache contention from two traces of one workload: on one core, and on two.
//!
//! - `data_transfer`: by how much the same calls take longer on two cores, over how often the call before
//!   in the same class was on the other core. Calls are compared number by number.
//! - `memory_share`: by how much the programs' own time between calls grows. On two cores, a share *u* of
//!   the time that only one core can have makes it grow by *u*² (`closed`).
//!
//! Both traces must be local calls of the same program, started once per core; waiting for locks has to be
//! left out, so traces of the fine scheme serve best.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

use abi::trace::Record;
use trace::Merged;

use crate::closed::Model;
use crate::error::Error;
use crate::machine::Machine;
use crate::work::Timeline;

/// What two traces say about the costs of sharing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// What a call takes more when the last one of its class ran on another core, in nanoseconds.
    pub data_transfer_ns: f64,
    /// Share of the programs' time that the path to memory is one core's alone, 0 to 1.
    pub memory_share: f64,
    /// How often, on two cores, the last call of the class was on the other one, 0 to 1.
    pub switched: f64,
}

#[derive(Default)]
struct Observed {
    /// By call: how many, and the sum of the handlers' time in nanoseconds.
    calls: BTreeMap<u16, (u64, f64)>,
    idle_ns: f64,
    count: u64,
    switched: u64,
}

/// Compares a trace of one core with one of two.
///
/// # Errors
///
/// Where a trace cannot be read, or has no calls.
pub fn calibrate<R: Read + Seek>(one: Merged<R>, two: Merged<R>) -> Result<Calibration, Error> {
    let (one, two) = (observe(one)?, observe(two)?);
    let (mut growth, mut common) = (0.0, 0.0);
    for (number, (count, sum)) in &two.calls {
        let Some((count_of_one, sum_of_one)) = one.calls.get(number) else { continue };
        let more = sum / *count as f64 - sum_of_one / *count_of_one as f64;
        growth += more * *count as f64;
        common += *count as f64;
    }
    let switched = two.switched as f64 / two.count as f64;
    let is_known = common > 0.0 && switched > 0.0;
    let idle = |of: &Observed| of.idle_ns / of.count as f64;
    let ratio = if idle(&one) > 0.0 { idle(&two) / idle(&one) } else { 1.0 };
    Ok(Calibration {
        data_transfer_ns: if is_known { (growth / common / switched).max(0.0) } else { 0.0 },
        memory_share: Model::calibrate(ratio, 0.0).serial,
        switched,
    })
}

fn observe<R: Read + Seek>(mut trace: Merged<R>) -> Result<Observed, Error> {
    let ticks_per_second = trace.header().ticks_per_second;
    let ns = |ticks: u64| ticks as f64 * 1e9 / ticks_per_second as f64;
    let mut observed = Observed::default();
    let mut timelines = vec![Timeline::default(); 64];
    let mut last_core = [None; policy::route::CLASS_COUNT];
    while let Some(entry) = trace.next_entry()? {
        let Record::Call(call) = entry.record else { continue };
        let work = timelines[usize::from(call.core)].take(&call);
        let (count, sum) = observed.calls.entry(call.number).or_default();
        *count += 1;
        *sum += ns(work.poll);
        observed.idle_ns += ns(work.idle);
        observed.count += 1;
        let last = last_core[Machine::class(call.number) as usize].replace(call.server_core);
        observed.switched += u64::from(last.is_some_and(|last| last != call.server_core));
    }
    if observed.count == 0 { Err(Error::Empty { core: 0 }) } else { Ok(observed) }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use abi::trace::{Call, Duration, Header, LockScheme, Origin};

    use super::*;

    /// Cores that call in turn, each after so much time of its own.
    fn traced(cores: u8, idle: u64, poll: u16) -> Vec<u8> {
        let header = Header {
            cores,
            overwrites: false,
            origin: Origin::Recorded,
            ticks_per_second: 1_000_000_000,
            began_unix_ns: 0,
            scheme: LockScheme::Fine,
        };
        let mut writer = trace::Writer::new(Vec::new(), &header).unwrap();
        let mut end = vec![0; usize::from(cores)];
        for at in 0..2_000 {
            let core = (at % u64::from(cores)) as u8;
            let end = &mut end[usize::from(core)];
            let start = *end + idle;
            let poll = Duration(poll);
            let call = Call { core, server_core: core, number: 39, start, poll, ..Call::default() };
            *end = call.end();
            writer.push(core, &Record::Call(call)).unwrap();
        }
        writer.finish().unwrap()
    }

    fn calibrated(one: &[u8], two: &[u8]) -> Result<Calibration, Error> {
        let open = |bytes| Merged::open(|| Ok(Cursor::new(bytes))).unwrap();
        calibrate(open(one), open(two))
    }

    #[test]
    fn lines_that_move_and_memory_that_is_shared_are_found() {
        let found = calibrated(&traced(1, 1_000, 100), &traced(2, 1_250, 170)).unwrap();
        assert!(found.switched > 0.99, "{found:?}");
        assert!((found.data_transfer_ns - 70.0).abs() < 0.1, "{found:?}");
        // 1.25 is 1 + 0.5 squared.
        assert!((found.memory_share - 0.5).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn what_does_not_grow_costs_nothing() {
        let found = calibrated(&traced(1, 1_000, 100), &traced(2, 1_000, 100)).unwrap();
        assert!(found.data_transfer_ns == 0.0 && found.memory_share < 1e-6, "{found:?}");
    }
}
