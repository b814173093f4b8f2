//! Interval timers: `setitimer`, `getitimer` and `alarm`; and the limit of processor time.
//!
//! A process that has armed a timer has one kernel task that sleeps until the next expiry and sends
//! the signal; it ends when no timer is armed. Periods are counted from the expiry that was due, not
//! from the moment of delivery, so they do not drift.
//!
//! The virtual and the profiling timer count processor time. The task sleeps for what is left at
//! least, then looks again: so they expire late by some milliseconds at most, never early, and a
//! process without such timers pays nothing.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use abi::process::RLIM_INFINITY;
use abi::signal::Signal;
use abi::time::NANOSECONDS;
use base::cpu::CpuId;
use base::sync::Mutex;
use base::wait::WaitQueue;
use base::{task, time};

use super::info::SignalInfo;
use super::ranks::TIMERS;
use super::send::send_to_process;
use crate::process::{Process, Resource};

/// Which timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// Wall time: `SIGALRM`.
    Real,
    /// User time: `SIGVTALRM`.
    Virtual,
    /// User and system time: `SIGPROF`.
    Profiling,
}

const ALL: [Which; 3] = [Which::Real, Which::Virtual, Which::Profiling];

/// How often processor time is looked at when little is left.
const PROCESSOR_TIME_GRAIN_NS: u64 = 2_000_000;

impl Which {
    /// The timer of this number.
    ///
    /// # Errors
    /// `EINVAL` when there is none.
    pub fn new(number: i32) -> Result<Which, Errno> {
        usize::try_from(number).ok().and_then(|n| ALL.get(n)).copied().ok_or(Errno::EINVAL)
    }

    fn signal(self) -> Signal {
        match self {
            Which::Real => Signal::SIGALRM,
            Which::Virtual => Signal::SIGVTALRM,
            Which::Profiling => Signal::SIGPROF,
        }
    }

    /// The clock that the timer runs on.
    fn now_ns(self, process: &Process) -> u64 {
        match self {
            Which::Real => time::now_ns(),
            Which::Virtual => process.usage().user_ns,
            Which::Profiling => {
                let usage = process.usage();
                usage.user_ns.saturating_add(usage.system_ns)
            }
        }
    }
}

/// What a timer is set to, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Setting {
    /// Time to the next expiry; 0 when it is disarmed.
    pub value_ns: u64,
    /// Period; 0 for once.
    pub interval_ns: u64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Timer {
    /// Time of the next expiry on the timer's clock.
    due_ns: Option<u64>,
    interval_ns: u64,
}

impl Timer {
    /// Whether the timer expires now; then it is set to its next expiry, or disarmed.
    fn expire(&mut self, now_ns: u64) -> bool {
        let Some(due_ns) = self.due_ns.filter(|due_ns| *due_ns <= now_ns) else { return false };
        self.due_ns = (now_ns - due_ns).checked_div(self.interval_ns).and_then(|missed| {
            due_ns.checked_add(missed.checked_add(1)?.checked_mul(self.interval_ns)?)
        });
        true
    }

    fn setting(&self, now_ns: u64) -> Setting {
        Setting {
            // An expiry that is due but not yet delivered counts as very soon, as on Linux.
            value_ns: self.due_ns.map_or(0, |due_ns| due_ns.saturating_sub(now_ns).max(1000)),
            interval_ns: self.interval_ns,
        }
    }
}

/// The three timers of a process. The lock guards all fields of `State`.
pub struct IntervalTimers {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    timers: [Timer; 3],
    /// There while the task of this process exists: woken when a timer was changed.
    task: Option<Arc<Alarm>>,
    /// The process has a limit of processor time, or had one when it was last looked at.
    watches_limit: bool,
    /// Whole seconds of processor time at the last `SIGXCPU`.
    warned_seconds: Option<u64>,
}

/// The limit of processor time of a process, in seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ProcessorLimit {
    /// `SIGXCPU` comes here and each second after.
    soft: u64,
    /// `SIGKILL` comes here.
    hard: u64,
}

impl ProcessorLimit {
    /// `None` when there is no limit.
    fn of(process: &Process) -> Option<ProcessorLimit> {
        let limit = process.limits.get(Resource::Cpu);
        let (soft, hard) = (limit.soft, limit.hard);
        (soft != RLIM_INFINITY || hard != RLIM_INFINITY).then_some(ProcessorLimit { soft, hard })
    }

