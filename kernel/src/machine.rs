//! What everybody may know of the machine: which cores are for what, the path in force, where threads
//! and servers live, and which cores are wanted.
//!
//! Layout and path are set once, at boot. The rest are words of one core each: its number of threads,
//! written by itself, and a bit for each kind of work that others have left there.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};

use abi::trace::EventKind;
use base::cpu::{CpuId, PerCpu};
use base::sync::Once;
use base::task;
use policy::choice::Wanted;
use policy::place::{self, CoreSet, Layout};
use policy::route::{CLASS_COUNT, CLASSES, CallPath, Class};

use crate::trace::{self, What};

/// No path is fixed.
const AUTO: u8 = u8::MAX;

static LAYOUT: Once<Layout> = Once::new();

/// The path that calls take unless they must stay.
static PATH: AtomicU8 = AtomicU8::new(AUTO);

/// Says what the machine is to be; the first call counts.
pub fn set(layout: Layout, path: Wanted) {
    for class in CLASSES {
        let core = place::server_core(&layout, class);
        SERVER_CORES[class as usize].store(core, Ordering::Relaxed);
    }
    LAYOUT.call_once(|| layout);
    let path = match path {
        Wanted::Fixed(path) => path as u8,
        Wanted::Auto => AUTO,
    };
    PATH.store(path, Ordering::Relaxed);
}

/// Which cores are for what.
pub fn layout() -> &'static Layout {
    const ALL: CoreSet = CoreSet(1);
    const ALONE: &Layout = &Layout { application: ALL, kernel: ALL, interrupt: ALL };
    LAYOUT.get().unwrap_or(ALONE)
}

/// The core that looks after devices and takes their interrupts: the first interrupt core.
pub fn device_core() -> CpuId {
    layout().interrupt.iter().next().and_then(CpuId::new).unwrap_or(CpuId::FIRST)
}

/// The path in force.
pub fn path() -> Wanted {
    match PATH.load(Ordering::Relaxed) {
        path if path == CallPath::Local as u8 => Wanted::Fixed(CallPath::Local),
        path if path == CallPath::Remote as u8 => Wanted::Fixed(CallPath::Remote),
        path if path == CallPath::Posted as u8 => Wanted::Fixed(CallPath::Posted),
        _ => Wanted::Auto,
    }
}

static THREADS: PerCpu<AtomicUsize> = PerCpu::new([const { AtomicUsize::new(0) }; hal::MAX_CPUS]);

/// Number of user threads that live on a core.
pub fn thread_count(core: usize) -> usize {
    CpuId::new(core).map_or(0, |core| THREADS.of(core).load(Ordering::Relaxed))
}

/// A user thread begins to live on this core.
pub fn thread_started() {
    THREADS.here().fetch_add(1, Ordering::Relaxed);
}

/// A user thread of this core ended, or goes elsewhere.
pub fn thread_ended() {
    THREADS.here().fetch_sub(1, Ordering::Relaxed);
}

/// Whether a core serves calls and nothing else now: no program lives on it, and it is not parked. What
/// is sent there is found without an interrupt.
pub fn is_at_hand(core: CpuId) -> bool {
    THREADS.of(core).load(Ordering::Relaxed) == 0 && !task::is_parked(core)
}

/// Which servers of each core may have requests, one bit per class, and whether its scanner has a
/// message: set after something was queued, cleared before the queue is looked at.
static WAITING: PerCpu<AtomicU32> = PerCpu::new([const { AtomicU32::new(0) }; hal::MAX_CPUS]);

/// The bit of the scanner's messages, behind those of the classes.
const SCANNER: u32 = 1 << CLASS_COUNT;

/// A message waits for the scanner of a core.
pub fn wake_scanner(core: CpuId) {
    WAITING.of(core).fetch_or(SCANNER, Ordering::Release);
    task::ring_doorbell(core);
}

