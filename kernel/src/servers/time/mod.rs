//! Calls of class time: clocks and sleeping.

mod adjust;
mod timers;

pub use timers::{timerfd_create, timerfd_gettime, timerfd_settime};

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use abi::time::{
    CLOCK_BOOTTIME_ALARM, CLOCK_REALTIME_ALARM, NANOSECONDS, TIMER_ABSTIME, Timespec, Timeval,
    Timezone, Tms, USER_HZ,
};
use base::time;
use policy::table::number;
use zerocopy::IntoBytes;

use crate::call::{self, Call, SysResult};
use crate::memory::AddressSpace;
use crate::process::{Capability, Thread};
use crate::signal::RestartBlock;
use crate::time::{Clock, SleepEnd, set_wall, sleep_span, sleep_until};

/// What `settimeofday` was told of the time zone; nothing in the kernel depends on it.
static TIMEZONE: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds in a tick of `times`.
const TICK_NS: u64 = NANOSECONDS / USER_HZ;

/// Carries out a call of this class.
pub async fn serve(call: &Call) -> SysResult {
    match call.number() {
        number::nanosleep => nanosleep(call).await,
        number::clock_nanosleep => clock_nanosleep(call).await,
        number::clock_gettime => clock_gettime(call).await,
        number::clock_getres => clock_getres(call).await,
        number::clock_settime => clock_settime(call).await,
        number::gettimeofday => gettimeofday(call).await,
        number::settimeofday => settimeofday(call).await,
        number::time => time_of_day(call).await,
        number::timer_create => timers::timer_create(call).await,
        number::timer_settime => timers::timer_settime(call).await,
        number::timer_gettime => timers::timer_gettime(call).await,
        number::timer_getoverrun => timers::timer_getoverrun(call),
        number::timer_delete => timers::timer_delete(call),
        number::adjtimex => adjust::adjtimex(call).await,
        number::clock_adjtime => adjust::clock_adjtime(call).await,
        number::times => times(call).await,
        _ => Err(call::unknown(call.number())),
    }
}

async fn nanosleep(call: &Call) -> SysResult {
    let request_ns = call.user().read_value::<Timespec>(call.argument(0)).await?.to_ns()?;
    let deadline_ns = time::now_ns().saturating_add(request_ns);
    continue_sleep(call, deadline_ns, call.argument(1)).await
}

/// Sleeps until `deadline_ns`; when a signal ends that, writes the rest to `remaining` if it is not
/// 0, and lets `restart_syscall` continue.
pub async fn continue_sleep(call: &Call, deadline_ns: u64, remaining: u64) -> SysResult {
    if sleep_span(&call.thread, deadline_ns).await == SleepEnd::Done {
        return Ok(0);
    }
    let left_ns = deadline_ns.saturating_sub(time::now_ns());
    if left_ns == 0 {
        return Ok(0);
    }
    if remaining != 0 {
        call.user().write_value(remaining, &Timespec::from_ns(left_ns)).await?;
    }
    call.thread.signals.set_restart(RestartBlock::Sleep { deadline_ns, remaining });
    Err(Errno::ERESTART_RESTARTBLOCK)
}

async fn clock_nanosleep(call: &Call) -> SysResult {
    if matches!(call.int(0), CLOCK_REALTIME_ALARM | CLOCK_BOOTTIME_ALARM) {
        return Err(Errno::EOPNOTSUPP);
    }
    let clock = Clock::new(call.int(0), &call.thread)?;
    if !clock.can_sleep() {
        return Err(Errno::EOPNOTSUPP);
    }
    let request_ns = call.user().read_value::<Timespec>(call.argument(2)).await?.to_ns()?;
    if call.int(1) & TIMER_ABSTIME != 0 {
        return match sleep_until(&call.thread, &clock, request_ns).await {
            SleepEnd::Done => Ok(0),
            SleepEnd::Interrupted => Err(Errno::ERESTARTNOHAND),
        };
    }
    match clock {
        // A span is the same on both, and setting the wall clock does not change it.
        Clock::Monotonic { .. } | Clock::Wall { .. } => {
            let deadline_ns = time::now_ns().saturating_add(request_ns);
            continue_sleep(call, deadline_ns, call.argument(3)).await
        }
        Clock::Process(..) | Clock::Thread(..) => {
            let target_ns = clock.now_ns().saturating_add(request_ns);
            if sleep_until(&call.thread, &clock, target_ns).await == SleepEnd::Done {
                return Ok(0);
            }
            if call.argument(3) != 0 {
                let left = Timespec::from_ns(target_ns.saturating_sub(clock.now_ns()));
                call.user().write_value(call.argument(3), &left).await?;
            }
            Err(Errno::EINTR)
        }
    }
}

