//! Files as sources of pages.

use abi::Errno;
use abi::fs::AllocateFlags;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::memory::Frame;
use core::sync::atomic::Ordering;
use fs::metadata::InodeId;
use fs::{File, Inode, OpenFile};

use super::layout::PAGE;
use super::source::{PageSource, identity_of};

/// A file that is mapped or executed. Keeps its inode alive.
pub struct FileSource {
    inode: Arc<dyn Inode>,
    /// Gives the pages where that is not the inode: devices.
    file: Option<Arc<dyn File>>,
    /// It counts among the inode's mappings for shared writing.
    is_writable: bool,
}

impl FileSource {
    /// The contents of a regular file.
    pub fn of_inode(inode: Arc<dyn Inode>) -> Arc<FileSource> {
        Arc::new(FileSource { inode, file: None, is_writable: false })
    }

    /// What an open file offers for mapping. `EPERM` when the mapping could write to the file, now or
    /// after `mprotect`, and writing is sealed off.
    pub fn of_open_file(file: &OpenFile, is_writable: bool) -> Result<Arc<FileSource>, Errno> {
        let inode = file.inode().clone();
        if is_writable && let Some(mappings) = inode.writable_mappings() {
            let add = |count: i32| if count < 0 { None } else { count.checked_add(1) };
            mappings
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, add)
                .map_err(|_| Errno::EPERM)?;
        }
        Ok(Arc::new(FileSource { inode, file: Some(file.file().clone()), is_writable }))
    }
}

impl Drop for FileSource {
    fn drop(&mut self) {
        if self.is_writable
            && let Some(mappings) = self.inode.writable_mappings()
        {
            mappings.fetch_sub(1, Ordering::AcqRel);
            self.inode.mapping_ended();
        }
    }
}

impl PageSource for FileSource {
    fn size(&self) -> u64 {
        self.inode.metadata().size
    }

    fn page(&self, index: u64) -> Result<Frame, Errno> {
        match &self.file {
            Some(file) => file.page(index),
            None => self.inode.page(index),
        }
    }

    fn pages_present(&self, first: u64, into: &mut [Option<Frame>]) {
        self.inode.pages_present(first, into);
    }

    fn device(&self) -> u64 {
        self.inode.id().device
    }

    fn inode(&self) -> u64 {
        self.inode.id().number
    }

    fn identity(&self) -> u64 {
        let id = self.inode.id();
        identity_of(id.device, id.number)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let mut sink: &mut [u8] = into;
        self.inode.read_at(offset, &mut sink)
    }

    fn note_write(&self) {
        self.inode.note_write();
    }

    fn content(&self) -> InodeId {
        self.inode.content_id()
    }

    fn tracks_writes(&self) -> bool {
        self.inode.tracks_writes()
    }

    fn page_written(&self, index: u64, frame: &Frame) -> Result<bool, Errno> {
        self.inode.page_written(index, frame)
    }

    fn sync(&self) -> Result<(), Errno> {
        self.inode.sync()
    }

    fn punch(&self, first: u64, end: u64) -> Result<(), Errno> {
        let flags = AllocateFlags::PUNCH_HOLE | AllocateFlags::KEEP_SIZE;
        // The caller gives no more than a piece.
        let (mut at, end) = (first * PAGE, end * PAGE);
        while at < end {
            at += self.inode.allocate(flags, at, end - at, &mut Vec::new())?;
        }
        Ok(())
    }
}
