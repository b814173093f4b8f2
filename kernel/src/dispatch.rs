//! From a call number to its handler.
//!
//! The route table says which server a call belongs to and whether it is supported; the server's
//! module has the handler. Every handler runs contained: if it panics, its call answers `EIO`, and if
//! memory fails it where it cannot say so, `ENOMEM`.

use core::future::poll_fn;
use core::pin::pin;
use core::task::Context;

use abi::Errno;
use alloc::boxed::Box;
use base::panic::{Panicked, poll_contained};
use base::user::UserContext;
use fs::notify::acting;
use fs::pending::{self, Attempts};
use policy::route::{self, Class, Support};
use policy::table::number;

use crate::call::{self, Call, SysResult};
use crate::servers::{file, ipc, memory, network, other, process, signal, time};
use crate::{counters, injection, locks, polls, posted};

/// Wait status of a process that `SIGKILL` ended.
const KILLED: u32 = 9;

/// Carries out a call that may run on any core.
pub async fn dispatch(call: &Call) -> SysResult {
    let mut handler = pin!(Some(serve(call)));
    let (pid, tid) = (call.process().pid.0, call.thread.tid().0);
    let poll = |context: &mut Context<'_>| {
        let during = || poll_contained(handler.as_mut(), context);
        let contained = || injection::during(pid, || acting(pid, tid, during));
        locks::during(call.number(), call.thread.number(), || {
            polls::count(call.number(), contained)
        })
    };
    poll_fn(poll).await.unwrap_or_else(|panicked| Err(failed(call, panicked)))
}

/// A handler was unwound: what its call answers.
#[cold]
fn failed(call: &Call, panicked: Panicked) -> Errno {
    if panicked == Panicked::Bug {
        let class = route::route(call.number()).map_or(Class::Other, |row| row.class);
        counters::note_restart(class, call.number());
        log::error!("the handler of {} panicked; its call fails", route::name(call.number()));
    }
    panicked.into()
}

async fn serve(call: &Call) -> SysResult {
    match serve_once(call).await {
        Err(Errno::EIOCBQUEUED) => Box::pin(pending::resume_future(|| serve_once(call))).await,
        result => result,
    }
}

async fn serve_once(call: &Call) -> SysResult {
    let Some(row) = route::route(call.number()) else { return Err(call::unknown(call.number())) };
    if row.support == Support::None {
        return Err(call::unknown(call.number()));
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
    let (pid, tid) = (call.process().pid.0, call.thread.tid().0);
    let poll = |context: &mut Context<'_>| {
        let during = || poll_contained(handler.as_mut(), context);
        let contained = || injection::during(pid, || acting(pid, tid, during));
        locks::during(call.number(), call.thread.number(), || {
            polls::count(call.number(), contained)
        })
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
        // A program's files may have to be read first; nothing has changed until they were.
        let mut result = process::serve_local(call, context).await;
        if result == Err(Errno::EIOCBQUEUED) {
            let mut attempts = Box::new(Attempts::new());
            while result == Err(Errno::EIOCBQUEUED) {
                attempts.wait().await?;
                let again = process::serve_local(call, context);
                result = Box::pin(attempts.carry_out(again)).await;
            }
        }
        result
    }
}
