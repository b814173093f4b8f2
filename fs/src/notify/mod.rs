//! Who is told of what happens to files: the marks that inotify, `F_NOTIFY` and fanotify put on them.
//!
//! ```text
//! what happens ── Events ──> marks on the inode ──────────> each listener
//!                       ├──> marks on its directory, with the name under which it was seen last
//!                       └──> fanotify, which has marks on mounts and file systems too
//! ```
//!
//! Operations on files call `event_at`, `event`, `entry`, `moved` and `gone` after they have happened, with no lock of
//! an inode held: `event_at` where a path led there, which fanotify must know. While nobody listens that is one load. A mark names its inode by number and does not
//! keep it alive: when the last user of a file without a name is gone, so are the marks.
//!
//! One lock (`REGISTRY`) guards all marks; queues of listeners are filled under it, so that nothing comes
//! after the news that a watch has ended, and their readers are woken when it is released. With several
//! hard links a file's directory is the one where it was linked last.

mod actor;
mod directory;
pub mod fanotify;
mod inotify;

pub use actor::{Actor, acting};
pub(crate) use directory::forget_description;
pub use directory::{DirectoryNotice, forget, notify_of_directory};
pub use inotify::{Inotify, LIMITS, Limits};

use crate::inode::Inode;
use crate::metadata::{InodeId, NodeKind};
use crate::mount::Location;
use abi::fs::fanotify::FileEvents;
use abi::fs::notify::Events;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use base::sync::{Mutex, rank};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use fanotify::{Happening, Subject};

/// Marks that exist.
static MARKS: AtomicUsize = AtomicUsize::new(0);

static REGISTRY: Mutex<Registry> =
    Mutex::new(&rank::FILE_MARKS, Registry { by_inode: BTreeMap::new(), users: BTreeMap::new() });

struct Registry {
    by_inode: BTreeMap<InodeId, Vec<Mark>>,
    /// What each user has, for the limits.
    users: BTreeMap<u32, inotify::Usage>,
}

/// One listener's interest in one inode.
struct Mark {
    listener: Listener,
    /// Events and options of the watch.
    wanted: Events,
}

#[derive(Clone)]
enum Listener {
    /// An inotify instance, with the number of the watch.
    Inotify(Weak<Inotify>, i32),
    /// A directory with `F_NOTIFY`.
    Directory(Arc<DirectoryNotice>),
}

/// Something that happened, as listeners get it.
#[derive(Clone)]
struct News {
    events: Events,
    /// Joins the two halves of a move.
    cookie: u32,
    /// The name in the directory that is watched.
    name: Option<Arc<[u8]>>,
}

/// Whom to wake and what to drop when the lock is released.
#[derive(Default)]
struct Aftermath {
    woken: Vec<Arc<Inotify>>,
    signals: Vec<Arc<DirectoryNotice>>,
}

impl Aftermath {
    fn carry_out(self) {
        for instance in &self.woken {
            instance.wake();
        }
        for notice in &self.signals {
            notice.signal();
        }
    }
}

impl Registry {
    /// Gives news to the marks on an inode. What shall be told once only is taken off.
    fn tell(&mut self, id: InodeId, news: &News, is_unlinked: bool, after: &mut Aftermath) {
        let Some(marks) = self.by_inode.get_mut(&id) else { return };
        let mut ended = 0;
        marks.retain(|mark| {
            let excluded = is_unlinked && mark.wanted.contains(Events::EXCL_UNLINK);
            if excluded || !mark.wanted.intersects(news.events & Events::ALL) {
                return true;
            }
            let stays = match &mark.listener {
                Listener::Inotify(instance, number) => {
                    let Some(instance) = instance.upgrade() else { return true };
                    instance.push(*number, news);
                    let once = mark.wanted.contains(Events::ONESHOT);
                    if once {
                        instance.end(*number, &mut self.users);
                    }
                    after.woken.push(instance);
                    !once
                }
                Listener::Directory(notice) => {
                    after.signals.push(notice.clone());
                    mark.wanted.contains(Events::MULTISHOT)
                }
            };
            ended += usize::from(!stays);
            stays
        });
        if marks.is_empty() {
            self.by_inode.remove(&id);
        }
        MARKS.fetch_sub(ended, Ordering::Relaxed);
    }

    /// Takes all marks off an inode after some last news.
    fn end_all(&mut self, id: InodeId, last: Events, after: &mut Aftermath) {
        let Some(marks) = self.by_inode.remove(&id) else { return };
        MARKS.fetch_sub(marks.len(), Ordering::Relaxed);
        for mark in marks {
            if let Listener::Inotify(instance, number) = &mark.listener
                && let Some(instance) = instance.upgrade()
            {
                if mark.wanted.intersects(last) || last == Events::UNMOUNT {
                    instance.push(*number, &News { events: last, cookie: 0, name: None });
                }
                instance.end(*number, &mut self.users);
                after.woken.push(instance);
            }
        }
    }
}

/// Whether anybody listens at all.
#[inline]
pub fn is_anybody_listening() -> bool {
    MARKS.load(Ordering::Relaxed) != 0
}

fn with_kind(inode: &Arc<dyn Inode>, events: Events) -> Events {
    if inode.kind() == NodeKind::Directory { events | Events::ISDIR } else { events }
}

impl Subject {
    /// An inode that events tell of.
    pub fn of(inode: &Arc<dyn Inode>) -> Subject {
        Subject { id: inode.id(), kind: inode.kind() }
    }

    fn is_directory(self) -> bool {
        self.kind == NodeKind::Directory
    }
}

fn file_events(events: Events) -> FileEvents {
    FileEvents::from_bits_truncate((events & (Events::ALL | Events::OPEN_EXEC)).bits())
}

