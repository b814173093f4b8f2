//! What happened since boot, counted: per core, per thread, and per process and call number.
//!
//! Rule of every counter of a core or a thread: one writer at a time, its own core, which loads, adds
//! and stores; so counting is two plain instructions, and whoever reads sees some recent value. What
//! several threads of a process count together is added atomically. A trap costs one counter of its
//! core, one of its thread and one of its process; a posted call costs one of its syspage.
//!
//! `docs/architecture.md` says what each name means; `/proc/ferry/counters`, `/proc/PID/ferry` and
//! `ferry run --stats` show them.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::task::Poll;

use abi::console::{CORE_COUNTERS, CoreCounters};
use abi::trace::EventKind;
use base::cpu::{CpuId, PerCpu};
use base::sync::Once;
use base::task;
use hal::{Contract, Machine, Pending};
use policy::choice::{Account, Choice};
use policy::route::{CLASS_COUNT, Class};
use policy::table::CALL_LIMIT;

use crate::stages;
use crate::trace::{self, What};

/// Call numbers per block of a `CallTable`.
const BLOCK: usize = 64;

/// A counter with one writer at a time.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// At zero.
    pub const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// Adds; only its writer does.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Its value, or a recent one.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of a core. `doorbells` and `parks` are counted by `base::task`.
pub struct Core {
    /// Faults of user code.
    pub faults: Counter,
    /// Calls that trapped and were carried out here.
    pub local: Counter,
    /// Calls that trapped here and were sent to another core.
    pub remote: Counter,
    /// Posted calls that this core found.
    pub posted: Counter,
    /// Interrupts taken in user mode or halted.
    pub interrupts: Counter,
    /// Times that another thread than before entered user mode.
    pub switches: Counter,
    /// Looks of the scanner at a syspage.
    pub visits: Counter,
    /// Looks that found something.
    pub hits: Counter,
    /// The thread that entered user mode last.
    last_thread: AtomicU32,
}

static CORES: PerCpu<Core> = PerCpu::new(
    [const {
        Core {
            faults: Counter::new(),
            local: Counter::new(),
            remote: Counter::new(),
            posted: Counter::new(),
            interrupts: Counter::new(),
            switches: Counter::new(),
            visits: Counter::new(),
            hits: Counter::new(),
            last_thread: AtomicU32::new(0),
        }
    }; hal::MAX_CPUS],
);

/// The counters of this core.
#[inline]
pub fn here() -> &'static Core {
    CORES.here()
}

/// The thread of this number is about to enter user mode on this core.
#[inline]
pub fn note_entry(tid: u32, thread: &ThreadCounters) {
    let core = here();
    let last = core.last_thread.load(Ordering::Relaxed);
    if last != tid {
        core.last_thread.store(tid, Ordering::Relaxed);
        let value = u64::from(last);
        trace::now(What { thread: tid, value, ..What::of(EventKind::Switch) });
        core.switches.add(1);
        thread.switches.add(1);
    }
}

/// This core took interrupts.
pub fn note_interrupts(pending: &Pending) {
    let count = [pending.timer, pending.ipi, pending.device].iter().filter(|came| **came).count();
    here().interrupts.add(count as u64);
}

/// The counters of a core as they are told to users, in the order of `CORE_COUNTERS`.
pub fn of_core(core: CpuId) -> CoreCounters {
    let cells = CORES.of(core);
    let base = task::core_counts(core);
    let [faults, local, remote] = [&cells.faults, &cells.local, &cells.remote].map(Counter::get);
    let values: [u64; CORE_COUNTERS.len()] = [
        // Every trap is one of these.
        faults + local + remote,
        local,
        remote,
        cells.posted.get(),
        base.doorbells,
        cells.interrupts.get(),
        cells.switches.get(),
        base.parks,
        cells.visits.get(),
        cells.hits.get(),
    ];
    CoreCounters { core: core.index() as u32, reserved: 0, values }
}

/// Counters of a thread; the core that it is on writes them, or the one that serves its call.
#[derive(Default)]
pub struct ThreadCounters {
    /// Times that it trapped.
    pub traps: Counter,
    /// Calls that it posted into syspages that it has given back.
    pub posted_before: Counter,
    /// Times that it asked for a look at its syspage (`ferry_wait`).
    pub doorbells: Counter,
    /// Times that it entered user mode on a core where another thread had been.
    pub switches: Counter,
}

/// One number per call and column, in blocks that are made when they are first needed.
pub struct CallTable<const COLUMNS: usize> {
    blocks: [Once<Box<Block<COLUMNS>>>; CALL_LIMIT / BLOCK],
}

type Block<const COLUMNS: usize> = [[AtomicU64; COLUMNS]; BLOCK];

impl<const COLUMNS: usize> CallTable<COLUMNS> {
    const fn new() -> Self {
        CallTable { blocks: [const { Once::new() }; CALL_LIMIT / BLOCK] }
    }

