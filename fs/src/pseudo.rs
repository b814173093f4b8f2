//! Pseudo-files: directories, files and links whose content somebody computes when it is asked for.
//!
//! A provider says what is in a directory (`Directory`), what a file reads as (`Content`), where a
//! link leads (`Link`); this module makes inodes of it. An inode is made anew for each look-up, so
//! providers must give the same thing the same number.
//!
//! A file is computed when it is first read after opening, and again when it is read from the
//! beginning; so a reader that reads in pieces sees one consistent text. A text that may be long comes in
//! parts (`Content::part`), each of which is consistent in itself; a read gives no more than one part.

use crate::file::{File, Transfer, seek_in};
use crate::identity::Identity;
use crate::inode::{
    DirectoryEntry, FileSystem, FileSystemStatistics, Inode, LinkTarget, Place, anonymous_device,
};
use crate::metadata::{InodeId, Metadata, NodeKind, Permissions, Timestamp};
use abi::Errno;
use abi::fs::OpenFlags;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use base::io::{Sink, Source};
use base::sync::{Mutex, rank};
use core::any::Any;

/// One thing in a pseudo-directory.
#[derive(Clone)]
pub struct Entry {
    /// Inode number; the same thing always has the same.
    pub number: u64,
    /// Who may do what.
    pub permissions: Permissions,
    /// The process that may use it whatever the permission bits say; 0 for none.
    pub own_process: i32,
    /// What it is.
    pub node: EntryNode,
}

/// What an entry is.
#[derive(Clone)]
pub enum EntryNode {
    /// A directory.
    Directory(Arc<dyn Directory>),
    /// A file.
    File(Arc<dyn Content>),
    /// A symbolic link.
    Link(Arc<dyn Link>),
}

impl Entry {
    /// A directory of the superuser that everybody may read.
    pub fn directory(number: u64, directory: Arc<dyn Directory>) -> Entry {
        let permissions = Permissions { mode: 0o555, user: 0, group: 0 };
        Entry { number, permissions, own_process: 0, node: EntryNode::Directory(directory) }
    }

    /// A file of the superuser that everybody may read.
    pub fn file(number: u64, content: Arc<dyn Content>) -> Entry {
        let permissions = Permissions { mode: 0o444, user: 0, group: 0 };
        Entry { number, permissions, own_process: 0, node: EntryNode::File(content) }
    }

    /// A link of the superuser.
    pub fn link(number: u64, link: Arc<dyn Link>) -> Entry {
        let permissions = Permissions { mode: 0o777, user: 0, group: 0 };
        Entry { number, permissions, own_process: 0, node: EntryNode::Link(link) }
    }

    /// The same with another owner.
    pub fn owned_by(mut self, user: u32, group: u32) -> Entry {
        self.permissions.user = user;
        self.permissions.group = group;
        self
    }

    /// The same with other permission bits.
    pub fn with_mode(mut self, mode: u32) -> Entry {
        self.permissions.mode = mode;
        self
    }

    /// The same, open to one process whatever the permission bits say.
    pub fn open_to(mut self, process: i32) -> Entry {
        self.own_process = process;
        self
    }

    fn kind(&self) -> NodeKind {
        match self.node {
            EntryNode::Directory(_) => NodeKind::Directory,
            EntryNode::File(_) => NodeKind::Regular,
            EntryNode::Link(_) => NodeKind::Symlink,
        }
    }
}

/// What a listing gives for one entry.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its inode number.
    pub number: u64,
    /// Its kind.
    pub kind: NodeKind,
    /// Cursor of the entry: greater than those before it, and always the same for the same entry.
    pub cursor: u64,
}

