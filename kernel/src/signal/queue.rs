//! Pending signals of one thread or of one process.
//!
//! A standard signal is pending at most once; later ones merge into the first. Real-time signals
//! queue up in the order in which they came. What is taken out comes in the order of Linux: faults
//! first, then the lowest number, and within a number the oldest.
//!
//! The queue is plain data without a lock; whoever owns it guards it.

use alloc::vec::Vec;

use abi::signal::{Signal, SignalSet};
use base::quota::Charge;

use super::info::SignalInfo;

/// What became of a signal that was put into a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Queued {
    /// It is pending with its information.
    Added,
    /// It is pending, but its information was dropped for want of memory or quota.
    WithoutInfo,
    /// It was pending already and merged into the earlier one.
    Merged,
    /// A real-time signal with information that must not be lost found no room.
    Full,
}

/// Pending signals.
#[derive(Default, Debug)]
pub struct PendingQueue {
    set: SignalSet,
    /// In order of arrival. A signal of `set` without an entry here has lost its information.
    entries: Vec<Entry>,
}

/// A signal with its information, and what it takes of its receiver's `RLIMIT_SIGPENDING`.
#[derive(Debug)]
struct Entry {
    info: SignalInfo,
    _charge: Option<Charge>,
}

impl PendingQueue {
    /// No signal is pending.
    pub const fn new() -> PendingQueue {
        PendingQueue { set: SignalSet::EMPTY, entries: Vec::new() }
    }

    /// The signals that are pending.
    pub fn set(&self) -> SignalSet {
        self.set
    }

    /// The information of the signal that came after `index` others; `None` when there are not as many with information.
    pub fn at(&self, index: usize) -> Option<SignalInfo> {
        self.entries.get(index).map(|entry| entry.info)
    }

    /// Puts a signal in. `charge` is the room for one more of the receiver's user, if there is any; the
    /// kernel's own standard signals need none.
    pub fn push(&mut self, info: SignalInfo, charge: Option<Charge>) -> Queued {
        let signal = info.signal;
        if !signal.is_real_time() && self.set.contains(signal) {
            return Queued::Merged;
        }
        let exempt = !signal.is_real_time() && info.code >= 0;
        if (charge.is_some() || exempt) && self.entries.try_reserve(1).is_ok() {
            self.entries.push(Entry { info, _charge: charge });
            self.set.insert(signal);
            return Queued::Added;
        }
        if signal.is_real_time() && info.code != abi::signal::SI_USER {
            return Queued::Full;
        }
        self.set.insert(signal);
        Queued::WithoutInfo
    }

    /// The signal that is delivered next among those that `blocked` does not hold back.
    pub fn next(&self, blocked: SignalSet) -> Option<Signal> {
        let ready = self.set.without(blocked);
        let synchronous = ready & SignalSet::SYNCHRONOUS;
        if synchronous.is_empty() { ready.lowest() } else { synchronous.lowest() }
    }

    /// Takes out the oldest entry of a signal; `None` when it is not pending.
    pub fn take(&mut self, signal: Signal) -> Option<SignalInfo> {
        if !self.set.contains(signal) {
            return None;
        }
        let mut matching =
            self.entries.iter().enumerate().filter(|(_, entry)| entry.info.signal == signal);
        let oldest = matching.next().map(|(position, _)| position);
        let more = matching.next().is_some();
        if !more {
            self.set.remove(signal);
        }
        match oldest {
            Some(position) => Some(self.entries.remove(position).info),
            None => Some(SignalInfo::unknown(signal)),
        }
    }

    /// Takes out the next signal that `blocked` does not hold back.
    pub fn take_next(&mut self, blocked: SignalSet) -> Option<SignalInfo> {
        let signal = self.next(blocked)?;
        self.take(signal)
    }

    /// Takes out the first fault of this thread's own, which goes before everything else.
    pub fn take_synchronous(&mut self, blocked: SignalSet) -> Option<SignalInfo> {
        if (self.set & SignalSet::SYNCHRONOUS).without(blocked).is_empty() {
            return None;
        }
        let position = self.entries.iter().position(|entry| {
            entry.info.is_synchronous() && !blocked.contains(entry.info.signal)
        })?;
        let info = self.entries.remove(position).info;
        if !self.entries.iter().any(|entry| entry.info.signal == info.signal) {
            self.set.remove(info.signal);
        }
        Some(info)
    }

    /// Puts a signal that was taken out back to the front.
    pub fn put_back(&mut self, info: SignalInfo) {
        self.set.insert(info.signal);
        if self.entries.try_reserve(1).is_ok() {
            self.entries.insert(0, Entry { info, _charge: None });
        }
    }

