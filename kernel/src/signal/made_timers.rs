//! Timers of `timer_create`.
//!
//! An expiry queues one signal. Until that is delivered the timer rests; expiries that were due
//! meanwhile are its overruns. A signal that is not kept, because it is ignored or merged into one
//! that is pending, lets the timer run on.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use abi::Errno;
use abi::signal::{SI_TIMER, Signal};
use base::heap::tree;

use super::info::SignalInfo;
use super::send::{queue_for_process, queue_for_thread};
use crate::process::{Process, Resource, Thread};
use crate::time::Clock;
use crate::time::timer::{NextLook, Setting, Ticker, Timer};

/// What an expiry does.
#[derive(Clone)]
pub enum Notice {
    /// Nothing: the program asks.
    None,
    /// A signal for the process.
    Process(Signal),
    /// A signal for one thread of the process.
    Thread(Signal, Weak<Thread>),
}

/// A timer that a program has made.
struct MadeTimer {
    clock: Clock,
    /// What it runs on as it is set now: a span is the same whatever the wall clock is set to.
    base: Clock,
    timer: Timer,
    notice: Notice,
    /// `si_value`.
    value: u64,
    /// Its signal is queued.
    is_queued: bool,
    overruns: u64,
    /// Overruns of the signal that was delivered last.
    reported_overruns: u64,
}

/// The timers of one process by number.
#[derive(Default)]
pub(super) struct MadeTimers {
    timers: BTreeMap<i32, MadeTimer>,
    next_id: i32,
}

/// An expiry whose signal is to be sent.
pub(super) struct Expiry {
    id: i32,
    notice: Notice,
    value: u64,
}

impl Expiry {
    /// Queues the signal; false when it was not kept.
    pub(super) fn send(&self, process: &Arc<Process>) -> bool {
        let info = |signal| SignalInfo::timer(signal, self.id, 0, self.value);
        let sent = match &self.notice {
            Notice::None => Ok(false),
            Notice::Process(signal) => queue_for_process(process, info(*signal)),
            Notice::Thread(signal, thread) => match thread.upgrade() {
                Some(thread) => queue_for_thread(&thread, info(*signal)),
                None => Ok(false),
            },
        };
        sent.unwrap_or(false)
    }
}

fn clamped(overruns: u64) -> i32 {
    i32::try_from(overruns).unwrap_or(i32::MAX)
}

impl MadeTimers {
    /// The clocks of armed timers that are looked at.
    pub(super) fn clocks(&self) -> Vec<(i32, Clock)> {
        let armed = self.timers.iter().filter(|(_, timer)| timer.timer.due_ns.is_some());
        armed.map(|(id, timer)| (*id, timer.base.clone())).collect()
    }

    /// Takes note of expiries at these times of the timers' clocks.
    pub(super) fn expire(&mut self, times: &[(i32, u64)], next: &mut NextLook) -> Vec<Expiry> {
        let mut expiries = Vec::new();
        for (id, now_ns) in times {
            let Some(made) = self.timers.get_mut(id) else { continue };
            if made.is_queued || matches!(made.notice, Notice::None) {
                continue;
            }
            let count = made.timer.expire(*now_ns);
            if count > 0 {
                made.overruns = made.overruns.saturating_add(count - 1);
                made.is_queued = true;
                expiries.push(Expiry { id: *id, notice: made.notice.clone(), value: made.value });
            } else {
                next.at_due_from(&made.timer, &made.base, *now_ns);
            }
        }
        expiries
    }

    /// The signal of an expiry was not kept.
    pub(super) fn was_dropped(&mut self, expiry: &Expiry) {
        if let Some(made) = self.timers.get_mut(&expiry.id) {
            made.is_queued = false;
        }
    }

    fn get(&mut self, id: i32) -> Result<&mut MadeTimer, Errno> {
        self.timers.get_mut(&id).ok_or(Errno::EINVAL)
    }
}

impl MadeTimer {
    /// What it is set to when its clock shows `now_ns`.
    fn setting(&self, now_ns: u64) -> Setting {
        let mut timer = self.timer;
        if self.is_queued || matches!(self.notice, Notice::None) {
            timer.expire(now_ns);
        }
        timer.setting(now_ns)
    }
}

