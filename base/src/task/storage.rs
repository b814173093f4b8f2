//! The memory of a task: header, future, and who frees it.
//!
//! A task has one owner for as long as it has not ended, plus one per waker. The last one to go
//! releases the memory; the future itself is dropped when the task ends, on its own core.

use alloc::alloc::{alloc, dealloc};
use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::future::Future;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::pin::Pin;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use core::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use super::executor;
use super::pool::Shelf;
use super::queue::Link;
use super::state::State;
use crate::cpu::CpuId;
use crate::memory::OutOfMemory;
use crate::panic;

/// What the executor knows of a task. `link` must come first: the queue knows only links.
#[repr(C)]
pub(super) struct Header {
    link: Link,
    pub state: State,
    /// One for "has not ended", one per waker.
    references: AtomicUsize,
    pub core: CpuId,
    /// When it was made ready and by which core, while that is wanted (`executor::note_wakes`); 0 if not.
    pub woken: AtomicU64,
    table: &'static Table,
}

struct Table {
    /// Polls the future; true when the task has ended. The future is dropped then.
    poll: unsafe fn(NonNull<Header>) -> bool,
    /// Frees the memory.
    release: unsafe fn(NonNull<Header>),
}

/// A task with its future. Rule: `future` is touched only by the task's core while it polls, which it
/// does once at a time; it is there from creation to the end of the task.
#[repr(C)]
pub(super) struct Task<F: Future<Output = ()> + Send + 'static> {
    header: Header,
    future: UnsafeCell<MaybeUninit<F>>,
    shelf: Option<&'static Shelf<F>>,
}

impl<F: Future<Output = ()> + Send + 'static> Task<F> {
    const TABLE: Table = Table { poll: Self::poll, release: Self::release };

    /// Memory for a task of `core` without a future yet.
    pub(super) fn allocate(
        core: CpuId,
        shelf: Option<&'static Shelf<F>>,
    ) -> Result<NonNull<Task<F>>, OutOfMemory> {
        // SAFETY: the layout is not empty: a task has a header.
        let memory = unsafe { alloc(Layout::new::<Task<F>>()) };
        let task = NonNull::new(memory.cast::<Task<F>>()).ok_or(OutOfMemory)?;
        let header = Header {
            link: Link::new(),
            state: State::idle(),
            references: AtomicUsize::new(1),
            core,
            woken: AtomicU64::new(0),
            table: &Self::TABLE,
        };
        // SAFETY: fresh memory of the right layout. The future is written field by field, so that
        // its uninitialised bytes are not copied.
        unsafe {
            (&raw mut (*task.as_ptr()).header).write(header);
            (&raw mut (*task.as_ptr()).shelf).write(shelf);
        }
        Ok(task)
    }

    /// Puts the future in, made in place.
    ///
    /// # Safety
    /// The task has none, and nobody else knows the task.
    #[inline]
    pub(super) unsafe fn fill(task: NonNull<Task<F>>, make: impl FnOnce() -> F) -> NonNull<Header> {
        // SAFETY: by the caller's promise the memory is ours.
        unsafe {
            let place = (&raw mut (*task.as_ptr()).future).cast::<F>();
            place.write(make());
        }
        task.cast()
    }

    /// Makes a task that ended, and that only its owner knows, ready for `fill`.
    ///
    /// # Safety
    /// The task has ended and has no wakers.
    pub(super) unsafe fn recycle(task: NonNull<Task<F>>) {
        // SAFETY: by the caller's promise.
        let header = unsafe { &task.as_ref().header };
        header.state.reset();
        header.references.store(1, Ordering::Relaxed);
    }

    unsafe fn poll(header: NonNull<Header>) -> bool {
        let task = header.cast::<Task<F>>();
        // SAFETY: the waker borrows the poller's share in the task; `ManuallyDrop` gives nothing back.
        let waker = ManuallyDrop::new(unsafe { Waker::from_raw(raw_waker(header)) });
        // SAFETY: the executor polls a task that has not ended, one poll at a time, so the future is
        // there and ours; it is never moved.
        let place = unsafe { (&raw mut (*task.as_ptr()).future).cast::<F>() };
        let polled = panic::catch(|| {
            // SAFETY: as above.
            let future = unsafe { Pin::new_unchecked(&mut *place) };
            future.poll(&mut Context::from_waker(&waker))
        });
        if matches!(polled, Ok(Poll::Pending)) {
            return false;
        }
        // SAFETY: the future is there; it is dropped once, because the task ends now. A panic in its
        // destructor was reported by the panic handler.
        let _ = panic::catch(|| unsafe { place.drop_in_place() });
        true
    }

    unsafe fn release(header: NonNull<Header>) {
        let task = header.cast::<Task<F>>();
        // SAFETY: the last owner calls this, so the memory is still there and ours.
        match unsafe { task.as_ref().shelf } {
            Some(shelf) => shelf.take_back(task),
            // SAFETY: as above.
            None => unsafe { Task::free(task) },
        }
    }

    /// Frees the memory of a task.
    ///
    /// # Safety
    /// The task came from `allocate`, its future is gone, and nobody knows it any more.
    pub(super) unsafe fn free(task: NonNull<Task<F>>) {
        // SAFETY: allocated with the same layout; the header needs no drop.
        unsafe { dealloc(task.as_ptr().cast(), Layout::new::<Task<F>>()) };
    }
}

