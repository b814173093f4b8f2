//! What is asked of all address spaces about one file: when it is cut short, the pages that it lost are
//! taken out of every one, private copies included, so that the next touch is a fault and finds what
//! the file is then. Files are rarely cut short while they are mapped, so nothing remembers who maps
//! what: every process is asked. The same way, pages that were written back lose the right to be written
//! to without a fault, and pages that a cache gives up vanish.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::future::Future;
use core::ops::Range;
use core::pin::pin;
use core::task::{Context, Waker};

use base::cpu::CpuId;
use base::memory::Frame;
use base::task;
use fs::mapped::{Observer, Rest};
use fs::metadata::InodeId;
use fs::pending::{Io, Wait};

use super::table;
use super::thread::Thread;
use crate::memory::AddressSpace;
use crate::signal::killable;

/// What files tell of their pages.
pub(super) const OBSERVER: Observer = Observer {
    gone: |inode, pages| carry_out(inode, Order::Gone(pages)),
    replaced: |inode, pages| carry_out(inode, Order::Replaced(pages)),
    protect: |inode, pages| carry_out(inode, Order::Protect(pages)),
};

/// Processes that are asked in one turn.
const ASKED_AT_ONCE: usize = 64;

/// How often it is looked who became known meanwhile.
const ROUNDS: usize = 16;

/// What all address spaces are to do with pages of a file.
enum Order {
    /// A file has lost these pages.
    Gone(Range<u64>),
    /// These pages are other frames from now on.
    Replaced(BTreeMap<u64, Frame>),
    /// The next write to these pages through a shared mapping has to be seen.
    Protect(Arc<Vec<u64>>),
}

impl Order {
    /// One part of the work in one address space, from an address on. Returns where the rest begins.
    fn part(&self, space: &AddressSpace, inode: InodeId, from: u64) -> Option<u64> {
        match self {
            Order::Gone(pages) => space.drop_source_part(inode, pages, from),
            Order::Replaced(pages) => space.release_source_part(inode, pages, from),
            Order::Protect(pages) => space.protect_source_part(inode, pages, from),
        }
    }
}

/// An order that goes in turns.
struct Turns {
    order: Order,
    end: Wait,
}

impl Io for Turns {
    fn wait(&self) -> &Wait {
        &self.end
    }
}

/// Ends an order, whatever becomes of the task that carries it out.
struct End(Arc<Turns>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end.finish();
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

/// All address spaces have carried out the order when this returns, or when the work ends that it gives.
fn carry_out(inode: InodeId, order: Order) -> Rest {
    let mut turn = Context::from_waker(Waker::noop());
    if pin!(ask_all(inode, &order)).poll(&mut turn).is_ready() {
        return None;
    }
    let turns = Arc::new(Turns { order, end: Wait::new() });
    let end = End(turns.clone());
    let is_started = task::spawn(CpuId::current(), async move {
        ask_all(inode, &end.0.order).await;
    });
    if is_started.is_ok() {
        return Some(turns);
    }
    // Without memory for the task it is one long turn.
    let mut work = pin!(ask_all(inode, &turns.order));
    while work.as_mut().poll(&mut turn).is_pending() {}
    None
}

async fn ask_all(inode: InodeId, order: &Order) {
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
                ask(inode, order, &space).await;
                for copy in space.copies().iter().filter_map(Weak::upgrade) {
                    ask(inode, order, &copy).await;
                }
            }
            asked += 1;
            if asked % ASKED_AT_ONCE == 0 {
                task::yield_now().await;
            }
        }
    }
}

async fn ask(inode: InodeId, order: &Order, space: &AddressSpace) {
    let mut from = 0;
    while let Some(next) = order.part(space, inode, from) {
        from = next;
        task::yield_now().await;
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