    /// Drops all signals of `set`.
    pub fn discard(&mut self, set: SignalSet) {
        if (self.set & set).is_empty() {
            return;
        }
        self.set = self.set.without(set);
        self.entries.retain(|entry| !set.contains(entry.info.signal));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::signal::{SI_QUEUE, SI_TKILL};
    use base::quota::Kind;
    use proptest::prelude::*;

    fn room() -> Option<Charge> {
        Charge::new(77, Kind::PendingSignals, 1, u32::MAX)
    }

    fn real_time(value: u64) -> SignalInfo {
        let signal = Signal::new(40).unwrap();
        SignalInfo { code: SI_QUEUE, fields: [0, value, 0, 0], ..SignalInfo::unknown(signal) }
    }

    #[test]
    fn a_standard_signal_is_pending_once() {
        let mut queue = PendingQueue::new();
        assert_eq!(queue.push(SignalInfo::kill(Signal::SIGUSR1, 1, 0), room()), Queued::Added);
        assert_eq!(queue.push(SignalInfo::kill(Signal::SIGUSR1, 2, 0), room()), Queued::Merged);
        assert_eq!(queue.take_next(SignalSet::EMPTY).unwrap().fields[0], 1);
        assert!(queue.take_next(SignalSet::EMPTY).is_none());
    }

    #[test]
    fn real_time_signals_queue_in_order() {
        let mut queue = PendingQueue::new();
        for value in 0..3 {
            assert_eq!(queue.push(real_time(value), room()), Queued::Added);
        }
        for value in 0..3 {
            assert_eq!(queue.take_next(SignalSet::EMPTY).unwrap().fields[1], value);
        }
        assert!(queue.set().is_empty());
    }

    #[test]
    fn faults_go_first_then_the_lowest_number() {
        let mut queue = PendingQueue::new();
        for signal in [Signal::new(40).unwrap(), Signal::SIGTERM, Signal::SIGHUP, Signal::SIGSEGV] {
            let _ = queue.push(SignalInfo::kernel(signal), room());
        }
        let order: Vec<i32> = core::iter::from_fn(|| queue.take_next(SignalSet::EMPTY))
            .map(|info| info.signal.number())
            .collect();
        assert_eq!(order, [11, 1, 15, 40]);
    }

    #[test]
    fn a_fault_is_told_from_the_same_signal_sent_by_kill() {
        let mut queue = PendingQueue::new();
        let _ = queue.push(SignalInfo::kill(Signal::SIGSEGV, 5, 0), room());
        assert!(queue.take_synchronous(SignalSet::EMPTY).is_none());
        let _ = queue.push(SignalInfo::kernel(Signal::SIGFPE), room());
        let info = queue.take_synchronous(SignalSet::EMPTY).unwrap();
        assert_eq!(info.signal, Signal::SIGFPE);
        assert_eq!(queue.set(), SignalSet::of(Signal::SIGSEGV));
    }

    #[test]
    fn blocked_signals_stay() {
        let mut queue = PendingQueue::new();
        let _ = queue.push(SignalInfo::kernel(Signal::SIGINT), room());
        assert!(queue.take_next(SignalSet::of(Signal::SIGINT)).is_none());
        assert!(queue.set().contains(Signal::SIGINT));
    }

    #[test]
    fn without_quota_a_queued_value_is_refused_and_a_kill_loses_its_sender() {
        let mut queue = PendingQueue::new();
        assert_eq!(queue.push(real_time(1), None), Queued::Full);
        let thread_directed = SignalInfo::tkill(Signal::SIGUSR1, 9, 0);
        assert_eq!(thread_directed.code, SI_TKILL);
        assert_eq!(queue.push(thread_directed, None), Queued::WithoutInfo);
        let info = queue.take_next(SignalSet::EMPTY).unwrap();
        assert_eq!(info, SignalInfo::unknown(Signal::SIGUSR1));
    }

    #[test]
    fn what_is_taken_or_discarded_is_given_back() {
        let held = || base::quota::held(78, Kind::PendingSignals);
        let room = || Charge::new(78, Kind::PendingSignals, 1, u32::MAX);
        let mut queue = PendingQueue::new();
        for value in 0..3 {
            assert_eq!(queue.push(real_time(value), room()), Queued::Added);
        }
        assert_eq!(queue.push(SignalInfo::kill(Signal::SIGUSR1, 1, 0), room()), Queued::Added);
        assert_eq!(queue.push(SignalInfo::kill(Signal::SIGUSR1, 2, 0), room()), Queued::Merged);
        assert_eq!(held(), 4);
        assert!(queue.take_next(SignalSet::EMPTY).is_some());
        assert_eq!(held(), 3);
        queue.discard(SignalSet::of(Signal::new(40).unwrap()));
        assert_eq!(held(), 0);
    }

    #[test]
    fn the_kernels_own_signals_need_no_quota() {
        let mut queue = PendingQueue::new();
        assert_eq!(queue.push(SignalInfo::kernel(Signal::SIGCHLD), None), Queued::Added);
    }

    proptest! {
        #[test]
        fn the_set_always_tells_what_can_be_taken(numbers in prop::collection::vec(1..=64i32, 0..80)) {
            let mut queue = PendingQueue::new();
            let mut expected = [0usize; 65];
            for number in numbers {
                let signal = Signal::new(number).unwrap();
                let _ = queue.push(SignalInfo::kernel(signal), room());
                let count = &mut expected[signal.index()];
                *count = if signal.is_real_time() { *count + 1 } else { 1 };
            }
            while let Some(info) = queue.take_next(SignalSet::EMPTY) {
                prop_assert!(expected[info.signal.index()] > 0);
                expected[info.signal.index()] -= 1;
                prop_assert_eq!(queue.set().contains(info.signal), expected[info.signal.index()] > 0);
            }
            prop_assert!(expected.iter().all(|count| *count == 0));
        }
    }
}
