//! Tracing: a record of every call and lock, in a ring of the core that knows its end, and of what happens
//! more rarely. Off unless the boot option
//! `ferry.trace=RECORDS` says otherwise; the host takes the records while the machine runs.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::trace::ring::{MOST_RINGS, Rings};
use abi::trace::{
    Call, Duration, Event, EventKind, Events, Lock, LockScheme, MAX_APPLICATION, MAX_STAMP,
    MOST_DETAIL, Path, Record,
};
use base::cpu::{self, CpuId, PerCpu};
use base::record_ring::RecordRing;
use base::sync::Once;
use base::{task, time};
use hal::{Contract, Machine};

use crate::stages;

static RINGS: PerCpu<Once<RecordRing>> = PerCpu::new([const { Once::new() }; hal::MAX_CPUS]);

/// What the processor's time stamp showed when the trace began.
static BEGAN: AtomicU64 = AtomicU64::new(0);

/// What is recorded.
static EVENTS: AtomicU32 = AtomicU32::new(Events::USUAL.bits());

fn events() -> Events {
    Events::from_bits(EVENTS.load(Ordering::Relaxed))
}

/// Makes a ring of so many records for each core, for these events; false when there is no memory for them.
pub fn start(records: u32, wanted: Events) -> bool {
    EVENTS.store(wanted.bits(), Ordering::Relaxed);
    BEGAN.store(Machine::cycles(), Ordering::Relaxed);
    let are_made = CpuId::all().all(|core| match RecordRing::new(records) {
        Ok(ring) => {
            RINGS.of(core).call_once(|| ring);
            true
        }
        Err(_) => false,
    });
    if are_made {
        task::note_wakes(|core| now(What { other_core: core, ..What::of(EventKind::Doorbell) }));
        if wanted.has(EventKind::Allocation) {
            base::heap::note_allocations(|class, bytes| {
                let (detail, value) = (class as u32, bytes as u64);
                now(What { detail, value, ..What::of(EventKind::Allocation) });
            });
        }
    }
    are_made
}

/// Where the rings are, for the host; `None` when nothing is traced.
pub fn rings() -> Option<Rings> {
    let mut addresses = [0; MOST_RINGS];
    let mut capacity = 0;
    for (core, address) in CpuId::all().zip(&mut addresses) {
        let ring = RINGS.of(core).get()?;
        *address = ring.address().0;
        capacity = ring.capacity() as u32;
    }
    let since_ns =
        time::cycles_to_ns(Machine::cycles().wrapping_sub(BEGAN.load(Ordering::Relaxed)));
    Some(Rings {
        cores: CpuId::all().count() as u32,
        capacity,
        ticks_per_second: Machine::cycles_per_second(),
        began_unix_ns: time::wall_ns().saturating_sub(since_ns),
        addresses,
    })
}

/// What the core that carried a call out knows of it: stamps, and how long its handler waited.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// When it was taken.
    pub taken: u64,
    /// When its handler was through.
    pub handled: u64,
    /// Ticks between the two in which the handler waited.
    pub waited: u64,
    /// Number of that core.
    pub core: usize,
}

/// A call that is over.
#[derive(Clone, Copy, Debug)]
pub struct Traced {
    /// Its number.
    pub number: usize,
    /// Number of the thread that called.
    pub thread: u32,
    /// Number of the core on which the caller was.
    pub core: usize,
    /// How it was carried.
    pub path: Path,
    /// Stamp of its trap; of its being taken, when it was posted.
    pub trapped: u64,
    /// Stamp of its being sent.
    pub sent: u64,
    /// What the core knows that carried it out.
    pub served: Served,
    /// Stamp of its answer.
    pub answered: u64,
}

/// Writes a call into the ring of this core.
#[cold]
pub fn write(call: &Traced) {
    let Some(ring) = RINGS.here().get().filter(|_| events().has_calls()) else { return };
    let Served { taken, handled, waited, core } = call.served;
    ring.push(
        &Record::Call(Call {
            core: call.core as u8,
            server_core: core as u8,
            application: application(call.thread),
            number: call.number as u16,
            path: call.path,
            contention: task::others_in_kernel(),
            start: since_begin(call.trapped),
            enter: Duration::from_ticks(between(call.trapped, call.sent)),
            fly_in: Duration::from_ticks(between(call.sent, taken)),
            poll: Duration::from_ticks(between(taken, handled).saturating_sub(waited)),
            wait: Duration::from_ticks(waited),
            fly_out: Duration::from_ticks(between(handled, call.answered)),
            exit: Duration::from_ticks(0),
        })
        .encode(),
    );
}

/// Ticks from one stamp to another; 0 when the clocks of two cores, which may differ by a little, have
/// them the other way round.
fn between(from: u64, to: u64) -> u64 {
    u64::try_from(to.wrapping_sub(from).cast_signed()).unwrap_or(0)
}

/// A stamp as records have it.
fn since_begin(stamp: u64) -> u64 {
    between(BEGAN.load(Ordering::Relaxed), stamp).min(MAX_STAMP)
}

/// A thread as records have it.
fn application(thread: u32) -> u16 {
    (thread & u32::from(MAX_APPLICATION)) as u16
}

/// A moment, when records are written; else 0, at the price of a branch.
#[inline]
pub fn stamp() -> u64 {
    if stages::is_traced() { Machine::cycles() } else { 0 }
}

/// A lock of a lock scheme, and for which call of which thread it was taken.
#[derive(Clone, Copy, Debug)]
pub struct TracedLock {
    /// Scheme.
    pub scheme: LockScheme,
    /// Its number in traces.
    pub lock: u8,
    /// Number of the call.
    pub number: usize,
    /// Number of the thread.
    pub thread: u32,
}

