//! Timers as files (`timerfd`): a read gives how often the timer has expired since the last one.
//!
//! Expiries are counted when somebody asks. The task of the timer is only there to tell waiters that
//! there is a first one; then it rests until that was read, as on Linux.

use alloc::format;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use core::any::Any;

use abi::Errno;
use abi::fs::{OpenFlags, PollEvents};
use abi::time::{NANOSECONDS, TFD_IOC_SET_TICKS};
use base::io::{Sink, Source};
use base::sync::{Mutex, rank};
use base::wait::WaitQueue;
use fs::anonymous::{AnonymousInode, Label};
use fs::file::{IoctlAnswer, Transfer};
use fs::metadata::Permissions;
use fs::poll::{PollTable, register};
use fs::{Caller, File, NodeKind, OpenFile};

use super::Clock;
use super::clock::settings;
use super::timer::{NextLook, Setting, Ticker, Ticking, Timer};

/// Bytes of a record.
const RECORD: usize = 8;

/// A timer behind an open file.
pub struct TimerFile {
    me: Weak<TimerFile>,
    /// The number that the program gave.
    clock_number: i32,
    clock: Clock,
    state: Mutex<State>,
    changed: WaitQueue,
    ticker: Ticker,
}

struct State {
    timer: Timer,
    /// The clock that `timer` runs on: a span of time is the same whatever the wall clock is set to.
    base: Clock,
    /// Expiries that were not read.
    ticks: u64,
    /// Settings of the wall clock when the timer was set, if one is to cancel it.
    settings: Option<u64>,
    /// `flags` of the last `timerfd_settime`.
    flags: u32,
}

/// A clock for spans of time.
const SPANS: Clock = Clock::Monotonic { sleeps: true, coarse: false };

impl State {
    fn count(&mut self) {
        let expired = self.timer.expire(self.base.now_ns());
        self.ticks = self.ticks.saturating_add(expired);
    }

    fn is_cancelled(&self) -> bool {
        self.settings.is_some_and(|seen| seen != settings())
    }

    /// Whether the timer was cancelled since the last time; reported once for each setting.
    fn take_cancellation(&mut self) -> bool {
        let is_cancelled = self.is_cancelled();
        if is_cancelled {
            self.settings = Some(settings());
        }
        is_cancelled
    }

    fn readiness(&mut self) -> PollEvents {
        self.count();
        if self.ticks > 0 || self.is_cancelled() { PollEvents::IN } else { PollEvents::empty() }
    }
}

impl TimerFile {
    /// An open file of a new timer. `flags` may have `NONBLOCK`.
    pub fn open(clock_number: i32, clock: Clock, flags: OpenFlags) -> Result<Arc<OpenFile>, Errno> {
        let state =
            State { timer: Timer::default(), base: SPANS, ticks: 0, settings: None, flags: 0 };
        let timer = Arc::new_cyclic(|me| TimerFile {
            me: me.clone(),
            clock_number,
            clock,
            state: Mutex::new(&rank::PIPE, state),
            changed: WaitQueue::new(),
            ticker: Ticker::new(&rank::PIPE),
        });
        let label = Label::Plain("anon_inode:[timerfd]");
        let permissions = Permissions { mode: 0o600, user: 0, group: 0 };
        let location = AnonymousInode::location(NodeKind::Anonymous, label, permissions);
        OpenFile::new(timer, location, flags | OpenFlags::RDWR)
    }

    /// The timer behind an open file; `EINVAL` when it is something else.
    pub fn of(file: &OpenFile) -> Result<&TimerFile, Errno> {
        file.file().as_any().downcast_ref().ok_or(Errno::EINVAL)
    }

    /// What it is set to.
    pub fn get(&self) -> Setting {
        let mut state = self.state.lock();
        state.count();
        state.timer.setting(state.base.now_ns())
    }

