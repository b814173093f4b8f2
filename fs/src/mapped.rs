//! Files that are mapped into memory, and whoever maps them: when a file is cut short or punched, its
//! pages must vanish from there too, and when a page is written back, its mappings must show the next
//! write. The kernel, which knows the address spaces, observes.

use crate::metadata::InodeId;
use alloc::collections::BTreeMap;
use base::memory::Frame;
use base::sync::Once;
use core::ops::Range;

/// Is told about pages of files, and does what it is told before it returns.
pub struct Observer {
    /// These pages are no longer the file's content; a range without end is what was cut off.
    pub gone: fn(InodeId, Range<u64>),
    /// These pages are shown by other frames from now on. Private copies of them stay.
    pub replaced: fn(InodeId, &BTreeMap<u64, Frame>),
    /// The next write to these pages, in ascending order, through a shared mapping has to be seen.
    pub protect: fn(InodeId, &[u64]),
}

static OBSERVER: Once<Observer> = Once::new();

/// Sets who is told. The first one stays.
pub fn observe(observer: Observer) {
    OBSERVER.call_once(|| observer);
}

/// Tells the observer. Called with no lock held.
pub(crate) fn pages_gone(inode: InodeId, pages: Range<u64>) {
    if let Some(observer) = OBSERVER.get() {
        (observer.gone)(inode, pages);
    }
}

/// Tells the observer, if anybody else has one of these frames. Called with no lock held.
pub(crate) fn pages_replaced(inode: InodeId, pages: &BTreeMap<u64, Frame>) {
    if pages.values().any(Frame::is_shared)
        && let Some(observer) = OBSERVER.get()
    {
        (observer.replaced)(inode, pages);
    }
}

/// Tells the observer. Called with no lock held.
pub(crate) fn protect(inode: InodeId, pages: &[u64]) {
    if let Some(observer) = OBSERVER.get() {
        (observer.protect)(inode, pages);
    }
}
