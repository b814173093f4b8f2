//! fanotify: groups, marks, reading of events, and who is asked before a file is opened or read.

use abi::Errno;
use abi::fs::fanotify::*;
use abi::fs::{AT_FDCWD, OpenFlags, PollEvents};
use alloc::sync::Arc;
use base::io::Sink as _;
use core::sync::atomic::Ordering;
use fs::anonymous::{AnonymousInode, Label};
use fs::inode::FileSystem;
use fs::metadata::{Permissions, Wanted};
use fs::notify::fanotify::{self, About, Change, Event, Group, Object};
use fs::open::{self, Request};
use fs::walk::{self, Lookup};
use fs::{Identity, Location, NodeKind, OpenFile, tree};

use super::descriptor::{descriptor_limit, install};
use super::support::{self, NotReady, Turn, ready_in_turn, usable};
use crate::call::{Call, SysResult};
use crate::memory::UserSink;
use crate::process::file_table::Reservation;
use crate::process::pidfd::ProcessFile;
use crate::process::{Capability, Pid, Thread, questions, table};

/// Flags that descriptors in events may have, besides the access mode.
const EVENT_FLAGS: OpenFlags = OpenFlags::APPEND
    .union(OpenFlags::NONBLOCK)
    .union(OpenFlags::SYNC)
    .union(OpenFlags::CLOEXEC)
    .union(OpenFlags::LARGEFILE)
    .union(OpenFlags::NOATIME);

/// `fanotify_init(flags, event_flags)`
pub fn fanotify_init(call: &Call) -> SysResult {
    let credentials = call.thread.credentials();
    let may_administer = credentials.is_capable(Capability::Administer);
    let (raw, event_flags) = (call.unsigned(0), call.unsigned(1));
    let known = InitFlags::from_bits_truncate(raw);
    let ids = known & InitFlags::FILE_IDS;
    if !may_administer && (known.intersects(InitFlags::ADMINISTRATIVE) || ids.is_empty()) {
        return Err(Errno::EPERM);
    }
    let flags = InitFlags::from_bits(raw).ok_or(Errno::EINVAL)?;
    let class = flags & InitFlags::CLASSES;
    let both = InitFlags::REPORT_PIDFD | InitFlags::REPORT_TID;
    let names_without_directory =
        ids.contains(InitFlags::REPORT_NAME) && !ids.contains(InitFlags::REPORT_DIR_FID);
    let names_and_files = InitFlags::REPORT_NAME | InitFlags::REPORT_FID;
    let targets_without_names =
        ids.contains(InitFlags::REPORT_TARGET_FID) && !ids.contains(names_and_files);
    if flags.contains(both)
        || event_flags & !(EVENT_FLAGS.bits() | OpenFlags::ACCESS_MODE) != 0
        || event_flags & OpenFlags::ACCESS_MODE == OpenFlags::ACCESS_MODE
        || (!ids.is_empty() && !class.is_empty())
        || names_without_directory
        || targets_without_names
        || class == InitFlags::CLASSES
    {
        return Err(Errno::EINVAL);
    }
    if flags.contains(InitFlags::ENABLE_AUDIT) {
        credentials.require(Capability::AuditWrite)?;
    }
    let event_flags = event_flags | OpenFlags::LARGEFILE.bits();
    let group = Group::new(flags, event_flags, credentials.user.effective, !may_administer)?;
    let permissions = Permissions { mode: 0o600, user: 0, group: 0 };
    let label = Label::Plain("anon_inode:[fanotify]");
    let location = AnonymousInode::location(NodeKind::Anonymous, label, permissions);
    let is_nonblocking = flags.contains(InitFlags::NONBLOCK);
    let mut status = OpenFlags::RDWR;
    status.set(OpenFlags::NONBLOCK, is_nonblocking);
    let file = OpenFile::new(group, location, status)?;
    install(call, file, flags.contains(InitFlags::CLOEXEC))
}

fn group_of(file: &OpenFile) -> Result<Arc<Group>, Errno> {
    let file: Arc<dyn core::any::Any + Send + Sync> = file.file().clone();
    file.downcast().map_err(|_| Errno::EINVAL)
}

