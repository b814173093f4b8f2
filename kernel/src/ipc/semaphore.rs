//! Sets of semaphores.
//!
//! An operation on a set is done as a whole or waits. Who waits is in the set's list, in order of
//! arrival; after each change the list is gone through, and whoever can go on is answered, until nobody
//! can: a wake-up is the operation done.

mod control;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use abi::ipc::*;
use base::sync::{Mutex, MutexGuard, rank};

use super::now_s;
use super::permission::{Permission, Wanted};
use super::space::Space;
use super::table::Table;
use super::undo::UndoList;
use super::waiter::{Ended, Waiter, Woken};
use crate::call::Caller;
use crate::process::Pid;
use crate::process::credentials::Credentials;

pub use control::{
    Asked, ask, limits, list, remove, set, set_value, set_values, set_wanted, status, values,
    wanted, writable_count,
};

/// The sets of one namespace.
pub struct Sets {
    table: Table<Set>,
    semaphores: u64,
}

impl Sets {
    /// None.
    pub const fn new() -> Sets {
        Sets { table: Table::new(), semaphores: 0 }
    }
}

impl Default for Sets {
    fn default() -> Sets {
        Sets::new()
    }
}

/// A set of semaphores.
pub struct Set {
    id: i32,
    state: Mutex<State>,
}

struct State {
    permission: Permission,
    is_removed: bool,
    semaphores: Vec<Semaphore>,
    waiting: VecDeque<Waiting>,
    adjustments: Vec<Adjustments>,
    operated_s: i64,
    changed_s: i64,
}

#[derive(Clone, Copy, Default)]
struct Semaphore {
    value: i32,
    /// Process that changed it last.
    process: i32,
}

/// What one list of undos adds to the semaphores of the set.
struct Adjustments {
    list: u64,
    values: Vec<i16>,
}

/// A call that could not be done yet.
struct Waiting {
    operation: Operation,
    /// Index in the operations of the one that it waits for.
    blocked_by: usize,
    waiter: Arc<Answer>,
}

/// What one call asks for.
pub struct Operation {
    steps: Vec<SemaphoreOperation>,
    process: Pid,
    /// List of undos, if a step has `SEM_UNDO`.
    undo: Option<u64>,
}

/// Where a call that waits gets its answer.
type Answer = Waiter<Result<(), Errno>>;

enum Outcome {
    Done,
    Blocked(usize),
}

fn has(step: &SemaphoreOperation, flag: u32) -> bool {
    u32::from(step.flags.cast_unsigned()) & flag != 0
}

impl Operation {
    fn alters(&self) -> bool {
        self.steps.iter().any(|step| step.change != 0)
    }
}

impl State {
    /// Does all steps or none.
    fn perform(&mut self, operation: &Operation) -> Result<Outcome, Errno> {
        for (index, step) in operation.steps.iter().enumerate() {
            match self.step(step, operation.undo) {
                Ok(true) => {}
                refused => {
                    self.take_back(operation, index);
                    return match refused {
                        Err(errno) => Err(errno),
                        Ok(_) if has(step, IPC_NOWAIT) => Err(Errno::EAGAIN),
                        Ok(_) => Ok(Outcome::Blocked(index)),
                    };
                }
            }
        }
        for step in &operation.steps {
            if let Some(semaphore) = self.semaphores.get_mut(usize::from(step.index)) {
                semaphore.process = operation.process.0;
            }
        }
        Ok(Outcome::Done)
    }

    /// Does one step; `false` when it has to wait.
    fn step(&mut self, step: &SemaphoreOperation, undo: Option<u64>) -> Result<bool, Errno> {
        let index = usize::from(step.index);
        let semaphore = self.semaphores.get_mut(index).ok_or(Errno::EFBIG)?;
        let value = semaphore.value + i32::from(step.change);
        if (step.change == 0 && value != 0) || value < 0 {
            return Ok(false);
        }
        if value > SEMVMX {
            return Err(Errno::ERANGE);
        }
        if has(step, SEM_UNDO)
            && let Some(adjustment) = undo.and_then(|list| self.adjustment(list, index))
        {
            *adjustment = adjustment.checked_sub(step.change).ok_or(Errno::ERANGE)?;
        }
        if let Some(semaphore) = self.semaphores.get_mut(index) {
            semaphore.value = value;
        }
        Ok(true)
    }

