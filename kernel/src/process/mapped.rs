//! What is asked of all address spaces about one file: when it is cut short, the pages that it lost are
//! taken out of every one, private copies included, so that the next touch is a fault and finds what
//! the file is then. Files are rarely cut short while they are mapped, so nothing remembers who maps
//! what: every process is asked.

use core::ops::Range;

use fs::metadata::InodeId;

use super::table;

/// A file has lost these pages.
pub(super) fn pages_gone(inode: InodeId, pages: Range<u64>) {
    // A child that became known meanwhile was perhaps neither in the list nor a copy of its parent's any
    // more when the parent was asked. Who became known after that was asked with the parent.
    let mut known = 0;
    for _ in 0..2 {
        let before = table::counts().created;
        if before == known {
            return;
        }
        known = before;
        for process in table::processes() {
            if let Some(space) = process.find_thread(|thread| Some(thread.space())) {
                space.drop_source_pages(inode.device, inode.number, pages.clone());
            }
        }
    }
}

/// Whether anybody may write to a file through a shared mapping.
pub fn is_mapped_for_writing(inode: InodeId) -> bool {
    table::processes().iter().any(|process| {
        let space = process.find_thread(|thread| Some(thread.space()));
        space.is_some_and(|space| space.may_write_source(inode.device, inode.number))
    })
}
