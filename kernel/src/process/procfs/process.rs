//! The directory of a process or thread, and its links.

use alloc::string::ToString;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use abi::Errno;
use fs::inode::LinkTarget;
use fs::pseudo::{Content, Directory, Entry, EntryNode, Link, Listed, Part, directory_of};
use fs::{Identity, Inode, Location, NodeKind};

use super::descriptors::Descriptors;
use super::directory::parse_number;
use super::{counters, memory, namespaces, network, number, status};
use crate::process::access::Observer;
use crate::process::thread::Resources;
use crate::process::{Capability, INIT, Process, Thread, table};

/// Whom a directory is about: a process, or one thread of it.
#[derive(Clone)]
pub(super) struct Subject {
    pid: i32,
    process: Weak<Process>,
    thread: Option<(i32, Weak<Thread>)>,
}

impl Subject {
    pub(super) fn of_process(process: &Arc<Process>) -> Subject {
        Subject { pid: process.pid.0, process: Arc::downgrade(process), thread: None }
    }

    fn of_thread(&self, thread: &Arc<Thread>) -> Subject {
        Subject { thread: Some((thread.tid().0, Arc::downgrade(thread))), ..self.clone() }
    }

    /// The process; `ESRCH` when it has been reaped.
    pub(super) fn process(&self) -> Result<Arc<Process>, Errno> {
        self.process.upgrade().ok_or(Errno::ESRCH)
    }

    /// The thread, or the main thread of the process; `ESRCH` when it has ended.
    pub(super) fn thread(&self) -> Result<Arc<Thread>, Errno> {
        match &self.thread {
            Some((_, thread)) => thread.upgrade().ok_or(Errno::ESRCH),
            None if self.pid == INIT.0 => table::thread_or_init(INIT.leader()).ok_or(Errno::ESRCH),
            None => self.process()?.main_thread().ok_or(Errno::ESRCH),
        }
    }

    /// Whether it is about one thread.
    pub(super) fn is_thread(&self) -> bool {
        self.thread.is_some()
    }

    /// The number that the directory is named after.
    pub(super) fn number(&self) -> i32 {
        self.thread.as_ref().map_or(self.pid, |(tid, _)| *tid)
    }

    fn inode_number(&self, index: u64) -> u64 {
        match self.thread {
            Some((tid, _)) => number::of_thread(tid, index),
            None => number::of_process(self.pid, index),
        }
    }

    /// Gives an entry the owner that the subject acts for. What not everybody may read belongs to the
    /// superuser when the subject cannot be dumped.
    pub(super) fn own(&self, entry: Entry) -> Entry {
        let Ok(thread) = self.thread() else { return entry };
        let Resources { space, credentials, .. } = thread.resources();
        let is_public_directory = matches!(entry.node, EntryNode::Directory(_))
            && entry.permissions.mode == PUBLIC_DIRECTORY;
        if is_public_directory || space.is_dumpable() {
            entry.owned_by(credentials.user.effective, credentials.group.effective)
        } else {
            entry
        }
    }

    /// What the subject works with, if who accesses its files may look into it. `EACCES` if not,
    /// `ESRCH` when it has ended.
    pub(super) fn look_into(&self, identity: &Identity) -> Result<Resources, Errno> {
        let thread = self.thread()?;
        Observer::of_file(identity).look_into(&thread).map_err(|_| Errno::EACCES)
    }
}

/// Mode of directories that everybody may read.
const PUBLIC_DIRECTORY: u32 = 0o555;

/// The entry of a process or thread in its parent directory.
pub(super) fn entry(subject: Subject) -> Entry {
    let owner = subject.clone();
    let number = subject.inode_number(0);
    owner.own(Entry::directory(number, Arc::new(Home { subject })))
}

/// The directory itself.
struct Home {
    subject: Subject,
}