    /// Takes the first `count` steps back.
    fn take_back(&mut self, operation: &Operation, count: usize) {
        for step in operation.steps.iter().take(count) {
            let index = usize::from(step.index);
            if let Some(semaphore) = self.semaphores.get_mut(index) {
                semaphore.value -= i32::from(step.change);
            }
            if has(step, SEM_UNDO)
                && let Some(adjustment) =
                    operation.undo.and_then(|list| self.adjustment(list, index))
            {
                *adjustment = adjustment.wrapping_add(step.change);
            }
        }
    }

    fn adjustment(&mut self, list: u64, index: usize) -> Option<&mut i16> {
        let own = self.adjustments.iter_mut().find(|own| own.list == list)?;
        own.values.get_mut(index)
    }

    /// Makes room for the adjustments of a list.
    fn make_adjustments(&mut self, list: u64) -> Result<(), Errno> {
        if self.adjustments.iter().any(|own| own.list == list) {
            return Ok(());
        }
        let values = filled(self.semaphores.len(), 0)?;
        self.adjustments.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.adjustments.push(Adjustments { list, values });
        Ok(())
    }

    /// Answers all who can go on after a change.
    fn advance(&mut self, woken: &mut Woken) {
        let mut position = 0;
        while let Some(mut waiting) = self.waiting.remove(position) {
            let result = match self.perform(&waiting.operation) {
                Ok(Outcome::Blocked(index)) => {
                    waiting.blocked_by = index;
                    self.waiting.insert(position, waiting);
                    position += 1;
                    continue;
                }
                Ok(Outcome::Done) => {
                    self.operated_s = now_s();
                    Ok(())
                }
                Err(errno) => Err(errno),
            };
            if result.is_ok() && waiting.operation.alters() {
                // Those who were looked at before may go on now.
                position = 0;
            }
            waiting.waiter.answer(result, woken);
        }
    }

    /// How many wait for semaphore `index`: for it to rise, or for zero.
    fn count_waiting(&self, index: usize, for_zero: bool) -> u64 {
        let blocks = |waiting: &&Waiting| {
            waiting.operation.steps.get(waiting.blocked_by).is_some_and(|step| {
                usize::from(step.index) == index && (step.change == 0) == for_zero
            })
        };
        self.waiting.iter().filter(blocks).count() as u64
    }

    /// The values were set, so what was to be given back is not any more.
    fn clear_adjustments(&mut self, index: Option<usize>) {
        for own in &mut self.adjustments {
            match index {
                None => own.values.fill(0),
                Some(index) => {
                    if let Some(value) = own.values.get_mut(index) {
                        *value = 0;
                    }
                }
            }
        }
    }
}

fn filled<T: Clone>(count: usize, value: T) -> Result<Vec<T>, Errno> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    values.resize(count, value);
    Ok(values)
}

impl Set {
    /// The set's state; `EIDRM` when it was removed meanwhile.
    fn lock(&self) -> Result<MutexGuard<'_, State>, Errno> {
        let state = self.state.lock();
        if state.is_removed { Err(Errno::EIDRM) } else { Ok(state) }
    }

    fn status(&self, state: &State) -> SemaphoreStatus {
        SemaphoreStatus {
            permission: state.permission.describe(self.id),
            operated_s: state.operated_s,
            changed_s: state.changed_s,
            count: state.semaphores.len() as u64,
            ..SemaphoreStatus::default()
        }
    }
}

fn find(ipc: &Arc<Space>, id: i32) -> Result<Arc<Set>, Errno> {
    ipc.sets.lock().table.get(id)
}

/// `semget`: the number of the set of a key, or of a new one.
///
/// # Errors
/// `EINVAL` for a count that is too large, `ENOENT`, `EEXIST`, `EACCES`, `ENOSPC`, `ENOMEM`.
pub fn get(
    ipc: &Arc<Space>,
    key: i32,
    count: i32,
    flags: u32,
    credentials: &Credentials,
) -> Result<i32, Errno> {
    let count = u64::try_from(count).map_err(|_| Errno::EINVAL)?;
    if count > ipc.limits.semmsl.get() {
        return Err(Errno::EINVAL);
    }
    let mut sets = ipc.sets.lock();
    if let Some((id, set)) = sets.table.look_up(key, flags)? {
        let state = set.state.lock();
        if count > state.semaphores.len() as u64 {
            return Err(Errno::EINVAL);
        }
        state.permission.check(Wanted::of_flags(flags), credentials)?;
        return Ok(id);
    }
    if count == 0 {
        return Err(Errno::EINVAL);
    }
    if sets.semaphores + count > ipc.limits.semmns.get() {
        return Err(Errno::ENOSPC);
    }
    let semaphores = filled(count as usize, Semaphore::default())?;
    let most = usize::try_from(ipc.limits.semmni.get()).unwrap_or(usize::MAX);
    let id = sets.table.add(key, most, |id| Set {
        id,
        state: Mutex::new(
            &rank::IPC_OBJECT,
            State {
                permission: Permission::new(key, flags, credentials),
                is_removed: false,
                semaphores,
                waiting: VecDeque::new(),
                adjustments: Vec::new(),
                operated_s: 0,
                changed_s: now_s(),
            },
        ),
    })?;
    sets.semaphores += count;
    Ok(id)
}

