//! The executor of a core: its ready queues and its doorbell.
//!
//! A task that waited and was woken goes into one queue; a task that is new, or that yielded, into
//! another, where it waits for its turn. The woken come first, so that somebody who waits for little
//! does not stand behind thousands who want all they can get (a fork bomb, and the one who is to end
//! it). Only so many in a row, though: then one of the others has its turn.

use core::future::Future;
use core::pin::Pin;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::task::{Context, Poll};

use hal::{Contract, MAX_CPUS, Machine};

use super::doorbell::Doorbell;
use super::queue::{Link, Popped, ReadyQueue};
use super::storage::{Header, Task};
use crate::cpu::{self, CpuId, CpuLocal, LocalSlot, PerCpu};
use crate::memory::OutOfMemory;
use crate::panic::{Contain, contain};
use crate::sync::{self, Once};
use crate::time;

/// Most tasks that `run_ready` polls before it returns.
const BATCH: usize = 32;
/// Most tasks that were woken in a row before one has its turn that was not.
const MOST_WOKEN: usize = 8;

struct Executor {
    /// Tasks that waited for something, which has come.
    woken: ReadyQueue,
    /// New tasks, and those that yielded.
    in_turn: ReadyQueue,
    /// Tasks of `woken` that were taken in a row; touched by this core alone.
    woken_in_a_row: AtomicUsize,
    /// The task that is being polled yields; touched by this core alone.
    yields: AtomicBool,
    doorbell: Doorbell,
    /// Tasks that this core started, on whatever core; written by it alone.
    started: AtomicUsize,
    /// Tasks that ended on this core; written by it alone.
    ended: AtomicUsize,
    /// Doorbells that this core rang at others; written by it alone.
    doorbells: AtomicU64,
    /// Times that this core halted; written by it alone.
    parks: AtomicU64,
    /// `Header::woken` of the task that is being polled; touched by this core alone.
    woken_by: AtomicU64,
}

/// Whether tasks note when they were made ready, and by whom.
static NOTES_WAKES: AtomicBool = AtomicBool::new(false);

/// Is told of doorbells, by the core that rings.
static ON_DOORBELL: Once<fn(CpuId)> = Once::new();

static EXECUTORS: PerCpu<Executor> = PerCpu::new(
    [const {
        Executor {
            woken: ReadyQueue::new(),
            in_turn: ReadyQueue::new(),
            woken_in_a_row: AtomicUsize::new(0),
            yields: AtomicBool::new(false),
            doorbell: Doorbell::new(),
            started: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            doorbells: AtomicU64::new(0),
            parks: AtomicU64::new(0),
            woken_by: AtomicU64::new(0),
        }
    }; MAX_CPUS],
);

impl Executor {
    #[inline]
    fn has_ready(&self) -> bool {
        !self.woken.is_empty() || !self.in_turn.is_empty()
    }

    /// The task that is to run next.
    #[inline]
    fn next(&self) -> Option<NonNull<Link>> {
        let in_a_row = self.woken_in_a_row.load(Ordering::Relaxed);
        if in_a_row < MOST_WOKEN
            && let Some(link) = take(&self.woken)
        {
            self.woken_in_a_row.store(in_a_row + 1, Ordering::Relaxed);
            return Some(link);
        }
        self.woken_in_a_row.store(0, Ordering::Relaxed);
        take(&self.in_turn).or_else(|| take(&self.woken))
    }
}

/// Takes the oldest task of a queue of this core.
#[inline]
fn take(queue: &ReadyQueue) -> Option<NonNull<Link>> {
    loop {
        // SAFETY: whoever borrowed `CONSUMER` is the only consumer of this core's queues.
        match CONSUMER.with(|()| unsafe { queue.pop() }) {
            Popped::Empty => return None,
            Popped::Busy => cpu::relax(),
            Popped::Link(link) => return Some(link),
        }
    }
}

/// Whoever borrows it is the consumer of this core's queues.
static CONSUMER: CpuLocal<()> = CpuLocal::new([const { LocalSlot::new(()) }; MAX_CPUS]);

/// How many tasks there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskCounts {
    /// Started since boot, on all cores.
    pub started: usize,
    /// Of those, ended.
    pub ended: usize,
}

