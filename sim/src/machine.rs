//! The machine that is simulated: cores, layout, paths, locks.

use abi::trace::{LockScheme, Path};
use policy::choice::Wanted;
use policy::place::{CoreSet, Layout, server_core};
use policy::route::{self, CallPath, Class, Locks};

use crate::costs::Costs;
use crate::random::Random;
use crate::work::Work;

/// Locks of the published coarse scheme: one per thread, then the server's, then the scheduler's.
const PUBLISHED_SERVER: usize = 64;
const PUBLISHED_SCHEDULER: usize = 65;

/// Which locks a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// A scheme of Ferry.
    Scheme(LockScheme),
    /// One lock for the whole of every call, as published.
    PublishedGiant,
    /// As published: most calls take no lock; those with channels take two, one after the other.
    PublishedCoarse,
}

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Ticks of the clock per second.
    pub ticks_per_second: u64,
    /// Which cores are for what.
    pub layout: Layout,
    /// Which path calls take.
    pub wanted: Wanted,
    /// Which locks they take.
    pub locking: Locking,
    /// What it costs.
    pub costs: Costs,
}

/// What a call holds and does, as far as its locks are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sections {
    /// A lock and for how long it is needed, at most two after each other.
    pub locked: [Option<(usize, u64)>; 2],
    /// Without a lock: before the first one where there is none, else between both.
    pub free: u64,
}

impl Machine {
    /// Cores that run programs, each with a stream of work.
    pub fn stream_cores(&self) -> Vec<usize> {
        self.layout.application.iter().collect()
    }

    /// Number of locks that a call may take.
    pub fn lock_count(&self) -> usize {
        match self.locking {
            Locking::Scheme(LockScheme::Fine) => 0,
            Locking::Scheme(LockScheme::Coarse) => route::CLASS_COUNT,
            Locking::Scheme(_) | Locking::PublishedGiant => 1,
            Locking::PublishedCoarse => PUBLISHED_SCHEDULER + 1,
        }
    }

    /// Class of a call; what the table does not have is of the last class.
    pub fn class(number: u16) -> Class {
        route::route(usize::from(number)).map_or(Class::Other, |row| row.class)
    }

    /// Whether a call takes no lock under the coarse scheme.
    fn needs_no_lock(number: u16) -> bool {
        route::route(usize::from(number)).is_some_and(|row| row.locks == Locks::None)
    }

    /// The path of a call where one is fixed, from a core.
    pub fn fixed_path(&self, wanted: CallPath, work: &Work, core: usize) -> CallPath {
        // Every row permits this one, whichever core serves it: no need to look.
        if wanted == CallPath::Local {
            return CallPath::Local;
        }
        // Where a core would serve itself, nothing travels.
        let exists = self.server(work.number) != core;
        match route::route(usize::from(work.number)) {
            Some(row) => route::choose_path(row, wanted, exists),
            None => CallPath::Local,
        }
    }

    /// The kernel core that serves a call.
    pub fn server(&self, number: u16) -> usize {
        server_core(&self.layout, Machine::class(number))
    }

    /// Whether a kernel core runs programs too.
    pub fn runs_programs(&self, core: usize) -> bool {
        self.layout.application.contains(core)
    }

    /// What a call holds.
    pub fn sections(&self, work: &Work, hold: u64, random: &mut Random) -> Sections {
        let one = |lock| Sections { locked: [Some((lock, hold)), None], free: 0 };
        match self.locking {
            Locking::Scheme(LockScheme::Fine) => Sections { locked: [None; 2], free: hold },
            Locking::Scheme(LockScheme::Coarse) if Machine::needs_no_lock(work.number) => {
                Sections { locked: [None; 2], free: hold }
            }
            Locking::Scheme(LockScheme::Coarse) => one(Machine::class(work.number) as usize),
            Locking::Scheme(_) | Locking::PublishedGiant => one(0),
            Locking::PublishedCoarse => self.published_coarse(work, hold, random),
        }
    }

    /// The published document's tables 5.3 and 5.4 and section 6.4.4: calls B, C, D (channels) and L
    /// (virtual interrupts) hold a thread's lock for 40 % of their time, none for 20 %, the scheduler's for
    /// 40 %; all others hold none. The thread is the serial server's for a caller that is not that server,
    /// else a random one. Application 0 is taken for the serial server, and 1 for the timer's.
    fn published_coarse(&self, work: &Work, hold: u64, random: &mut Random) -> Sections {
        let is_channel = matches!(work.number, 1..=3);
        let is_interrupt = work.number == 11;
        if !is_channel && !is_interrupt {
            return Sections { locked: [None; 2], free: hold };
        }
        let takes_servers = is_channel && work.application != 0;
        let instances = self.layout.application.count().max(1) as u64;
        let thread =
            if takes_servers { PUBLISHED_SERVER } else { random.below(instances) as usize };
        let part = hold * 2 / 5;
        Sections {
            locked: [Some((thread, part)), Some((PUBLISHED_SCHEDULER, part))],
            free: hold - 2 * part,
        }
    }
}

/// The word of the route table for a path of a trace.
pub fn call_path(path: Path) -> CallPath {
    match path {
        Path::Local => CallPath::Local,
        Path::Remote => CallPath::Remote,
        Path::Posted => CallPath::Posted,
    }
}

/// One core alone, for tests and calibrations.
pub fn symmetric(cores: usize, ticks_per_second: u64, locking: Locking, costs: Costs) -> Machine {
    let all = CoreSet::first(cores);
    Machine {
        ticks_per_second,
        layout: Layout { application: all, kernel: all, interrupt: all },
        wanted: Wanted::Fixed(CallPath::Local),
        locking,
        costs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_touch_their_callers_state_alone_take_no_coarse_lock() {
        let coarse = Locking::Scheme(LockScheme::Coarse);
        let machine = symmetric(2, 1, coarse, Costs::default());
        let mut random = Random::new(0);
        let mut locked = |number: usize| {
            let work = Work { number: number as u16, ..Work::default() };
            machine.sections(&work, 10, &mut random).locked[0]
        };
        assert_eq!(locked(policy::table::number::getppid), None);
        assert_eq!(locked(policy::table::number::read), Some((Class::File as usize, 10)));
    }

    #[test]
    fn published_channel_calls_hold_two_locks_for_two_fifths_each() {
        let machine = symmetric(4, 1, Locking::PublishedCoarse, Costs::default());
        let mut random = Random::new(0);
        let work = |number, application| Work { number, application, ..Work::default() };
        let channel = machine.sections(&work(2, 5), 101, &mut random);
        assert_eq!(channel.locked, [Some((PUBLISHED_SERVER, 40)), Some((PUBLISHED_SCHEDULER, 40))]);
        assert_eq!(channel.free, 21);
        let flush = machine.sections(&work(0, 5), 101, &mut random);
        assert_eq!(flush, Sections { locked: [None; 2], free: 101 });
        let from_server = machine.sections(&work(2, 0), 100, &mut random);
        assert!(from_server.locked[0].is_some_and(|(lock, _)| lock < 4));
    }
}
