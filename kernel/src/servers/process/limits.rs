//! Resource limits and usage.

use abi::Errno;
use abi::process::{RUSAGE_CHILDREN, RUSAGE_SELF, RUSAGE_THREAD, ResourceLimit};
use alloc::sync::Arc;

use crate::call::{Call, SysResult};
use crate::process::file_table::DESCRIPTOR_LIMIT;
use crate::process::process::UsageSum;
use crate::process::wait::usage_record;
use crate::process::{Capability, Resource, Thread, Tid, exec, table};

pub(super) async fn getrlimit(call: &Call) -> SysResult {
    let resource = Resource::new(call.unsigned(0))?;
    let limit = call.process().limits.get(resource);
    call.user().write_value(call.argument(1), &limit).await?;
    Ok(0)
}

pub(super) async fn setrlimit(call: &Call) -> SysResult {
    let limit: ResourceLimit = call.user().read_value(call.argument(1)).await?;
    let resource = Resource::new(call.unsigned(0))?;
    set(call, &call.thread, resource, limit)?;
    Ok(0)
}

/// `prlimit64(pid, resource, new, old)`
pub(super) async fn prlimit64(call: &Call) -> SysResult {
    let new = match call.argument(2) {
        0 => None,
        address => Some(call.user().read_value::<ResourceLimit>(address).await?),
    };
    let target = match call.int(0) {
        0 => call.thread.clone(),
        pid => table::thread_or_init(Tid(pid)).ok_or(Errno::ESRCH)?,
    };
    may_limit(call, &target)?;
    let resource = Resource::new(call.unsigned(1))?;
    let old = match new {
        Some(limit) => set(call, &target, resource, limit)?,
        None => target.process.limits.get(resource),
    };
    if call.argument(3) != 0 {
        call.user().write_value(call.argument(3), &old).await?;
    }
    Ok(0)
}

/// `EPERM` unless the caller is the target's user in every way, or may change any limit.
fn may_limit(call: &Call, target: &Arc<Thread>) -> Result<(), Errno> {
    if Arc::ptr_eq(&target.process, call.process()) {
        return Ok(());
    }
    let (own, other) = (call.thread.credentials(), target.credentials());
    let is_same_user =
        [other.user.real, other.user.effective, other.user.saved] == [own.user.real; 3];
    let is_same_group =
        [other.group.real, other.group.effective, other.group.saved] == [own.group.real; 3];
    if is_same_user && is_same_group { Ok(()) } else { own.require(Capability::Resource) }
}

fn set(
    call: &Call,
    target: &Arc<Thread>,
    resource: Resource,
    limit: ResourceLimit,
) -> Result<ResourceLimit, Errno> {
    if limit.soft > limit.hard {
        return Err(Errno::EINVAL);
    }
    if resource == Resource::Files && limit.hard > DESCRIPTOR_LIMIT {
        return Err(Errno::EPERM);
    }
    let may_raise = call.thread.credentials().is_capable(Capability::Resource);
    let old = target.process.limits.set(resource, limit, may_raise)?;
    if resource == Resource::Cpu {
        target.process.signals.timers.watch_limit(&target.process)?;
    }
    target.space().set_limits(exec::memory_limits(target));
    Ok(old)
}

pub(super) async fn getrusage(call: &Call) -> SysResult {
    let process = call.process();
    let resident = || UsageSum {
        max_resident_kib: call.thread.space().counters().resident_peak
            * (hal::PAGE_SIZE as u64 / 1024),
        ..UsageSum::default()
    };
    let sum = match call.int(0) {
        RUSAGE_SELF => process.usage().plus(resident()),
        RUSAGE_THREAD => call.thread.usage().plus(resident()),
        RUSAGE_CHILDREN => process.ended_children.get(),
        _ => return Err(Errno::EINVAL),
    };
    call.user().write_value(call.argument(1), &usage_record(&sum)).await?;
    Ok(0)
}
