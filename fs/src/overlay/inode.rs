//! The operations of inodes that two layers show.

use super::{AnyInode, Node, is_whiteout, make_whiteout, remove_whiteouts};
use crate::file::File;
use crate::identity::Identity;
use crate::inode::{
    AttributeChange, DirectoryEntry, ExtendedAttributes, Inode, LostWrite, NewNode, Place,
};
use crate::listing::emit_all;
use crate::mapped;
use crate::metadata::{InodeId, Metadata, NodeKind};
use abi::Errno;
use abi::fs::{AllocateFlags, OpenFlags, RenameFlags};
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::io::{Sink, Source};
use base::memory::{Frame, PAGE_SIZE};
use core::any::Any;
use core::ops::Range;
use core::sync::atomic::{AtomicI32, Ordering};

impl Inode for Node {
    fn id(&self) -> InodeId {
        self.own_id()
    }

    fn kind(&self) -> NodeKind {
        self.kind
    }

    fn metadata(&self) -> Metadata {
        let id = self.own_id();
        match self.shown() {
            Ok(inode) => Metadata { id, ..inode.metadata() },
            // A node shows one of the two.
            Err(_) => Metadata::simple(id, self.kind, 0, Default::default()),
        }
    }

    fn refresh(&self) -> Result<(), Errno> {
        self.shown()?.refresh()
    }

    fn sync(&self) -> Result<(), Errno> {
        // Nobody writes to what lies below.
        self.upper.get().map_or(Ok(()), |upper| upper.sync())
    }

    fn lost_write(&self) -> Option<LostWrite> {
        self.upper.get()?.lost_write()
    }

    fn drop_cached(&self, pages: Range<u64>) {
        if let Ok(inode) = self.shown() {
            inode.drop_cached(pages);
        }
    }

