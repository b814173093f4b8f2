//! Queues of messages.
//!
//! A message that somebody waits for goes from the sender to that receiver and never into the queue.
//! Senders that find the queue full wait in order of arrival; each is answered when its message fits, with
//! the message put in.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use abi::ipc::*;
use base::sync::{Mutex, MutexGuard, rank};

use super::limits::as_int;
use super::now_s;
use super::permission::{Permission, Wanted};
use super::shared_memory::Named;
use super::space::Space;
use super::waiter::{Ended, Waiter, Woken};
use crate::call::Caller;
use crate::process::Pid;
use crate::process::credentials::{Capability, Credentials};

/// A message.
#[derive(Debug)]
pub struct Message {
    /// Its type, at least 1.
    pub kind: i64,
    /// Its bytes.
    pub text: Vec<u8>,
}

/// A queue.
pub struct Queue {
    id: i32,
    state: Mutex<State>,
}

struct State {
    permission: Permission,
    is_removed: bool,
    messages: VecDeque<Message>,
    bytes: u64,
    most_bytes: u64,
    senders: VecDeque<Sender>,
    receivers: VecDeque<Receiver>,
    sent_s: i64,
    received_s: i64,
    changed_s: i64,
    sender: i32,
    receiver: i32,
}

struct Sender {
    message: Message,
    process: Pid,
    credentials: Arc<Credentials>,
    waiter: Arc<Waiter<Result<(), Errno>>>,
}

struct Receiver {
    request: Request,
    credentials: Arc<Credentials>,
    waiter: Arc<Waiter<Result<Message, Errno>>>,
}

/// Which message is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The first.
    Any,
    /// The first of this type.
    Type(i64),
    /// The first of any other type.
    Except(i64),
    /// The first of the lowest type that is at most this.
    UpTo(i64),
    /// The one at this place, which stays.
    Copy(i64),
}

/// What a receiver asks for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Which message.
    pub choice: Choice,
    /// Room for its text.
    pub room: u64,
    /// A text that does not fit is cut off.
    pub cuts: bool,
    /// Who asks.
    pub process: Pid,
}

impl Request {
    fn takes(&self, message: &Message) -> bool {
        match self.choice {
            Choice::Any | Choice::Copy(_) => true,
            Choice::Type(kind) => message.kind == kind,
            Choice::Except(kind) => message.kind != kind,
            Choice::UpTo(kind) => message.kind <= kind,
        }
    }

    fn fits(&self, message: &Message) -> bool {
        self.cuts || message.text.len() as u64 <= self.room
    }
}

impl State {
    /// Index of the message that is wanted.
    fn find(&self, request: &Request) -> Option<usize> {
        let matching =
            || self.messages.iter().enumerate().filter(|(_, message)| request.takes(message));
        match request.choice {
            Choice::Copy(place) => {
                usize::try_from(place).ok().filter(|place| *place < self.messages.len())
            }
            Choice::UpTo(_) => {
                matching().min_by_key(|(index, message)| (message.kind, *index)).map(|it| it.0)
            }
            _ => matching().next().map(|it| it.0),
        }
    }

    fn has_room(&self, length: usize) -> bool {
        self.bytes + length as u64 <= self.most_bytes
            && (self.messages.len() as u64) < self.most_bytes
    }

    /// Hands a message to the first receiver that takes it, or puts it into the queue.
    fn put(&mut self, message: Message, process: Pid, woken: &mut Woken) -> Result<(), Errno> {
        self.messages.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.sender = process.0;
        self.sent_s = now_s();
        let mut position = 0;
        while let Some(receiver) = self.receivers.get(position) {
            if !receiver.request.takes(&message) {
                position += 1;
                continue;
            }
            let Some(receiver) = self.receivers.remove(position) else { break };
            if receiver.request.fits(&message) {
                self.receiver = receiver.request.process.0;
                self.received_s = now_s();
                receiver.waiter.answer(Ok(message), woken);
                return Ok(());
            }
            receiver.waiter.answer(Err(Errno::E2BIG), woken);
        }
        self.bytes += message.text.len() as u64;
        self.messages.push_back(message);
        Ok(())
    }

