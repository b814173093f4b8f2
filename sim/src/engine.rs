//! Runs the work of all application cores, event by event.
//!
//! ```text
//!            idle          enter                       release, wait, exit
//!   [Memory] ────> [Calls] ────> [Handles] ──> [Releases] ────> next work
//!                      │ flight      ▲ lock, data
//!                      └──> [Arrives]┘ queue of the server, wake-up
//! ```
//!
//! Steps that nobody can disturb are one event: a local call without a lock is a single one.

use policy::choice::{Choice, Wanted};
use policy::route::CallPath;

use crate::agenda::Agenda;
use crate::error::Error;
use crate::lock::Lock;
use crate::machine::{Machine, call_path};
use crate::outcome::Outcome;
use crate::random::Random;
use crate::server::{Found, Server};
use crate::stream::{Phase, Stream};
use crate::work::Source;
#[cfg(test)]
use crate::work::Work;

/// A simulation.
pub struct Engine<'a, S> {
    machine: &'a Machine,
    source: S,
    agenda: Agenda,
    streams: Vec<Stream>,
    locks: Vec<Lock>,
    /// By number of the core.
    servers: Vec<Server>,
    /// By number of the core: its stream.
    stream_of: Vec<Option<usize>>,
    /// By class: the core that last handled a call of it.
    last_core: [Option<usize>; policy::route::CLASS_COUNT],
    memory_free: u64,
    random: Random,
    events: u64,
}

