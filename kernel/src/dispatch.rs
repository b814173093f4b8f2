//! From a call number to its handler.
//!
//! The route table says which server a call belongs to and whether it is supported; the server's
//! module has the handler. Every handler runs contained: if it panics, its call answers `EIO`.

use core::future::poll_fn;
use core::pin::pin;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use base::panic::poll_contained;
use base::user::UserContext;
use policy::route::{self, Class, Support};
use policy::table::{CALL_LIMIT, number};

use crate::call::{Call, SysResult};
use crate::posted;
use crate::servers::{self, file, ipc, memory, other, process, signal, time};

/// Carries out a call that may run on any core.
pub async fn dispatch(call: &Call) -> SysResult {
    let mut handler = pin!(Some(serve(call)));
    match poll_fn(|context| poll_contained(handler.as_mut(), context)).await {
        Ok(result) => result,
        Err(_) => {
            servers::of_call(call.number()).restarts.fetch_add(1, Ordering::Relaxed);
            log::error!("the handler of {} panicked; its call fails", name(call.number()));
            Err(Errno::EIO)
        }
    }
}

async fn serve(call: &Call) -> SysResult {
    let Some(row) = route::route(call.number()) else { return Err(unknown(call.number())) };
    if row.support == Support::None {
        return Err(unknown(call.number()));
    }
    match row.class {
        Class::File => file::serve(call).await,
        Class::Network => Err(unknown(call.number())),
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