    /// Takes the message that is wanted; `None` when there is none.
    fn take(&mut self, request: &Request, woken: &mut Woken) -> Result<Option<Message>, Errno> {
        let Some(index) = self.find(request) else { return Ok(None) };
        let Some(message) = self.messages.get(index) else { return Ok(None) };
        if !request.fits(message) {
            return Err(Errno::E2BIG);
        }
        if matches!(request.choice, Choice::Copy(_)) {
            return copy_of(message, request.room).map(Some);
        }
        let Some(message) = self.messages.remove(index) else { return Ok(None) };
        self.bytes -= message.text.len() as u64;
        self.receiver = request.process.0;
        self.received_s = now_s();
        self.admit_senders(woken);
        Ok(Some(message))
    }

    /// Puts in the messages of waiting senders, in order, as far as there is room.
    fn admit_senders(&mut self, woken: &mut Woken) {
        while self.senders.front().is_some_and(|first| self.has_room(first.message.text.len())) {
            let Some(Sender { message, process, credentials, waiter }) = self.senders.pop_front()
            else {
                return;
            };
            let result = self
                .permission
                .check(Wanted::WRITE, &credentials)
                .and_then(|()| self.put(message, process, woken));
            waiter.answer(result, woken);
        }
    }

    fn status(&self, id: i32) -> QueueStatus {
        QueueStatus {
            permission: self.permission.describe(id),
            sent_s: self.sent_s,
            received_s: self.received_s,
            changed_s: self.changed_s,
            bytes: self.bytes,
            messages: self.messages.len() as u64,
            most_bytes: self.most_bytes,
            sender: self.sender,
            receiver: self.receiver,
            unused: [0; 2],
        }
    }
}

/// A copy that stays within the room even when cutting off is permitted.
fn copy_of(message: &Message, room: u64) -> Result<Message, Errno> {
    if message.text.len() as u64 > room {
        return Err(Errno::EINVAL);
    }
    let mut text = Vec::new();
    text.try_reserve_exact(message.text.len()).map_err(|_| Errno::ENOMEM)?;
    text.extend_from_slice(&message.text);
    Ok(Message { kind: message.kind, text })
}

impl Queue {
    /// The queue's state; `EIDRM` when it was removed meanwhile.
    fn lock(&self) -> Result<MutexGuard<'_, State>, Errno> {
        let state = self.state.lock();
        if state.is_removed { Err(Errno::EIDRM) } else { Ok(state) }
    }
}

fn find(ipc: &Arc<Space>, id: i32) -> Result<Arc<Queue>, Errno> {
    ipc.queues.lock().get(id)
}

/// `msgget`: the number of the queue of a key, or of a new one.
///
/// # Errors
/// `ENOENT`, `EEXIST`, `EACCES`, `ENOSPC`.
pub fn get(
    ipc: &Arc<Space>,
    key: i32,
    flags: u32,
    credentials: &Credentials,
) -> Result<i32, Errno> {
    let mut queues = ipc.queues.lock();
    if let Some((id, queue)) = queues.look_up(key, flags)? {
        queue.state.lock().permission.check(Wanted::of_flags(flags), credentials)?;
        return Ok(id);
    }
    let most = usize::try_from(ipc.limits.msgmni.get()).unwrap_or(usize::MAX);
    queues.add(key, most, |id| Queue {
        id,
        state: Mutex::new(
            &rank::IPC_OBJECT,
            State {
                permission: Permission::new(key, flags, credentials),
                is_removed: false,
                messages: VecDeque::new(),
                bytes: 0,
                most_bytes: ipc.limits.msgmnb.get(),
                senders: VecDeque::new(),
                receivers: VecDeque::new(),
                sent_s: 0,
                received_s: 0,
                changed_s: now_s(),
                sender: 0,
                receiver: 0,
            },
        ),
    })
}

/// Takes a waiter out of its queue's list when the wait ends in whatever way.
struct InList<F: Fn()> {
    leave: F,
}

impl<F: Fn()> Drop for InList<F> {
    fn drop(&mut self) {
        (self.leave)();
    }
}

/// Waits for an answer that arrives in `waiter`, which `leave` takes out of its list.
async fn wait<T>(
    caller: &Caller,
    waiter: &Waiter<Result<T, Errno>>,
    leave: impl Fn(),
) -> Result<T, Errno> {
    let in_list = InList { leave };
    let ended = match waiter.wait(caller, None).await {
        Ok(result) => return result,
        Err(ended) => ended,
    };
    (in_list.leave)();
    match (waiter.take(), ended) {
        (Some(result), _) => result,
        (None, Ended::Interrupted | Ended::TimedOut) => Err(Errno::ERESTARTNOHAND),
    }
}