impl<'a, S: Source> Engine<'a, S> {
    /// A simulation of this machine, at the beginning.
    pub fn new(machine: &'a Machine, source: S) -> Engine<'a, S> {
        let cores = machine.stream_cores();
        let chooses = machine.wanted == Wanted::Auto;
        let mut stream_of = vec![None; 64];
        cores.iter().enumerate().for_each(|(stream, &core)| stream_of[core] = Some(stream));
        Engine {
            machine,
            source,
            agenda: Agenda::new(cores.len()),
            streams: cores.iter().map(|&core| Stream::new(core, chooses)).collect(),
            locks: vec![Lock::default(); machine.lock_count()],
            servers: vec![Server::default(); 64],
            stream_of,
            last_core: [None; policy::route::CLASS_COUNT],
            memory_free: 0,
            random: Random::new(1),
            events: 0,
        }
    }

    /// Runs everything to its end.
    ///
    /// # Errors
    ///
    /// Where the source cannot be read.
    pub fn run(mut self) -> Result<Outcome, Error> {
        for stream in 0..self.streams.len() {
            self.take_work(stream, 0)?;
        }
        while let Some((now, stream)) = self.agenda.next() {
            self.events += 1;
            self.happens(stream, now)?;
        }
        Ok(self.outcome())
    }

    fn happens(&mut self, stream: usize, now: u64) -> Result<(), Error> {
        match self.streams[stream].phase {
            Phase::Memory => self.use_memory(stream, now),
            Phase::Calls => self.choose(stream, now),
            Phase::Arrives => self.arrive(stream, now),
            Phase::Handles(section) => return self.handle(stream, section, now),
            Phase::Releases(section) => return self.release(stream, section, now),
            Phase::Done => return self.finish(stream, now),
        }
        Ok(())
    }

    fn plan(&mut self, stream: usize, phase: Phase, time: u64) {
        self.streams[stream].phase = phase;
        self.agenda.set(stream, time);
    }

    /// Begins with the next call and what comes before it.
    fn take_work(&mut self, stream: usize, now: u64) -> Result<(), Error> {
        let state = &mut self.streams[stream];
        if !self.source.next(stream, now, &mut state.work)? {
            state.outcome.finished = now;
            self.agenda.clear(stream);
            return Ok(());
        }
        let debt = std::mem::take(&mut state.debt);
        let share = self.machine.costs.memory_share;
        if share > 0.0 {
            let shared = |ticks: u64| (ticks as f64 * share) as u64;
            let (idle, poll) = (shared(state.work.idle), shared(state.work.poll));
            state.work.idle -= idle;
            state.work.poll -= poll;
            state.way_back = idle + poll;
            let idle = state.work.idle;
            state.outcome.user += idle;
            self.plan(stream, Phase::Memory, now + idle + debt);
        } else {
            let idle = state.work.idle;
            state.outcome.user += idle;
            self.plan_call(stream, now + idle + debt);
        }
        Ok(())
    }

    /// The path to memory serves one core at a time, in the order in which they come.
    fn use_memory(&mut self, stream: usize, now: u64) {
        let demand = self.streams[stream].way_back;
        let begin = self.memory_free.max(now);
        self.memory_free = begin + demand;
        self.streams[stream].outcome.memory_wait += begin - now;
        self.streams[stream].outcome.user += demand;
        let time = self.memory_free;
        self.plan_call(stream, time);
    }

    /// The stream calls at `time`. Where the path does not depend on what others do, it is taken at once.
    fn plan_call(&mut self, stream: usize, time: u64) {
        match self.machine.wanted {
            Wanted::Auto => self.plan(stream, Phase::Calls, time),
            Wanted::Fixed(wanted) => {
                let state = &self.streams[stream];
                let path = self.machine.fixed_path(wanted, &state.work, state.core());
                self.go(stream, path, time, false);
            }
        }
    }

    /// A choice call by call: as the kernel does it, a call stays at home unless its server's core spins and
    /// has no thread, and else the account decides.
    fn choose(&mut self, stream: usize, now: u64) {
        let state = &self.streams[stream];
        let (work, core) = (state.work, state.core());
        let server = self.machine.server(work.number);
        let remote = self.machine.fixed_path(CallPath::Remote, &work, core);
        let is_at_hand = remote != CallPath::Local
            && !self.machine.runs_programs(server)
            && !self.servers[server].is_parked(now, |ticks| self.nanoseconds(ticks));
        let mut choice = Choice::default();
        if is_at_hand {
            let account = &mut self.streams[stream].accounts[usize::from(work.number)];
            (choice, *account) = account.next();
        }
        let path = if choice.away { CallPath::Remote } else { CallPath::Local };
        self.go(stream, path, now, choice.timed);
    }

    /// Sends a call on its way.
    fn go(&mut self, stream: usize, path: CallPath, time: u64, is_timed: bool) {
        let costs = &self.machine.costs;
        let state = &mut self.streams[stream];
        let work = &state.work;
        let as_traced = path == call_path(work.path);
        // What a path costs that the call did not take in the trace is not in the trace.
        let (enter, exit) = match (as_traced, path) {
            (true, _) => (work.enter, work.exit),
            (false, CallPath::Posted) => (0, 0),
            (false, _) if work.path == abi::trace::Path::Posted => (costs.enter, costs.exit),
            (false, _) => (work.enter, work.exit),
        };
        state.began = time;
        state.is_timed = is_timed;
        state.outcome.calls += 1;
        state.outcome.kernel += enter + exit;
        if path == CallPath::Local {
            state.server = None;
            state.way_back = exit;
            self.plan(stream, Phase::Handles(0), time + enter);
            return;
        }
        let core = state.core();
        let server = self.machine.server(work.number);
        let flight = costs.flight_between(core, server);
        let back = if as_traced { work.fly_out } else { flight };
        state.server = Some(server);
        state.way_back = back + exit;
        state.sent = time + enter;
        state.taken_as_traced = if as_traced { state.sent + work.fly_in } else { 0 };
        state.outcome.away += 1;
        self.plan(stream, Phase::Arrives, time + enter + flight);
    }

    fn arrive(&mut self, stream: usize, now: u64) {
        let Some(core) = self.streams[stream].server else { return };
        let ticks_per_second = self.machine.ticks_per_second;
        let nanoseconds = |ticks| trace::nanoseconds(ticks, ticks_per_second);
        match self.servers[core].arrive(stream, now, nanoseconds) {
            // Its turn comes when the one at work is done.
            Found::Busy => self.agenda.clear(stream),
            // With nobody ahead, it travels as long as it did.
            Found::Spinning | Found::Parked if self.streams[stream].taken_as_traced > 0 => {
                let taken = self.streams[stream].taken_as_traced.max(now);
                self.plan(stream, Phase::Handles(0), taken);
            }
            Found::Spinning => self.plan(stream, Phase::Handles(0), now),
            Found::Parked => {
                // A core that runs a program is interrupted instead of woken.
                let delay =
                    if self.stream_of[core].is_some() { 0 } else { self.machine.costs.wake_up };
                self.plan(stream, Phase::Handles(0), now + delay);
            }
        }
    }

    /// The handler begins (section 0) or goes on to its second lock.
    fn handle(&mut self, stream: usize, section: usize, now: u64) -> Result<(), Error> {
        if section == 0 {
            let hold = self.streams[stream].work.poll + self.data_transfer(stream);
            let state = &mut self.streams[stream];
            state.sections = self.machine.sections(&state.work, hold, &mut self.random);
            self.account_work(stream, hold);
        }
        let sections = &self.streams[stream].sections;
        let Some((lock, hold)) = sections.locked[section] else {
            // Without a lock nothing can come between.
            let end = now + sections.free;
            return if self.streams[stream].server.is_some() {
                self.plan(stream, Phase::Done, end);
                Ok(())
            } else {
                self.finish(stream, end)
            };
        };
        if self.locks[lock].ask(stream, now) {
            let held = self.machine.costs.acquire + hold;
            self.locks[lock].outcome.held += held;
            self.plan(stream, Phase::Releases(section), now + held);
        } else {
            self.agenda.clear(stream);
        }
        Ok(())
    }

    fn release(&mut self, stream: usize, section: usize, now: u64) -> Result<(), Error> {
        let costs = &self.machine.costs;
        let spread = costs.release_spread;
        let release = costs.release + if spread > 0 { self.random.below(spread + 1) } else { 0 };
        let sections = self.streams[stream].sections;
        let released = now + release;
        let Some((lock, _)) = sections.locked[section] else { return Ok(()) };
        self.locks[lock].outcome.held += release;
        if let Some((next, waited, behind)) = self.locks[lock].release(released) {
            let hand_over = costs.hand_over + costs.hand_over_per_waiter * behind as u64;
            let state = &mut self.streams[next];
            state.outcome.lock_wait += waited + hand_over;
            let Phase::Handles(next_section) = state.phase else { return Ok(()) };
            let hold = state.sections.locked[next_section].map_or(0, |(_, hold)| hold);
            self.locks[lock].outcome.held += hand_over + hold;
            self.plan(next, Phase::Releases(next_section), released + hand_over + hold);
        }
        match sections.locked.get(section + 1) {
            Some(Some(_)) => {
                self.plan(stream, Phase::Handles(section + 1), released + sections.free);
                Ok(())
            }
            _ if self.streams[stream].server.is_some() => {
                self.plan(stream, Phase::Done, released);
                Ok(())
            }
            _ => self.finish(stream, released),
        }
    }

    /// The handler is done: its server goes on, and its caller after the way back.
    fn finish(&mut self, stream: usize, now: u64) -> Result<(), Error> {
        let state = &mut self.streams[stream];
        let (wait, server) = (state.work.wait, state.server.take());
        let end = now + wait + state.way_back;
        state.outcome.blocked += wait;
        if server.is_some() {
            state.outcome.away_wait += now + state.way_back - state.sent;
        }
        if state.is_timed && wait == 0 {
            let ns = trace::nanoseconds(end - state.began, self.machine.ticks_per_second);
            let account = &mut state.accounts[usize::from(state.work.number)];
            *account = account.observe(server.is_some(), ns);
        }
        if let Some(core) = server
            && let Some(next) = self.servers[core].done(now)
        {
            self.plan(next, Phase::Handles(0), now);
        }
        self.take_work(stream, end)
    }

    /// What a call takes more because kernel data of its class was last used on another core.
    fn data_transfer(&mut self, stream: usize) -> u64 {
        let cost = self.machine.costs.data_transfer;
        if cost == 0 {
            return 0;
        }
        let state = &self.streams[stream];
        let core = state.server.unwrap_or(state.core());
        let class = Machine::class(state.work.number) as usize;
        let last = self.last_core[class].replace(core);
        if last.is_some_and(|last| last != core) { cost } else { 0 }
    }

    /// The handler's time is its core's.
    fn account_work(&mut self, stream: usize, hold: u64) {
        match self.streams[stream].server {
            None => self.streams[stream].outcome.kernel += hold,
            Some(core) => {
                self.servers[core].outcome.busy += hold;
                if let Some(disturbed) = self.stream_of[core] {
                    self.streams[disturbed].debt += hold;
                    self.streams[disturbed].outcome.kernel += hold;
                }
            }
        }
    }

    fn nanoseconds(&self, ticks: u64) -> u64 {
        trace::nanoseconds(ticks, self.machine.ticks_per_second)
    }

    fn outcome(self) -> Outcome {
        let streams: Vec<_> = self.streams.into_iter().map(|stream| stream.outcome).collect();
        let taken = |(_, lock): &(usize, Lock)| lock.outcome.acquired > 0;
        let kernel = self.machine.layout.kernel;
        Outcome {
            ticks_per_second: self.machine.ticks_per_second,
            events: self.events,
            ended: streams.iter().map(|stream| stream.finished).max().unwrap_or(0),
            streams,
            locks: self
                .locks
                .into_iter()
                .enumerate()
                .filter(taken)
                .map(|(number, lock)| (number, lock.outcome))
                .collect(),
            servers: self
                .servers
                .into_iter()
                .enumerate()
                .filter(|(core, _)| kernel.contains(*core))
                .map(|(core, server)| {
                    let mut outcome = server.outcome;
                    outcome.core = core;
                    outcome
                })
                .collect(),
        }
    }
}

/// Runs a machine on work.
///
/// # Errors
///
/// Where the source cannot be read.
pub fn run(machine: &Machine, source: impl Source) -> Result<Outcome, Error> {
    Engine::new(machine, source).run()
}

/// A source of the same work, over and over, for tests.
#[cfg(test)]
pub struct Repeated {
    /// The work.
    pub work: Work,
    /// How often, for each stream.
    pub left: Vec<u64>,
}

#[cfg(test)]
impl Source for Repeated {
    fn next(&mut self, stream: usize, _now: u64, work: &mut Work) -> Result<bool, Error> {
        let left = &mut self.left[stream];
        let has_more = *left > 0;
        *left = left.saturating_sub(1);
        *work = self.work;
        Ok(has_more)
    }
}

#[cfg(test)]
mod tests {
    use abi::trace::LockScheme;
    use policy::place::{CoreSet, Layout};
    use policy::table::number;

