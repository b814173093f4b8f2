//! Work that is made up: programs that compute for an exponentially distributed time, then need something
//! that only one core can have, for a time likewise distributed; beside it, calls that come with time.
//!
//! Such programs do not call in lockstep, and what they must yield is known from queueing theory
//! (`closed`), so the simulator can be checked against it.

use crate::error::Error;
use crate::random::Random;
use crate::work::{Source, Work};

/// What each core does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Synthetic {
    /// Calls of each core, those that come with time not counted.
    pub calls: u64,
    /// Mean of the program's own time before each, in ticks.
    pub idle: f64,
    /// Mean time of a call that has to be serial, in ticks.
    pub serial: f64,
    /// Ticks from one call that comes with time to the next (a timer's); 0: there are none.
    pub timer: f64,
}

/// The state of such work.
pub struct SyntheticSource {
    of: Synthetic,
    streams: Vec<(Random, u64, f64)>,
}

impl Synthetic {
    /// The work of so many cores.
    pub fn source(self, cores: usize) -> SyntheticSource {
        let stream = |core: usize| (Random::new(1 + core as u64), self.calls, self.timer);
        SyntheticSource { of: self, streams: (0..cores).map(stream).collect() }
    }
}

impl Source for SyntheticSource {
    fn next(&mut self, stream: usize, now: u64, work: &mut Work) -> Result<bool, Error> {
        let (random, left, next_timer) = &mut self.streams[stream];
        if *left == 0 {
            return Ok(false);
        }
        let poll = random.exponential(self.of.serial);
        if self.of.timer > 0.0 && *next_timer <= now as f64 {
            *next_timer += self.of.timer;
            *work = Work { poll, ..Work::default() };
            return Ok(true);
        }
        *left -= 1;
        *work = Work { idle: random.exponential(self.of.idle), poll, ..Work::default() };
        Ok(true)
    }
}
