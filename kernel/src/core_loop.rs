//! What each core does for ever: serve requests, poll ready tasks, look at devices and timers, and
//! when there is nothing, spin for a while and then park.
//!
//! There is one loop for all cores. A core's roles show only in what is there for it: servers that
//! live on it, and `run_user` tasks that were started on it. So a core may have both roles.

use alloc::sync::Arc;
use core::future::Future;
use core::mem;
use core::pin::pin;
use core::sync::atomic::Ordering;

use abi::Errno;
use abi::console::call_way;
use abi::syspage::FLAG_LINK;
use abi::trace::EventKind;
use base::cpu::CpuId;
use base::posted::{PostedCall, Served};
use base::quota::{Charge, Kind};
use base::task::{self, TaskPool};
use base::{cpu, time, user};
use hal::{Contract, Machine};
use policy::park::SpinBudget;

use crate::call::{self, Call, Caller, PENDING_CALLS_OF_A_USER};
use crate::posted::{Scanner, Syspage};
use crate::servers::{self, Request, Server};
use crate::trace::{self, What};
use crate::{counters, devices, dispatch, machine, posted, stages};

/// Requests that one server may take before the core looks at everything else again.
const BATCH: usize = 16;
/// Looks for calls without success before the core looks at everything else: about as long as a caller
/// takes from one answer to its next call.
const QUIET_LOOKS: usize = 16;
/// Glances between two of these looks: a few loads each, so that the next call is found sooner.
const GLANCES: usize = 4;
/// Looks for calls between two looks at everything else.
const MOST_LOOKS: usize = 512;
/// Whole batches between two looks at everything else.
const MOST_BATCHES: u32 = 4;
/// Posted calls between two looks at everything else.
const MOST_POSTED: usize = 256;
/// Rounds with work between two looks at the devices.
const ROUNDS_TO_DEVICES: u32 = 16;
/// Handlers that may be pending per core. A call that finds no room is carried out on its caller's core.
const POOL_CAPACITY: usize = 4096;
/// Takes note of the interrupts that came while this core was in user mode or halted.
pub fn serve_interrupts() {
    let since = trace::stamp();
    let pending = Machine::take_pending();
    counters::note_interrupts(&pending);
    if pending.device {
        devices::interrupt();
    }
    if pending.timer {
        time::expire();
    }
    let sources = [pending.timer, pending.ipi, pending.device];
    if sources.contains(&true) {
        let bits = sources.iter().enumerate().map(|(bit, came)| u32::from(*came) << bit);
        trace::since(since, What { detail: bits.sum(), ..What::of(EventKind::Interrupt) });
    }
}

#[inline]
async fn carry_out(request: Request, _share: Charge) {
    let taken = stages::stamp();
    let handler = pin!(dispatch::dispatch(&request.call));
    let (result, waited) = stages::with_waits(handler).await;
    let handled = stages::stamp();
    let (number, caller) = (request.call.number(), &request.call.thread);
    match caller {
        Caller::Trapped { thread, .. } => {
            if let Some(served) = stages::served_here(taken, handled, waited) {
                thread.slot.note_served(served);
            }
            caller.answer(result);
            stages::served(number, call_way::REMOTE, taken, handled);
        }
        Caller::Posted { .. } => {
            caller.answer(result);
            let core = caller.core.load(Ordering::Relaxed);
            stages::posted(number, caller.number(), core, (taken, handled, waited));
        }
    }
}

/// A posted call that was carried out at once, while stages are written down.
struct Timed {
    number: usize,
    /// Number of the thread that posted it.
    thread: u32,
    /// Number of that thread's core.
    core: usize,
    /// When it was taken, when it was through, and ticks of waiting.
    stamps: (u64, u64, u64),
}

/// What one core carries out: the requests of its servers, and the handlers that wait.
struct Carrier<F: Future<Output = ()> + Send + 'static, M: Fn(Request, Charge) -> F> {
    core: CpuId,
    pool: TaskPool<F>,
    /// A type of its own rather than a pointer: the future is made where it stays.
    make: M,
    /// The posted call that was carried out last and is not written down yet.
    timed: Option<Timed>,
    /// Batches that came to their end before their queue did, since everything else had its turn.
    whole_batches: u32,
}

