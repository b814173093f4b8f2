//! From a call number to its handler.
//!
//! The route table says which server a call belongs to and whether it is supported; the server's
//! module has the handler. Every handler runs contained: if it panics, its call answers `EIO`, and if
//! memory fails it where it cannot say so, `ENOMEM`.

use core::future::poll_fn;
use core::pin::pin;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::Context;

use abi::Errno;
use base::panic::{Panicked, poll_contained};
use base::user::UserContext;
use policy::route::{self, Class, Support};
use policy::table::{CALL_LIMIT, number};

use crate::call::{Call, SysResult};
use crate::injection;
use crate::polls;
use crate::posted;
use crate::servers::{self, file, ipc, memory, network, other, process, signal, time};

/// Wait status of a process that `SIGKILL` ended.
const KILLED: u32 = 9;

/// Carries out a call that may run on any core.
pub async fn dispatch(call: &Call) -> SysResult {
    let mut handler = pin!(Some(serve(call)));
    let pid = call.process().pid;
    let poll = |context: &mut Context<'_>| {
        polls::count(call.number(), || {
            injection::during(pid, || poll_contained(handler.as_mut(), context))
        })
    };
    poll_fn(poll).await.unwrap_or_else(|panicked| Err(failed(call, panicked)))
}

/// A handler was unwound: what its call answers.
#[cold]
fn failed(call: &Call, panicked: Panicked) -> Errno {
    if panicked == Panicked::Bug {
        servers::of_call(call.number()).restarts.fetch_add(1, Ordering::Relaxed);
        log::error!("the handler of {} panicked; its call fails", name(call.number()));
    }
    panicked.into()
}

async fn serve(call: &Call) -> SysResult {
    let Some(row) = route::route(call.number()) else { return Err(unknown(call.number())) };
    if row.support == Support::None {
        return Err(unknown(call.number()));
    }
    match row.class {
        Class::File => file::serve(call).await,
        Class::Network => network::serve(call).await,
        Class::Process => process::serve(call).await,
        Class::Signal => signal::serve(call).await,
        Class::Ipc => ipc::serve(call).await,
        Class::Memory => memory::serve(call).await,
        Class::Time => time::serve(call).await,
        Class::Other => other::serve(call).await,
    }
}

/// Carries out a call that changes the caller's own control flow, on the caller's core.
pub async fn dispatch_local(call: &Call, context: &mut UserContext) -> SysResult {
    let mut handler = pin!(Some(serve_local(call, context)));
    let pid = call.process().pid;
    let poll = |context: &mut Context<'_>| {
        injection::during(pid, || poll_contained(handler.as_mut(), context))
    };
    poll_fn(poll).await.unwrap_or_else(|panicked| {
        if matches!(call.number(), number::execve | number::execveat) {
            // Perhaps neither the old program is whole nor the new one.
            call.process().request_group_exit(KILLED);
        }
        Err(failed(call, panicked))
    })
}

async fn serve_local(call: &Call, context: &mut UserContext) -> SysResult {
    if matches!(call.number(), number::ferry_register | number::ferry_unregister) {
        posted::serve_local(call, context).await
    } else if matches!(call.number(), number::rt_sigreturn | number::sigaltstack) {
        signal::serve_local(call, context).await
    } else {
        process::serve_local(call, context).await
    }
}

/// Name of a call for logs.
pub fn name(number: usize) -> &'static str {
    route::route(number).map_or("unknown call", |row| row.name)
}

/// `ENOSYS`, with one line in the log per number.
pub fn unknown(number: usize) -> Errno {
    static LOGGED: [AtomicU64; CALL_LIMIT / 64] = [const { AtomicU64::new(0) }; CALL_LIMIT / 64];
    let first = match LOGGED.get(number / 64) {
        Some(word) => {
            word.fetch_or(1 << (number % 64), Ordering::Relaxed) >> (number % 64) & 1 == 0
        }
        None => false,
    };
    if first {
        log::warn!("system call {number} ({}) is not supported", name(number));
    }
    Errno::ENOSYS
}
