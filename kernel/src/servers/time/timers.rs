//! Timers: `timer_create` and its kin, and timerfd.

use abi::Errno;
use abi::fs::OpenFlags;
use abi::signal::Signal;
use abi::time::*;
use alloc::sync::Arc;

use crate::call::{Call, SysResult};
use crate::process::{Capability, Resource, Tid, table};
use crate::signal::made_timers::{self, Notice};
use crate::time::Clock;
use crate::time::timer::Setting;
use crate::time::timerfd::TimerFile;

fn decode(spec: &IntervalSpec) -> Result<Setting, Errno> {
    Ok(Setting { interval_ns: spec.interval.to_ns()?, value_ns: spec.value.to_ns()? })
}

fn encode(setting: Setting) -> IntervalSpec {
    IntervalSpec {
        interval: Timespec::from_ns(setting.interval_ns),
        value: Timespec::from_ns(setting.value_ns),
    }
}

/// `timer_create(clock, event, number)`
pub(super) async fn timer_create(call: &Call) -> SysResult {
    let user = call.user();
    let event: Option<SignalEvent> = match call.argument(1) {
        0 => None,
        address => Some(user.read_value(address).await?),
    };
    if matches!(call.int(0), CLOCK_REALTIME_ALARM | CLOCK_BOOTTIME_ALARM) {
        return Err(Errno::EOPNOTSUPP);
    }
    let clock = Clock::new(call.int(0), &call.thread)?;
    let has_timers = matches!(clock, Clock::Thread(..)) || clock.can_sleep();
    if !has_timers {
        return Err(Errno::EOPNOTSUPP);
    }
    let notice = match &event {
        None => Notice::Process(Signal::SIGALRM),
        Some(event) => notice(call, event)?,
    };
    let process = call.process();
    let id = made_timers::create(process, clock, notice, event.map(|event| event.value))?;
    if let Err(error) = user.write_value(call.argument(2), &id).await {
        let _ = made_timers::delete(process, id);
        return Err(error);
    }
    Ok(0)
}

fn notice(call: &Call, event: &SignalEvent) -> Result<Notice, Errno> {
    let signal = Signal::new(event.signal).ok_or(Errno::EINVAL);
    match event.notify {
        SIGEV_NONE => Ok(Notice::None),
        SIGEV_SIGNAL | SIGEV_THREAD => Ok(Notice::Process(signal?)),
        SIGEV_THREAD_ID => {
            let thread = table::thread(Tid(event.thread)).ok_or(Errno::EINVAL)?;
            if !Arc::ptr_eq(&thread.process, call.process()) {
                return Err(Errno::EINVAL);
            }
            Ok(Notice::Thread(signal?, Arc::downgrade(&thread)))
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `timer_settime(number, flags, new, old)`
pub(super) async fn timer_settime(call: &Call) -> SysResult {
    if call.argument(2) == 0 {
        return Err(Errno::EINVAL);
    }
    let new = decode(&call.user().read_value(call.argument(2)).await?)?;
    let is_absolute = call.int(1) & TIMER_ABSTIME != 0;
    let old = made_timers::set(call.process(), call.int(0), new, is_absolute)?;
    if call.argument(3) != 0 {
        call.user().write_value(call.argument(3), &encode(old)).await?;
    }
    Ok(0)
}

/// `timer_gettime(number, setting)`
pub(super) async fn timer_gettime(call: &Call) -> SysResult {
    let setting = made_timers::get(call.process(), call.int(0))?;
    call.user().write_value(call.argument(1), &encode(setting)).await?;
    Ok(0)
}

/// `timer_getoverrun(number)`
pub(super) fn timer_getoverrun(call: &Call) -> SysResult {
    made_timers::overruns(call.process(), call.int(0)).map(|count| u64::from(count.unsigned_abs()))
}

/// `timer_delete(number)`
pub(super) fn timer_delete(call: &Call) -> SysResult {
    made_timers::delete(call.process(), call.int(0)).map(|()| 0)
}

/// `timerfd_create(clock, flags)`
pub fn timerfd_create(call: &Call) -> SysResult {
    let flags = OpenFlags::from_bits(call.unsigned(1)).ok_or(Errno::EINVAL)?;
    if !(OpenFlags::CLOEXEC | OpenFlags::NONBLOCK).contains(flags) {
        return Err(Errno::EINVAL);
    }
    let number = call.int(0);
    // Those that wake the machine are as the others: it does not sleep.
    let plain = match number {
        CLOCK_REALTIME | CLOCK_MONOTONIC | CLOCK_BOOTTIME => number,
        CLOCK_REALTIME_ALARM | CLOCK_BOOTTIME_ALARM => {
            call.thread.credentials().require(Capability::WakeAlarm)?;
            if number == CLOCK_REALTIME_ALARM { CLOCK_REALTIME } else { CLOCK_BOOTTIME }
        }
        _ => return Err(Errno::EINVAL),
    };
    let clock = Clock::new(plain, &call.thread)?;
    let file = TimerFile::open(number, clock, flags & OpenFlags::NONBLOCK)?;
    let limit = call.process().limits.soft(Resource::Files);
    let closes = flags.contains(OpenFlags::CLOEXEC);
    call.thread.files().insert(file, closes, limit).map(|number| u64::from(number.unsigned_abs()))
}

/// `timerfd_settime(descriptor, flags, new, old)`
pub async fn timerfd_settime(call: &Call) -> SysResult {
    let new: IntervalSpec = call.user().read_value(call.argument(2)).await?;
    let flags = call.unsigned(1);
    if flags & !(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET) != 0 {
        return Err(Errno::EINVAL);
    }
    let new = decode(&new)?;
    let file = call.file(0)?;
    if file.is_path_only() {
        return Err(Errno::EBADF);
    }
    let (is_absolute, cancels) =
        (flags & TFD_TIMER_ABSTIME != 0, flags & TFD_TIMER_CANCEL_ON_SET != 0);
    let old = TimerFile::of(&file)?.set(new, is_absolute, cancels, flags)?;
    if call.argument(3) != 0 {
        call.user().write_value(call.argument(3), &encode(old)).await?;
    }
    Ok(0)
}

/// `timerfd_gettime(descriptor, setting)`
pub async fn timerfd_gettime(call: &Call) -> SysResult {
    let file = call.file(0)?;
    if file.is_path_only() {
        return Err(Errno::EBADF);
    }
    let setting = TimerFile::of(&file)?.get();
    call.user().write_value(call.argument(1), &encode(setting)).await?;
    Ok(0)
}
