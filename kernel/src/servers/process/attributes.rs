//! `sched_setattr` and `sched_getattr`: all parameters of scheduling in one structure.

use abi::Errno;
use abi::process::{
    SCHED_DEADLINE, SCHED_FIFO, SCHED_RESET_ON_FORK, SCHED_RR, SchedulingAttributes,
};
use zerocopy::{FromBytes, IntoBytes};

use super::schedule::{apply, apply_nice, find};
use crate::call::{Call, SysResult};
use crate::memory::PAGE;
use crate::process::Capability;
use crate::process::schedule::NICE_RANGE;

/// Bytes of the first version of the structure.
const FIRST_SIZE: u32 = 48;
const RESET_ON_FORK: u64 = 1;
const KEEP_POLICY: u64 = 8;
const KEEP_PARAMETERS: u64 = 16;
const KNOWN_FLAGS: u64 = 0x7f;
/// Limits of utilisation, which no core looks at.
const UTILISATION: u64 = 0x60;

fn is_real_time(policy: i32) -> bool {
    matches!(policy, SCHED_FIFO | SCHED_RR)
}

/// Reads a structure of any version: what the caller leaves out is 0, what is unknown must be 0.
async fn read(call: &Call, address: u64) -> Result<SchedulingAttributes, Errno> {
    const KNOWN: usize = size_of::<SchedulingAttributes>();
    let user = call.user();
    let size = match user.read_value::<u32>(address).await? {
        0 => FIRST_SIZE,
        size => size,
    };
    let is_too_long = if size < FIRST_SIZE || u64::from(size) > PAGE {
        true
    } else {
        let bytes = user.read_vector(address, size as usize).await?;
        let has_unknown = bytes.iter().skip(KNOWN).any(|byte| *byte != 0);
        if !has_unknown {
            let mut padded = [0; KNOWN];
            for (to, from) in padded.iter_mut().zip(&bytes) {
                *to = *from;
            }
            let attributes = SchedulingAttributes::read_from_bytes(&padded);
            return attributes.map_err(|_| Errno::EINVAL);
        }
        true
    };
    if is_too_long {
        user.write_value(address, &(KNOWN as u32)).await?;
    }
    Err(Errno::E2BIG)
}

/// `sched_setattr(thread, attributes, flags)`
pub(super) async fn set(call: &Call) -> SysResult {
    let (pid, address) = (call.int(0), call.argument(1));
    if address == 0 || pid < 0 || call.unsigned(2) != 0 {
        return Err(Errno::EINVAL);
    }
    let wanted = read(call, address).await?;
    if wanted.flags & UTILISATION != 0 && wanted.size < size_of::<SchedulingAttributes>() as u32 {
        return Err(Errno::EINVAL);
    }
    let policy = wanted.policy.cast_signed();
    if policy < 0 {
        return Err(Errno::EINVAL);
    }
    let thread = find(call, pid)?;
    let schedule = &thread.schedule;
    let policy = if wanted.flags & KEEP_POLICY != 0 { schedule.policy() } else { policy };
    if wanted.flags & !KNOWN_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    if wanted.flags & UTILISATION != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let keeps = wanted.flags & KEEP_PARAMETERS != 0;
    let priority = if keeps {
        schedule.priority()
    } else {
        i32::try_from(wanted.priority).map_err(|_| Errno::EINVAL)?
    };
    if policy == SCHED_DEADLINE {
        if priority != 0 {
            return Err(Errno::EINVAL);
        }
        call.thread.credentials().require(Capability::Nice)?;
        let times_ns = match keeps {
            true => schedule.deadline(),
            false => [wanted.runtime_ns, wanted.deadline_ns, wanted.period_ns],
        };
        schedule.set_deadline(times_ns, wanted.flags & RESET_ON_FORK != 0)?;
        return Ok(0);
    }
    let reset = if wanted.flags & RESET_ON_FORK != 0 { SCHED_RESET_ON_FORK } else { 0 };
    apply(call, &thread, policy | reset, priority)?;
    if !is_real_time(policy) && !keeps {
        apply_nice(call, &thread, wanted.nice.clamp(NICE_RANGE.0, NICE_RANGE.1))?;
    }
    Ok(0)
}

/// `sched_getattr(thread, attributes, size, flags)`
pub(super) async fn get(call: &Call) -> SysResult {
    const KNOWN: u32 = size_of::<SchedulingAttributes>() as u32;
    let (pid, address, size) = (call.int(0), call.argument(1), call.unsigned(2));
    if address == 0
        || pid < 0
        || u64::from(size) > PAGE
        || size < FIRST_SIZE
        || call.unsigned(3) != 0
    {
        return Err(Errno::EINVAL);
    }
    let thread = find(call, pid)?;
    let schedule = &thread.schedule;
    let policy = schedule.policy();
    let used = size.min(KNOWN);
    let [runtime_ns, deadline_ns, period_ns] = schedule.deadline();
    let attributes = SchedulingAttributes {
        size: used,
        policy: policy.cast_unsigned(),
        flags: if schedule.resets_on_fork() { RESET_ON_FORK } else { 0 },
        nice: if is_real_time(policy) { 0 } else { schedule.nice() },
        priority: schedule.priority().unsigned_abs(),
        runtime_ns,
        deadline_ns,
        period_ns,
        ..SchedulingAttributes::default()
    };
    let bytes = attributes.as_bytes().get(..used as usize).unwrap_or_default();
    call.user().write_bytes(address, bytes).await?;
    Ok(0)
}