async fn clock_gettime(call: &Call) -> SysResult {
    let clock = Clock::new(call.int(0), &call.thread)?;
    call.user().write_value(call.argument(1), &Timespec::from_ns(clock.now_ns())).await?;
    Ok(0)
}

/// `clock_gettime` into a page of the caller that is there.
pub fn clock_at_once(
    thread: &Arc<Thread>,
    space: &AddressSpace,
    arguments: &[u64; 6],
) -> Option<u64> {
    let clock = Clock::new(arguments[0] as i32, thread).ok()?;
    let now = Timespec::from_ns(clock.now_ns());
    space.put_now(arguments[1], now.as_bytes()).then_some(0)
}

async fn clock_getres(call: &Call) -> SysResult {
    let clock = Clock::new(call.int(0), &call.thread)?;
    if call.argument(1) != 0 {
        let resolution = Timespec::from_ns(clock.resolution_ns());
        call.user().write_value(call.argument(1), &resolution).await?;
    }
    Ok(0)
}

async fn clock_settime(call: &Call) -> SysResult {
    let clock = Clock::new(call.int(0), &call.thread)?;
    let Clock::Wall { settable: true, .. } = clock else { return Err(Errno::EINVAL) };
    let new_ns = call.user().read_value::<Timespec>(call.argument(1)).await?.to_ns()?;
    call.thread.credentials().require(Capability::Time)?;
    set_wall(new_ns).map(|()| 0)
}

async fn gettimeofday(call: &Call) -> SysResult {
    let user = call.user();
    if call.argument(0) != 0 {
        user.write_value(call.argument(0), &Timeval::from_ns(time::wall_ns())).await?;
    }
    if call.argument(1) != 0 {
        let zone = TIMEZONE.load(Ordering::Relaxed);
        let zone = Timezone {
            minutes_west: (zone as u32).cast_signed(),
            daylight_saving: ((zone >> 32) as u32).cast_signed(),
        };
        user.write_value(call.argument(1), &zone).await?;
    }
    Ok(0)
}

async fn settimeofday(call: &Call) -> SysResult {
    let user = call.user();
    let new_ns = match call.argument(0) {
        0 => None,
        address => Some(user.read_value::<Timeval>(address).await?.to_ns()?),
    };
    let zone: Option<Timezone> = match call.argument(1) {
        0 => None,
        address => Some(user.read_value(address).await?),
    };
    call.thread.credentials().require(Capability::Time)?;
    if let Some(zone) = zone {
        // More than 15 hours from Greenwich is nowhere.
        if zone.minutes_west.unsigned_abs() > 15 * 60 {
            return Err(Errno::EINVAL);
        }
        let packed = u64::from(zone.minutes_west.cast_unsigned())
            | u64::from(zone.daylight_saving.cast_unsigned()) << 32;
        TIMEZONE.store(packed, Ordering::Relaxed);
    }
    if let Some(new_ns) = new_ns {
        set_wall(new_ns)?;
    }
    Ok(0)
}

async fn time_of_day(call: &Call) -> SysResult {
    let seconds = time::wall_ns() / NANOSECONDS;
    if call.argument(0) != 0 {
        call.user().write_value(call.argument(0), &seconds).await?;
    }
    Ok(seconds)
}

async fn times(call: &Call) -> SysResult {
    if call.argument(0) != 0 {
        let own = call.process().usage();
        let children = call.process().ended_children.get();
        let ticks = |ns: u64| (ns / TICK_NS).cast_signed();
        let times = Tms {
            user: ticks(own.user_ns),
            system: ticks(own.system_ns),
            children_user: ticks(children.user_ns),
            children_system: ticks(children.system_ns),
        };
        call.user().write_value(call.argument(0), &times).await?;
    }
    Ok(time::now_ns() / TICK_NS)
}