impl<F: Future<Output = ()> + Send + 'static, M: Fn(Request, Charge) -> F> Carrier<F, M> {
    fn new(core: CpuId, make: M) -> Carrier<F, M> {
        Carrier { core, pool: TaskPool::new(POOL_CAPACITY), make, timed: None, whole_batches: 0 }
    }

    /// Writes down the stages of the last posted call, now that its result is published.
    fn write_down(&mut self) {
        if let Some(Timed { number, thread, core, stamps }) = self.timed.take() {
            stages::posted(number, thread, core, stamps);
        }
    }

    /// Takes requests and carries them out; false when there were none.
    #[inline]
    fn serve(&mut self) -> bool {
        let mut waiting = machine::take_waiting();
        let worked = waiting != 0;
        while waiting != 0 {
            let class = waiting.trailing_zeros() as usize;
            waiting &= waiting - 1;
            if let Some(server) = servers::all().get(class) {
                self.serve_one(server);
            }
        }
        worked
    }

    fn serve_one(&mut self, server: &'static Server) {
        if server.core() != self.core {
            // It has moved since somebody left a request here.
            if !server.is_empty() {
                machine::call_server(server.class);
            }
            return;
        }
        for _ in 0..BATCH {
            let Some(request) = server.take() else { return };
            if self.timed.is_some() {
                self.write_down();
            }
            let Call { thread, arguments } = &request.call;
            let number = request.call.number();
            let taken = stages::stamp();
            match servers::answer_at_once(number, arguments, thread, None) {
                Some(value) => {
                    let handled = stages::stamp();
                    if let Some(served) = stages::served_here(taken, handled, 0) {
                        thread.slot.note_served(served);
                    }
                    thread.answer(Ok(value));
                    stages::served(number, call_way::REMOTE, taken, handled);
                }
                None => self.begin(request),
            }
        }
        self.whole_batches += 1;
        machine::note_waiting(self.core, server.class);
    }

    /// Begins a call that may have to wait, if there is room for one more of its user's.
    fn begin(&mut self, request: Request) {
        let user = request.call.thread.credentials().user.real;
        let share = Charge::new(user, Kind::PendingCalls, 1, PENDING_CALLS_OF_A_USER);
        match share.filter(|_| self.pool.has_room()) {
            // There is room, and this core made the pool.
            Some(share) => drop(self.pool.submit(|| (self.make)(request, share))),
            None => refuse(request),
        }
    }

    /// Carries out a posted call: at once, or as a task of this core, or by the server of its class.
    #[inline(always)]
    fn serve_posted(&mut self, syspage: &Arc<Syspage>, posted: &PostedCall) -> Served {
        let PostedCall { number, ref arguments, .. } = *posted;
        let number = usize::from(number);
        let (thread, space) = (syspage.thread(), syspage.space());
        if posted.flags & !FLAG_LINK != 0 {
            return self.serve_slowly(syspage, posted);
        }
        if stages::is_on() {
            return self.serve_timed(syspage, posted);
        }
        match servers::answer_at_once(number, arguments, thread, Some(space)) {
            Some(value) => Served::Done(value),
            None => self.serve_slowly(syspage, posted),
        }
    }

    /// As `serve_posted`, with the stages written down.
    #[cold]
    fn serve_timed(&mut self, syspage: &Arc<Syspage>, posted: &PostedCall) -> Served {
        let number = usize::from(posted.number);
        let (thread, space) = (syspage.thread(), syspage.space());
        self.write_down();
        let taken = stages::stamp();
        match servers::answer_at_once(number, &posted.arguments, thread, Some(space)) {
            Some(value) => {
                let core = thread.core.load(Ordering::Relaxed);
                let stamps = (taken, stages::stamp(), 0);
                self.timed = Some(Timed { number, thread: thread.number(), core, stamps });
                Served::Done(value)
            }
            None => self.serve_slowly(syspage, posted),
        }
    }

    /// A posted call that may have to wait.
    #[inline(never)]
    fn serve_slowly(&mut self, syspage: &Arc<Syspage>, posted: &PostedCall) -> Served {
        let PostedCall { index, number, arguments, .. } = *posted;
        if let Err(refusal) = posted::admit(posted) {
            return Served::Done(refusal);
        }
        syspage.begin(usize::from(index));
        let thread = Caller::Posted { syspage: syspage.clone(), index, number };
        let request = Request { call: Call { thread, arguments } };
        let server = servers::of_call(usize::from(number));
        if server.core() == self.core {
            self.begin(request);
        } else if let Err(request) = server.submit(request) {
            refuse(request);
        }
        Served::Later
    }

    fn has_requests(&self) -> bool {
        servers::all().iter().any(|server| server.core() == self.core && !server.is_empty())
    }
}

/// There is no room for a call, which has not begun. A program that posts by itself hears of it; every
/// other call is carried out on its caller's core.
#[cold]
fn refuse(request: Request) {
    let errno = match &request.call.thread {
        Caller::Trapped { .. } => call::AT_HOME,
        Caller::Posted { syspage, .. } if syspage.is_programs_own() => Errno::EAGAIN,
        Caller::Posted { .. } => posted::must_trap(),
    };
    request.call.thread.answer(Err(errno));
}