/// A lock has just been released. Stamps: it was asked for, acquired, about to be released.
#[cold]
pub fn lock(lock: &TracedLock, [asked, acquired, releasing]: [u64; 3]) {
    let Some(ring) = RINGS.here().get().filter(|_| events().has_locks()) else { return };
    let ticks = |from, to| u32::try_from(between(from, to)).unwrap_or(u32::MAX);
    ring.push(
        &Record::Lock(Lock {
            core: CpuId::current().index() as u8,
            lock: lock.lock,
            scheme: lock.scheme,
            number: lock.number as u16,
            application: application(lock.thread),
            contention: task::others_in_kernel(),
            entry: since_begin(asked),
            waited: ticks(asked, acquired),
            held: ticks(acquired, releasing),
            release: Duration::from_ticks(between(releasing, Machine::cycles())),
        })
        .encode(),
    );
}

/// What happened, as `abi::trace::Event` has it.
#[derive(Clone, Copy, Debug)]
pub struct What {
    /// Kind.
    pub kind: EventKind,
    /// Number of the thread that it is about, or 0.
    pub thread: u32,
    /// Another core that takes part, or this one.
    pub other_core: CpuId,
    /// Depends on the kind.
    pub detail: u32,
    /// Likewise.
    pub value: u64,
}

impl What {
    /// Something that is about no thread and no other core.
    pub fn of(kind: EventKind) -> What {
        What { kind, thread: 0, other_core: CpuId::current(), detail: 0, value: 0 }
    }
}

/// Something that has no duration happened, if records are written.
#[inline]
pub fn now(what: What) {
    if stages::is_traced() {
        let now = Machine::cycles();
        event(CpuId::current(), what, now, now);
    }
}

/// Something began at a stamp and is over now; nothing happens when the stamp is 0.
#[inline]
pub fn since(stamp: u64, what: What) {
    if stamp != 0 {
        event(CpuId::current(), what, stamp, Machine::cycles());
    }
}

#[cold]
fn event(core: CpuId, what: What, from: u64, to: u64) {
    let Some(ring) = RINGS.of(core).get().filter(|_| events().has(what.kind)) else { return };
    ring.push(
        &Record::Event(Event {
            core: core.index() as u8,
            kind: what.kind,
            application: application(what.thread),
            other_core: what.other_core.index() as u8,
            detail: what.detail,
            time: since_begin(from),
            duration: Duration::from_ticks(between(from, to)),
            value: what.value,
        })
        .encode(),
    );
}

/// The roles of each core, as sets by number. Called once, before other cores run: they write to their
/// rings from then on.
pub fn roles(application: u64, kernel: u64, interrupt: u64) {
    let now = Machine::cycles();
    for core in CpuId::all() {
        let has = |set: u64| (set >> core.index() & 1) as u32;
        let detail = has(application) | has(kernel) << 1 | has(interrupt) << 2;
        event(core, What { detail, other_core: core, ..What::of(EventKind::RoleChange) }, now, now);
    }
}

/// Rounds of which the shortest tells most of two clocks.
const ROUNDS: u32 = 16;
/// What the comparison with one core may take, in nanoseconds: the host may run the other one late.
const COMPARISON_NS: u64 = 100_000_000;

/// A question and an answer between two cores, on lines of their own.
#[repr(align(128))]
struct Meeting {
    /// Odd: asked; even: answered.
    turn: AtomicU32,
    /// What the other core's clock showed.
    shown: AtomicU64,
}

/// Compares this core's clock with that of every other core, and records what came of it. Nothing is recorded
/// of a core that does not answer in time.
pub async fn compare_clocks() {
    let here = CpuId::current();
    for other in CpuId::all().filter(|core| *core != here) {
        let meeting = Arc::new(Meeting { turn: AtomicU32::new(0), shown: AtomicU64::new(0) });
        let end_ns = time::now_ns() + COMPARISON_NS;
        let theirs = meeting.clone();
        if task::spawn(other, async move { answer(&theirs, end_ns) }).is_err() {
            return;
        }
        if let Some((asked, shown, answered)) = ask(&meeting, end_ns) {
            let half = between(asked, answered) / 2;
            let middle = asked.wrapping_add(half);
            let detail = u32::try_from(half + 1).unwrap_or(u32::MAX).min(MOST_DETAIL);
            let value = since_begin(shown);
            let what = What { other_core: other, detail, value, ..What::of(EventKind::Clock) };
            event(here, what, middle, middle);
        }
        task::yield_now().await;
    }
}

/// The shortest of all rounds: stamps of the question, of the other core, and of its answer.
fn ask(meeting: &Meeting, end_ns: u64) -> Option<(u64, u64, u64)> {
    let mut best = None;
    for round in 0..ROUNDS {
        let asked = Machine::cycles();
        meeting.turn.store(2 * round + 1, Ordering::Release);
        while meeting.turn.load(Ordering::Acquire) != 2 * round + 2 {
            if time::now_ns() >= end_ns {
                return best;
            }
            cpu::relax();
        }
        let answered = Machine::cycles();
        let shown = meeting.shown.load(Ordering::Relaxed);
        let is_shorter = |(from, _, to)| between(asked, answered) < between(from, to);
        if best.is_none_or(is_shorter) {
            best = Some((asked, shown, answered));
        }
    }
    best
}

fn answer(meeting: &Meeting, end_ns: u64) {
    for round in 0..ROUNDS {
        while meeting.turn.load(Ordering::Acquire) != 2 * round + 1 {
            if time::now_ns() >= end_ns {
                return;
            }
            cpu::relax();
        }
        meeting.shown.store(Machine::cycles(), Ordering::Relaxed);
        meeting.turn.store(2 * round + 2, Ordering::Release);
    }
}
