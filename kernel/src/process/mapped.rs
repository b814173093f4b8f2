//! What is asked of all address spaces about one file: when it is cut short, the pages that it lost are
//! taken out of every one, private copies included, so that the next touch is a fault and finds what
//! the file is then. Files are rarely cut short while they are mapped, so nothing remembers who maps
//! what: every process is asked. The same way, pages that were written back lose the right to be written
//! to without a fault, and pages that a cache gives up vanish.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::future::Future;
use core::ops::Range;
use core::pin::pin;
use core::task::{Context, Waker};

use base::cpu::CpuId;
use base::memory::Frame;
use base::task;
use fs::mapped::Observer;
use fs::metadata::InodeId;
use fs::pending::{Io, Wait};

use super::table;
use super::thread::Thread;
use crate::memory::AddressSpace;
use crate::signal::killable;

/// What files tell of their pages.
pub(super) const OBSERVER: Observer =
    Observer { gone: pages_gone, replaced: pages_replaced, protect };

/// Processes that are asked in one turn.
const ASKED_AT_ONCE: usize = 64;

/// How often it is looked who became known meanwhile.
const ROUNDS: usize = 16;

/// The end of a loss that goes in turns.
struct Loss(Wait);

impl Io for Loss {
    fn wait(&self) -> &Wait {
        &self.0
    }
}

/// Ends a loss, whatever becomes of the task that takes the pages out.
struct End(Arc<Loss>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.0.finish();
    }
}

/// Waits until the pages that an operation of the caller has just taken from a file are out of all mappings. A
/// caller that is killed does not wait; the pages go all the same. Comes right after the operation.
pub async fn settled(thread: &Thread) {
    let losses = fs::mapped::losses();
    if !losses.is_empty() {
        let _ = killable(thread, losses.end()).await;
    }
}

/// A file has lost these pages: they are out of all mappings when this returns, or when the work ends that it
/// gives.
fn pages_gone(inode: InodeId, pages: Range<u64>) -> Option<Arc<dyn Io>> {
    let mut turn = Context::from_waker(Waker::noop());
    let mut work = pin!(take_out(inode, pages.clone()));
    if work.as_mut().poll(&mut turn).is_ready() {
        return None;
    }
    let loss = Arc::new(Loss(Wait::new()));
    let end = End(loss.clone());
    let is_started = task::spawn(CpuId::current(), async move {
        let _end = end;
        take_out(inode, pages).await;
    });
    if is_started.is_ok() {
        return Some(loss);
    }
    // Without memory for the task it is one long turn.
    while work.as_mut().poll(&mut turn).is_pending() {}
    None
}

async fn take_out(inode: InodeId, pages: Range<u64>) {
    // A child that became known meanwhile was perhaps neither in the list nor a copy of its parent's any
    // more when the parent was asked. Who became known after that was asked with the parent.
    let (mut known, mut asked) = (0, 0);
    for _ in 0..ROUNDS {
        let before = table::counts().created;
        if before == known {
            return;
        }
        known = before;
        for process in table::processes() {
            if let Some(space) = process.find_thread(|thread| Some(thread.space())) {
                drop_pages(&space, inode, &pages).await;
                for copy in space.copies().iter().filter_map(Weak::upgrade) {
                    drop_pages(&copy, inode, &pages).await;
                }
            }
            asked += 1;
            if asked % ASKED_AT_ONCE == 0 {
                task::yield_now().await;
            }
        }
    }
}

async fn drop_pages(space: &AddressSpace, inode: InodeId, pages: &Range<u64>) {
    let mut at = 0;
    while let Some(next) = space.drop_source_part(inode, pages, at) {
        at = next;
        task::yield_now().await;
    }
}

/// These pages of a file are other frames from now on.
fn pages_replaced(inode: InodeId, pages: &BTreeMap<u64, Frame>) {
    for_each_space(|space| space.release_source_pages(inode, pages));
}

/// The next write to these pages through a shared mapping has to be seen.
fn protect(inode: InodeId, pages: &[u64]) {
    for_each_space(|space| space.protect_source_pages(inode, pages));
}

fn for_each_space(act: impl Fn(&AddressSpace)) {
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
                act(&space);
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

#[cfg(test)]
mod tests {
    use abi::memory::{Advice, Protection};
    use alloc::vec::Vec;
    use base::task::block_on_host;
    use fs::inode::{NewContent, NewNode};
    use fs::mapped::losses;

    use super::*;
    use crate::memory::{AreaFlags, Backing, FileSource, MapRequest, Object, PAGE, USER_END};
    use crate::process::testing::{child, end, process};
    use crate::signal::interruptible;

    /// A child of a thread that looks at its signals first and finds none.
    fn child_of(thread: &Arc<Thread>) -> Arc<Thread> {
        let mut never = pin!(interruptible(&**thread, core::future::pending::<()>()));
        assert!(never.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        child(thread, 0)
    }

    /// A file that is cut short is gone from its mappings, here and in a child, when its loss has ended; a
    /// short one at once.
    #[test]
    fn what_was_cut_off_is_out_of_all_mappings_when_the_loss_has_ended() {
        const PAGES: u64 = 3000;
        // What the kernel starts itself has an address space in common, a child has one of its own.
        let thread = child_of(&process());
        let space = thread.space();
        space.unmap(0..USER_END).unwrap();
        let root = thread.directory().root();
        let new = NewNode { content: NewContent::Regular, mode: 0o600, user: 0, group: 0 };
        let file = root.inode.create(b"cut", &new).unwrap();
        file.truncate(PAGES * PAGE).unwrap();
        let source = FileSource::of_inode(file.clone());
        let protection = Protection::READ | Protection::WRITE;
        let start = space
            .map(MapRequest {
                flags: AreaFlags::SHARED,
                backing: Backing::Object {
                    object: Arc::new(Object { source, name: Vec::new() }),
                    first_page: 0,
                },
                ..MapRequest::anonymous(PAGES * PAGE, protection)
            })
            .unwrap();
        let fill = || {
            let range = start..start + PAGES * PAGE;
            block_on_host(space.advise(range, Advice::PopulateWrite)).unwrap();
        };
        fill();
        let child = child_of(&thread);
        assert_eq!((space.resident(), child.space().resident()), (PAGES, PAGES));
        file.truncate((PAGES - 2) * PAGE).unwrap();
        block_on_host(settled(&thread));
        assert_eq!((space.resident(), child.space().resident()), (PAGES - 2, PAGES - 2));
        file.truncate(PAGE).unwrap();
        let loss = losses();
        assert!(!loss.is_empty() && space.resident() + child.space().resident() > 2);
        block_on_host(loss.end());
        assert_eq!((space.resident(), child.space().resident()), (1, 1));
        assert_eq!(space.counters().resident_shared, 1);
        end(child, 0);
        end(thread, 0);
    }
}
