//! How much processor time a thread has used, at almost no cost.
//!
//! Reading the clock twice per system call would be a fair part of a short call, and there is no tick
//! to sample with. So the whole time of a thread is measured exactly, from each moment its task is
//! polled to the moment it gives up its core; and what part of it the kernel took is measured at every
//! 32nd trap and counted 32 times. User time is the rest. Both only ever grow.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use base::time::now_ns;

/// One trap in so many is timed.
const SAMPLE_INTERVAL: u32 = 32;

/// The processor time of one thread. Written by the thread's own task, read by anybody.
#[derive(Default)]
pub struct ProcessorTime {
    /// Time up to `running_since_ns`.
    used_ns: AtomicU64,
    /// When the task was polled; 0 while it is not running.
    running_since_ns: AtomicU64,
    /// Estimate of the kernel's part.
    system_ns: AtomicU64,
    /// Largest user time that was ever told.
    told_user_ns: AtomicU64,
    /// Largest system time that was ever told.
    told_system_ns: AtomicU64,
    traps: AtomicU32,
    /// Times that the task was polled; a sample across a wait is void.
    polls: AtomicU32,
}

/// A trap that is being timed.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    started_ns: u64,
    polls: u32,
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).saturating_add(amount), Ordering::Relaxed);
}

impl ProcessorTime {
    /// The thread's task has the core.
    pub fn begin(&self) {
        self.polls.store(self.polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.running_since_ns.store(now_ns().max(1), Ordering::Relaxed);
    }

    /// The thread's task gives up the core.
    pub fn end(&self) {
        let since_ns = self.running_since_ns.load(Ordering::Relaxed);
        // A reader in between counts this stretch once or not at all, and tells no less than before.
        self.running_since_ns.store(0, Ordering::Relaxed);
        add(&self.used_ns, now_ns().saturating_sub(since_ns));
    }

    /// When the task was polled, on the monotonic clock (0 while it is not running), and the processor
    /// time that it had used by then; in nanoseconds.
    pub fn run(&self) -> (u64, u64) {
        (self.running_since_ns.load(Ordering::Relaxed), self.used_ns.load(Ordering::Relaxed))
    }

    /// A trap begins. Whether it is timed is decided here.
    #[inline]
    pub fn trap(&self) -> Option<Sample> {
        let traps = self.traps.load(Ordering::Relaxed).wrapping_add(1);
        self.traps.store(traps, Ordering::Relaxed);
        if !traps.is_multiple_of(SAMPLE_INTERVAL) {
            return None;
        }
        Some(Sample { started_ns: now_ns(), polls: self.polls.load(Ordering::Relaxed) })
    }

    /// The trap was handled.
    #[inline]
    pub fn handled(&self, sample: Option<Sample>) {
        if let Some(sample) = sample
            && sample.polls == self.polls.load(Ordering::Relaxed)
        {
            let took_ns = now_ns().saturating_sub(sample.started_ns);
            add(&self.system_ns, took_ns.saturating_mul(u64::from(SAMPLE_INTERVAL)));
        }
    }

    /// User and system time so far, in nanoseconds.
    pub fn user_and_system(&self) -> (u64, u64) {
        let since_ns = self.running_since_ns.load(Ordering::Relaxed);
        let running_ns = if since_ns == 0 { 0 } else { now_ns().saturating_sub(since_ns) };
        let total_ns = self.used_ns.load(Ordering::Relaxed).saturating_add(running_ns);
        let system_ns = self.system_ns.load(Ordering::Relaxed).min(total_ns);
        let told_user_ns = self
            .told_user_ns
            .fetch_max(total_ns - system_ns, Ordering::Relaxed)
            .max(total_ns - system_ns);
        let system_ns = total_ns.saturating_sub(told_user_ns);
        let told_system_ns =
            self.told_system_ns.fetch_max(system_ns, Ordering::Relaxed).max(system_ns);
        (told_user_ns, told_system_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spin(ns: u64) {
        let end_ns = now_ns() + ns;
        while now_ns() < end_ns {}
    }

    #[test]
    fn time_without_traps_is_user_time() {
        let time = ProcessorTime::default();
        time.begin();
        spin(2_000_000);
        let (user_ns, system_ns) = time.user_and_system();
        assert!(user_ns >= 2_000_000);
        assert_eq!(system_ns, 0);
        time.end();
        assert!(time.user_and_system().0 >= user_ns);
    }

    #[test]
    fn time_off_the_core_does_not_count() {
        let time = ProcessorTime::default();
        time.begin();
        time.end();
        let before = time.user_and_system();
        spin(1_000_000);
        assert_eq!(time.user_and_system(), before);
    }

    #[test]
    fn traps_are_sampled_and_count_as_system_time() {
        let time = ProcessorTime::default();
        time.begin();
        for _ in 0..SAMPLE_INTERVAL * 4 {
            let sample = time.trap();
            spin(20_000);
            time.handled(sample);
        }
        // No less than what was spun, however often the host takes its processor away in between.
        let (user_ns, system_ns) = time.user_and_system();
        let spun_ns = u64::from(SAMPLE_INTERVAL) * 4 * 20_000;
        assert!(system_ns >= spun_ns, "{system_ns} of {}", user_ns + system_ns);
    }

    #[test]
    fn a_trap_that_waited_is_not_counted() {
        let time = ProcessorTime::default();
        time.begin();
        for _ in 0..SAMPLE_INTERVAL {
            let sample = time.trap();
            time.end();
            spin(20_000);
            time.begin();
            time.handled(sample);
        }
        assert_eq!(time.user_and_system().1, 0);
    }

    #[test]
    fn what_was_told_never_shrinks() {
        let time = ProcessorTime::default();
        time.begin();
        let mut last = (0, 0);
        for _ in 0..200 {
            let sample = time.trap();
            spin(1_000);
            time.handled(sample);
            let now = time.user_and_system();
            assert!(now.0 >= last.0 && now.1 >= last.1);
            last = now;
        }
    }
}
