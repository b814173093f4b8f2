//! What `semctl` asks of sets and changes of them, and their place in `/proc`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use abi::ipc::*;

use super::{Semaphore, filled, find};
use crate::ipc::limits::as_int;
use crate::ipc::now_s;
use crate::ipc::permission::Wanted;
use crate::ipc::shared_memory::Named;
use crate::ipc::space::Space;
use crate::ipc::waiter::Woken;
use crate::process::Pid;
use crate::process::credentials::Credentials;

/// `IPC_STAT` and its kin: what the call returns, and the description.
///
/// # Errors
/// `EINVAL`, `EACCES`.
pub fn status(
    ipc: &Arc<Space>,
    id: i32,
    named: Named,
    credentials: &Credentials,
) -> Result<(u64, SemaphoreStatus), Errno> {
    let sets = ipc.sets.lock();
    let (own, set) = match named {
        Named::Number => (id, sets.table.get(id)?),
        Named::Index | Named::AnyIndex => sets.table.at(id)?,
    };
    let state = set.state.lock();
    if named != Named::AnyIndex {
        state.permission.check(Wanted::READ, credentials)?;
    }
    let value = if named == Named::Number { 0 } else { u64::from(own.unsigned_abs()) };
    Ok((value, set.status(&state)))
}

/// `IPC_SET`.
///
/// # Errors
/// `EINVAL`, `EPERM`.
pub fn set(
    ipc: &Arc<Space>,
    id: i32,
    to: &IpcPermission,
    credentials: &Credentials,
) -> Result<(), Errno> {
    let set = find(ipc, id)?;
    let mut state = set.lock()?;
    state.permission.check_owner(credentials)?;
    state.permission.set(to)?;
    state.changed_s = now_s();
    Ok(())
}

/// `IPC_RMID`: whoever waits gets `EIDRM`.
///
/// # Errors
/// `EINVAL`, `EPERM`.
pub fn remove(ipc: &Arc<Space>, id: i32, credentials: &Credentials) -> Result<(), Errno> {
    let mut woken = Woken::default();
    let mut sets = ipc.sets.lock();
    let set = sets.table.get(id)?;
    let mut state = set.lock()?;
    state.permission.check_owner(credentials)?;
    state.is_removed = true;
    state.adjustments.clear();
    for waiting in core::mem::take(&mut state.waiting) {
        waiting.waiter.answer(Err(Errno::EIDRM), &mut woken);
    }
    sets.semaphores -= state.semaphores.len() as u64;
    let removed = sets.table.remove(id, state.permission.key);
    drop(state);
    drop(sets);
    drop(removed);
    woken.wake();
    Ok(())
}

/// What `semctl` asks of one semaphore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// `GETVAL`
    Value,
    /// `GETPID`
    Process,
    /// `GETNCNT`
    WaitingForRise,
    /// `GETZCNT`
    WaitingForZero,
}

/// Answers what is asked of semaphore `index`.
///
/// # Errors
/// `EINVAL`, `EACCES`, `EIDRM`.
pub fn ask(
    ipc: &Arc<Space>,
    id: i32,
    index: i32,
    asked: Asked,
    credentials: &Credentials,
) -> Result<u64, Errno> {
    let set = find(ipc, id)?;
    let state = set.lock()?;
    state.permission.check(Wanted::READ, credentials)?;
    let index = usize::try_from(index).map_err(|_| Errno::EINVAL)?;
    let semaphore = state.semaphores.get(index).ok_or(Errno::EINVAL)?;
    Ok(match asked {
        Asked::Value => u64::from(semaphore.value.unsigned_abs()),
        Asked::Process => u64::from(semaphore.process.unsigned_abs()),
        Asked::WaitingForRise => state.count_waiting(index, false),
        Asked::WaitingForZero => state.count_waiting(index, true),
    })
}

/// `GETALL`: all values.
///
/// # Errors
/// `EINVAL`, `EACCES`, `EIDRM`, `ENOMEM`.
pub fn values(ipc: &Arc<Space>, id: i32, credentials: &Credentials) -> Result<Vec<u16>, Errno> {
    let set = find(ipc, id)?;
    let state = set.lock()?;
    state.permission.check(Wanted::READ, credentials)?;
    let mut values = filled(state.semaphores.len(), 0_u16)?;
    for (to, semaphore) in values.iter_mut().zip(&state.semaphores) {
        *to = semaphore.value as u16;
    }
    Ok(values)
}

