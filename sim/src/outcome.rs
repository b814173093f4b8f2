//! What a simulation found.

/// What became of the work of one application core, in ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOutcome {
    /// Its core.
    pub core: usize,
    /// When it was done.
    pub finished: u64,
    /// Calls that it made.
    pub calls: u64,
    /// Of these, those that another core carried out.
    pub away: u64,
    /// Its programs' own time.
    pub user: u64,
    /// Entering, handling and leaving calls on its own core.
    pub kernel: u64,
    /// Waiting for locks.
    pub lock_wait: u64,
    /// From sending a call away to its answer.
    pub away_wait: u64,
    /// Waiting for devices, timers and others.
    pub blocked: u64,
    /// Waiting for the path to memory.
    pub memory_wait: u64,
}

/// What happened to one lock, in ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockOutcome {
    /// How often it was taken.
    pub acquired: u64,
    /// Of these, how often someone else had it.
    pub contended: u64,
    /// Sum of the times from asking to being next.
    pub waited: u64,
    /// Sum of the times it was held, hand-overs included.
    pub held: u64,
    /// How many waited at once, at most.
    pub most_waiting: usize,
}

/// What happened on one kernel core, in ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerOutcome {
    /// Its core.
    pub core: usize,
    /// Requests that it took.
    pub requests: u64,
    /// Handling them.
    pub busy: u64,
    /// Spinning for them.
    pub spinning: u64,
    /// Sum of the times that requests spent in its queue.
    pub queued: u64,
    /// How often it had to be woken.
    pub woken: u64,
}

/// What a simulation found. Times are ticks of the trace's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Ticks of the clock per second.
    pub ticks_per_second: u64,
    /// Events that were simulated.
    pub events: u64,
    /// When the last stream was done.
    pub ended: u64,
    /// Each application core.
    pub streams: Vec<StreamOutcome>,
    /// Each lock that was taken.
    pub locks: Vec<(usize, LockOutcome)>,
    /// Each kernel core.
    pub servers: Vec<ServerOutcome>,
}

impl Outcome {
    /// Calls of all cores.
    pub fn calls(&self) -> u64 {
        self.streams.iter().map(|stream| stream.calls).sum()
    }

    /// Calls per second of simulated time.
    pub fn throughput(&self) -> f64 {
        self.calls() as f64 * self.ticks_per_second as f64 / self.ended.max(1) as f64
    }

    /// Mean over the application cores of when they were done, in ticks.
    pub fn mean_duration(&self) -> f64 {
        let sum: u64 = self.streams.iter().map(|stream| stream.finished).sum();
        sum as f64 / self.streams.len().max(1) as f64
    }

    /// How often a lock was found taken, 0 to 1.
    pub fn contention(&self) -> f64 {
        let sum =
            |of: fn(&LockOutcome) -> u64| self.locks.iter().map(|(_, lock)| of(lock)).sum::<u64>();
        sum(|lock| lock.contended) as f64 / sum(|lock| lock.acquired).max(1) as f64
    }
}