/// Tasks started and ended on all cores; for reports of leaks.
pub fn task_counts() -> TaskCounts {
    let mut counts = TaskCounts { started: 0, ended: 0 };
    for executor in (0..MAX_CPUS).filter_map(CpuId::new).map(|cpu| EXECUTORS.of(cpu)) {
        counts.ended += executor.ended.load(Ordering::Relaxed);
        counts.started += executor.started.load(Ordering::Relaxed);
    }
    counts
}

/// What a core did since boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoreCounts {
    /// Interrupts that it sent because another core had work and might not see it.
    pub doorbells: u64,
    /// Times that it halted.
    pub parks: u64,
}

/// Doorbells and parks of a core.
pub fn core_counts(core: CpuId) -> CoreCounts {
    let executor = EXECUTORS.of(core);
    CoreCounts {
        doorbells: executor.doorbells.load(Ordering::Relaxed),
        parks: executor.parks.load(Ordering::Relaxed),
    }
}

fn count_event(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

#[inline]
fn count(counter: &AtomicUsize) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

#[inline]
pub(super) fn count_start() {
    count(&EXECUTORS.here().started);
}

#[inline]
pub(super) fn count_end() {
    count(&EXECUTORS.here().ended);
}

/// Starts a task on a core. It is polled there for the first time when that core comes to it.
pub fn spawn(
    core: CpuId,
    future: impl Future<Output = ()> + Send + 'static,
) -> Result<(), OutOfMemory> {
    let task = Task::allocate(core, None)?;
    count_start();
    // SAFETY: the task is fresh.
    let header = unsafe { Task::fill(task, || future) };
    // SAFETY: as above; the task is idle, so `wake` tells us to queue it, and it has not ended.
    unsafe {
        if header.as_ref().state.wake() {
            EXECUTORS.of(core).in_turn.push(Header::link_of(header));
            ring_doorbell(core);
        }
    }
    Ok(())
}

/// Like `spawn`; `on_panic` runs on the task's core if the task panics, after the panic was reported.
pub fn spawn_with_hook(
    core: CpuId,
    future: impl Future<Output = ()> + Send + 'static,
    on_panic: impl FnOnce() + Send + 'static,
) -> Result<(), OutOfMemory> {
    spawn(core, Hooked { future: contain(future), on_panic: Some(on_panic) })
}

/// A task with a hook. Not an `async` block, which would have room for the future twice.
struct Hooked<F, H> {
    future: Contain<F>,
    on_panic: Option<H>,
}

impl<F: Future<Output = ()>, H: FnOnce()> Future for Hooked<F, H> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // SAFETY: `future` is pinned with us: it is only polled in place. `on_panic` is never pinned.
        let (future, on_panic) = unsafe {
            let this = self.get_unchecked_mut();
            (Pin::new_unchecked(&mut this.future), &mut this.on_panic)
        };
        future.poll(context).map(|result| {
            if let (Err(_), Some(on_panic)) = (result, on_panic.take()) {
                on_panic();
            }
        })
    }
}

/// Puts a task that was woken into the queue of its core and rings there.
///
/// # Safety
/// `State::wake` or `State::pause` told the caller to; the task has not ended.
#[inline]
pub(super) unsafe fn queue(core: CpuId, header: NonNull<Header>) {
    let executor = EXECUTORS.of(core);
    if NOTES_WAKES.load(Ordering::Relaxed) {
        let now = Machine::cycles() << 8 | CpuId::current().index() as u64;
        // SAFETY: it has not ended, by the caller's promise.
        unsafe { header.as_ref().woken.store(now, Ordering::Relaxed) };
    }
    // SAFETY: a task is queued at most once, and stays valid until it has ended, which happens only
    // after it was popped.
    unsafe { executor.woken.push(Header::link_of(header)) };
    ring_doorbell(core);
}

/// Interrupts a core if it is halted or in user mode, so that it looks for work. Call it after the work
/// was made visible.
#[inline]
pub fn ring_doorbell(core: CpuId) {
    if EXECUTORS.of(core).doorbell.ring() {
        count_event(&EXECUTORS.here().doorbells);
        if let Some(tell) = ON_DOORBELL.get() {
            tell(core);
        }
        Machine::send_ipi(core.index());
    }
}

/// From now on tasks note when they were made ready (`woken`), and `on_doorbell` is told of every doorbell
/// by the core that rings it. Called once, at boot; it must not take locks.
pub fn note_wakes(on_doorbell: fn(CpuId)) {
    ON_DOORBELL.call_once(|| on_doorbell);
    NOTES_WAKES.store(true, Ordering::Relaxed);
}

