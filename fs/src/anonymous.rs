//! Inodes that are in no directory: what is behind pipes and other objects that a call makes.
//!
//! They live on one invisible mount, so that every open file has a location.

use crate::file::File;
use crate::identity::Identity;
use crate::inode::{AttributeChange, FileSystem, FileSystemStatistics, Inode, anonymous_device};
use crate::metadata::{InodeId, Metadata, NodeKind, Permissions, Timestamp};
use crate::mount::{Location, Mount};
use crate::pipe::Pipe;
use abi::Errno;
use abi::fs::{ANON_INODE_FS_MAGIC, NSFS_MAGIC, OpenFlags, PIPEFS_MAGIC, SOCKFS_MAGIC};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use base::sync::{Mutex, Once, rank};
use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};

/// How an anonymous inode is shown in `/proc/PID/fd`.
#[derive(Clone, Copy, Debug)]
pub enum Label {
    /// `name:[number]`.
    Numbered(&'static str),
    /// As it is.
    Plain(&'static str),
}

/// What opening an anonymous inode once more gives, through `/proc/PID/fd`.
enum Behaviour {
    /// Nothing (`ENXIO`).
    None,
    /// One more end of the pipe.
    Pipe(Arc<Pipe>),
    /// The same behaviour.
    Shared(Arc<dyn File>),
}

/// An inode without a name.
pub struct AnonymousInode {
    id: InodeId,
    kind: NodeKind,
    label: Label,
    born: Timestamp,
    behaviour: Behaviour,
    /// What `fchmod` and `fchown` can change.
    permissions: Mutex<Permissions>,
}

struct AnonymousFs {
    type_name: &'static str,
    magic: i64,
    device: u64,
}

impl FileSystem for AnonymousFs {
    fn type_name(&self) -> &'static str {
        self.type_name
    }

    fn device(&self) -> u64 {
        self.device
    }

    fn root(&self) -> Arc<dyn Inode> {
        AnonymousInode::make(
            InodeId { device: self.device, number: 1 },
            NodeKind::Directory,
            Label::Plain("/"),
            Behaviour::None,
            Permissions { mode: 0o500, user: 0, group: 0 },
        )
    }

    fn statistics(&self) -> FileSystemStatistics {
        FileSystemStatistics {
            magic: self.magic,
            block_size: 4096,
            blocks: 0,
            free_blocks: 0,
            inodes: 0,
            free_inodes: 0,
        }
    }
}

struct Home {
    mount: Arc<Mount>,
    next_number: AtomicU64,
}

static PIPES: Once<Home> = Once::new();
static SOCKETS: Once<Home> = Once::new();
static NAMESPACES: Once<Home> = Once::new();
static OTHERS: Once<Home> = Once::new();

/// Which of the invisible file systems.
#[derive(Clone, Copy)]
enum Which {
    Pipes,
    Sockets,
    Namespaces,
    Others,
}

fn home(which: Which) -> &'static Home {
    let (home, type_name, magic) = match which {
        Which::Pipes => (&PIPES, "pipefs", PIPEFS_MAGIC),
        Which::Sockets => (&SOCKETS, "sockfs", SOCKFS_MAGIC),
        Which::Namespaces => (&NAMESPACES, "nsfs", NSFS_MAGIC),
        Which::Others => (&OTHERS, "anon_inodefs", ANON_INODE_FS_MAGIC),
    };
    home.call_once(|| {
        let file_system = Arc::new(AnonymousFs { type_name, magic, device: anonymous_device() });
        Home { mount: Mount::detached(file_system, type_name, 0), next_number: AtomicU64::new(2) }
    })
}

impl AnonymousInode {
    fn make(
        id: InodeId,
        kind: NodeKind,
        label: Label,
        behaviour: Behaviour,
        permissions: Permissions,
    ) -> Arc<AnonymousInode> {
        Arc::new(AnonymousInode {
            id,
            kind,
            label,
            born: Timestamp::now(),
            behaviour,
            permissions: Mutex::new(&rank::INODE, permissions),
        })
    }