/// Whether a file is the queue of a group, which `read_events` reads.
pub fn is_group(file: &OpenFile) -> bool {
    file.kind() == NodeKind::Anonymous && file.file().as_any().is::<Group>()
}

/// `fanotify_mark(group, flags, mask, directory, path)`
pub async fn fanotify_mark(call: &Call) -> SysResult {
    let flags = MarkFlags::from_bits(call.unsigned(1)).ok_or(Errno::EINVAL)?;
    let mask = u32::try_from(call.argument(2)).map_err(|_| Errno::EINVAL)?;
    let mut mask = FileEvents::from_bits(mask).ok_or(Errno::EINVAL)?;
    let command = flags & MarkFlags::COMMANDS;
    let kind = flags & MarkFlags::TYPES;
    let is_right = match command {
        MarkFlags::ADD | MarkFlags::REMOVE => !mask.is_empty(),
        MarkFlags::FLUSH => (MarkFlags::TYPES | MarkFlags::FLUSH).contains(flags),
        _ => false,
    };
    let settable = FileEvents::ALL | FileEvents::PERMISSIONS | FileEvents::OPTIONS;
    if kind == MarkFlags::TYPES
        || !is_right
        || !settable.contains(mask)
        || flags.contains(MarkFlags::IGNORES)
    {
        return Err(Errno::EINVAL);
    }
    let mut weightless = FileEvents::empty();
    if flags.contains(MarkFlags::IGNORED_MASK) {
        mask -= FileEvents::OPTIONS;
        weightless = FileEvents::OPTIONS;
    }
    let file = usable(call, 0)?;
    let group = group_of(&file)?;
    let may_administer = call.thread.credentials().is_capable(Capability::Administer);
    if !kind.is_empty() && (!may_administer || group.is_unprivileged) {
        return Err(Errno::EPERM);
    }
    let without_path =
        mask - (FileEvents::WITH_PATH | FileEvents::PERMISSIONS | FileEvents::OPTIONS);
    let tells_names = group.flags.contains(InitFlags::REPORT_NAME);
    if (mask.intersects(FileEvents::PERMISSIONS) && !group.may_ask())
        || (mask.contains(FileEvents::FS_ERROR) && kind != MarkFlags::FILESYSTEM)
        || (flags.contains(MarkFlags::EVICTABLE) && !kind.is_empty())
        || (!without_path.is_empty() && (!group.tells_ids() || kind == MarkFlags::MOUNT))
        || (mask.contains(FileEvents::RENAME) && !tells_names)
    {
        return Err(Errno::EINVAL);
    }
    if command == MarkFlags::FLUSH {
        fanotify::flush(&group, kind);
        return Ok(0);
    }
    let location = find(call, flags).await?;
    let is_directory = location.inode.kind() == NodeKind::Directory;
    if command == MarkFlags::ADD {
        check_supported(&group, &location, flags, mask)?;
    }
    if group.tells_ids() && !super::handle::gives_handles(&location) {
        return Err(Errno::EOPNOTSUPP);
    }
    let is_on_entry = kind.is_empty() && !is_directory;
    let is_adding = command == MarkFlags::ADD;
    let survives = flags.contains(MarkFlags::IGNORED_SURV_MODIFY);
    if is_adding && flags.contains(MarkFlags::IGNORE) && !is_on_entry && !survives {
        return Err(if kind.is_empty() { Errno::EISDIR } else { Errno::EINVAL });
    }
    if is_on_entry || !kind.is_empty() {
        mask -= FileEvents::EVENT_ON_CHILD;
        weightless = FileEvents::EVENT_ON_CHILD;
    }
    let object = match kind {
        MarkFlags::MOUNT => Object::Mount(location.mount.id()),
        MarkFlags::FILESYSTEM => Object::FileSystem(location.mount.file_system().device()),
        _ => Object::Inode(location.inode.id()),
    };
    let change = Change { flags, mask, weightless };
    if !is_adding {
        return fanotify::remove(&group, object, change).map(|()| 0);
    }
    // What would be ignored until the next change is not while somebody may be about to change it.
    let is_brief = flags.intersects(MarkFlags::IGNORES) && !survives && kind.is_empty();
    let writers = location.inode.writers().map_or(0, |count| count.load(Ordering::Relaxed));
    if is_brief && writers > 0 {
        return Ok(0);
    }
    fanotify::add(&group, object, change).map(|()| 0)
}

