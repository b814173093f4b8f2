//! The native benchmark of posted calls: the very entries, scanner and poster of the kernel, between
//! two pinned threads of the host, beside what the host itself offers.
//!
//!     cargo run --release -p base --example posted [-- ROUNDS]
//!
//! One thread plays a kernel core: it runs `base::posted::Consumer` over one syspage. The other posts.
//! A round measures every case in turn, so that a disturbance of the machine meets all of them; each
//! case of a round is some short batches. Printed per case: the median over all batches of the
//! nanoseconds per operation, and, where operations are timed one by one, their 99th percentile. What
//! the host does not offer is said on standard error and has no line. `end` is the last line.

mod partner;
mod uring;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use base::posted::{Producer, Served};

use partner::{Job, Partner, Shared};
use uring::Ring;

/// Entries of a syspage, and the depth of the batches.
const DEPTH: usize = abi::syspage::ENTRY_COUNT;
/// Batches of a case in one round.
const BATCHES: usize = 40;
/// Operations of a batch that are done one at a time.
const SINGLES: usize = 256;
/// Full batches of `DEPTH` within a timed batch.
const FULLS: usize = 8;
/// Calls that are renewed at once when `DEPTH` are kept under way.
const CHUNK: usize = 16;

/// Nanoseconds per operation by name of the case.
#[derive(Default)]
struct Figures(BTreeMap<&'static str, Vec<f64>>);

impl Figures {
    /// Times some batches; `run` does `operations` operations.
    fn batches(&mut self, name: &'static str, operations: usize, mut run: impl FnMut()) {
        run();
        let samples = self.0.entry(name).or_default();
        for _ in 0..BATCHES {
            let start = Instant::now();
            run();
            samples.push(start.elapsed().as_nanos() as f64 / operations as f64);
        }
    }

    /// Times operations one by one, without what the clock itself takes.
    fn singles(&mut self, name: &'static str, clock: &Clock, mut run: impl FnMut()) {
        let samples = self.0.entry(name).or_default();
        for _ in 0..BATCHES * SINGLES / 8 {
            let start = Instant::now();
            run();
            samples.push((start.elapsed().as_nanos() as f64 - clock.own_ns).max(0.0));
        }
    }

    fn print(mut self) {
        for (name, samples) in &mut self.0 {
            samples.sort_by(f64::total_cmp);
            let at = |share: f64| samples[((samples.len() - 1) as f64 * share) as usize];
            match name.strip_suffix("_single") {
                Some(name) => println!("case {name}_p99 ns {:.1}", at(0.99)),
                None => println!("case {name} ns {:.2}", at(0.5)),
            }
        }
    }
}

/// The host's clock and what reading it takes.
struct Clock {
    own_ns: f64,
}

impl Clock {
    fn calibrate() -> Clock {
        let mut own: Vec<u128> = (0..1001).map(|_| Instant::now().elapsed().as_nanos()).collect();
        own.sort_unstable();
        Clock { own_ns: own[own.len() / 2] as f64 }
    }
}

/// What the poster of this program keeps.
struct Poster<'a> {
    shared: &'a Shared,
    producer: Producer,
}

impl Poster<'_> {
    fn post(&mut self, number: u16) -> usize {
        loop {
            let shared = self.shared;
            let posted = self.producer.post(&shared.entries, &shared.head.0, number, 0, []);
            if let Some(index) = posted {
                return index;
            }
            core::hint::spin_loop();
        }
    }

    fn result(&mut self, index: usize) -> u64 {
        loop {
            if let Some(result) = self.producer.take_result(&self.shared.entries, index) {
                return result;
            }
            // As the contract has it: who spins looks whether the kernel is parked.
            assert_eq!(self.shared.parked.0.load(Ordering::Relaxed), 0);
        }
    }

    fn one(&mut self, number: u16) -> u64 {
        let index = self.post(number);
        self.result(index)
    }

    /// Posts `depth` calls, then takes their results.
    fn batch(&mut self, number: u16, depth: usize) {
        let mut indices = [0; DEPTH];
        for index in &mut indices[..depth] {
            *index = self.post(number);
        }
        // The last first: when it is there, the others are too, and nobody chases the scanner's writes.
        for index in indices[..depth].iter().rev() {
            self.result(*index);
        }
    }

    /// Keeps `DEPTH` calls under way: takes the results of the oldest `CHUNK` and posts as many.
    fn stream(&mut self, number: u16, count: usize) {
        let mut indices = [0; DEPTH];
        for index in &mut indices {
            *index = self.post(number);
        }
        let mut left = count - DEPTH;
        while left > 0 {
            for chunk in indices.chunks_mut(CHUNK) {
                for index in chunk.iter().rev() {
                    self.result(*index);
                }
                for index in chunk {
                    *index = self.post(number);
                }
            }
            left -= DEPTH;
        }
        for index in indices.iter().rev() {
            self.result(*index);
        }
    }
}

