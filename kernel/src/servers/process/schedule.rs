//! Scheduling: affinity, policies, priorities.

use abi::Errno;
use abi::process::{
    PRIO_PGRP, PRIO_PROCESS, PRIO_USER, SCHED_DEADLINE, SCHED_FIFO, SCHED_OTHER,
    SCHED_RESET_ON_FORK, SCHED_RR, SchedulingParameters,
};
use abi::time::Timespec;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use policy::table::number;

use crate::call::{self, Call, SysResult};
use crate::machine;
use crate::process::schedule::{NICE_RANGE, priority_range};
use crate::process::{Capability, Pid, Resource, Thread, Tid, table};

/// Bytes of the set of cores that the kernel keeps.
const CORE_SET_SIZE: usize = 8;
/// Time slice of `SCHED_RR`, as Linux has it.
const ROUND_ROBIN_SLICE_NS: u64 = 100_000_000;
/// Time slice of ordinary threads, when others are ready.
const ORDINARY_SLICE_NS: u64 = 4_000_000;

pub(super) async fn serve(call: &Call) -> SysResult {
    match call.number() {
        number::sched_getaffinity => get_affinity(call).await,
        number::sched_setaffinity => set_affinity(call).await,
        number::sched_getparam => get_parameters(call).await,
        number::sched_setparam => set_parameters(call).await,
        number::sched_getscheduler => get_scheduler(call),
        number::sched_setscheduler => set_scheduler(call).await,
        number::sched_get_priority_max => priority_limit(call.int(0), true),
        number::sched_get_priority_min => priority_limit(call.int(0), false),
        number::sched_rr_get_interval => get_interval(call).await,
        number::getpriority => get_priority(call),
        number::setpriority => set_priority(call),
        _ => Err(call::unknown(call.number())),
    }
}

pub(super) fn find(call: &Call, pid: i32) -> Result<Arc<Thread>, Errno> {
    match pid {
        0 => Ok(call.thread.clone()),
        pid => table::thread_or_init(Tid(pid)).ok_or(Errno::ESRCH),
    }
}

/// `EPERM` unless the caller acts for the target's user, or may schedule anybody.
fn may_schedule(call: &Call, target: &Thread) -> Result<(), Errno> {
    let (own, other) = (call.thread.credentials(), target.credentials());
    let is_same = [other.user.real, other.user.effective].contains(&own.user.effective);
    if is_same { Ok(()) } else { own.require(Capability::Nice) }
}

async fn get_affinity(call: &Call) -> SysResult {
    let size = usize::try_from(call.unsigned(1)).map_err(|_| Errno::EINVAL)?;
    if size < CORE_SET_SIZE || size % CORE_SET_SIZE != 0 {
        return Err(Errno::EINVAL);
    }
    let thread = find(call, call.int(0))?;
    let set = thread.affinity.load(Ordering::Relaxed) & machine::layout().application.0;
    call.user().write_value(call.argument(2), &set).await?;
    Ok(CORE_SET_SIZE as u64)
}

async fn set_affinity(call: &Call) -> SysResult {
    let size = usize::try_from(call.unsigned(1)).map_err(|_| Errno::EINVAL)?;
    let mut bytes = [0; CORE_SET_SIZE];
    let used = bytes.get_mut(..size.min(CORE_SET_SIZE)).unwrap_or_default();
    call.user().read_bytes(call.argument(2), used).await?;
    let thread = find(call, call.int(0))?;
    may_schedule(call, &thread)?;
    let set = u64::from_le_bytes(bytes);
    if set & machine::layout().application.0 == 0 {
        return Err(Errno::EINVAL);
    }
    thread.affinity.store(set, Ordering::SeqCst);
    // It looks at the set on its way back to user mode.
    thread.kick();
    Ok(0)
}

async fn get_parameters(call: &Call) -> SysResult {
    if call.argument(1) == 0 || call.int(0) < 0 {
        return Err(Errno::EINVAL);
    }
    let priority = find(call, call.int(0))?.schedule.priority();
    call.user().write_value(call.argument(1), &SchedulingParameters { priority }).await?;
    Ok(0)
}

async fn read_parameters(call: &Call, index: usize) -> Result<i32, Errno> {
    if call.argument(index) == 0 || call.int(0) < 0 {
        return Err(Errno::EINVAL);
    }
    Ok(call.user().read_value::<SchedulingParameters>(call.argument(index)).await?.priority)
}

async fn set_parameters(call: &Call) -> SysResult {
    let priority = read_parameters(call, 1).await?;
    let thread = find(call, call.int(0))?;
    let flag = if thread.schedule.resets_on_fork() { SCHED_RESET_ON_FORK } else { 0 };
    apply(call, &thread, thread.schedule.policy() | flag, priority)
}

