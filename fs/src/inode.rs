//! What every file system offers: the trait of its objects, and of itself.
//!
//! An inode checks neither permissions nor read-only mounts: `walk`, `tree` and `open` do that once
//! for all file systems. It does keep its own invariants: names are unique, directories are removed
//! only when empty, no directory becomes its own descendant.

use crate::file::File;
use crate::identity::Identity;
use crate::metadata::{InodeId, Metadata, NodeKind, Permissions, Timestamp};
use crate::mount::Location;
use abi::Errno;
use abi::fs::{AllocateFlags, RenameFlags, Seals, XattrFlags};
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use base::io::{Sink, Source};
use base::memory::Frame;
use base::sync::{RwLock, rank};
use core::any::Any;
use core::ops::Range;
use core::sync::atomic::AtomicI32;

/// What a new inode shall be.
#[derive(Clone, Debug)]
pub struct NewNode<'a> {
    /// Kind, with what the kind needs.
    pub content: NewContent<'a>,
    /// Permission bits, the caller's mask already applied.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
}

/// Content of a new inode.
#[derive(Clone, Copy, Debug)]
pub enum NewContent<'a> {
    /// An empty file.
    Regular,
    /// An empty directory.
    Directory,
    /// A symbolic link with this target.
    Symlink(&'a [u8]),
    /// A character device.
    CharacterDevice(u64),
    /// A block device.
    BlockDevice(u64),
    /// A named pipe.
    Fifo,
    /// A named socket.
    Socket,
}

impl NewContent<'_> {
    /// The kind of the inode.
    pub const fn kind(&self) -> NodeKind {
        match self {
            NewContent::Regular => NodeKind::Regular,
            NewContent::Directory => NodeKind::Directory,
            NewContent::Symlink(_) => NodeKind::Symlink,
            NewContent::CharacterDevice(_) => NodeKind::CharacterDevice,
            NewContent::BlockDevice(_) => NodeKind::BlockDevice,
            NewContent::Fifo => NodeKind::Fifo,
            NewContent::Socket => NodeKind::Socket,
        }
    }
}

/// A change of attributes; what is `None` stays. The change time becomes the present.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttributeChange {
    /// New permission bits.
    pub mode: Option<u32>,
    /// New owner.
    pub user: Option<u32>,
    /// New group.
    pub group: Option<u32>,
    /// New time of last access.
    pub accessed: Option<Timestamp>,
    /// New time of last change of content.
    pub modified: Option<Timestamp>,
    /// Which of the two are the present: it is another one when the change is asked for again.
    pub is_now: [bool; 2],
}

/// Where an inode was last linked.
#[derive(Clone)]
pub struct Place {
    /// The directory.
    pub parent: Arc<dyn Inode>,
    /// The name in it.
    pub name: Arc<[u8]>,
    /// The name is gone.
    pub removed: bool,
}

/// A write that went on behind its writer's back, and was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostWrite {
    /// How many were lost until this one.
    pub count: u64,
    /// The descriptions with numbers below this one were there.
    pub before: u64,
    /// Why.
    pub error: Errno,
}

/// What a file system has cached, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Cached.
    pub pages: u64,
    /// Of these, written to and not yet on their way.
    pub dirty: u64,
    /// On their way.
    pub writeback: u64,
}

/// One entry of a directory, as `getdents64` gives it.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryEntry<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Inode number.
    pub number: u64,
    /// Kind of the inode.
    pub kind: NodeKind,
    /// Cursor from which the entries after this one can be read.
    pub next: u64,
}

/// Where a symbolic link leads.
pub enum LinkTarget {
    /// To a path, relative to the directory that holds the link.
    Path(Vec<u8>),
    /// Straight to a place (links such as `/proc/self/fd/0`).
    Place(Location),
}