/// What a mark is to be on, which the caller must be able to read.
async fn find(call: &Call, flags: MarkFlags) -> Result<Location, Errno> {
    let wants_directory = flags.contains(MarkFlags::ONLYDIR);
    let location = if call.argument(4) == 0 {
        match call.int(3) {
            AT_FDCWD => return Err(Errno::EBADF),
            _ => call.file(3)?.location().clone(),
        }
    } else {
        let follow = !flags.contains(MarkFlags::DONT_FOLLOW);
        support::resolve(call, call.int(3), 4, follow).await?.0
    };
    if wants_directory && location.inode.kind() != NodeKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    tree::check(&location.inode, &call.thread.identity(), Wanted::READ)?;
    Ok(location)
}

/// Whether a mark may ask for these events there.
fn check_supported(
    group: &Group,
    location: &Location,
    flags: MarkFlags,
    mask: FileEvents,
) -> Result<(), Errno> {
    let file_system: &Arc<dyn FileSystem> = location.mount.file_system();
    let is_anywhere = flags.intersects(MarkFlags::TYPES);
    if mask.intersects(FileEvents::PERMISSIONS) && file_system.type_name() == "proc" {
        return Err(Errno::EINVAL);
    }
    let is_hidden =
        matches!(file_system.type_name(), "pipefs" | "sockfs" | "anon_inodefs" | "nsfs");
    if is_anywhere && is_hidden {
        return Err(Errno::EINVAL);
    }
    let is_strict = group.flags.contains(InitFlags::REPORT_TARGET_FID)
        || mask.contains(FileEvents::RENAME)
        || flags.contains(MarkFlags::IGNORE);
    let of_directories = FileEvents::OF_ENTRIES | FileEvents::OPTIONS;
    let is_directory = location.inode.kind() == NodeKind::Directory;
    if is_strict && !is_anywhere && !is_directory && mask.intersects(of_directories) {
        return Err(Errno::ENOTDIR);
    }
    Ok(())
}

/// `read` of a group: as many events as fit, each with its descriptor.
///
/// # Errors
/// `EINVAL` when the first does not fit, `EAGAIN`, `ERESTARTSYS`, `EFAULT`, and what opening its file answers.
pub async fn read_events(call: &Call, file: &OpenFile, mut sink: UserSink) -> SysResult {
    let group = group_of(file)?;
    let mut turn = Turn::new();
    let mut done = 0;
    let result: Result<(), Errno> = loop {
        match group.take(sink.remaining()) {
            Ok(event) => match deliver(call, &group, event, &mut sink).await {
                Ok(count) => done += count,
                Err(error) => break Err(error),
            },
            Err(Errno::EAGAIN) if done == 0 && !file.is_nonblocking() => {
                let ready = ready_in_turn(call, file, PollEvents::READABLE, None, &mut turn);
                if let Err(NotReady::Interrupted | NotReady::TimedOut) = ready.await {
                    break Err(Errno::ERESTARTSYS);
                }
            }
            Err(error) => break Err(error),
        }
    };
    turn.end(call, file, PollEvents::READABLE);
    match result {
        Err(error) if done == 0 || error == Errno::EFAULT => Err(error),
        _ => Ok(done as u64),
    }
}

/// A descriptor that is not there before its event is read.
struct Prepared {
    reservation: Reservation,
    file: Arc<OpenFile>,
}

impl Prepared {
    fn number(&self) -> i32 {
        self.reservation.descriptor()
    }
}

