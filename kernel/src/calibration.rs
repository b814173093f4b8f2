//! What this machine costs, measured at boot in a few milliseconds: a trap, the flight of a cache line
//! between each pair of cores, and the wake-up of a parked core. `/proc/ferry/machine` tells.
//!
//! Each figure is the least of several tries, because whatever comes in between only adds. Every wait has
//! an end: where the host does not run two processors at a time, a figure stays unknown.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::memory::Protection;
use base::cpu::{self, CpuId};
use base::memory::Frame;
use base::user::{self, UserContext};
use base::wait::WaitQueue;
use base::{task, time};
use hal::{Contract, Machine, UserContext as _};

use crate::machine;
use crate::memory::{AddressSpace, AreaFlags, Layout, LimitValues, SharedPage, SharedPlace};

/// Tries of which the best counts.
const TRIES: usize = 4;
/// Traps, or round trips of a line, per try.
const ROUNDS: u32 = 16;
/// What all pairs of cores together may take, in nanoseconds.
const BUDGET_NS: u64 = 4_000_000;
/// What one figure may take.
const STEP_NS: u64 = 400_000;

/// Measures everything. Called once, before the first program, on the core of the devices.
pub async fn run() {
    let end_ns = time::now_ns() + BUDGET_NS;
    if let Some(ns) = trap() {
        machine::note_trap(ns);
    }
    let here = CpuId::current();
    for other in CpuId::all().filter(|core| *core != here) {
        if let Some(ns) = wake(other) {
            machine::note_wake(other, ns);
        }
        note_flight(here, other).await;
    }
    let others = || CpuId::all().filter(move |core| *core != here);
    for (one, other) in others().flat_map(|one| others().map(move |other| (one, other))) {
        if one.index() < other.index() && time::now_ns() < end_ns {
            note_flight(one, other).await;
        }
    }
}

/// A trap from user mode and back, without anything that would carry a call out.
fn trap() -> Option<u32> {
    let space = AddressSpace::new(Layout::choose(None, 0), LimitValues::default()).ok()?;
    let frame = Frame::zeroed().ok()?;
    frame.write(0, Machine::TRAP_LOOP);
    let protection = Protection::READ | Protection::EXECUTE;
    let page = SharedPage { frame, protection, flags: AreaFlags::SHARED };
    let address = space.map_shared(SharedPlace::Near(0), b"[calibration]", vec![page]).ok()?;
    let mut context = Box::new(UserContext::new(address, 0));
    let mut best_ns = None;
    for _ in 0..TRIES {
        let begin_ns = time::now_ns();
        for _ in 0..ROUNDS {
            user::run(&mut context, space.handle(), |_| true);
        }
        best_ns = best(best_ns, (time::now_ns() - begin_ns) / u64::from(ROUNDS));
    }
    user::release(&mut context);
    user::leave_space();
    best_ns
}

fn best(so_far: Option<u32>, ns: u64) -> Option<u32> {
    let ns = u32::try_from(ns).unwrap_or(u32::MAX);
    Some(so_far.map_or(ns, |so_far| so_far.min(ns)))
}

/// From leaving a task at a parked core to its first instruction.
fn wake(core: CpuId) -> Option<u32> {
    let mut best_ns = None;
    for _ in 0..TRIES {
        let end_ns = time::now_ns() + STEP_NS;
        if !spin_until(end_ns, || task::is_parked(core)) {
            break;
        }
        let woken_ns = Arc::new(AtomicU64::new(0));
        let stamp = woken_ns.clone();
        let begin_ns = time::now_ns();
        let mark = async move { stamp.store(time::now_ns(), Ordering::Release) };
        if task::spawn(core, mark).is_err()
            || !spin_until(end_ns, || woken_ns.load(Ordering::Acquire) != 0)
        {
            break;
        }
        best_ns = best(best_ns, woken_ns.load(Ordering::Acquire).saturating_sub(begin_ns));
    }
    best_ns
}

fn spin_until(end_ns: u64, done: impl Fn() -> bool) -> bool {
    while !done() {
        if time::now_ns() >= end_ns {
            return false;
        }
        cpu::relax();
    }
    true
}

/// The ball of a game between two cores, alone on its lines.
#[repr(align(128))]
struct Ball {
    turn: AtomicU32,
    ended: WaitQueue,
    players: AtomicU32,
}

/// Half of a round trip of a line between two cores.
async fn note_flight(one: CpuId, other: CpuId) {
    let ball = Arc::new(Ball {
        turn: AtomicU32::new(0),
        ended: WaitQueue::new(),
        players: AtomicU32::new(2),
    });
    let end_ns = time::now_ns() + STEP_NS;
    for (core, side) in [(other, 1), (one, 0)] {
        let game = ball.clone();
        let player = async move {
            if let Some(ns) = play(&game.turn, side, end_ns)
                && side == 0
            {
                machine::note_flight(one, other, ns);
            }
            game.players.fetch_sub(1, Ordering::AcqRel);
            game.ended.wake_all();
        };
        if task::spawn(core, player).is_err() {
            return;
        }
    }
    ball.ended.wait_until(|| (ball.players.load(Ordering::Acquire) == 0).then_some(())).await;
}

/// Passes the ball to and fro; the best time of one flight, if the game came to its end in time.
fn play(turn: &AtomicU32, side: u32, end_ns: u64) -> Option<u32> {
    let mut best_ns = None;
    let mut mine = side;
    for attempt in 0..=TRIES {
        let begin_ns = time::now_ns();
        for _ in 0..ROUNDS {
            if !spin_until(end_ns, || turn.load(Ordering::Acquire) == mine) {
                return None;
            }
            turn.store(mine + 1, Ordering::Release);
            mine += 2;
        }
        // In the first one the other core may only be on its way.
        if attempt > 0 {
            best_ns = best(best_ns, (time::now_ns() - begin_ns) / u64::from(2 * ROUNDS));
        }
    }
    best_ns
}