/// An object on a file system. See the methods' defaults for what each kind must provide.
///
/// A method that returns a `Result` may answer `EIOCBQUEUED` (see `pending`): it needs I/O first, and has
/// changed nothing yet.
///
/// Methods of one inode may be called from several cores at once; each is atomic unless it says
/// otherwise.
pub trait Inode: Send + Sync + Any {
    /// Which inode it is.
    fn id(&self) -> InodeId;
    /// What it is; never changes.
    fn kind(&self) -> NodeKind;
    /// A snapshot of all attributes.
    fn metadata(&self) -> Metadata;
    /// Brings what `metadata` tells up to date where others than this kernel change it.
    fn refresh(&self) -> Result<(), Errno> {
        Ok(())
    }
    /// The last write that was lost.
    fn lost_write(&self) -> Option<LostWrite> {
        None
    }
    /// Drops what is cached of these pages, as far as it is elsewhere too.
    fn drop_cached(&self, _pages: Range<u64>) {}
    /// What offsets and lengths of transfers past the cache (`O_DIRECT`) have to be multiples of, in bytes;
    /// `None` where there are none.
    fn direct_unit(&self) -> Option<u32> {
        None
    }
    /// Waits until what was written is where it is kept. An error that a write met is told once.
    fn sync(&self) -> Result<(), Errno> {
        Ok(())
    }
    /// Who may do what.
    fn permissions(&self) -> Permissions {
        self.metadata().permissions
    }
    /// Whether it tells of the very process that acts, which may then use it whatever the permission
    /// bits say.
    fn is_of_caller(&self, _identity: &Identity) -> bool {
        false
    }
    /// The inode as its concrete type.
    fn as_any(&self) -> &dyn Any;

