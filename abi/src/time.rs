//! Time in the Linux ABI: clock numbers, flags and structures.

use crate::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Nanoseconds in a second.
pub const NANOSECONDS: u64 = 1_000_000_000;
/// Ticks per second that `times` and `/proc` count in.
pub const USER_HZ: u64 = 100;

/// Wall clock.
pub const CLOCK_REALTIME: i32 = 0;
/// Time since boot, never set back.
pub const CLOCK_MONOTONIC: i32 = 1;
/// Processor time of the process.
pub const CLOCK_PROCESS_CPUTIME_ID: i32 = 2;
/// Processor time of the thread.
pub const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
/// As `CLOCK_MONOTONIC`, not slewed.
pub const CLOCK_MONOTONIC_RAW: i32 = 4;
/// Coarse wall clock.
pub const CLOCK_REALTIME_COARSE: i32 = 5;
/// Coarse monotonic clock.
pub const CLOCK_MONOTONIC_COARSE: i32 = 6;
/// Time since boot, sleep of the machine included.
pub const CLOCK_BOOTTIME: i32 = 7;
/// Wall clock whose alarms wake the machine.
pub const CLOCK_REALTIME_ALARM: i32 = 8;
/// Boot time whose alarms wake the machine.
pub const CLOCK_BOOTTIME_ALARM: i32 = 9;
/// International atomic time.
pub const CLOCK_TAI: i32 = 11;

/// `clock_nanosleep`: the time is absolute.
pub const TIMER_ABSTIME: i32 = 1;

/// Interval timer of wall time.
pub const ITIMER_REAL: i32 = 0;
/// Interval timer of user time.
pub const ITIMER_VIRTUAL: i32 = 1;
/// Interval timer of user and system time.
pub const ITIMER_PROF: i32 = 2;

/// `struct timespec`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Timespec {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nanoseconds: i64,
}

impl Timespec {
    /// The time as nanoseconds, cut off at the largest number; `EINVAL` when a field is out of range.
    pub fn to_ns(self) -> Result<u64, Errno> {
        let seconds = u64::try_from(self.seconds).map_err(|_| Errno::EINVAL)?;
        let nanoseconds = u64::try_from(self.nanoseconds).map_err(|_| Errno::EINVAL)?;
        if nanoseconds >= NANOSECONDS {
            return Err(Errno::EINVAL);
        }
        Ok(seconds.saturating_mul(NANOSECONDS).saturating_add(nanoseconds))
    }

    /// The structure for so many nanoseconds.
    pub const fn from_ns(ns: u64) -> Timespec {
        Timespec { seconds: (ns / NANOSECONDS) as i64, nanoseconds: (ns % NANOSECONDS) as i64 }
    }
}

/// `struct timeval`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Timeval {
    /// Seconds.
    pub seconds: i64,
    /// Microseconds, 0 to 999,999.
    pub microseconds: i64,
}

impl Timeval {
    /// The time as nanoseconds, cut off at the largest number; `EINVAL` when a field is out of range.
    pub fn to_ns(self) -> Result<u64, Errno> {
        let seconds = u64::try_from(self.seconds).map_err(|_| Errno::EINVAL)?;
        let microseconds = u64::try_from(self.microseconds).map_err(|_| Errno::EINVAL)?;
        if microseconds >= 1_000_000 {
            return Err(Errno::EINVAL);
        }
        Ok(seconds.saturating_mul(NANOSECONDS).saturating_add(microseconds * 1000))
    }

    /// The structure for so many nanoseconds, rounded down to microseconds.
    pub const fn from_ns(ns: u64) -> Timeval {
        Timeval {
            seconds: (ns / NANOSECONDS) as i64,
            microseconds: (ns % NANOSECONDS / 1000) as i64,
        }
    }
}

/// `timerfd_settime`: the time is absolute.
pub const TFD_TIMER_ABSTIME: u32 = 1;
/// `timerfd_settime`: setting the wall clock cancels the timer.
pub const TFD_TIMER_CANCEL_ON_SET: u32 = 2;
/// `ioctl` of a timerfd: sets the number of expiries.
pub const TFD_IOC_SET_TICKS: u32 = 0x4008_5400;

