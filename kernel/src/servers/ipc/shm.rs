//! Shared memory: `shmget`, `shmat`, `shmdt`, `shmctl`.

use abi::Errno;
use abi::ipc::*;

use crate::call::{Call, SysResult};
use crate::ipc::shared_memory::{self, Named};
use crate::memory::{Place, USER_END};
use crate::servers::memory;

/// `shmget(key, size, flags)`
pub fn shmget(call: &Call) -> SysResult {
    let ipc = call.thread.namespaces().ipc.clone();
    let credentials = call.thread.credentials();
    let (size, flags) = (call.argument(1), call.unsigned(2));
    let id = shared_memory::get(&ipc, call.int(0), size, flags, call.process().pid, &credentials)?;
    Ok(u64::from(id.unsigned_abs()))
}

/// `shmat(id, address, flags)`
pub async fn shmat(call: &Call) -> SysResult {
    let ipc = call.thread.namespaces().ipc.clone();
    let credentials = call.thread.credentials();
    memory::update_limits(call);
    let mut change = call.thread.space().begin_change().await;
    let request = shared_memory::attach(
        &ipc,
        change.space(),
        call.int(0),
        call.argument(1),
        call.unsigned(2),
        call.process().pid,
        &credentials,
    )?;
    if let Place::Fixed(start) = request.place {
        let end = start.checked_add(request.length).filter(|&end| end <= USER_END);
        let range = start..end.ok_or(Errno::ENOMEM)?;
        memory::make_room(call, &mut change, range, &request).await?;
    }
    change.space().map(request)
}

/// `shmdt(address)`
pub async fn shmdt(call: &Call) -> SysResult {
    let address = call.argument(0);
    if !crate::memory::is_page_aligned(address) || address >= USER_END {
        return Err(Errno::EINVAL);
    }
    let change = call.thread.space().begin_change().await;
    let space = change.space();
    space.set_owner(call.process().pid.0);
    space.detach(address)?;
    Ok(0)
}

/// `shmctl(id, command, buffer)`
pub async fn shmctl(call: &Call) -> SysResult {
    let ipc = call.thread.namespaces().ipc.clone();
    let (id, command) = (call.int(0), call.int(1) & !IPC_64);
    if call.int(1) < 0 || id < 0 {
        return Err(Errno::EINVAL);
    }
    let buffer = call.argument(2);
    let user = call.user();
    let credentials = call.thread.credentials();
    match command {
        IPC_INFO => {
            let (highest, limits) = shared_memory::limits(&ipc);
            user.write_value(buffer, &limits).await?;
            Ok(highest)
        }
        SHM_INFO => {
            let (highest, usage) = shared_memory::usage(&ipc);
            user.write_value(buffer, &usage).await?;
            Ok(highest)
        }
        IPC_STAT | SHM_STAT | SHM_STAT_ANY => {
            let named = match command {
                IPC_STAT => Named::Number,
                SHM_STAT => Named::Index,
                _ => Named::AnyIndex,
            };
            let (value, status) = shared_memory::status(&ipc, id, named, &credentials)?;
            user.write_value(buffer, &status).await?;
            Ok(value)
        }
        IPC_SET => {
            let status: SegmentStatus = user.read_value(buffer).await?;
            shared_memory::set(&ipc, id, &status.permission, &credentials)?;
            Ok(0)
        }
        IPC_RMID => {
            shared_memory::remove(&ipc, id, &credentials)?;
            Ok(0)
        }
        SHM_LOCK | SHM_UNLOCK => {
            let is_locked = command == SHM_LOCK;
            shared_memory::lock(&ipc, id, is_locked, &call.process().limits, &credentials)?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}
