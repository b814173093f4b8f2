//! The file system of message queues: one directory, in which each file is a queue.
//!
//! There is one in each namespace, whoever mounts it. `mq_open` finds names in it whether it is mounted or not. Reading a
//! file gives a line that describes the queue; its messages are reached by calls of their own.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::{Arc, Weak};
use core::any::Any;
use core::ops::Bound;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use abi::fs::{OpenFlags, PollEvents};
use base::heap::tree;
use base::io::Sink;
use base::sync::{Mutex, rank};
use fs::file::{File, OpenFile, Transfer, seek_in};
use fs::inode::{
    AttributeChange, DirectoryEntry, FileSystem, FileSystemStatistics, Inode, NewContent, NewNode,
    Place, anonymous_device,
};
use fs::metadata::{InodeId, Metadata, NodeKind, Permissions, Timestamp};
use fs::mount::Mount;
use fs::poll::{PollTable, register};
use fs::{Identity, Location};

use super::Account;
use super::queue::Queue;
use crate::ipc::limits::Limits;
use crate::process::credentials::{Capability, Credentials};

/// Magic number of the file system, for `statfs`.
const MAGIC: i64 = 0x1980_0202;
/// Size that `stat` shows of a queue.
const STATUS_SIZE: u64 = 80;
/// What even the privileged may not exceed.
const MOST_MESSAGES: u64 = 65_536;
const MOST_BYTES: u64 = 16 << 20;
/// Bytes that the queues of a user may take when they are made by other means than `mq_open`.
const DEFAULT_LIMIT: u64 = 819_200;
/// Longest name.
const NAME_MAX: usize = 255;

/// The size of a new queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Most messages.
    pub messages: i64,
    /// Most bytes of a message.
    pub bytes: i64,
}

/// Who makes a queue, and how large.
pub struct Maker {
    attributes: Option<Attributes>,
    user: u32,
    /// Bytes that the user's queues may take.
    limit: u64,
    /// The limits of the system do not hold.
    is_privileged: bool,
}

impl Maker {
    /// One who makes queues by `mq_open`. `limit` is the bytes that the user's queues may take.
    pub fn new(attributes: Option<Attributes>, credentials: &Credentials, limit: u64) -> Maker {
        Maker {
            attributes,
            user: credentials.user.real,
            limit,
            is_privileged: credentials.is_capable(Capability::Resource),
        }
    }

    /// Makes a queue.
    fn make(&self, limits: &Limits, count: &Arc<AtomicU64>) -> Result<Queue, Errno> {
        let is_full = count.load(Ordering::Relaxed) >= limits.mq_queues_max.get();
        if is_full && !self.is_privileged {
            return Err(Errno::ENOSPC);
        }
        let (most_messages, most_bytes) = (limits.mq_msg_max.get(), limits.mq_msgsize_max.get());
        let (messages, bytes) = match self.attributes {
            None => (
                limits.mq_msg_default.get().min(most_messages),
                limits.mq_msgsize_default.get().min(most_bytes),
            ),
            Some(Attributes { messages, bytes }) => {
                let positive = |value: i64| u64::try_from(value).ok().filter(|value| *value > 0);
                let messages = positive(messages).ok_or(Errno::EINVAL)?;
                let bytes = positive(bytes).ok_or(Errno::EINVAL)?;
                let (most_messages, most_bytes) = if self.is_privileged {
                    (MOST_MESSAGES, MOST_BYTES)
                } else {
                    (most_messages, most_bytes)
                };
                if messages > most_messages || bytes > most_bytes {
                    return Err(Errno::EINVAL);
                }
                (messages, bytes)
            }
        };
        let account = Account::open(self.user, messages, bytes, self.limit, count)?;
        Ok(Queue::new(messages, bytes, account))
    }
}

/// The file system.
struct QueueFs {
    device: u64,
    root: Arc<Root>,
}

