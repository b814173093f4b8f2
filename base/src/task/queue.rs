//! The ready queue of a core: any core pushes, only the owner pops, nobody waits or allocates.
//!
//! After D. Vyukov's intrusive multi-producer single-consumer queue: a push is one exchange and one
//! store. Between the two the queue is cut: what was pushed later is not reachable yet, and `pop`
//! answers `Busy`. A place-holder (`STUB`) keeps the list from ever being empty.

use core::ptr::{self, NonNull};

use crate::primitives::{AtomicPtr, Ordering, constant};

/// What makes an object queueable; its first field.
pub(crate) struct Link {
    next: AtomicPtr<Link>,
}

impl Link {
    constant! {
        /// A link that is in no queue.
        pub(crate) fn new() -> Link {
            Link { next: AtomicPtr::new(ptr::null_mut()) }
        }
    }
}

/// Stands for `ReadyQueue::stub` in links.
const STUB: *mut Link = ptr::without_provenance_mut(1);

/// The queue. `head` is the consumer's; `tail` is everybody's.
pub(crate) struct ReadyQueue {
    tail: AtomicPtr<Link>,
    head: AtomicPtr<Link>,
    stub: Link,
}

/// What `pop` found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Popped {
    /// The oldest link.
    Link(NonNull<Link>),
    /// Nothing.
    Empty,
    /// A push is under way; ask again.
    Busy,
}

impl ReadyQueue {
    constant! {
        /// An empty queue.
        pub(crate) fn new() -> ReadyQueue {
            ReadyQueue {
                tail: AtomicPtr::new(STUB),
                head: AtomicPtr::new(STUB),
                stub: Link::new(),
            }
        }
    }

    /// # Safety
    /// `link` is `STUB` or a link that is in the queue.
    #[inline]
    unsafe fn next_of(&self, link: *mut Link) -> &AtomicPtr<Link> {
        if ptr::eq(link, STUB) {
            &self.stub.next
        } else {
            // SAFETY: by the caller's promise; links stay valid while they are queued.
            unsafe { &(*link).next }
        }
    }

    /// # Safety
    /// As for `next_of`, and the link is not linked yet.
    #[inline]
    unsafe fn append(&self, link: *mut Link) {
        // SAFETY: by the caller's promise.
        unsafe { self.next_of(link) }.store(ptr::null_mut(), Ordering::Relaxed);
        let previous = self.tail.swap(link, Ordering::AcqRel);
        // SAFETY: `previous` was the last link; the consumer does not release it before it is linked.
        unsafe { self.next_of(previous) }.store(link, Ordering::Release);
    }

    /// Appends a link.
    ///
    /// # Safety
    /// The link is in no queue and stays valid until it was popped.
    #[inline]
    pub(crate) unsafe fn push(&self, link: NonNull<Link>) {
        // SAFETY: by the caller's promise.
        unsafe { self.append(link.as_ptr()) };
    }

    /// Takes the oldest link.
    ///
    /// # Safety
    /// Only one caller at a time.
    #[inline]
    pub(crate) unsafe fn pop(&self) -> Popped {
        let mut head = self.head.load(Ordering::Relaxed);
        // SAFETY: `head` and what follows it are in the queue, and stay until they are popped here.
        let mut next = unsafe { self.next_of(head) }.load(Ordering::Acquire);
        if ptr::eq(head, STUB) {
            if next.is_null() {
                let pushing = !ptr::eq(self.tail.load(Ordering::Acquire), STUB);
                return if pushing { Popped::Busy } else { Popped::Empty };
            }
            self.head.store(next, Ordering::Relaxed);
            head = next;
            // SAFETY: as above.
            next = unsafe { self.next_of(head) }.load(Ordering::Acquire);
        }
        if next.is_null() {
            // `head` may be the last; the place-holder must follow it before it can be released.
            if !ptr::eq(self.tail.load(Ordering::Acquire), head) {
                return Popped::Busy;
            }
            // SAFETY: the stub is in no list: `head` is not it, and it is popped before all others.
            unsafe { self.append(STUB) };
            // SAFETY: as above.
            next = unsafe { self.next_of(head) }.load(Ordering::Acquire);
            if next.is_null() {
                return Popped::Busy;
            }
        }
        self.head.store(next, Ordering::Relaxed);
        NonNull::new(head).map_or(Popped::Empty, Popped::Link)
    }

    /// Whether nothing was pushed that was not popped. For the consumer it is exact; for others it is
    /// a hint.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        ptr::eq(self.head.load(Ordering::Relaxed), STUB)
            && ptr::eq(self.tail.load(Ordering::Acquire), STUB)
    }
}
