//! `ioprio_get` and `ioprio_set`: priorities of input and output, kept and reported. Nothing waits for a
//! disk, so they order nothing.

use abi::Errno;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::schedule::find;
use crate::call::{Call, SysResult};
use crate::process::{Capability, Pid, Thread, table};

const OF_THREAD: i32 = 1;
const OF_GROUP: i32 = 2;
const OF_USER: i32 = 3;

const CLASS_SHIFT: u32 = 13;
const LEVEL_MASK: u32 = (1 << CLASS_SHIFT) - 1;
const LEVELS: u32 = 8;
const NONE: u32 = 0;
const REAL_TIME: u32 = 1;
const BEST_EFFORT: u32 = 2;
const IDLE: u32 = 3;

/// The threads that a call is about.
fn chosen(call: &Call) -> Result<Vec<Arc<Thread>>, Errno> {
    let who = call.int(1);
    let threads: Vec<Arc<Thread>> = match call.int(0) {
        OF_THREAD => find(call, who).into_iter().collect(),
        OF_GROUP => {
            let group = if who == 0 { call.process().group() } else { Pid(who) };
            table::group_members(group).iter().flat_map(|process| process.threads()).collect()
        }
        OF_USER => {
            let user = who.cast_unsigned();
            let all = table::processes();
            let threads = all.iter().flat_map(|process| process.threads());
            threads.filter(|thread| thread.credentials().user.real == user).collect()
        }
        _ => return Err(Errno::EINVAL),
    };
    if threads.is_empty() { Err(Errno::ESRCH) } else { Ok(threads) }
}

/// The priority in force: what was set, or what the nice value stands for.
fn priority_of(thread: &Thread) -> u32 {
    let set = thread.schedule.io_priority.load(Ordering::Relaxed);
    if set >> CLASS_SHIFT != NONE {
        return set;
    }
    let level = (thread.schedule.nice() + 20).unsigned_abs() / 5;
    match thread.schedule.policy() {
        abi::process::SCHED_IDLE => IDLE << CLASS_SHIFT | level,
        abi::process::SCHED_FIFO | abi::process::SCHED_RR => REAL_TIME << CLASS_SHIFT | level,
        _ => BEST_EFFORT << CLASS_SHIFT | level,
    }
}

/// `ioprio_get(kind, who)`: what was set for one thread, or the best in force of many.
pub(super) fn ioprio_get(call: &Call) -> SysResult {
    if call.int(0) == OF_THREAD {
        let thread = find(call, call.int(1))?;
        return Ok(u64::from(thread.schedule.io_priority.load(Ordering::Relaxed)));
    }
    let best = chosen(call)?.iter().map(|thread| priority_of(thread)).min();
    best.map(u64::from).ok_or(Errno::ESRCH)
}

/// `ioprio_set(kind, who, priority)`
pub(super) fn ioprio_set(call: &Call) -> SysResult {
    let priority = call.unsigned(2);
    let own = call.thread.credentials();
    match (priority >> CLASS_SHIFT, priority & LEVEL_MASK) {
        (REAL_TIME, _) if !own.is_capable(Capability::Administer) => {
            own.require(Capability::Nice)?;
            if priority & LEVEL_MASK >= LEVELS {
                return Err(Errno::EINVAL);
            }
        }
        (REAL_TIME | BEST_EFFORT, level) if level >= LEVELS => return Err(Errno::EINVAL),
        (REAL_TIME | BEST_EFFORT | IDLE, _) | (NONE, 0) => {}
        _ => return Err(Errno::EINVAL),
    }
    for thread in chosen(call)? {
        let user = thread.credentials().user.real;
        if user != own.user.effective && user != own.user.real {
            own.require(Capability::Nice)?;
        }
        thread.schedule.io_priority.store(priority, Ordering::Relaxed);
    }
    Ok(0)
}
