//! The operations of inodes of a share.

use super::content::Arrival;
use super::server::{Change, NewTime, is_plain_name};
use super::{Found, Made, Node, Owner, Question};
use crate::file::File;
use crate::identity::Identity;
use crate::inode::{
    AttributeChange, DirectoryEntry, ExtendedAttributes, Inode, LostWrite, NewContent, NewNode,
    Place,
};
use crate::listing::emit_all;
use crate::mapped;
use crate::metadata::{InodeId, Metadata, NodeKind, Timestamp};
use abi::Errno;
use abi::fs::{AllocateFlags, OpenFlags, RenameFlags};
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::io::{Sink, Source};
use base::memory::{Frame, PAGE_SIZE};
use base::time;
use core::any::Any;
use core::ops::Range;
use core::sync::atomic::AtomicI32;

/// What transfers past the cache have to be multiples of, in bytes.
const SECTOR: u32 = 512;

fn plain(name: &[u8]) -> Result<Arc<[u8]>, Errno> {
    if is_plain_name(name) { Ok(Arc::from(name)) } else { Err(Errno::EINVAL) }
}

impl Node {
    fn itself(&self) -> Result<Arc<Node>, Errno> {
        self.itself.upgrade().ok_or(Errno::EIO)
    }

    /// A node of the same share.
    fn sibling(&self, other: &Arc<dyn Inode>) -> Result<Arc<Node>, Errno> {
        let node = other.as_any().downcast_ref::<Node>().ok_or(Errno::EXDEV)?;
        if node.remote.device == self.remote.device { node.itself() } else { Err(Errno::EXDEV) }
    }

    /// The node of a name, if it is the one that is expected.
    fn expected(self: &Arc<Node>, name: &[u8], expected: InodeId) -> Result<Arc<Node>, Errno> {
        let node = self.look_up(name)?;
        if node.id() == expected { Ok(node) } else { Err(Errno::ESTALE) }
    }

    /// Something has changed that makes the server change the attributes.
    fn touched(&self) {
        self.state.lock().fetched_ns = 0;
    }

    /// A name of this directory leads nowhere any more.
    fn lost(&self, name: &Arc<[u8]>) {
        self.state.lock().listing.remove(name);
        self.note_child(name, Err(Errno::ENOENT));
        self.touched();
    }

    /// A name of this directory leads to a node.
    fn gained(self: &Arc<Node>, name: &Arc<[u8]>, node: &Arc<Node>) {
        self.state.lock().listing.put(name, node.number, node.kind());
        self.note_child(name, Ok(node.clone()));
        self.touched();
    }

    /// One of its names is gone.
    fn unlinked(&self, name: &[u8]) {
        let mut state = self.state.lock();
        state.metadata.links = state.metadata.links.saturating_sub(1);
        let was_last = state.metadata.links == 0 || self.kind() == NodeKind::Directory;
        if was_last {
            state.metadata.links = 0;
        }
        state.is_removed |= was_last || *state.name == *name;
    }

    /// Changes attributes there and here.
    fn change(&self, change: Change) -> Result<(), Errno> {
        let handle = self.handle();
        let node = self.itself()?;
        let question = Question::Change { node: self.number, change };
        let found = self.remote.ask(question, |client| async move {
            node.written().await;
            client.change(&handle, &change).await?;
            client.attributes(&handle).await.map(Found::Attributes)
        })?;
        let Found::Attributes(attributes) = found else { return Err(Errno::EIO) };
        if let Some(size) = change.size {
            let mut state = self.state.lock();
            self.spoil(&mut state.content, 0..u64::MAX);
            let was_cut = size < state.metadata.size;
            let gone = state.content.cut(size);
            self.remote.count_dirty(gone.1);
            state.metadata.size = size;
            state.content.version = (attributes.metadata.size, attributes.metadata.modified);
            drop(state);
            if was_cut {
                mapped::pages_gone(self.id(), size.div_ceil(PAGE_SIZE as u64)..u64::MAX);
            }
            drop(gone);
        } else {
            // Times that were set are not those of another content.
            self.state.lock().content.version =
                (attributes.metadata.size, attributes.metadata.modified);
        }
        if attributes.number == self.number {
            self.found(None, &attributes);
        }
        Ok(())
    }

