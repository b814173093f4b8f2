//! An inotify instance: a queue of events, and the watches that fill it.

use super::fanotify::describe_handle;
use super::{Listener, MARKS, Mark, News, REGISTRY, Registry};
use crate::file::{File, IoctlAnswer, Transfer};
use crate::identity::Caller;
use crate::inode::Inode;
use crate::metadata::InodeId;
use crate::poll::{PollTable, register};
use abi::Errno;
use abi::fs::PollEvents;
use abi::fs::notify::Events;
use abi::terminal::FIONREAD;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use base::heap::tree;
use base::io::Sink;
use base::sync::{Mutex, rank};
use base::wait::WaitQueue;
use core::any::Any;
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering};

/// `/proc/sys/fs/inotify`.
pub struct Limits {
    /// Events that wait in one instance.
    pub queued_events: AtomicU64,
    /// Instances of one user.
    pub instances: AtomicU64,
    /// Watches of one user.
    pub watches: AtomicU64,
}

/// The limits in force.
pub static LIMITS: Limits = Limits {
    queued_events: AtomicU64::new(16384),
    instances: AtomicU64::new(128),
    watches: AtomicU64::new(65536),
};

/// What one user has.
#[derive(Default)]
pub(super) struct Usage {
    instances: u64,
    watches: u64,
}

/// Bytes of an event before its name, and the multiple that the name is filled up to.
const HEADER: usize = 16;
/// Longest name with its zero, filled up.
const NAME_ROOM: usize = 256;

struct Event {
    watch: i32,
    news: News,
}

impl Event {
    fn is_like(&self, watch: i32, news: &News) -> bool {
        !self.news.events.contains(Events::IGNORED)
            && self.watch == watch
            && self.news.events == news.events
            && self.news.name == news.name
    }

    fn name_room(&self) -> usize {
        self.news.name.as_ref().map_or(0, |name| (name.len() + 1).next_multiple_of(HEADER))
    }

    fn size(&self) -> usize {
        HEADER + self.name_room()
    }

    /// As `struct inotify_event`; the first `size` bytes.
    fn encode(&self) -> [u8; HEADER + NAME_ROOM] {
        let mut bytes = [0; HEADER + NAME_ROOM];
        let room = u32::try_from(self.name_room()).unwrap_or(0);
        let mut put = |at: usize, part: &[u8]| {
            if let Some(place) = bytes.get_mut(at..at + part.len()) {
                place.copy_from_slice(part);
            }
        };
        put(0, &self.watch.to_ne_bytes());
        put(4, &self.news.events.bits().to_ne_bytes());
        put(8, &self.news.cookie.to_ne_bytes());
        put(12, &room.to_ne_bytes());
        put(HEADER, self.news.name.as_deref().unwrap_or_default());
        bytes
    }
}

/// Guarded by the instance's lock; `watches` changes only while the registry is locked too.
struct Queue {
    events: VecDeque<Event>,
    has_overflown: bool,
    watches: BTreeMap<i32, InodeId>,
    next_number: i32,
}

/// An inotify instance.
pub struct Inotify {
    me: Weak<Inotify>,
    user: u32,
    queue: Mutex<Queue>,
    readable: WaitQueue,
}

impl Inotify {
    /// A new instance of a user. `EMFILE` when the user has too many.
    pub fn new(user: u32) -> Result<Arc<Inotify>, Errno> {
        let mut registry = REGISTRY.lock();
        let usage = tree::get_or_insert(&mut registry.users, user, Usage::default);
        if usage.instances >= LIMITS.instances.load(Ordering::Relaxed) {
            return Err(Errno::EMFILE);
        }
        usage.instances += 1;
        drop(registry);
        let queue = Queue {
            events: VecDeque::new(),
            has_overflown: false,
            watches: BTreeMap::new(),
            next_number: 1,
        };
        Ok(Arc::new_cyclic(|me| Inotify {
            me: me.clone(),
            user,
            queue: Mutex::new(&rank::FILE_EVENTS, queue),
            readable: WaitQueue::new(),
        }))
    }

    /// Watches an inode; gives the number of the watch. An inode that is watched already keeps its
    /// number: its events are replaced, or with `MASK_ADD` added to; `EEXIST` with `MASK_CREATE`. `ENOSPC`
    /// when the user has too many watches.
    pub fn watch(&self, inode: &Arc<dyn Inode>, mask: Events) -> Result<i32, Errno> {
        let id = inode.id();
        let wanted = mask & (Events::ALL | Events::ONESHOT | Events::EXCL_UNLINK);
        let mut registry = REGISTRY.lock();
        let registry = &mut *registry;
        let marks = tree::get_or_insert(&mut registry.by_inode, id, Default::default);
        let old = marks.iter_mut().find_map(|mark| match &mark.listener {
            Listener::Inotify(instance, number) if core::ptr::eq(instance.as_ptr(), self) => {
                Some((*number, &mut mark.wanted))
            }
            _ => None,
        });
        if let Some((number, before)) = old {
            if mask.contains(Events::MASK_CREATE) {
                return Err(Errno::EEXIST);
            }
            *before = if mask.contains(Events::MASK_ADD) { *before | wanted } else { wanted };
            return Ok(number);
        }
        let usage = tree::get_or_insert(&mut registry.users, self.user, Usage::default);
        if usage.watches >= LIMITS.watches.load(Ordering::Relaxed) || marks.try_reserve(1).is_err()
        {
            if marks.is_empty() {
                registry.by_inode.remove(&id);
            }
            return Err(Errno::ENOSPC);
        }
        usage.watches += 1;
        let number = self.queue.lock().new_watch(id);
        marks.push(Mark { listener: Listener::Inotify(self.me.clone(), number), wanted });
        MARKS.fetch_add(1, Ordering::Relaxed);
        Ok(number)
    }

