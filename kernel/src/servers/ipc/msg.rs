//! Message queues: `msgget`, `msgsnd`, `msgrcv`, `msgctl`.

use abi::Errno;
use abi::ipc::*;

use crate::call::{Call, SysResult};
use crate::ipc::message::{self, Choice, Message, Request};
use crate::ipc::shared_memory::Named;

/// `msgget(key, flags)`
pub fn msgget(call: &Call) -> SysResult {
    let ipc = call.thread.namespaces().ipc.clone();
    let credentials = call.thread.credentials();
    let id = message::get(&ipc, call.int(0), call.unsigned(1), &credentials)?;
    Ok(u64::from(id.unsigned_abs()))
}

/// `msgsnd(id, message, size, flags)`
pub async fn msgsnd(call: &Call) -> SysResult {
    let ipc = call.thread.namespaces().ipc.clone();
    let (id, address, size) = (call.int(0), call.argument(1), call.argument(2));
    let user = call.user();
    let kind: i64 = user.read_value(address).await?;
    if size > message::most_text(&ipc) || id < 0 || kind < 1 {
        return Err(Errno::EINVAL);
    }
    let size = usize::try_from(size).map_err(|_| Errno::EINVAL)?;
    let text = user.read_vector(address + size_of::<i64>() as u64, size).await?;
    let waits = call.unsigned(3) & IPC_NOWAIT == 0;
    message::send(&call.thread, id, Message { kind, text }, waits).await?;
    Ok(0)
}

/// `msgrcv(id, message, size, type, flags)`
pub async fn msgrcv(call: &Call) -> SysResult {
    let (id, address, room) = (call.int(0), call.argument(1), call.argument(2));
    let (kind, flags) = (call.argument(3).cast_signed(), call.unsigned(4));
    if id < 0 || room > i64::MAX.unsigned_abs() {
        return Err(Errno::EINVAL);
    }
    let waits = flags & IPC_NOWAIT == 0;
    if flags & MSG_COPY != 0 && (flags & MSG_EXCEPT != 0 || waits) {
        return Err(Errno::EINVAL);
    }
    let choice = if flags & MSG_COPY != 0 {
        Choice::Copy(kind)
    } else if kind == 0 {
        Choice::Any
    } else if kind < 0 {
        Choice::UpTo(kind.checked_neg().unwrap_or(i64::MAX))
    } else if flags & MSG_EXCEPT != 0 {
        Choice::Except(kind)
    } else {
        Choice::Type(kind)
    };
    let cuts = flags & MSG_NOERROR != 0;
    let request = Request { choice, room, cuts, process: call.process().pid };
    let message = message::receive(&call.thread, id, request, waits).await?;
    let user = call.user();
    user.write_value(address, &message.kind).await?;
    let length =
        usize::try_from(room).map_or(message.text.len(), |room| room.min(message.text.len()));
    let text = message.text.get(..length).unwrap_or_default();
    user.write_bytes(address + size_of::<i64>() as u64, text).await?;
    Ok(length as u64)
}

/// `msgctl(id, command, buffer)`
pub async fn msgctl(call: &Call) -> SysResult {
    let ipc = call.thread.namespaces().ipc.clone();
    let (id, command) = (call.int(0), call.int(1) & !IPC_64);
    if id < 0 || call.int(1) < 0 {
        return Err(Errno::EINVAL);
    }
    let buffer = call.argument(2);
    let user = call.user();
    let credentials = call.thread.credentials();
    match command {
        IPC_INFO | MSG_INFO => {
            let (highest, limits) = message::limits(&ipc, command == MSG_INFO);
            user.write_value(buffer, &limits).await?;
            Ok(highest)
        }
        IPC_STAT | MSG_STAT | MSG_STAT_ANY => {
            let named = match command {
                IPC_STAT => Named::Number,
                MSG_STAT => Named::Index,
                _ => Named::AnyIndex,
            };
            let (value, status) = message::status(&ipc, id, named, &credentials)?;
            user.write_value(buffer, &status).await?;
            Ok(value)
        }
        IPC_SET => {
            let status: QueueStatus = user.read_value(buffer).await?;
            message::set(&ipc, id, &status.permission, status.most_bytes, &credentials)?;
            Ok(0)
        }
        IPC_RMID => {
            message::remove(&ipc, id, &credentials)?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}
