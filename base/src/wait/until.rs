//! Waiting as a taker until something is found.

use super::{ANY, Kind, Target, WaitQueue};
use crate::primitives::{Ordering, fence};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

/// See `WaitQueue::wait_until`.
#[must_use = "futures do nothing unless awaited"]
pub struct WaitUntil<'a, L> {
    queue: &'a WaitQueue,
    look: L,
    /// The taker that was registered and, as far as we know, not woken yet.
    id: Option<u64>,
}

impl<L> Unpin for WaitUntil<'_, L> {}

impl<T, L: FnMut() -> Option<T>> Future for WaitUntil<'_, L> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        let inside = match this.id {
            None => {
                if let Some(found) = (this.look)() {
                    return Poll::Ready(found);
                }
                this.queue.inside()
            }
            Some(id) => {
                let inside = this.queue.inside();
                if inside.still_waits(id, context.waker()) {
                    // Woken by something else, such as a second future in the same task; the state is
                    // worth a look all the same.
                    fence(Ordering::SeqCst);
                    return match (this.look)() {
                        Some(found) => {
                            this.leave();
                            Poll::Ready(found)
                        }
                        None => Poll::Pending,
                    };
                }
                this.id = None;
                if let Some(found) = (this.look)() {
                    return Poll::Ready(found);
                }
                inside
            }
        };
        this.id = Some(inside.add(Kind::Taker, ANY, Target::Waker(context.waker().clone())));
        match (this.look)() {
            Some(found) => {
                this.leave();
                Poll::Ready(found)
            }
            None => Poll::Pending,
        }
    }
}

impl<'a, L> WaitUntil<'a, L> {
    pub(super) fn new(queue: &'a WaitQueue, look: L) -> WaitUntil<'a, L> {
        WaitUntil { queue, look, id: None }
    }

    /// Leaves the queue. A wake-up that came for us and that we did not need goes to the next: two
    /// changes may have come, and we answer for one.
    fn leave(&mut self) {
        if let Some(id) = self.id.take()
            && !self.queue.inside().remove(Kind::Taker, id)
        {
            self.queue.wake_one();
        }
    }
}

impl<L> Drop for WaitUntil<'_, L> {
    fn drop(&mut self) {
        self.leave();
    }
}
