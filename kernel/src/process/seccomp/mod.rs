//! What system calls a thread may make (`seccomp`).
//!
//! A thread has no restriction, the four calls of strict mode, or a chain of filters, of which the
//! strictest verdict counts. Restrictions only grow; threads and programs that it starts inherit them. A
//! restricted thread posts nothing: each of its calls traps, and [`stops`] looks at it there. Who is
//! not restricted pays for one look at a word.

mod program;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use abi::Errno;
use abi::signal::Signal;
use base::sync::{Mutex, rank};
use base::user::UserContext;
use hal::UserContext as _;
use policy::table::number;

pub use program::{Instruction, MOST_INSTRUCTIONS, Program, RECORD_WORDS};

use super::thread::Thread;
use crate::signal::{self, SignalInfo};

/// No restriction.
pub const MODE_NONE: u32 = 0;
/// Reading, writing, ending and returning from handlers only.
pub const MODE_STRICT: u32 = 1;
/// Filters.
pub const MODE_FILTER: u32 = 2;

/// The process is killed.
pub const KILL_PROCESS: u32 = 0x8000_0000;
/// The thread is killed.
pub const KILL_THREAD: u32 = 0;
/// The thread gets `SIGSYS`.
pub const TRAP: u32 = 0x3_0000;
/// The call fails with an error.
pub const ERRNO: u32 = 0x5_0000;
/// A listener is asked; there is none.
const ASK: u32 = 0x7fc0_0000;
/// A tracer is asked; there is none.
pub const TRACE: u32 = 0x7ff0_0000;
/// The call is logged and carried out.
pub const LOG: u32 = 0x7ffc_0000;
/// The call is carried out.
pub const ALLOW: u32 = 0x7fff_0000;

/// The part of a verdict that says what is done.
const ACTION: u32 = 0xffff_0000;
/// `AUDIT_ARCH_X86_64`
const ARCHITECTURE: u32 = 0xc000_003e;
/// Most instructions of a chain; each program counts four more.
const MOST_IN_CHAIN: usize = 32768;
const OVERHEAD: usize = 4;
const LARGEST_ERRNO: u32 = 4095;
/// Wait status of who broke the rules of strict mode.
const KILLED: u32 = 9;

/// One filter and those that were there before it.
struct Filter {
    program: Program,
    before: Option<Arc<Filter>>,
    /// How many there are, it included.
    count: u32,
    /// Instructions of all.
    instructions: usize,
}

impl Drop for Filter {
    fn drop(&mut self) {
        // A long chain must not end by recursion.
        let mut next = self.before.take();
        while let Some(filter) = next {
            next = Arc::into_inner(filter).and_then(|mut filter| filter.before.take());
        }
    }
}

/// Bit of the word: a tracer looks at each call (`tracing`).
const TRACED: u32 = 1 << 31;

/// The restrictions of one thread.
pub struct Restrictions {
    /// The mode, and whether the thread is traced: one word for who only asks whether calls are looked at.
    mode: AtomicU32,
    filters: Mutex<Option<Arc<Filter>>>,
}

impl Restrictions {
    /// None.
    pub fn new() -> Restrictions {
        Restrictions { mode: AtomicU32::new(MODE_NONE), filters: Mutex::new(&rank::SETTINGS, None) }
    }

    /// The mode.
    #[inline]
    pub fn mode(&self) -> u32 {
        self.mode.load(Ordering::Relaxed) & !TRACED
    }