/// A timer's signal goes to the process.
pub const SIGEV_SIGNAL: i32 = 0;
/// A timer sends no signal.
pub const SIGEV_NONE: i32 = 1;
/// As `SIGEV_SIGNAL`; the C library makes a thread of it.
pub const SIGEV_THREAD: i32 = 2;
/// With `SIGEV_SIGNAL`: the signal goes to one thread.
pub const SIGEV_THREAD_ID: i32 = 4;

/// `struct sigevent`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SignalEvent {
    /// The program's own value.
    pub value: u64,
    /// Which signal.
    pub signal: i32,
    /// `SIGEV_…`.
    pub notify: i32,
    /// Which thread.
    pub thread: i32,
    /// Not used by the kernel.
    pub rest: [u32; 11],
}

/// `struct itimerspec`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct IntervalSpec {
    /// Period; zero for once.
    pub interval: Timespec,
    /// The next expiry; zero when disarmed.
    pub value: Timespec,
}

/// `struct timex`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ClockAdjustment {
    /// What is to be changed (`ADJ_…`).
    pub modes: u32,
    /// Always zero.
    pub padding0: u32,
    /// Offset that is being made up for, in microseconds (nanoseconds with `STA_NANO`).
    pub offset: i64,
    /// Offset of the frequency, in 2^-16 parts per million.
    pub frequency: i64,
    /// Largest error, in microseconds.
    pub most_error: i64,
    /// Estimated error, in microseconds.
    pub estimated_error: i64,
    /// `STA_…`.
    pub status: i32,
    /// Always zero.
    pub padding1: u32,
    /// Time constant of the control loop.
    pub constant: i64,
    /// Precision of the clock, in microseconds.
    pub precision: i64,
    /// Largest offset of the frequency.
    pub tolerance: i64,
    /// The time.
    pub time: Timeval,
    /// Microseconds between ticks.
    pub tick: i64,
    /// Of a pulse per second, which there is not: frequency, jitter.
    pub pulse: [i64; 2],
    /// Of a pulse per second: interval.
    pub pulse_shift: i32,
    /// Always zero.
    pub padding2: u32,
    /// Of a pulse per second: stability and counters.
    pub pulse_counters: [i64; 5],
    /// Offset of international atomic time, in seconds.
    pub tai: i32,
    /// Always zero.
    pub rest: [u32; 11],
}

/// `struct itimerval`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct IntervalValue {
    /// Period; zero for once.
    pub interval: Timeval,
    /// Time to the next expiry; zero when disarmed.
    pub value: Timeval,
}

/// `struct timezone`; kept for the interface only.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Timezone {
    /// Minutes west of Greenwich.
    pub minutes_west: i32,
    /// Kind of daylight saving.
    pub daylight_saving: i32,
}

/// `struct tms`, in ticks of `USER_HZ`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Tms {
    /// User time of the process.
    pub user: i64,
    /// System time of the process.
    pub system: i64,
    /// User time of its waited-for children.
    pub children_user: i64,
    /// System time of its waited-for children.
    pub children_system: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_out_of_range_are_refused() {
        assert!(Timespec { seconds: -1, nanoseconds: 0 }.to_ns().is_err());
        assert!(Timespec { seconds: 0, nanoseconds: 1_000_000_000 }.to_ns().is_err());
        assert!(Timeval { seconds: 0, microseconds: 1_000_000 }.to_ns().is_err());
    }

    #[test]
    fn a_huge_time_is_cut_off() {
        assert_eq!(Timespec { seconds: i64::MAX, nanoseconds: 0 }.to_ns(), Ok(u64::MAX));
    }

    #[test]
    fn nanoseconds_convert_both_ways() {
        assert_eq!(Timespec::from_ns(1_500_000_000).to_ns(), Ok(1_500_000_000));
        assert_eq!(Timeval::from_ns(1_500_000_999).to_ns(), Ok(1_500_000_000));
    }
}