/// Writes one event to its reader. A question whose event the reader does not get is denied.
async fn deliver(
    call: &Call,
    group: &Group,
    event: Event,
    sink: &mut UserSink,
) -> Result<usize, Errno> {
    let result = write_event(call, group, &event, sink).await;
    if let Some(question) = event.question {
        let descriptor = result.as_ref().ok().and_then(|(_, descriptor)| *descriptor);
        group.was_read(question, descriptor);
    }
    result.map(|(count, _)| count)
}

async fn write_event(
    call: &Call,
    group: &Group,
    event: &Event,
    sink: &mut UserSink,
) -> Result<(usize, Option<i32>), Errno> {
    let files = call.thread.files();
    let limit = descriptor_limit(call);
    let opened = match &event.about {
        About::Path(place) if !group.is_unprivileged => {
            let closes = group.event_flags & OpenFlags::CLOEXEC.bits() != 0;
            let reservation = files.reserve(closes, limit)?;
            let opening = || open_silently(&call.thread, place.clone(), group.event_flags);
            Some(Prepared { reservation, file: fs::pending::complete(opening).await? })
        }
        _ => None,
    };
    let process = event.actor.process;
    let mut pidfd = Err(NO_DESCRIPTOR);
    if group.flags.contains(InitFlags::REPORT_PIDFD) && process != 0 {
        pidfd = match table::process(Pid(process)) {
            None => Err(NO_DESCRIPTOR),
            Some(process) => {
                let made = files.reserve(true, limit).and_then(|reservation| {
                    let file = ProcessFile::open(process, OpenFlags::empty())?;
                    Ok(Prepared { reservation, file })
                });
                made.map_err(|_| PIDFD_FAILED)
            }
        };
    }
    let is_hidden = group.is_unprivileged && process != call.process().pid.0;
    let shown = if is_hidden { 0 } else { process };
    let descriptor = opened.as_ref().map(Prepared::number);
    let pidfd_number = pidfd.as_ref().map_or_else(|failed| *failed, Prepared::number);
    let bytes = event.encode(group.flags, descriptor.unwrap_or(NO_DESCRIPTOR), pidfd_number, shown);
    while !sink.write_record(&bytes) {
        sink.fault_in_next().await?;
    }
    for Prepared { reservation, file } in opened.into_iter().chain(pidfd.ok()) {
        reservation.install(file);
    }
    Ok((bytes.len(), descriptor))
}

/// Opens what an event is about for its reader, whatever the permissions; what the reader does with it is told nobody.
fn open_silently(
    thread: &Thread,
    place: Location,
    event_flags: u32,
) -> Result<Arc<OpenFile>, Errno> {
    let mut request = Request::new(event_flags, 0, 0)?;
    request.flags = OpenFlags::from_bits_retain(request.flags.bits() | OpenFlags::SILENT);
    open::open_location(place, request, &thread.identity(), thread, true)
}

/// Asks before a path is opened. What is wrong with the path, and whether the caller may open it at all, shows when it
/// is opened.
pub async fn ask_before_open(
    call: &Call,
    lookup: Lookup<'_>,
    path: &[u8],
    request: Request,
) -> Result<(), Errno> {
    let flags = request.flags;
    if !fanotify::may_ask() || flags.contains(OpenFlags::PATH) {
        return Ok(());
    }
    let is_new = flags.contains(OpenFlags::TMPFILE_BIT)
        || flags.contains(OpenFlags::CREAT | OpenFlags::EXCL);
    if is_new {
        return Ok(());
    }
    let identity: &Identity = lookup.identity;
    let follow = !flags.contains(OpenFlags::NOFOLLOW);
    let found = walk::resolve_restricted(lookup, path, follow, request.resolve);
    let Ok(place) = found else { return Ok(()) };
    if tree::check(&place.inode, identity, request.wanted()).is_err() {
        return Ok(());
    }
    questions::ask(&call.thread, &place, FileEvents::OPEN_PERM).await
}

/// Asks before a file is read.
pub async fn ask_before_read(call: &Call, file: &OpenFile) -> Result<(), Errno> {
    if !fanotify::may_ask() || file.is_silent() {
        return Ok(());
    }
    questions::ask(&call.thread, file.location(), FileEvents::ACCESS_PERM).await
}
