//! fanotify: groups of marks on inodes, mounts and file systems, and what their readers are told.
//!
//! ```text
//! what happens ── Happening ──> marks on the inode, its directory, the mount, the file system
//!                                   │ by group: what any mark wants, less what any mark ignores
//!                                   └──> Event ──> queue of the group (merged) ──> its reader
//! what is about to happen ── questions() ──> each group that may ask, in turn; the caller waits for the answers
//! ```
//!
//! `marks` has the table of marks, `group` queues and answers, `event` what one event tells and its layout. The table is
//! locked while marks are looked at; queues are filled afterwards, so files that an event holds are never dropped
//! under it.

mod event;
mod group;
mod marks;

pub use event::{About, Event, HANDLE_SIZE, HANDLE_TYPE, describe_handle, handle_of};
pub use group::{Group, Question};
pub use marks::{Change, LIMITS, Limits, Object, add, flush, is_used, may_ask, remove};

use super::actor::{self, Actor};
use crate::metadata::{InodeId, NodeKind};
use crate::mount::Location;
use abi::fs::fanotify::{FileEvents, InitFlags, MarkFlags};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use event::{Inodes, Named};

/// An inode, as far as events tell of it.
#[derive(Clone, Copy)]
pub struct Subject {
    /// Which one.
    pub id: InodeId,
    /// What it is.
    pub kind: NodeKind,
}

/// Something that happened.
pub(super) struct Happening<'a> {
    pub events: FileEvents,
    /// To which inode.
    pub subject: Subject,
    /// Where, for what was found by a path.
    pub place: Option<&'a Location>,
    /// The directory that has or had it, and the name.
    pub directory: Option<(InodeId, Arc<[u8]>)>,
    /// Directory and name after a move.
    pub moved_to: Option<(InodeId, Arc<[u8]>)>,
}

/// What a mark's object is to a happening.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// What it happened to: for an entry, its directory.
    Itself,
    /// The directory of what it happened to.
    Parent,
    /// The mount.
    Mount,
    /// The file system.
    FileSystem,
    /// The directory that an entry moved to.
    Target,
}

/// What the marks of one group say to a happening.
struct Match {
    group: Arc<Group>,
    wanted: FileEvents,
    ignored: FileEvents,
    /// Old and new directory of a move are watched.
    watches: [bool; 2],
}

fn applies(mask: FileEvents, is_directory: bool, role: Role) -> bool {
    (!is_directory || mask.contains(FileEvents::ONDIR))
        && (role != Role::Parent || mask.contains(FileEvents::EVENT_ON_CHILD))
}

impl Happening<'_> {
    fn is_of_entry(&self) -> bool {
        self.events.intersects(FileEvents::OF_ENTRIES)
    }

    fn is_on_directory(&self) -> bool {
        self.subject.kind == NodeKind::Directory
    }

    /// The objects whose marks count.
    fn objects(&self) -> [Option<(Role, Object)>; 5] {
        let itself = self.subject.id;
        let directory = self.directory.as_ref().map(|(id, _)| *id);
        let (own, parent) = match self.is_of_entry() {
            true => (directory, None),
            false => (Some(itself), directory),
        };
        let target = self.moved_to.as_ref().map(|(id, _)| *id);
        let target = target.filter(|id| Some(*id) != own);
        [
            own.map(|id| (Role::Itself, Object::Inode(id))),
            parent.map(|id| (Role::Parent, Object::Inode(id))),
            self.place.map(|place| (Role::Mount, Object::Mount(place.mount.id()))),
            Some((Role::FileSystem, Object::FileSystem(itself.device))),
            target.map(|id| (Role::Target, Object::Inode(id))),
        ]
    }

    /// What each group that has a mark on one of the objects says.
    fn matches(&self) -> Vec<Match> {
        let mut found: Vec<Match> = Vec::new();
        let is_directory = self.is_on_directory();
        let mut registry = marks::lock();
        for (role, object) in self.objects().into_iter().flatten() {
            let Some(marks) = registry.by_object.get_mut(&object) else { continue };
            for mark in marks {
                let Some(group) = mark.group.upgrade() else { continue };
                let place = found.iter().position(|known| Arc::ptr_eq(&known.group, &group));
                let place = place.unwrap_or_else(|| {
                    let nothing = FileEvents::empty();
                    let (wanted, ignored, watches) = (nothing, nothing, [false; 2]);
                    found.push(Match { group, wanted, ignored, watches });
                    found.len() - 1
                });
                let Some(found) = found.get_mut(place) else { continue };
                let survives = mark.flags.contains(MarkFlags::IGNORED_SURV_MODIFY);
                if self.events.contains(FileEvents::MODIFY) && !survives {
                    mark.ignored = FileEvents::empty();
                }
                if applies(mark.ignored_with_options(), is_directory, role) {
                    found.ignored |= mark.ignored - FileEvents::OPTIONS;
                }
                if applies(mark.wanted, is_directory, role) {
                    found.wanted |= mark.wanted;
                    if mark.wanted.contains(FileEvents::RENAME) {
                        let both = role == Role::FileSystem;
                        let is_same = self.directory.as_ref().map(|(id, _)| *id)
                            == self.moved_to.as_ref().map(|(id, _)| *id);
                        found.watches[0] |= both || role == Role::Itself;
                        found.watches[1] |= both || role == Role::Target || is_same;
                    }
                }
            }
        }
        found
    }

    /// What a group is told of it; nothing if it cannot be told by what the group asked for.
    fn told_to(&self, found: &Match) -> FileEvents {
        let group = &found.group;
        let is_directory = self.is_on_directory();
        let ids = group.flags & InitFlags::FILE_IDS;
        if ids.is_empty() {
            // Its readers get descriptors of files and directories, which takes a path.
            let is_openable = is_directory || self.subject.kind == NodeKind::Regular;
            if self.place.is_none() || !is_openable {
                return FileEvents::empty();
            }
        } else if !ids.contains(InitFlags::REPORT_FID) && self.directory.is_none() && !is_directory
        {
            return FileEvents::empty();
        }
        let told = self.events & found.wanted & !found.ignored & !FileEvents::OPTIONS;
        let is_told_of_kind = !ids.is_empty() && is_directory && !told.is_empty();
        if is_told_of_kind { told | FileEvents::ONDIR } else { told }
    }

    fn event(&self, told: FileEvents, found: &Match, actor: Actor) -> Event {
        let group = &found.group;
        let actor = match group.flags.contains(InitFlags::REPORT_TID) {
            true => Actor { process: actor.thread, thread: 0 },
            false => Actor { thread: 0, ..actor },
        };
        let about = match (group.tells_ids(), self.place) {
            (false, Some(place)) => About::Path(place.clone()),
            (false, None) => About::Nothing,
            (true, _) => About::Inodes(self.inodes(group.flags, found)),
        };
        Event { events: told, actor, about, question: None }
    }

    /// The files that a group is told of.
    fn inodes(&self, flags: InitFlags, found: &Match) -> Inodes {
        let is_directory = self.is_on_directory();
        let is_of_entry = self.is_of_entry();
        let itself = self.subject.id;
        let names = flags.contains(InitFlags::REPORT_NAME);
        let tells_target = flags.contains(InitFlags::REPORT_TARGET_FID);
        let parent = self.directory.as_ref().map(|(id, _)| *id);
        let file = if is_of_entry && !tells_target { parent } else { Some(itself) };
        let directory = if is_directory && !is_of_entry { Some(itself) } else { parent };
        let Some(directory) = directory.filter(|_| flags.contains(InitFlags::REPORT_DIR_FID))
        else {
            return Inodes { directory: None, moved_to: None, object: file };
        };
        let tells_file = flags.contains(InitFlags::REPORT_FID);
        let child = file.filter(|id| tells_file && *id != directory);
        let child = child.filter(|_| !is_directory || is_of_entry);
        let name_of = |(id, name): &(InodeId, Arc<[u8]>)| -> Named { (*id, Some(name.clone())) };
        if self.events.contains(FileEvents::RENAME) {
            let [tells_old, tells_new] = found.watches;
            let old = self.directory.as_ref().filter(|_| tells_old).map(name_of);
            let new = self.moved_to.as_ref().filter(|_| tells_new).map(name_of);
            return Inodes { directory: old, moved_to: new, object: child };
        }
        let has_name = names && (is_of_entry || !is_directory);
        let name = self.directory.as_ref().filter(|_| has_name).map(|(_, name)| name.clone());
        if name.is_none() && child.is_none() {
            return Inodes { directory: None, moved_to: None, object: Some(directory) };
        }
        Inodes { directory: Some((directory, name)), moved_to: None, object: child }
    }
}

