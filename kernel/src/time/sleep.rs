//! Sleeping on a clock, interruptible by signals.

use alloc::boxed::Box;

use base::time;

use super::clock::{self, Clock};
use crate::call::Caller;

/// How often processor time is looked at while somebody sleeps on it.
const PROCESSOR_TIME_GRAIN_NS: u64 = 2_000_000;

/// How a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum SleepEnd {
    /// The time came.
    Done,
    /// A signal came first.
    Interrupted,
}

/// Sleeps until a time of `base::time::now_ns`.
pub async fn sleep_span(caller: &Caller, deadline_ns: u64) -> SleepEnd {
    match Box::pin(caller.interruptible(time::sleep_until(deadline_ns))).await {
        Ok(()) => SleepEnd::Done,
        Err(_) => SleepEnd::Interrupted,
    }
}

/// Sleeps until `clock` shows `target_ns`.
pub async fn sleep_until(caller: &Caller, clock: &Clock, target_ns: u64) -> SleepEnd {
    match Box::pin(caller.interruptible(reach(clock, target_ns))).await {
        Ok(()) => SleepEnd::Done,
        Err(_) => SleepEnd::Interrupted,
    }
}

async fn reach(clock: &Clock, target_ns: u64) {
    loop {
        let settings = clock::settings();
        let left_ns = target_ns.saturating_sub(clock.now_ns());
        if left_ns == 0 {
            return;
        }
        let now_ns = time::now_ns();
        match clock {
            Clock::Monotonic { .. } => time::sleep_until(now_ns.saturating_add(left_ns)).await,
            Clock::Wall { .. } => {
                let deadline_ns = now_ns.saturating_add(left_ns);
                let set = clock::wall_set_since(settings);
                let _ = time::with_deadline(set, Some(deadline_ns)).await;
            }
            Clock::Process(..) => {
                let nap_ns = left_ns.max(PROCESSOR_TIME_GRAIN_NS);
                time::sleep_until(now_ns.saturating_add(nap_ns)).await;
            }
            Clock::Thread(..) => return,
        }
    }
}
