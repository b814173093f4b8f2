//! Which thread is which core, and what interrupts a core has.
//!
//! One lock guards all slots; every change is announced on one condition variable. That is slow and
//! obviously right, which is what a machine for tests should be.

use std::cell::RefCell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Machine, stop};
use crate::contract::{Contract, MAX_CPUS, Pending};

/// Longer than any test waits for a core to become free.
const CLAIM_LIMIT: Duration = Duration::from_secs(300);

#[derive(Clone, Copy)]
struct Slot {
    taken: bool,
    deadline_cycles: Option<u64>,
    pending: Pending,
}

const IDLE: Pending = Pending { timer: false, ipi: false, device: false };
const FREE: Slot = Slot { taken: false, deadline_cycles: None, pending: IDLE };

static SLOTS: Mutex<[Slot; MAX_CPUS]> = Mutex::new([FREE; MAX_CPUS]);
static CHANGED: Condvar = Condvar::new();

/// A thread's claim on a core; given back when the thread ends.
struct Claim(usize);

impl Drop for Claim {
    fn drop(&mut self) {
        slots()[self.0] = FREE;
        CHANGED.notify_all();
    }
}

thread_local! {
    static CLAIM: RefCell<Option<Claim>> = const { RefCell::new(None) };
}

fn slots() -> MutexGuard<'static, [Slot; MAX_CPUS]> {
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn current() -> usize {
    match CLAIM.with_borrow(|claim| claim.as_ref().map(|claim| claim.0)) {
        Some(cpu) => cpu,
        None => claim(None),
    }
}

/// Makes the thread core `wanted`, or the lowest free one, and waits until it can be.
pub(super) fn claim(wanted: Option<usize>) -> usize {
    if wanted.is_some_and(|cpu| cpu >= MAX_CPUS) {
        stop("there are not that many cores");
    }
    let before = CLAIM.with_borrow_mut(Option::take);
    if let Some(before) = before
        && Some(before.0) == wanted
    {
        CLAIM.set(Some(before));
        return wanted.unwrap_or_default();
    }
    let find = |slots: &[Slot; MAX_CPUS]| match wanted {
        Some(cpu) => (!slots[cpu].taken).then_some(cpu),
        None => slots.iter().position(|slot| !slot.taken),
    };
    let (mut slots, _) = CHANGED
        .wait_timeout_while(slots(), CLAIM_LIMIT, |slots| find(slots).is_none())
        .unwrap_or_else(PoisonError::into_inner);
    let Some(cpu) = find(&slots) else { stop("no core became free for this thread") };
    slots[cpu].taken = true;
    drop(slots);
    CLAIM.set(Some(Claim(cpu)));
    cpu
}

fn note_timer(slot: &mut Slot) {
    if slot.deadline_cycles.is_some_and(|deadline| Machine::cycles() >= deadline) {
        slot.deadline_cycles = None;
        slot.pending.timer = true;
    }
}

pub(super) fn set_timer(cpu: usize, deadline_cycles: Option<u64>) {
    slots()[cpu].deadline_cycles = deadline_cycles;
}

pub(super) fn interrupt(cpu: usize) {
    slots()[cpu].pending.ipi = true;
    CHANGED.notify_all();
}

pub(super) fn take(cpu: usize) -> Pending {
    let slot = &mut slots()[cpu];
    note_timer(slot);
    std::mem::replace(&mut slot.pending, IDLE)
}

pub(super) fn wait(cpu: usize) {
    let mut slots = slots();
    loop {
        note_timer(&mut slots[cpu]);
        if slots[cpu].pending != IDLE {
            return;
        }
        slots = match slots[cpu].deadline_cycles {
            Some(deadline) => {
                let left = Duration::from_nanos(deadline.saturating_sub(Machine::cycles()));
                CHANGED.wait_timeout(slots, left).unwrap_or_else(PoisonError::into_inner).0
            }
            None => CHANGED.wait(slots).unwrap_or_else(PoisonError::into_inner),
        };
    }
}