/// Tells all groups of something that happened.
#[cold]
pub(super) fn tell(happening: &Happening<'_>) {
    let actor = actor::current();
    for found in happening.matches() {
        let told = happening.told_to(&found);
        if !told.is_empty() {
            found.group.push(happening.event(told, &found, actor));
        }
    }
}

/// Asks the groups that want to decide about what is about to happen at a place, one after the other: `next` gives the
/// question of each, to be waited for before the next is asked.
///
/// Who waits does not hold the groups: one that ends allows everything.
pub struct Questions {
    place: Location,
    asking: Vec<(Weak<Group>, FileEvents)>,
    actor: Actor,
}

/// The questions before one of these events. Only files and directories are asked about.
pub fn questions(place: &Location, events: FileEvents) -> Questions {
    let subject = Subject { id: place.inode.id(), kind: place.inode.kind() };
    let parent = place.inode.place().filter(|place| !place.removed);
    let directory = parent.map(|place| (place.parent.id(), place.name));
    let place_at = Some(place);
    let happening = Happening { events, subject, place: place_at, directory, moved_to: None };
    let matches = happening.matches().into_iter();
    let mut asking: Vec<(Arc<Group>, FileEvents)> = matches
        .map(|found| (happening.told_to(&found), found.group))
        .filter(|(told, _)| !told.is_empty())
        .map(|(told, group)| (group, told))
        .collect();
    // From the end on: groups that act before the content is in place come first.
    asking.sort_by_key(|(group, _)| group.priority());
    let asking = asking.iter().map(|(group, told)| (Arc::downgrade(group), *told)).collect();
    Questions { place: place.clone(), asking, actor: actor::current() }
}

impl Questions {
    /// Asks the next group that is still there.
    pub fn ask_next(&mut self) -> Option<(Weak<Group>, Arc<Question>)> {
        let (group, events) = loop {
            let (group, events) = self.asking.pop()?;
            if let Some(group) = group.upgrade() {
                break (group, events);
            }
        };
        let question = Question::new();
        let actor = match group.flags.contains(InitFlags::REPORT_TID) {
            true => Actor { process: self.actor.thread, thread: 0 },
            false => Actor { thread: 0, ..self.actor },
        };
        let about = About::Path(self.place.clone());
        group.push(Event { events, actor, about, question: Some(question.clone()) });
        Some((Arc::downgrade(&group), question))
    }
}

/// An inode is gone, and with it the marks on it.
pub(super) fn gone(subject: Subject, is_deleted: bool) {
    if is_deleted {
        let events = FileEvents::DELETE_SELF;
        tell(&Happening { events, subject, place: None, directory: None, moved_to: None });
    }
    marks::inode_gone(subject.id);
}

/// A file system is not mounted any more.
pub(super) fn unmounted(device: u64) {
    marks::file_system_gone(device);
}
