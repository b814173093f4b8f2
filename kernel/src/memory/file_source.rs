//! Files as sources of pages, and what happens to mappings when a file is cut short: the pages that it
//! lost are taken out of every address space, private copies included, so that the next touch is a
//! fault and finds what the file is then.

use abi::Errno;
use abi::fs::AllocateFlags;
use alloc::sync::Arc;
use base::memory::Frame;
use core::ops::Range;
use fs::metadata::InodeId;
use fs::{File, Inode, OpenFile};

use super::layout::PAGE;
use super::source::PageSource;
use crate::process::table;

/// A file that is mapped or executed. Keeps its inode alive.
pub struct FileSource {
    inode: Arc<dyn Inode>,
    /// Gives the pages where that is not the inode: devices.
    file: Option<Arc<dyn File>>,
}

impl FileSource {
    /// The contents of a regular file.
    pub fn of_inode(inode: Arc<dyn Inode>) -> Arc<FileSource> {
        Arc::new(FileSource { inode, file: None })
    }

    /// What an open file offers for mapping.
    pub fn of_open_file(file: &OpenFile) -> Arc<FileSource> {
        fs::mapped::observe(pages_gone);
        Arc::new(FileSource { inode: file.inode().clone(), file: Some(file.file().clone()) })
    }
}

/// Takes pages that a file has lost out of all address spaces. Files are rarely cut short while they
/// are mapped, so nothing remembers who maps what: every process is asked.
fn pages_gone(inode: InodeId, pages: Range<u64>) {
    for process in table::processes() {
        if let Some(space) = process.find_thread(|thread| Some(thread.space())) {
            space.drop_source_pages(inode.device, inode.number, pages.clone());
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
        id.device.rotate_left(40) ^ id.number
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let mut sink: &mut [u8] = into;
        self.inode.read_at(offset, &mut sink)
    }

    fn punch(&self, first: u64, end: u64) -> Result<(), Errno> {
        let flags = AllocateFlags::PUNCH_HOLE | AllocateFlags::KEEP_SIZE;
        self.inode.allocate(flags, first * PAGE, (end - first) * PAGE)
    }
}