/// Its directory.
struct Root {
    id: InodeId,
    born: Timestamp,
    state: Mutex<Names>,
    next_number: AtomicU64,
    /// Those of the namespace, and how many queues it has.
    limits: Arc<Limits>,
    count: Arc<AtomicU64>,
    me: Weak<Root>,
}

struct Names {
    permissions: Permissions,
    /// By name; the number of the inode is the cursor of a listing.
    queues: BTreeMap<Arc<[u8]>, Arc<QueueInode>>,
}

/// The inode of one queue.
struct QueueInode {
    id: InodeId,
    born: Timestamp,
    name: Arc<[u8]>,
    directory: Weak<Root>,
    permissions: Mutex<Permissions>,
    queue: Arc<Queue>,
}

/// An open queue.
pub struct QueueFile {
    /// The queue.
    pub queue: Arc<Queue>,
}

/// The message queues of one namespace.
pub struct Files {
    file_system: Arc<QueueFs>,
    /// A mount that nobody sees.
    mount: Arc<Mount>,
}

impl Files {
    /// None, with these limits.
    pub fn new(limits: Arc<Limits>) -> Files {
        let device = anonymous_device();
        let permissions = Permissions { mode: 0o1777, user: 0, group: 0 };
        let root = Arc::new_cyclic(|me| Root {
            id: InodeId { device, number: 1 },
            born: Timestamp::now(),
            state: Mutex::new(&rank::INODE, Names { permissions, queues: BTreeMap::new() }),
            next_number: AtomicU64::new(2),
            limits,
            count: Arc::default(),
            me: me.clone(),
        });
        let file_system = Arc::new(QueueFs { device, root });
        let mount = Mount::detached(file_system.clone(), "mqueue", 0);
        Files { file_system, mount }
    }

    /// The file system; the same for every mount.
    pub fn file_system(&self) -> Arc<dyn FileSystem> {
        self.file_system.clone()
    }

    /// The directory, on the mount that nobody sees.
    pub fn directory(&self) -> Location {
        Location::root_of(&self.mount)
    }
}

/// The name that `mq_open` and `mq_unlink` take.
///
/// # Errors
/// `ENOENT` when it is empty, `EACCES` when it is no name of a file, `ENAMETOOLONG`.
pub fn check_name(name: &[u8]) -> Result<(), Errno> {
    match name {
        b"" => Err(Errno::ENOENT),
        b"." | b".." => Err(Errno::EACCES),
        name if name.contains(&b'/') => Err(Errno::EACCES),
        name if name.len() > NAME_MAX => Err(Errno::ENAMETOOLONG),
        _ => Ok(()),
    }
}

impl Files {
    /// `mq_open`: the queue of a name, made by `maker` if the flags say so.
    ///
    /// # Errors
    /// Those of `mq_open`.
    pub fn open(
        &self,
        name: &[u8],
        flags: OpenFlags,
        mode: u32,
        maker: &Maker,
        identity: &Identity,
    ) -> Result<Arc<OpenFile>, Errno> {
        check_name(name)?;
        let at = self.directory();
        let root = &self.file_system.root;
        let inode: Arc<dyn Inode> = loop {
            if let Ok(found) = root.lookup(name) {
                if flags.contains(OpenFlags::CREAT | OpenFlags::EXCL) {
                    return Err(Errno::EEXIST);
                }
                let wanted = match flags.bits() & OpenFlags::ACCESS_MODE {
                    0 => fs::metadata::Wanted::READ,
                    1 => fs::metadata::Wanted::WRITE,
                    2 => fs::metadata::Wanted::READ.and(fs::metadata::Wanted::WRITE),
                    _ => return Err(Errno::EINVAL),
                };
                fs::tree::check(&found, identity, wanted)?;
                break found;
            }
            if !flags.contains(OpenFlags::CREAT) {
                return Err(Errno::ENOENT);
            }
            let wanted = fs::metadata::Wanted::WRITE.and(fs::metadata::Wanted::EXECUTE);
            fs::tree::check(&at.inode, identity, wanted)?;
            let permissions = Permissions { mode, user: identity.user, group: identity.group };
            match root.add(name, permissions, maker) {
                // Somebody else was faster: look again.
                Err(Errno::EEXIST) => {}
                result => break result?,
            }
        };
        let file = inode.open(flags, identity)?.ok_or(Errno::ENXIO)?;
        OpenFile::new(file, Location { mount: at.mount, inode }, flags)
    }
}