    /// The location of a new inode without a name, which cannot be opened once more.
    pub fn location(kind: NodeKind, label: Label, permissions: Permissions) -> Location {
        AnonymousInode::place(kind, label, permissions, Behaviour::None)
    }

    /// The location of a new inode without a name that gives `file` when it is opened once more.
    pub fn location_of(
        file: Arc<dyn File>,
        kind: NodeKind,
        label: Label,
        permissions: Permissions,
    ) -> Location {
        AnonymousInode::place(kind, label, permissions, Behaviour::Shared(file))
    }

    fn place(
        kind: NodeKind,
        label: Label,
        permissions: Permissions,
        behaviour: Behaviour,
    ) -> Location {
        let home = home(Which::Others);
        let number = home.next_number.fetch_add(1, Ordering::Relaxed);
        let id = InodeId { device: home.mount.file_system().device(), number };
        let inode = AnonymousInode::make(id, kind, label, behaviour, permissions);
        Location { mount: home.mount.clone(), inode }
    }

    /// The location of a namespace's file, which has the number of the namespace.
    pub fn namespace_location(file: Arc<dyn File>, kind: &'static str, number: u64) -> Location {
        let home = home(Which::Namespaces);
        let id = InodeId { device: home.mount.file_system().device(), number };
        let permissions = Permissions { mode: 0o444, user: 0, group: 0 };
        let (label, behaviour) = (Label::Numbered(kind), Behaviour::Shared(file));
        let inode = AnonymousInode::make(id, NodeKind::Regular, label, behaviour, permissions);
        Location { mount: home.mount.clone(), inode }
    }

    /// The location of a new pipe.
    pub fn pipe_location(pipe: Arc<Pipe>, user: u32, group: u32) -> Location {
        let home = home(Which::Pipes);
        let number = home.next_number.fetch_add(1, Ordering::Relaxed);
        let id = InodeId { device: home.mount.file_system().device(), number };
        let permissions = Permissions { mode: 0o600, user, group };
        let label = Label::Numbered("pipe");
        let inode =
            AnonymousInode::make(id, NodeKind::Fifo, label, Behaviour::Pipe(pipe), permissions);
        Location { mount: home.mount.clone(), inode }
    }
}

impl AnonymousInode {
    /// The location of a new socket.
    pub fn socket_location(user: u32, group: u32) -> Location {
        let home = home(Which::Sockets);
        let number = home.next_number.fetch_add(1, Ordering::Relaxed);
        let id = InodeId { device: home.mount.file_system().device(), number };
        let permissions = Permissions { mode: 0o777, user, group };
        let label = Label::Numbered("socket");
        let inode = AnonymousInode::make(id, NodeKind::Socket, label, Behaviour::None, permissions);
        Location { mount: home.mount.clone(), inode }
    }
}

impl Inode for AnonymousInode {
    fn id(&self) -> InodeId {
        self.id
    }

    fn kind(&self) -> NodeKind {
        self.kind
    }

    fn metadata(&self) -> Metadata {
        Metadata {
            permissions: *self.permissions.lock(),
            ..Metadata::simple(self.id, self.kind, 0, self.born)
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn set_attributes(&self, change: &AttributeChange) -> Result<(), Errno> {
        let mut permissions = self.permissions.lock();
        permissions.mode = change.mode.unwrap_or(permissions.mode);
        permissions.user = change.user.unwrap_or(permissions.user);
        permissions.group = change.group.unwrap_or(permissions.group);
        Ok(())
    }

    fn label(&self) -> Option<String> {
        Some(match self.label {
            Label::Numbered(name) => format!("{name}:[{}]", self.id.number),
            Label::Plain(name) => String::from(name),
        })
    }

    fn open(&self, flags: OpenFlags, _: &Identity) -> Result<Option<Arc<dyn File>>, Errno> {
        match &self.behaviour {
            Behaviour::Pipe(pipe) => Ok(Some(pipe.open_again(flags))),
            Behaviour::Shared(file) => Ok(Some(file.clone())),
            Behaviour::None => Err(Errno::ENXIO),
        }
    }
}
