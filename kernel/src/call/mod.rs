//! One system call on its way: who calls, which number, which arguments, and how to decode them.
//!
//! A handler decodes all its arguments into typed values first, which may fail, and then acts. The
//! caller's identity travels with the call: a handler never asks "who runs here".

mod slot;

use alloc::sync::Arc;
use core::future::Future;
use core::ops::Deref;
use core::pin::pin;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use base::task;
use fs::OpenFile;
use policy::route;
use policy::table::CALL_LIMIT;

use crate::memory::{PAGES_AT_ONCE, UserMemory};
use crate::posted::Syspage;
use crate::process::{Interrupted, Process, Thread};
use crate::signal::{self, Interruption};

pub use slot::{AT_HOME, CallSlot, decode, encode};

/// Handlers of one user that may be pending on kernel cores.
pub const PENDING_CALLS_OF_A_USER: u32 = 1024;

/// What a handler answers: the value for the caller, or an error.
pub type SysResult = Result<u64, Errno>;

/// Who called what, and how: this decides what ends a wait of the call.
///
/// The number is in here because there is room for it: a `Call` is a cache line, and moving one takes
/// no loop.
pub enum Caller {
    /// A thread that trapped and waits for the answer: its signals end the wait.
    Trapped {
        /// The thread.
        thread: Arc<Thread>,
        /// Number of the call.
        number: u16,
    },
    /// A thread that posted the call and goes on: only `ferry_cancel` ends the wait.
    Posted {
        /// Where.
        syspage: Arc<Syspage>,
        /// In which entry.
        index: u8,
        /// Number of the call.
        number: u16,
    },
}

const _: () = assert!(size_of::<Call>() == 64);

impl Deref for Caller {
    type Target = Arc<Thread>;

    #[inline]
    fn deref(&self) -> &Arc<Thread> {
        match self {
            Caller::Trapped { thread, .. } => thread,
            Caller::Posted { syspage, .. } => syspage.thread(),
        }
    }
}

impl Caller {
    /// Waits for `future`, but ends early when the caller is to be told so. What is ready at once is
    /// delivered even then.
    pub async fn interruptible<F: Future>(&self, future: F) -> Result<F::Output, Interrupted> {
        let future = pin!(future);
        match self {
            Caller::Trapped { thread, .. } => signal::interruptible(&**thread, future).await,
            Caller::Posted { syspage, index, .. } => {
                signal::interruptible(syspage.interruption(usize::from(*index)), future).await
            }
        }
    }

    /// Whether a long call should stop early.
    pub fn has_attention(&self) -> bool {
        match self {
            Caller::Trapped { thread, .. } => thread.has_attention(),
            Caller::Posted { syspage, index, .. } => {
                syspage.interruption(usize::from(*index)).is_set()
            }
        }
    }

    /// Whether a call that is worth nothing to a dead caller should stop.
    pub fn is_killed(&self) -> bool {
        match self {
            Caller::Trapped { thread, .. } => thread.signals.must_exit(),
            Caller::Posted { .. } => self.has_attention() || self.signals.must_exit(),
        }
    }

    /// Delivers the answer of a call that travelled.
    pub fn answer(&self, result: SysResult) {
        match self {
            Caller::Trapped { thread, .. } => thread.slot.complete(result),
            Caller::Posted { syspage, index, .. } => syspage.complete(usize::from(*index), result),
        }
    }
}

/// How much of a long call has been done since others had their turn.
pub struct Pace {
    left: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::new()
    }
}

impl Pace {
    /// At the beginning of a turn.
    pub const fn new() -> Pace {
        Pace { left: PAGES_AT_ONCE }
    }

    /// Work on so many pages has been done. Gives the core to others when that was enough for a turn;
    /// an error when the caller has been killed meanwhile, so that the call should end.
    pub async fn spend(&mut self, caller: &Caller, pages: u64) -> Result<(), Interrupted> {
        self.left = self.left.saturating_sub(pages);
        if self.left > 0 {
            return Ok(());
        }
        self.left = PAGES_AT_ONCE;
        task::yield_now().await;
        if caller.is_killed() { Err(Interrupted) } else { Ok(()) }
    }
}

/// Does long work part by part: `part` gets where it begins, from `from` on, and tells where the rest
/// begins. Others have the core between parts, and a caller that has been killed stops there.
///
/// # Errors
/// Those of `part`; `EINTR` for a caller that has been killed.
pub async fn in_turns(
    caller: &Caller,
    from: u64,
    mut part: impl FnMut(u64) -> Result<Option<u64>, Errno>,
) -> Result<(), Errno> {
    let mut at = from;
    while let Some(next) = part(at)? {
        at = next;
        task::yield_now().await;
        if caller.is_killed() {
            return Err(Errno::EINTR);
        }
    }
    Ok(())
}

/// One system call.
pub struct Call {
    /// The thread that called, and what.
    pub thread: Caller,
    /// Its arguments, raw.
    pub arguments: [u64; 6],
}

impl Call {
    /// A call of a thread that trapped.
    #[inline]
    pub fn trapped(thread: &Arc<Thread>, number: usize, arguments: [u64; 6]) -> Call {
        // No call has a number as large as the largest.
        let number = u16::try_from(number).unwrap_or(u16::MAX);
        Call { thread: Caller::Trapped { thread: thread.clone(), number }, arguments }
    }

    /// Its number.
    #[inline]
    pub fn number(&self) -> usize {
        let (Caller::Trapped { number, .. } | Caller::Posted { number, .. }) = self.thread;
        usize::from(number)
    }

    /// The process of the caller.
    pub fn process(&self) -> &Arc<Process> {
        &self.thread.process
    }

    /// The caller's memory.
    pub fn user(&self) -> UserMemory {
        UserMemory::new(self.thread.space())
    }

    /// Argument `index` (0 to 5), raw.
    pub fn argument(&self, index: usize) -> u64 {
        self.arguments.get(index).copied().unwrap_or(0)
    }

    /// Argument `index` as the C type `int`: the upper half of the register is ignored.
    pub fn int(&self, index: usize) -> i32 {
        self.argument(index) as i32
    }

    /// Argument `index` as the C type `unsigned int`: the upper half of the register is ignored.
    pub fn unsigned(&self, index: usize) -> u32 {
        self.argument(index) as u32
    }

    /// The open file of the descriptor in argument `index`; `EBADF` when there is none.
    pub fn file(&self, index: usize) -> Result<Arc<OpenFile>, Errno> {
        self.thread.files().get(self.int(index))
    }
}

/// `ENOSYS`, with one line in the log per number.
pub fn unknown(number: usize) -> Errno {
    static LOGGED: [AtomicU64; CALL_LIMIT / 64] = [const { AtomicU64::new(0) }; CALL_LIMIT / 64];
    let first = match LOGGED.get(number / 64) {
        Some(word) => {
            word.fetch_or(1 << (number % 64), Ordering::Relaxed) >> (number % 64) & 1 == 0
        }
        None => false,
    };
    if first {
        log::warn!("system call {number} ({}) is not supported", route::name(number));
    }
    Errno::ENOSYS
}