    #[inline]
    fn cell(&self, number: usize, column: usize) -> Option<&AtomicU64> {
        let once = self.blocks.get(number / BLOCK)?;
        let block = once.get().unwrap_or_else(|| once.call_once(new_block));
        block[number % BLOCK].get(column)
    }

    fn add(&self, number: usize, column: usize, count: u64) {
        if let Some(cell) = self.cell(number, column) {
            cell.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Counts one more; `is_shared`: others may do so at the same time.
    #[inline]
    fn count_one(&self, number: usize, column: usize, is_shared: bool) {
        let Some(cell) = self.cell(number, column) else { return };
        if is_shared {
            cell.fetch_add(1, Ordering::Relaxed);
        } else {
            cell.store(cell.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
    }

    fn get(&self, number: usize) -> [u64; COLUMNS] {
        let block = self.blocks.get(number / BLOCK).and_then(Once::get);
        block.map_or([0; COLUMNS], |block| {
            core::array::from_fn(|column| block[number % BLOCK][column].load(Ordering::Relaxed))
        })
    }
}

#[cold]
fn new_block<const COLUMNS: usize>() -> Box<Block<COLUMNS>> {
    Box::new(core::array::from_fn(|_| core::array::from_fn(|_| AtomicU64::new(0))))
}

/// Columns of trapped calls.
const LOCAL: usize = 0;
const REMOTE: usize = 1;
const LOCAL_WAITS: usize = 2;
const REMOTE_WAITS: usize = 3;
/// Columns of posted calls.
const POSTED: usize = 0;
const POSTED_WAITS: usize = 1;

/// Counters of a process, per call number.
pub struct ProcessCounters {
    /// The process has had a second thread, so trapped calls are counted on several cores at once.
    is_shared: AtomicBool,
    trapped: CallTable<4>,
    posted: CallTable<2>,
    /// One `policy::choice::Account` per call number. Threads that meet here overwrite each other's last
    /// sample, which is as good.
    accounts: CallTable<1>,
}

/// What one kind of call of one process came to.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct CallCounts {
    /// Posted.
    pub posted: u64,
    /// Trapped and sent to another core.
    pub remote: u64,
    /// Trapped and carried out on the caller's core.
    pub local: u64,
    /// Answers for which the caller's core spun in the kernel.
    pub spins: u64,
    /// Times that the caller was suspended until there was an answer.
    pub waits: u64,
}

impl Default for ProcessCounters {
    fn default() -> Self {
        ProcessCounters {
            is_shared: AtomicBool::new(false),
            trapped: CallTable::new(),
            posted: CallTable::new(),
            accounts: CallTable::new(),
        }
    }
}

impl ProcessCounters {
    /// A thread is added to one that counts already.
    pub fn note_second_thread(&self) {
        self.is_shared.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn count_trapped(&self, number: usize, column: usize) {
        self.trapped.count_one(number, column, self.is_shared.load(Ordering::Relaxed));
    }

    /// Takes over what was counted, per call number, at a syspage of a thread that goes away.
    pub fn absorb(&self, thread: &ThreadCounters, posted: impl Iterator<Item = u64>) {
        let mut sum = 0;
        for (number, count) in posted.enumerate().filter(|(_, count)| *count > 0) {
            self.posted.add(number, POSTED, count);
            sum += count;
        }
        thread.posted_before.add(sum);
    }

    /// Where the next call of a number goes while its server's core is at hand.
    #[inline]
    pub fn choose(&self, number: usize) -> Choice {
        let Some(cell) = self.accounts.cell(number, 0) else { return Choice::default() };
        let (choice, account) = Account(cell.load(Ordering::Relaxed)).next();
        cell.store(account.0, Ordering::Relaxed);
        choice
    }

    /// What a call took that was chosen to be timed. Says whether calls of this number go away from now
    /// on, when that changes.
    pub fn observe(&self, number: usize, away: bool, ns: u64) -> Option<bool> {
        let cell = self.accounts.cell(number, 0)?;
        let before = Account(cell.load(Ordering::Relaxed));
        let account = before.observe(away, ns);
        cell.store(account.0, Ordering::Relaxed);
        (account.is_away() != before.is_away()).then_some(account.is_away())
    }

    /// The account of a call number.
    pub fn account(&self, number: usize) -> Account {
        Account(self.accounts.get(number)[0])
    }

    /// What came of each call that occurred, by number. `posted_here`: what was counted, per call number,
    /// at the syspages that the process has now.
    pub fn calls(&self, posted_here: Vec<u64>) -> impl Iterator<Item = (usize, CallCounts)> {
        (0..CALL_LIMIT)
            .zip(posted_here)
            .map(|(number, here)| (number, of_call(self, number, here)))
            .filter(|(_, counts)| *counts != CallCounts::default())
    }

    /// A thread has to wait for a call that it posted.
    pub fn note_posted_wait(&self, number: usize) {
        self.posted.add(number, POSTED_WAITS, 1);
    }
}

fn of_call(counters: &ProcessCounters, number: usize, posted_here: u64) -> CallCounts {
    let trapped = counters.trapped.get(number);
    let posted = counters.posted.get(number);
    CallCounts {
        posted: posted[POSTED] + posted_here,
        remote: trapped[REMOTE],
        local: trapped[LOCAL],
        spins: trapped[REMOTE].saturating_sub(trapped[REMOTE_WAITS]),
        waits: trapped[LOCAL_WAITS] + trapped[REMOTE_WAITS] + posted[POSTED_WAITS],
    }
}

/// A call of this core's thread is carried out here.
#[inline]
pub fn note_local(process: &ProcessCounters, number: usize) {
    here().local.add(1);
    process.count_trapped(number, LOCAL);
}

/// A call of this core's thread is sent to another core.
#[inline]
pub fn note_remote(process: &ProcessCounters, number: usize) {
    here().remote.add(1);
    process.count_trapped(number, REMOTE);
}

/// What panics made of the server of one class.
struct RestartCells {
    count: AtomicU64,
    last_ns: AtomicU64,
    last_call: AtomicU32,
}

static RESTARTS: [RestartCells; CLASS_COUNT] = [const {
    RestartCells {
        count: AtomicU64::new(0),
        last_ns: AtomicU64::new(0),
        last_call: AtomicU32::new(0),
    }
}; CLASS_COUNT];

/// How often handlers of a server panicked.
#[derive(Clone, Copy, Debug)]
pub struct Restarts {
    /// Since boot.
    pub count: u64,
    /// When last, in nanoseconds since boot.
    pub last_ns: u64,
    /// Number of the call whose handler that was.
    pub last_call: usize,
}

/// The handler of a call panicked, and its server goes on with the next request.
pub fn note_restart(class: Class, number: usize) {
    let cells = &RESTARTS[class as usize];
    cells.last_ns.store(base::time::now_ns(), Ordering::Relaxed);
    cells.last_call.store(u32::try_from(number).unwrap_or(u32::MAX), Ordering::Relaxed);
    cells.count.fetch_add(1, Ordering::Relaxed);
}

/// Panics in handlers of a class.
pub fn restarts(class: Class) -> Restarts {
    let cells = &RESTARTS[class as usize];
    Restarts {
        count: cells.count.load(Ordering::Relaxed),
        last_ns: cells.last_ns.load(Ordering::Relaxed),
        last_call: cells.last_call.load(Ordering::Relaxed) as usize,
    }
}

/// The answer of a call, and whether it took more than one look.
pub struct Watched<T> {
    /// The answer.
    pub output: T,
    /// The caller was suspended.
    pub waited: bool,
    /// For how many ticks, when stages are written down.
    pub waited_ticks: u64,
}

/// Waits for a trapped call, and notes it when that takes more than one look. The future stays where it
/// is: those of calls are large.
pub async fn watch<F: Future>(
    process: &ProcessCounters,
    number: usize,
    is_remote: bool,
    mut future: Pin<&mut F>,
) -> Watched<F::Output> {
    let mut waited = false;
    let (mut waited_ticks, mut paused) = (0, 0);
    poll_fn(|context| {
        if paused != 0 {
            waited_ticks += Machine::cycles().wrapping_sub(paused);
        }
        let poll = future.as_mut().poll(context);
        paused = stages::stamp();
        if poll.is_pending() && !waited {
            waited = true;
            let column = if is_remote { REMOTE_WAITS } else { LOCAL_WAITS };
            process.count_trapped(number, column);
        }
        match poll {
            Poll::Ready(output) => Poll::Ready(Watched { output, waited, waited_ticks }),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_memory_for_the_calls_that_occur_only() {
        let table = CallTable::<2>::new();
        assert_eq!(table.get(CALL_LIMIT - 1), [0, 0]);
        table.add(CALL_LIMIT - 1, 1, 5);
        table.add(CALL_LIMIT, 0, 7);
        table.add(usize::MAX, 0, 7);
        assert_eq!(table.get(CALL_LIMIT - 1), [0, 5]);
        assert_eq!(table.get(CALL_LIMIT), [0, 0]);
        assert_eq!(table.blocks.iter().filter(|block| block.get().is_some()).count(), 1);
    }

    #[test]
    fn answers_without_a_wait_are_spins() {
        let counters = ProcessCounters::default();
        for column in [REMOTE, REMOTE, REMOTE, REMOTE_WAITS, LOCAL, LOCAL_WAITS] {
            counters.trapped.add(3, column, 1);
        }
        counters.note_posted_wait(3);
        let counts = of_call(&counters, 3, 10);
        let expected = CallCounts { posted: 10, remote: 3, local: 1, spins: 2, waits: 3 };
        assert_eq!(counts, expected);
    }
}
