//! What the tests of this crate share: traces made up.

use abi::trace::{Call, Duration, Header, LockScheme, Origin, Path, Record};

use crate::Writer;

/// Pseudo-random numbers after Marsaglia (xorshift64), the same in every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A header of a clock of 1 ns.
pub fn header(cores: u8) -> Header {
    Header {
        cores,
        overwrites: false,
        origin: Origin::Recorded,
        ticks_per_second: 1_000_000_000,
        began_unix_ns: 0,
        scheme: LockScheme::Fine,
    }
}

/// Local calls, dealt out over the cores in turn; on each core one after the other.
pub fn calls(cores: u8, count: usize) -> Vec<Record> {
    let mut random = Random::new(7);
    let mut clocks = vec![1_000_u64; usize::from(cores)];
    (0..count)
        .map(|at| {
            let core = (at % usize::from(cores)) as u8;
            let clock = &mut clocks[usize::from(core)];
            let call = Call {
                core,
                server_core: core,
                application: 10 + u16::from(core),
                number: (at % 5) as u16,
                path: Path::Local,
                contention: (at % 3) as u8,
                start: *clock + random.below(500),
                enter: Duration::from_ticks(50),
                poll: Duration::from_ticks(100 + random.below(1_000)),
                exit: Duration::from_ticks(40),
                ..Call::default()
            };
            *clock = call.end();
            Record::Call(call)
        })
        .collect()
}

/// A file of these records, each in the ring of its core.
pub fn file(cores: u8, records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header(cores)).unwrap();
    records.iter().for_each(|record| writer.push(record.core(), record).unwrap());
    writer.finish().unwrap()
}