impl Header {
    /// The task whose link was popped.
    pub(super) fn of_link(link: NonNull<Link>) -> NonNull<Header> {
        link.cast()
    }

    pub(super) fn link_of(header: NonNull<Header>) -> NonNull<Link> {
        header.cast()
    }

    /// Polls the task; true when it has ended.
    ///
    /// # Safety
    /// On the task's core, after `State::begin`, once at a time.
    #[inline]
    pub(super) unsafe fn poll(header: NonNull<Header>) -> bool {
        // SAFETY: the caller owns a share, so the header is there.
        let poll = unsafe { header.as_ref() }.table.poll;
        // SAFETY: by the caller's promise.
        unsafe { poll(header) }
    }

    #[inline]
    fn retain(header: NonNull<Header>) {
        // SAFETY: callers own a share.
        unsafe { header.as_ref() }.references.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the caller's share is the only one.
    ///
    /// # Safety
    /// The caller owns a share.
    #[inline]
    pub(super) unsafe fn is_last(header: NonNull<Header>) -> bool {
        // SAFETY: the share keeps the header there.
        unsafe { header.as_ref() }.references.load(Ordering::Acquire) == 1
    }

    /// Gives up one share; true when it was the last and the caller now owns the memory.
    ///
    /// # Safety
    /// The caller owns a share, which it loses.
    #[inline]
    unsafe fn give_up(header: NonNull<Header>) -> bool {
        // SAFETY: the share keeps the header there until the subtraction.
        let references = unsafe { &header.as_ref().references };
        // SAFETY: as above. When it is the only share nobody is left to take another.
        if unsafe { Header::is_last(header) } {
            return true;
        }
        if references.fetch_sub(1, Ordering::Release) != 1 {
            return false;
        }
        fence(Ordering::Acquire);
        true
    }

    /// Gives up one share and frees the memory if it was the last.
    ///
    /// # Safety
    /// As for `give_up`.
    #[inline]
    pub(super) unsafe fn release(header: NonNull<Header>) {
        // SAFETY: by the caller's promise; the table is static.
        unsafe {
            let release = header.as_ref().table.release;
            if Header::give_up(header) {
                release(header);
            }
        }
    }
}

static WAKER: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

/// A waker of the task that does not count as an owner yet.
pub(super) fn raw_waker(header: NonNull<Header>) -> RawWaker {
    RawWaker::new(header.as_ptr().cast(), &WAKER)
}

fn header_of(data: *const ()) -> NonNull<Header> {
    // SAFETY: wakers are made from a `NonNull<Header>`.
    unsafe { NonNull::new_unchecked(data.cast_mut().cast()) }
}

unsafe fn clone(data: *const ()) -> RawWaker {
    Header::retain(header_of(data));
    RawWaker::new(data, &WAKER)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: the waker owns a share until it is dropped below.
    unsafe {
        wake_by_ref(data);
        drop_waker(data);
    }
}

unsafe fn wake_by_ref(data: *const ()) {
    let header = header_of(data);
    // SAFETY: the waker owns a share, so the header is there.
    let task = unsafe { header.as_ref() };
    if task.state.wake() {
        // SAFETY: `wake` told us, and nobody else, to queue the task, which has not ended.
        unsafe { executor::queue(task.core, header) };
    }
}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: the waker owns a share, which it loses.
    unsafe { Header::release(header_of(data)) };
}
