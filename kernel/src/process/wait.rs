//! Waiting for children: `wait4` and `waitid`.
//!
//! A wait looks at the children under the tree's lock and either takes what it finds or goes to sleep
//! on the process's queue of child events, which is woken after every change. Whoever waits registers
//! before it looks, so no change is missed. A zombie is taken out of the tree under the same lock, so
//! exactly one of several waiting threads gets it.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use abi::Errno;
use abi::process::*;
use abi::signal::{CLD_CONTINUED, CLD_STOPPED, CLD_TRAPPED, Signal};

use super::exit::describe;
use super::ids::Pid;
use super::process::{Process, UsageSum};
use super::{table, tracing};
use crate::call::Caller;

/// Which children.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// Any.
    Any,
    /// The one of this number.
    Process(Pid),
    /// Those in this group.
    Group(Pid),
}

/// What to wait for.
#[derive(Clone, Copy, Debug)]
pub struct WaitRequest {
    /// Which children.
    pub which: Which,
    /// `WEXITED`, `WSTOPPED`, `WCONTINUED`, `WNOHANG`, `WNOWAIT`, `__WALL`, `__WCLONE`.
    pub options: i32,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which child.
    pub pid: Pid,
    /// Its real user.
    pub user: u32,
    /// Wait status, as `wait4` reports it.
    pub status: u32,
    /// `CLD_…`
    pub code: i32,
    /// Exit code or signal.
    pub value: i32,
    /// What the child and its own reaped children used.
    pub usage: UsageSum,
}

/// What a look at the children found.
enum Look {
    Found(Found),
    /// There are children, but nothing has happened.
    Nothing,
    NoChildren,
}

/// Wait status of a continued child.
const CONTINUED: u32 = 0xffff;

/// Waits. `None` when nothing has happened and `WNOHANG` is set; `ECHILD` without such children.
pub async fn wait(caller: &Caller, request: WaitRequest) -> Result<Option<Found>, Errno> {
    let process = &caller.process;
    // The common case first: what is there is taken without touching the queue.
    match look(process, &request) {
        Look::Found(found) => return Ok(Some(found)),
        Look::NoChildren => return Err(Errno::ECHILD),
        Look::Nothing if request.options & WNOHANG != 0 => return Ok(None),
        Look::Nothing => {}
    }
    let event = process.signals.child_events.wait_until(|| match look(process, &request) {
        Look::Found(found) => Some(Ok(Some(found))),
        Look::NoChildren => Some(Err(Errno::ECHILD)),
        Look::Nothing => None,
    });
    caller.interruptible(event).await?
}

/// Whether the request chooses this number or group.
fn is_chosen(request: &WaitRequest, number: Pid, group: Pid) -> bool {
    match request.which {
        Which::Any => true,
        Which::Process(pid) => number == pid,
        Which::Group(wanted) => group == wanted,
    }
}

/// What there is to tell of those whom the process traces, and whether it traces any that is chosen.
fn look_at_tracees(process: &Process, request: &WaitRequest) -> (Option<Found>, bool) {
    let consume = request.options & WNOWAIT == 0;
    let mut has_some = false;
    for thread in tracing::tracees(process) {
        if !is_chosen(request, thread.tid().as_pid(), thread.process.group()) {
            continue;
        }
        has_some = true;
        if let Some(code) = thread.tracing.report(consume) {
            let usage = thread.process.usage().plus(thread.process.ended_children.get());
            let found = Found {
                pid: thread.tid().as_pid(),
                user: thread.credentials().user.real,
                status: code << 8 | 0x7f,
                code: CLD_TRAPPED,
                value: code.cast_signed(),
                usage,
            };
            return (Some(found), true);
        }
    }
    if request.options & WEXITED == 0 {
        return (None, has_some);
    }
    let wanted = |ended: &tracing::Ended| is_chosen(request, ended.tid.as_pid(), ended.group);
    let ended = tracing::ended(process, consume, wanted).map(|ended| {
        let (code, value) = describe(ended.status);
        let (pid, user) = (ended.tid.as_pid(), ended.user);
        Found { pid, user, status: ended.status, code, value, usage: ended.usage }
    });
    (ended, has_some || ended.is_some())
}

fn look(process: &Arc<Process>, request: &WaitRequest) -> Look {
    let (found, mut has_children) = look_at_tracees(process, request);
    if let Some(found) = found {
        return Look::Found(found);
    }
    let mut tree = table::lock();
    let mut ended = None;
    for (child, is_zombie) in tree.children(process.pid) {
        if !is_eligible(child, request) {
            continue;
        }
        has_children = true;
        if is_zombie {
            if request.options & WEXITED != 0 {
                ended = Some(child.clone());
                break;
            }
            continue;
        }
        if tracing::is_traced_by(child, process) {
            continue;
        }
        if let Some(found) = changed(child, request) {
            return Look::Found(found);
        }
    }
    let Some(child) = ended else {
        return if has_children { Look::Nothing } else { Look::NoChildren };
    };
    let found = describe_ended(&child);
    if request.options & WNOWAIT == 0 {
        process.ended_children.add(&found.usage);
        tree.remove_process(&child);
    }
    drop(tree);
    Look::Found(found)
}

fn is_eligible(child: &Process, request: &WaitRequest) -> bool {
    let is_chosen = is_chosen(request, child.pid, child.group());
    let is_clone = child.exit_signal.load(Ordering::Relaxed) != Signal::SIGCHLD.number();
    is_chosen && (request.options & __WALL != 0 || is_clone == (request.options & __WCLONE != 0))
}

/// A stop or a continuation that was not reported yet.
fn changed(child: &Arc<Process>, request: &WaitRequest) -> Option<Found> {
    let consume = request.options & WNOWAIT == 0;
    let mut found = None;
    if request.options & WSTOPPED != 0 {
        found = child.signals.stop_report(consume).map(|signal| {
            let number = signal.number();
            (number.cast_unsigned() << 8 | 0x7f, CLD_STOPPED, number)
        });
    }
    if found.is_none()
        && request.options & WCONTINUED != 0
        && child.signals.continue_report(consume)
    {
        found = Some((CONTINUED, CLD_CONTINUED, Signal::SIGCONT.number()));
    }
    found.map(|(status, code, value)| Found {
        pid: child.pid,
        user: child.user(),
        status,
        code,
        value,
        usage: child.usage().plus(child.ended_children.get()),
    })
}

fn describe_ended(child: &Process) -> Found {
    let status = child.exit_status().unwrap_or(0);
    let (code, value) = describe(status);
    Found {
        pid: child.pid,
        user: child.last_user.load(Ordering::Relaxed),
        status,
        code,
        value,
        usage: child.usage().plus(child.ended_children.get()),
    }
}

/// Waits until a process has ended and returns its wait status; for the kernel itself.
pub async fn until_ended(process: &Process) -> u32 {
    process.thread_events.wait_until(|| process.exit_status()).await
}

/// Fills `struct rusage`.
pub fn usage_record(sum: &UsageSum) -> Usage {
    let time = |ns: u64| UsageTime {
        seconds: (ns / 1_000_000_000).cast_signed(),
        microseconds: (ns % 1_000_000_000 / 1000).cast_signed(),
    };
    Usage {
        user: time(sum.user_ns),
        system: time(sum.system_ns),
        max_resident_kib: sum.max_resident_kib.cast_signed(),
        minor_faults: sum.faults.cast_signed(),
        voluntary_switches: sum.voluntary_switches.cast_signed(),
        involuntary_switches: sum.involuntary_switches.cast_signed(),
        ..Usage::default()
    }
}
