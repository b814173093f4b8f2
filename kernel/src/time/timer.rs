//! Timers: a due time on a clock, a period, and expiries that nobody has taken note of yet; and the
//! task that looks at timers when they are due.
//!
//! A `Timer` is plain data under its owner's lock: the interval timers and the `timer_create` timers of
//! a process, and each timerfd. The owner implements `Ticking`; its `Ticker` keeps one kernel task for
//! as long as something is armed. Periods are counted from the expiry that was due, not from the moment
//! somebody looked, so they do not drift.

use alloc::sync::{Arc, Weak};
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::Poll;

use abi::Errno;
use base::cpu::CpuId;
use base::sync::{LockClass, Mutex};
use base::wait::WaitQueue;
use base::{task, time};

use super::Clock;
use super::clock::{settings, wall_set_since};

/// How often processor time is looked at when little is left.
pub const PROCESSOR_TIME_GRAIN_NS: u64 = 2_000_000;

/// What a timer is set to, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Setting {
    /// Time to the next expiry; 0 when it is disarmed.
    pub value_ns: u64,
    /// Period; 0 for once.
    pub interval_ns: u64,
}

/// A timer, in the time of some clock.
#[derive(Clone, Copy, Default, Debug)]
pub struct Timer {
    /// The next expiry.
    pub due_ns: Option<u64>,
    /// Period; 0 for once.
    pub interval_ns: u64,
}

impl Timer {
    /// Set from now on; a value of 0 disarms it.
    pub fn relative(setting: Setting, now_ns: u64) -> Timer {
        Timer {
            due_ns: (setting.value_ns != 0).then(|| now_ns.saturating_add(setting.value_ns)),
            interval_ns: setting.interval_ns,
        }
    }

    /// Set to a time of the clock; a value of 0 disarms it.
    pub fn absolute(setting: Setting) -> Timer {
        Timer {
            due_ns: (setting.value_ns != 0).then_some(setting.value_ns),
            interval_ns: setting.interval_ns,
        }
    }

    /// How often the timer has expired since it was due; then it is set to its next expiry, or
    /// disarmed.
    pub fn expire(&mut self, now_ns: u64) -> u64 {
        let Some(due_ns) = self.due_ns.filter(|due_ns| *due_ns <= now_ns) else { return 0 };
        let Some(missed) = (now_ns - due_ns).checked_div(self.interval_ns) else {
            self.due_ns = None;
            return 1;
        };
        let count = missed.saturating_add(1);
        self.due_ns =
            count.checked_mul(self.interval_ns).and_then(|span_ns| due_ns.checked_add(span_ns));
        count
    }

    /// What it is set to. An expiry that is due and was not taken note of counts as very soon.
    pub fn setting(&self, now_ns: u64) -> Setting {
        Setting {
            value_ns: self.due_ns.map_or(0, |due_ns| due_ns.saturating_sub(now_ns).max(1)),
            interval_ns: self.interval_ns,
        }
    }
}

/// When to look at something again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NextLook {
    /// Not later than this, in the time of `base::time::now_ns`; `None` for never.
    pub at_ns: Option<u64>,
    /// As soon as the wall clock is set.
    pub on_setting: bool,
}

impl NextLook {
    /// Looks at a timer of `clock` when it is due. A timer that is set to a time of the wall clock
    /// comes earlier or later when that clock is set; processor time does not run faster than time.
    pub fn at_due(&mut self, timer: &Timer, clock: &Clock) {
        self.at_due_from(timer, clock, clock.now_ns());
    }

    /// As `at_due`, when the clock shows `now_ns`.
    pub fn at_due_from(&mut self, timer: &Timer, clock: &Clock, now_ns: u64) {
        let Some(due_ns) = timer.due_ns else { return };
        let left_ns = due_ns.saturating_sub(now_ns);
        let left_ns = match clock {
            Clock::Process(..) | Clock::Thread(..) => left_ns.max(PROCESSOR_TIME_GRAIN_NS),
            Clock::Monotonic { .. } => left_ns,
            Clock::Wall { .. } => {
                self.on_setting = true;
                left_ns
            }
        };
        self.at(time::now_ns().saturating_add(left_ns));
    }

    /// Looks at this time.
    pub fn at(&mut self, at_ns: u64) {
        self.at_ns = Some(self.at_ns.map_or(at_ns, |present_ns| present_ns.min(at_ns)));
    }

    fn is_never(&self) -> bool {
        self.at_ns.is_none()
    }
}

/// Who has timers.
pub trait Ticking: Send + Sync + 'static {
    /// Takes note of what has expired, and says when to look again.
    fn tick(self: &Arc<Self>) -> NextLook;
    /// The ticker of this owner.
    fn ticker(&self) -> &Ticker;
}

