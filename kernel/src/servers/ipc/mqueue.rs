//! POSIX message queues: `mq_open`, `mq_unlink`, `mq_timedsend`, `mq_timedreceive`, `mq_notify`,
//! `mq_getsetattr`.

use abi::Errno;
use abi::fs::OpenFlags;
use abi::mqueue::*;
use abi::signal::Signal;
use abi::time::Timespec;
use alloc::sync::Arc;
use base::time;
use fs::file::OpenFile;
use fs::walk::Lookup;

use crate::call::{Call, SysResult};
use crate::ipc::mqueue::{
    self, Attributes, MOST_PRIORITY, Maker, Message, Notification, QueueFile,
};
use crate::process::Resource;
use crate::servers::file::{descriptor_limit, path};
use crate::signal::{self, SignalInfo};

/// `mq_open(name, flags, mode, attributes)`
pub async fn mq_open(call: &Call) -> SysResult {
    let user = call.user();
    let raw_flags = call.unsigned(1);
    let attributes = match call.argument(3) {
        0 => None,
        address => {
            let attributes: QueueAttributes = user.read_value(address).await?;
            Some(Attributes { messages: attributes.messages, bytes: attributes.bytes })
        }
    };
    let name = path(call, 0).await?;
    if name.is_empty() {
        return Err(Errno::ENOENT);
    }
    let flags = OpenFlags::from_bits_truncate(raw_flags);
    let reservation = call.thread.files().reserve(true, descriptor_limit(call))?;
    let mode = call.unsigned(2) & 0o7777 & !call.thread.directory().umask();
    let limit = call.process().limits.soft(Resource::MessageQueue);
    let (identity, credentials) = (call.thread.identity(), call.thread.credentials());
    let maker = Maker::new(attributes, &credentials, limit);
    let queues = call.thread.namespaces().ipc.clone();
    let file = queues.message_queues.open(&name, flags, mode, &maker, &identity)?;
    Ok(u64::from(reservation.install(file).unsigned_abs()))
}

/// `mq_unlink(name)`
pub async fn mq_unlink(call: &Call) -> SysResult {
    let name = path(call, 0).await?;
    mqueue::check_name(&name)?;
    let directory = call.thread.namespaces().ipc.message_queues.directory();
    let identity = call.thread.identity();
    let lookup = Lookup { root: &directory, start: &directory, identity: &identity };
    fs::tree::unlink(lookup, &name)?;
    Ok(0)
}

/// The end of a wait, given on the wall clock, on the monotonic clock.
async fn deadline(call: &Call, index: usize) -> Result<Option<u64>, Errno> {
    match call.argument(index) {
        0 => Ok(None),
        address => {
            let at_ns = call.user().read_value::<Timespec>(address).await?.to_ns()?;
            Ok(Some(time::now_ns().saturating_add(at_ns.saturating_sub(time::wall_ns()))))
        }
    }
}

/// The open queue of the descriptor in argument 0.
fn with_queue<R>(file: &OpenFile, action: impl FnOnce(&QueueFile) -> R) -> Result<R, Errno> {
    file.file().as_any().downcast_ref::<QueueFile>().map(action).ok_or(Errno::EBADF)
}

/// `mq_timedsend(queue, text, length, priority, end)`
pub async fn mq_timedsend(call: &Call) -> SysResult {
    let deadline_ns = deadline(call, 4).await?;
    let priority = call.unsigned(3);
    if priority >= MOST_PRIORITY {
        return Err(Errno::EINVAL);
    }
    let file = call.file(0)?;
    let queue = with_queue(&file, |file| file.queue.clone())?;
    if !file.flags().writes() {
        return Err(Errno::EBADF);
    }
    let length = call.argument(2);
    if length > queue.most_bytes {
        return Err(Errno::EMSGSIZE);
    }
    let length = usize::try_from(length).map_err(|_| Errno::EMSGSIZE)?;
    let text = call.user().read_vector(call.argument(1), length).await?;
    let message = Message { priority, text };
    let waits = !file.is_nonblocking();
    if let Some(told) = queue.send(&call.thread, message, waits, deadline_ns).await? {
        tell(call, &told);
    }
    Ok(0)
}

