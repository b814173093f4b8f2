//! The choice of a path for one call, where no path is fixed.
//!
//! A call whose server's core is parked, or runs a program, stays at home: nobody is woken or
//! interrupted for it. Else the *account* of its process and number decides: what such a call took of
//! its caller's time at home and away. One call in [`SAMPLE`] is timed where it goes anyway; now and
//! then one is sent the other way to keep that side of the account fresh. The other way has to be
//! ahead by an eighth in two trials one after the other before it is taken; each trial that it loses
//! doubles the distance to the next one, so that trials cost next to nothing where nothing is to be won.

use crate::route::CallPath;

/// Of so many calls that follow each other, one is timed.
pub const SAMPLE: u64 = 64;
/// Samples between two trials of the other way, before any was lost.
const TRIAL: u64 = 16;
/// Doublings of that distance, at most.
const MOST_DOUBLINGS: u64 = 6;
/// Trials that the other way has to win one after the other.
const WINS: u64 = 2;
/// Resolution of the account in nanoseconds; with 16 bits, costs up to a millisecond are told apart.
const UNIT_NS: u64 = 16;

/// The path in force: a fixed one, or the choice call by call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The same path for all calls that may take it.
    Fixed(CallPath),
    /// Each call takes its cheapest path.
    Auto,
}

/// The account of one call number in one word, so that it is read and written at once.
///
/// | bits | what |
/// |---|---|
/// | 0–15 | mean cost at home, in units of 16 ns; 0: not known |
/// | 16–31 | mean cost away, likewise |
/// | 32–39 | calls until the next one is timed |
/// | 40–55 | samples until the next trial |
/// | 56–59 | doublings of the distance between trials |
/// | 60–61 | trials won one after the other |
/// | 62 | the way taken is away |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account(pub u64);

/// Where a call goes, and whether its cost is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// To its server's core; else it stays at home.
    pub away: bool,
    /// Its caller times it and tells [`Account::observe`].
    pub timed: bool,
}

struct Field {
    shift: u32,
    bits: u32,
}

const HOME: Field = Field { shift: 0, bits: 16 };
const AWAY: Field = Field { shift: 16, bits: 16 };
const CALLS: Field = Field { shift: 32, bits: 8 };
const SAMPLES: Field = Field { shift: 40, bits: 16 };
const DOUBLINGS: Field = Field { shift: 56, bits: 4 };
const WON: Field = Field { shift: 60, bits: 2 };
const IS_AWAY: Field = Field { shift: 62, bits: 1 };

impl Account {
    const fn get(self, field: Field) -> u64 {
        self.0 >> field.shift & ((1 << field.bits) - 1)
    }

    const fn with(self, field: Field, value: u64) -> Account {
        let most = (1 << field.bits) - 1;
        let value = if value > most { most } else { value };
        Account(self.0 & !(most << field.shift) | value << field.shift)
    }

    /// Whether calls go to their server's core now, trials aside.
    pub const fn is_away(self) -> bool {
        self.get(IS_AWAY) != 0
    }

    /// What a call took at home and away, in nanoseconds, as far as it is known.
    pub const fn costs_ns(self) -> (u64, u64) {
        (self.get(HOME) * UNIT_NS, self.get(AWAY) * UNIT_NS)
    }

    /// Where the next call goes, and the account behind it.
    #[inline]
    pub const fn next(self) -> (Choice, Account) {
        let away = self.is_away();
        if self.get(CALLS) != 0 {
            // The lowest bits of the field: no borrow, since it is not zero.
            return (Choice { away, timed: false }, Account(self.0 - (1 << CALLS.shift)));
        }
        let counted = self.with(CALLS, SAMPLE - 1);
        match self.get(SAMPLES) {
            0 if self.get(HOME) == 0 => (Choice { away: false, timed: true }, counted),
            0 => (Choice { away: !away, timed: true }, counted.with(SAMPLES, counted.distance())),
            left => (Choice { away, timed: true }, counted.with(SAMPLES, left - 1)),
        }
    }