    use super::*;
    use crate::costs::Costs;
    use crate::machine::{Locking, symmetric};

    const GHZ: u64 = 1_000_000_000;

    fn work(idle: u64, poll: u64) -> Work {
        let number = number::getppid as u16;
        Work { idle, poll, enter: 10, exit: 5, number, ..Work::default() }
    }

    fn simulate(machine: &Machine, work: Work, calls: u64) -> Outcome {
        let left = vec![calls; machine.stream_cores().len()];
        run(machine, Repeated { work, left }).unwrap()
    }

    #[test]
    fn without_locks_cores_do_not_disturb_each_other() {
        let machine = symmetric(4, GHZ, Locking::Scheme(LockScheme::Fine), Costs::default());
        let outcome = simulate(&machine, work(100, 50), 1_000);
        assert_eq!(outcome.ended, 1_000 * 165);
        assert_eq!((outcome.calls(), outcome.events), (4_000, 4_000));
    }

    #[test]
    fn a_giant_lock_that_is_always_wanted_is_the_bound() {
        let costs = Costs { acquire: 30, release: 20, hand_over: 40, ..Costs::default() };
        for cores in 2..=8 {
            let scheme = Locking::Scheme(LockScheme::GiantClh);
            let machine = symmetric(cores, GHZ, scheme, costs);
            let outcome = simulate(&machine, work(0, 100), 1_000);
            // Each call occupies the lock for its hand-over, its work and its release.
            let per_call = outcome.ended as f64 / outcome.calls() as f64;
            assert!((per_call - 160.0).abs() < 1.0, "{cores} cores: {per_call}");
            assert!(outcome.contention() > 0.99);
        }
    }