    /// Sets it and gives what it was set to. `ECANCELED`, and it is set all the same, when a setting of
    /// the wall clock had cancelled it.
    pub fn set(
        &self,
        new: Setting,
        is_absolute: bool,
        cancels: bool,
        flags: u32,
    ) -> Result<Setting, Errno> {
        let is_wall = matches!(self.clock, Clock::Wall { .. });
        let mut state = self.state.lock();
        state.count();
        let old = state.timer.setting(state.base.now_ns());
        let was_cancelled = new.value_ns != 0 && state.take_cancellation();
        state.settings = (is_wall && is_absolute && cancels).then(settings);
        state.flags = flags;
        state.ticks = 0;
        state.base = if is_absolute { self.clock.clone() } else { SPANS };
        state.timer = if is_absolute {
            Timer::absolute(new)
        } else {
            Timer::relative(new, state.base.now_ns())
        };
        drop(state);
        self.update()?;
        if was_cancelled { Err(Errno::ECANCELED) } else { Ok(old) }
    }

    fn update(&self) -> Result<(), Errno> {
        match self.me.upgrade() {
            Some(me) => Ticker::update(&me),
            None => Ok(()),
        }
    }
}

impl Ticking for TimerFile {
    fn tick(self: &Arc<Self>) -> NextLook {
        let (next, is_ready) = {
            let mut state = self.state.lock();
            let is_ready = !state.readiness().is_empty();
            let mut next = NextLook::default();
            if state.ticks == 0 {
                next.at_due(&state.timer, &state.base);
            }
            if state.settings.is_some() && !state.is_cancelled() {
                // Far away: only a setting of the clock matters.
                next.at(u64::MAX);
                next.on_setting = true;
            }
            (next, is_ready)
        };
        if is_ready {
            self.changed.notify(PollEvents::IN);
        }
        next
    }

    fn ticker(&self) -> &Ticker {
        &self.ticker
    }
}

impl File for TimerFile {
    fn can_signal(&self) -> bool {
        false
    }

    fn read(&self, _: u64, sink: &mut dyn Sink, _: Transfer) -> Result<usize, Errno> {
        if sink.remaining() < RECORD {
            return Err(Errno::EINVAL);
        }
        let mut state = self.state.lock();
        state.count();
        if state.take_cancellation() {
            state.ticks = 0;
            drop(state);
            self.update()?;
            return Err(Errno::ECANCELED);
        }
        if state.ticks == 0 {
            return Err(Errno::EAGAIN);
        }
        if !sink.write_record(&state.ticks.to_ne_bytes()) {
            return Ok(0);
        }
        state.ticks = 0;
        let goes_on = state.timer.due_ns.is_some();
        drop(state);
        if goes_on {
            self.update()?;
        }
        Ok(RECORD)
    }

    fn write(&self, _: u64, _: &mut dyn Source, _: Transfer) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    fn seek(&self, position: u64, _: i64, _: i32) -> Result<u64, Errno> {
        Ok(position)
    }

    fn poll(&self, events: PollEvents, table: Option<&mut PollTable<'_>>) -> PollEvents {
        register(table, &self.changed);
        self.state.lock().readiness() & events
    }

    fn ioctl_input(&self, request: u32) -> Result<usize, Errno> {
        if request == TFD_IOC_SET_TICKS { Ok(RECORD) } else { Err(Errno::ENOTTY) }
    }

    fn ioctl(
        &self,
        _caller: &dyn Caller,
        request: u32,
        _argument: u64,
        input: &[u8],
    ) -> Result<IoctlAnswer, Errno> {
        let record = <[u8; RECORD]>::try_from(input).map_err(|_| Errno::EINVAL)?;
        let ticks = u64::from_ne_bytes(record);
        if request != TFD_IOC_SET_TICKS {
            return Err(Errno::ENOTTY);
        }
        if ticks == 0 {
            return Err(Errno::EINVAL);
        }
        {
            let mut state = self.state.lock();
            if state.take_cancellation() {
                return Err(Errno::ECANCELED);
            }
            state.ticks = ticks;
        }
        self.changed.notify(PollEvents::IN);
        Ok(IoctlAnswer::default())
    }

    fn information(&self) -> String {
        let setting = self.get();
        let state = self.state.lock();
        let pair = |ns: u64| (ns / NANOSECONDS, ns % NANOSECONDS);
        format!(
            "clockid: {}\nticks: {}\nsettime flags: 0{:o}\nit_value: {:?}\nit_interval: {:?}\n",
            self.clock_number,
            state.ticks,
            state.flags,
            pair(setting.value_ns),
            pair(setting.interval_ns),
        )
    }

    fn can_write(&self) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for TimerFile {
    fn drop(&mut self) {
        self.ticker.stop();
    }
}
