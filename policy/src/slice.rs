//! How long a thread runs while others wait for its core.

/// Processor time that a thread may use before those that stand behind it have their turn, in
/// nanoseconds.
pub const SLICE_NS: u64 = 4_000_000;

/// Shortest run of a thread, in nanoseconds, before one that has waited for something else and was
/// woken takes its place: long beside a switch of threads, short beside what people notice.
pub const TURN_NS: u64 = 200_000;

/// What a thread has used of its slice. Time in which it waits gives back as much as it lasts, so who
/// uses nearly all of a core in small pieces stands behind the others like who never waits.
///
/// All times are of the monotonic clock and in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// When the run began that is going on.
    since_ns: u64,
    /// Processor time of the thread at that time.
    used_before_ns: u64,
    /// Used of the slice at that time.
    spent_ns: u64,
}

impl Slice {
    /// A whole slice for a thread that has run since `since_ns` and had used `used_before_ns` of
    /// processor time at that time.
    pub const fn new(since_ns: u64, used_before_ns: u64) -> Slice {
        Slice { since_ns, used_before_ns, spent_ns: 0 }
    }

    /// Takes note of the run that is going on, if it is not known yet; arguments as for `new`.
    #[inline]
    pub const fn observe(&mut self, since_ns: u64, used_before_ns: u64) {
        if since_ns == self.since_ns {
            return;
        }
        let ran_ns = used_before_ns.saturating_sub(self.used_before_ns);
        let waited_ns = since_ns.saturating_sub(self.since_ns).saturating_sub(ran_ns);
        let spent_ns = (self.spent_ns + ran_ns).saturating_sub(waited_ns);
        *self = Slice { since_ns, used_before_ns, spent_ns };
    }

    /// When the thread has to give up its core to those that stand behind it or, if that is earlier and
    /// there is one, to one that was woken.
    #[inline]
    pub const fn end_ns(&self, has_woken: bool) -> u64 {
        let whole_ns = SLICE_NS.saturating_sub(self.spent_ns);
        let left_ns = if has_woken && whole_ns > TURN_NS { TURN_NS } else { whole_ns };
        self.since_ns.saturating_add(left_ns)
    }

    /// Whether the whole slice is used up at a time: then a new one begins with the next run.
    #[inline]
    pub const fn is_used_up(&self, now_ns: u64) -> bool {
        now_ns >= self.end_ns(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_after_a_slice_and_sooner_for_one_that_was_woken() {
        let slice = Slice::new(1_000, 77);
        assert_eq!(slice.end_ns(false), 1_000 + SLICE_NS);
        assert_eq!(slice.end_ns(true), 1_000 + TURN_NS);
        assert!(!slice.is_used_up(1_000 + TURN_NS));
        assert!(slice.is_used_up(1_000 + SLICE_NS));
    }

    #[test]
    fn a_wait_gives_back_as_much_as_it_lasts() {
        let mut slice = Slice::new(0, 0);
        slice.observe(3_000_000 + 1_000_000, 3_000_000);
        assert_eq!(slice.end_ns(false), 4_000_000 + SLICE_NS - 2_000_000);
        slice.observe(4_000_000, 3_000_000);
        assert_eq!(slice.end_ns(false), 4_000_000 + SLICE_NS - 2_000_000);
        slice.observe(100_000_000, 3_500_000);
        assert_eq!(slice.end_ns(false), 100_000_000 + SLICE_NS);
    }

    #[test]
    fn who_takes_nine_tenths_in_small_pieces_uses_up_a_slice() {
        let mut slice = Slice::new(0, 0);
        let mut rounds = 0;
        while !slice.is_used_up(slice.since_ns) {
            rounds += 1;
            slice.observe(rounds * 100_000, rounds * 90_000);
        }
        assert_eq!(rounds, 50);
    }

    #[test]
    fn clocks_that_run_backwards_do_no_harm() {
        let mut slice = Slice::new(10, 10);
        slice.observe(5, 0);
        assert_eq!(slice.end_ns(false), 5 + SLICE_NS);
        slice.observe(u64::MAX, u64::MAX);
        assert_eq!(slice.end_ns(true), u64::MAX);
    }
}