/// The process whose directory an inode is.
///
/// # Errors
/// `EBADF` when it is something else, `ESRCH` when the process has been reaped.
pub fn process_of(inode: &dyn Inode) -> Result<Arc<Process>, Errno> {
    let home: &Home = directory_of(inode).ok_or(Errno::EBADF)?;
    if home.subject.is_thread() { Err(Errno::EBADF) } else { home.subject.process() }
}

/// Makes the part of a text that begins at a cursor.
type MakePart = fn(&Resources, u64) -> Result<Part, Errno>;

/// What a name in the directory is.
#[derive(Clone, Copy)]
enum Item {
    /// For everybody whom the mode lets in.
    Text(fn(&Subject) -> Result<Vec<u8>, Errno>, u32),
    /// For everybody, but some fields are only for those who may look into the subject.
    PartlyPrivate(fn(&Subject, bool) -> Result<Vec<u8>, Errno>, u32),
    /// Only for those who may look into the subject.
    Private(MakePart, u32),
    Place(fn(&Process, &Resources) -> Option<Location>),
    Descriptors {
        is_information: bool,
    },
    Tasks,
    Network,
    Namespaces,
    /// Takes what is written, which changes nothing here.
    WriteOnly,
    KillPreference {
        is_old_scale: bool,
    },
    Name,
    Memory,
    PageMap,
    /// Only in the directories of threads.
    OfThread(fn(&Subject) -> Result<Vec<u8>, Errno>),
}

const ITEMS: &[(&str, Item)] = &[
    ("autogroup", Item::Text(status::automatic_group, 0o644)),
    ("auxv", Item::Private(memory::auxiliary_vector, 0o400)),
    ("cgroup", Item::Text(status::control_group, 0o444)),
    ("clear_refs", Item::WriteOnly),
    ("cmdline", Item::Text(status::command_line, 0o444)),
    ("comm", Item::Name),
    ("cpuset", Item::Text(status::processor_set, 0o444)),
    ("cwd", Item::Place(|_, inside| Some(inside.directory.current()))),
    ("environ", Item::Private(status::environment, 0o400)),
    ("exe", Item::Place(|process, _| process.executable())),
    ("ferry", Item::Text(counters::calls, 0o444)),
    ("fd", Item::Descriptors { is_information: false }),
    ("fdinfo", Item::Descriptors { is_information: true }),
    ("children", Item::OfThread(status::children)),
    ("coredump_filter", Item::Text(status::dump_filter, 0o644)),
    ("gid_map", Item::Text(status::identity_map, 0o644)),
    ("io", Item::PartlyPrivate(status::transfers, 0o400)),
    ("limits", Item::Text(status::limits, 0o444)),
    ("maps", Item::Private(status::maps, 0o444)),
    ("loginuid", Item::Text(status::no_login, 0o644)),
    ("mem", Item::Memory),
    ("mountinfo", Item::Text(status::mount_information, 0o444)),
    ("mounts", Item::Text(status::mounts, 0o444)),
    ("mountstats", Item::Text(status::mount_statistics, 0o400)),
    ("oom_adj", Item::KillPreference { is_old_scale: true }),
    ("oom_score", Item::Text(status::kill_score, 0o444)),
    ("oom_score_adj", Item::KillPreference { is_old_scale: false }),
    ("pagemap", Item::PageMap),
    ("projid_map", Item::Text(status::identity_map, 0o644)),
    ("net", Item::Network),
    ("ns", Item::Namespaces),
    ("personality", Item::Text(status::personality, 0o400)),
    ("root", Item::Place(|_, inside| Some(inside.directory.root()))),
    ("sched", Item::Text(status::schedule, 0o644)),
    ("schedstat", Item::Text(status::schedule_statistics, 0o444)),
    ("sessionid", Item::Text(status::no_login, 0o444)),
    ("setgroups", Item::Text(status::may_set_groups, 0o644)),
    ("smaps", Item::Private(memory::sizes, 0o444)),
    ("smaps_rollup", Item::Private(memory::sum_of_sizes, 0o444)),
    ("stack", Item::Private(status::no_stack, 0o400)),
    ("stat", Item::PartlyPrivate(status::stat, 0o444)),
    ("statm", Item::Text(status::memory_sizes, 0o444)),
    ("status", Item::Text(status::status, 0o444)),
    ("syscall", Item::PartlyPrivate(status::current_call, 0o400)),
    ("task", Item::Tasks),
    ("timens_offsets", Item::Text(status::clock_offsets, 0o644)),
    ("timerslack_ns", Item::Text(status::timer_slack, 0o666)),
    ("uid_map", Item::Text(status::identity_map, 0o644)),
    ("wchan", Item::Text(status::waiting_place, 0o444)),
];

