//! Tracing: a record of every call, in a ring of the core that knows its end. Off unless the boot option
//! `ferry.trace=RECORDS` says otherwise; the host takes the records while the machine runs.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::trace::ring::{MOST_RINGS, Rings};
use abi::trace::{Call, Duration, MAX_APPLICATION, MAX_STAMP, Path, Record};
use base::cpu::{CpuId, PerCpu};
use base::record_ring::RecordRing;
use base::sync::Once;
use base::{task, time};
use hal::{Contract, Machine};

static RINGS: PerCpu<Once<RecordRing>> = PerCpu::new([const { Once::new() }; hal::MAX_CPUS]);

/// What the processor's time stamp showed when the trace began.
static BEGAN: AtomicU64 = AtomicU64::new(0);

/// Makes a ring of so many records for each core; false when there is no memory for them.
pub fn start(records: u32) -> bool {
    BEGAN.store(Machine::cycles(), Ordering::Relaxed);
    CpuId::all().all(|core| match RecordRing::new(records) {
        Ok(ring) => {
            RINGS.of(core).call_once(|| ring);
            true
        }
        Err(_) => false,
    })
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
    let Some(ring) = RINGS.here().get() else { return };
    // Clocks of two cores may differ by a little.
    let between =
        |from: u64, to: u64| u64::try_from(to.wrapping_sub(from).cast_signed()).unwrap_or(0);
    let Served { taken, handled, waited, core } = call.served;
    let start = between(BEGAN.load(Ordering::Relaxed), call.trapped).min(MAX_STAMP);
    ring.push(
        &Record::Call(Call {
            core: call.core as u8,
            server_core: core as u8,
            application: (call.thread & u32::from(MAX_APPLICATION)) as u16,
            number: call.number as u16,
            path: call.path,
            contention: task::others_in_kernel(),
            start,
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
