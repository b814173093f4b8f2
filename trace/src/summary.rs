//! What calls, locks and cores took, in bounded memory.

use std::collections::BTreeMap;

use abi::trace::{Call, Event, EventKind, Lock, LockScheme, Path, Record};

use super::histogram::Histogram;

/// Sums and distribution of some calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// The whole call, waiting included, in ticks.
    pub total: Histogram,
    /// Ticks of each stage: enter, fly-in, handler at work, handler waiting, fly-out, exit.
    pub stages: [u128; STAGES.len()],
}

/// Names of the stages, in the order of [`Calls::stages`].
pub const STAGES: [&str; 6] = ["enter", "fly-in", "poll", "wait", "fly-out", "exit"];

impl Calls {
    fn add(&mut self, call: &Call) {
        self.total.add(call.total());
        let stages = [call.enter, call.fly_in, call.poll, call.wait, call.fly_out, call.exit];
        for (sum, stage) in self.stages.iter_mut().zip(stages) {
            *sum += u128::from(stage.ticks());
        }
    }
}

/// Sums and distributions of one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locks {
    /// Ticks from asking to acquiring.
    pub waited: Histogram,
    /// Ticks from acquiring to releasing.
    pub held: Histogram,
    /// Ticks of releasing.
    pub release: Histogram,
    /// How often others wanted or had it when it was asked for.
    pub contended: u64,
}

/// What one core did, in ticks. What is left of the trace's duration is the programs' own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Core {
    /// Entering, handling and leaving calls.
    pub kernel: u128,
    /// Spinning for work, answers or locks.
    pub spinning: u128,
    /// Parked.
    pub parked: u128,
    /// Calls that programs made on it.
    pub calls: u64,
    /// Calls that it handled.
    pub handled: u64,
}

impl Locks {
    fn add(&mut self, lock: &Lock) {
        self.waited.add(u64::from(lock.waited));
        self.held.add(u64::from(lock.held));
        self.release.add(lock.release.ticks());
        self.contended += u64::from(lock.contention > 0);
    }
}

/// A trace in numbers. Times are ticks of the trace's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Records of any kind.
    pub records: u64,
    /// When the first record began; nothing without any.
    pub began: Option<u64>,
    /// When the last one ended.
    pub ended: u64,
    /// All calls.
    pub all: Calls,
    /// By number of the call.
    pub by_call: BTreeMap<u16, Calls>,
    /// By path.
    pub by_path: BTreeMap<Path, Calls>,
    /// By core of the caller.
    pub by_core: BTreeMap<u8, Calls>,
    /// By scheme and lock.
    pub by_lock: BTreeMap<(LockScheme, u8), Locks>,
    /// By call: the locks that were taken for it.
    pub locks_by_call: BTreeMap<u16, Locks>,
    /// What cores did.
    pub cores: BTreeMap<u8, Core>,
    /// Number of calls by how many other cores were in the kernel.
    pub contention: BTreeMap<u8, u64>,
    /// From ready to running.
    pub wake_ups: Histogram,
    /// Number of events by kind.
    pub events: BTreeMap<EventKind, u64>,
}

impl Summary {
    /// Adds a record; the order does not matter.
    pub fn add(&mut self, record: &Record) {
        self.records += 1;
        self.began = Some(self.began.unwrap_or(u64::MAX).min(record.start()));
        self.ended = self.ended.max(record.end());
        match record {
            Record::Call(call) => self.add_call(call),
            Record::Lock(lock) => self.add_lock(lock),
            Record::Event(event) => self.add_event(event),
        }
    }

    fn add_call(&mut self, call: &Call) {
        self.all.add(call);
        self.by_call.entry(call.number).or_default().add(call);
        self.by_path.entry(call.path).or_default().add(call);
        self.by_core.entry(call.core).or_default().add(call);
        *self.contention.entry(call.contention).or_default() += 1;
        let at_home = self.cores.entry(call.core).or_default();
        at_home.calls += 1;
        at_home.kernel += u128::from(call.enter.ticks() + call.exit.ticks());
        let server = self.cores.entry(call.server_core).or_default();
        server.handled += 1;
        server.kernel += u128::from(call.poll.ticks());
    }

