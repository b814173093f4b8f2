//! A fanotify group: a queue of events, and the questions that its reader has yet to answer.

use super::event::{About, Event, describe_handle};
use super::marks::{self, Object};
use crate::file::{File, IoctlAnswer, Transfer};
use crate::identity::Caller;
use crate::notify::Actor;
use crate::poll::{PollTable, register};
use abi::Errno;
use abi::fs::PollEvents;
use abi::fs::fanotify::{ALLOW, AUDIT, DENY, FileEvents, InitFlags, METADATA, MarkFlags};
use abi::terminal::FIONREAD;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::io::Source;
use base::sync::{Mutex, rank};
use base::wait::WaitQueue;
use core::any::Any;
use core::fmt::Write;
use core::sync::atomic::{AtomicU32, Ordering};

/// Events at the end of a queue that a new one may become one with.
const MERGED_AT_MOST: usize = 128;
/// Bytes of `struct fanotify_response`.
const RESPONSE: usize = 8;

/// A question whether something may be done, and the one who waits for the answer.
pub struct Question {
    /// 0, `ALLOW` or `DENY`.
    answer: AtomicU32,
    answered: WaitQueue,
}

impl Question {
    pub(super) fn new() -> Arc<Question> {
        Arc::new(Question { answer: AtomicU32::new(0), answered: WaitQueue::new() })
    }

    /// Answers it, unless it was.
    fn answer(&self, answer: u32) {
        let _ = self.answer.compare_exchange(0, answer, Ordering::AcqRel, Ordering::Relaxed);
        self.answered.wake_all();
    }

    /// Waits for the answer: whether it may be done.
    pub async fn wait(&self) -> bool {
        let look = || Some(self.answer.load(Ordering::Acquire)).filter(|answer| *answer != 0);
        self.answered.wait_until(look).await == ALLOW
    }
}

/// Guarded by the group's lock.
struct Queue {
    events: VecDeque<Event>,
    has_overflown: bool,
    /// Questions that were read, by the descriptor that the reader got.
    asked: Vec<(i32, Arc<Question>)>,
}

/// A fanotify group.
pub struct Group {
    /// As given to `fanotify_init`.
    pub flags: InitFlags,
    /// Made without the right to administer: it learns of no other processes.
    pub is_unprivileged: bool,
    /// Flags of the descriptors in events.
    pub event_flags: u32,
    /// Whose limits it counts for.
    pub(super) user: u32,
    /// Events that may wait: the limit of the time when it was made.
    most_events: u64,
    queue: Mutex<Queue>,
    readable: WaitQueue,
}

impl Group {
    /// A new group of a user. `EMFILE` when the user has too many.
    pub fn new(
        flags: InitFlags,
        event_flags: u32,
        user: u32,
        is_unprivileged: bool,
    ) -> Result<Arc<Group>, Errno> {
        marks::count_group(user)?;
        let queue = Queue { events: VecDeque::new(), has_overflown: false, asked: Vec::new() };
        Ok(Arc::new(Group {
            flags,
            is_unprivileged,
            event_flags,
            user,
            most_events: match flags.contains(InitFlags::UNLIMITED_QUEUE) {
                true => u64::MAX,
                false => marks::LIMITS.queued_events.load(Ordering::Relaxed),
            },
            queue: Mutex::new(&rank::FILE_EVENTS, queue),
            readable: WaitQueue::new(),
        }))
    }

    /// Whether files are told by handles.
    pub fn tells_ids(&self) -> bool {
        self.flags.intersects(InitFlags::FILE_IDS)
    }

    /// Who is asked first: groups that act before the content is in place, then those that act on it.
    pub(super) fn priority(&self) -> u32 {
        (self.flags & InitFlags::CLASSES).bits()
    }

    /// Whether it may ask for permission.
    pub fn may_ask(&self) -> bool {
        self.priority() != 0
    }

    /// Queues an event, unless one that waits can tell of it too. An event that finds no room is lost, and a question
    /// that does is answered: it may be done.
    pub(super) fn push(&self, event: Event) {
        let mut queue = self.queue.lock();
        let last = queue.events.iter_mut().rev().take(MERGED_AT_MOST);
        if let Some(old) = last.into_iter().find(|old| old.takes(&event)) {
            old.events |= event.events;
            drop(queue);
            // With it may go a file, whose end others are told of.
            drop(event);
            return;
        }
        let is_full = queue.events.len() as u64 >= self.most_events;
        let has_room = queue.events.try_reserve(2).is_ok();
        if is_full || !has_room {
            if has_room && !queue.has_overflown {
                queue.has_overflown = true;
                let events = FileEvents::Q_OVERFLOW;
                let (actor, about) = (Actor::default(), About::Nothing);
                queue.events.push_back(Event { events, actor, about, question: None });
            }
            drop(queue);
            if let Some(question) = &event.question {
                question.answer(ALLOW);
            }
        } else {
            queue.events.push_back(event);
            drop(queue);
        }
        self.readable.notify_all(PollEvents::READABLE);
    }