    fn fetch_listing(&self, cursor: u64) -> Result<(), Errno> {
        let (fetched_ns, is_removed) = {
            let state = self.state.lock();
            (state.listing.fetched_ns, state.is_removed)
        };
        let is_good = fetched_ns
            .is_some_and(|fetched_ns| cursor != 0 || self.remote.is_fresh(self.number, fetched_ns));
        if is_good || is_removed {
            return Ok(());
        }
        let handle = self.handle();
        let question = Question::Entries { node: self.number };
        let found = self.remote.ask(question, |client| async move {
            client.entries(&handle).await.map(Found::Entries)
        })?;
        let Found::Entries(entries) = found else { return Err(Errno::EIO) };
        let mut state = self.state.lock();
        state.listing.replace(entries);
        state.listing.fetched_ns = Some(time::now_ns());
        Ok(())
    }
}

impl Inode for Node {
    fn id(&self) -> InodeId {
        self.id()
    }

    fn kind(&self) -> NodeKind {
        self.kind()
    }

    fn metadata(&self) -> Metadata {
        self.state.lock().metadata
    }

    fn refresh(&self) -> Result<(), Errno> {
        self.bring_up_to_date()
    }

    fn sync(&self) -> Result<(), Errno> {
        self.take_error()?;
        let settled = self.settle(Arrival::Durable);
        if settled == Err(Errno::EIOCBQUEUED) {
            return settled;
        }
        if let Err(error) = settled {
            // Every description is told, by `lost_write`.
            let is_journal_lost = self.remote.server.has_lost_journal();
            let content = &mut self.state.lock().content;
            content.has_lost_sync(error, is_journal_lost);
            return content.error.take().map_or(Ok(()), Err);
        }
        self.take_error()
    }

    fn lost_write(&self) -> Option<LostWrite> {
        self.state.lock().content.lost
    }

    fn drop_cached(&self, pages: Range<u64>) {
        self.drop_pages(pages);
    }

    fn direct_unit(&self) -> Option<u32> {
        Some(if self.remote.server.is_ours_alone() { SECTOR } else { 1 })
    }

    fn tracks_writes(&self) -> bool {
        true
    }

    fn page_written(&self, index: u64, frame: &Frame) -> Result<bool, Errno> {
        self.itself()?.note_mapped_write(index, frame)
    }

