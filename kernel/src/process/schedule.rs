//! What the scheduling calls set: policy, priority, nice value.
//!
//! Ferry's cores take ready threads in turn, so policy and priority are kept, checked and reported as
//! Linux does, and change nothing else (`docs/caveats.md`).

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use abi::Errno;
use abi::process::{
    SCHED_BATCH, SCHED_DEADLINE, SCHED_FIFO, SCHED_IDLE, SCHED_OTHER, SCHED_RESET_ON_FORK, SCHED_RR,
};

/// Scheduling parameters of a thread. Each field stands for itself, so there is no lock.
pub struct Schedule {
    policy: AtomicI32,
    priority: AtomicU32,
    nice: AtomicI32,
    reset_on_fork: AtomicU32,
    /// Runtime, deadline and period of the deadline policy, in nanoseconds.
    deadline_ns: [AtomicU64; 3],
    /// Class and level of input and output, as `ioprio_set` takes them; 0 for none.
    pub io_priority: AtomicU32,
}

/// Lowest and highest nice value.
pub const NICE_RANGE: (i32, i32) = (-20, 19);

impl Schedule {
    /// The ordinary policy, nice 0.
    pub fn new() -> Schedule {
        Schedule {
            policy: AtomicI32::new(SCHED_OTHER),
            priority: AtomicU32::new(0),
            nice: AtomicI32::new(0),
            reset_on_fork: AtomicU32::new(0),
            deadline_ns: [const { AtomicU64::new(0) }; 3],
            io_priority: AtomicU32::new(0),
        }
    }

    /// What a child starts with.
    pub fn inherit(&self) -> Schedule {
        let reset = self.reset_on_fork.load(Ordering::Relaxed) != 0;
        let child = Schedule::new();
        let nice = self.nice();
        child.io_priority.store(self.io_priority.load(Ordering::Relaxed), Ordering::Relaxed);
        if reset {
            child.set_nice(nice.max(0));
        } else {
            child.set_nice(nice);
            let _ = child.set_policy(self.policy(), self.priority());
        }
        child
    }

    /// The policy, without flags.
    pub fn policy(&self) -> i32 {
        self.policy.load(Ordering::Relaxed)
    }

    /// Whether children start with the ordinary policy.
    pub fn resets_on_fork(&self) -> bool {
        self.reset_on_fork.load(Ordering::Relaxed) != 0
    }

    /// The real-time priority; 0 for ordinary policies.
    pub fn priority(&self) -> i32 {
        self.priority.load(Ordering::Relaxed).cast_signed()
    }

    /// The nice value, -20 to 19.
    pub fn nice(&self) -> i32 {
        self.nice.load(Ordering::Relaxed)
    }

    /// Sets the nice value, clamped.
    pub fn set_nice(&self, nice: i32) {
        self.nice.store(nice.clamp(NICE_RANGE.0, NICE_RANGE.1), Ordering::Relaxed);
    }

    /// Sets policy (with flags) and priority; `EINVAL` when they do not fit together.
    pub fn set_policy(&self, policy: i32, priority: i32) -> Result<(), Errno> {
        let reset = policy & SCHED_RESET_ON_FORK;
        let policy = policy & !SCHED_RESET_ON_FORK;
        let (lowest, highest) = priority_range(policy)?;
        if priority < lowest || priority > highest {
            return Err(Errno::EINVAL);
        }
        self.policy.store(policy, Ordering::Relaxed);
        self.priority.store(priority.cast_unsigned(), Ordering::Relaxed);
        self.reset_on_fork.store(reset.cast_unsigned(), Ordering::Relaxed);
        Ok(())
    }
}

/// Shortest and longest period of the deadline policy, in nanoseconds.
const PERIODS_NS: core::ops::RangeInclusive<u64> = 100_000..=4_194_304_000;
/// Shortest runtime of the deadline policy, in nanoseconds.
const LEAST_RUNTIME_NS: u64 = 1 << 10;

impl Schedule {
    /// Sets the deadline policy, which is kept like the others: runtime, deadline and period, in
    /// nanoseconds; a period of 0 is the deadline.
    ///
    /// # Errors
    /// `EINVAL` when the times do not fit together, `EBUSY` for more than 95 % of a core.
    pub fn set_deadline(&self, times_ns: [u64; 3], resets_on_fork: bool) -> Result<(), Errno> {
        let [runtime, deadline, period] = times_ns;
        let period = if period == 0 { deadline } else { period };
        if runtime < LEAST_RUNTIME_NS
            || deadline < runtime
            || period < deadline
            || !PERIODS_NS.contains(&period)
        {
            return Err(Errno::EINVAL);
        }
        if runtime * 100 > period * 95 {
            return Err(Errno::EBUSY);
        }
        for (kept, wanted) in self.deadline_ns.iter().zip([runtime, deadline, period]) {
            kept.store(wanted, Ordering::Relaxed);
        }
        self.policy.store(SCHED_DEADLINE, Ordering::Relaxed);
        self.priority.store(0, Ordering::Relaxed);
        self.reset_on_fork.store(u32::from(resets_on_fork), Ordering::Relaxed);
        Ok(())
    }

    /// Runtime, deadline and period, in nanoseconds; zeros unless the policy is that of deadlines.
    pub fn deadline(&self) -> [u64; 3] {
        let is_in_force = self.policy() == SCHED_DEADLINE;
        self.deadline_ns.each_ref().map(
            |kept| {
                if is_in_force { kept.load(Ordering::Relaxed) } else { 0 }
            },
        )
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Schedule::new()
    }
}

/// Lowest and highest priority of a policy; `EINVAL` for one that does not exist. The deadline policy
/// has a range but cannot be set.
pub fn priority_range(policy: i32) -> Result<(i32, i32), Errno> {
    match policy {
        SCHED_FIFO | SCHED_RR => Ok((1, 99)),
        SCHED_OTHER | SCHED_BATCH | SCHED_IDLE => Ok((0, 0)),
        _ => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_must_fit_its_policy() {
        let schedule = Schedule::new();
        assert_eq!(schedule.set_policy(SCHED_OTHER, 1), Err(Errno::EINVAL));
        assert_eq!(schedule.set_policy(SCHED_FIFO, 0), Err(Errno::EINVAL));
        assert_eq!(schedule.set_policy(SCHED_FIFO, 99), Ok(()));
        assert_eq!(schedule.priority(), 99);
    }

    #[test]
    fn reset_on_fork_gives_the_child_the_ordinary_policy() {
        let schedule = Schedule::new();
        schedule.set_policy(SCHED_RR | SCHED_RESET_ON_FORK, 5).unwrap();
        schedule.set_nice(-5);
        let child = schedule.inherit();
        assert_eq!(child.policy(), SCHED_OTHER);
        assert_eq!(child.nice(), 0);
    }
}
