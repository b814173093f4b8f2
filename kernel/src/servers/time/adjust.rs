//! `adjtimex` and `clock_adjtime`: the state of the clock's control loop.
//!
//! The values are kept and given back within the bounds of Linux, and the time can be set; the rate of
//! the clock does not change.

use abi::Errno;
use abi::time::*;
use base::sync::{Mutex, rank};
use base::time;

use crate::call::{Call, SysResult};
use crate::process::Capability;
use crate::time::{Clock, set_wall};

const ADJ_OFFSET: u32 = 0x1;
const ADJ_FREQUENCY: u32 = 0x2;
const ADJ_MAXERROR: u32 = 0x4;
const ADJ_ESTERROR: u32 = 0x8;
const ADJ_STATUS: u32 = 0x10;
const ADJ_TIMECONST: u32 = 0x20;
const ADJ_TAI: u32 = 0x80;
const ADJ_SETOFFSET: u32 = 0x100;
const ADJ_MICRO: u32 = 0x1000;
const ADJ_NANO: u32 = 0x2000;
const ADJ_TICK: u32 = 0x4000;
/// Old `adjtime`: the offset is made up for, and the former one is given.
const ADJ_ADJTIME: u32 = 0x8000;
const ADJ_OFFSET_READONLY: u32 = 0x2000;

const STA_PLL: i32 = 0x1;
const STA_UNSYNC: i32 = 0x40;
const STA_NANO: i32 = 0x2000;
/// Bits of the status that programs cannot change.
const STA_READ_ONLY: i32 = 0xff00;

/// The clock is not synchronised.
const TIME_ERROR: u64 = 5;
const TIME_OK: u64 = 0;

/// Largest offset of the frequency: 500 parts per million.
const MOST_FREQUENCY: i64 = 500 << 16;
/// Largest offset that is made up for, in microseconds.
const MOST_OFFSET_US: i64 = 500_000;
const MOST_CONSTANT: i64 = 10;
/// Error of a clock that nobody has synchronised, in microseconds.
const MOST_ERROR_US: i64 = 16_000_000;
/// Microseconds of a tick of `USER_HZ`, and how far it may be off.
const TICK_US: i64 = 10_000;

struct Loop {
    offset: i64,
    frequency: i64,
    most_error: i64,
    estimated_error: i64,
    status: i32,
    constant: i64,
    tick: i64,
    tai: i32,
    /// What `adjtime` has left to make up for.
    left: i64,
}

static LOOP: Mutex<Loop> = Mutex::new(
    &rank::PIPE,
    Loop {
        offset: 0,
        frequency: 0,
        most_error: MOST_ERROR_US,
        estimated_error: MOST_ERROR_US,
        status: STA_UNSYNC,
        constant: 2,
        tick: TICK_US,
        tai: 0,
        left: 0,
    },
);

pub(super) async fn adjtimex(call: &Call) -> SysResult {
    adjust_at(call, call.argument(0)).await
}

pub(super) async fn clock_adjtime(call: &Call) -> SysResult {
    // The structure is read first, as on Linux.
    let _: ClockAdjustment = call.user().read_value(call.argument(1)).await?;
    match Clock::new(call.int(0), &call.thread)? {
        Clock::Wall { settable: true, .. } => adjust_at(call, call.argument(1)).await,
        _ => Err(Errno::EOPNOTSUPP),
    }
}

async fn adjust_at(call: &Call, address: u64) -> SysResult {
    let mut request: ClockAdjustment = call.user().read_value(address).await?;
    let state = adjust(call, &mut request)?;
    call.user().write_value(address, &request).await?;
    Ok(state)
}