    fn add_lock(&mut self, lock: &Lock) {
        self.by_lock.entry((lock.scheme, lock.lock)).or_default().add(lock);
        self.locks_by_call.entry(lock.number).or_default().add(lock);
    }

    fn add_event(&mut self, event: &Event) {
        *self.events.entry(event.kind).or_default() += 1;
        let core = self.cores.entry(event.core).or_default();
        let ticks = event.duration.ticks();
        match event.kind {
            EventKind::Park => core.parked += u128::from(ticks),
            EventKind::Spin => core.spinning += u128::from(ticks),
            EventKind::Interrupt | EventKind::PageFault | EventKind::Switch => {
                core.kernel += u128::from(ticks);
            }
            EventKind::WakeUp => self.wake_ups.add(ticks),
            _ => {}
        }
    }

    /// From the beginning of the first record to the end of the last, in ticks.
    pub fn duration(&self) -> u64 {
        self.began.map_or(0, |began| self.ended - began)
    }
}

#[cfg(test)]
mod tests {
    use abi::trace::Duration;

    use super::*;
    use crate::testing;

    #[test]
    fn every_call_is_in_each_of_the_tables() {
        let mut summary = Summary::default();
        testing::calls(2, 1_000).iter().for_each(|record| summary.add(record));
        assert_eq!(summary.all.total.count(), 1_000);
        assert_eq!(summary.by_call.values().map(|calls| calls.total.count()).sum::<u64>(), 1_000);
        assert_eq!(summary.by_core[&1].total.count(), 500);
        assert_eq!(summary.by_path[&Path::Local].total.count(), 1_000);
        assert_eq!(summary.contention.values().sum::<u64>(), 1_000);
        assert_eq!(summary.all.stages.iter().sum::<u128>(), summary.all.total.sum());
    }

    #[test]
    fn a_remote_call_is_work_of_two_cores() {
        let mut summary = Summary::default();
        summary.add(&Record::Call(Call {
            server_core: 1,
            path: Path::Remote,
            enter: Duration(10),
            fly_in: Duration(20),
            poll: Duration(30),
            fly_out: Duration(40),
            exit: Duration(5),
            ..Call::default()
        }));
        assert_eq!((summary.cores[&0].kernel, summary.cores[&1].kernel), (15, 30));
        assert_eq!((summary.cores[&0].calls, summary.cores[&1].handled), (1, 1));
        assert_eq!(summary.duration(), 105);
    }

    #[test]
    fn locks_are_summed_by_lock_and_by_call() {
        let mut summary = Summary::default();
        for (number, lock) in [(1, 0), (1, 5), (2, 5)] {
            let lock = Lock { number, lock, waited: 3, held: 10, ..Lock::default() };
            summary.add(&Record::Lock(lock));
        }
        let scheme = LockScheme::default();
        assert_eq!(summary.by_lock[&(scheme, 5)].held.sum(), 20);
        assert_eq!(summary.locks_by_call[&1].held.sum(), 20);
        assert_eq!(summary.locks_by_call[&2].waited.count(), 1);
    }

    #[test]
    fn parked_and_spinning_time_and_wake_ups_are_told_apart() {
        let mut summary = Summary::default();
        for (kind, ticks) in [(EventKind::Park, 100), (EventKind::Spin, 30), (EventKind::WakeUp, 7)]
        {
            summary.add(&Record::Event(Event {
                core: 0,
                kind,
                application: 0,
                other_core: 0,
                detail: 0,
                time: 0,
                duration: Duration(ticks),
                value: 0,
            }));
        }
        let core = &summary.cores[&0];
        assert_eq!((core.parked, core.spinning, core.kernel), (100, 30, 0));
        assert_eq!(summary.wake_ups.worst(), 7);
    }
}
