//! Namespaces: what a thread sees of names that others may see otherwise.
//!
//! There may be several of three kinds: host names (`uts`), IPC (`ipc`) and trees of mounts (`mnt`). Of the other kinds there is one
//! each, which every thread is in. A thread holds them in one shared object, as it holds its credentials; a
//! namespace ends with its last holder, which may be a file (`/proc/PID/ns/…`).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use abi::fs::OpenFlags;
use abi::process::*;
use base::sync::{Mutex, Once, rank};
use fs::anonymous::AnonymousInode;
use fs::file::IoctlAnswer;
use fs::mount::{self, Mount};
use fs::{Caller, File, Location, OpenFile};

use super::directory::DirectoryContext;
use super::system::ChangeableNames;
use super::table;
use super::thread::Thread;
use crate::ipc::space::Space;
use crate::ipc::undo;

/// A kind of namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Control groups.
    Control,
    /// System V IPC and message queues.
    Ipc,
    /// Trees of mounts.
    Mounts,
    /// Networks.
    Network,
    /// Numbers of processes.
    Processes,
    /// Offsets of clocks.
    Time,
    /// Users.
    Users,
    /// Host names.
    Names,
}

impl Kind {
    /// `CLONE_NEW…`
    pub fn flag(self) -> u64 {
        match self {
            Kind::Control => CLONE_NEWCGROUP,
            Kind::Ipc => CLONE_NEWIPC,
            Kind::Mounts => CLONE_NEWNS,
            Kind::Network => CLONE_NEWNET,
            Kind::Processes => CLONE_NEWPID,
            Kind::Time => CLONE_NEWTIME,
            Kind::Users => CLONE_NEWUSER,
            Kind::Names => CLONE_NEWUTS,
        }
    }

    /// As links in `/proc/PID/ns` name it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Control => "cgroup",
            Kind::Ipc => "ipc",
            Kind::Mounts => "mnt",
            Kind::Network => "net",
            Kind::Processes => "pid",
            Kind::Time => "time",
            Kind::Users => "user",
            Kind::Names => "uts",
        }
    }

    /// The number of the namespace of this kind that is there from the start, as on Linux.
    fn first_number(self) -> u64 {
        match self {
            Kind::Ipc => 0xefff_ffff,
            Kind::Names => 0xefff_fffe,
            Kind::Users => 0xefff_fffd,
            Kind::Processes => 0xefff_fffc,
            Kind::Control => 0xefff_fffb,
            Kind::Time => 0xefff_fffa,
            Kind::Mounts => 0xf000_0000,
            Kind::Network => 0xf000_0001,
        }
    }
}

/// The number of the next namespace that is made.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0xf000_0100);

/// Host name and domain name.
pub struct HostNames {
    number: u64,
    /// The names; each is short and copied whole.
    pub(super) names: Mutex<ChangeableNames>,
}

impl HostNames {
    fn new(number: u64, names: ChangeableNames) -> Arc<HostNames> {
        Arc::new(HostNames { number, names: Mutex::new(&rank::OPEN_FILE, names) })
    }
}

/// A tree of mounts.
pub struct MountSpace {
    number: u64,
    /// Its topmost mount, which `pivot_root` may change.
    top: Mutex<Arc<Mount>>,
    /// It ends with its last holder; not so the first one.
    ends: bool,
}

impl MountSpace {
    fn new(number: u64, top: Arc<Mount>, ends: bool) -> Arc<MountSpace> {
        Arc::new(MountSpace { number, top: Mutex::new(&rank::OPEN_FILE, top), ends })
    }

    fn top(&self) -> Arc<Mount> {
        self.top.lock().clone()
    }
}

impl Drop for MountSpace {
    fn drop(&mut self) {
        if self.ends {
            mount::end_tree(&self.top());
        }
    }
}

/// The namespaces of a thread, of the kinds of which there may be several.
#[derive(Clone)]
pub struct Namespaces {
    /// Host names.
    pub names: Arc<HostNames>,
    /// System V IPC and message queues.
    pub ipc: Arc<Space>,
    mounts: Arc<MountSpace>,
}

impl Namespaces {
    /// Those that are there from the start, with a tree of mounts below `root`.
    pub(super) fn first(root: &Location) -> Namespaces {
        let names = HostNames::new(Kind::Names.first_number(), ChangeableNames::FIRST);
        let top = mount::root_of(root).mount;
        let number = Kind::Mounts.first_number();
        let ipc = Space::first().clone();
        Namespaces { names, ipc, mounts: MountSpace::new(number, top, false) }
    }

