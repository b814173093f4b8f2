//! An inode of tmpfs. How names come and go is in `names`.

mod names;

use super::Shared;
use super::directory::{Entries, FIRST_COOKIE, is_directory};
use super::extended::Attributes;
use super::grave;
use super::pages::{Pages, Spot};
use crate::file::{File, MAX_FILE_SIZE};
use crate::identity::Identity;
use crate::inode::{
    AttributeChange, DirectoryEntry, ExtendedAttributes, Inode, NewContent, NewNode, Place,
};
use crate::mapped;
use crate::metadata::{InodeId, Metadata, NodeKind, Permissions, Timestamp};
use crate::notify::{self, fanotify::Subject};
use crate::pipe::Pipe;
use abi::Errno;
use abi::fs::{AllocateFlags, OpenFlags, RenameFlags, Seals};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use base::io::{Sink, Source};
use base::memory::{Frame, PAGE_SIZE};
use base::sync::{Mutex, MutexGuard, rank};
use core::any::Any;
use core::mem;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

const PAGE: u64 = PAGE_SIZE as u64;
/// Bytes that one write moves before it lets others have the lock.
const LOCK_SPAN: usize = 1 << 20;
static ZEROS: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// An inode of tmpfs.
pub struct Node {
    pub(super) shared: Arc<Shared>,
    id: InodeId,
    kind: NodeKind,
    represented_device: u64,
    fifo: Option<Arc<Pipe>>,
    label: Option<String>,
    writers: AtomicI32,
    /// Mappings for shared writing; negative once writing is sealed off.
    writable_mappings: AtomicI32,
    /// A page was handed out to be mapped, at some time.
    was_mapped: AtomicBool,
    me: Weak<Node>,
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    permissions: Permissions,
    links: u64,
    accessed: Timestamp,
    modified: Timestamp,
    pub(super) changed: Timestamp,
    born: Timestamp,
    /// Extended attributes, made with the first one.
    pub(super) attributes: Option<Box<Attributes>>,
    place: Option<LastPlace>,
    /// Made without a name and linkable, so that it may get one though it has none.
    is_nameless: bool,
    content: Content,
}

struct LastPlace {
    parent: Weak<Node>,
    name: Arc<[u8]>,
    removed: bool,
}

enum Content {
    Directory(Box<Entries>),
    Regular(Pages),
    Symlink(Vec<u8>),
    Other,
}

impl State {
    fn touch(&mut self) {
        let now = Timestamp::now();
        self.modified = now;
        self.changed = now;
    }