    /// Changes attributes.
    fn set_attributes(&self, _change: &AttributeChange) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }
    /// Notes an access for the access time: `always`, or as the mount option `relatime` says.
    fn note_access(&self, _always: bool) {}
    /// Notes that its content changes through a mapping.
    fn note_write(&self) {}
    /// Which inode the pages belong to that `page` gives.
    fn content_id(&self) -> InodeId {
        self.id()
    }
    /// Whether pages of shared mappings have to be announced by `page_written` before they are written to.
    fn tracks_writes(&self) -> bool {
        false
    }
    /// A page may be written to through a shared mapping until `mapped::protect` is told otherwise. False
    /// when the frame is not the page's any more.
    fn page_written(&self, _index: u64, _frame: &Frame) -> Result<bool, Errno> {
        Ok(true)
    }
    /// A shared mapping that could write is gone.
    fn mapping_ended(&self) {}
    /// The text that stands for it where it has no path, such as `pipe:[17]`.
    fn label(&self) -> Option<String> {
        None
    }

    /// The directory that holds this directory; `None` at the root of a file system.
    fn parent(&self) -> Option<Arc<dyn Inode>> {
        None
    }
    /// The directory and the name under which the inode was last linked; `None` when it never had a
    /// name or the file system does not know.
    fn place(&self) -> Option<Place> {
        None
    }
    /// Directory: the inode of a name (never `.` or `..`). `ENOENT` when there is none.
    fn lookup(&self, _name: &[u8]) -> Result<Arc<dyn Inode>, Errno> {
        Err(Errno::ENOTDIR)
    }
    /// Directory: makes a new inode. `EEXIST` when the name is taken.
    fn create(&self, _name: &[u8], _new: &NewNode<'_>) -> Result<Arc<dyn Inode>, Errno> {
        Err(Errno::EPERM)
    }
    /// Directory: makes a new inode without a name, which may be given one when it is linkable.
    fn create_nameless(
        &self,
        _new: &NewNode<'_>,
        _is_linkable: bool,
    ) -> Result<Arc<dyn Inode>, Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Directory: gives an inode of the same file system one more name.
    fn link(&self, _name: &[u8], _target: &Arc<dyn Inode>) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }
    /// Directory: removes the name of something that is not a directory. `ESTALE` when the name is
    /// not that of `expected` any more: look again.
    fn unlink(&self, _name: &[u8], _expected: InodeId) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }
    /// Directory: removes an empty directory. `ESTALE` as for `unlink`.
    fn remove_directory(&self, _name: &[u8], _expected: InodeId) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }
    /// Directory: moves `old` to `new` in `to`, a directory of the same file system, and replaces
    /// what is there as `rename` says. `moved` and `replaced` are what the caller found under both
    /// names; `ESTALE` when they are not any more.
    fn rename(
        &self,
        _old: &[u8],
        _moved: InodeId,
        _to: &Arc<dyn Inode>,
        _new: &[u8],
        _replaced: Option<InodeId>,
        _flags: RenameFlags,
    ) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }
    /// Directory: gives the entries after `cursor` (0: from the start, `.` and `..` included) to
    /// `emit` until it returns false. An entry that exists all the while is given exactly once,
    /// whatever else happens to the directory.
    fn read_directory(
        &self,
        _cursor: u64,
        _emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        Err(Errno::ENOTDIR)
    }

    /// Symbolic link: its text.
    fn read_link(&self, _identity: &Identity) -> Result<Vec<u8>, Errno> {
        Err(Errno::EINVAL)
    }
    /// Symbolic link: where it leads.
    fn follow_link(&self, identity: &Identity) -> Result<LinkTarget, Errno> {
        self.read_link(identity).map(LinkTarget::Path)
    }

    /// Regular file: moves bytes from `offset` on into the sink; 0 at the end of the file.
    fn read_at(&self, _offset: u64, _sink: &mut dyn Sink) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }
    /// Regular file: moves bytes from the source to `offset` on; the file grows as needed.
    fn write_at(&self, _offset: u64, _source: &mut dyn Source) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }
    /// Regular file: as `write_at` the end, atomically. Gives where the bytes went, and how many.
    fn append(&self, _source: &mut dyn Source) -> Result<(u64, usize), Errno> {
        Err(Errno::EINVAL)
    }
    /// Regular file: sets the size; what is added reads as zeros.
    fn truncate(&self, _size: u64) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }
    /// Regular file: reserves, punches or zeroes a range, as `fallocate`, or a part of it: gives how many
    /// bytes of it are done. The caller goes on behind them; the size grows when all is done. Pages that
    /// are made for it are added to `made`, also when there is an error, so that they can be given back.
    fn allocate(
        &self,
        _flags: AllocateFlags,
        _offset: u64,
        _length: u64,
        _made: &mut Vec<Range<u64>>,
    ) -> Result<u64, Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Gives pages back that `allocate` has made, as far as nobody has written to them since or maps them.
    fn give_back(&self, _pages: Range<u64>) {}
    /// Regular file: the first data (or hole, when `hole`) at or after an offset. `ENXIO` when there
    /// is none or the offset is at or past the end.
    fn seek_content(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        let size = self.metadata().size;
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        Ok(if hole { size } else { offset })
    }
    /// Regular file: the frame that holds page `index`, shared with the page cache: what is written
    /// to it is in the file. `EFAULT` when the page lies past the end; `ENODEV` when the file cannot
    /// be mapped.
    fn page(&self, _index: u64) -> Result<Frame, Errno> {
        Err(Errno::ENODEV)
    }
    /// Regular file: fills the empty slots of `into` with the frames of the pages from `first` on,
    /// as `page` would give them, where they are in memory already.
    fn pages_present(&self, _first: u64, _into: &mut [Option<Frame>]) {}
    /// Its extended attributes; `None` where the file system keeps none.
    fn extended(&self) -> Option<&dyn ExtendedAttributes> {
        None
    }
    /// Regular file that takes seals: which it has.
    fn seals(&self) -> Option<Seals> {
        None
    }
    /// Regular file that takes seals: adds some. `EBUSY` when writing would be sealed off while the
    /// file is mapped for shared writing.
    fn add_seals(&self, _seals: Seals) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }
    /// Regular file that takes seals: the count of its mappings for shared writing; negative once
    /// writing is sealed off.
    fn writable_mappings(&self) -> Option<&AtomicI32> {
        None
    }
    /// Regular file that can be executed: the count of its writers, or minus the count of those who
    /// deny writing.
    fn writers(&self) -> Option<&AtomicI32> {
        None
    }

    /// What opening on behalf of somebody does for anything but regular files, directories and device
    /// nodes: FIFOs, and pseudo-files. `None`: the ordinary behaviour of the kind.
    fn open(
        &self,
        _flags: abi::fs::OpenFlags,
        _identity: &Identity,
    ) -> Result<Option<Arc<dyn File>>, Errno> {
        Ok(None)
    }
}

