//! The locks of the lock schemes and the ring of trace records, natively on the host.
//!
//!     cargo run --release -p base --example locks [-- ROUNDS]
//!
//! A figure is the median over many batches of nanoseconds per operation: taking and releasing a lock that
//! is free (`ticket_free`, `clh_free`, `mcs_free`), the same with a second thread that does so all the
//! time (`..._contended`, per operation of both together; batches in which the second had no processor
//! are left out), and writing a record into a ring that its reader keeps empty (`record`, encoding
//! included). `end` is the last line.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use abi::trace::{Call, Duration, Record};
use base::record_ring::RecordRing;
use base::sync::{ClhLock, McsLock, SpinLock, TicketLock};

/// Batches of a case in one round.
const BATCHES: usize = 200;
/// What the batches of a case may take in one round: where the second thread has no processor of its own,
/// each hand-over takes a time slice of the host.
const MOST_TIME: std::time::Duration = std::time::Duration::from_millis(500);
/// Operations of a batch.
const OPERATIONS: u64 = 1024;

/// Nanoseconds per operation, by name.
#[derive(Default)]
struct Figures(BTreeMap<String, Vec<f64>>);

impl Figures {
    /// Times batches of `OPERATIONS`; `run` says how many operations were done meanwhile, in all, or 0 when
    /// the batch does not count.
    fn batches(&mut self, name: &str, mut run: impl FnMut() -> u64) {
        run();
        let samples = self.0.entry(name.to_string()).or_default();
        let begin = Instant::now();
        for _ in 0..BATCHES {
            if begin.elapsed() > MOST_TIME {
                break;
            }
            let start = Instant::now();
            let operations = run();
            if operations > 0 {
                samples.push(start.elapsed().as_nanos() as f64 / operations as f64);
            }
        }
    }

    fn print(mut self) {
        for (name, samples) in &mut self.0 {
            samples.sort_by(f64::total_cmp);
            if let Some(ns) = samples.get(samples.len() / 2) {
                println!("case {name} ns {ns:.3}");
            }
        }
        println!("end");
    }
}

fn measure_lock(figures: &mut Figures, name: &str, lock: &(impl SpinLock + Sync)) {
    let both = || {
        for _ in 0..OPERATIONS {
            lock.acquire(0);
            lock.release(0);
        }
        OPERATIONS
    };
    figures.batches(&format!("{name}_free"), both);
    let (others, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                lock.acquire(1);
                others.store(others.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                lock.release(1);
            }
        });
        figures.batches(&format!("{name}_contended"), || {
            let before = others.load(Ordering::Relaxed);
            let own = both();
            let theirs = others.load(Ordering::Relaxed) - before;
            // With less, the second thread was not there for most of the time.
            if theirs * 4 < own { 0 } else { own + theirs }
        });
        is_over.store(true, Ordering::Relaxed);
    });
}

fn measure_records(figures: &mut Figures) -> Result<(), String> {
    let ring = RecordRing::new(1 << 14).map_err(|_| "no memory for a ring".to_string())?;
    let mut stamp = 0;
    figures.batches("record", || {
        for _ in 0..OPERATIONS {
            stamp = black_box(stamp + 97);
            let call = Call {
                number: (stamp & 511) as u16,
                start: stamp,
                enter: Duration::from_ticks(stamp & 0x7f),
                fly_in: Duration::from_ticks(stamp & 0xfff),
                poll: Duration::from_ticks(stamp & 0xffff),
                fly_out: Duration::from_ticks(stamp & 0x1fff),
                ..Call::default()
            };
            ring.push(&Record::Call(call).encode());
        }
        ring.take_all();
        OPERATIONS
    });
    Ok(())
}

fn main() -> ExitCode {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5);
    let mut figures = Figures::default();
    for _ in 0..rounds {
        measure_lock(&mut figures, "ticket", &TicketLock::new());
        measure_lock(&mut figures, "clh", &ClhLock::<2>::new());
        measure_lock(&mut figures, "mcs", &McsLock::<2>::new());
        if let Err(why) = measure_records(&mut figures) {
            eprintln!("locks: {why}");
            return ExitCode::FAILURE;
        }
    }
    figures.print();
    ExitCode::SUCCESS
}