fn adjust(call: &Call, request: &mut ClockAdjustment) -> SysResult {
    let modes = request.modes;
    let is_adjtime = modes & ADJ_ADJTIME != 0;
    let only_reads = modes == 0 || (is_adjtime && modes & ADJ_OFFSET_READONLY != 0);
    if is_adjtime {
        if modes & ADJ_OFFSET == 0 {
            return Err(Errno::EINVAL);
        }
    } else if modes & ADJ_TICK != 0 && request.tick.abs_diff(TICK_US) > TICK_US.unsigned_abs() / 10
    {
        return Err(Errno::EINVAL);
    }
    if !only_reads {
        call.thread.credentials().require(Capability::Time)?;
    }
    if !is_adjtime && modes & ADJ_SETOFFSET != 0 {
        shift_time(request)?;
    }
    let mut state = LOOP.lock();
    let shown_offset = if is_adjtime {
        let left = state.left;
        if !only_reads {
            state.left = request.offset;
        }
        left
    } else {
        state.change(request);
        state.offset / if state.status & STA_NANO == 0 { 1000 } else { 1 }
    };
    let now_ns = time::wall_ns();
    let is_nano = state.status & STA_NANO != 0;
    *request = ClockAdjustment {
        modes,
        offset: shown_offset,
        frequency: state.frequency,
        most_error: state.most_error,
        estimated_error: state.estimated_error,
        status: state.status,
        constant: state.constant,
        precision: 1,
        tolerance: MOST_FREQUENCY,
        time: Timeval {
            seconds: (now_ns / NANOSECONDS).cast_signed(),
            microseconds: (now_ns % NANOSECONDS / if is_nano { 1 } else { 1000 }).cast_signed(),
        },
        tick: state.tick,
        tai: state.tai,
        ..ClockAdjustment::default()
    };
    Ok(if state.status & STA_UNSYNC != 0 { TIME_ERROR } else { TIME_OK })
}

impl Loop {
    fn change(&mut self, request: &ClockAdjustment) {
        let modes = request.modes;
        if modes & ADJ_STATUS != 0 {
            self.status = self.status & STA_READ_ONLY | request.status & !STA_READ_ONLY;
        }
        if modes & ADJ_NANO != 0 {
            self.status |= STA_NANO;
        }
        if modes & ADJ_MICRO != 0 {
            self.status &= !STA_NANO;
        }
        if modes & ADJ_FREQUENCY != 0 {
            self.frequency = request.frequency.clamp(-MOST_FREQUENCY, MOST_FREQUENCY);
        }
        if modes & ADJ_MAXERROR != 0 {
            self.most_error = request.most_error.clamp(0, MOST_ERROR_US);
        }
        if modes & ADJ_ESTERROR != 0 {
            self.estimated_error = request.estimated_error.clamp(0, MOST_ERROR_US);
        }
        if modes & ADJ_TIMECONST != 0 {
            let more = if self.status & STA_NANO == 0 { 4 } else { 0 };
            self.constant = request.constant.saturating_add(more).clamp(0, MOST_CONSTANT);
        }
        if modes & ADJ_TAI != 0 && (0..=100_000).contains(&request.constant) {
            self.tai = i32::try_from(request.constant).unwrap_or(self.tai);
        }
        // Without the control loop an offset has no effect, as on Linux.
        if modes & ADJ_OFFSET != 0 && self.status & STA_PLL != 0 {
            let unit = if self.status & STA_NANO == 0 { 1000 } else { 1 };
            let most_ns = MOST_OFFSET_US * 1000;
            self.offset = request.offset.saturating_mul(unit).clamp(-most_ns, most_ns);
        }
        if modes & ADJ_TICK != 0 {
            self.tick = request.tick;
        }
    }
}

/// Moves the wall clock by the time in the request.
fn shift_time(request: &ClockAdjustment) -> Result<(), Errno> {
    let (unit, most) =
        if request.modes & ADJ_NANO != 0 { (1, 1_000_000_000) } else { (1000, 1_000_000) };
    if !(0..most).contains(&request.time.microseconds) {
        return Err(Errno::EINVAL);
    }
    let shift_ns = i128::from(request.time.seconds) * i128::from(NANOSECONDS)
        + i128::from(request.time.microseconds) * unit;
    let new_ns =
        u64::try_from(i128::from(time::wall_ns()) + shift_ns).map_err(|_| Errno::EINVAL)?;
    set_wall(new_ns)
}