/// Who made the task ready that is being polled, and when, in ticks of the machine; `None` when that is
/// not noted, was asked before in this poll, or nobody did.
pub fn woken() -> Option<(CpuId, u64)> {
    let noted = EXECUTORS.here().woken_by.swap(0, Ordering::Relaxed);
    let core = CpuId::new((noted & 0xff) as usize)?;
    (noted != 0).then_some((core, noted >> 8))
}

/// Whether a core is halted, or about to be. A hint.
#[inline]
pub fn is_parked(core: CpuId) -> bool {
    EXECUTORS.of(core).doorbell.is_parked()
}

/// How many other cores are in the kernel now. A hint.
pub fn others_in_kernel() -> u8 {
    let here = CpuId::current();
    CpuId::all().filter(|core| *core != here && EXECUTORS.of(*core).doorbell.is_awake()).count()
        as u8
}

/// Whether this core has tasks to poll.
#[inline]
pub fn has_ready() -> bool {
    EXECUTORS.here().has_ready()
}

/// Whether this core has tasks to poll that waited for something, which has come.
#[inline]
pub fn has_woken() -> bool {
    !EXECUTORS.here().woken.is_empty()
}

/// Polls a task of this core: of those that were woken, else of the others, the one that has waited
/// longest. False when none was ready.
#[inline]
pub fn run_one() -> bool {
    let executor = EXECUTORS.here();
    let Some(link) = executor.next() else { return false };
    // SAFETY: a popped link is a task of this core that has not ended.
    unsafe { run(executor, Header::of_link(link)) };
    true
}

/// # Safety
/// The task was popped from a queue of this core, whose executor is given, so it is queued no more and
/// nobody else polls it.
unsafe fn run(executor: &Executor, header: NonNull<Header>) {
    executor.yields.store(false, Ordering::Relaxed);
    if NOTES_WAKES.load(Ordering::Relaxed) {
        // SAFETY: a task that has not ended keeps its memory.
        let noted = unsafe { header.as_ref().woken.swap(0, Ordering::Relaxed) };
        executor.woken_by.store(noted, Ordering::Relaxed);
    }
    // SAFETY: a task that has not ended keeps its memory, and we are its only poller.
    unsafe {
        header.as_ref().state.begin();
        if Header::poll(header) {
            header.as_ref().state.finish();
            count_end();
            Header::release(header);
        } else if header.as_ref().state.pause() {
            let yields = executor.yields.load(Ordering::Relaxed);
            let queue = if yields { &executor.in_turn } else { &executor.woken };
            queue.push(Header::link_of(header));
        }
    }
}

/// Polls tasks that are ready on this core, but not for ever. False when none was.
#[inline]
pub fn run_ready() -> bool {
    let mut worked = false;
    for _ in 0..BATCH {
        if !run_one() {
            break;
        }
        worked = true;
    }
    worked
}

/// Halts this core until an interrupt comes, unless there is work: a ready task, a timer that is due,
/// or what `has_work` finds. Work that appears while this goes on is not missed, provided that whoever
/// made it visible rings the doorbell afterwards. False when it did not halt.
pub fn park(has_work: impl FnOnce() -> bool) -> bool {
    sync::assert_none_held();
    let Executor { doorbell, parks, .. } = EXECUTORS.here();
    doorbell.publish_parked();
    let halts = !has_ready() && !time::is_due() && !has_work();
    if halts {
        count_event(parks);
        Machine::wait_for_interrupt();
    }
    doorbell.publish_awake();
    halts
}

/// This core is about to enter user mode; whether it has tasks to poll. What becomes ready from now on
/// interrupts it.
#[inline]
pub(crate) fn enter_user_mode() -> bool {
    let executor = EXECUTORS.here();
    executor.doorbell.publish_in_user();
    executor.has_ready()
}

/// This core has left user mode, or stays out of it.
#[inline]
pub(crate) fn leave_user_mode() {
    EXECUTORS.here().doorbell.publish_awake();
}

/// Lets every other ready task of this core run first. A task yields as a whole: what it does besides
/// waits as long.
pub fn yield_now() -> Yield {
    Yield { yielded: false }
}

/// See `yield_now`.
#[must_use = "futures do nothing unless awaited"]
pub struct Yield {
    yielded: bool,
}

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if core::mem::replace(&mut self.yielded, true) {
            return Poll::Ready(());
        }
        EXECUTORS.here().yields.store(true, Ordering::Relaxed);
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