    /// The one of a kind.
    pub fn get(&self, kind: Kind) -> Namespace {
        match kind {
            Kind::Names => Namespace::Names(self.names.clone()),
            Kind::Ipc => Namespace::Ipc(self.ipc.clone()),
            Kind::Mounts => Namespace::Mounts(self.mounts.clone()),
            other => Namespace::Only(other),
        }
    }

    /// The same with copies of the kinds in `flags`. `directory`, which nobody else has yet, is moved to the new tree
    /// of mounts.
    pub(super) fn renewed(&self, flags: u64, directory: &DirectoryContext) -> Namespaces {
        let mut renewed = self.clone();
        if flags & CLONE_NEWUTS != 0 {
            let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
            let names = self.names.names.lock().clone();
            renewed.names = HostNames::new(number, names);
        }
        if flags & CLONE_NEWIPC != 0 {
            renewed.ipc = Space::new(NEXT_NUMBER.fetch_add(1, Ordering::Relaxed));
        }
        if flags & CLONE_NEWNS != 0 {
            let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
            let (top, pairs) = mount::copy_tree(&self.mounts.top());
            renewed.mounts = MountSpace::new(number, top, true);
            let (root, current) = directory.places();
            directory.set_root(moved(root, &pairs));
            directory.set_current(moved(current, &pairs));
        }
        renewed
    }
}

/// The same place in a copy of its tree.
fn moved(place: Location, pairs: &[(Arc<Mount>, Arc<Mount>)]) -> Location {
    let pair = pairs.iter().find(|(original, _)| original.id() == place.mount.id());
    match pair {
        Some((_, twin)) => Location { mount: twin.clone(), inode: place.inode },
        None => place,
    }
}

/// Gives a thread new namespaces of the kinds in `flags`, copies of those that it has. For mounts its directories
/// are its own.
pub fn renew(thread: &Thread, flags: u64) {
    if flags & CLONE_NEWIPC != 0 {
        undo::leave(thread);
    }
    let renewed = thread.namespaces().renewed(flags, &thread.directory());
    thread.set_namespaces(Arc::new(renewed));
}

/// The kinds of namespaces that can be made.
pub const MADE: u64 = CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNS;

/// `EPERM` without the right to make namespaces of these kinds, `EINVAL` for kinds of which there is one each.
pub fn check_new(thread: &Thread, flags: u64) -> Result<(), Errno> {
    let may = thread.credentials().is_capable(super::Capability::Administer);
    if !may && flags & CLONE_NEWUSER == 0 {
        return Err(Errno::EPERM);
    }
    if flags & CLONE_NAMESPACES & !MADE != 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

/// `pivot_root`: the mount at `new` becomes the root of the caller's tree of mounts, and the old root is attached at
/// `old`. Whoever has the old root as root or working directory gets the new one.
///
/// # Errors
/// Those of `mount::pivot`.
pub fn pivot_root(thread: &Thread, new: &Location, old: &Location) -> Result<(), Errno> {
    let namespaces = thread.namespaces();
    let root = thread.directory().root();
    let top = namespaces.mounts.top();
    if let Some(top) = mount::pivot(&root, new, old, &top)? {
        *namespaces.mounts.top.lock() = top;
    }
    for process in table::processes() {
        for thread in process.threads() {
            thread.directory().replace(&root, new);
        }
    }
    Ok(())
}

/// One namespace.
#[derive(Clone)]
pub enum Namespace {
    /// Of host names.
    Names(Arc<HostNames>),
    /// Of System V IPC and message queues.
    Ipc(Arc<Space>),
    /// Of mounts.
    Mounts(Arc<MountSpace>),
    /// The only one of its kind.
    Only(Kind),
}

impl Namespace {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Namespace::Names(_) => Kind::Names,
            Namespace::Ipc(_) => Kind::Ipc,
            Namespace::Mounts(_) => Kind::Mounts,
            Namespace::Only(kind) => *kind,
        }
    }

    /// Its number: that of its inode.
    pub fn number(&self) -> u64 {
        match self {
            Namespace::Names(names) => names.number,
            Namespace::Ipc(space) => space.number,
            Namespace::Mounts(mounts) => mounts.number,
            Namespace::Only(kind) => kind.first_number(),
        }
    }

    /// Where its file is.
    pub fn location(&self) -> Location {
        let file = Arc::new(NamespaceFile { namespace: self.clone() });
        AnonymousInode::namespace_location(file, self.kind().name(), self.number())
    }

    fn open(&self) -> Result<Arc<OpenFile>, Errno> {
        let file = Arc::new(NamespaceFile { namespace: self.clone() });
        OpenFile::new(file, self.location(), OpenFlags::RDONLY)
    }
}