    #[test]
    fn a_coarse_lock_is_shared_by_its_class_alone() {
        let machine = symmetric(2, GHZ, Locking::Scheme(LockScheme::Coarse), Costs::default());
        struct Two;
        impl Source for Two {
            fn next(&mut self, stream: usize, now: u64, next: &mut Work) -> Result<bool, Error> {
                let number = [number::mmap, number::read][stream] as u16;
                *next = Work { number, ..work(0, 85) };
                Ok(now < 10_000)
            }
        }
        let outcome = run(&machine, Two).unwrap();
        assert_eq!(outcome.ended, 10_000);
        assert_eq!((outcome.locks.len(), outcome.contention()), (2, 0.0));
    }

    #[test]
    fn a_kernel_core_serves_calls_one_after_the_other() {
        let layout = Layout {
            application: CoreSet(0b011),
            kernel: CoreSet(0b100),
            interrupt: CoreSet(0b100),
        };
        let costs = Costs { flight: 50, ..Costs::default() };
        let locking = Locking::Scheme(LockScheme::Fine);
        let wanted = Wanted::Fixed(CallPath::Remote);
        let machine = Machine { ticks_per_second: GHZ, layout, wanted, locking, costs };
        let outcome = simulate(&machine, work(0, 1_000), 1_000);
        let server = &outcome.servers[0];
        assert_eq!((server.requests, server.busy), (2_000, 2_000_000));
        assert!(outcome.ended.abs_diff(2_000_000) < 1_000, "{}", outcome.ended);
        assert!(server.queued > 0);
        assert!(outcome.streams.iter().all(|stream| stream.away == 1_000));
    }