fn get_scheduler(call: &Call) -> SysResult {
    if call.int(0) < 0 {
        return Err(Errno::EINVAL);
    }
    let thread = find(call, call.int(0))?;
    let flag = if thread.schedule.resets_on_fork() { SCHED_RESET_ON_FORK } else { 0 };
    Ok(u64::from((thread.schedule.policy() | flag).cast_unsigned()))
}

async fn set_scheduler(call: &Call) -> SysResult {
    if call.int(1) < 0 {
        return Err(Errno::EINVAL);
    }
    let priority = read_parameters(call, 2).await?;
    let thread = find(call, call.int(0))?;
    apply(call, &thread, call.int(1), priority)
}

pub(super) fn apply(call: &Call, thread: &Arc<Thread>, policy: i32, priority: i32) -> SysResult {
    let plain = policy & !SCHED_RESET_ON_FORK;
    let (lowest, highest) = priority_range(plain)?;
    if priority < lowest || priority > highest {
        return Err(Errno::EINVAL);
    }
    may_schedule(call, thread)?;
    if matches!(plain, SCHED_FIFO | SCHED_RR) {
        let limit = thread.process.limits.soft(Resource::RealTimePriority);
        let is_within = u64::from(priority.unsigned_abs()) <= limit;
        if !is_within {
            call.thread.credentials().require(Capability::Nice)?;
        }
    }
    thread.schedule.set_policy(policy, priority)?;
    Ok(0)
}

/// Sets the nice value of a thread that the caller may schedule.
pub(super) fn apply_nice(call: &Call, thread: &Arc<Thread>, nice: i32) -> Result<(), Errno> {
    let wanted = u64::from((20 - nice).unsigned_abs());
    let limit = thread.process.limits.soft(Resource::Nice);
    if nice < thread.schedule.nice() && wanted > limit {
        call.thread.credentials().require(Capability::Nice)?;
    }
    thread.schedule.set_nice(nice);
    Ok(())
}

fn priority_limit(policy: i32, is_highest: bool) -> SysResult {
    let (lowest, highest) = if policy == SCHED_DEADLINE { (0, 0) } else { priority_range(policy)? };
    let value = if is_highest { highest } else { lowest };
    Ok(u64::from(value.unsigned_abs()))
}

async fn get_interval(call: &Call) -> SysResult {
    if call.int(0) < 0 {
        return Err(Errno::EINVAL);
    }
    let slice_ns = match find(call, call.int(0))?.schedule.policy() {
        SCHED_RR => ROUND_ROBIN_SLICE_NS,
        SCHED_OTHER => ORDINARY_SLICE_NS,
        _ => 0,
    };
    call.user().write_value(call.argument(1), &Timespec::from_ns(slice_ns)).await?;
    Ok(0)
}

/// The threads that `getpriority` and `setpriority` are about.
fn chosen(call: &Call) -> Result<Vec<Arc<Thread>>, Errno> {
    let who = call.int(1);
    let threads: Vec<Arc<Thread>> = match call.int(0) {
        PRIO_PROCESS => find(call, who).into_iter().collect(),
        PRIO_PGRP => {
            let group = if who == 0 { call.process().group() } else { Pid(who) };
            table::group_members(group).iter().flat_map(|process| process.threads()).collect()
        }
        PRIO_USER => {
            let user = match who {
                0 => call.thread.credentials().user.real,
                who => who.cast_unsigned(),
            };
            let all = table::processes();
            let threads = all.iter().flat_map(|process| process.threads());
            threads.filter(|thread| thread.credentials().user.real == user).collect()
        }
        _ => return Err(Errno::EINVAL),
    };
    if threads.is_empty() { Err(Errno::ESRCH) } else { Ok(threads) }
}

/// Answers 20 - nice, 1 to 40, so that no value looks like an error.
fn get_priority(call: &Call) -> SysResult {
    let lowest = chosen(call)?.iter().map(|thread| thread.schedule.nice()).min();
    let nice = lowest.ok_or(Errno::ESRCH)?;
    Ok(u64::from((20 - nice).unsigned_abs()))
}

fn set_priority(call: &Call) -> SysResult {
    let nice = call.int(2).clamp(NICE_RANGE.0, NICE_RANGE.1);
    let own = call.thread.credentials();
    let mut result = Ok(0);
    for thread in chosen(call)? {
        let other = thread.credentials();
        let is_same = [other.user.real, other.user.effective].contains(&own.user.effective)
            || own.user.real == other.user.real;
        let wanted = u64::from((20 - nice).unsigned_abs());
        let is_raised =
            nice < thread.schedule.nice() && wanted > thread.process.limits.soft(Resource::Nice);
        if !is_same && !own.is_capable(Capability::Nice) {
            result = Err(Errno::EPERM);
        } else if is_raised && !own.is_capable(Capability::Nice) {
            result = Err(Errno::EACCES);
        } else {
            thread.schedule.set_nice(nice);
        }
    }
    result
}
