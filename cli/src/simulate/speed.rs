//! `ferry sim speed`: events per second of processor time, beside a bare binary heap with as many events
//! ahead. Processor time, since a busy host takes its share of any other.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Duration;

use abi::trace::LockScheme;
use anyhow::{Context, Result};
use sim::machine::symmetric;
use sim::{Agenda, Costs, Locking, Source, Work};

use crate::traces;

/// Calls whose length differs, so that the order of events does too.
struct Mixed {
    left: Vec<u64>,
    state: u64,
}

impl Source for Mixed {
    fn next(&mut self, stream: usize, _now: u64) -> Result<Option<Work>, sim::Error> {
        if self.left[stream] == 0 {
            return Ok(None);
        }
        self.left[stream] -= 1;
        self.state = step(self.state);
        let (idle, poll) = (self.state >> 54, self.state >> 44 & 0xff);
        Ok(Some(Work { idle, poll, enter: 20, exit: 20, ..Work::default() }))
    }
}

/// A linear congruential generator (Knuth): as cheap as one can be.
fn step(state: u64) -> u64 {
    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

/// Carries out `ferry sim speed`.
pub fn run(cores: usize, millions: u64) -> Result<u8> {
    let events = millions * 1_000_000;
    let mut text =
        format!("{cores} simulated cores, millions of events per second of one core's time:\n");
    for (name, scheme) in [("fine", LockScheme::Fine), ("giant-clh", LockScheme::GiantClh)] {
        let costs = Costs { acquire: 20, release: 10, hand_over: 46, ..Costs::default() };
        let machine = symmetric(cores, 1_000_000_000, Locking::Scheme(scheme), costs);
        let left = vec![events / cores as u64; cores];
        let begin = processor_time()?;
        let outcome = sim::engine::run(&machine, Mixed { left, state: 1 })?;
        let time = processor_time()?.saturating_sub(begin);
        text += &line(&format!("simulator, {name}"), outcome.events, time);
    }
    text += &line("agenda alone", events, agenda(cores, events)?);
    text += &line("binary heap alone", events, heap(cores, events)?);
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

fn line(name: &str, events: u64, time: Duration) -> String {
    format!("{name:<22}{:>8.1}\n", events as f64 / time.as_secs_f64() / 1e6)
}

fn agenda(cores: usize, events: u64) -> Result<Duration> {
    let mut agenda = Agenda::new(cores);
    (0..cores).for_each(|stream| agenda.set(stream, stream as u64));
    let mut state = 1;
    let begin = processor_time()?;
    for _ in 0..events {
        let Some((time, stream)) = black_box(agenda.next()) else { break };
        state = step(state);
        agenda.set(stream, time + (state >> 54));
    }
    Ok(processor_time()?.saturating_sub(begin))
}

fn heap(cores: usize, events: u64) -> Result<Duration> {
    let mut heap: BinaryHeap<Reverse<(u64, usize)>> =
        (0..cores).map(|stream| Reverse((stream as u64, stream))).collect();
    let mut state = 1;
    let begin = processor_time()?;
    for _ in 0..events {
        let Some(Reverse((time, stream))) = black_box(heap.pop()) else { break };
        state = step(state);
        heap.push(Reverse((time + (state >> 54), stream)));
    }
    Ok(processor_time()?.saturating_sub(begin))
}