/// Requests wait for the server of a class on a core, which finds them by one look.
pub fn note_waiting(core: CpuId, class: Class) {
    WAITING.of(core).fetch_or(1 << class as u8, Ordering::Release);
}

/// The core that carries the server of each class.
static SERVER_CORES: [AtomicUsize; CLASS_COUNT] = [const { AtomicUsize::new(0) }; CLASS_COUNT];

/// The core that carries the server of a class.
#[inline]
pub fn server_core(class: Class) -> CpuId {
    CpuId::new(SERVER_CORES[class as usize].load(Ordering::Acquire)).unwrap_or(CpuId::FIRST)
}

/// Something was queued for the server of a class: its core is told.
pub fn call_server(class: Class) {
    // Read once, after the push. If the server moves now, the core that had it passes the bit on.
    let core = server_core(class);
    note_waiting(core, class);
    task::ring_doorbell(core);
}

/// Moves the server of a class to another core, with what is queued. Handlers that wait end where they
/// began.
pub fn move_server(class: Class, core: CpuId) {
    SERVER_CORES[class as usize].store(core.index(), Ordering::Release);
    let kind = EventKind::ServerMove;
    trace::now(What { other_core: core, detail: class as u32, ..What::of(kind) });
    call_server(class);
}

/// Takes note of what this core is wanted for: one bit per class whose server may have requests. Whoever
/// leaves requests in a queue says so again (`note_waiting`).
#[inline]
pub fn take_waiting() -> u32 {
    let waiting = WAITING.here();
    // The exchange is a full fence: what is queued after it sets a bit again.
    if waiting.load(Ordering::Relaxed) == 0 { 0 } else { waiting.swap(0, Ordering::AcqRel) }
}

/// Whether this core is wanted: its servers may have requests, or its scanner a message.
#[inline]
pub fn is_any_waiting() -> bool {
    WAITING.here().load(Ordering::Relaxed) != 0
}

/// What was measured at boot, in nanoseconds; 0 is unknown.
static TRAP_NS: AtomicU32 = AtomicU32::new(0);
static WAKE_NS: [AtomicU32; hal::MAX_CPUS] = [const { AtomicU32::new(0) }; hal::MAX_CPUS];
static FLIGHT_NS: [[AtomicU32; hal::MAX_CPUS]; hal::MAX_CPUS] =
    [const { [const { AtomicU32::new(0) }; hal::MAX_CPUS] }; hal::MAX_CPUS];

fn known(cell: &AtomicU32) -> Option<u32> {
    Some(cell.load(Ordering::Relaxed)).filter(|ns| *ns != 0)
}

/// A trap and the return from it take so long.
pub fn note_trap(ns: u32) {
    TRAP_NS.store(ns, Ordering::Relaxed);
}

/// What a trap and the return from it take, in nanoseconds.
pub fn trap_ns() -> Option<u32> {
    known(&TRAP_NS)
}

/// A parked core takes so long to begin with work.
pub fn note_wake(core: CpuId, ns: u32) {
    WAKE_NS[core.index()].store(ns, Ordering::Relaxed);
}

/// Cores and what each takes to wake up, in nanoseconds.
pub fn wakes() -> impl Iterator<Item = (usize, u32)> {
    WAKE_NS.iter().enumerate().filter_map(|(core, cell)| Some((core, known(cell)?)))
}

/// A cache line takes so long from one core to the other.
pub fn note_flight(one: CpuId, other: CpuId, ns: u32) {
    FLIGHT_NS[one.index()][other.index()].store(ns, Ordering::Relaxed);
}

/// Pairs of cores and what a cache line takes from one to the other, in nanoseconds.
pub fn flights() -> impl Iterator<Item = (usize, usize, u32)> {
    let of_row = |(one, row): (usize, &'static [AtomicU32; hal::MAX_CPUS])| {
        let cells = row.iter().enumerate();
        cells.filter_map(move |(other, cell)| Some((one, other, known(cell)?)))
    };
    FLIGHT_NS.iter().enumerate().flat_map(of_row)
}
