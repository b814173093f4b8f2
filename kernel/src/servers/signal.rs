//! Calls of class signal: masks, actions, sending, waiting for signals, interval timers.

use alloc::sync::Arc;

use abi::Errno;
use abi::signal::{
    Action, AlternateStack, RawSignalInfo, SI_TKILL, SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK, Signal,
    SignalSet,
};
use abi::time::{IntervalValue, NANOSECONDS, Timespec, Timeval};
use base::user::UserContext;
use hal::UserContext as _;
use policy::table::number;
use zerocopy::IntoBytes;

use crate::call::{self, Call, SysResult};
use crate::memory::AddressSpace;
use crate::process::{Credentials, INIT, Pid, Process, Thread, Tid, table};
use crate::signal::timers::Which;
use crate::signal::{self, RestartBlock, SignalInfo};
use crate::time::timer::Setting;

/// Carries out a call of this class that may run on any core.
pub async fn serve(call: &Call) -> SysResult {
    match call.number() {
        number::rt_sigaction => rt_sigaction(call).await,
        number::rt_sigprocmask => rt_sigprocmask(call).await,
        number::rt_sigpending => rt_sigpending(call).await,
        number::rt_sigsuspend => rt_sigsuspend(call).await,
        number::rt_sigtimedwait => rt_sigtimedwait(call).await,
        number::rt_sigqueueinfo => rt_sigqueueinfo(call).await,
        number::rt_tgsigqueueinfo => rt_tgsigqueueinfo(call).await,
        number::kill => kill(call),
        number::pidfd_send_signal => super::process::pidfd_send_signal(call).await,
        number::tkill => tkill(call),
        number::tgkill => tgkill(call),
        number::pause => Err(signal::suspend(&call.thread, None).await),
        number::alarm => alarm(call),
        number::setitimer => setitimer(call).await,
        number::getitimer => getitimer(call).await,
        number::restart_syscall => restart_syscall(call).await,
        _ => Err(call::unknown(call.number())),
    }
}

/// Carries out a call that reads or sets the caller's registers.
pub async fn serve_local(call: &Call, context: &mut UserContext) -> SysResult {
    match call.number() {
        number::rt_sigreturn => {
            signal::restore_frame(&call.thread, context).await;
            Ok(0)
        }
        number::sigaltstack => sigaltstack(call, context.stack_pointer()).await,
        _ => Err(call::unknown(call.number())),
    }
}

