//! The bar that says what runs now and how long the rest will take, over all suites of a command. On
//! standard error: in place on a terminal; elsewhere a plain line per repeat, for logs.

use std::collections::HashMap;
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

/// Progress of a command.
pub struct Progress {
    left: TimeLeft,
    bar: Option<ProgressBar>,
    begin: Instant,
    shown: (String, u32),
}

impl Progress {
    /// Nothing is done of these runs, each a suite and a side, in their order.
    pub fn new(plan: Vec<(String, String)>) -> Progress {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(plan.len() as u64).with_finish(ProgressFinish::AndClear);
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        let left = TimeLeft { plan, done: 0, times: HashMap::new() };
        Progress { left, bar, begin: Instant::now(), shown: (String::new(), 0) }
    }

    /// Says what runs now.
    pub fn show(&mut self, suite: &str, side: &str, repeat: u32, repeats: u32) {
        self.begin = Instant::now();
        let left = self.left.estimate();
        let left = left.map_or(String::new(), |left| format!(", {} left", in_words(left)));
        let what = format!("{suite}, repeat {repeat} of {repeats}");
        match &self.bar {
            Some(bar) => {
                bar.set_message(format!("{what}, {side}{left}"));
                bar.tick();
            }
            None if self.shown != (suite.to_owned(), repeat) => {
                self.shown = (suite.to_owned(), repeat);
                eprintln!("ferry bench: {what}{left}");
            }
            None => {}
        }
    }

    /// The run is done.
    pub fn step(&mut self) {
        self.left.step(self.begin.elapsed());
        self.draw();
    }

    /// What is left of this suite will not be measured.
    pub fn skip(&mut self, suite: &str) {
        self.left.skip(suite);
        self.draw();
    }

    /// Lets others write on standard error.
    pub fn aside(&self, write: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn draw(&self) {
        if let Some(bar) = &self.bar {
            bar.set_length(self.left.plan.len() as u64);
            bar.set_position(self.left.done as u64);
        }
    }
}

/// Foretells the rest: a run takes as long as the ones of its side so far, or, where there was none,
/// as long as all so far.
struct TimeLeft {
    plan: Vec<(String, String)>,
    done: usize,
    /// Sum and number of the times of each suite's sides.
    times: HashMap<(String, String), (Duration, u32)>,
}

impl TimeLeft {
    fn step(&mut self, took: Duration) {
        let Some(run) = self.plan.get(self.done) else { return };
        let (sum, count) = self.times.entry(run.clone()).or_default();
        *sum += took;
        *count += 1;
        self.done += 1;
    }

    fn skip(&mut self, suite: &str) {
        let (done, left) = self.plan.split_at(self.done);
        let left = left.iter().filter(|(of, _)| of != suite);
        self.plan = done.iter().chain(left).cloned().collect();
    }

    /// `None` before the first run is done.
    fn estimate(&self) -> Option<Duration> {
        let (sum, count) = self
            .times
            .values()
            .fold((Duration::ZERO, 0), |(sum, count), (time, runs)| (sum + *time, count + runs));
        let mean = sum.checked_div(count)?;
        let of = |run| self.times.get(run).map_or(mean, |(sum, count)| *sum / *count);
        Some(self.plan.iter().skip(self.done).map(of).sum())
    }
}

fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6000 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(runs: &[(&str, &str)]) -> TimeLeft {
        let plan = runs.iter().map(|(suite, side)| ((*suite).to_owned(), (*side).to_owned()));
        TimeLeft { plan: plan.collect(), done: 0, times: HashMap::new() }
    }

    #[test]
    fn the_time_left_is_that_of_the_same_side_so_far_else_the_mean() {
        let mut left = plan(&[("s", "a"), ("s", "b"), ("s", "a"), ("s", "b"), ("t", "a")]);
        assert_eq!(left.estimate(), None);
        left.step(Duration::from_secs(10));
        left.step(Duration::from_secs(2));
        assert_eq!(left.estimate(), Some(Duration::from_secs(10 + 2 + 6)));
        for _ in 0..9 {
            left.step(Duration::from_secs(1));
        }
        assert_eq!(left.estimate(), Some(Duration::ZERO));
    }

    #[test]
    fn a_suite_that_is_given_up_takes_no_more_time() {
        let mut left = plan(&[("s", "a"), ("s", "a"), ("t", "a")]);
        left.step(Duration::from_secs(4));
        left.skip("s");
        assert_eq!(left.estimate(), Some(Duration::from_secs(4)));
        assert_eq!(left.plan.len(), 2);
    }

    #[test]
    fn long_times_are_told_in_minutes_and_hours() {
        assert_eq!(in_words(Duration::from_secs(99)), "99 s");
        assert_eq!(in_words(Duration::from_secs(121)), "3 min");
        assert_eq!(in_words(Duration::from_secs(7260)), "2 h 1 min");
    }
}