/// Tells a process of the first message in an empty queue.
fn tell(call: &Call, told: &Notification) {
    let (Some(process), Some((signal, value))) = (told.process.upgrade(), told.signal) else {
        return;
    };
    let (sender, user) = (call.process().pid.0, call.thread.credentials().user.real);
    // A queue of signals that is full loses this one, as on Linux.
    let _ = signal::send_to_process(&process, SignalInfo::message(signal, sender, user, value));
}

/// `mq_timedreceive(queue, buffer, room, priority, end)`
pub async fn mq_timedreceive(call: &Call) -> SysResult {
    let deadline_ns = deadline(call, 4).await?;
    let file = call.file(0)?;
    let queue = with_queue(&file, |file| file.queue.clone())?;
    if !file.flags().reads() {
        return Err(Errno::EBADF);
    }
    if call.argument(2) < queue.most_bytes {
        return Err(Errno::EMSGSIZE);
    }
    let message = queue.receive(&call.thread, !file.is_nonblocking(), deadline_ns).await?;
    let user = call.user();
    if call.argument(3) != 0 {
        user.write_value(call.argument(3), &message.priority).await?;
    }
    user.write_bytes(call.argument(1), &message.text).await?;
    Ok(message.text.len() as u64)
}

/// `mq_notify(queue, event)`
pub async fn mq_notify(call: &Call) -> SysResult {
    let event = match call.argument(1) {
        0 => None,
        address => Some(call.user().read_value::<SignalEvent>(address).await?),
    };
    let signal = match &event {
        None => None,
        Some(event) => match event.kind {
            SIGEV_NONE => None,
            SIGEV_SIGNAL => {
                // Signal 0 is none: nobody is told.
                let number = event.signal;
                if !(0..=SIGNALS).contains(&number) {
                    return Err(Errno::EINVAL);
                }
                Signal::new(number).map(|signal| (signal, event.value))
            }
            // It wants a netlink socket in place of the signal.
            SIGEV_THREAD => {
                call.file(0)?;
                return Err(Errno::EBADF);
            }
            _ => return Err(Errno::EINVAL),
        },
    };
    let file = call.file(0)?;
    let queue = with_queue(&file, |file| file.queue.clone())?;
    if event.is_none() {
        queue.forget_notification(call.process());
        return Ok(0);
    }
    queue.notify(Notification {
        process: Arc::downgrade(call.process()),
        table: call.thread.files().number(),
        signal,
    })?;
    Ok(0)
}

/// `mq_getsetattr(queue, new, old)`
pub async fn mq_getsetattr(call: &Call) -> SysResult {
    let user = call.user();
    let nonblocking = i64::from(OpenFlags::NONBLOCK.bits());
    let new = match call.argument(1) {
        0 => None,
        address => {
            let new: QueueAttributes = user.read_value(address).await?;
            if new.flags & !nonblocking != 0 {
                return Err(Errno::EINVAL);
            }
            Some(new)
        }
    };
    let file = call.file(0)?;
    let queue = with_queue(&file, |file| file.queue.clone())?;
    let old = QueueAttributes {
        flags: if file.is_nonblocking() { nonblocking } else { 0 },
        messages: queue.most_messages.cast_signed(),
        bytes: queue.most_bytes.cast_signed(),
        present: queue.count().cast_signed(),
        reserved: [0; 4],
    };
    if let Some(new) = new {
        let flags = if new.flags != 0 { OpenFlags::NONBLOCK } else { OpenFlags::empty() };
        file.change_flags(OpenFlags::NONBLOCK, flags);
    }
    if call.argument(2) != 0 {
        user.write_value(call.argument(2), &old).await?;
    }
    Ok(0)
}
