//! Files that are mapped into memory, and whoever maps them: when a file is cut short or punched, its
//! pages must vanish from there too, and when a page is written back, its mappings must show the next
//! write. The kernel, which knows the address spaces, observes.
//!
//! Pages may be mapped in any number of places, so taking them out may go in turns, as a task of its own. The
//! handler of the call that lost them waits for its end (`losses`) before it answers.

use crate::metadata::InodeId;
use crate::pending::Io;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::cpu::{MAX_CPUS, PerCpu};
use base::memory::Frame;
use base::sync::{Mutex, Once, rank};
use core::ops::Range;

/// The end of what is done in turns; `None` when all was done at once.
pub type Rest = Option<Arc<dyn Io>>;

/// Is told about pages of files.
pub struct Observer {
    /// These pages are no longer the file's content; a range without end is what was cut off.
    pub gone: fn(InodeId, Range<u64>) -> Rest,
    /// These pages are shown by other frames from now on. Private copies of them stay.
    pub replaced: fn(InodeId, BTreeMap<u64, Frame>) -> Rest,
    /// The next write to these pages, in ascending order, through a shared mapping has to be seen.
    pub protect: fn(InodeId, Arc<Vec<u64>>) -> Rest,
}

static OBSERVER: Once<Observer> = Once::new();

/// Sets who is told. The first one stays.
pub fn observe(observer: Observer) {
    OBSERVER.call_once(|| observer);
}

/// What operations on each core have begun and nobody has waited for yet.
static LOSSES: PerCpu<Mutex<Vec<Arc<dyn Io>>>> =
    PerCpu::new([const { Mutex::new(&rank::WANTED_IO, Vec::new()) }; MAX_CPUS]);
/// Most of them; who does not wait (a file of the host that is cut short there) leaves them behind.
const MOST_LOSSES: usize = 32;

/// Tells the observer. Called with no lock held.
pub(crate) fn pages_gone(inode: InodeId, pages: Range<u64>) {
    let Some(observer) = OBSERVER.get() else { return };
    if let Some(rest) = (observer.gone)(inode, pages) {
        note_loss(rest);
    }
}

fn note_loss(rest: Arc<dyn Io>) {
    let mut losses = LOSSES.here().lock();
    let forgotten =
        if losses.len() >= MOST_LOSSES { core::mem::take(&mut *losses) } else { Vec::new() };
    // Without memory nobody waits for it; it comes to its end all the same.
    if losses.try_reserve(1).is_ok() {
        losses.push(rest);
    }
    drop(losses);
    drop(forgotten);
}

/// The pages that operations on this core have just taken from files and that are still on their way out of
/// mappings. To be asked for right after the operation, before anything else may have the core; there may be
/// some of others among them.
pub fn losses() -> Losses {
    Losses(core::mem::take(&mut *LOSSES.here().lock()))
}

/// Pages on their way out of mappings.
pub struct Losses(Vec<Arc<dyn Io>>);

impl Losses {
    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits until nobody has these pages mapped any more.
    pub async fn end(self) {
        for loss in self.0 {
            loss.wait().end().await;
        }
    }
}

/// Tells the observer, if anybody else has one of these frames. Called with no lock held.
pub(crate) fn pages_replaced(inode: InodeId, pages: BTreeMap<u64, Frame>) {
    if pages.values().any(Frame::is_shared)
        && let Some(observer) = OBSERVER.get()
        && let Some(rest) = (observer.replaced)(inode, pages)
    {
        note_loss(rest);
    }
}

/// Tells the observer, and waits until the next write to any of these pages will be seen. Called with no lock
/// held.
pub(crate) async fn protect(inode: InodeId, pages: &Arc<Vec<u64>>) {
    if let Some(observer) = OBSERVER.get()
        && let Some(rest) = (observer.protect)(inode, pages.clone())
    {
        rest.wait().end().await;
    }
}