/// Number of a call that does nothing.
const NULL: u16 = 0;
/// Number of the call that reads a word of its caller.
const GETPPID: u16 = 110;

/// What the kernel side does for a call: the parent's number lies in a process that it must find.
fn serve(processes: &[AtomicU32], call: &base::posted::PostedCall) -> Served {
    match call.number {
        NULL => Served::Done(0),
        GETPPID => Served::Done(u64::from(processes[call.flags as usize].load(Ordering::Acquire))),
        _ => Served::Done(-38_i64 as u64),
    }
}

fn ping_pong(shared: &Shared) {
    let line = &shared.line.0;
    for _ in 0..SINGLES {
        line.store(partner::PING, Ordering::Release);
        while line.load(Ordering::Acquire) == partner::PING {}
    }
}

fn getppid() -> i64 {
    // SAFETY: the call takes no argument and touches no memory.
    unsafe { libc::syscall(libc::SYS_getppid) }
}

fn main() -> ExitCode {
    let rounds = match std::env::args().nth(1).map(|text| text.parse::<usize>()) {
        None => 25,
        Some(Ok(rounds)) if rounds > 0 => rounds,
        Some(_) => {
            eprintln!("posted: the only argument is the number of rounds, 1 or more");
            return ExitCode::FAILURE;
        }
    };
    let Some([here, there]) = partner::two_processors() else {
        eprintln!("posted: this needs two processors that the program may use");
        return ExitCode::FAILURE;
    };
    partner::pin(here);
    let clock = Clock::calibrate();
    let shared: &'static Shared = Box::leak(Box::default());
    let mut partner = Partner::start(shared, there);
    let mut poster = Poster { shared, producer: Producer::new() };
    let mut figures = Figures::default();
    let mut plain = uring::available("plain", Ring::plain(DEPTH));
    let mut polled = uring::available("SQPOLL", Ring::polled(DEPTH, there));
    for _ in 0..rounds {
        partner.during(Job::Pong, || {
            figures.batches("ping_pong", SINGLES, || ping_pong(shared));
        });
        partner.during(Job::Scan, || {
            figures.batches("posted_null", SINGLES, || {
                for _ in 0..SINGLES {
                    poster.one(NULL);
                }
            });
            figures.batches("posted_getppid", SINGLES, || {
                for _ in 0..SINGLES {
                    poster.one(GETPPID);
                }
            });
            figures.singles("posted_getppid_single", &clock, || {
                poster.one(GETPPID);
            });
            for (name, depth) in [
                ("posted_getppid_batch_2", 2),
                ("posted_getppid_batch_4", 4),
                ("posted_getppid_batch_8", 8),
                ("posted_getppid_batch_16", 16),
                ("posted_getppid_batch_32", 32),
                ("posted_getppid_batch_64", 64),
            ] {
                let times = FULLS * DEPTH / depth;
                figures.batches(name, times * depth, || {
                    for _ in 0..times {
                        poster.batch(GETPPID, depth);
                    }
                });
            }
            figures.batches("posted_getppid_depth_64", 2 * FULLS * DEPTH, || {
                poster.stream(GETPPID, 2 * FULLS * DEPTH);
            });
            figures.batches("posted_null_batch_64", FULLS * DEPTH, || {
                for _ in 0..FULLS {
                    poster.batch(NULL, DEPTH);
                }
            });
        });
        figures.batches("getppid", SINGLES, || {
            for _ in 0..SINGLES {
                getppid();
            }
        });
        figures.singles("getppid_single", &clock, || {
            getppid();
        });
        if let Some(ring) = &mut plain {
            figures.batches("io_uring_nop_64", FULLS * DEPTH, || {
                for _ in 0..FULLS {
                    ring.nops(DEPTH);
                }
            });
        }
        if let Some(ring) = &mut polled {
            ring.nops(DEPTH);
            figures.batches("io_uring_sqpoll_nop_64", FULLS * DEPTH, || {
                for _ in 0..FULLS {
                    ring.nops(DEPTH);
                }
            });
            figures.batches("io_uring_sqpoll_nop_depth_64", 2 * FULLS * DEPTH, || {
                ring.stream(2 * FULLS * DEPTH, DEPTH, CHUNK);
            });
        }
    }
    partner.end();
    figures.print();
    println!("end");
    ExitCode::SUCCESS
}
