//! One queue: its messages, who waits for it, and who is told of the first message.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use abi::Errno;
use abi::signal::Signal;
use base::heap::tree;
use base::sync::{Mutex, rank};
use base::wait::WaitQueue;

use super::Account;
use crate::call::Caller;
use crate::ipc::waiter::{Ended, Waiter, Woken};
use crate::process::Process;

/// One past the highest priority of a message.
pub const MOST_PRIORITY: u32 = 32_768;

/// A message.
#[derive(Debug)]
pub struct Message {
    /// Higher ones are received first.
    pub priority: u32,
    /// Its bytes.
    pub text: Vec<u8>,
}

/// Who is told when a message comes into the empty queue.
pub struct Notification {
    /// The process.
    pub process: Weak<Process>,
    /// Number of the file table through which it was asked for; closing a descriptor there ends it.
    pub table: u64,
    /// The signal and its value; `None` for a notification that says nothing.
    pub signal: Option<(Signal, u64)>,
}

/// A queue.
pub struct Queue {
    /// Most messages.
    pub most_messages: u64,
    /// Most bytes of a message.
    pub most_bytes: u64,
    /// Woken when readiness changes.
    pub readiness: WaitQueue,
    state: Mutex<State>,
    _account: Account,
}

struct State {
    /// By priority, the highest last.
    messages: BTreeMap<u32, VecDeque<Message>>,
    count: u64,
    bytes: u64,
    senders: VecDeque<Sender>,
    receivers: VecDeque<Arc<Waiter<Message>>>,
    notification: Option<Notification>,
}

struct Sender {
    message: Message,
    waiter: Arc<Waiter<()>>,
}

impl State {
    fn put(&mut self, message: Message) {
        let size = message.text.len() as u64;
        let of_priority = tree::get_or_insert(&mut self.messages, message.priority, VecDeque::new);
        of_priority.push_back(message);
        self.count += 1;
        self.bytes += size;
    }

    /// The oldest message of the highest priority.
    fn take(&mut self) -> Option<Message> {
        let mut highest = self.messages.last_entry()?;
        let message = highest.get_mut().pop_front();
        if highest.get().is_empty() {
            highest.remove();
        }
        let message = message?;
        self.count -= 1;
        self.bytes -= message.text.len() as u64;
        Some(message)
    }
}

impl Queue {
    pub(super) fn new(most_messages: u64, most_bytes: u64, account: Account) -> Queue {
        Queue {
            most_messages,
            most_bytes,
            readiness: WaitQueue::new(),
            state: Mutex::new(
                &rank::IPC_OBJECT,
                State {
                    messages: BTreeMap::new(),
                    count: 0,
                    bytes: 0,
                    senders: VecDeque::new(),
                    receivers: VecDeque::new(),
                    notification: None,
                },
            ),
            _account: account,
        }
    }

    /// Messages in the queue.
    pub fn count(&self) -> u64 {
        self.state.lock().count
    }

    /// Bytes in the queue, and who is told of the first message: kind, signal, process.
    pub(super) fn describe(&self) -> (u64, Option<(bool, i32, i32)>) {
        let state = self.state.lock();
        let told = state.notification.as_ref().and_then(|it| {
            let process = it.process.upgrade()?;
            let signal = it.signal.map_or(0, |(signal, _)| signal.number());
            Some((it.signal.is_some(), signal, process.pid.0))
        });
        (state.bytes, told)
    }

    /// Puts a message in; waits for room unless told not to. Returns whom to tell of it.
    ///
    /// # Errors
    /// `EAGAIN`, `ETIMEDOUT`, `ENOMEM`, or a restart code.
    pub async fn send(
        &self,
        caller: &Caller,
        message: Message,
        waits: bool,
        deadline_ns: Option<u64>,
    ) -> Result<Option<Notification>, Errno> {
        let mut woken = Woken::default();
        let begun = {
            let mut state = self.state.lock();
            if let Some(receiver) = state.receivers.pop_front() {
                receiver.answer(message, &mut woken);
                Ok(None)
            } else if state.count < self.most_messages {
                let was_empty = state.count == 0;
                state.put(message);
                Ok(if was_empty { state.notification.take() } else { None })
            } else if !waits {
                return Err(Errno::EAGAIN);
            } else {
                state.senders.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                let waiter = Waiter::new();
                state.senders.push_back(Sender { message, waiter: waiter.clone() });
                Err(waiter)
            }
        };
        woken.wake();
        let waiter = match begun {
            Ok(notification) => {
                self.readiness.wake_all();
                return Ok(notification.filter(|it| it.process.strong_count() > 0));
            }
            Err(waiter) => waiter,
        };
        self.wait(caller, &waiter, deadline_ns).await.map(|()| None)
    }

