//! What travelling, waking and locking cost: every parameter of the model, in one place.

/// Parameters of the model, in ticks of the trace's clock.
///
/// The line of the hardware that moves between cores is the unit behind most of them. `docs/simulator.md`
/// says for each where its default comes from and how to measure it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// Into the kernel, where a call takes a path that it did not take in the trace.
    pub enter: u64,
    /// Back to the program, likewise.
    pub exit: u64,
    /// A request from its caller's core to a server's core in the same package, or an answer back.
    pub flight: u64,
    /// The same between packages.
    pub far_flight: u64,
    /// Cores of one package; 0: all are in one.
    pub package: usize,
    /// From the doorbell to the first instruction of a core that was parked.
    pub wake_up: u64,
    /// Taking a lock that is free.
    pub acquire: u64,
    /// Releasing a lock.
    pub release: u64,
    /// More than that, at most, chosen at random for each release.
    pub release_spread: u64,
    /// From the release until the next in line has the lock: one line travels.
    pub hand_over: u64,
    /// More for each one else who waits, where all that wait look at the same line (ticket locks).
    pub hand_over_per_waiter: u64,
    /// What a call takes more when the one before it in the same class ran on another core: the lines of
    /// kernel data that it finds there.
    pub data_transfer: u64,
    /// Share of the programs' and the handlers' time (0 to 1) that the path to memory is theirs alone.
    pub memory_share: f64,
}

impl Costs {
    /// A flight between two cores.
    pub fn flight_between(&self, from: usize, to: usize) -> u64 {
        let is_far = self.package > 0 && from / self.package != to / self.package;
        if is_far { self.far_flight } else { self.flight }
    }
}
