//! The CLH lock: a line of nodes, in which each one that waits looks at the node before its own.
//!
//! ```text
//! tail --> node of C      C looks at B's node
//!          node of B      B looks at A's node
//!          node of A      busy while A holds the lock
//! ```
//!
//! There is one node more than there are seats. Who releases leaves its node to its successor, which
//! still looks at it, and takes the one that it looked at itself.

use super::scheme::SpinLock;
use crate::primitives::{AtomicU32, AtomicUsize, Ordering, constant, repeated};

/// On a line of its own, and on the one beside it, which processors fetch along.
#[repr(align(128))]
struct Line<T>(T);

/// What a seat alone uses.
struct Seat {
    /// Its node, exclusive-or its own number: zero is the node that it begins with.
    node: AtomicUsize,
    /// The node before, while it waits or holds.
    before: AtomicUsize,
}

/// A CLH lock for so many seats.
pub struct ClhLock<const SEATS: usize> {
    /// The node of the last in line.
    tail: Line<AtomicUsize>,
    /// 1 while the owner of a node waits or holds.
    busy: [Line<AtomicU32>; SEATS],
    /// The node of number `SEATS`.
    spare: Line<AtomicU32>,
    seats: [Line<Seat>; SEATS],
}

impl<const SEATS: usize> Default for ClhLock<SEATS> {
    fn default() -> Self {
        ClhLock::new()
    }
}

impl<const SEATS: usize> ClhLock<SEATS> {
    constant! {
        /// A free lock.
        pub fn new() -> ClhLock<SEATS> {
            ClhLock {
                tail: Line(AtomicUsize::new(SEATS)),
                busy: repeated!(Line(AtomicU32::new(0))),
                spare: Line(AtomicU32::new(0)),
                seats: repeated!(Line(Seat { node: AtomicUsize::new(0), before: AtomicUsize::new(0) })),
            }
        }
    }

    fn node(&self, node: usize) -> &AtomicU32 {
        &self.busy.get(node).unwrap_or(&self.spare).0
    }
}

impl<const SEATS: usize> SpinLock for ClhLock<SEATS> {
    #[inline]
    fn join(&self, seat: usize) -> usize {
        let own = &self.seats[seat % SEATS].0;
        let node = own.node.load(Ordering::Relaxed) ^ seat;
        self.node(node).store(1, Ordering::Relaxed);
        // Publishes the store above to whoever comes next, and shows that of whoever came before.
        let before = self.tail.0.swap(node, Ordering::AcqRel);
        own.before.store(before, Ordering::Relaxed);
        before
    }

    #[inline]
    fn is_turn(&self, _seat: usize, before: usize) -> bool {
        self.node(before).load(Ordering::Acquire) == 0
    }

    #[inline]
    fn release(&self, seat: usize) {
        let own = &self.seats[seat % SEATS].0;
        let node = own.node.load(Ordering::Relaxed) ^ seat;
        // Whoever owned it has left it, and nobody else looks at it.
        own.node.store(own.before.load(Ordering::Relaxed) ^ seat, Ordering::Relaxed);
        self.node(node).store(0, Ordering::Release);
    }
}