/// `msgsnd`: puts a message into a queue, and waits for room unless told not to.
///
/// # Errors
/// `EINVAL`, `EACCES`, `EAGAIN`, `EIDRM`, `ENOMEM`, or a restart code.
pub async fn send(caller: &Caller, id: i32, message: Message, waits: bool) -> Result<(), Errno> {
    let namespaces = caller.namespaces();
    let ipc = &namespaces.ipc;
    let queue = find(ipc, id)?;
    let credentials = caller.credentials();
    let process = caller.process.pid;
    let mut woken = Woken::default();
    let begun = {
        let mut state = queue.lock()?;
        match state.permission.check(Wanted::WRITE, &credentials) {
            Err(errno) => Err(errno),
            Ok(()) if state.has_room(message.text.len()) => {
                state.put(message, process, &mut woken).map(|()| None)
            }
            Ok(()) if !waits => Err(Errno::EAGAIN),
            Ok(()) => {
                let waiter = Waiter::new();
                state.senders.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                let sender = Sender { message, process, credentials, waiter: waiter.clone() };
                state.senders.push_back(sender);
                Ok(Some(waiter))
            }
        }
    };
    woken.wake();
    let Some(waiter) = begun? else { return Ok(()) };
    wait(caller, &waiter, || {
        let mut state = queue.state.lock();
        let place = state.senders.iter().position(|it| Arc::ptr_eq(&it.waiter, &waiter));
        let left = place.and_then(|place| state.senders.remove(place));
        drop(state);
        drop(left);
    })
    .await
}

/// `msgrcv`: takes a message out of a queue, and waits for one unless told not to.
///
/// # Errors
/// `EINVAL`, `EACCES`, `E2BIG`, `ENOMSG`, `EIDRM`, `ENOMEM`, or a restart code.
pub async fn receive(
    caller: &Caller,
    id: i32,
    request: Request,
    waits: bool,
) -> Result<Message, Errno> {
    let namespaces = caller.namespaces();
    let ipc = &namespaces.ipc;
    let queue = find(ipc, id)?;
    let credentials = caller.credentials();
    let mut woken = Woken::default();
    let begun = {
        let mut state = queue.lock()?;
        state.permission.check(Wanted::READ, &credentials)?;
        match state.take(&request, &mut woken) {
            Err(errno) => Err(errno),
            Ok(Some(message)) => Ok(Ok(message)),
            Ok(None) if !waits => Err(Errno::ENOMSG),
            Ok(None) => {
                let waiter = Waiter::new();
                state.receivers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                state.receivers.push_back(Receiver {
                    request,
                    credentials,
                    waiter: waiter.clone(),
                });
                Ok(Err(waiter))
            }
        }
    };
    woken.wake();
    let waiter = match begun? {
        Ok(message) => return Ok(message),
        Err(waiter) => waiter,
    };
    wait(caller, &waiter, || {
        let mut state = queue.state.lock();
        let place = state.receivers.iter().position(|it| Arc::ptr_eq(&it.waiter, &waiter));
        let left = place.and_then(|place| state.receivers.remove(place));
        drop(state);
        drop(left);
    })
    .await
}

/// `IPC_STAT` and its kin: what the call returns, and the description.
///
/// # Errors
/// `EINVAL`, `EACCES`.
pub fn status(
    ipc: &Arc<Space>,
    id: i32,
    named: Named,
    credentials: &Credentials,
) -> Result<(u64, QueueStatus), Errno> {
    let queues = ipc.queues.lock();
    let (own, queue) = match named {
        Named::Number => (id, queues.get(id)?),
        Named::Index | Named::AnyIndex => queues.at(id)?,
    };
    let state = queue.state.lock();
    if named != Named::AnyIndex {
        state.permission.check(Wanted::READ, credentials)?;
    }
    let value = if named == Named::Number { 0 } else { u64::from(own.unsigned_abs()) };
    Ok((value, state.status(own)))
}