    fn mapping_ended(&self) {
        if let Ok(node) = self.itself() {
            node.write_back_soon();
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn set_attributes(&self, change: &AttributeChange) -> Result<(), Errno> {
        let time = |time: Option<Timestamp>, is_now: bool| {
            time.map(|time| if is_now { NewTime::Now } else { NewTime::At(time) })
        };
        self.change(Change {
            mode: change.mode,
            user: change.user,
            group: change.group,
            size: None,
            accessed: time(change.accessed, change.is_now[0]),
            modified: time(change.modified, change.is_now[1]),
        })
    }

    fn parent(&self) -> Option<Arc<dyn Inode>> {
        let parent: Arc<dyn Inode> = self.state.lock().parent.clone()?;
        Some(parent)
    }

    fn place(&self) -> Option<Place> {
        let state = self.state.lock();
        let parent: Arc<dyn Inode> = state.parent.clone()?;
        Some(Place { parent, name: state.name.clone(), removed: state.is_removed })
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>, Errno> {
        if self.kind() != NodeKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        if !is_plain_name(name) {
            return Err(Errno::ENOENT);
        }
        let node: Arc<dyn Inode> = self.itself()?.look_up(name)?;
        Ok(node)
    }

    fn create(&self, name: &[u8], new: &NewNode<'_>) -> Result<Arc<dyn Inode>, Errno> {
        let name = plain(name)?;
        let directory = self.itself()?;
        match directory.look_up(&name) {
            Ok(_) => return Err(Errno::EEXIST),
            Err(Errno::ENOENT) => {}
            Err(error) => return Err(error),
        }
        let kind = new.content.kind().mode_bits();
        let content = match new.content {
            NewContent::Regular => Made::File,
            NewContent::Directory => Made::Directory,
            NewContent::Symlink(target) => Made::Link(target.to_vec()),
            NewContent::CharacterDevice(number) | NewContent::BlockDevice(number) => {
                Made::Node(kind, number)
            }
            NewContent::Fifo | NewContent::Socket => Made::Node(kind, 0),
        };
        let owner = Owner { mode: new.mode, user: new.user, group: new.group };
        let question = Question::Create {
            directory: self.number,
            name: name.clone(),
            owner,
            content: content.clone(),
        };
        let (handle, wanted) = (self.handle(), name.clone());
        let found =
            self.remote
                .ask(question, |client| async move {
                    client.make(&handle, &wanted, owner, content).await
                })
                .inspect_err(|error| {
                    if *error == Errno::EEXIST {
                        // What is cached of the name is old.
                        self.forget(&name);
                    }
                })?;
        let Found::Made(handle, attributes, open) = found else { return Err(Errno::EIO) };
        let node = self.remote.node_of(handle, &attributes);
        self.remote.place(&node, &directory, &name)?;
        if let Some(open) = open.map(Arc::new) {
            let content = &mut node.state.lock().content;
            content.reader = Some(open.clone());
            content.writer = Some(open);
        }
        directory.gained(&name, &node);
        Ok(node)
    }

    fn create_nameless(
        &self,
        new: &NewNode<'_>,
        is_linkable: bool,
    ) -> Result<Arc<dyn Inode>, Errno> {
        let node: Arc<dyn Inode> = self.make_nameless(new, is_linkable)?;
        Ok(node)
    }

    fn allocate(
        &self,
        flags: AllocateFlags,
        offset: u64,
        length: u64,
        _made: &mut Vec<Range<u64>>,
    ) -> Result<u64, Errno> {
        self.change_range(flags, offset, length)
    }

    fn seek_content(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        self.seek(offset, hole)
    }

    fn extended(&self) -> Option<&dyn ExtendedAttributes> {
        if self.remote.server.has_extended() { Some(self) } else { None }
    }

    fn link(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<(), Errno> {
        let name = plain(name)?;
        let target = self.sibling(target)?;
        let (handle, file, wanted) = (self.handle(), target.handle(), name.clone());
        let question =
            Question::Link { directory: self.number, name: name.clone(), node: target.number };
        self.remote.ask(question, |client| async move {
            client.link(&handle, &file, &wanted).await?;
            Ok(Found::Nothing)
        })?;
        self.itself()?.gained(&name, &target);
        target.state.lock().metadata.links += 1;
        target.touched();
        Ok(())
    }

    fn unlink(&self, name: &[u8], expected: InodeId) -> Result<(), Errno> {
        self.remove(name, expected, false)
    }

    fn remove_directory(&self, name: &[u8], expected: InodeId) -> Result<(), Errno> {
        self.remove(name, expected, true)
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
        let exchanges = flags.contains(RenameFlags::EXCHANGE);
        let leaves_whiteout = flags.contains(RenameFlags::WHITEOUT);
        if (exchanges || leaves_whiteout) && !self.remote.server.is_ours_alone() {
            // The protocol has no such thing.
            return Err(Errno::EINVAL);
        }
        let (old, new) = (plain(old)?, plain(new)?);
        let (from, to) = (self.itself()?, self.sibling(to)?);
        let moved = from.expected(&old, moved)?;
        let replaced = match (to.look_up(&new), replaced) {
            (Ok(node), Some(id)) if node.id() == id => Some(node),
            (Err(Errno::ENOENT), None) => None,
            (Ok(_), _) | (Err(Errno::ENOENT), Some(_)) => return Err(Errno::ESTALE),
            (Err(error), _) => return Err(error),
        };
        let question = Question::Rename {
            from: from.number,
            old: old.clone(),
            to: to.number,
            new: new.clone(),
            flags,
        };
        let (from_handle, to_handle) = (from.handle(), to.handle());
        let names = (old.clone(), new.clone());
        self.remote.ask(question, |client| async move {
            client.rename((&from_handle, &names.0), (&to_handle, &names.1), flags).await?;
            Ok(Found::Nothing)
        })?;
        match replaced {
            Some(other) if exchanges => {
                from.gained(&old, &other);
                self.remote.place(&other, &from, &old)?;
            }
            replaced => {
                if let Some(replaced) = replaced {
                    replaced.unlinked(&new);
                }
                from.lost(&old);
                if leaves_whiteout {
                    // It is found when somebody looks for it.
                    from.forget(&old);
                    from.state.lock().listing.fetched_ns = None;
                }
            }
        }
        to.gained(&new, &moved);
        self.remote.place(&moved, &to, &new)
    }

    fn read_directory(
        &self,
        cursor: u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        if self.kind() != NodeKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        self.fetch_listing(cursor)?;
        let parent = self.state.lock().parent.as_ref().map_or(self.number, |node| node.number);
        emit_all([self.number, parent], cursor, emit, |look| look(&self.state.lock().listing));
        Ok(())
    }

    fn read_link(&self, _identity: &Identity) -> Result<Vec<u8>, Errno> {
        if self.kind() != NodeKind::Symlink {
            return Err(Errno::EINVAL);
        }
        if let Some(target) = self.state.lock().target.clone() {
            return Ok(target);
        }
        let handle = self.handle();
        let found =
            self.remote.ask(Question::ReadLink { node: self.number }, |client| async move {
                client.read_link(&handle).await.map(Found::Text)
            })?;
        let Found::Text(text) = found else { return Err(Errno::EIO) };
        self.state.lock().target = Some(text.clone());
        Ok(text)
    }

    fn read_at(&self, offset: u64, sink: &mut dyn Sink) -> Result<usize, Errno> {
        if self.kind() != NodeKind::Regular {
            return Err(Errno::EINVAL);
        }
        self.read_content(offset, sink)
    }

    fn write_at(&self, offset: u64, source: &mut dyn Source) -> Result<usize, Errno> {
        self.itself()?.write_content(Some(offset), source).map(|(_, count)| count)
    }

    fn append(&self, source: &mut dyn Source) -> Result<(u64, usize), Errno> {
        self.itself()?.write_content(None, source)
    }

    fn truncate(&self, size: u64) -> Result<(), Errno> {
        if self.kind() != NodeKind::Regular {
            return Err(Errno::EINVAL);
        }
        self.change(Change { size: Some(size), ..Change::default() })
    }

    fn page(&self, index: u64) -> Result<Frame, Errno> {
        if self.kind() != NodeKind::Regular {
            return Err(Errno::ENODEV);
        }
        self.content_page(index)
    }

    fn pages_present(&self, first: u64, into: &mut [Option<Frame>]) {
        self.cached_pages(first, into);
    }

    fn writable_mappings(&self) -> Option<&AtomicI32> {
        Some(&self.shared_mappings)
    }

    fn writers(&self) -> Option<&AtomicI32> {
        Some(&self.writers)
    }

    fn open(&self, flags: OpenFlags, _identity: &Identity) -> Result<Option<Arc<dyn File>>, Errno> {
        if self.kind() == NodeKind::Regular {
            if flags.writes() {
                self.open_handle(true)?;
            }
            if flags.reads() {
                self.open_handle(false)?;
            }
            self.bring_up_to_date()?;
        }
        Ok(None)
    }
}

impl Node {
    fn remove(&self, name: &[u8], expected: InodeId, is_directory: bool) -> Result<(), Errno> {
        let name = plain(name)?;
        let directory = self.itself()?;
        let node = directory.expected(&name, expected)?;
        let (handle, wanted) = (self.handle(), name.clone());
        let question =
            Question::Unlink { directory: self.number, name: name.clone(), is_directory };
        self.remote.ask(question, |client| async move {
            client.unlink(&handle, &wanted, is_directory).await?;
            Ok(Found::Nothing)
        })?;
        node.unlinked(&name);
        directory.lost(&name);
        Ok(())
    }
}
