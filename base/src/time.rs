//! Clocks and timers.
//!
//! The cycle counter is the clock; it is the same on all cores. Each core keeps the timers of the tasks
//! that sleep on it, sorted, under one lock (rank TIMER), and its earliest deadline in an atomic, so that
//! the core's loop looks at two loads and a comparison. The one-shot timer of the core is armed for the
//! earliest deadline or the end of a time slice, whichever comes first.

use crate::heap::tree;
use alloc::collections::BTreeMap;
use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::{Context, Poll, Waker};

use abi::Errno;
use hal::{Contract, MAX_CPUS, Machine};

use crate::cpu::{CpuId, PerCpu};
use crate::sync::{Mutex, Once, rank};

const NS_PER_SECOND: u64 = 1_000_000_000;
const NEVER: u64 = u64::MAX;
const FRACTION_BITS: u32 = 32;

/// How cycles become nanoseconds: fixed-point factors with `FRACTION_BITS` bits of fraction.
struct Scale {
    start_cycles: u64,
    ns_per_cycle: u64,
    cycles_per_ns: u64,
}

static SCALE: Once<Scale> = Once::new();

#[inline]
fn scale() -> &'static Scale {
    match SCALE.get() {
        Some(scale) => scale,
        None => SCALE.call_once(|| {
            let frequency = u128::from(Machine::cycles_per_second().max(1));
            let second = u128::from(NS_PER_SECOND);
            let factor = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
            Scale {
                start_cycles: Machine::boot_info().start_cycles,
                ns_per_cycle: factor((second << FRACTION_BITS) / frequency),
                cycles_per_ns: factor((frequency << FRACTION_BITS) / second),
            }
        }),
    }
}

#[inline]
fn multiply(value: u64, factor: u64) -> u64 {
    let product = (u128::from(value) * u128::from(factor)) >> FRACTION_BITS;
    if product > u128::from(u64::MAX) { u64::MAX } else { product as u64 }
}

/// Nanoseconds since boot; never goes back.
#[inline]
pub fn now_ns() -> u64 {
    let scale = scale();
    multiply(Machine::cycles().wrapping_sub(scale.start_cycles), scale.ns_per_cycle)
}

/// How many nanoseconds a number of cycles takes.
#[inline]
pub fn cycles_to_ns(cycles: u64) -> u64 {
    multiply(cycles, scale().ns_per_cycle)
}

/// The cycle count at a time since boot, one cycle late rather than early.
#[inline]
fn cycles_at(time_ns: u64) -> u64 {
    let scale = scale();
    scale.start_cycles.saturating_add(multiply(time_ns, scale.cycles_per_ns).saturating_add(1))
}

/// How the vDSO turns cycles into nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct ClockParameters {
    /// Cycle count at boot.
    pub start_cycles: u64,
    /// Nanoseconds since boot = ((cycles - `start_cycles`) * `factor`) >> 32, in 128 bits.
    pub factor: u64,
    /// Nanoseconds since 1970 at boot, by the present setting of the clock.
    pub wall_offset_ns: u64,
}

/// The parameters of the clocks as they are now.
pub fn clock_parameters() -> ClockParameters {
    let scale = scale();
    ClockParameters {
        start_cycles: scale.start_cycles,
        factor: scale.ns_per_cycle,
        wall_offset_ns: wall_offset().load(Ordering::Relaxed),
    }
}

fn wall_offset() -> &'static AtomicU64 {
    static OFFSET: Once<AtomicU64> = Once::new();
    match OFFSET.get() {
        Some(offset) => offset,
        None => {
            OFFSET.call_once(|| AtomicU64::new(Machine::wall_clock_ns().saturating_sub(now_ns())))
        }
    }
}

/// Nanoseconds since 1970.
#[inline]
pub fn wall_ns() -> u64 {
    now_ns().saturating_add(wall_offset().load(Ordering::Relaxed))
}

/// Sets the clock that counts from 1970.
pub fn set_wall_ns(wall_ns: u64) {
    wall_offset().store(wall_ns.saturating_sub(now_ns()), Ordering::Relaxed);
}

/// Deadline in nanoseconds, then a number that makes keys differ.
type Key = (u64, u64);

