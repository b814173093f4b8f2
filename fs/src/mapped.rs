//! Files that are mapped into memory, and whoever maps them: when a file is cut short or punched, its
//! pages must vanish from there too. The kernel, which knows the address spaces, observes.

use crate::metadata::InodeId;
use base::sync::Once;
use core::ops::Range;

/// Is told that these pages of a file are no longer its content; a range without end is what was cut
/// off.
pub type Observer = fn(InodeId, Range<u64>);

static OBSERVER: Once<Observer> = Once::new();

/// Sets who is told. The first one stays.
pub fn observe(observer: Observer) {
    OBSERVER.call_once(|| observer);
}

/// Tells the observer. Called with no lock held.
pub(crate) fn pages_gone(inode: InodeId, pages: Range<u64>) {
    if let Some(observer) = OBSERVER.get() {
        observer(inode, pages);
    }
}
