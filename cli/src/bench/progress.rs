//! The line that says what runs now and how long the rest will take. On standard error; in place on a
//! terminal, else one line per repeat.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// Progress of one suite.
pub struct Progress {
    suite: &'static str,
    total: usize,
    done: usize,
    start: Instant,
    is_terminal: bool,
    shown_repeat: u32,
}

impl Progress {
    /// Nothing of `total` runs is done.
    pub fn new(suite: &'static str, total: usize) -> Progress {
        let is_terminal = stderr().is_terminal();
        Progress { suite, total, done: 0, start: Instant::now(), is_terminal, shown_repeat: 0 }
    }

    /// Says what runs now.
    pub fn show(&mut self, side: &str, repeat: u32, repeats: u32) {
        let left = match time_left(self.start.elapsed(), self.done, self.total) {
            Some(left) => format!(", {} left", in_words(left)),
            None => String::new(),
        };
        let suite = self.suite;
        // Whether anybody reads this is no concern of the measurement.
        if self.is_terminal {
            let text = format!("ferry bench: {suite}, repeat {repeat} of {repeats}, {side}{left}");
            drop(write!(stderr(), "\r\x1b[K{text}"));
        } else if repeat != self.shown_repeat {
            self.shown_repeat = repeat;
            drop(writeln!(stderr(), "ferry bench: {suite}, repeat {repeat} of {repeats}{left}"));
        }
    }

    /// One run is done.
    pub fn step(&mut self) {
        self.done += 1;
    }

    /// Takes the line away.
    pub fn clear(&self) {
        if self.is_terminal {
            drop(write!(stderr(), "\r\x1b[K"));
        }
    }
}

/// As long per run as so far; `None` before the first one is done.
fn time_left(elapsed: Duration, done: usize, total: usize) -> Option<Duration> {
    let left = total.saturating_sub(done);
    (done > 0).then(|| elapsed.mul_f64(left as f64 / done as f64))
}

fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..100 => format!("{seconds} s"),
        _ => format!("{} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_runs_so_far() {
        let elapsed = Duration::from_secs(10);
        assert_eq!(time_left(elapsed, 0, 8), None);
        assert_eq!(time_left(elapsed, 2, 8), Some(Duration::from_secs(30)));
        assert_eq!(time_left(elapsed, 8, 8), Some(Duration::ZERO));
    }

    #[test]
    fn long_times_are_told_in_minutes() {
        assert_eq!(in_words(Duration::from_secs(99)), "99 s");
        assert_eq!(in_words(Duration::from_secs(121)), "3 min");
    }
}
