//! The thread that plays the kernel core, and what it shares with the poster.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use base::posted::{Consumer, Entries, InFlight};

/// A word on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub struct Line(pub AtomicU32);

/// What both threads see. Rule: entries as the contract has it; `head` and `parked` are written by the
/// partner; `line` and `stop` by both.
#[derive(Default)]
#[repr(align(4096))]
pub struct Shared {
    /// The syspage.
    pub entries: Entries,
    /// Word of the control page: how far the kernel has come.
    pub head: Line,
    /// Word of the control page: nobody looks.
    pub parked: Line,
    /// For the bare ping-pong.
    pub line: Line,
    stop: Line,
}

/// The poster's value of `line`.
pub const PING: u32 = 1;
const PONG: u32 = 2;

/// What the partner does while the poster measures.
#[derive(Clone, Copy)]
pub enum Job {
    /// Answers on `line`.
    Pong,
    /// Serves the syspage.
    Scan,
}

/// The partner thread.
pub struct Partner {
    shared: &'static Shared,
    jobs: Sender<Job>,
    ends: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Partner {
    /// Starts it on a processor, where it sleeps.
    pub fn start(shared: &'static Shared, processor: usize) -> Partner {
        let (jobs, to_do) = channel();
        let (done, ends) = channel();
        let thread = std::thread::spawn(move || {
            pin(processor);
            let mut scanner = Scanner::new();
            for job in to_do {
                match job {
                    Job::Pong => pong(shared),
                    Job::Scan => scanner.run(shared),
                }
                if done.send(()).is_err() {
                    return;
                }
            }
        });
        Partner { shared, jobs, ends, thread }
    }

    /// Has the partner do its job while `measure` runs.
    pub fn during(&mut self, job: Job, measure: impl FnOnce()) {
        self.shared.stop.0.store(0, Ordering::Relaxed);
        self.jobs.send(job).expect("the partner thread runs until `end`");
        measure();
        self.shared.stop.0.store(1, Ordering::Release);
        self.ends.recv().expect("the partner thread runs until `end`");
    }

    /// Ends the thread.
    pub fn end(self) {
        drop(self.jobs);
        self.thread.join().expect("the partner thread does not panic");
    }
}

fn pong(shared: &Shared) {
    let line = &shared.line.0;
    loop {
        if line.load(Ordering::Acquire) == PING {
            line.store(PONG, Ordering::Release);
        } else if shared.stop.0.load(Ordering::Relaxed) != 0 {
            return;
        }
    }
}

/// The kernel's side of the syspage, and processes for its handler to look at.
struct Scanner {
    consumer: Consumer,
    in_flight: InFlight,
    processes: Vec<AtomicU32>,
}

impl Scanner {
    fn new() -> Scanner {
        let processes = (1..257).map(AtomicU32::new).collect();
        Scanner { consumer: Consumer::new(), in_flight: InFlight::new(), processes }
    }

    fn run(&mut self, shared: &Shared) {
        let Scanner { consumer, in_flight, processes } = self;
        let mut head = consumer.head();
        loop {
            let call = |call: &_| super::serve(processes, call);
            consumer.visit(&shared.entries, in_flight, super::DEPTH, call);
            if consumer.head() != head {
                head = consumer.head();
                shared.head.0.store(head, Ordering::Release);
            } else if shared.stop.0.load(Ordering::Relaxed) != 0 {
                return;
            }
        }
    }
}

/// Two processors that the program may run on.
pub fn two_processors() -> Option<[usize; 2]> {
    // SAFETY: all zeros is an empty set; the kernel fills in at most its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return None;
        }
        set
    };
    // SAFETY: the numbers are below the size of the set.
    let mut may =
        (0..libc::CPU_SETSIZE as usize).filter(|at| unsafe { libc::CPU_ISSET(*at, &set) });
    Some([may.next()?, may.next()?])
}

/// Keeps the calling thread on a processor.
pub fn pin(processor: usize) {
    // SAFETY: the set is a local of the size that is named, and the number came from such a set.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    assert_eq!(result, 0, "the host lets a thread run where the program may run");
}