/// Most steps of one call.
pub fn most_steps(ipc: &Arc<Space>) -> u64 {
    ipc.limits.semopm.get()
}

/// `semop`: does all steps, and waits until that is possible.
///
/// # Errors
/// `EINVAL`, `EFBIG`, `EACCES`, `EIDRM`, `ERANGE`, `EAGAIN`, `EINTR`, `ENOMEM`.
pub async fn operate(
    caller: &Caller,
    id: i32,
    steps: Vec<SemaphoreOperation>,
    deadline_ns: Option<u64>,
) -> Result<(), Errno> {
    let namespaces = caller.namespaces();
    let ipc = &namespaces.ipc;
    let credentials = caller.credentials();
    let set = find(ipc, id)?;
    let undo = steps.iter().any(|step| has(step, SEM_UNDO)).then(|| caller.undo.list());
    let operation =
        Operation { steps, process: caller.process.pid, undo: undo.as_ref().map(|list| list.id) };
    let mut woken = Woken::default();
    let begun = begin(&set, operation, undo.as_deref(), &credentials, &mut woken);
    woken.wake();
    let Some(waiter) = begun? else { return Ok(()) };
    let waiting = InList { set: &set, waiter };
    let ended = match waiting.waiter.wait(caller, deadline_ns).await {
        Ok(result) => return result,
        Err(ended) => ended,
    };
    waiting.leave();
    match (waiting.waiter.take(), ended) {
        (Some(result), _) => result,
        (None, Ended::TimedOut) => Err(Errno::EAGAIN),
        // Not restarted after a handler, whatever its flags say.
        (None, Ended::Interrupted) => Err(Errno::EINTR),
    }
}

/// Does the operation at once, or lets it wait in the set's list.
fn begin(
    set: &Arc<Set>,
    operation: Operation,
    undo: Option<&UndoList>,
    credentials: &Credentials,
    woken: &mut Woken,
) -> Result<Option<Arc<Answer>>, Errno> {
    let highest = operation.steps.iter().map(|step| step.index).max().unwrap_or(0);
    if let Some(list) = undo {
        list.note(set)?;
    }
    let mut state = set.lock()?;
    if usize::from(highest) >= state.semaphores.len() {
        return Err(Errno::EFBIG);
    }
    let wanted = if operation.alters() { Wanted::WRITE } else { Wanted::READ };
    state.permission.check(wanted, credentials)?;
    if let Some(list) = undo {
        state.make_adjustments(list.id)?;
    }
    match state.perform(&operation)? {
        Outcome::Done => {
            state.operated_s = now_s();
            if operation.alters() {
                state.advance(woken);
            }
            Ok(None)
        }
        Outcome::Blocked(blocked_by) => {
            let waiter = Waiter::new();
            state.waiting.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            state.waiting.push_back(Waiting { operation, blocked_by, waiter: waiter.clone() });
            Ok(Some(waiter))
        }
    }
}

/// Takes a waiter out of its set's list when the wait ends in whatever way.
struct InList<'a> {
    set: &'a Set,
    waiter: Arc<Answer>,
}

impl InList<'_> {
    fn leave(&self) {
        let mut state = self.set.state.lock();
        let place = state.waiting.iter().position(|it| Arc::ptr_eq(&it.waiter, &self.waiter));
        let left = place.and_then(|place| state.waiting.remove(place));
        drop(state);
        drop(left);
    }
}

impl Drop for InList<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Gives back what the list of an ended process took from the set.
pub(super) fn settle(set: &Set, list: u64, process: Pid) {
    let mut woken = Woken::default();
    {
        let Ok(mut state) = set.lock() else { return };
        let Some(place) = state.adjustments.iter().position(|own| own.list == list) else {
            return;
        };
        let own = state.adjustments.swap_remove(place);
        for (semaphore, value) in state.semaphores.iter_mut().zip(&own.values) {
            if *value != 0 {
                semaphore.value = (semaphore.value + i32::from(*value)).clamp(0, SEMVMX);
                semaphore.process = process.0;
            }
        }
        state.operated_s = now_s();
        state.advance(&mut woken);
    }
    woken.wake();
}