    /// Takes the oldest message of the highest priority; waits for one unless told not to.
    ///
    /// # Errors
    /// `EAGAIN`, `ETIMEDOUT`, `ENOMEM`, or a restart code.
    pub async fn receive(
        &self,
        caller: &Caller,
        waits: bool,
        deadline_ns: Option<u64>,
    ) -> Result<Message, Errno> {
        let mut woken = Woken::default();
        let begun = {
            let mut state = self.state.lock();
            match state.take() {
                Some(message) => {
                    if let Some(sender) = state.senders.pop_front() {
                        state.put(sender.message);
                        sender.waiter.answer((), &mut woken);
                    }
                    Ok(message)
                }
                None if !waits => return Err(Errno::EAGAIN),
                None => {
                    state.receivers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                    let waiter = Waiter::new();
                    state.receivers.push_back(waiter.clone());
                    Err(waiter)
                }
            }
        };
        woken.wake();
        match begun {
            Ok(message) => {
                self.readiness.wake_all();
                Ok(message)
            }
            Err(waiter) => self.wait(caller, &waiter, deadline_ns).await,
        }
    }

    async fn wait<T>(
        &self,
        caller: &Caller,
        waiter: &Arc<Waiter<T>>,
        deadline_ns: Option<u64>,
    ) -> Result<T, Errno> {
        let in_list = InList { queue: self, waiter };
        let ended = match waiter.wait(caller, deadline_ns).await {
            Ok(answer) => return Ok(answer),
            Err(ended) => ended,
        };
        in_list.leave();
        match (waiter.take(), ended) {
            (Some(answer), _) => Ok(answer),
            (None, Ended::TimedOut) => Err(Errno::ETIMEDOUT),
            (None, Ended::Interrupted) => Err(Errno::ERESTARTSYS),
        }
    }

    /// Asks to be told of the next message that comes into the empty queue.
    ///
    /// # Errors
    /// `EBUSY` when somebody has asked already.
    pub fn notify(&self, notification: Notification) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.notification.as_ref().is_some_and(|it| it.process.strong_count() > 0) {
            return Err(Errno::EBUSY);
        }
        state.notification = Some(notification);
        Ok(())
    }

    /// Takes that back, if the process was the one to be told.
    pub fn forget_notification(&self, process: &Arc<Process>) {
        let own = Arc::downgrade(process);
        let mut state = self.state.lock();
        if state.notification.as_ref().is_some_and(|it| it.process.ptr_eq(&own)) {
            state.notification = None;
        }
    }

    /// A descriptor of a table was closed.
    pub(super) fn descriptor_closed(&self, table: u64) {
        let mut state = self.state.lock();
        if state.notification.as_ref().is_some_and(|it| it.table == table) {
            state.notification = None;
        }
    }
}

/// Takes a waiter out of its queue's lists when the wait ends in whatever way.
struct InList<'a, T> {
    queue: &'a Queue,
    waiter: &'a Arc<Waiter<T>>,
}

impl<T> InList<'_, T> {
    fn leave(&self) {
        let own = Arc::as_ptr(self.waiter).cast::<()>();
        let mut state = self.queue.state.lock();
        state.receivers.retain(|it| Arc::as_ptr(it).cast::<()>() != own);
        let place = state.senders.iter().position(|it| Arc::as_ptr(&it.waiter).cast::<()>() == own);
        let left = place.and_then(|place| state.senders.remove(place));
        drop(state);
        drop(left);
    }
}

impl<T> Drop for InList<'_, T> {
    fn drop(&mut self) {
        self.leave();
    }
}