impl Home {
    fn has(&self, item: Item) -> bool {
        match item {
            Item::Tasks => !self.subject.is_thread(),
            Item::OfThread(_) => self.subject.is_thread(),
            _ => true,
        }
    }

    fn make(&self, index: u64, item: Item) -> Entry {
        let number = self.subject.inode_number(index);
        let subject = self.subject.clone();
        let entry = match item {
            Item::Text(generate, mode) => {
                Entry::file(number, Arc::new(move || generate(&subject))).with_mode(mode)
            }
            Item::PartlyPrivate(generate, mode) => {
                Entry::file(number, Arc::new(PartlyPrivate { subject, generate })).with_mode(mode)
            }
            Item::Private(make, mode) => {
                Entry::file(number, Arc::new(Private { subject, make })).with_mode(mode)
            }
            Item::Place(find) => Entry::link(number, Arc::new(PlaceLink { subject, find })),
            Item::Descriptors { is_information } => {
                let pid = subject.pid;
                let mode = if is_information { 0o555 } else { 0o500 };
                Entry::directory(number, Arc::new(Descriptors { subject, is_information }))
                    .with_mode(mode)
                    .open_to(pid)
            }
            Item::Tasks => Entry::directory(number, Arc::new(Tasks { subject })),
            Item::Network => network::root(number),
            Item::Namespaces => {
                let names = namespaces::Links { subject, first_number: number };
                Entry::directory(number, Arc::new(names)).with_mode(0o511)
            }
            Item::WriteOnly => {
                Entry::file(number, Arc::new(References { subject })).with_mode(0o200)
            }
            Item::KillPreference { is_old_scale } => {
                let content = KillPreference { subject, is_old_scale };
                Entry::file(number, Arc::new(content)).with_mode(0o644)
            }
            Item::Memory => {
                Entry::file(number, Arc::new(memory::Memory { subject })).with_mode(0o600)
            }
            Item::PageMap => {
                Entry::file(number, Arc::new(memory::PageMap { subject })).with_mode(0o400)
            }
            Item::OfThread(generate) => Entry::file(number, Arc::new(move || generate(&subject))),
            Item::Name => {
                let pid = subject.pid;
                Entry::file(number, Arc::new(Name { subject })).with_mode(0o644).open_to(pid)
            }
        };
        self.subject.own(entry)
    }
}

fn item_kind(item: Item) -> NodeKind {
    match item {
        Item::Descriptors { .. } | Item::Tasks | Item::Network | Item::Namespaces => {
            NodeKind::Directory
        }
        Item::Place(_) => NodeKind::Symlink,
        _ => NodeKind::Regular,
    }
}

impl Directory for Home {
    fn lookup(&self, name: &[u8]) -> Result<Entry, Errno> {
        let found = (1..).zip(ITEMS).find(|(_, (known, _))| known.as_bytes() == name);
        match found {
            Some((index, (_, item))) if self.has(*item) => {
                self.subject.process().map_err(|_| Errno::ENOENT)?;
                Ok(self.make(index, *item))
            }
            _ => Err(Errno::ENOENT),
        }
    }

