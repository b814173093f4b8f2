//! A test double of the kernel: a thread that follows docs/abi/syspage.md. Pure Rust, so Miri can
//! interpret it.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use abi::syspage::{FLAG_LINK, feature, pass_mark, status, wait_mode};

use crate::entries::{COUNT, Control, Entries};
use crate::kernel::Kernel;
use crate::raw::operations::{Call, made};
use crate::ring::Ring;

/// The calls that it knows.
pub(crate) mod number {
    /// Answers the sum of its arguments.
    pub(crate) const ADD: usize = 1;
    /// Waits until the test releases it, or it is cancelled.
    pub(crate) const WAIT: usize = 2;
    /// Waits until the test releases it, then writes to memory. It cannot be cancelled.
    pub(crate) const FILL: usize = 3;
    /// May not be posted.
    pub(crate) const TRAP_ONLY: usize = 4;
}

/// What it answers to `TRAP_ONLY`.
pub(crate) const TRAPPED: i64 = 99;

const EINTR: i64 = -4;
const ENOENT: i64 = -2;
const EAGAIN: i64 = -11;
const ENOSYS: i64 = -38;
const ETIMEDOUT: i64 = -110;

/// Visits that find nothing before it parks.
const IDLE_VISITS: u32 = 20;
/// No test takes so long.
const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Default)]
struct State {
    head: u32,
    taken: u64,
    held: Vec<(u32, Call)>,
    blocked: Vec<(u32, Call)>,
    /// The numbers of the calls in the order in which they began, with their first arguments.
    begun: Vec<(usize, u64)>,
    has_bell: bool,
    stops: bool,
}

pub(crate) struct Double {
    pub(crate) entries: Entries,
    pub(crate) control: Control,
    state: Mutex<State>,
    changed: Condvar,
    scanner: Mutex<Option<JoinHandle<()>>>,
}