impl core::fmt::Debug for dyn Inode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Inode({:?}, {:?})", self.id(), self.kind())
    }
}

/// The extended attributes of one inode, wherever its file system keeps them. Nothing is checked.
pub trait ExtendedAttributes {
    /// The value of a name. `ENODATA` when there is none.
    fn get(&self, name: &[u8]) -> Result<Arc<[u8]>, Errno>;
    /// Gives a name a value, or takes the name away. `EEXIST` and `ENODATA` as the flags say.
    fn set(&self, name: &[u8], value: Option<&[u8]>, flags: XattrFlags) -> Result<(), Errno>;
    /// Calls `see` with each name, in order.
    fn for_each_name(&self, see: &mut dyn FnMut(&[u8])) -> Result<(), Errno>;
}

/// Numbers of a file system, as `statfs` gives them.
#[derive(Clone, Copy, Debug)]
pub struct FileSystemStatistics {
    /// Magic number of its type.
    pub magic: i64,
    /// Size of a block, in bytes.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
}

/// A file system.
pub trait FileSystem: Send + Sync {
    /// Its type, as in `/proc/filesystems`.
    fn type_name(&self) -> &'static str;
    /// Its device number, unique among all file systems.
    fn device(&self) -> u64;
    /// Its root directory.
    fn root(&self) -> Arc<dyn Inode>;
    /// Its numbers.
    fn statistics(&self) -> FileSystemStatistics;
    /// Brings what `statistics` tells up to date, as `Inode::refresh`.
    fn refresh(&self) -> Result<(), Errno> {
        Ok(())
    }
    /// Waits until everything that was written is where it is kept.
    fn sync(&self) -> Result<(), Errno> {
        Ok(())
    }
    /// Writes everything and ends; nothing may be asked for afterwards. Called when its last mount is gone.
    fn close(&self) -> Result<(), Errno> {
        Ok(())
    }
    /// Whether it takes no changes, through whatever mount.
    fn is_read_only(&self) -> bool {
        false
    }
    /// Changes are refused from now on, or not any more.
    fn set_read_only(&self, _is_read_only: bool) -> Result<(), Errno> {
        Ok(())
    }
    /// What is cached of files that are kept elsewhere.
    fn cached(&self) -> CacheCounts {
        CacheCounts::default()
    }
    /// Begins to write back what was written through mappings.
    fn write_back(&self) {}
    /// Drops what is cached of contents and is elsewhere too.
    fn drop_cached(&self) {}
    /// Options for `/proc/mounts`, each with a leading comma.
    fn options(&self) -> String {
        String::new()
    }
    /// Changes options by a remount.
    fn remount(&self, _options: &str) -> Result<(), Errno> {
        Ok(())
    }
}

/// A device number for a file system that has no device.
pub fn anonymous_device() -> u64 {
    use core::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(1);
    abi::fs::make_device(0, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// File systems that keep what was written elsewhere than in memory.
static KEPT_ELSEWHERE: RwLock<Vec<Weak<dyn FileSystem>>> = RwLock::new(&rank::MOUNTS, Vec::new());

/// Has a file system synced when everything is to be.
pub fn sync_with_all(file_system: &Arc<dyn FileSystem>) {
    let mut list = KEPT_ELSEWHERE.write();
    list.retain(|other| other.strong_count() > 0);
    list.push(Arc::downgrade(file_system));
}

/// The file systems for which `sync` does something.
pub fn to_be_synced() -> Vec<Arc<dyn FileSystem>> {
    KEPT_ELSEWHERE.read().iter().filter_map(Weak::upgrade).collect()
}

/// What all file systems together have cached of files that are kept elsewhere.
pub fn cached() -> CacheCounts {
    to_be_synced().iter().fold(CacheCounts::default(), |sum, file_system| {
        let one = file_system.cached();
        CacheCounts {
            pages: sum.pages + one.pages,
            dirty: sum.dirty + one.dirty,
            writeback: sum.writeback + one.writeback,
        }
    })
}
