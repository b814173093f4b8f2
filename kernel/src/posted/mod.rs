//! Posted calls: system calls that arrive through shared memory.
//!
//! ```text
//!  application core                       kernel core
//!  user code fills an entry               Scanner::scan
//!  status = submitted  - - - - - - - ->   look at the head entry of the syspage on each core
//!                                         copy it, check it, carry it out right there,
//!  user code sees done <- - - - - - - -   or leave a future behind / pass it to another core's server
//! ```
//!
//! | module | has |
//! |---|---|
//! | `syspage` | what everybody may know of a syspage: pages, calls under way, who waits |
//! | `scanner` | what its core alone has: where it stands in each syspage, which to look at |
//! | `trampoline` | unmodified programs: their threads at the places that were patched (`memory::Sites`) |
//! | `calls` | `ferry_register`, `ferry_unregister`, `ferry_wait`, `ferry_cancel` |
//!
//! One core scans: the first kernel core. It looks only at syspages of threads that are on an
//! application core now (each core publishes which, `enter_core`), and at those whose thread left its
//! core, or trapped to say so, with something posted. The contract with users is `docs/abi/syspage.md`.

mod calls;
mod scanner;
mod syspage;
#[cfg(test)]
mod tests;
pub mod trampoline;

use abi::Errno;
use abi::syspage::{FLAG_LINK, MUST_TRAP};
use base::cpu::{CpuId, PerCpu};
use base::posted::PostedCall;
use base::task;
use core::sync::atomic::{AtomicU32, Ordering, fence};

pub use calls::{leave, serve, serve_local, submit_at_once};
pub use scanner::{Scanner, start};
pub use syspage::Syspage;

use policy::choice::Wanted;
use policy::place::CoreSet;
use policy::route::{self, CallPath, Support};

use crate::call::encode;
use crate::process::Thread;
use crate::{call, machine};

/// Syspages that one process may have.
const PROCESS_LIMIT: u32 = 256;
/// Looks at a status before a waiting user should trap: a few times what a short call takes.
const SPIN_LIMIT: u32 = 20_000;

/// What a posted call answers that is to be made by a trap.
pub const fn must_trap() -> Errno {
    match Errno::from_number(MUST_TRAP.cast_unsigned()) {
        Some(errno) => errno,
        None => Errno::EAGAIN,
    }
}

/// Whether a call may be carried out as it was posted; else the answer that it gets.
pub fn admit(posted: &PostedCall) -> Result<(), u64> {
    let number = usize::from(posted.number);
    let row = route::route(number).filter(|row| row.support != Support::None);
    let Some(row) = row else {
        return Err(encode(Err(call::unknown(number))));
    };
    if !route::may_be_posted(row) {
        return Err(encode(Err(must_trap())));
    }
    if posted.flags & !FLAG_LINK != 0 {
        return Err(encode(Err(Errno::EINVAL)));
    }
    Ok(())
}

/// The syspage of the thread that is on each core; 0 for none. Written by the core itself.
static ON_CORE: PerCpu<AtomicU32> = PerCpu::new([const { AtomicU32::new(0) }; hal::MAX_CPUS]);

/// The core that looks for posted calls.
pub fn scanner_core() -> CpuId {
    machine::device_core()
}

/// Whether users may spin for the scanner: not on the only core that runs programs.
fn may_spin() -> bool {
    machine::layout().application != CoreSet(1 << scanner_core().index())
}

/// Whether the scanner's core has nothing to do now, or a program to run: users do not spin for it.
fn is_scanner_away() -> bool {
    let core = scanner_core();
    task::is_parked(core) || machine::thread_count(core.index()) != 0
}

/// Whether the calls of programs that do not know of it are to be posted: that is the path in force.
pub fn is_for_all() -> bool {
    machine::path() == Wanted::Fixed(CallPath::Posted) && may_spin()
}

/// A thread begins to run on this core: its syspage is looked at from now on.
#[inline]
pub fn enter_core(thread: &Thread) {
    let id = thread.syspage_id.load(Ordering::Relaxed);
    if id != 0 {
        enter_with(thread, id);
    }
}

fn enter_with(thread: &Thread, id: u32) {
    ON_CORE.here().store(id, Ordering::Release);
    // Either a scanner that is about to park sees the thread, or we see that it is.
    fence(Ordering::SeqCst);
    if is_scanner_away()
        && let Some(syspage) = thread.syspage()
    {
        syspage.set_parked();
    }
}

/// The thread that is on this core gives its syspage back.
fn forget_core(id: u32) {
    let _ = ON_CORE.here().compare_exchange(id, 0, Ordering::Release, Ordering::Relaxed);
}

/// The thread leaves this core; what it posted and nobody has taken is looked at nevertheless.
#[inline]
pub fn leave_core(thread: &Thread) {
    if ON_CORE.here().load(Ordering::Relaxed) != 0 {
        ON_CORE.here().store(0, Ordering::Release);
        if let Some(syspage) = thread.syspage().filter(|syspage| syspage.may_have_work()) {
            syspage.ring();
        }
    }
}