/// Content of a pseudo-directory.
pub trait Directory: Send + Sync + Any {
    /// The entry of a name.
    fn lookup(&self, name: &[u8]) -> Result<Entry, Errno>;
    /// Gives the entries whose cursor is greater than `after` in order until `emit` returns false.
    fn list(&self, after: u64, emit: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<(), Errno>;
    /// Number of links that `stat` shows.
    fn links(&self) -> u64 {
        2
    }
}

/// A part of a text.
pub struct Part {
    /// Its bytes; there may be none yet.
    pub text: Vec<u8>,
    /// Where the next part begins; `None` when this is the last.
    pub next: Option<u64>,
}

/// Content of a pseudo-file. `opener` is whoever opened it.
pub trait Content: Send + Sync {
    /// Asked when it is opened, after the permission bits; may refuse.
    fn admit(&self, _opener: &Identity) -> Result<(), Errno> {
        Ok(())
    }
    /// The whole text.
    fn generate(&self, opener: &Identity) -> Result<Vec<u8>, Errno>;
    /// The part of the text that begins at a cursor: 0, or what the part before gave as `next`. For
    /// texts that may be too long to be made in one go.
    fn part(&self, opener: &Identity, _cursor: u64) -> Result<Part, Errno> {
        Ok(Part { text: self.generate(opener)?, next: None })
    }
    /// When it is not a text but has bytes at offsets, which `bytes_at` gives: what offsets and lengths
    /// are multiples of.
    fn granule(&self) -> Option<usize> {
        None
    }
    /// Bytes from an offset on, at most `length` of them; none at the end.
    fn bytes_at(&self, _opener: &Identity, _offset: u64, _length: usize) -> Result<Vec<u8>, Errno> {
        Err(Errno::EINVAL)
    }
    /// Takes what is written at an offset; how many bytes.
    fn write(&self, _opener: &Identity, _offset: u64, _bytes: &[u8]) -> Result<usize, Errno> {
        Err(Errno::EIO)
    }
}

impl<F: Fn() -> Result<Vec<u8>, Errno> + Send + Sync> Content for F {
    fn generate(&self, _: &Identity) -> Result<Vec<u8>, Errno> {
        self()
    }
}

/// A pseudo-link.
pub trait Link: Send + Sync {
    /// Its text.
    fn text(&self, identity: &Identity) -> Result<Vec<u8>, Errno>;
    /// Where it leads; by default to its text.
    fn follow(&self, identity: &Identity) -> Result<LinkTarget, Errno> {
        self.text(identity).map(LinkTarget::Path)
    }
}

impl<F: Fn(&Identity) -> Result<Vec<u8>, Errno> + Send + Sync> Link for F {
    fn text(&self, identity: &Identity) -> Result<Vec<u8>, Errno> {
        self(identity)
    }
}

/// A file system of pseudo-files.
pub struct PseudoFs {
    type_name: &'static str,
    magic: i64,
    device: u64,
    root: Arc<PseudoInode>,
}

impl PseudoFs {
    /// A file system with this root directory.
    pub fn new(type_name: &'static str, magic: i64, root: Entry) -> Arc<PseudoFs> {
        let device = anonymous_device();
        let root = PseudoInode::make(device, root, None);
        Arc::new(PseudoFs { type_name, magic, device, root })
    }
}

impl FileSystem for PseudoFs {
    fn type_name(&self) -> &'static str {
        self.type_name
    }

