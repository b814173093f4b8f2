//! Using operations: at once, posted, or awaited.

use std::any::Any;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::raw::operations::Operation;
use crate::ring::{FlightId, Outcome, Ring};

/// What a call needs to stay alive, and what comes of it in the end.
pub trait Resource: Any + Unpin {
    /// What the caller gets.
    type Output;

    /// Makes it of the result, which is a negative error number or what the call answers.
    fn finish(self, result: i64) -> Self::Output;
}

/// A call under way, and a future of its output.
///
/// Dropping it asks the kernel to end the call, and keeps its buffers alive until it has.
#[must_use = "dropping it cancels the call"]
pub struct Posted<R: Resource> {
    ring: Rc<Ring>,
    state: State<R>,
}

enum State<R> {
    /// There was no entry for it, or no entry beside that of the call that it comes after.
    Waiting {
        operation: Operation<R>,
        after: Option<FlightId>,
    },
    UnderWay {
        id: FlightId,
        resource: R,
    },
    Done {
        result: i64,
        resource: R,
    },
    Taken,
}

impl<R: Resource> Operation<R> {
    /// Carries the call out, by the fastest way that there is now.
    pub fn call(self) -> R::Output {
        let result = Ring::current().call(&self.call);
        self.resource.finish(result)
    }

    /// Begins the call.
    pub fn post(self) -> Posted<R> {
        self.begin(Ring::current(), None)
    }

    /// Begins the call when another one is over, whatever comes of that. One that has not begun, for
    /// want of an entry, is waited for here.
    pub fn post_after<B: Resource>(self, before: &mut Posted<B>) -> Posted<R> {
        before.begin_at_last();
        let after = match &before.state {
            State::UnderWay { id, .. } => Some(*id),
            _ => None,
        };
        self.begin(before.ring.clone(), after)
    }

    fn begin(self, ring: Rc<Ring>, after: Option<FlightId>) -> Posted<R> {
        let mut posted = Posted { ring, state: State::Waiting { operation: self, after } };
        posted.advance();
        posted
    }
}

impl<R: Resource> IntoFuture for Operation<R> {
    type Output = R::Output;
    type IntoFuture = Posted<R>;

    fn into_future(self) -> Posted<R> {
        self.post()
    }
}

impl<R: Resource> Posted<R> {
    /// Goes as far as it goes without waiting.
    fn advance(&mut self) {
        if let State::Waiting { operation, after } = &self.state {
            let mut outcome = self.ring.post(&operation.call, *after);
            if let Outcome::Full = outcome {
                // Results that nobody took leave their entries.
                self.ring.receive();
                outcome = self.ring.post(&operation.call, *after);
            }
            let State::Waiting { operation, after } = mem::replace(&mut self.state, State::Taken)
            else {
                return;
            };
            let resource = operation.resource;
            self.state = match outcome {
                Outcome::Done(result) => State::Done { result, resource },
                Outcome::UnderWay(id) => State::UnderWay { id, resource },
                Outcome::Full => {
                    let operation = Operation { call: operation.call, resource };
                    State::Waiting { operation, after }
                }
            };
        }
        if let State::UnderWay { id, .. } = &self.state
            && let Some(result) = self.ring.take(*id)
            && let State::UnderWay { resource, .. } = mem::replace(&mut self.state, State::Taken)
        {
            self.state = State::Done { result, resource };
        }
    }

    /// Waits until there is an entry for it.
    fn begin_at_last(&mut self) {
        self.advance();
        while let State::Waiting { .. } = self.state {
            self.ring.submit();
            self.ring.wait_any(None);
            self.advance();
        }
    }

    fn finish(&mut self) -> Option<R::Output> {
        match mem::replace(&mut self.state, State::Taken) {
            State::Done { result, resource } => Some(resource.finish(result)),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Whether the output is there.
    pub fn is_done(&mut self) -> bool {
        if !self.has_ended()
            && let State::UnderWay { id, .. } = &self.state
        {
            self.ring.look_harder(*id);
        }
        self.has_ended()
    }

    /// As `is_done`, without giving way to the kernel.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.advance();
        matches!(self.state, State::Done { .. })
    }

    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self.state, State::UnderWay { .. })
    }

    /// Waits for the output.
    pub fn wait(mut self) -> R::Output {
        loop {
            self.begin_at_last();
            if let State::UnderWay { id, .. } = &self.state {
                self.ring.wait_for(*id, None);
            }
            self.advance();
            if let Some(output) = self.finish() {
                return output;
            }
        }
    }

    /// Waits for the output for at most a time; gives the call back when it is over.
    pub fn wait_timeout(mut self, timeout: Duration) -> Result<R::Output, Posted<R>> {
        self.begin_at_last();
        if let State::UnderWay { id, .. } = &self.state {
            self.ring.wait_for(*id, Some(timeout));
        }
        self.advance();
        self.finish().ok_or(self)
    }

    /// Asks the kernel to end the call's wait: the call then fails with `EINTR`, unless it completes
    /// first. A call that does not wait goes on.
    pub fn cancel(&mut self) {
        self.begin_at_last();
        if let State::UnderWay { id, .. } = &self.state {
            self.ring.cancel(*id);
        }
    }
}

impl<R: Resource> Future for Posted<R> {
    type Output = R::Output;

    /// Pending for ever after it was ready once.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R::Output> {
        self.advance();
        if let Some(output) = self.finish() {
            return Poll::Ready(output);
        }
        match &self.state {
            State::UnderWay { id, .. } => self.ring.wake_when_done(*id, context.waker()),
            State::Waiting { .. } => self.ring.wake_when_any_is_done(context.waker()),
            _ => return Poll::Pending,
        }
        // On a foreign executor nobody may be there to receive.
        if !self.ring.has_receiver() {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl<R: Resource> Drop for Posted<R> {
    fn drop(&mut self) {
        if let State::UnderWay { id, resource } = mem::replace(&mut self.state, State::Taken) {
            self.ring.abandon(id, Box::new(resource));
        }
    }
}

impl<R: Resource> fmt::Debug for Posted<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.state {
            State::Waiting { .. } => "Posted(waiting for an entry)",
            State::UnderWay { .. } => "Posted(under way)",
            State::Done { .. } => "Posted(done)",
            State::Taken => "Posted(taken)",
        })
    }
}