/// How many semaphores the caller may set with `SETALL`.
///
/// # Errors
/// `EINVAL`, `EACCES`, `EIDRM`.
pub fn writable_count(
    ipc: &Arc<Space>,
    id: i32,
    credentials: &Credentials,
) -> Result<usize, Errno> {
    let set = find(ipc, id)?;
    let state = set.lock()?;
    state.permission.check(Wanted::WRITE, credentials)?;
    Ok(state.semaphores.len())
}

/// `SETALL`.
///
/// # Errors
/// `EINVAL`, `EACCES`, `EIDRM`, `ERANGE`.
pub fn set_values(
    ipc: &Arc<Space>,
    id: i32,
    values: &[u16],
    process: Pid,
    credentials: &Credentials,
) -> Result<(), Errno> {
    if values.iter().any(|value| i32::from(*value) > SEMVMX) {
        return Err(Errno::ERANGE);
    }
    let set = find(ipc, id)?;
    let mut woken = Woken::default();
    {
        let mut state = set.lock()?;
        state.permission.check(Wanted::WRITE, credentials)?;
        for (semaphore, value) in state.semaphores.iter_mut().zip(values) {
            *semaphore = Semaphore { value: i32::from(*value), process: process.0 };
        }
        state.clear_adjustments(None);
        state.changed_s = now_s();
        state.advance(&mut woken);
    }
    woken.wake();
    Ok(())
}

/// `SETVAL`.
///
/// # Errors
/// `ERANGE`, `EINVAL`, `EACCES`, `EIDRM`.
pub fn set_value(
    ipc: &Arc<Space>,
    id: i32,
    index: i32,
    value: i32,
    process: Pid,
    credentials: &Credentials,
) -> Result<(), Errno> {
    if !(0..=SEMVMX).contains(&value) {
        return Err(Errno::ERANGE);
    }
    let set = find(ipc, id)?;
    let mut woken = Woken::default();
    {
        let mut state = set.lock()?;
        let index = usize::try_from(index).map_err(|_| Errno::EINVAL)?;
        if index >= state.semaphores.len() {
            return Err(Errno::EINVAL);
        }
        state.permission.check(Wanted::WRITE, credentials)?;
        if let Some(semaphore) = state.semaphores.get_mut(index) {
            *semaphore = Semaphore { value, process: process.0 };
        }
        state.clear_adjustments(Some(index));
        state.changed_s = now_s();
        state.advance(&mut woken);
    }
    woken.wake();
    Ok(())
}

/// `IPC_INFO` and `SEM_INFO`: the highest index, and the limits or what is in use.
pub fn limits(ipc: &Arc<Space>, is_usage: bool) -> (u64, SemaphoreLimits) {
    let sets = ipc.sets.lock();
    let most = as_int(ipc.limits.semmns.get());
    let limits = SemaphoreLimits {
        map: most,
        sets: as_int(ipc.limits.semmni.get()),
        semaphores: most,
        undo_structures: most,
        per_set: as_int(ipc.limits.semmsl.get()),
        operations: as_int(ipc.limits.semopm.get()),
        undo_entries: 500,
        undo_size: if is_usage { as_int(sets.table.count() as u64) } else { 20 },
        value: SEMVMX,
        adjustment: if is_usage { as_int(sets.semaphores) } else { SEMVMX },
    };
    (sets.table.highest(), limits)
}

/// Every set with its number, for `/proc/sysvipc/sem`.
pub fn list(ipc: &Arc<Space>) -> Vec<(i32, SemaphoreStatus)> {
    let sets = ipc.sets.lock();
    sets.table.iter().map(|(id, set)| (id, set.status(&set.state.lock()))).collect()
}

/// `/proc/sys/kernel/sem_next_id`
pub fn wanted(ipc: &Arc<Space>) -> i32 {
    ipc.sets.lock().table.wanted()
}

/// Sets it.
pub fn set_wanted(ipc: &Arc<Space>, id: i32) {
    ipc.sets.lock().table.set_wanted(id);
}