/// Serves calls for as long as they follow each other closely, but not for ever: the rest of the loop
/// has its turn after `MOST_LOOKS`, `MOST_POSTED` calls or `MOST_BATCHES`. False when there was none.
#[inline]
fn serve_closely<F: Future<Output = ()> + Send + 'static>(
    scanner: &mut Scanner,
    carrier: &mut Carrier<F, impl Fn(Request, Charge) -> F>,
) -> bool {
    carrier.whole_batches = 0;
    look_closely(scanner, |scanner| {
        let mut posted = 0;
        let found = scanner.scan(&mut |syspage, call| {
            posted += 1;
            carrier.serve_posted(syspage, call)
        });
        let worked = found | carrier.serve();
        Look { worked, posted, is_enough: carrier.whole_batches >= MOST_BATCHES }
    })
}

/// What one look for calls brought.
struct Look {
    worked: bool,
    /// Posted calls that it took.
    posted: usize,
    /// Everything else is to have its turn.
    is_enough: bool,
}

/// Looks again and again, as `serve_closely` says.
#[inline]
fn look_closely(scanner: &mut Scanner, mut look: impl FnMut(&mut Scanner) -> Look) -> bool {
    let mut worked = false;
    let mut quiet = 0;
    let mut posted = 0;
    for _ in 0..MOST_LOOKS {
        let found = look(scanner);
        if found.worked {
            worked = true;
            quiet = 0;
            posted += found.posted;
            if found.is_enough || posted >= MOST_POSTED {
                break;
            }
        } else if quiet < QUIET_LOOKS && !task::has_ready() {
            quiet += 1;
            for _ in 0..GLANCES {
                cpu::relax();
                if scanner.glance() || machine::is_any_waiting() {
                    break;
                }
            }
        } else {
            break;
        }
    }
    worked
}

/// Runs this core for ever.
pub fn run() -> ! {
    let core = CpuId::current();
    let mut carrier = Carrier::new(core, carry_out);
    let mut scanner = Scanner::here();
    let polls_devices = machine::device_core() == core;
    let mut budget = SpinBudget::new();
    let mut idle_since_ns = None;
    // The stamp of when this core began to spin, when that is recorded.
    let mut spins_since = 0;
    let mut rounds = 0;
    loop {
        let mut worked = serve_closely(&mut scanner, &mut carrier);
        worked |= scanner.attend(&mut |syspage, call| carrier.serve_posted(syspage, call));
        carrier.write_down();
        scanner.set_shared(machine::thread_count(core.index()) != 0);
        worked |= task::run_ready();
        time::expire_if_due();
        if worked {
            if let Some(since_ns) = idle_since_ns.take() {
                budget.observe(time::now_ns() - since_ns);
                trace::since(mem::take(&mut spins_since), What::of(EventKind::Spin));
            }
            rounds += 1;
            if polls_devices && rounds >= ROUNDS_TO_DEVICES {
                rounds = 0;
                devices::poll();
            }
            continue;
        }
        if polls_devices && devices::poll() {
            continue;
        }
        let now_ns = time::now_ns();
        let since_ns = *idle_since_ns.get_or_insert_with(|| {
            spins_since = trace::stamp();
            now_ns
        });
        if now_ns - since_ns < budget.budget_ns() {
            continue;
        }
        user::leave_space();
        trace::since(mem::take(&mut spins_since), What::of(EventKind::Spin));
        let since = trace::stamp();
        if task::park(|| carrier.has_requests() || scanner.announce_parking()) {
            trace::since(since, What::of(EventKind::Park));
        }
        serve_interrupts();
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// Whoever posts as fast as calls are taken does not keep timers, woken handlers, the console and
    /// messages to the scanner waiting.
    #[test]
    fn everything_else_has_its_turn_under_a_flood_of_posted_calls() {
        let mut scanner = Scanner::of_cores(Vec::new());
        let mut taken = 0;
        let worked = look_closely(&mut scanner, |_| {
            taken += BATCH;
            Look { worked: true, posted: BATCH, is_enough: false }
        });
        assert!(worked && taken <= MOST_POSTED, "{taken} calls were taken in one turn");
    }

    #[test]
    fn remote_calls_in_whole_batches_end_the_turn() {
        let mut scanner = Scanner::of_cores(Vec::new());
        let mut looks = 0;
        look_closely(&mut scanner, |_| {
            looks += 1;
            Look { worked: true, posted: 0, is_enough: looks == 3 }
        });
        assert_eq!(looks, 3);
    }
}
