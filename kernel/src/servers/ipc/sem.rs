//! Semaphores: `semget`, `semop`, `semtimedop`, `semctl`.

use abi::Errno;
use abi::ipc::*;
use abi::time::Timespec;
use base::time;
use zerocopy::IntoBytes;

use crate::call::{Call, SysResult};
use crate::ipc::semaphore::{self, Asked};
use crate::ipc::shared_memory::Named;

/// `semget(key, count, flags)`
pub fn semget(call: &Call) -> SysResult {
    let ipc = call.thread.namespaces().ipc.clone();
    let credentials = call.thread.credentials();
    let id = semaphore::get(&ipc, call.int(0), call.int(1), call.unsigned(2), &credentials)?;
    Ok(u64::from(id.unsigned_abs()))
}

/// `semop(id, steps, count)`
pub async fn semop(call: &Call) -> SysResult {
    operate(call, None).await
}

/// `semtimedop(id, steps, count, timeout)`
pub async fn semtimedop(call: &Call) -> SysResult {
    let timeout = match call.argument(3) {
        0 => None,
        address => Some(call.user().read_value::<Timespec>(address).await?),
    };
    operate(call, timeout).await
}

async fn operate(call: &Call, timeout: Option<Timespec>) -> SysResult {
    let ipc = call.thread.namespaces().ipc.clone();
    let count = call.unsigned(2);
    if u64::from(count) > semaphore::most_steps(&ipc) {
        return Err(Errno::E2BIG);
    }
    if count == 0 {
        return Err(Errno::EINVAL);
    }
    let steps = call.user().read_array(call.argument(1), count as usize).await?;
    let id = call.int(0);
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    let deadline_ns = match timeout {
        Some(timeout) => Some(time::now_ns().saturating_add(timeout.to_ns()?)),
        None => None,
    };
    semaphore::operate(&call.thread, id, steps, deadline_ns).await?;
    Ok(0)
}

/// `semctl(id, index, command, argument)`
pub async fn semctl(call: &Call) -> SysResult {
    let ipc = call.thread.namespaces().ipc.clone();
    let (id, index, command) = (call.int(0), call.int(1), call.int(2) & !IPC_64);
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    let buffer = call.argument(3);
    let user = call.user();
    let credentials = call.thread.credentials();
    let process = call.process().pid;
    let asked = match command {
        IPC_INFO | SEM_INFO => {
            let (highest, limits) = semaphore::limits(&ipc, command == SEM_INFO);
            user.write_value(buffer, &limits).await?;
            return Ok(highest);
        }
        IPC_STAT | SEM_STAT | SEM_STAT_ANY => {
            let named = match command {
                IPC_STAT => Named::Number,
                SEM_STAT => Named::Index,
                _ => Named::AnyIndex,
            };
            let (value, status) = semaphore::status(&ipc, id, named, &credentials)?;
            user.write_value(buffer, &status).await?;
            return Ok(value);
        }
        GETALL => {
            let values = semaphore::values(&ipc, id, &credentials)?;
            user.write_bytes(buffer, values.as_bytes()).await?;
            return Ok(0);
        }
        SETALL => {
            let count = semaphore::writable_count(&ipc, id, &credentials)?;
            let values = user.read_array::<u16>(buffer, count).await?;
            semaphore::set_values(&ipc, id, &values, process, &credentials)?;
            return Ok(0);
        }
        SETVAL => {
            semaphore::set_value(&ipc, id, index, buffer as i32, process, &credentials)?;
            return Ok(0);
        }
        IPC_SET => {
            let status: SemaphoreStatus = user.read_value(buffer).await?;
            semaphore::set(&ipc, id, &status.permission, &credentials)?;
            return Ok(0);
        }
        IPC_RMID => {
            semaphore::remove(&ipc, id, &credentials)?;
            return Ok(0);
        }
        GETVAL => Asked::Value,
        GETPID => Asked::Process,
        GETNCNT => Asked::WaitingForRise,
        GETZCNT => Asked::WaitingForZero,
        _ => return Err(Errno::EINVAL),
    };
    semaphore::ask(&ipc, id, index, asked, &credentials)
}