/// Makes a timer; its number. `EAGAIN` when the process has as many as it may queue signals.
pub fn create(
    process: &Arc<Process>,
    clock: Clock,
    notice: Notice,
    value: Option<u64>,
) -> Result<i32, Errno> {
    let most = process.limits.soft(Resource::PendingSignals);
    process.signals.timers.with_made(|made| {
        if made.timers.len() as u64 >= most {
            return Err(Errno::EAGAIN);
        }
        while made.timers.contains_key(&made.next_id) {
            made.next_id = made.next_id.checked_add(1).unwrap_or(0);
        }
        let id = made.next_id;
        made.next_id = id.checked_add(1).unwrap_or(0);
        let timer = MadeTimer {
            base: clock.clone(),
            clock,
            timer: Timer::default(),
            notice,
            value: value.unwrap_or(u64::from(id.unsigned_abs())),
            is_queued: false,
            overruns: 0,
            reported_overruns: 0,
        };
        tree::insert(&mut made.timers, id, timer);
        Ok(id)
    })
}

/// Sets a timer; what it was set to. `EINVAL` when there is none of this number.
pub fn set(
    process: &Arc<Process>,
    id: i32,
    new: Setting,
    is_absolute: bool,
) -> Result<Setting, Errno> {
    let old = get(process, id)?;
    let clock =
        process.signals.timers.with_made(|made| made.get(id).map(|made| made.clock.clone()))?;
    let base = match clock {
        Clock::Wall { .. } if !is_absolute => Clock::Monotonic { sleeps: true, coarse: false },
        clock => clock,
    };
    let now_ns = base.now_ns();
    process.signals.timers.with_made(|made| {
        let made = made.get(id)?;
        made.timer = if is_absolute { Timer::absolute(new) } else { Timer::relative(new, now_ns) };
        made.base = base;
        made.overruns = 0;
        made.reported_overruns = 0;
        Ok::<(), Errno>(())
    })?;
    Ticker::update(process)?;
    Ok(old)
}

/// What a timer is set to. `EINVAL` when there is none of this number.
pub fn get(process: &Arc<Process>, id: i32) -> Result<Setting, Errno> {
    let base =
        process.signals.timers.with_made(|made| made.get(id).map(|made| made.base.clone()))?;
    let now_ns = base.now_ns();
    process.signals.timers.with_made(|made| made.get(id).map(|made| made.setting(now_ns)))
}

/// Overruns of the signal that was delivered last. `EINVAL` when there is no such timer.
pub fn overruns(process: &Arc<Process>, id: i32) -> Result<i32, Errno> {
    process
        .signals
        .timers
        .with_made(|made| made.get(id).map(|made| clamped(made.reported_overruns)))
}

/// Removes a timer. `EINVAL` when there is none of this number.
pub fn delete(process: &Arc<Process>, id: i32) -> Result<(), Errno> {
    let removed = process.signals.timers.with_made(|made| made.timers.remove(&id));
    removed.map(drop).ok_or(Errno::EINVAL)
}

/// A signal was taken out of a queue: if it is of a timer, that goes on, and the signal says how
/// often the timer expired meanwhile.
pub fn note_delivery(process: &Arc<Process>, info: SignalInfo) -> SignalInfo {
    if info.code != SI_TIMER {
        return info;
    }
    let Some((id, _)) = info.timer_and_overruns() else { return info };
    let base = process.signals.timers.with_made(|made| {
        made.get(id).ok().filter(|made| made.is_queued).map(|made| made.base.clone())
    });
    let Some(base) = base else { return info };
    let now_ns = base.now_ns();
    let overruns = process.signals.timers.with_made(|made| {
        let made = made.get(id).ok()?;
        made.is_queued = false;
        let missed = made.timer.expire(now_ns);
        made.reported_overruns = core::mem::take(&mut made.overruns).saturating_add(missed);
        Some(clamped(made.reported_overruns))
    });
    // Without memory for the task the timer rests.
    let _ = Ticker::update(process);
    SignalInfo::timer(info.signal, id, overruns.unwrap_or(0), info.fields[1])
}