    #[test]
    fn calls_that_must_stay_stay() {
        let layout = Layout { application: CoreSet(1), kernel: CoreSet(2), interrupt: CoreSet(2) };
        let locking = Locking::Scheme(LockScheme::Fine);
        let wanted = Wanted::Fixed(CallPath::Posted);
        let costs = Costs::default();
        let machine = Machine { ticks_per_second: GHZ, layout, wanted, locking, costs };
        let fork = Work { number: number::fork as u16, ..work(0, 10) };
        assert_eq!(simulate(&machine, fork, 10).streams[0].away, 0);
    }

    /// Two programs and a kernel core, with a choice call by call.
    fn choosing(costs: Costs) -> Machine {
        Machine {
            ticks_per_second: GHZ,
            layout: Layout { application: CoreSet(3), kernel: CoreSet(4), interrupt: CoreSet(4) },
            wanted: Wanted::Auto,
            locking: Locking::Scheme(LockScheme::Fine),
            costs,
        }
    }

    #[test]
    fn auto_keeps_at_home_what_gains_nothing_but_for_rare_trials() {
        let machine = choosing(Costs { flight: 300, ..Costs::default() });
        let away = simulate(&machine, work(10, 200), 20_000).streams[0].away;
        assert!((1..100).contains(&away), "{away}");
    }

    #[test]
    fn auto_never_wakes_a_core_that_is_parked() {
        let machine = choosing(Costs::default());
        assert_eq!(simulate(&machine, work(100_000, 200), 1_000).streams[0].away, 0);
    }

    #[test]
    fn data_that_moves_between_cores_costs_its_lines() {
        let costs = Costs { data_transfer: 70, ..Costs::default() };
        let machine = symmetric(2, GHZ, Locking::Scheme(LockScheme::GiantMcs), costs);
        let alone = symmetric(1, GHZ, Locking::Scheme(LockScheme::GiantMcs), costs);
        assert_eq!(simulate(&alone, work(0, 100), 100).ended, 100 * 115);
        let both = simulate(&machine, work(0, 100), 100).ended;
        assert!(both >= 199 * 170, "{both}");
    }

    #[test]
    fn the_same_input_gives_the_same_output() {
        let costs = Costs { release: 80, release_spread: 10, acquire: 165, ..Costs::default() };
        let machine = symmetric(5, GHZ, Locking::PublishedGiant, costs);
        let first = simulate(&machine, work(300, 100), 2_000);
        assert_eq!(first, simulate(&machine, work(300, 100), 2_000));
    }
}
