//! Calls of class network: sockets.
//!
//! | module | calls |
//! |---|---|
//! | `connect` | socket, socketpair, bind, listen, accept, connect, shutdown, getsockname, getpeername |
//! | `message` | send, recv and their kin; read and write on a socket |
//! | `control` | the control messages of sendmsg and recvmsg |
//! | `option` | getsockopt, setsockopt |
//! | `address` | addresses in a program's memory |
//!
//! A socket never waits. `attempt` tries again whenever the queue is woken that the socket names.

mod address;
mod connect;
mod control;
mod message;
mod option;

use core::future::poll_fn;
use core::task::Poll;

use abi::Errno;
use abi::fs::PollEvents;
use alloc::boxed::Box;
use alloc::sync::Arc;
use base::time::{self, with_deadline};
use base::wait::{Kind, Registration, Target, WaitQueue};
use fs::OpenFile;
use net::Socket;
use net::option::Limit;
use net::socket::Blocked;
use policy::table::number;

use super::file::support::usable;
use crate::call::{self, Call, SysResult};
use crate::process::Interrupted;
use crate::socket;

pub use message::{read_from, told_once, write_at_once, write_to};

/// Carries out a call of this class.
pub async fn serve(call: &Call) -> SysResult {
    match call.number() {
        number::socket => connect::socket(call),
        number::socketpair => connect::socketpair(call).await,
        number::bind => connect::bind(call).await,
        number::listen => connect::listen(call),
        number::accept => connect::accept(call, 0).await,
        number::accept4 => connect::accept(call, call.int(3)).await,
        number::connect => connect::connect(call).await,
        number::shutdown => connect::shutdown(call),
        number::getsockname => connect::getsockname(call).await,
        number::getpeername => connect::getpeername(call).await,
        number::sendto => message::sendto(call).await,
        number::recvfrom => message::recvfrom(call).await,
        number::sendmsg => message::sendmsg(call).await,
        number::recvmsg => message::recvmsg(call).await,
        number::sendmmsg => message::sendmmsg(call).await,
        number::recvmmsg => message::recvmmsg(call).await,
        number::setsockopt => option::setsockopt(call).await,
        number::getsockopt => option::getsockopt(call).await,
        _ => Err(call::unknown(call.number())),
    }
}

/// An open socket.
pub struct Handle {
    file: Arc<OpenFile>,
    socket: Arc<dyn Socket>,
}

impl Handle {
    /// The socket of the descriptor in argument `index`: `EBADF`, `ENOTSOCK`.
    fn new(call: &Call, index: usize) -> Result<Handle, Errno> {
        Handle::of(usable(call, index)?)
    }

    /// The socket behind a file: `ENOTSOCK`.
    pub fn of(file: Arc<OpenFile>) -> Result<Handle, Errno> {
        let socket = socket::of(&file)?.clone();
        Ok(Handle { file, socket })
    }
}

/// How long an operation may wait.
struct Patience {
    is_nonblocking: bool,
    deadline_ns: Option<u64>,
}

impl Patience {
    /// As the socket's time limit says.
    fn new(is_nonblocking: bool, limit: &Limit) -> Patience {
        let deadline_ns = limit.get().map(|limit_ns| time::now_ns().saturating_add(limit_ns));
        Patience { is_nonblocking, deadline_ns }
    }
}

/// Tries until it works, waiting where the socket says. `EAGAIN` when the time is over. A wait with a
/// time limit is not begun again after a signal.
async fn attempt<T>(
    call: &Call,
    patience: &Patience,
    act: impl FnMut() -> Result<T, Blocked>,
) -> Result<T, Errno> {
    attempt_as(call, patience, Kind::Watcher, act, || false).await
}

/// As `attempt`, for one who takes what comes to a socket: of several who wait for that one is woken. Who has
/// waited and leaves something behind passes the wake-up on.
async fn attempt_to_take<T>(
    call: &Call,
    patience: &Patience,
    socket: &Arc<dyn Socket>,
    act: impl FnMut() -> Result<T, Blocked>,
) -> Result<T, Errno> {
    let has_more = || !socket.poll(PollEvents::READABLE).is_empty();
    attempt_as(call, patience, Kind::Taker, act, has_more).await
}

async fn attempt_as<T>(
    call: &Call,
    patience: &Patience,
    kind: Kind,
    mut act: impl FnMut() -> Result<T, Blocked>,
    has_more: impl Fn() -> bool,
) -> Result<T, Errno> {
    match act() {
        Ok(value) => return Ok(value),
        Err(Blocked { room: Some(_), .. }) if !patience.is_nonblocking => {}
        Err(blocked) => return Err(blocked.errno),
    }
    let wanted = if kind == Kind::Taker { PollEvents::READABLE } else { PollEvents::all() };
    let mut place: Option<(Arc<WaitQueue>, Registration)> = None;
    let mut has_waited = false;
    let wait = poll_fn(|context| {
        let mut is_fresh = false;
        if let Some((_, registration)) = &mut place {
            if kind == Kind::Taker && registration.still_waits(context.waker()) {
                return Poll::Pending;
            }
            // What it was told is looked at below.
            registration.settle();
            has_waited = true;
        }
        loop {
            let result = match act() {
                Ok(value) => Ok(value),
                Err(Blocked { room: Some(room), .. }) => {
                    let is_known = is_fresh
                        && place.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, &room));
                    if is_known {
                        return Poll::Pending;
                    }
                    let target = Target::Waker(context.waker().clone());
                    let registration = room.watch(kind, wanted, target);
                    place = Some((room, registration));
                    is_fresh = true;
                    continue;
                }
                Err(blocked) => Err(blocked.errno),
            };
            if let Some((_, mut registration)) = place.take() {
                has_waited |= registration.was_told();
                if has_waited && has_more() {
                    registration.pass_on();
                } else {
                    registration.settle();
                }
            }
            return Poll::Ready(result);
        }
    });
    // On the heap, as whatever waits is: the futures of all calls stay small.
    match Box::pin(call.thread.interruptible(with_deadline(wait, patience.deadline_ns))).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(Errno::EAGAIN),
        Err(Interrupted) if patience.deadline_ns.is_some() => Err(Errno::EINTR),
        Err(Interrupted) => Err(Errno::ERESTARTSYS),
    }
}
