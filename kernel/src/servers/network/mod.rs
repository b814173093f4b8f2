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
use base::wait::{Kind, Target};
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
    mut act: impl FnMut() -> Result<T, Blocked>,
) -> Result<T, Errno> {
    match act() {
        Ok(value) => return Ok(value),
        Err(Blocked { room: Some(_), .. }) if !patience.is_nonblocking => {}
        Err(blocked) => return Err(blocked.errno),
    }
    let mut place = None;
    let wait = poll_fn(|context| {
        place = None;
        loop {
            match act() {
                Ok(value) => return Poll::Ready(Ok(value)),
                Err(Blocked { room: Some(room), .. }) => {
                    let is_known =
                        place.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, &room));
                    if is_known {
                        return Poll::Pending;
                    }
                    let target = Target::Waker(context.waker().clone());
                    let registration = room.watch(Kind::Watcher, PollEvents::all(), target);
                    place = Some((room, registration));
                }
                Err(blocked) => return Poll::Ready(Err(blocked.errno)),
            }
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
