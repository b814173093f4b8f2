//! Where the time of calls goes: the stages of each call, summed per call number and way.
//!
//! ```text
//! trapped --enter--> sent --fly-in--> taken --handle--> handled --fly-out--> answered --exit-->
//! ```
//!
//! Off unless the boot option `ferry.stages=1` or `ferry.trace=RECORDS` says otherwise; then it costs a
//! branch per stage. What is
//! written down is the processor's time stamp, summed with wrapping, so that a program that sums its own
//! stamps around its calls gets the means of the stages that begin or end in user mode: *enter* from
//! before the trap, *exit*, and all flights of a posted call. Each core sums what happens on it, the
//! caller's core once the answer is there, the serving core once it is published: nobody waits for it.

use alloc::boxed::Box;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::sync::atomic::{AtomicU8, Ordering};

use abi::console::{StageTotals, call_way};
use abi::trace::Path;
use base::cpu::{CpuId, PerCpu};
use base::sync::Once;
use base::time;
use hal::{Contract, Machine};
use policy::table::CALL_LIMIT;

use crate::counters::Counter;
use crate::trace::{self, Served, Traced};

/// Stages are summed.
const SUMS: u8 = 1;
/// Every call is recorded (`trace`).
const TRACE: u8 = 2;

/// What is done with stamps.
static USES: AtomicU8 = AtomicU8::new(0);

/// Sums of stamps of one kind of call; those of the caller's core, then those of the serving core.
struct Sums {
    calls: Counter,
    trapped: Counter,
    sent: Counter,
    answered: Counter,
    served: Counter,
    taken: Counter,
    handled: Counter,
}

type Table = [[Sums; call_way::COUNT]; CALL_LIMIT];

/// One table per core, which alone adds to it; made when its core first has something to write down.
static TABLES: PerCpu<Once<Box<Table>>> = PerCpu::new([const { Once::new() }; hal::MAX_CPUS]);

/// Says what is done with stamps. Called once, at boot.
pub fn start(is_summed: bool, is_traced: bool) {
    let uses = if is_summed { SUMS } else { 0 } | if is_traced { TRACE } else { 0 };
    USES.store(uses, Ordering::Relaxed);
}

/// Whether anything is done with stamps. A kernel without the feature `records` does nothing with them,
/// and the code that would is not there.
#[inline]
pub fn is_on() -> bool {
    cfg!(feature = "records") && USES.load(Ordering::Relaxed) != 0
}

/// Whether every call is recorded.
#[inline]
pub fn is_traced() -> bool {
    cfg!(feature = "records") && USES.load(Ordering::Relaxed) & TRACE != 0
}

/// A moment, when stages are written down; else 0, at the price of a branch.
#[inline]
pub fn stamp() -> u64 {
    if is_on() { Machine::cycles() } else { 0 }
}

/// Polls a handler to its end; its answer, and for how many ticks it waited between polls, when stages
/// are written down.
pub async fn with_waits<F: Future>(mut future: Pin<&mut F>) -> (F::Output, u64) {
    let (mut waited, mut paused) = (0, 0);
    poll_fn(|context| {
        if paused != 0 {
            waited += Machine::cycles().wrapping_sub(paused);
        }
        let poll = future.as_mut().poll(context);
        paused = stamp();
        poll.map(|output| (output, waited))
    })
    .await
}

/// The answer to a call that travelled is back at its caller, the thread of this number. `trapped` and
/// `sent` are its stamps; `served` says what the other core left.
#[inline]
pub fn answered(
    number: usize,
    thread: u32,
    (trapped, sent): (u64, u64),
    served: impl FnOnce() -> Served,
) {
    if sent == 0 {
        return;
    }
    let answered = Machine::cycles();
    with(number, call_way::REMOTE, |sums| sums.add_caller(trapped, sent, answered));
    if is_traced() {
        let (path, core) = (Path::Remote, CpuId::current().index());
        let served = served();
        trace::write(&Traced { number, thread, core, path, trapped, sent, served, answered });
    }
}

/// A call of another core's thread was carried out here, and its result is about to be published; what
/// the thread's core should know, when calls are recorded.
#[inline]
pub fn served_here(taken: u64, handled: u64, waited: u64) -> Option<Served> {
    is_traced().then(|| Served { taken, handled, waited, core: CpuId::current().index() })
}

/// A call was carried out for a caller elsewhere, and its result is published. `taken` and `handled`
/// are its stamps.
#[inline]
pub fn served(number: usize, way: usize, taken: u64, handled: u64) {
    if taken != 0 {
        with(number, way, |sums| sums.add_server(taken, handled));
    }
}

/// As `served`, for a call that a thread posted, whose core was `core`: nobody else knows its end.
#[inline]
pub fn posted(number: usize, thread: u32, core: usize, (taken, handled, waited): (u64, u64, u64)) {
    served(number, call_way::POSTED, taken, handled);
    if let Some(served) = served_here(taken, handled, waited) {
        let path = Path::Posted;
        let (trapped, sent, answered) = (taken, taken, handled);
        trace::write(&Traced { number, thread, core, path, trapped, sent, served, answered });
    }
}