/// `IPC_SET`: a new owner, mode and size. Who waits looks again.
///
/// # Errors
/// `EINVAL`, `EPERM`.
pub fn set(
    ipc: &Arc<Space>,
    id: i32,
    to: &IpcPermission,
    most_bytes: u64,
    credentials: &Credentials,
) -> Result<(), Errno> {
    let queue = find(ipc, id)?;
    let mut woken = Woken::default();
    {
        let mut state = queue.lock()?;
        state.permission.check_owner(credentials)?;
        if most_bytes > ipc.limits.msgmnb.get() {
            credentials.require(Capability::Resource)?;
        }
        state.permission.set(to)?;
        state.most_bytes = most_bytes;
        state.changed_s = now_s();
        let permission = state.permission;
        let may_read =
            |receiver: &Receiver| permission.check(Wanted::READ, &receiver.credentials).is_ok();
        let (kept, refused) = core::mem::take(&mut state.receivers).into_iter().partition(may_read);
        state.receivers = kept;
        let refused: VecDeque<Receiver> = refused;
        for receiver in refused {
            receiver.waiter.answer(Err(Errno::EACCES), &mut woken);
        }
        let may_write =
            |sender: &Sender| permission.check(Wanted::WRITE, &sender.credentials).is_ok();
        let (kept, refused) = core::mem::take(&mut state.senders).into_iter().partition(may_write);
        state.senders = kept;
        let refused: VecDeque<Sender> = refused;
        for sender in refused {
            sender.waiter.answer(Err(Errno::EACCES), &mut woken);
        }
        state.admit_senders(&mut woken);
    }
    woken.wake();
    Ok(())
}

/// `IPC_RMID`: whoever waits gets `EIDRM`.
///
/// # Errors
/// `EINVAL`, `EPERM`.
pub fn remove(ipc: &Arc<Space>, id: i32, credentials: &Credentials) -> Result<(), Errno> {
    let mut woken = Woken::default();
    let mut queues = ipc.queues.lock();
    let queue = queues.get(id)?;
    let mut state = queue.lock()?;
    state.permission.check_owner(credentials)?;
    state.is_removed = true;
    for sender in core::mem::take(&mut state.senders) {
        sender.waiter.answer(Err(Errno::EIDRM), &mut woken);
    }
    for receiver in core::mem::take(&mut state.receivers) {
        receiver.waiter.answer(Err(Errno::EIDRM), &mut woken);
    }
    let messages = core::mem::take(&mut state.messages);
    let removed = queues.remove(id, state.permission.key);
    drop(state);
    drop(queues);
    drop((removed, messages));
    woken.wake();
    Ok(())
}

/// Bytes of one message at most.
pub fn most_text(ipc: &Arc<Space>) -> u64 {
    ipc.limits.msgmax.get()
}

/// `IPC_INFO` and `MSG_INFO`: the highest index, and the limits or what is in use.
pub fn limits(ipc: &Arc<Space>, is_usage: bool) -> (u64, QueueLimits) {
    let queues = ipc.queues.lock();
    let mut limits = QueueLimits {
        pool: 512_000,
        map: 16_384,
        message: as_int(ipc.limits.msgmax.get()),
        queue: as_int(ipc.limits.msgmnb.get()),
        queues: as_int(ipc.limits.msgmni.get()),
        segment_size: 16,
        headers: 16_384,
        segments: 0xffff,
        padding: 0,
    };
    if is_usage {
        let (mut messages, mut bytes) = (0, 0);
        for (_, queue) in queues.iter() {
            let state = queue.state.lock();
            messages += state.messages.len() as u64;
            bytes += state.bytes;
        }
        limits.pool = as_int(queues.count() as u64);
        limits.map = as_int(messages);
        limits.headers = as_int(bytes);
    }
    (queues.highest(), limits)
}

/// Every queue with its number, for `/proc/sysvipc/msg`.
pub fn list(ipc: &Arc<Space>) -> Vec<(i32, QueueStatus)> {
    let queues = ipc.queues.lock();
    queues.iter().map(|(id, queue)| (id, queue.state.lock().status(queue.id))).collect()
}

/// `/proc/sys/kernel/msg_next_id`
pub fn wanted(ipc: &Arc<Space>) -> i32 {
    ipc.queues.lock().wanted()
}

/// Sets it.
pub fn set_wanted(ipc: &Arc<Space>, id: i32) {
    ipc.queues.lock().set_wanted(id);
}