impl Root {
    fn add(
        &self,
        name: &[u8],
        permissions: Permissions,
        maker: &Maker,
    ) -> Result<Arc<QueueInode>, Errno> {
        let queue = Arc::new(maker.make(&self.limits, &self.count)?);
        let mut names = self.state.lock();
        if names.queues.contains_key(name) {
            drop(names);
            return Err(Errno::EEXIST);
        }
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let name: Arc<[u8]> = Arc::from(name);
        let inode = Arc::new(QueueInode {
            id: InodeId { device: self.id.device, number },
            born: Timestamp::now(),
            name: name.clone(),
            directory: self.me.clone(),
            permissions: Mutex::new(&rank::IPC_OBJECT, permissions),
            queue,
        });
        tree::insert(&mut names.queues, name, inode.clone());
        Ok(inode)
    }

    /// The queue with the lowest inode number above one.
    fn next_above(&self, number: u64) -> Option<Arc<QueueInode>> {
        let names = self.state.lock();
        let above = (Bound::Excluded(number), Bound::Unbounded);
        let later = names
            .queues
            .values()
            .filter(|inode| core::ops::RangeBounds::contains(&above, &inode.id.number));
        later.min_by_key(|inode| inode.id.number).cloned()
    }
}

fn change(permissions: &mut Permissions, change: &AttributeChange) {
    permissions.mode = change.mode.unwrap_or(permissions.mode);
    permissions.user = change.user.unwrap_or(permissions.user);
    permissions.group = change.group.unwrap_or(permissions.group);
}

impl FileSystem for QueueFs {
    fn type_name(&self) -> &'static str {
        "mqueue"
    }

    fn device(&self) -> u64 {
        self.device
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }

    fn statistics(&self) -> FileSystemStatistics {
        FileSystemStatistics {
            magic: MAGIC,
            block_size: 4096,
            blocks: 0,
            free_blocks: 0,
            inodes: 0,
            free_inodes: 0,
        }
    }
}

impl Inode for Root {
    fn id(&self) -> InodeId {
        self.id
    }

    fn kind(&self) -> NodeKind {
        NodeKind::Directory
    }