/// Something happened to an inode: those who watch it are told, and those who watch its directory.
#[inline]
pub fn event(inode: &Arc<dyn Inode>, events: Events) {
    if is_anybody_listening() {
        tell_both(inode, None, events);
    }
}

/// The same for what was done through a path or an open file.
#[inline]
pub fn event_at(location: &Location, events: Events) {
    if is_anybody_listening() {
        tell_both(&location.inode, Some(location), events);
    }
}

#[cold]
fn tell_both(inode: &Arc<dyn Inode>, at: Option<&Location>, events: Events) {
    let place = inode.place();
    // That it is opened to be executed is for fanotify alone.
    let shown = events.difference(Events::OPEN_EXEC);
    let mut news = News { events: with_kind(inode, shown), cookie: 0, name: None };
    let mut after = Aftermath::default();
    let mut registry = REGISTRY.lock();
    if let Some(place) = &place {
        news.name = Some(place.name.clone());
        registry.tell(place.parent.id(), &news, place.removed, &mut after);
        news.name = None;
    }
    registry.tell(inode.id(), &news, false, &mut after);
    drop(registry);
    after.carry_out();
    if fanotify::is_used() {
        let place = place.filter(|place| !place.removed);
        fanotify::tell(&Happening {
            events: file_events(events),
            subject: Subject::of(inode),
            place: at,
            directory: place.map(|place| (place.parent.id(), place.name)),
            moved_to: None,
        });
    }
}

/// Something happened to an inode that is no concern of its directory's.
pub fn event_itself(inode: &Arc<dyn Inode>, events: Events) {
    if is_anybody_listening() {
        let news = News { events: with_kind(inode, events), cookie: 0, name: None };
        let mut after = Aftermath::default();
        REGISTRY.lock().tell(inode.id(), &news, false, &mut after);
        after.carry_out();
        if fanotify::is_used() {
            let (events, subject) = (file_events(events), Subject::of(inode));
            let (place, directory, moved_to) = (None, None, None);
            fanotify::tell(&Happening { events, subject, place, directory, moved_to });
        }
    }
}

/// An entry of a directory came or went; `child` is or was behind it.
pub fn entry(directory: &Arc<dyn Inode>, name: &[u8], child: Subject, events: Events) {
    if !is_anybody_listening() {
        return;
    }
    let name: Arc<[u8]> = Arc::from(name);
    entry_with_cookie(directory, &name, child, events, 0);
    if fanotify::is_used() {
        let (events, directory) = (file_events(events), Some((directory.id(), name)));
        let (place, moved_to) = (None, None);
        fanotify::tell(&Happening { events, subject: child, place, directory, moved_to });
    }
}

fn entry_with_cookie(
    directory: &Arc<dyn Inode>,
    name: &Arc<[u8]>,
    child: Subject,
    events: Events,
    cookie: u32,
) {
    let kind = if child.is_directory() { Events::ISDIR } else { Events::empty() };
    let news = News { events: events | kind, cookie, name: Some(name.clone()) };
    let mut after = Aftermath::default();
    REGISTRY.lock().tell(directory.id(), &news, false, &mut after);
    after.carry_out();
}

/// An entry moved from one directory and name to another.
pub fn moved(
    (from, old): (&Arc<dyn Inode>, &[u8]),
    (to, new): (&Arc<dyn Inode>, &[u8]),
    inode: &Arc<dyn Inode>,
) {
    static COOKIE: AtomicU32 = AtomicU32::new(1);
    if !is_anybody_listening() {
        return;
    }
    let child = Subject::of(inode);
    let cookie = COOKIE.fetch_add(1, Ordering::Relaxed);
    let (old, new): (Arc<[u8]>, Arc<[u8]>) = (Arc::from(old), Arc::from(new));
    if fanotify::is_used() {
        let (before, after) = ((from.id(), old.clone()), (to.id(), new.clone()));
        let (subject, place) = (child, None);
        let tell = |events, directory, moved_to| {
            fanotify::tell(&Happening { events, subject, place, directory, moved_to });
        };
        tell(FileEvents::RENAME, Some(before.clone()), Some(after.clone()));
        tell(FileEvents::MOVED_FROM, Some(before), None);
        tell(FileEvents::MOVED_TO, Some(after), None);
    }
    if from.id() == to.id() {
        entry_with_cookie(from, &old, child, Events::RENAMED, 0);
    }
    entry_with_cookie(from, &old, child, Events::MOVED_FROM, cookie);
    entry_with_cookie(to, &new, child, Events::MOVED_TO, cookie);
    event_itself(inode, Events::MOVE_SELF);
}

/// The last user of an inode is gone; `is_deleted` when it had no name any more.
pub(crate) fn gone(inode: Subject, is_deleted: bool) {
    if is_anybody_listening() {
        let last = if is_deleted { Events::DELETE_SELF } else { Events::empty() };
        let mut after = Aftermath::default();
        REGISTRY.lock().end_all(inode.id, last, &mut after);
        after.carry_out();
        if fanotify::is_used() {
            fanotify::gone(inode, is_deleted);
        }
    }
}

/// A file system is not mounted any more: whoever watches something there is told, and watches no more.
pub(crate) fn unmounted(device: u64) {
    if !is_anybody_listening() {
        return;
    }
    let mut after = Aftermath::default();
    let mut registry = REGISTRY.lock();
    let range = InodeId { device, number: 0 }..=InodeId { device, number: u64::MAX };
    let ids: Vec<InodeId> = registry.by_inode.range(range).map(|(id, _)| *id).collect();
    for id in ids {
        registry.end_all(id, Events::UNMOUNT, &mut after);
    }
    drop(registry);
    after.carry_out();
    fanotify::unmounted(device);
}