    /// The signal that is due after `used_ns`, given when the last warning was, and the processor
    /// time at which to look again.
    fn look(self, used_ns: u64, warned_seconds: Option<u64>) -> (Option<Signal>, u64) {
        let used = used_ns / NANOSECONDS;
        let next = if used < self.soft { self.soft.min(self.hard) } else { used + 1 };
        let signal = if used >= self.hard {
            Some(Signal::SIGKILL)
        } else if used >= self.soft && warned_seconds != Some(used) {
            Some(Signal::SIGXCPU)
        } else {
            None
        };
        (signal, next.saturating_mul(NANOSECONDS))
    }
}

struct Alarm {
    /// Counts changes of the timers.
    changes: AtomicU64,
    changed: WaitQueue,
}

impl Alarm {
    fn notify(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.changed.wake_all();
    }
}

impl IntervalTimers {
    pub(super) fn new() -> IntervalTimers {
        IntervalTimers { state: Mutex::new(&TIMERS, State::default()) }
    }

    /// What a timer is set to.
    pub fn get(&self, process: &Process, which: Which) -> Setting {
        let now_ns = which.now_ns(process);
        self.state.lock().timers[which as usize].setting(now_ns)
    }

    /// Sets a timer and returns what it was set to.
    ///
    /// # Errors
    /// `ENOMEM` when the task that keeps the time cannot be made.
    pub fn set(
        &self,
        process: &Arc<Process>,
        which: Which,
        new: Setting,
    ) -> Result<Setting, Errno> {
        let now_ns = which.now_ns(process);
        let timer = Timer {
            due_ns: (new.value_ns != 0).then(|| now_ns.saturating_add(new.value_ns)),
            interval_ns: new.interval_ns,
        };
        let old = {
            let mut state = self.state.lock();
            core::mem::replace(&mut state.timers[which as usize], timer).setting(now_ns)
        };
        self.keep_time(process)?;
        Ok(old)
    }

    /// Holds the process to its limit of processor time (`RLIMIT_CPU`) from now on, if it has one.
    ///
    /// # Errors
    /// `ENOMEM` when the task that keeps the time cannot be made.
    pub fn watch_limit(&self, process: &Arc<Process>) -> Result<(), Errno> {
        if ProcessorLimit::of(process).is_none() {
            return Ok(());
        }
        self.state.lock().watches_limit = true;
        self.keep_time(process)
    }

    /// Makes the task of this process look at the timers, or starts it if there is something to do.
    fn keep_time(&self, process: &Arc<Process>) -> Result<(), Errno> {
        let (alarm, is_new) = {
            let mut state = self.state.lock();
            let is_armed = state.timers.iter().any(|timer| timer.due_ns.is_some());
            match &state.task {
                Some(alarm) => (alarm.clone(), false),
                None if is_armed || state.watches_limit => {
                    let alarm =
                        Arc::new(Alarm { changes: AtomicU64::new(0), changed: WaitQueue::new() });
                    state.task = Some(alarm.clone());
                    (alarm, true)
                }
                None => return Ok(()),
            }
        };
        if !is_new {
            alarm.notify();
        } else if let Err(error) =
            task::spawn(CpuId::current(), keep_time(Arc::downgrade(process), alarm))
        {
            self.cancel();
            return Err(error.into());
        }
        Ok(())
    }

    /// Disarms all timers: the process ends.
    pub fn cancel(&self) {
        let task = {
            let mut state = self.state.lock();
            state.timers = Default::default();
            state.watches_limit = false;
            state.task.take()
        };
        if let Some(alarm) = task {
            alarm.notify();
        }
    }