    /// Takes the oldest event out, if it takes no more than `room` bytes.
    ///
    /// # Errors
    /// `EAGAIN` when there is none, `EINVAL` when it is larger.
    pub fn take(&self, room: usize) -> Result<Event, Errno> {
        let mut queue = self.queue.lock();
        let next = queue.events.front().ok_or(Errno::EAGAIN)?;
        if next.size(self.flags) > room {
            return Err(Errno::EINVAL);
        }
        let event = queue.events.pop_front().ok_or(Errno::EAGAIN)?;
        if event.events.contains(FileEvents::Q_OVERFLOW) {
            queue.has_overflown = false;
        }
        Ok(event)
    }

    /// The reader has a question, and this descriptor to answer it by; without one it is denied.
    pub fn was_read(&self, question: Arc<Question>, descriptor: Option<i32>) {
        let mut queue = self.queue.lock();
        match descriptor {
            Some(descriptor) if queue.asked.try_reserve(1).is_ok() => {
                queue.asked.push((descriptor, question));
            }
            _ => {
                drop(queue);
                question.answer(DENY);
            }
        }
    }

    /// Nobody waits for the answer any more.
    pub fn withdraw(&self, question: &Arc<Question>) {
        let mut queue = self.queue.lock();
        queue.asked.retain(|(_, asked)| !Arc::ptr_eq(asked, question));
        let is_it = |event: &Event| {
            event.question.as_ref().is_some_and(|asked| Arc::ptr_eq(asked, question))
        };
        let place = queue.events.iter().position(is_it);
        let withdrawn = place.and_then(|place| queue.events.remove(place));
        drop(queue);
        drop(withdrawn);
    }
}

impl File for Group {
    /// `struct fanotify_response`: the answer to the question with this descriptor.
    ///
    /// # Errors
    /// `EINVAL` for what is no answer, `ENOENT` when nothing was asked with this descriptor.
    fn write(&self, _: u64, source: &mut dyn Source, _: Transfer) -> Result<usize, Errno> {
        if source.remaining() < RESPONSE {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; RESPONSE];
        if !source.read_record(&mut bytes) {
            return Ok(0);
        }
        let word = u64::from_ne_bytes(bytes);
        let (descriptor, answer) = ((word as u32).cast_signed(), (word >> 32) as u32);
        let may_audit = self.flags.contains(InitFlags::ENABLE_AUDIT);
        let is_answer = matches!(answer & !AUDIT, ALLOW | DENY);
        if !is_answer || descriptor < 0 || (answer & AUDIT != 0 && !may_audit) {
            return Err(Errno::EINVAL);
        }
        let mut queue = self.queue.lock();
        let place = queue.asked.iter().position(|(asked, _)| *asked == descriptor);
        let (_, question) = queue.asked.remove(place.ok_or(Errno::ENOENT)?);
        drop(queue);
        question.answer(answer & !AUDIT);
        Ok(RESPONSE)
    }

    fn seek(&self, position: u64, _: i64, _: i32) -> Result<u64, Errno> {
        Ok(position)
    }

    fn poll(&self, events: PollEvents, table: Option<&mut PollTable<'_>>) -> PollEvents {
        register(table, &self.readable);
        let has_events = !self.queue.lock().events.is_empty();
        if has_events { events & PollEvents::READABLE } else { PollEvents::empty() }
    }

    fn ioctl_input(&self, request: u32) -> Result<usize, Errno> {
        if request == FIONREAD { Ok(0) } else { Err(Errno::ENOTTY) }
    }

    fn ioctl(&self, _: &dyn Caller, _: u32, _: u64, _: &[u8]) -> Result<IoctlAnswer, Errno> {
        let count = self.queue.lock().events.len().saturating_mul(METADATA);
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        Ok(IoctlAnswer::bytes(&count.to_ne_bytes()))
    }

    fn information(&self) -> String {
        let mut text = String::new();
        // Writing to a string has no errors.
        let _ = writeln!(
            text,
            "fanotify flags:{:x} event-flags:{:x}",
            self.flags.bits(),
            self.event_flags
        );
        for (object, mark) in marks::of_group(self) {
            let _ = match object {
                Object::Inode(id) => {
                    write!(text, "fanotify ino:{:x} sdev:{:x}", id.number, id.device)
                }
                Object::Mount(number) => write!(text, "fanotify mnt_id:{number:x}"),
                Object::FileSystem(device) => write!(text, "fanotify sdev:{device:x}"),
            };
            let _ = write!(
                text,
                " mflags:{:x} mask:{:x} ignored_mask:{:x}",
                (mark.flags & MarkFlags::KEPT).bits(),
                mark.wanted.bits(),
                mark.ignored.bits()
            );
            if let Object::Inode(id) = object {
                text.push(' ');
                describe_handle(&mut text, id);
            }
            text.push('\n');
        }
        text
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        marks::end_group(self);
        let queue = self.queue.get_mut();
        let unread = queue.events.iter().filter_map(|event| event.question.as_ref());
        for question in unread.chain(queue.asked.iter().map(|(_, question)| question)) {
            question.answer(ALLOW);
        }
    }
}