/// A call of `thread` (its number) was carried out on its core. `trapped` and `taken` are its stamps; its handler waited
/// for so many ticks.
#[inline]
pub fn local(
    number: usize,
    thread: impl FnOnce() -> u32,
    (trapped, taken): (u64, u64),
    waited: u64,
) {
    if taken == 0 {
        return;
    }
    let handled = Machine::cycles();
    with(number, call_way::LOCAL, |sums| {
        sums.add_caller(trapped, taken, handled);
        sums.add_server(taken, handled);
    });
    if let Some(served) = served_here(taken, handled, waited) {
        let (path, core, thread) = (Path::Local, served.core, thread());
        let (sent, answered) = (taken, handled);
        trace::write(&Traced { number, thread, core, path, trapped, sent, served, answered });
    }
}

#[cold]
fn with(number: usize, way: usize, add: impl FnOnce(&Sums)) {
    if USES.load(Ordering::Relaxed) & SUMS == 0 {
        return;
    }
    let table = TABLES.here().call_once(new_table);
    if let Some(sums) = table.get(number).and_then(|ways| ways.get(way)) {
        add(sums);
    }
}

fn new_table() -> Box<Table> {
    let sums = || Sums {
        calls: Counter::new(),
        trapped: Counter::new(),
        sent: Counter::new(),
        answered: Counter::new(),
        served: Counter::new(),
        taken: Counter::new(),
        handled: Counter::new(),
    };
    Box::new(core::array::from_fn(|_| core::array::from_fn(|_| sums())))
}

impl Sums {
    fn add_caller(&self, trapped: u64, sent: u64, answered: u64) {
        self.calls.add(1);
        self.trapped.add(trapped);
        self.sent.add(sent);
        self.answered.add(answered);
    }

    fn add_server(&self, taken: u64, handled: u64) {
        self.served.add(1);
        self.taken.add(taken);
        self.handled.add(handled);
    }
}

/// Sums over all cores of one kind of call.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// Calls whose answer came back to a core; posted ones are not seen there.
    pub calls: u64,
    /// Calls carried out.
    pub served: u64,
    /// Sums of stamps: trapped, sent, taken, handled, answered.
    pub sums: [u64; 5],
}

impl Stamps {
    /// What the stages took in all, in nanoseconds; what cannot be told is 0. While calls of this kind
    /// are under way the sums of two cores do not belong together.
    pub fn totals(&self, number: usize, way: usize) -> StageTotals {
        let [trapped, sent, taken, handled, answered] = self.sums;
        let between = |from: u64, to: u64, is_known: bool| {
            // Clocks of two cores may differ by a little.
            let cycles = to.wrapping_sub(from).cast_signed();
            if is_known { time::cycles_to_ns(u64::try_from(cycles).unwrap_or(0)) } else { 0 }
        };
        let both = self.calls == self.served;
        StageTotals {
            number: number as u32,
            way: way as u32,
            calls: self.served.max(self.calls),
            enter_ns: between(trapped, sent, true),
            fly_in_ns: between(sent, taken, both),
            handle_ns: between(taken, handled, true),
            fly_out_ns: between(handled, answered, both),
        }
    }
}

/// Every kind of call that was written down: its number, its way (`call_way`), its stamps.
pub fn all() -> impl Iterator<Item = (usize, usize, Stamps)> {
    let kinds =
        (0..CALL_LIMIT).flat_map(|number| (0..call_way::COUNT).map(move |way| (number, way)));
    kinds.filter_map(|(number, way)| {
        let mut stamps = Stamps::default();
        for sums in CpuId::all().filter_map(|core| TABLES.of(core).get()) {
            let sums = &sums[number][way];
            stamps.calls += sums.calls.get();
            stamps.served += sums.served.get();
            let own = [&sums.trapped, &sums.sent, &sums.taken, &sums.handled, &sums.answered];
            for (sum, own) in stamps.sums.iter_mut().zip(own) {
                *sum = sum.wrapping_add(own.get());
            }
        }
        (stamps != Stamps::default()).then_some((number, way, stamps))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_the_differences_of_sums_of_stamps() {
        let stamps = Stamps { calls: 2, served: 2, sums: [u64::MAX - 9, 20, 50, 90, 100] };
        let ns = time::cycles_to_ns;
        let totals = stamps.totals(3, call_way::REMOTE);
        assert_eq!((totals.number, totals.calls), (3, 2));
        assert_eq!(totals.enter_ns, ns(30));
        assert_eq!(
            [totals.fly_in_ns, totals.handle_ns, totals.fly_out_ns],
            [ns(30), ns(40), ns(10)]
        );
    }

    #[test]
    fn flights_of_calls_whose_ends_are_not_known_are_nothing() {
        let stamps = Stamps { calls: 0, served: 2, sums: [0, 0, 50, 90, 0] };
        let totals = stamps.totals(3, call_way::POSTED);
        assert_eq!((totals.calls, totals.fly_in_ns, totals.fly_out_ns), (2, 0, 0));
        assert_eq!(totals.handle_ns, time::cycles_to_ns(40));
    }

    #[test]
    fn nothing_is_written_down_while_it_is_off() {
        local(CALL_LIMIT - 1, || 7, (stamp(), stamp()), 0);
        assert!(!all().any(|(number, _, _)| number == CALL_LIMIT - 1));
        USES.store(SUMS, Ordering::Relaxed);
        with(CALL_LIMIT - 1, call_way::LOCAL, |sums| sums.add_server(1, 2));
        with(CALL_LIMIT, call_way::LOCAL, |sums| sums.add_server(1, 2));
        USES.store(0, Ordering::Relaxed);
        assert_eq!(all().filter(|(number, _, _)| *number >= CALL_LIMIT - 1).count(), 1);
    }
}