    fn list(&self, after: u64, emit: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<(), Errno> {
        self.subject.process().map_err(|_| Errno::ENOENT)?;
        for (index, (name, item)) in (1..).zip(ITEMS) {
            if index <= after || !self.has(*item) {
                continue;
            }
            let number = self.subject.inode_number(index);
            let kind = item_kind(*item);
            if !emit(Listed { name: name.as_bytes(), number, kind, cursor: index }) {
                break;
            }
        }
        Ok(())
    }
}

/// `clear_refs`: which pages were used is not kept, so there is nothing to clear.
struct References {
    subject: Subject,
}

impl Content for References {
    fn generate(&self, _: &Identity) -> Result<Vec<u8>, Errno> {
        Err(Errno::EINVAL)
    }

    fn write(&self, _: &Identity, _: u64, bytes: &[u8]) -> Result<usize, Errno> {
        self.subject.process()?;
        match bytes.trim_ascii() {
            [b'1'..=b'5'] => Ok(bytes.len()),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// `task`: the threads of a process.
struct Tasks {
    subject: Subject,
}

impl Directory for Tasks {
    fn lookup(&self, name: &[u8]) -> Result<Entry, Errno> {
        let tid = parse_number(name).ok_or(Errno::ENOENT)?;
        let thread = table::thread(crate::process::Tid(tid)).ok_or(Errno::ENOENT)?;
        if thread.process.pid.0 != self.subject.pid {
            return Err(Errno::ENOENT);
        }
        Ok(entry(self.subject.of_thread(&thread)))
    }

    fn list(&self, after: u64, emit: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<(), Errno> {
        let process = self.subject.process().map_err(|_| Errno::ENOENT)?;
        let mut tids: Vec<i32> = Vec::new();
        process.for_each_thread(|thread| tids.push(thread.tid().0));
        tids.sort_unstable();
        for tid in tids {
            let cursor = u64::from(tid.unsigned_abs());
            let name = tid.to_string();
            let number = number::of_thread(tid, 0);
            let listed =
                Listed { name: name.as_bytes(), number, kind: NodeKind::Directory, cursor };
            if cursor > after && !emit(listed) {
                break;
            }
        }
        Ok(())
    }

    fn links(&self) -> u64 {
        2 + self.subject.process().map_or(0, |process| process.thread_count() as u64)
    }
}

/// `cwd`, `exe`, `root`: a link that leads straight to a place.
struct PlaceLink {
    subject: Subject,
    find: fn(&Process, &Resources) -> Option<Location>,
}

impl PlaceLink {
    fn place(&self, identity: &Identity) -> Result<(Location, Location), Errno> {
        let gone = |error| if error == Errno::ESRCH { Errno::ENOENT } else { error };
        let inside = self.subject.look_into(identity).map_err(gone)?;
        let process = self.subject.process().map_err(gone)?;
        let place = (self.find)(&process, &inside).ok_or(Errno::ENOENT)?;
        Ok((place, inside.directory.root()))
    }
}

impl Link for PlaceLink {
    fn text(&self, identity: &Identity) -> Result<Vec<u8>, Errno> {
        let (place, root) = self.place(identity)?;
        Ok(fs::mount::display_path(&place, &root))
    }

    fn follow(&self, identity: &Identity) -> Result<LinkTarget, Errno> {
        Ok(LinkTarget::Place(self.place(identity)?.0))
    }
}

/// A text for those who may look into the subject, asked when it is opened and again when it is read:
/// the subject may have executed another program meanwhile, whose text is empty to those who may not.
struct Private {
    subject: Subject,
    make: MakePart,
}

impl Content for Private {
    fn admit(&self, opener: &Identity) -> Result<(), Errno> {
        match self.subject.look_into(opener) {
            Err(Errno::EACCES) => Err(Errno::EACCES),
            _ => Ok(()),
        }
    }

    fn generate(&self, opener: &Identity) -> Result<Vec<u8>, Errno> {
        self.part(opener, 0).map(|part| part.text)
    }

    fn part(&self, opener: &Identity, cursor: u64) -> Result<Part, Errno> {
        // It may be a zombie, which has nothing to tell.
        self.subject.process()?;
        match self.subject.look_into(opener) {
            Ok(inside) => (self.make)(&inside, cursor),
            Err(_) => Ok(Part { text: Vec::new(), next: None }),
        }
    }
}

/// A text with fields that only those see who may look into the subject.
struct PartlyPrivate {
    subject: Subject,
    generate: fn(&Subject, bool) -> Result<Vec<u8>, Errno>,
}

impl Content for PartlyPrivate {
    fn generate(&self, opener: &Identity) -> Result<Vec<u8>, Errno> {
        (self.generate)(&self.subject, self.subject.look_into(opener).is_ok())
    }
}

/// `comm`: the name, which the process itself can write.
struct Name {
    subject: Subject,
}

impl Content for Name {
    fn generate(&self, _: &Identity) -> Result<Vec<u8>, Errno> {
        let mut name = status::name(&self.subject);
        name.push(b'\n');
        Ok(name)
    }

    fn write(&self, writer: &Identity, _: u64, bytes: &[u8]) -> Result<usize, Errno> {
        if writer.process != self.subject.pid {
            return Err(Errno::EINVAL);
        }
        let end = bytes.iter().position(|byte| matches!(byte, 0 | b'\n'));
        self.subject.thread()?.set_name(bytes.get(..end.unwrap_or(bytes.len())).unwrap_or(bytes));
        Ok(bytes.len())
    }
}

/// `oom_score_adj`: kept for the choice of whom to end when memory is short.
struct KillPreference {
    subject: Subject,
    /// `oom_adj`, whose values are from -17 to 15 and where -17 is what -1000 is in the other.
    is_old_scale: bool,
}

/// The values of `oom_adj`; its least one keeps a process from being chosen.
const OLD_SCALE: core::ops::RangeInclusive<i32> = -17..=15;

fn from_old_scale(value: i32) -> i32 {
    if value == *OLD_SCALE.end() { 1000 } else { value * 1000 / -OLD_SCALE.start() }
}

fn to_old_scale(value: i32) -> i32 {
    if value == 1000 { *OLD_SCALE.end() } else { value * -OLD_SCALE.start() / 1000 }
}

impl Content for KillPreference {
    fn generate(&self, _: &Identity) -> Result<Vec<u8>, Errno> {
        use core::sync::atomic::Ordering;
        let value = self.subject.process()?.kill_preference.load(Ordering::Relaxed);
        let value = if self.is_old_scale { to_old_scale(value) } else { value };
        Ok(alloc::format!("{value}\n").into_bytes())
    }

    fn write(&self, writer: &Identity, _: u64, bytes: &[u8]) -> Result<usize, Errno> {
        use core::sync::atomic::Ordering;
        let text = core::str::from_utf8(bytes).map_err(|_| Errno::EINVAL)?;
        let value: i32 = text.trim().parse().map_err(|_| Errno::EINVAL)?;
        let scale = if self.is_old_scale { OLD_SCALE } else { -1000..=1000 };
        if !scale.contains(&value) {
            return Err(Errno::EINVAL);
        }
        let value = if self.is_old_scale { from_old_scale(value) } else { value };
        let process = self.subject.process()?;
        let least = match self.is_old_scale {
            true => &process.kill_preference,
            false => &process.least_kill_preference,
        };
        if !writer.is_capable(Capability::Resource) {
            if value < least.load(Ordering::Relaxed) {
                return Err(Errno::EACCES);
            }
        } else if !self.is_old_scale {
            least.store(value, Ordering::Relaxed);
        }
        process.kill_preference.store(value, Ordering::Relaxed);
        Ok(bytes.len())
    }
}