    const fn distance(self) -> u64 {
        TRIAL << self.get(DOUBLINGS)
    }

    /// A timed call that did not have to wait took `ns` of its caller's time.
    pub const fn observe(self, away: bool, ns: u64) -> Account {
        let sample = ns / UNIT_NS + 1;
        let field = if away { AWAY } else { HOME };
        let mean = self.get(if away { AWAY } else { HOME });
        // The first sample stands for itself; a later one counts with a quarter, and with no more than
        // four times the mean, since what interrupts a call is not its cost.
        let mean = match mean {
            0 => sample,
            mean => (3 * mean + if sample > 4 * mean { 4 * mean } else { sample }) / 4,
        };
        let account = self.with(field, if mean == 0 { 1 } else { mean });
        if away == self.is_away() { account } else { account.judge() }
    }

    /// A trial of the other way was made: takes that way, or puts the next trial off.
    const fn judge(self) -> Account {
        let (home, away) = (self.get(HOME), self.get(AWAY));
        let (current, other) = if self.is_away() { (away, home) } else { (home, away) };
        if current == 0 || other + other / 8 >= current {
            let doublings = self.get(DOUBLINGS);
            let more = if doublings < MOST_DOUBLINGS { doublings + 1 } else { doublings };
            return self.with(WON, 0).with(DOUBLINGS, more);
        }
        let won = self.get(WON) + 1;
        if won < WINS {
            return self.with(WON, won).with(SAMPLES, 0);
        }
        let is_away = if self.is_away() { 0 } else { 1 };
        self.with(WON, 0).with(IS_AWAY, is_away).with(DOUBLINGS, 0).with(SAMPLES, TRIAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes calls that take so long each way; how many of them went away, and the account.
    fn calls(mut account: Account, count: u64, home_ns: u64, away_ns: u64) -> (u64, Account) {
        let mut away = 0;
        for _ in 0..count {
            let (choice, next) = account.next();
            account = next;
            away += u64::from(choice.away);
            if choice.timed {
                let ns = if choice.away { away_ns } else { home_ns };
                account = account.observe(choice.away, ns);
            }
        }
        (away, account)
    }

    #[test]
    fn what_is_dearer_away_stays_at_home_but_for_rare_trials() {
        let (away, account) = calls(Account::default(), 1_000_000, 200, 700);
        assert!(!account.is_away());
        assert!((1..200).contains(&away), "{away}");
    }

    #[test]
    fn what_is_cheaper_away_goes_there() {
        let (away, account) = calls(Account::default(), 1_000_000, 5_000, 1_000);
        assert!(account.is_away());
        assert!(away > 990_000, "{away}");
    }

    #[test]
    fn a_little_cheaper_is_not_enough() {
        let (_, account) = calls(Account::default(), 1_000_000, 1_000, 950);
        assert!(!account.is_away());
    }

    #[test]
    fn the_choice_follows_when_costs_change() {
        let (_, account) = calls(Account::default(), 100_000, 200, 700);
        let (_, account) = calls(account, 1_000_000, 5_000, 700);
        assert!(account.is_away());
        let (_, account) = calls(account, 1_000_000, 200, 700);
        assert!(!account.is_away());
    }

    #[test]
    fn one_outlier_does_not_change_the_way() {
        let (_, account) = calls(Account::default(), 1_000, 200, 300);
        let account = account.observe(false, 50_000_000);
        let (home, away) = account.costs_ns();
        assert!(home < 500 && away < 500, "{home} {away}");
    }

    #[test]
    fn costs_beyond_the_field_do_not_spill_into_the_next() {
        let account = Account::default().observe(false, u64::MAX / 2).observe(true, 1);
        assert_eq!(account.costs_ns(), (0xffff * UNIT_NS, UNIT_NS));
    }
}