/// Argument `index` as the size of a signal set, of which there is one.
fn check_set_size(call: &Call, index: usize) -> Result<(), Errno> {
    if call.argument(index) == SignalSet::SIZE { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Argument `index` as a signal or the 0 that only asks whether sending is permitted.
fn signal_or_probe(call: &Call, index: usize) -> Result<Option<Signal>, Errno> {
    match call.int(index) {
        0 => Ok(None),
        number => Signal::new(number).map(Some).ok_or(Errno::EINVAL),
    }
}

async fn rt_sigaction(call: &Call) -> SysResult {
    check_set_size(call, 3)?;
    let (new, old) = (call.argument(1), call.argument(2));
    let user = call.user();
    let new: Option<Action> = if new == 0 { None } else { Some(user.read_value(new).await?) };
    let signal = Signal::new(call.int(0)).ok_or(Errno::EINVAL)?;

    let actions = call.process().signals.actions();
    let former = match new {
        Some(new) => actions.set(signal, new)?,
        None => actions.get(signal),
    };
    if new.is_some_and(|new| signal::ignores(signal, &new)) {
        signal::discard_ignored(call.process(), signal);
    }
    if old != 0 {
        user.write_value(old, &former).await?;
    }
    Ok(0)
}

/// `rt_sigaction` whose structures are there. `None` when anything stands in the way: nothing has happened
/// then, and the handler does it properly.
pub fn action_at_once(thread: &Thread, space: &AddressSpace, arguments: &[u64; 6]) -> Option<u64> {
    let [number, new_address, old_address, size, ..] = *arguments;
    let signal = Signal::new(number as i32)?;
    if size != SignalSet::SIZE || SignalSet::UNBLOCKABLE.contains(signal) {
        return None;
    }
    let actions = thread.process.signals.actions();
    let mut new = Action::default();
    if new_address != 0 && !space.get_now(new_address, new.as_mut_bytes()) {
        return None;
    }
    let reported = if old_address == 0 { Action::default() } else { actions.get(signal) };
    if old_address != 0 && !space.put_now(old_address, reported.as_bytes()) {
        return None;
    }
    if new_address != 0 {
        let former = actions.set(signal, new).ok()?;
        if old_address != 0 && former != reported {
            // Another thread has set it between.
            let _ = space.put_now(old_address, former.as_bytes());
        }
        if signal::ignores(signal, &new) {
            signal::discard_ignored(&thread.process, signal);
        }
    }
    Some(0)
}

/// `rt_sigprocmask` whose sets are there, as `action_at_once`.
pub fn mask_at_once(
    thread: &Arc<Thread>,
    space: &AddressSpace,
    arguments: &[u64; 6],
) -> Option<u64> {
    let [how, new_address, old_address, size, ..] = *arguments;
    if size != SignalSet::SIZE {
        return None;
    }
    let former = thread.signals.blocked();
    let mut set = SignalSet::EMPTY;
    if new_address != 0 && !space.get_now(new_address, set.as_mut_bytes()) {
        return None;
    }
    let mask = match how as i32 {
        _ if new_address == 0 => former,
        SIG_BLOCK => former | set,
        SIG_UNBLOCK => former.without(set),
        SIG_SETMASK => set,
        _ => return None,
    };
    if old_address != 0 && !space.put_now(old_address, former.as_bytes()) {
        return None;
    }
    if new_address != 0 {
        signal::set_mask(thread, mask);
    }
    Some(0)
}

/// `tgkill` of the calling thread itself. `None` for any other.
pub fn raise_at_once(thread: &Arc<Thread>, arguments: &[u64; 6]) -> Option<u64> {
    let [process, number, signal, ..] = *arguments;
    if process as i32 != thread.process.pid.0 || number as i32 != thread.tid().0 {
        return None;
    }
    let signal = Signal::new(signal as i32)?;
    let user = thread.credentials().user.real;
    let info = SignalInfo::tkill(signal, thread.process.pid.0, user);
    match signal::send_to_thread(thread, info) {
        Ok(()) => Some(0),
        Err(errno) => Some(errno.to_return_value().cast_unsigned()),
    }
}

async fn rt_sigprocmask(call: &Call) -> SysResult {
    check_set_size(call, 3)?;
    let (new, old) = (call.argument(1), call.argument(2));
    let user = call.user();
    let former = call.thread.signals.blocked();
    if new != 0 {
        let set: SignalSet = user.read_value(new).await?;
        let mask = match call.int(0) {
            SIG_BLOCK => former | set,
            SIG_UNBLOCK => former.without(set),
            SIG_SETMASK => set,
            _ => return Err(Errno::EINVAL),
        };
        signal::set_mask(&call.thread, mask);
    }
    if old != 0 {
        user.write_value(old, &former).await?;
    }
    Ok(0)
}

async fn rt_sigpending(call: &Call) -> SysResult {
    let size = usize::try_from(call.argument(1)).map_err(|_| Errno::EINVAL)?;
    let signals = &call.thread.signals;
    let pending = signals.pending() | call.process().signals.pending();
    let bytes = (pending & signals.blocked()).0.to_le_bytes();
    let bytes = bytes.get(..size).ok_or(Errno::EINVAL)?;
    call.user().write_bytes(call.argument(0), bytes).await?;
    Ok(0)
}

async fn rt_sigsuspend(call: &Call) -> SysResult {
    check_set_size(call, 1)?;
    let mask: SignalSet = call.user().read_value(call.argument(0)).await?;
    Err(signal::suspend(&call.thread, Some(mask)).await)
}

async fn rt_sigtimedwait(call: &Call) -> SysResult {
    check_set_size(call, 3)?;
    let user = call.user();
    let set: SignalSet = user.read_value(call.argument(0)).await?;
    let timeout_ns = match call.argument(2) {
        0 => None,
        address => Some(user.read_value::<Timespec>(address).await?.to_ns()?),
    };
    let deadline_ns = timeout_ns.map(|timeout_ns| base::time::now_ns().saturating_add(timeout_ns));
    let info = signal::timed_wait(&call.thread, set, deadline_ns).await?;
    if call.argument(1) != 0 {
        user.write_value(call.argument(1), &info.encode()).await?;
    }
    Ok(u64::from(info.signal.number().unsigned_abs()))
}

/// What a program passes to `rt_sigqueueinfo`, if it may: to others it must not pretend to be the
/// kernel or `kill`.
fn check_queued(call: &Call, raw: &RawSignalInfo, target: i32) -> Result<(), Errno> {
    let pretends = raw.code >= 0 || raw.code == SI_TKILL;
    if pretends && call.process().pid != Pid(target) { Err(Errno::EPERM) } else { Ok(()) }
}

async fn rt_sigqueueinfo(call: &Call) -> SysResult {
    let raw: RawSignalInfo = call.user().read_value(call.argument(2)).await?;
    check_queued(call, &raw, call.int(0))?;
    let process = find_process(call.int(0))?;
    let signal = signal_or_probe(call, 1)?;
    check_permission(call, &process, None, signal)?;
    if let Some(signal) = signal {
        signal::send_to_process(&process, SignalInfo::decode(signal, &raw))?;
    }
    Ok(0)
}

async fn rt_tgsigqueueinfo(call: &Call) -> SysResult {
    let raw: RawSignalInfo = call.user().read_value(call.argument(3)).await?;
    if call.int(0) <= 0 || call.int(1) <= 0 {
        return Err(Errno::EINVAL);
    }
    check_queued(call, &raw, call.int(1))?;
    let thread = find_thread(Some(call.int(0)), call.int(1))?;
    let signal = signal_or_probe(call, 2)?;
    check_permission(call, &thread.process, Some(&thread), signal)?;
    if let Some(signal) = signal {
        signal::send_to_thread(&thread, SignalInfo::decode(signal, &raw))?;
    }
    Ok(0)
}

/// The process that a number names, be it that of any of its threads.
fn find_process(number: i32) -> Result<Arc<Process>, Errno> {
    table::find_process(number).ok_or(Errno::ESRCH)
}

fn find_thread(process: Option<i32>, number: i32) -> Result<Arc<Thread>, Errno> {
    table::thread_or_init(Tid(number))
        .filter(|thread| process.is_none_or(|process| thread.process.pid == Pid(process)))
        .ok_or(Errno::ESRCH)
}

/// Whether the caller may send a signal: within its own process, to processes of its user, with the
/// capability to all; `SIGCONT` also within its session.
pub(super) fn check_permission(
    call: &Call,
    target: &Arc<Process>,
    thread: Option<&Arc<Thread>>,
    signal: Option<Signal>,
) -> Result<(), Errno> {
    if Arc::ptr_eq(call.process(), target) {
        return Ok(());
    }
    let thread = thread.cloned().or_else(|| target.main_thread());
    // A zombie has no threads, and what is sent to it has no effect. Process 1 has none either, and
    // belongs to the superuser.
    let credentials = match thread {
        Some(thread) => thread.credentials(),
        None if target.pid == INIT => Arc::new(Credentials::superuser()),
        None => return Ok(()),
    };
    if call.thread.credentials().may_signal(&credentials) {
        return Ok(());
    }
    if signal == Some(Signal::SIGCONT) && target.session() == call.process().session() {
        return Ok(());
    }
    Err(Errno::EPERM)
}

fn sender(call: &Call) -> (i32, u32) {
    (call.process().pid.0, call.thread.credentials().user.real)
}

fn kill_one(call: &Call, target: &Arc<Process>) -> Result<(), Errno> {
    let signal = signal_or_probe(call, 1)?;
    check_permission(call, target, None, signal)?;
    let Some(signal) = signal else { return Ok(()) };
    let (pid, user) = sender(call);
    signal::send_to_process(target, SignalInfo::kill(signal, pid, user))
}

fn kill_group(call: &Call, group: Pid) -> SysResult {
    let mut result = Err(Errno::ESRCH);
    for process in table::group_members(group) {
        match kill_one(call, &process) {
            Ok(()) => result = Ok(0),
            Err(errno) if result.is_err() => result = Err(errno),
            Err(_) => {}
        }
    }
    result
}

/// Sends to every process but the first one and the caller's own.
fn kill_all(call: &Call) -> SysResult {
    let mut result = None;
    for process in table::processes() {
        if process.signals.is_protected() || Arc::ptr_eq(&process, call.process()) {
            continue;
        }
        let one = kill_one(call, &process);
        if one != Err(Errno::EPERM) || result.is_none() {
            // A process that may not be signalled counts as there, but is no error.
            result = Some(if one == Err(Errno::EPERM) { Ok(()) } else { one });
        }
    }
    result.unwrap_or(Err(Errno::ESRCH)).map(|()| 0)
}

fn kill(call: &Call) -> SysResult {
    match call.int(0) {
        i32::MIN => Err(Errno::ESRCH),
        -1 => kill_all(call),
        0 => kill_group(call, call.process().group()),
        group if group < 0 => kill_group(call, Pid(-group)),
        process => {
            let process = find_process(process)?;
            kill_one(call, &process).map(|()| 0)
        }
    }
}

fn kill_thread(call: &Call, thread: &Arc<Thread>, signal_index: usize) -> SysResult {
    let signal = signal_or_probe(call, signal_index)?;
    check_permission(call, &thread.process, Some(thread), signal)?;
    if let Some(signal) = signal {
        let (pid, user) = sender(call);
        signal::send_to_thread(thread, SignalInfo::tkill(signal, pid, user))?;
    }
    Ok(0)
}

fn tkill(call: &Call) -> SysResult {
    if call.int(0) <= 0 {
        return Err(Errno::EINVAL);
    }
    kill_thread(call, &find_thread(None, call.int(0))?, 1)
}

fn tgkill(call: &Call) -> SysResult {
    if call.int(0) <= 0 || call.int(1) <= 0 {
        return Err(Errno::EINVAL);
    }
    kill_thread(call, &find_thread(Some(call.int(0)), call.int(1))?, 2)
}

async fn sigaltstack(call: &Call, stack_pointer: u64) -> SysResult {
    let user = call.user();
    let new: Option<AlternateStack> = match call.argument(0) {
        0 => None,
        address => Some(user.read_value(address).await?),
    };
    let old = signal::exchange_stack(&call.thread, new, stack_pointer)?;
    if call.argument(1) != 0 {
        user.write_value(call.argument(1), &old).await?;
    }
    Ok(0)
}

fn alarm(call: &Call) -> SysResult {
    let value_ns = u64::from(call.unsigned(0)).saturating_mul(NANOSECONDS);
    let process = call.process();
    let setting = Setting { value_ns, interval_ns: 0 };
    let old = process.signals.timers.set(process, Which::Real, setting)?;
    let rounded = old.value_ns.saturating_add(NANOSECONDS / 2) / NANOSECONDS;
    Ok(if old.value_ns == 0 { 0 } else { rounded.max(1) })
}

fn interval_value(setting: Setting) -> IntervalValue {
    IntervalValue {
        interval: Timeval::from_ns(setting.interval_ns),
        value: Timeval::from_ns(setting.value_ns),
    }
}

async fn getitimer(call: &Call) -> SysResult {
    let which = Which::new(call.int(0))?;
    let process = call.process();
    let setting = process.signals.timers.get(process, which);
    call.user().write_value(call.argument(1), &interval_value(setting)).await?;
    Ok(0)
}

async fn setitimer(call: &Call) -> SysResult {
    let user = call.user();
    let new: IntervalValue = match call.argument(1) {
        0 => IntervalValue::default(),
        address => user.read_value(address).await?,
    };
    let setting = Setting { value_ns: new.value.to_ns()?, interval_ns: new.interval.to_ns()? };
    let which = Which::new(call.int(0))?;
    let process = call.process();
    let old = process.signals.timers.set(process, which, setting)?;
    if call.argument(2) != 0 {
        user.write_value(call.argument(2), &interval_value(old)).await?;
    }
    Ok(0)
}

/// Continues a wait that a signal without a handler interrupted.
async fn restart_syscall(call: &Call) -> SysResult {
    match call.thread.signals.take_restart() {
        None => Err(Errno::EINTR),
        Some(RestartBlock::Sleep { deadline_ns, remaining }) => {
            super::time::continue_sleep(call, deadline_ns, remaining).await
        }
        Some(RestartBlock::Futex { address, value, bits, operation, deadline_ns }) => {
            super::ipc::continue_futex_wait(call, address, value, bits, operation, deadline_ns)
                .await
        }
        Some(RestartBlock::Poll { array, count, deadline_ns }) => {
            super::file::continue_poll(call, array, count, deadline_ns).await
        }
    }
}