    fn device(&self) -> u64 {
        self.device
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
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

/// The directory and the name in it through which an inode was looked up.
type HeldBy = (Arc<dyn Inode>, Arc<[u8]>);

/// An inode made of an entry.
struct PseudoInode {
    id: InodeId,
    entry: Entry,
    born: Timestamp,
    place: Option<HeldBy>,
    me: Weak<PseudoInode>,
}

impl PseudoInode {
    fn make(device: u64, entry: Entry, place: Option<HeldBy>) -> Arc<PseudoInode> {
        Arc::new_cyclic(|me| PseudoInode {
            id: InodeId { device, number: entry.number },
            entry,
            born: Timestamp::now(),
            place,
            me: me.clone(),
        })
    }
}

/// The provider of a pseudo-directory, when it is of type `D`.
pub fn directory_of<D: Directory>(inode: &dyn Inode) -> Option<&D> {
    let inode: &PseudoInode = inode.as_any().downcast_ref()?;
    match &inode.entry.node {
        EntryNode::Directory(directory) => {
            let directory: &dyn Any = directory.as_ref();
            directory.downcast_ref()
        }
        _ => None,
    }
}

/// Cursors of `.` and `..`; those of entries follow.
const DOTS: u64 = 2;

impl Inode for PseudoInode {
    fn id(&self) -> InodeId {
        self.id
    }

    fn kind(&self) -> NodeKind {
        self.entry.kind()
    }

    fn metadata(&self) -> Metadata {
        let links = match &self.entry.node {
            EntryNode::Directory(directory) => directory.links(),
            _ => 1,
        };
        let simple = Metadata::simple(self.id, self.kind(), 0, self.born);
        let size = if self.kind() == NodeKind::Symlink { 64 } else { 0 };
        Metadata { permissions: self.entry.permissions, links, size, block_size: 1024, ..simple }
    }

    fn permissions(&self) -> Permissions {
        self.entry.permissions
    }

    fn is_of_caller(&self, identity: &Identity) -> bool {
        self.entry.own_process != 0 && self.entry.own_process == identity.process
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn parent(&self) -> Option<Arc<dyn Inode>> {
        self.place.as_ref().map(|(parent, _)| parent.clone())
    }

    fn place(&self) -> Option<Place> {
        let (parent, name) = self.place.clone()?;
        Some(Place { parent, name, removed: false })
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>, Errno> {
        let EntryNode::Directory(directory) = &self.entry.node else {
            return Err(Errno::ENOTDIR);
        };
        let entry = directory.lookup(name)?;
        let me: Arc<dyn Inode> = self.me.upgrade().ok_or(Errno::ENOENT)?;
        Ok(PseudoInode::make(self.id.device, entry, Some((me, Arc::from(name)))))
    }

    fn read_directory(
        &self,
        cursor: u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        let EntryNode::Directory(directory) = &self.entry.node else {
            return Err(Errno::ENOTDIR);
        };
        let parent = self.parent().map_or(self.id.number, |parent| parent.id().number);
        let dots: [(&[u8], u64); 2] = [(b".", self.id.number), (b"..", parent)];
        for (next, (name, number)) in (1..).zip(dots) {
            let entry = DirectoryEntry { name, number, kind: NodeKind::Directory, next };
            if cursor < next && !emit(entry) {
                return Ok(());
            }
        }
        directory.list(cursor.saturating_sub(DOTS), &mut |listed| {
            emit(DirectoryEntry {
                name: listed.name,
                number: listed.number,
                kind: listed.kind,
                next: listed.cursor.saturating_add(DOTS),
            })
        })
    }

    fn read_link(&self, identity: &Identity) -> Result<Vec<u8>, Errno> {
        match &self.entry.node {
            EntryNode::Link(link) => link.text(identity),
            _ => Err(Errno::EINVAL),
        }
    }

    fn follow_link(&self, identity: &Identity) -> Result<LinkTarget, Errno> {
        match &self.entry.node {
            EntryNode::Link(link) => link.follow(identity),
            _ => Err(Errno::EINVAL),
        }
    }

    fn truncate(&self, _size: u64) -> Result<(), Errno> {
        // `O_TRUNC` on a file that takes writes; there is nothing to cut.
        Ok(())
    }

    fn open(&self, _: OpenFlags, identity: &Identity) -> Result<Option<Arc<dyn File>>, Errno> {
        match &self.entry.node {
            EntryNode::File(content) => {
                content.admit(identity)?;
                Ok(Some(Arc::new(PseudoFile {
                    content: content.clone(),
                    opener: identity.clone(),
                    text: Mutex::new(&rank::PIPE, None),
                })))
            }
            _ => Ok(None),
        }
    }
}

/// A part of a text and where it begins.
struct Shown {
    start: u64,
    part: Part,
}

impl Shown {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.part.text.len() as u64)
    }

    /// More work is to be done before there is text.
    fn is_under_way(&self) -> bool {
        self.part.text.is_empty() && self.part.next.is_some()
    }
}

/// Parts that are made in one go for a reader that has skipped them.
const PARTS_AT_ONCE: usize = 16;

/// Bytes of a file with offsets that are made in one go.
const MOST_BYTES_AT_ONCE: usize = 16 << 10;

/// An open pseudo-file. `text` is what it read as last; the lock is not held while it is computed.
struct PseudoFile {
    content: Arc<dyn Content>,
    opener: Identity,
    text: Mutex<Option<Arc<Shown>>>,
}

impl PseudoFile {
    fn make(&self, start: u64, cursor: u64) -> Result<Arc<Shown>, Errno> {
        Ok(Arc::new(Shown { start, part: self.content.part(&self.opener, cursor)? }))
    }
}

impl File for PseudoFile {
    fn is_generated(&self) -> bool {
        true
    }

    fn prepare(&self, offset: u64) -> Result<(), Errno> {
        if let Some(granule) = self.content.granule() {
            if !offset.is_multiple_of(granule as u64) {
                return Err(Errno::EINVAL);
            }
            // Not in `read`: the position is locked there.
            let text = self.content.bytes_at(&self.opener, offset, MOST_BYTES_AT_ONCE)?;
            let part = Part { text, next: None };
            *self.text.lock() = Some(Arc::new(Shown { start: offset, part }));
            return Ok(());
        }
        let known = self.text.lock().clone();
        let mut shown = match known {
            Some(shown) if offset >= shown.start && (offset > 0 || shown.is_under_way()) => shown,
            _ => self.make(0, 0)?,
        };
        let mut is_there = false;
        for _ in 0..PARTS_AT_ONCE {
            match shown.part.next {
                Some(next) if offset >= shown.end() => shown = self.make(shown.end(), next)?,
                _ => {
                    is_there = true;
                    break;
                }
            }
        }
        *self.text.lock() = Some(shown);
        if is_there { Ok(()) } else { Err(Errno::EAGAIN) }
    }

    fn read(&self, offset: u64, sink: &mut dyn Sink, _: Transfer) -> Result<usize, Errno> {
        if self.content.granule().is_some_and(|size| !sink.remaining().is_multiple_of(size)) {
            return Err(Errno::EINVAL);
        }
        let Some(shown) = self.text.lock().clone() else { return Ok(0) };
        let Some(start) = offset.checked_sub(shown.start) else { return Ok(0) };
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        Ok(shown.part.text.get(start..).map_or(0, |rest| {
            let wanted = rest.len().min(sink.remaining());
            rest.get(..wanted).map_or(0, |bytes| sink.write(bytes))
        }))
    }

    fn write(&self, offset: u64, source: &mut dyn Source, _: Transfer) -> Result<usize, Errno> {
        let mut bytes = alloc::vec![0; source.remaining().min(4096)];
        let count = source.read(&mut bytes);
        bytes.truncate(count);
        self.content.write(&self.opener, offset, &bytes)
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn seek(&self, position: u64, offset: i64, whence: i32) -> Result<u64, Errno> {
        if whence == abi::fs::seek::SEEK_END {
            return Err(Errno::EINVAL);
        }
        seek_in(0, position, offset, whence)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