/// Puts a thread into a namespace. The caller has checked the rights.
///
/// # Errors
/// `EINVAL` for that of users, which nobody enters twice, and for mounts while the thread shares its directories.
pub fn enter(thread: &Thread, namespace: &Namespace) -> Result<(), Errno> {
    let mut changed = (*thread.namespaces()).clone();
    match namespace {
        Namespace::Names(names) => changed.names = names.clone(),
        Namespace::Ipc(space) => {
            // What was taken from semaphores of the old one is given back.
            undo::leave(thread);
            changed.ipc = space.clone();
        }
        Namespace::Mounts(mounts) => {
            let directory = thread.directory();
            if directory.is_shared() {
                return Err(Errno::EINVAL);
            }
            let root = Location::root_of(&mounts.top()).descend();
            directory.set_root(root.clone());
            directory.set_current(root);
            changed.mounts = mounts.clone();
        }
        Namespace::Only(Kind::Users) => return Err(Errno::EINVAL),
        Namespace::Only(_) => return Ok(()),
    }
    thread.set_namespaces(Arc::new(changed));
    Ok(())
}

/// The file of a namespace, which holds it.
pub struct NamespaceFile {
    namespace: Namespace,
}

impl NamespaceFile {
    /// The namespace behind an open file, if it is one's.
    pub fn of(file: &OpenFile) -> Option<&Namespace> {
        let file: &NamespaceFile = file.file().as_any().downcast_ref()?;
        Some(&file.namespace)
    }
}

/// Requests of `ioctl`.
mod request {
    pub const USERS: u32 = 0xb701;
    pub const PARENT: u32 = 0xb702;
    pub const KIND: u32 = 0xb703;
    pub const OWNER: u32 = 0xb704;
}

impl File for NamespaceFile {
    fn can_read(&self) -> bool {
        false
    }

    fn can_write(&self) -> bool {
        false
    }

    fn can_be_watched(&self) -> bool {
        false
    }

    fn ioctl_input(&self, request: u32) -> Result<usize, Errno> {
        match request {
            request::USERS | request::PARENT | request::KIND | request::OWNER => Ok(0),
            _ => Err(Errno::ENOTTY),
        }
    }

    fn ioctl(
        &self,
        _caller: &dyn Caller,
        request: u32,
        _argument: u64,
        _input: &[u8],
    ) -> Result<IoctlAnswer, Errno> {
        let kind = self.namespace.kind();
        match request {
            // That of the users has no owner here, and no parent; nor has that of the processes.
            request::USERS if kind == Kind::Users => Err(Errno::EPERM),
            request::USERS => {
                let opened = Some(Namespace::Only(Kind::Users).open()?);
                Ok(IoctlAnswer { opened, ..IoctlAnswer::default() })
            }
            request::PARENT if matches!(kind, Kind::Users | Kind::Processes) => Err(Errno::EPERM),
            request::PARENT => Err(Errno::EINVAL),
            request::KIND => Ok(IoctlAnswer { value: kind.flag(), ..IoctlAnswer::default() }),
            request::OWNER if kind == Kind::Users => Ok(IoctlAnswer::bytes(&0_u32.to_ne_bytes())),
            request::OWNER => Err(Errno::EINVAL),
            _ => Err(Errno::ENOTTY),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

static FIRST: Once<Arc<Namespaces>> = Once::new();

/// Keeps the namespaces that are there from the start, for those who ask when no thread does.
pub(super) fn set_first(root: &Location) -> Arc<Namespaces> {
    FIRST.call_once(|| Arc::new(Namespaces::first(root))).clone()
}

/// The host names that a thread sees; the first ones for a number that is no thread's, and before there are any threads.
pub fn names_of(thread: i32) -> Option<Arc<HostNames>> {
    let of_thread = table::thread(super::Tid(thread)).map(|thread| thread.namespaces());
    of_thread.or_else(|| FIRST.get().cloned()).map(|namespaces| namespaces.names.clone())
}

/// Names of the links in `/proc/PID/ns`, with their kinds.
pub const LINKS: [(&str, Kind); 10] = [
    ("cgroup", Kind::Control),
    ("ipc", Kind::Ipc),
    ("mnt", Kind::Mounts),
    ("net", Kind::Network),
    ("pid", Kind::Processes),
    ("pid_for_children", Kind::Processes),
    ("time", Kind::Time),
    ("time_for_children", Kind::Time),
    ("user", Kind::Users),
    ("uts", Kind::Names),
];

/// The kinds in `flags`, of those that a process descriptor can lead into.
pub fn kinds_in(flags: u64) -> Vec<Kind> {
    let kinds = LINKS.iter().filter(|(name, kind)| *name == kind.name()).map(|(_, kind)| *kind);
    kinds.filter(|kind| flags & kind.flag() != 0).collect()
}