/// The task of an owner of timers; there while something is armed.
pub struct Ticker {
    task: Mutex<Option<Arc<Alarm>>>,
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

impl Ticker {
    /// Nothing is armed. The lock of this class comes before no other.
    pub const fn new(class: &'static LockClass) -> Ticker {
        Ticker { task: Mutex::new(class, None) }
    }

    /// The timers of `owner` have changed: its task looks at them, and is made if it is not there.
    ///
    /// # Errors
    /// `ENOMEM` when the task cannot be made.
    pub fn update<T: Ticking>(owner: &Arc<T>) -> Result<(), Errno> {
        let ticker = owner.ticker();
        let (alarm, is_new) = {
            let mut task = ticker.task.lock();
            match &*task {
                Some(alarm) => (alarm.clone(), false),
                None => {
                    let alarm =
                        Arc::new(Alarm { changes: AtomicU64::new(0), changed: WaitQueue::new() });
                    *task = Some(alarm.clone());
                    (alarm, true)
                }
            }
        };
        if !is_new {
            alarm.notify();
        } else if let Err(error) =
            task::spawn(CpuId::current(), keep_time(Arc::downgrade(owner), alarm))
        {
            drop(ticker.task.lock().take());
            return Err(error.into());
        }
        Ok(())
    }

    /// The timers have changed: the task looks at them, if it is there. Nothing has been armed.
    pub fn note_change(&self) {
        let alarm = self.task.lock().clone();
        if let Some(alarm) = alarm {
            alarm.notify();
        }
    }

    /// Ends the task.
    pub fn stop(&self) {
        let alarm = self.task.lock().take();
        if let Some(alarm) = alarm {
            alarm.notify();
        }
    }

    fn is_current(&self, alarm: &Arc<Alarm>) -> bool {
        self.task.lock().as_ref().is_some_and(|task| Arc::ptr_eq(task, alarm))
    }

    /// The task ends, unless a change came since it looked.
    fn end(&self, alarm: &Arc<Alarm>, changes: u64) -> bool {
        let mut task = self.task.lock();
        if alarm.changes.load(Ordering::Acquire) != changes {
            return false;
        }
        let ended = task.take_if(|task| Arc::ptr_eq(task, alarm));
        drop(task);
        drop(ended);
        true
    }
}

/// The task of an owner.
async fn keep_time<T: Ticking>(owner: Weak<T>, alarm: Arc<Alarm>) {
    loop {
        let changes = alarm.changes.load(Ordering::Acquire);
        let seen = settings();
        let next = {
            let Some(owner) = owner.upgrade() else { return };
            if !owner.ticker().is_current(&alarm) {
                return;
            }
            let next = owner.tick();
            if next.is_never() {
                if owner.ticker().end(&alarm, changes) {
                    return;
                }
                continue;
            }
            next
        };
        let mut changed = pin!(
            alarm
                .changed
                .wait_until(|| (alarm.changes.load(Ordering::Acquire) != changes).then_some(()))
        );
        let mut wall_set = pin!(wall_set_since(seen));
        let either = poll_fn(|context| {
            if changed.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            if next.on_setting { wall_set.as_mut().poll(context) } else { Poll::Pending }
        });
        let _ = time::with_deadline(either, next.at_ns).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_without_a_period_expires_once() {
        let mut timer = Timer { due_ns: Some(10), interval_ns: 0 };
        assert_eq!(timer.expire(9), 0);
        assert_eq!(timer.expire(10), 1);
        assert_eq!(timer.expire(1000), 0);
        assert_eq!(timer.setting(1000), Setting::default());
    }

    #[test]
    fn a_period_does_not_drift_and_missed_expiries_are_counted() {
        let mut timer = Timer { due_ns: Some(100), interval_ns: 10 };
        assert_eq!(timer.expire(103), 1);
        assert_eq!(timer.due_ns, Some(110));
        assert_eq!(timer.expire(135), 3);
        assert_eq!(timer.due_ns, Some(140));
    }

    #[test]
    fn a_huge_period_disarms_instead_of_overflowing() {
        let mut timer = Timer { due_ns: Some(100), interval_ns: u64::MAX };
        assert_eq!(timer.expire(100), 1);
        assert_eq!(timer.due_ns, None);
    }

    #[test]
    fn a_value_of_nothing_disarms() {
        let setting = Setting { value_ns: 0, interval_ns: 5 };
        assert_eq!(Timer::relative(setting, 100).due_ns, None);
        assert_eq!(Timer::absolute(setting).due_ns, None);
        let setting = Setting { value_ns: 7, interval_ns: 0 };
        assert_eq!(Timer::relative(setting, 100).due_ns, Some(107));
        assert_eq!(Timer::absolute(setting).setting(5).value_ns, 2);
    }
}