    fn metadata(&self) -> Metadata {
        let permissions = self.state.lock().permissions;
        let simple = Metadata::simple(self.id, NodeKind::Directory, 0, self.born);
        Metadata { permissions, links: 2, ..simple }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn set_attributes(&self, new: &AttributeChange) -> Result<(), Errno> {
        change(&mut self.state.lock().permissions, new);
        Ok(())
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>, Errno> {
        let found = self.state.lock().queues.get(name).cloned();
        found.map(|inode| inode as Arc<dyn Inode>).ok_or(Errno::ENOENT)
    }

    fn create(&self, name: &[u8], new: &NewNode<'_>) -> Result<Arc<dyn Inode>, Errno> {
        if !matches!(new.content, NewContent::Regular) {
            return Err(Errno::EPERM);
        }
        let maker =
            Maker { attributes: None, user: new.user, limit: DEFAULT_LIMIT, is_privileged: false };
        let permissions = Permissions { mode: new.mode, user: new.user, group: new.group };
        Ok(self.add(name, permissions, &maker)?)
    }

    fn unlink(&self, name: &[u8], expected: InodeId) -> Result<(), Errno> {
        let removed = {
            let mut names = self.state.lock();
            match names.queues.get(name) {
                None => return Err(Errno::ENOENT),
                Some(inode) if inode.id != expected => return Err(Errno::ESTALE),
                Some(_) => names.queues.remove(name),
            }
        };
        drop(removed);
        Ok(())
    }

    fn read_directory(
        &self,
        cursor: u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        let dots: [&[u8]; 2] = [b".", b".."];
        for (next, name) in (1..).zip(dots) {
            let entry =
                DirectoryEntry { name, number: self.id.number, kind: NodeKind::Directory, next };
            if cursor < next && !emit(entry) {
                return Ok(());
            }
        }
        // Inode numbers begin at 2; the cursor of an entry is its number and one.
        let mut last = cursor.saturating_sub(1).max(1);
        while let Some(inode) = self.next_above(last) {
            last = inode.id.number;
            let entry = DirectoryEntry {
                name: &inode.name,
                number: last,
                kind: NodeKind::Regular,
                next: last + 1,
            };
            if !emit(entry) {
                break;
            }
        }
        Ok(())
    }
}

impl Inode for QueueInode {
    fn id(&self) -> InodeId {
        self.id
    }

    fn kind(&self) -> NodeKind {
        NodeKind::Regular
    }

    fn metadata(&self) -> Metadata {
        let permissions = *self.permissions.lock();
        let is_linked = self.place().is_some_and(|place| !place.removed);
        Metadata {
            permissions,
            size: STATUS_SIZE,
            links: u64::from(is_linked),
            ..Metadata::simple(self.id, NodeKind::Regular, 0, self.born)
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn set_attributes(&self, new: &AttributeChange) -> Result<(), Errno> {
        change(&mut self.permissions.lock(), new);
        Ok(())
    }

    fn place(&self) -> Option<Place> {
        let directory = self.directory.upgrade()?;
        let removed = {
            let names = directory.state.lock();
            names.queues.get(&self.name).is_none_or(|inode| inode.id != self.id)
        };
        Some(Place { parent: directory, name: self.name.clone(), removed })
    }

    fn truncate(&self, _size: u64) -> Result<(), Errno> {
        Ok(())
    }

    fn open(
        &self,
        _flags: OpenFlags,
        _identity: &Identity,
    ) -> Result<Option<Arc<dyn File>>, Errno> {
        Ok(Some(Arc::new(QueueFile { queue: self.queue.clone() })))
    }
}

impl File for QueueFile {
    fn read(&self, offset: u64, sink: &mut dyn Sink, _: Transfer) -> Result<usize, Errno> {
        let (bytes, told) = self.queue.describe();
        let (kind, signal, process) = match told {
            Some((true, signal, process)) => (0, signal, process),
            Some((false, signal, process)) => (1, signal, process),
            None => (0, 0, 0),
        };
        let line = format!(
            "QSIZE:{bytes:<10} NOTIFY:{kind:<5} SIGNO:{signal:<5} NOTIFY_PID:{process:<6}\n"
        );
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = line.as_bytes().get(start..).unwrap_or_default();
        let wanted = rest.len().min(sink.remaining());
        Ok(sink.write(rest.get(..wanted).unwrap_or_default()))
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn seek(&self, position: u64, offset: i64, whence: i32) -> Result<u64, Errno> {
        seek_in(STATUS_SIZE, position, offset, whence)
    }

    fn poll(&self, events: PollEvents, table: Option<&mut PollTable<'_>>) -> PollEvents {
        register(table, &self.queue.readiness);
        let count = self.queue.count();
        let mut ready = PollEvents::empty();
        if count > 0 {
            ready |= PollEvents::READABLE;
        }
        if count < self.queue.most_messages {
            ready |= PollEvents::WRITABLE;
        }
        ready & events
    }

    fn descriptor_closed(&self, table: u64) {
        self.queue.descriptor_closed(table);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
