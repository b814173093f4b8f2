//! The timers of a process that send signals: `setitimer` and `alarm`, those that `timer_create`
//! makes (`made`), and the limit of processor time.
//!
//! A process that has armed a timer has one kernel task that sleeps until the next expiry and sends
//! the signal (`time::timer`); it ends when no timer is armed.
//!
//! The virtual and the profiling timer count processor time. The task sleeps for what is left at
//! least, then looks again: so they expire late by some milliseconds at most, never early, and a
//! process without such timers pays nothing.

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use abi::process::RLIM_INFINITY;
use abi::signal::Signal;
use abi::time::NANOSECONDS;
use base::sync::Mutex;
use base::time;

use super::info::SignalInfo;
use super::made_timers::{Expiry, MadeTimers};
use super::ranks::TIMERS;
use super::send::send_to_process;
use crate::process::{Process, Resource};
use crate::time::timer::{NextLook, PROCESSOR_TIME_GRAIN_NS, Setting, Ticker, Ticking, Timer};

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

/// The timers of a process. The lock guards all fields of `State`.
pub struct ProcessTimers {
    state: Mutex<State>,
    ticker: Ticker,
}

#[derive(Default)]
struct State {
    interval: [Timer; 3],
    /// The process has a limit of processor time, or had one when it was last looked at.
    watches_limit: bool,
    /// Whole seconds of processor time at the last `SIGXCPU`.
    warned_seconds: Option<u64>,
    made: MadeTimers,
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

impl ProcessTimers {
    pub(super) fn new() -> ProcessTimers {
        ProcessTimers { state: Mutex::new(&TIMERS, State::default()), ticker: Ticker::new(&TIMERS) }
    }

    /// What an interval timer is set to.
    pub fn get(&self, process: &Process, which: Which) -> Setting {
        let now_ns = which.now_ns(process);
        coarse(self.state.lock().interval[which as usize].setting(now_ns))
    }

    /// Sets an interval timer and returns what it was set to.
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
        let timer = Timer::relative(new, now_ns);
        let old = {
            let mut state = self.state.lock();
            core::mem::replace(&mut state.interval[which as usize], timer).setting(now_ns)
        };
        if timer.due_ns.is_some() {
            Ticker::update(process)?;
        } else {
            self.ticker.note_change();
        }
        Ok(coarse(old))
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
        Ticker::update(process)
    }

    /// Calls `act` with the timers of `timer_create`.
    pub(super) fn with_made<R>(&self, act: impl FnOnce(&mut MadeTimers) -> R) -> R {
        act(&mut self.state.lock().made)
    }

    /// What `execve` changes: timers of `timer_create` are gone.
    pub fn after_exec(&self) {
        let made = core::mem::take(&mut self.state.lock().made);
        drop(made);
    }

    /// Disarms all timers: the process ends.
    pub fn cancel(&self) {
        let made = {
            let mut state = self.state.lock();
            state.interval = Default::default();
            state.watches_limit = false;
            core::mem::take(&mut state.made)
        };
        drop(made);
        self.ticker.stop();
    }

    /// Takes note of expiries: the signals to send, and when to look again.
    fn look(&self, process: &Process) -> (Vec<Signal>, Vec<Expiry>, NextLook) {
        let now_ns = ALL.map(|which| which.now_ns(process));
        let [wall_ns, _, used_ns] = now_ns;
        let limit = ProcessorLimit::of(process);
        let mut next = NextLook::default();
        let mut expired = Vec::new();
        let not_before = |due_ns: u64, now_ns: u64| {
            wall_ns.saturating_add(due_ns.saturating_sub(now_ns).max(PROCESSOR_TIME_GRAIN_NS))
        };
        // Its clocks ask the process, whose lock comes before ours.
        let due = self.state.lock().made.clocks();
        let times = due.into_iter().map(|(id, clock)| (id, clock.now_ns())).collect::<Vec<_>>();
        let mut state = self.state.lock();
        for ((timer, which), now_ns) in state.interval.iter_mut().zip(ALL).zip(now_ns) {
            if timer.expire(now_ns) > 0 {
                expired.push(which.signal());
            }
            if let Some(due_ns) = timer.due_ns {
                next.at(if which == Which::Real { due_ns } else { not_before(due_ns, now_ns) });
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
            next.at(not_before(due_ns, used_ns));
        }
        let expiries = state.made.expire(&times, &mut next);
        (expired, expiries, next)
    }
}

/// `setitimer` counts in microseconds: an expiry that is due is one away.
fn coarse(setting: Setting) -> Setting {
    let value_ns = if setting.value_ns == 0 { 0 } else { setting.value_ns.max(1000) };
    Setting { value_ns, ..setting }
}

impl Ticking for Process {
    fn tick(self: &Arc<Self>) -> NextLook {
        let timers = &self.signals.timers;
        let (expired, expiries, mut next) = timers.look(self);
        for signal in expired {
            let _ = send_to_process(self, SignalInfo::kernel(signal));
        }
        for expiry in expiries {
            if !expiry.send(self) {
                // Ignored, or merged into one that is pending: the timer runs on by itself.
                timers.with_made(|made| made.was_dropped(&expiry));
                next.at(time::now_ns());
            }
        }
        next
    }

    fn ticker(&self) -> &Ticker {
        &self.signals.timers.ticker
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
