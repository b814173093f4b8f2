//! `ferry sim speed`: events per second of processor time, beside a bare binary heap with as many events
//! ahead. Processor time, since a busy host takes its share of any other; the best of several rounds, in
//! which all take turns, since a shared processor's speed changes.

use std::time::Duration;

use abi::trace::LockScheme;
use anyhow::{Context, Result};
use sim::speed;

use crate::traces;

/// Rounds of which the fastest counts.
const ROUNDS: u64 = 5;

/// What is measured, in the order of the rows.
pub const ROWS: [&str; 4] =
    ["simulator, fine", "simulator, giant-clh", "agenda alone", "binary heap alone"];

/// Events per second of one core's time, in the order of [`ROWS`].
pub fn measure(cores: usize, millions: u64) -> Result<[f64; 4]> {
    let events = (millions * 1_000_000 / ROUNDS).max(1);
    let mut best = [0.0_f64; 4];
    for _ in 0..ROUNDS {
        let rates = [
            rate(|| Ok(speed::simulate(cores, events, LockScheme::Fine)?))?,
            rate(|| Ok(speed::simulate(cores, events, LockScheme::GiantClh)?))?,
            rate(|| {
                speed::agenda(cores, events);
                Ok(events)
            })?,
            rate(|| {
                speed::heap(cores, events);
                Ok(events)
            })?,
        ];
        best.iter_mut().zip(rates).for_each(|(best, rate)| *best = best.max(rate));
    }
    Ok(best)
}

/// Carries out `ferry sim speed`.
pub fn run(cores: usize, millions: u64) -> Result<u8> {
    let rates = measure(cores, millions)?;
    let mut text =
        format!("{cores} simulated cores, millions of events per second of one core's time:\n");
    for (name, rate) in ROWS.iter().zip(rates) {
        text += &format!("{name:<22}{:>8.1}\n", rate / 1e6);
    }
    traces::print(&text)?;
    Ok(0)
}

/// What this thread has had of a processor, as the kernel accounts for it (`proc(5)`, schedstat).
fn processor_time() -> Result<Duration> {
    let file = "/proc/thread-self/schedstat";
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    let first = text.split_whitespace().next().and_then(|number| number.parse().ok());
    first.map(Duration::from_nanos).with_context(|| format!("{file} says {text:?}"))
}

fn rate(work: impl FnOnce() -> Result<u64>) -> Result<f64> {
    let begin = processor_time()?;
    let events = work()?;
    let time = processor_time()?.saturating_sub(begin);
    Ok(events as f64 / time.as_secs_f64().max(1e-9))
}