    fn pages(&mut self) -> Result<&mut Pages, Errno> {
        match &mut self.content {
            Content::Regular(pages) => Ok(pages),
            Content::Directory(_) => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    fn entries(&mut self) -> Result<&mut Entries, Errno> {
        match &mut self.content {
            Content::Directory(entries) => Ok(entries),
            _ => Err(Errno::ENOTDIR),
        }
    }
}

impl Node {
    pub(super) fn new(shared: &Arc<Shared>, new: &NewNode<'_>) -> Result<Arc<Node>, Errno> {
        Node::make(shared, new, None, Seals::SEAL)
    }

    pub(super) fn labelled(
        shared: &Arc<Shared>,
        new: &NewNode<'_>,
        label: String,
        seals: Seals,
    ) -> Result<Arc<Node>, Errno> {
        let node = Node::make(shared, new, Some(label), seals)?;
        node.state.lock().links = 0;
        Ok(node)
    }

    fn make(
        shared: &Arc<Shared>,
        new: &NewNode<'_>,
        label: Option<String>,
        seals: Seals,
    ) -> Result<Arc<Node>, Errno> {
        let (content, represented_device) = match new.content {
            NewContent::Regular => (Content::Regular(Pages::empty(seals)), 0),
            NewContent::Directory => (Content::Directory(Box::new(Entries::new())), 0),
            NewContent::Symlink(target) => (Content::Symlink(Vec::from(target)), 0),
            NewContent::CharacterDevice(number) | NewContent::BlockDevice(number) => {
                (Content::Other, number)
            }
            NewContent::Fifo | NewContent::Socket => (Content::Other, 0),
        };
        let kind = new.content.kind();
        shared.reserve_node()?;
        let now = Timestamp::now();
        let state = State {
            permissions: Permissions { mode: new.mode, user: new.user, group: new.group },
            links: if kind == NodeKind::Directory { 2 } else { 1 },
            accessed: now,
            modified: now,
            changed: now,
            born: now,
            attributes: None,
            place: None,
            is_nameless: false,
            content,
        };
        Ok(Arc::new_cyclic(|me| Node {
            shared: shared.clone(),
            id: shared.new_id(),
            kind,
            represented_device,
            fifo: if kind == NodeKind::Fifo { Some(Pipe::for_fifo()) } else { None },
            label,
            writers: AtomicI32::new(0),
            writable_mappings: AtomicI32::new(0),
            was_mapped: AtomicBool::new(false),
            me: me.clone(),
            state: Mutex::new(&rank::INODE, state),
        }))
    }

    /// Makes an empty file have the bytes of the archive, without copying them.
    pub fn borrow_content(&self, bytes: &'static [u8]) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let pages = state.pages()?;
        if pages.size != 0 || pages.frame_count() != 0 {
            return Err(Errno::EEXIST);
        }
        *pages = Pages::of_archive(bytes);
        Ok(())
    }

    /// Sets attributes without changing the change time, as an archive gives them.
    pub fn restore_times(&self, time: Timestamp) {
        let mut state = self.state.lock();
        state.accessed = time;
        state.modified = time;
        state.changed = time;
    }

    fn number_of_parent(&self) -> u64 {
        self.state
            .lock()
            .place
            .as_ref()
            .and_then(|place| place.parent.upgrade())
            .map_or(self.id.number, |parent| parent.id.number)
    }

    fn write_locked(
        &self,
        state: &mut MutexGuard<'_, State>,
        offset: u64,
        source: &mut dyn Source,
    ) -> Result<usize, Errno> {
        let wanted = source.remaining().min(LOCK_SPAN);
        if wanted == 0 {
            return Ok(0);
        }
        let pages = state.pages()?;
        if pages.seals.intersects(Seals::WRITE | Seals::FUTURE_WRITE) {
            return Err(Errno::EPERM);
        }
        let end = offset.checked_add(wanted as u64).filter(|&end| end <= MAX_FILE_SIZE);
        let end = end.ok_or(Errno::EFBIG)?;
        if pages.seals.contains(Seals::GROW) && end > pages.size {
            return Err(Errno::EPERM);
        }
        let count = pages.write(offset, wanted, source, &self.shared)?;
        if count > 0 {
            state.touch();
        }
        Ok(count)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        match mem::replace(&mut state.content, Content::Other) {
            Content::Regular(mut pages) => {
                self.shared.release_pages(pages.frame_count());
                grave::take_pages(pages.take_frames());
            }
            Content::Directory(entries) => grave::take_entries(entries),
            Content::Symlink(_) | Content::Other => {}
        }
        if let Some(attributes) = &state.attributes {
            self.shared.release_attributes(attributes.size());
        }
        let is_deleted = state.links == 0;
        self.shared.release_node();
        notify::gone(Subject { id: self.id, kind: self.kind }, is_deleted);
    }
}

impl Inode for Node {
    fn id(&self) -> InodeId {
        self.id
    }

    fn kind(&self) -> NodeKind {
        self.kind
    }

    fn metadata(&self) -> Metadata {
        let state = self.state.lock();
        let (size, blocks) = match &state.content {
            Content::Regular(pages) => (pages.size, pages.blocks()),
            Content::Symlink(target) => (target.len() as u64, 0),
            Content::Directory(entries) => (entries.reported_size(), 0),
            Content::Other => (0, 0),
        };
        Metadata {
            id: self.id,
            kind: self.kind,
            permissions: state.permissions,
            links: state.links,
            size,
            blocks,
            block_size: PAGE_SIZE as u32,
            represented_device: self.represented_device,
            accessed: state.accessed,
            modified: state.modified,
            changed: state.changed,
            born: state.born,
        }
    }

    fn permissions(&self) -> Permissions {
        self.state.lock().permissions
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn set_attributes(&self, change: &AttributeChange) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if let Some(mode) = change.mode {
            if let Content::Regular(pages) = &state.content
                && pages.seals.contains(Seals::EXEC)
                && (mode ^ state.permissions.mode) & 0o111 != 0
            {
                return Err(Errno::EPERM);
            }
            state.permissions.mode = mode & 0o7777;
        }
        state.permissions.user = change.user.unwrap_or(state.permissions.user);
        state.permissions.group = change.group.unwrap_or(state.permissions.group);
        state.accessed = change.accessed.unwrap_or(state.accessed);
        state.modified = change.modified.unwrap_or(state.modified);
        state.changed = Timestamp::now();
        Ok(())
    }

    fn note_access(&self, always: bool) {
        const DAY_SECONDS: i64 = 24 * 3600;
        let mut state = self.state.lock();
        let newest_change = state.modified.max(state.changed);
        if always || state.accessed <= newest_change {
            state.accessed = Timestamp::now();
        } else {
            let now = Timestamp::now();
            if now.seconds.saturating_sub(state.accessed.seconds) >= DAY_SECONDS {
                state.accessed = now;
            }
        }
    }

    fn note_write(&self) {
        self.state.lock().touch();
    }

    fn label(&self) -> Option<String> {
        self.label.clone()
    }

    fn parent(&self) -> Option<Arc<dyn Inode>> {
        let state = self.state.lock();
        let parent: Arc<dyn Inode> = state.place.as_ref()?.parent.upgrade()?;
        Some(parent)
    }

    fn place(&self) -> Option<Place> {
        let state = self.state.lock();
        let place = state.place.as_ref()?;
        let parent: Arc<dyn Inode> = place.parent.upgrade()?;
        Some(Place { parent, name: place.name.clone(), removed: place.removed })
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>, Errno> {
        let mut state = self.state.lock();
        match state.entries()?.get(name) {
            Some(node) => Ok(node.clone()),
            None => Err(Errno::ENOENT),
        }
    }

    fn create(&self, name: &[u8], new: &NewNode<'_>) -> Result<Arc<dyn Inode>, Errno> {
        let _changing = self.shared.changes.lock();
        let node = Node::new(&self.shared, new)?;
        self.add_entry(name, &node)?;
        Ok(node)
    }

    fn create_nameless(
        &self,
        new: &NewNode<'_>,
        is_linkable: bool,
    ) -> Result<Arc<dyn Inode>, Errno> {
        let node = Node::new(&self.shared, new)?;
        let mut state = node.state.lock();
        state.links = 0;
        state.is_nameless = is_linkable;
        let name = alloc::format!("#{}", node.id.number);
        let parent = self.me.clone();
        state.place = Some(LastPlace { parent, name: Arc::from(name.into_bytes()), removed: true });
        drop(state);
        Ok(node)
    }

    fn link(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<(), Errno> {
        let node = Node::node_of(target, self.id.device)?;
        let _changing = self.shared.changes.lock();
        {
            let mut state = node.state.lock();
            if state.links == 0 && !state.is_nameless {
                return Err(Errno::ENOENT);
            }
            // Each further name counts as an inode, as on Linux.
            if state.links > 0 {
                self.shared.reserve_node()?;
            }
            state.links += 1;
            state.is_nameless = false;
            state.changed = Timestamp::now();
        }
        self.add_entry(name, &node).inspect_err(|_| node.forget_link())
    }

    fn unlink(&self, name: &[u8], expected: InodeId) -> Result<(), Errno> {
        let _changing = self.shared.changes.lock();
        let node = self.check_entry(name, expected)?;
        if is_directory(&node) {
            return Err(Errno::EISDIR);
        }
        self.remove_entry(name, &node)?;
        node.unlinked(self, name);
        Ok(())
    }

    fn remove_directory(&self, name: &[u8], expected: InodeId) -> Result<(), Errno> {
        let _changing = self.shared.changes.lock();
        let node = self.check_entry(name, expected)?;
        if !is_directory(&node) {
            return Err(Errno::ENOTDIR);
        }
        node.kill_directory()?;
        self.remove_entry(name, &node)?;
        node.unlinked(self, name);
        Ok(())
    }

    fn rename(
        &self,
        old: &[u8],
        moved: InodeId,
        to: &Arc<dyn Inode>,
        new: &[u8],
        replaced: Option<InodeId>,
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        self.rename_entry(old, moved, to, new, replaced, flags)
    }

    fn read_directory(
        &self,
        cursor: u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        let dots: [(&[u8], u64); 2] = [(b".", self.id.number), (b"..", self.number_of_parent())];
        for (next, (name, number)) in (1..FIRST_COOKIE).zip(dots) {
            let entry = DirectoryEntry { name, number, kind: NodeKind::Directory, next };
            if cursor < next && !emit(entry) {
                return Ok(());
            }
        }
        let mut state = self.state.lock();
        state.entries()?.list(cursor, &mut |name, node, next| {
            emit(DirectoryEntry { name, number: node.id.number, kind: node.kind, next })
        });
        Ok(())
    }

    fn read_link(&self, _identity: &Identity) -> Result<Vec<u8>, Errno> {
        match &self.state.lock().content {
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::EINVAL),
        }
    }

    fn read_at(&self, offset: u64, sink: &mut dyn Sink) -> Result<usize, Errno> {
        let mut done = 0;
        while sink.remaining() > 0 {
            let at = offset.saturating_add(done as u64);
            let (spot, left) = {
                let mut state = self.state.lock();
                let pages = state.pages()?;
                let left = pages.size.saturating_sub(at);
                if left == 0 {
                    break;
                }
                (pages.spot(at / PAGE), left)
            };
            let within = (at % PAGE) as usize;
            let length = (PAGE - at % PAGE).min(left) as usize;
            let length = length.min(sink.remaining());
            let count = match &spot {
                Spot::Frame(frame) => frame.read_into(within, length, sink),
                Spot::Archive(bytes) => {
                    let bytes = bytes.get(within..).unwrap_or(&[]);
                    let bytes = bytes.get(..length).unwrap_or(bytes);
                    if bytes.is_empty() {
                        sink.write(ZEROS.get(..length).unwrap_or(&ZEROS))
                    } else {
                        let count = sink.write(bytes);
                        if count < bytes.len() {
                            done += count;
                            break;
                        }
                        done += count;
                        continue;
                    }
                }
                Spot::Hole => sink.write(ZEROS.get(..length).unwrap_or(&ZEROS)),
            };
            done += count;
            if count < length {
                break;
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, source: &mut dyn Source) -> Result<usize, Errno> {
        let mut done = 0;
        loop {
            let wanted = source.remaining().min(LOCK_SPAN);
            let at = offset.saturating_add(done as u64);
            let result = self.write_locked(&mut self.state.lock(), at, source);
            match result {
                Ok(count) => {
                    done += count;
                    if count < wanted || source.remaining() == 0 {
                        return Ok(done);
                    }
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => return Ok(done),
            }
        }
    }

    fn append(&self, source: &mut dyn Source) -> Result<(u64, usize), Errno> {
        let mut state = self.state.lock();
        let start = state.pages()?.size;
        let count = self.write_locked(&mut state, start, source)?;
        Ok((start, count))
    }

    fn truncate(&self, size: u64) -> Result<(), Errno> {
        if size > MAX_FILE_SIZE {
            return Err(Errno::EFBIG);
        }
        let mut state = self.state.lock();
        let pages = state.pages()?;
        let shrinks = size < pages.size;
        let grows = size > pages.size;
        if (shrinks && pages.seals.contains(Seals::SHRINK))
            || (grows && pages.seals.contains(Seals::GROW))
        {
            return Err(Errno::EPERM);
        }
        let cut = pages.resize(size, &self.shared);
        state.touch();
        drop(state);
        grave::take_pages(cut);
        if shrinks && self.was_mapped.load(Ordering::Relaxed) {
            mapped::pages_gone(self.id, size.div_ceil(PAGE)..u64::MAX);
        }
        Ok(())
    }

    fn allocate(
        &self,
        flags: AllocateFlags,
        offset: u64,
        length: u64,
        made: &mut Vec<Range<u64>>,
    ) -> Result<u64, Errno> {
        let end = offset.checked_add(length).filter(|&end| end <= MAX_FILE_SIZE);
        let end = end.ok_or(Errno::EFBIG)?;
        let mut state = self.state.lock();
        let pages = state.pages()?;
        let is_punch = flags == AllocateFlags::PUNCH_HOLE | AllocateFlags::KEEP_SIZE;
        if is_punch {
            if pages.seals.intersects(Seals::WRITE | Seals::FUTURE_WRITE) {
                return Err(Errno::EPERM);
            }
            let end = pages.punch(offset, length, &self.shared)?;
            state.touch();
            drop(state);
            if self.was_mapped.load(Ordering::Relaxed) {
                mapped::pages_gone(self.id, offset.div_ceil(PAGE)..end / PAGE);
            }
            return Ok(end - offset);
        }
        if !(flags & !AllocateFlags::KEEP_SIZE).is_empty() {
            return Err(Errno::EOPNOTSUPP);
        }
        if pages.seals.contains(Seals::GROW) && end > pages.size {
            return Err(Errno::EPERM);
        }
        let reached = pages.fill(offset, length, &self.shared, made)?;
        if reached == end {
            if !flags.contains(AllocateFlags::KEEP_SIZE) && end > pages.size {
                pages.size = end;
            }
            state.touch();
        }
        Ok(reached - offset)
    }

    fn give_back(&self, range: Range<u64>) {
        let mut state = self.state.lock();
        if let Ok(pages) = state.pages() {
            pages.give_back(range, &self.shared);
        }
    }

    fn seek_content(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        let mut state = self.state.lock();
        let pages = state.pages()?;
        if offset >= pages.size {
            return Err(Errno::ENXIO);
        }
        let found = pages.find(offset / PAGE, hole).ok_or(Errno::ENXIO)?;
        Ok(found.saturating_mul(PAGE).max(offset).min(pages.size))
    }

    fn page(&self, index: u64) -> Result<Frame, Errno> {
        let mut state = self.state.lock();
        let pages = state.pages().map_err(|_| Errno::ENODEV)?;
        if index.checked_mul(PAGE).is_none_or(|start| start >= pages.size) {
            return Err(Errno::EFAULT);
        }
        self.was_mapped.store(true, Ordering::Relaxed);
        pages.frame(index, &self.shared).cloned()
    }

    fn pages_present(&self, first: u64, into: &mut [Option<Frame>]) {
        if let Ok(pages) = self.state.lock().pages() {
            pages.present(first, into);
        }
    }

    fn extended(&self) -> Option<&dyn ExtendedAttributes> {
        Some(self)
    }

    fn seals(&self) -> Option<Seals> {
        self.state.lock().pages().ok().map(|pages| pages.seals)
    }

    fn add_seals(&self, seals: Seals) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let pages = state.pages()?;
        if pages.seals.contains(Seals::SEAL) {
            return Err(Errno::EPERM);
        }
        if seals.contains(Seals::WRITE) && !pages.seals.contains(Seals::WRITE) {
            self.writable_mappings
                .compare_exchange(0, -1, Ordering::AcqRel, Ordering::Acquire)
                .map_err(|_| Errno::EBUSY)?;
        }
        pages.seals |= seals;
        Ok(())
    }

    fn writable_mappings(&self) -> Option<&AtomicI32> {
        if self.kind == NodeKind::Regular { Some(&self.writable_mappings) } else { None }
    }

    fn writers(&self) -> Option<&AtomicI32> {
        if self.kind == NodeKind::Regular { Some(&self.writers) } else { None }
    }

    fn open(&self, flags: OpenFlags, _: &Identity) -> Result<Option<Arc<dyn File>>, Errno> {
        match &self.fifo {
            Some(pipe) => pipe.open_fifo(flags).map(Some),
            None => Ok(None),
        }
    }
}