    fn direct_unit(&self) -> Option<u32> {
        self.shown().ok()?.direct_unit()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn set_attributes(&self, change: &AttributeChange) -> Result<(), Errno> {
        self.copy_up(u64::MAX)?.set_attributes(change)
    }

    fn note_access(&self, always: bool) {
        // What is only read stays as it is.
        if let Some(upper) = self.upper.get() {
            upper.note_access(always);
        }
    }

    fn note_write(&self) {
        if let Some(upper) = self.upper.get() {
            upper.note_write();
        }
    }

    fn content_id(&self) -> InodeId {
        self.shown().map_or_else(|_| self.own_id(), |inode| inode.content_id())
    }

    fn tracks_writes(&self) -> bool {
        self.shown().is_ok_and(|inode| inode.tracks_writes())
    }

    fn page_written(&self, index: u64, frame: &Frame) -> Result<bool, Errno> {
        self.shown()?.page_written(index, frame)
    }

    fn mapping_ended(&self) {
        if let Ok(inode) = self.shown() {
            inode.mapping_ended();
        }
    }

    fn parent(&self) -> Option<AnyInode> {
        let parent: AnyInode = self.state.lock().parent.clone()?;
        Some(parent)
    }

    fn place(&self) -> Option<Place> {
        let state = self.state.lock();
        let parent: AnyInode = state.parent.clone()?;
        Some(Place { parent, name: state.name.clone(), removed: state.is_removed })
    }

    fn lookup(&self, name: &[u8]) -> Result<AnyInode, Errno> {
        let node: AnyInode = self.me()?.look_up(name)?;
        Ok(node)
    }

    fn create(&self, name: &[u8], new: &NewNode<'_>) -> Result<AnyInode, Errno> {
        let me = self.me()?;
        match me.look_up(name) {
            Ok(_) => return Err(Errno::EEXIST),
            Err(Errno::ENOENT) => {}
            Err(error) => return Err(error),
        }
        let directory = me.upper_directory()?;
        if let Some(whiteout) = me.in_upper(name)? {
            directory.unlink(name, whiteout.id())?;
        }
        let upper = directory.create(name, new)?;
        if upper.kind() == NodeKind::Directory {
            me.hide_below(name, &upper)?;
        }
        let node = self.shared.node(Vec::new(), Some(upper));
        me.keep(name, &node);
        Ok(node)
    }

    fn create_nameless(&self, new: &NewNode<'_>, is_linkable: bool) -> Result<AnyInode, Errno> {
        let me = self.me()?;
        let upper = me.upper_directory()?.create_nameless(new, is_linkable)?;
        let node = self.shared.node(Vec::new(), Some(upper));
        node.placed(&me, b"#");
        node.state.lock().is_removed = true;
        Ok(node)
    }

    fn link(&self, name: &[u8], target: &AnyInode) -> Result<(), Errno> {
        let me = self.me()?;
        let target = self.sibling(target)?;
        match me.look_up(name) {
            Ok(_) => return Err(Errno::EEXIST),
            Err(Errno::ENOENT) => {}
            Err(error) => return Err(error),
        }
        let upper = target.copy_up(u64::MAX)?.clone();
        let directory = me.upper_directory()?;
        if let Some(whiteout) = me.in_upper(name)? {
            directory.unlink(name, whiteout.id())?;
        }
        directory.link(name, &upper)?;
        me.keep(name, &target);
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
        to: &AnyInode,
        new: &[u8],
        replaced: Option<InodeId>,
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        if flags.intersects(RenameFlags::EXCHANGE | RenameFlags::WHITEOUT) {
            return Err(Errno::EINVAL);
        }
        let (from, to) = (self.me()?, self.sibling(to)?);
        let moved = from.expected(old, moved)?;
        let replaced = match (to.look_up(new), replaced) {
            (Ok(node), Some(id)) if node.own_id() == id => Some(node),
            (Err(Errno::ENOENT), None) => None,
            (Ok(_), _) | (Err(Errno::ENOENT), Some(_)) => return Err(Errno::ESTALE),
            (Err(error), _) => return Err(error),
        };
        if moved.kind == NodeKind::Directory && !moved.lowers.is_empty() {
            return Err(Errno::EXDEV);
        }
        if let Some(node) = replaced.as_ref().filter(|node| node.kind == NodeKind::Directory) {
            node.check_empty()?;
        }
        let hides = !from.in_lower(old)?.is_empty();
        let inode = moved.copy_up(u64::MAX)?.clone();
        let (upper_from, upper_to) = (from.upper_directory()?, to.upper_directory()?);
        let mut upper_replaced = to.in_upper(new)?;
        if inode.kind() == NodeKind::Directory {
            to.hide_below(new, &inode)?;
            match upper_replaced.take() {
                // A directory takes the place of another one, or of nothing.
                Some(whiteout) if is_whiteout(&whiteout) => upper_to.unlink(new, whiteout.id())?,
                other => upper_replaced = other,
            }
            if let Some(directory) = &upper_replaced {
                remove_whiteouts(directory)?;
            }
        }
        let upper_replaced = upper_replaced.map(|inode| inode.id());
        upper_from.rename(old, inode.id(), &upper_to, new, upper_replaced, flags)?;
        if hides {
            make_whiteout(&upper_from, old)?;
        }
        let gone = from.state.lock().kept.remove(old);
        drop(gone);
        if let Some(replaced) = replaced {
            replaced.state.lock().is_removed = true;
        }
        to.keep(new, &moved);
        Ok(())
    }

    fn read_directory(
        &self,
        cursor: u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        if self.kind != NodeKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        if cursor == 0 {
            let entries = self.merged()?;
            self.state.lock().listing.replace(entries);
        }
        let parent = self.state.lock().parent.as_ref().map_or(self.number, |node| node.number);
        emit_all([self.number, parent], cursor, emit, |look| look(&self.state.lock().listing));
        Ok(())
    }

    fn read_link(&self, identity: &Identity) -> Result<Vec<u8>, Errno> {
        self.shown()?.read_link(identity)
    }

    fn read_at(&self, offset: u64, sink: &mut dyn Sink) -> Result<usize, Errno> {
        self.shown()?.read_at(offset, sink)
    }

    fn write_at(&self, offset: u64, source: &mut dyn Source) -> Result<usize, Errno> {
        self.copy_up(u64::MAX)?.write_at(offset, source)
    }

    fn append(&self, source: &mut dyn Source) -> Result<(u64, usize), Errno> {
        self.copy_up(u64::MAX)?.append(source)
    }

    fn truncate(&self, size: u64) -> Result<(), Errno> {
        let was_cut = size < self.metadata().size;
        self.copy_up(size)?.truncate(size)?;
        if was_cut {
            // Who maps it knows it by the number here.
            mapped::pages_gone(self.own_id(), size.div_ceil(PAGE_SIZE as u64)..u64::MAX);
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
        let done = self.copy_up(u64::MAX)?.allocate(flags, offset, length, made)?;
        if flags.contains(AllocateFlags::PUNCH_HOLE) {
            let page = PAGE_SIZE as u64;
            let end = offset.saturating_add(done) / page;
            mapped::pages_gone(self.own_id(), offset.div_ceil(page)..end);
        }
        Ok(done)
    }

    fn give_back(&self, pages: Range<u64>) {
        if let Some(upper) = self.upper.get() {
            upper.give_back(pages);
        }
    }

    fn seek_content(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        self.shown()?.seek_content(offset, hole)
    }

    fn page(&self, index: u64) -> Result<Frame, Errno> {
        self.shown()?.page(index)
    }

    fn pages_present(&self, first: u64, into: &mut [Option<Frame>]) {
        if let Ok(inode) = self.shown() {
            inode.pages_present(first, into);
        }
    }

    fn extended(&self) -> Option<&dyn ExtendedAttributes> {
        self.shown().ok()?.extended()
    }

    fn writable_mappings(&self) -> Option<&AtomicI32> {
        self.shown().ok()?.writable_mappings()
    }

    fn writers(&self) -> Option<&AtomicI32> {
        Some(&self.writers)
    }

    fn open(&self, flags: OpenFlags, identity: &Identity) -> Result<Option<Arc<dyn File>>, Errno> {
        match self.kind {
            NodeKind::Regular if flags.writes() => {
                if self.writers.load(Ordering::Acquire) < 0 {
                    // It is executed: nothing of it may get lost by the copy.
                    return Err(Errno::ETXTBSY);
                }
                let limit = if flags.contains(OpenFlags::TRUNC) { 0 } else { u64::MAX };
                self.copy_up(limit)?;
            }
            // Its readers and writers meet in the upper layer.
            NodeKind::Fifo => {
                self.copy_up(0)?;
            }
            _ => {}
        }
        self.shown()?.open(flags, identity)
    }
}