impl Double {
    /// Begins a kernel and makes it this thread's. Without `is_scanned` it looks only when it is
    /// trapped for.
    pub(crate) fn begin(is_scanned: bool) -> Arc<Double> {
        let features = if is_scanned { feature::SCANNED } else { 0 };
        let permitted = [0b1110, 0, 0, 0, 0, 0, 0, 0];
        let double = Arc::new(Double {
            entries: Entries::default(),
            control: Control::new(features, !is_scanned, permitted),
            state: Mutex::default(),
            changed: Condvar::new(),
            scanner: Mutex::default(),
        });
        let scanner = double.clone();
        *double.scanner.lock().unwrap() = Some(thread::spawn(move || scanner.scan(is_scanned)));
        Ring::set_current(Ring::new(Some(Kernel::Double(double.clone()))).into());
        double
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn scan(&self, is_scanned: bool) {
        let mut idle = 0;
        loop {
            let mut state = self.state();
            if state.stops {
                return;
            }
            if self.visit(&mut state) {
                idle = 0;
            } else if is_scanned && idle < IDLE_VISITS {
                idle += 1;
                drop(state);
                thread::yield_now();
            } else {
                self.control.parked.store(1, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                if !self.visit(&mut state) {
                    while !state.has_bell && !state.stops {
                        state = self.changed.wait(state).unwrap();
                    }
                }
                state.has_bell = false;
                if is_scanned {
                    self.control.parked.store(0, Ordering::Relaxed);
                }
                idle = 0;
            }
        }
    }

    /// One walk. Whether it found anything.
    fn visit(&self, state: &mut State) -> bool {
        let mut found = false;
        for (index, call) in std::mem::take(&mut state.held) {
            if state.taken >> before(index) & 1 == 0 {
                found = true;
                self.begin_call(state, index, call);
            } else {
                state.held.push((index, call));
            }
        }
        loop {
            let index = state.head % COUNT;
            let entry = self.entries.at(index);
            let is_taken = state.taken >> index & 1 != 0;
            if self.entries.status(index) == status::SUBMITTED && !is_taken {
                let what = entry.what.load(Ordering::Relaxed);
                let arguments =
                    std::array::from_fn(|at| entry.arguments[at].load(Ordering::Relaxed));
                let call = Call { number: (what & 0xffff) as usize, arguments };
                state.taken |= 1 << index;
                let is_linked = (what >> 16) as u8 & FLAG_LINK != 0;
                if is_linked && state.taken >> before(index) & 1 != 0 {
                    state.held.push((index, call));
                } else {
                    self.begin_call(state, index, call);
                }
            } else {
                let pass = (entry.what.load(Ordering::Relaxed) >> 24) as u8;
                if pass != pass_mark(state.head) {
                    return found;
                }
            }
            state.head = state.head.wrapping_add(1);
            self.control.head.store(state.head, Ordering::Release);
            found = true;
        }
    }

    fn begin_call(&self, state: &mut State, index: u32, call: Call) {
        state.begun.push((call.number, call.arguments[0]));
        match call.number {
            number::ADD => self.complete(state, index, sum(&call)),
            number::WAIT | number::FILL => state.blocked.push((index, call)),
            _ => self.complete(state, index, ENOSYS),
        }
    }

    fn complete(&self, state: &mut State, index: u32, result: i64) {
        let entry = self.entries.at(index);
        entry.result.store(result.cast_unsigned(), Ordering::Relaxed);
        entry.status.store(status::DONE, Ordering::Release);
        state.taken &= !(1 << index);
        state.has_bell = true;
        self.changed.notify_all();
    }

    // --- What the user calls ---

    pub(crate) fn wait(&self, mode: u64, index: u32, timeout: Option<Duration>) -> i64 {
        let deadline = Instant::now() + timeout.unwrap_or(DEADLINE);
        let mut state = self.state();
        if state.stops {
            return ENOENT;
        }
        state.has_bell = true;
        self.changed.notify_all();
        if mode == wait_mode::SUBMIT {
            return 0;
        }
        loop {
            let has = |wanted| (0..COUNT).find(|&index| self.entries.status(index) == wanted);
            match mode {
                wait_mode::ONE if self.entries.status(index) != status::SUBMITTED => return 0,
                wait_mode::ANY if has(status::DONE).is_some() => return 0,
                wait_mode::ANY if has(status::SUBMITTED).is_none() => return EAGAIN,
                _ => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                assert!(timeout.is_some(), "a wait has no end");
                return ETIMEDOUT;
            }
            state = self.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    pub(crate) fn cancel(&self, index: u32) -> i64 {
        let mut state = self.state();
        // What is posted and not taken yet is taken first; what waits for another never begins.
        self.visit(&mut state);
        if let Some(at) = state.held.iter().position(|(held, _)| *held == index) {
            state.held.remove(at);
            self.complete(&mut state, index, EINTR);
            return 0;
        }
        let at = state.blocked.iter().position(|(blocked, _)| *blocked == index);
        match at.map(|at| (at, state.blocked[at].1.number)) {
            Some((at, number::WAIT)) => {
                state.blocked.swap_remove(at);
                self.complete(&mut state, index, EINTR);
                0
            }
            Some(_) => 0,
            None => ENOENT,
        }
    }

    pub(crate) fn trap(&self, call: &Call) -> i64 {
        self.state().begun.push((call.number, call.arguments[0]));
        match call.number {
            number::ADD => sum(call),
            number::TRAP_ONLY => TRAPPED,
            _ => ENOSYS,
        }
    }

    pub(crate) fn leave(&self) {
        self.release();
        self.state().stops = true;
        self.changed.notify_all();
        if let Some(scanner) = self.scanner.lock().unwrap().take() {
            scanner.join().unwrap();
        }
    }

    // --- What the test calls ---

    /// Completes the calls that wait.
    pub(crate) fn release(&self) {
        let mut state = self.state();
        while let Some((index, call)) = state.blocked.pop() {
            if call.number == number::FILL {
                made::carry_out_fill(&call);
            }
            self.complete(&mut state, index, sum(&call));
        }
    }

    /// The calls that began so far, with their first arguments.
    pub(crate) fn begun(&self) -> Vec<(usize, u64)> {
        self.state().begun.clone()
    }

    /// How many calls wait now.
    pub(crate) fn blocked(&self) -> usize {
        self.state().blocked.len()
    }
}

fn sum(call: &Call) -> i64 {
    call.arguments.iter().fold(0, |sum, argument| sum + argument.cast_signed())
}

fn before(index: u32) -> u32 {
    (index + COUNT - 1) % COUNT
}
