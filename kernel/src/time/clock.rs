//! The clocks of the Linux ABI, by number. Those that wake the machine from sleep are not there, as on
//! a machine without a real-time clock that can.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use abi::time as numbers;
use base::time;
use base::wait::WaitQueue;

use crate::memory::vdso;
use crate::process::{Pid, Process, Thread, Tid, table};

/// Times that the wall clock was set.
static SETTINGS: AtomicU64 = AtomicU64::new(0);
/// Woken when the wall clock was set.
static WALL_SET: WaitQueue = WaitQueue::new();

/// Binary places of `ClockParameters::factor`.
const CLOCK_SHIFT: u32 = 32;
/// Resolution of the coarse clocks: one tick of Linux at 250 per second.
const COARSE_RESOLUTION_NS: u64 = 4_000_000;

/// In the number of a clock of another thread or process: the lowest bits tell which time.
const KIND_MASK: i32 = 3;
const KIND_USER_AND_SYSTEM: i32 = 0;
const KIND_USER: i32 = 1;
const KIND_SCHEDULED: i32 = 2;
const PER_THREAD: i32 = 4;

/// What part of processor time a clock counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// User mode.
    User,
    /// User mode and system calls.
    All,
}

/// A clock that exists.
#[derive(Clone, Debug)]
pub enum Clock {
    /// Time since boot.
    Monotonic {
        /// It may be slept on.
        sleeps: bool,
        /// It counts in ticks.
        coarse: bool,
    },
    /// Wall clock.
    Wall {
        /// It may be slept on.
        sleeps: bool,
        /// It counts in ticks.
        coarse: bool,
        /// It is the one that `clock_settime` sets.
        settable: bool,
    },
    /// Processor time of a process.
    Process(Arc<Process>, Part),
    /// Processor time of a thread.
    Thread(Arc<Thread>, Part),
}

impl Clock {
    /// The clock of this number, as `thread` sees it.
    ///
    /// # Errors
    /// `EINVAL` when there is none.
    pub fn new(number: i32, thread: &Arc<Thread>) -> Result<Clock, Errno> {
        let wall = |sleeps, coarse| Clock::Wall { sleeps, coarse, settable: false };
        Ok(match number {
            numbers::CLOCK_REALTIME => Clock::Wall { sleeps: true, coarse: false, settable: true },
            numbers::CLOCK_TAI => wall(true, false),
            numbers::CLOCK_REALTIME_COARSE => wall(false, true),
            numbers::CLOCK_MONOTONIC | numbers::CLOCK_BOOTTIME => {
                Clock::Monotonic { sleeps: true, coarse: false }
            }
            numbers::CLOCK_MONOTONIC_RAW => Clock::Monotonic { sleeps: false, coarse: false },
            numbers::CLOCK_MONOTONIC_COARSE => Clock::Monotonic { sleeps: false, coarse: true },
            numbers::CLOCK_PROCESS_CPUTIME_ID => Clock::Process(thread.process.clone(), Part::All),
            numbers::CLOCK_THREAD_CPUTIME_ID => Clock::Thread(thread.clone(), Part::All),
            number if number < 0 => Clock::of_other(number, thread).ok_or(Errno::EINVAL)?,
            _ => return Err(Errno::EINVAL),
        })
    }

    /// A clock whose number carries that of a process or thread, inverted, in its upper bits; 0 for
    /// the caller.
    fn of_other(number: i32, thread: &Arc<Thread>) -> Option<Clock> {
        let part = match number & KIND_MASK {
            KIND_USER => Part::User,
            KIND_USER_AND_SYSTEM | KIND_SCHEDULED => Part::All,
            _ => return None,
        };
        let id = !(number >> 3);
        if number & PER_THREAD != 0 {
            let target = if id == 0 { thread.clone() } else { table::thread(Tid(id))? };
            Arc::ptr_eq(&target.process, &thread.process).then_some(Clock::Thread(target, part))
        } else {
            let process = if id == 0 { thread.process.clone() } else { table::process(Pid(id))? };
            Some(Clock::Process(process, part))
        }
    }

    /// What the clock shows, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        match self {
            Clock::Monotonic { .. } => time::now_ns(),
            Clock::Wall { .. } => time::wall_ns(),
            Clock::Process(process, part) => {
                let usage = process.usage();
                part.of(usage.user_ns, usage.system_ns)
            }
            Clock::Thread(thread, part) => {
                let usage = thread.usage();
                part.of(usage.user_ns, usage.system_ns)
            }
        }
    }

    /// Nanoseconds between two values that it can show.
    pub fn resolution_ns(&self) -> u64 {
        match self {
            Clock::Monotonic { coarse: true, .. } | Clock::Wall { coarse: true, .. } => {
                COARSE_RESOLUTION_NS
            }
            _ => 1,
        }
    }

    /// Whether `clock_nanosleep` takes it.
    pub fn can_sleep(&self) -> bool {
        match self {
            Clock::Monotonic { sleeps, .. } | Clock::Wall { sleeps, .. } => *sleeps,
            Clock::Process(..) => true,
            Clock::Thread(..) => false,
        }
    }
}

impl Part {
    fn of(self, user_ns: u64, system_ns: u64) -> u64 {
        match self {
            Part::User => user_ns,
            Part::All => user_ns.saturating_add(system_ns),
        }
    }
}

/// Sets the wall clock.
///
/// # Errors
/// `EINVAL` for a time before the machine's start in the monotonic sense.
pub fn set_wall(wall_ns: u64) -> Result<(), Errno> {
    if wall_ns < time::now_ns() {
        return Err(Errno::EINVAL);
    }
    time::set_wall_ns(wall_ns);
    publish();
    SETTINGS.fetch_add(1, Ordering::Release);
    WALL_SET.wake_all();
    Ok(())
}

/// Tells the code that programs read the time with (the vDSO) how the clocks stand. Called once at
/// boot, and whenever the wall clock was set.
pub fn publish() {
    let parameters = time::clock_parameters();
    vdso::update(vdso::Clock {
        multiplier: parameters.factor,
        shift: CLOCK_SHIFT,
        base_cycles: parameters.start_cycles,
        base_ns: 0,
        wall_offset_ns: parameters.wall_offset_ns,
    });
}

/// Number of settings of the wall clock so far.
pub fn settings() -> u64 {
    SETTINGS.load(Ordering::Acquire)
}

/// Waits until the number of settings is no longer `seen`.
pub async fn wall_set_since(seen: u64) {
    WALL_SET.wait_until(|| (settings() != seen).then_some(())).await;
}