    /// Ends a watch. `EINVAL` when there is none of that number.
    pub fn unwatch(&self, number: i32) -> Result<(), Errno> {
        self.end_watch(&mut REGISTRY.lock(), number)?;
        self.wake();
        Ok(())
    }

    fn end_watch(&self, registry: &mut Registry, number: i32) -> Result<(), Errno> {
        let id = self.queue.lock().watches.get(&number).copied().ok_or(Errno::EINVAL)?;
        if let Some(marks) = registry.by_inode.get_mut(&id) {
            let before = marks.len();
            marks.retain(|mark| !mark.is_of(self, number));
            MARKS.fetch_sub(before - marks.len(), Ordering::Relaxed);
            if marks.is_empty() {
                registry.by_inode.remove(&id);
            }
        }
        self.end(number, &mut registry.users);
        Ok(())
    }

    /// Queues news, unless they are the same as the last ones.
    pub(super) fn push(&self, watch: i32, news: &News) {
        let mut queue = self.queue.lock();
        if queue.events.back().is_some_and(|last| last.is_like(watch, news)) {
            return;
        }
        let mut event = Event { watch, news: news.clone() };
        if queue.events.len() as u64 >= LIMITS.queued_events.load(Ordering::Relaxed) {
            if queue.has_overflown {
                return;
            }
            queue.has_overflown = true;
            event = Event {
                watch: -1,
                news: News { events: Events::Q_OVERFLOW, cookie: 0, name: None },
            };
        }
        if queue.events.try_reserve(1).is_ok() {
            queue.events.push_back(event);
        }
    }

    /// The watch is no more: the last news say so.
    pub(super) fn end(&self, watch: i32, users: &mut BTreeMap<u32, Usage>) {
        self.push(watch, &News { events: Events::IGNORED, cookie: 0, name: None });
        self.queue.lock().watches.remove(&watch);
        if let Some(usage) = users.get_mut(&self.user) {
            usage.watches = usage.watches.saturating_sub(1);
        }
    }

    pub(super) fn wake(&self) {
        self.readable.notify_all(PollEvents::READABLE);
    }

    /// The watches: number, inode and events of each.
    fn watches(&self) -> Vec<(i32, InodeId, Events)> {
        let registry = REGISTRY.lock();
        let queue = self.queue.lock();
        let wanted = |number, id| {
            let marks: &Vec<Mark> = registry.by_inode.get(&id)?;
            marks.iter().find(|mark| mark.is_of(self, number)).map(|mark| mark.wanted)
        };
        let watches = queue.watches.iter();
        watches
            .filter_map(|(&number, &id)| wanted(number, id).map(|wanted| (number, id, wanted)))
            .collect()
    }
}

impl Mark {
    fn is_of(&self, instance: &Inotify, watch: i32) -> bool {
        matches!(&self.listener, Listener::Inotify(other, number)
            if core::ptr::eq(other.as_ptr(), instance) && *number == watch)
    }
}

impl Queue {
    /// The next number that is free; they are used again only when all have been.
    fn new_watch(&mut self, id: InodeId) -> i32 {
        while self.watches.contains_key(&self.next_number) {
            self.next_number = self.next_number.checked_add(1).unwrap_or(1);
        }
        let number = self.next_number;
        self.next_number = number.checked_add(1).unwrap_or(1);
        tree::insert(&mut self.watches, number, id);
        number
    }
}

impl File for Inotify {
    fn read(&self, _: u64, sink: &mut dyn Sink, _: Transfer) -> Result<usize, Errno> {
        let mut done = 0;
        let mut queue = self.queue.lock();
        loop {
            let Some(event) = queue.events.front() else {
                return if done == 0 { Err(Errno::EAGAIN) } else { Ok(done) };
            };
            let size = event.size();
            if sink.remaining() < size {
                return if done == 0 { Err(Errno::EINVAL) } else { Ok(done) };
            }
            if !sink.write_record(event.encode().get(..size).unwrap_or_default()) {
                return Ok(done);
            }
            done += size;
            let gone = queue.events.pop_front();
            if gone.is_some_and(|event| event.news.events.contains(Events::Q_OVERFLOW)) {
                queue.has_overflown = false;
            }
        }
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
        let count: usize = self.queue.lock().events.iter().map(Event::size).sum();
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        Ok(IoctlAnswer::bytes(&count.to_ne_bytes()))
    }

    fn information(&self) -> String {
        let mut text = String::new();
        for (number, id, wanted) in self.watches() {
            let (inode, device, mask) = (id.number, id.device, wanted.bits());
            // Writing to a string has no errors.
            let _ = write!(text, "inotify wd:{number:x} ino:{inode:x} sdev:{device:x} ");
            let _ = write!(text, "mask:{mask:x} ignored_mask:0 ");
            describe_handle(&mut text, id);
            text.push('\n');
        }
        text
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Inotify {
    fn drop(&mut self) {
        let watches = core::mem::take(&mut self.queue.get_mut().watches);
        let mut registry = REGISTRY.lock();
        let registry = &mut *registry;
        for (number, id) in &watches {
            let Some(marks) = registry.by_inode.get_mut(id) else { continue };
            let before = marks.len();
            marks.retain(|mark| !mark.is_of(self, *number));
            MARKS.fetch_sub(before - marks.len(), Ordering::Relaxed);
            if marks.is_empty() {
                registry.by_inode.remove(id);
            }
        }
        if let Some(usage) = registry.users.get_mut(&self.user) {
            usage.instances = usage.instances.saturating_sub(1);
            usage.watches = usage.watches.saturating_sub(watches.len() as u64);
            if usage.instances == 0 {
                registry.users.remove(&self.user);
            }
        }
    }
}