struct Timers {
    queue: Mutex<Queue>,
    /// Earliest deadline in cycles, or `NEVER`; written under the lock of `queue`.
    next_cycles: AtomicU64,
    /// End of the running time slice in cycles, or `NEVER`; written by this core alone.
    slice_cycles: AtomicU64,
    /// What the machine's timer is armed for, or `NEVER`; written by this core alone.
    armed_cycles: AtomicU64,
}

struct Queue {
    sleeping: BTreeMap<Key, Waker>,
    next_number: u64,
}

static TIMERS: PerCpu<Timers> = PerCpu::new(
    [const {
        Timers {
            queue: Mutex::new(&rank::TIMER, Queue { sleeping: BTreeMap::new(), next_number: 0 }),
            next_cycles: AtomicU64::new(NEVER),
            slice_cycles: AtomicU64::new(NEVER),
            armed_cycles: AtomicU64::new(NEVER),
        }
    }; MAX_CPUS],
);

impl Timers {
    /// Notes the earliest deadline; true when it changed.
    fn note_next(&self, queue: &Queue) -> bool {
        let next = queue
            .sleeping
            .first_key_value()
            .map_or(NEVER, |((deadline, _), _)| cycles_at(*deadline));
        self.next_cycles.swap(next, Ordering::Relaxed) != next
    }

    /// Sees to it that the machine's timer of this core fires in time. Arming is dear under an
    /// emulator, so a timer that fires too early is left alone: `expire` arms it again then.
    #[inline]
    fn arm(&self) {
        let next = self.next_cycles.load(Ordering::Relaxed);
        let first = next.min(self.slice_cycles.load(Ordering::Relaxed));
        let armed = self.armed_cycles.load(Ordering::Relaxed);
        // One whose time has passed may have fired already, or be about to.
        if first < armed || (first != NEVER && armed <= Machine::cycles()) {
            self.armed_cycles.store(first, Ordering::Relaxed);
            Machine::set_timer(Some(first));
        }
    }
}

/// Whether a timer of this core is due.
#[inline]
pub fn is_due() -> bool {
    let next = TIMERS.here().next_cycles.load(Ordering::Relaxed);
    next != NEVER && Machine::cycles() >= next
}

/// Wakes what is due on this core, if anything is. Cheap when not: call it in the core's loop.
#[inline]
pub fn expire_if_due() {
    if is_due() {
        expire();
    }
}

/// Wakes what is due on this core and arms the timer again. Call it after the timer's interrupt.
pub fn expire() {
    let timers = TIMERS.here();
    if Machine::cycles() >= timers.slice_cycles.load(Ordering::Relaxed) {
        timers.slice_cycles.store(NEVER, Ordering::Relaxed);
    }
    let mut queue = timers.queue.lock();
    let now_ns = now_ns();
    while let Some(entry) = queue.sleeping.first_entry()
        && entry.key().0 <= now_ns
    {
        entry.remove().wake();
    }
    timers.note_next(&queue);
    drop(queue);
    timers.armed_cycles.store(NEVER, Ordering::Relaxed);
    timers.arm();
}

/// Ends the stay in user mode at this time at the latest, so that others get their turn on this core.
pub fn interrupt_at(time_ns: u64) {
    let timers = TIMERS.here();
    timers.slice_cycles.store(cycles_at(time_ns), Ordering::Relaxed);
    timers.arm();
}

/// A future that is ready at `deadline_ns` since boot. It is kept by the core that polls it first.
pub fn sleep_until(deadline_ns: u64) -> Sleep {
    Sleep { deadline_ns, place: None }
}

/// A future that is ready in `duration_ns` from now.
pub fn sleep_for(duration_ns: u64) -> Sleep {
    sleep_until(now_ns().saturating_add(duration_ns))
}

/// See `sleep_until`.
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct Sleep {
    deadline_ns: u64,
    /// In whose queue it is, under which key.
    place: Option<(CpuId, Key)>,
}