    /// Whether somebody looks at each call: a filter, or a tracer.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.mode.load(Ordering::Relaxed) != MODE_NONE
    }

    /// Whether the thread is traced.
    #[inline]
    pub fn is_traced(&self) -> bool {
        self.mode.load(Ordering::Relaxed) & TRACED != 0
    }

    /// A tracer begins or ceases to look at its calls.
    pub fn set_traced(&self, is_traced: bool) {
        if is_traced {
            self.mode.fetch_or(TRACED, Ordering::SeqCst);
        } else {
            self.mode.fetch_and(!TRACED, Ordering::SeqCst);
        }
    }

    /// Modes only grow: from none to one of the others.
    fn set_mode(&self, mode: u32) {
        self.mode.fetch_or(mode, Ordering::Relaxed);
    }

    /// Filters in force.
    pub fn filter_count(&self) -> u32 {
        self.filters.lock().as_ref().map_or(0, |filter| filter.count)
    }

    /// Takes over those of another thread.
    pub(super) fn take_over(&self, other: &Restrictions) {
        let filters = other.filters.lock().clone();
        let former = core::mem::replace(&mut *self.filters.lock(), filters);
        self.set_mode(other.mode());
        drop(former);
    }

    /// Strict mode from now on. `EINVAL` when there are filters.
    pub fn be_strict(&self) -> Result<(), Errno> {
        if self.mode() == MODE_FILTER {
            return Err(Errno::EINVAL);
        }
        self.set_mode(MODE_STRICT);
        Ok(())
    }

    /// Adds a filter.
    ///
    /// # Errors
    /// `EINVAL` in strict mode, `ENOMEM` when the chain becomes too long.
    pub fn add(&self, program: Program) -> Result<(), Errno> {
        if self.mode() == MODE_STRICT {
            return Err(Errno::EINVAL);
        }
        let before = self.filters.lock().clone();
        let (count, others) =
            before.as_ref().map_or((0, 0), |filter| (filter.count, filter.instructions));
        let instructions = others + program.length() + OVERHEAD;
        if instructions - OVERHEAD > MOST_IN_CHAIN {
            return Err(Errno::ENOMEM);
        }
        let filter = Arc::new(Filter { program, before, count: count + 1, instructions });
        *self.filters.lock() = Some(filter);
        self.set_mode(MODE_FILTER);
        Ok(())
    }

    /// Whether the filters of `other` are the first of these, or there are none: then it can take them
    /// over and loses nothing.
    fn begins_with(&self, other: &Restrictions) -> bool {
        if other.mode() == MODE_STRICT {
            return false;
        }
        let Some(theirs) = other.filters.lock().clone() else { return true };
        let mut ours = self.filters.lock().clone();
        while let Some(filter) = ours {
            if Arc::ptr_eq(&filter, &theirs) {
                return true;
            }
            ours = filter.before.clone();
        }
        false
    }

    /// The verdict on a call.
    fn judge(&self, record: &[u32; RECORD_WORDS]) -> u32 {
        let mut next = self.filters.lock().clone();
        let mut verdict = ALLOW;
        while let Some(filter) = next {
            let one = filter.program.run(record);
            // As signed numbers: the less, the stricter.
            if (one & ACTION).cast_signed() < (verdict & ACTION).cast_signed() {
                verdict = one;
            }
            next = filter.before.clone();
        }
        verdict
    }
}

impl Default for Restrictions {
    fn default() -> Restrictions {
        Restrictions::new()
    }
}

/// Whether all threads of the process can take over the restrictions of `thread`; else the number of
/// one that cannot.
pub fn can_spread(thread: &Thread) -> Result<(), i32> {
    let mut stranger = None;
    thread.process.for_each_thread(|other| {
        if other.tid() != thread.tid() && !thread.restrictions.begins_with(&other.restrictions) {
            stranger = stranger.or(Some(other.tid().0));
        }
    });
    stranger.map_or(Ok(()), Err)
}

/// All threads of the process take over the restrictions of `thread`.
pub fn spread(thread: &Thread) {
    let no_new_privileges = thread.credentials().no_new_privileges;
    thread.process.for_each_thread(|other| {
        if other.tid() != thread.tid() {
            if no_new_privileges {
                let mut credentials = (*other.credentials()).clone();
                credentials.no_new_privileges = true;
                other.set_credentials(credentials);
            }
            other.restrictions.take_over(&thread.restrictions);
            other.signals.raise_attention();
            other.kick();
        }
    });
}

/// A restricted thread makes a call: whether it is stopped from doing so. Then the answer is in the
/// registers, or the thread has a signal, or ends.
#[cold]
pub fn stops(thread: &Arc<Thread>, context: &mut UserContext, call: usize) -> bool {
    if thread.restrictions.mode() == MODE_STRICT {
        let is_allowed =
            matches!(call, number::read | number::write | number::exit | number::rt_sigreturn);
        if !is_allowed {
            end(thread, KILLED, false);
        }
        return !is_allowed;
    }
    let number = i32::try_from(call).unwrap_or(i32::MAX);
    let instruction = context.instruction_pointer();
    let mut record = [0; RECORD_WORDS];
    record[0] = number.cast_unsigned();
    record[1] = ARCHITECTURE;
    let words = [instruction].into_iter().chain(context.call_arguments());
    for (pair, word) in record[2..].chunks_exact_mut(2).zip(words) {
        pair[0] = word as u32;
        pair[1] = (word >> 32) as u32;
    }
    let verdict = thread.restrictions.judge(&record);
    let detail = verdict & !ACTION;
    match verdict & ACTION {
        ALLOW | LOG => return false,
        ERRNO => {
            let errno = i64::from(detail.min(LARGEST_ERRNO));
            context.set_return_value((-errno).cast_unsigned());
        }
        TRAP => {
            let info = SignalInfo::forbidden_call(instruction, number, ARCHITECTURE, detail as u16);
            signal::force(thread, info);
        }
        TRACE | ASK => {
            context.set_return_value(Errno::ENOSYS.to_return_value().cast_unsigned());
        }
        KILL_THREAD => end(thread, Signal::SIGSYS.number().cast_unsigned(), false),
        _ => end(thread, Signal::SIGSYS.number().cast_unsigned(), true),
    }
    true
}

/// Ends a thread, or all of its process, with a wait status.
fn end(thread: &Thread, status: u32, is_whole: bool) {
    if is_whole || thread.process.thread_count() == 1 {
        thread.process.request_group_exit(status);
    } else {
        thread.request_exit(status);
    }
}