    /// Takes note of expiries: the signals to send, and how long to sleep until the next look.
    /// `None` when no timer is armed; then the task is no longer the process's.
    fn look(&self, process: &Process, alarm: &Arc<Alarm>) -> Option<(Vec<Signal>, u64)> {
        let now_ns = ALL.map(|which| which.now_ns(process));
        let [wall_ns, _, used_ns] = now_ns;
        let limit = ProcessorLimit::of(process);
        let mut state = self.state.lock();
        if !state.task.as_ref().is_some_and(|task| Arc::ptr_eq(task, alarm)) {
            return None;
        }
        let mut expired = Vec::new();
        let mut next_ns = None::<u64>;
        let mut look_at = |look_ns: u64| {
            next_ns = Some(next_ns.map_or(look_ns, |next_ns| next_ns.min(look_ns)));
        };
        let not_before = |due_ns: u64, now_ns: u64| {
            wall_ns.saturating_add(due_ns.saturating_sub(now_ns).max(PROCESSOR_TIME_GRAIN_NS))
        };
        for ((timer, which), now_ns) in state.timers.iter_mut().zip(ALL).zip(now_ns) {
            if timer.expire(now_ns) {
                expired.push(which.signal());
            }
            if let Some(due_ns) = timer.due_ns {
                look_at(if which == Which::Real { due_ns } else { not_before(due_ns, now_ns) });
            }
        }
        state.watches_limit &= limit.is_some();
        if state.watches_limit
            && let Some(limit) = limit
        {
            let (signal, due_ns) = limit.look(used_ns, state.warned_seconds);
            if signal.is_some() {
                state.warned_seconds = Some(used_ns / NANOSECONDS);
            }
            expired.extend(signal);
            look_at(not_before(due_ns, used_ns));
        }
        if next_ns.is_none() {
            state.task = None;
        }
        // With nothing armed any more, the signals of this look are still to be sent.
        Some((expired, next_ns.unwrap_or(0)))
    }
}

/// The task of a process with armed timers.
async fn keep_time(process: Weak<Process>, alarm: Arc<Alarm>) {
    loop {
        let changes = alarm.changes.load(Ordering::Acquire);
        let next_ns = {
            let Some(process) = process.upgrade() else { return };
            let timers = &process.signals.timers;
            let Some((expired, next_ns)) = timers.look(&process, &alarm) else { return };
            for signal in expired {
                let _ = send_to_process(&process, SignalInfo::kernel(signal));
            }
            next_ns
        };
        if next_ns == 0 {
            return;
        }
        let changed = alarm
            .changed
            .wait_until(|| (alarm.changes.load(Ordering::Acquire) != changes).then_some(()));
        let _ = time::with_deadline(changed, Some(next_ns)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_without_a_period_expires_once() {
        let mut timer = Timer { due_ns: Some(10), interval_ns: 0 };
        assert!(!timer.expire(9));
        assert!(timer.expire(10));
        assert!(!timer.expire(1000));
        assert_eq!(timer.setting(1000), Setting::default());
    }

    #[test]
    fn a_period_does_not_drift_and_merges_missed_expiries() {
        let mut timer = Timer { due_ns: Some(100), interval_ns: 10 };
        assert!(timer.expire(103));
        assert_eq!(timer.due_ns, Some(110));
        assert!(timer.expire(135));
        assert_eq!(timer.due_ns, Some(140));
    }

    #[test]
    fn a_huge_period_disarms_instead_of_overflowing() {
        let mut timer = Timer { due_ns: Some(100), interval_ns: u64::MAX };
        assert!(timer.expire(100));
        assert_eq!(timer.due_ns, None);
    }

    #[test]
    fn a_limit_of_processor_time_warns_each_second_and_then_kills() {
        let limit = ProcessorLimit { soft: 2, hard: 4 };
        let second = NANOSECONDS;
        assert_eq!(limit.look(second, None), (None, 2 * second));
        assert_eq!(limit.look(2 * second + 5, None), (Some(Signal::SIGXCPU), 3 * second));
        assert_eq!(limit.look(2 * second + 9, Some(2)), (None, 3 * second));
        assert_eq!(limit.look(3 * second, Some(2)), (Some(Signal::SIGXCPU), 4 * second));
        assert_eq!(limit.look(4 * second, Some(3)).0, Some(Signal::SIGKILL));
    }

    #[test]
    fn a_hard_limit_alone_kills_without_a_warning() {
        let limit = ProcessorLimit { soft: 1, hard: 1 };
        assert_eq!(limit.look(NANOSECONDS, None).0, Some(Signal::SIGKILL));
    }

    #[test]
    fn numbers_name_the_timers() {
        assert_eq!(Which::new(2), Ok(Which::Profiling));
        assert_eq!(Which::new(3), Err(Errno::EINVAL));
        assert_eq!(Which::new(-1), Err(Errno::EINVAL));
    }
}