impl Sleep {
    /// When it ends, in nanoseconds since boot.
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    fn leave(&mut self) {
        if let Some((core, key)) = self.place.take() {
            let timers = TIMERS.of(core);
            let mut queue = timers.queue.lock();
            let waker = queue.sleeping.remove(&key);
            // The timer may still fire for it, once, for nothing.
            timers.note_next(&queue);
            drop(queue);
            drop(waker);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if now_ns() >= self.deadline_ns {
            self.leave();
            return Poll::Ready(());
        }
        match self.place {
            Some((core, key)) => {
                let mut queue = TIMERS.of(core).queue.lock();
                if let Some(waker) = queue.sleeping.get_mut(&key) {
                    waker.clone_from(context.waker());
                    return Poll::Pending;
                }
                // Its core found it due a moment before we looked at the clock.
                drop(queue);
                self.place = None;
                Poll::Ready(())
            }
            None => {
                let core = CpuId::current();
                let timers = TIMERS.of(core);
                let waker = context.waker().clone();
                let mut queue = timers.queue.lock();
                let key = (self.deadline_ns, queue.next_number);
                queue.next_number += 1;
                tree::insert(&mut queue.sleeping, key, waker);
                let earlier = timers.note_next(&queue);
                drop(queue);
                if earlier {
                    timers.arm();
                }
                self.place = Some((core, key));
                Poll::Pending
            }
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The deadline passed first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedOut;

impl From<TimedOut> for Errno {
    fn from(_: TimedOut) -> Errno {
        Errno::ETIMEDOUT
    }
}

/// Waits for a future, but not beyond `deadline_ns` since boot. The future is polled once at least.
pub async fn with_deadline<F: Future>(
    future: F,
    deadline_ns: Option<u64>,
) -> Result<F::Output, TimedOut> {
    let Some(deadline_ns) = deadline_ns else { return Ok(future.await) };
    let mut future = core::pin::pin!(future);
    let mut sleep = sleep_until(deadline_ns);
    core::future::poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(value));
        }
        Pin::new(&mut sleep).poll(context).map(|()| Err(TimedOut))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::block_on_host;
    use alloc::sync::Arc;
    use core::sync::atomic::AtomicUsize;

    const MS: u64 = 1_000_000;

    #[test]
    fn cycles_and_nanoseconds_agree() {
        for time_ns in [0, 1, 999, 123_456_789, 86_400 * NS_PER_SECOND] {
            let back = multiply(cycles_at(time_ns) - scale().start_cycles, scale().ns_per_cycle);
            assert!((time_ns..=time_ns + 2 + time_ns / 1_000_000).contains(&back), "{time_ns}");
        }
    }

    #[test]
    fn sleepers_wake_in_the_order_of_their_deadlines() {
        let start = now_ns();
        let order = Arc::new(Mutex::new(&rank::PROCESS, Vec::new()));
        let ended = Arc::new(AtomicUsize::new(0));
        for delay in [9, 3, 6] {
            let (order, ended) = (order.clone(), ended.clone());
            crate::task::spawn(CpuId::current(), async move {
                sleep_until(start + delay * MS).await;
                assert!(now_ns() >= start + delay * MS);
                order.lock().push(delay);
                ended.fetch_add(1, Ordering::SeqCst);
            })
            .unwrap();
        }
        block_on_host(async {
            while ended.load(Ordering::SeqCst) < 3 {
                sleep_for(MS).await;
            }
        });
        assert_eq!(*order.lock(), [3, 6, 9]);
    }

    #[test]
    fn a_deadline_ends_a_wait_that_has_no_end() {
        let start = now_ns();
        let result =
            block_on_host(with_deadline(core::future::pending::<()>(), Some(start + 2 * MS)));
        assert_eq!(result, Err(TimedOut));
        assert!(now_ns() >= start + 2 * MS);
        assert_eq!(block_on_host(with_deadline(async { 5 }, Some(0))), Ok(5));
        assert_eq!(block_on_host(with_deadline(async { 5 }, None)), Ok(5));
    }

    #[test]
    fn a_dropped_sleep_leaves_nothing_behind() {
        let mut sleep = Box::pin(sleep_for(3600 * NS_PER_SECOND));
        let waker = Waker::noop();
        assert!(sleep.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        let (core, key) = sleep.place.unwrap();
        assert!(TIMERS.of(core).queue.lock().sleeping.contains_key(&key));
        std::thread::scope(|scope| {
            scope.spawn(move || drop(sleep));
        });
        assert!(!TIMERS.of(core).queue.lock().sleeping.contains_key(&key));
    }

    #[test]
    fn the_wall_clock_can_be_set() {
        let before = wall_ns();
        assert!(before > 1_500_000_000 * NS_PER_SECOND);
        set_wall_ns(before + 3600 * NS_PER_SECOND);
        assert!(wall_ns() >= before + 3600 * NS_PER_SECOND);
        set_wall_ns(wall_ns() - 3600 * NS_PER_SECOND);
    }
}
