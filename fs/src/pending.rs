//! Operations that need I/O first.
//!
//! An operation of an inode or a file is a plain function. When its answer needs I/O, it begins the I/O,
//! leaves a handle here (`wanted`), and answers `EIOCBQUEUED`, which never reaches a program. Whoever
//! called it and may wait (the handler of a system call, a page fault) releases its locks, awaits
//! the I/O, and asks again:
//!
//! ```text
//!  handler ── operation ──> answer is in memory                              the ordinary case: no cost
//!                 └──────> wanted(io), EIOCBQUEUED ──> wait ──> operation again ──> answer
//! ```
//!
//! A whole handler may be repeated as long as it has changed nothing before the operation that wants I/O.
//! A change that goes to another machine is made once: its handle stays alive while the caller waits, and
//! the repeated operation takes the result out of it.
//!
//! The handles lie in a slot of the core, because an operation knows nothing of who called it. A slot
//! that was overwritten costs one more attempt, never a wrong answer.

use abi::Errno;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::cpu::{MAX_CPUS, PerCpu};
use base::sync::{Mutex, rank};
use base::wait::WaitQueue;
use base::{task, time};
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The end of one piece of I/O.
pub struct Wait {
    is_done: AtomicBool,
    queue: WaitQueue,
    /// The last call that waited, by the number of its attempts.
    waiter: AtomicU64,
}

impl Default for Wait {
    fn default() -> Wait {
        Wait::new()
    }
}

impl Wait {
    /// I/O that goes on.
    pub fn new() -> Wait {
        Wait {
            is_done: AtomicBool::new(false),
            queue: WaitQueue::new(),
            waiter: AtomicU64::new(NOBODY),
        }
    }

    /// Whether it has ended.
    pub fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// It has ended: wakes who waits.
    pub fn finish(&self) {
        self.is_done.store(true, Ordering::Release);
        self.queue.wake_all();
    }

    /// Waits for its end.
    pub async fn end(&self) {
        self.queue.wait_until(|| self.is_done().then_some(())).await;
    }

    /// Whether an earlier attempt of the call that runs on this core has waited for it, and no other call since.
    pub fn is_own(&self) -> bool {
        let call = RUNNING.here().load(Ordering::Relaxed);
        call != NOBODY && self.waiter.load(Ordering::Relaxed) == call
    }
}

/// A piece of I/O that an operation waits for. It must end, with an error if need be.
pub trait Io: Send + Sync {
    /// Its end.
    fn wait(&self) -> &Wait;

    /// Whether it has changed something, so that its result must not get lost before the caller ends.
    fn is_change(&self) -> bool {
        false
    }
}

/// Most handles that one attempt leaves; more are begun by the next.
const MOST_WANTED: usize = 32;
/// Attempts after which a call gives up with `EIO`: what it needs goes away faster than it comes.
const MOST_ATTEMPTS: usize = 10_000;

static WANTED: PerCpu<Mutex<Vec<Arc<dyn Io>>>> =
    PerCpu::new([const { Mutex::new(&rank::WANTED_IO, Vec::new()) }; MAX_CPUS]);
static FRESH_SINCE_NS: PerCpu<AtomicU64> =
    PerCpu::new([const { AtomicU64::new(u64::MAX) }; MAX_CPUS]);

/// The number of no call.
const NOBODY: u64 = 0;
/// The number of the next call that repeats itself.
static NEXT: AtomicU64 = AtomicU64::new(NOBODY + 1);
/// The call that makes a repeated attempt on each core.
static RUNNING: PerCpu<AtomicU64> = PerCpu::new([const { AtomicU64::new(NOBODY) }; MAX_CPUS]);

/// Leaves the I/O that an operation waits for; gives the error to answer with.
pub fn wanted(io: Arc<dyn Io>) -> Errno {
    let mut slot = WANTED.here().lock();
    let forgotten =
        if slot.len() >= MOST_WANTED { core::mem::take(&mut *slot) } else { Vec::new() };
    slot.push(io);
    drop(slot);
    drop(forgotten);
    Errno::EIOCBQUEUED
}

/// Since when the operations of the attempt that runs on this core have been going on, in nanoseconds of
/// `base::time`. What was fetched since then counts as fresh, or a slow fetch would never be of use.
/// `u64::MAX` outside a repeated attempt.
pub fn fresh_since_ns() -> u64 {
    FRESH_SINCE_NS.here().load(Ordering::Relaxed)
}

/// What a call that repeats itself keeps between its attempts.
pub struct Attempts {
    number: u64,
    begun_ns: u64,
    count: usize,
    /// Handles that were waited for; they stay alive until the call ends.
    held: Vec<Arc<dyn Io>>,
}

impl Default for Attempts {
    fn default() -> Attempts {
        Attempts::new()
    }
}

impl Attempts {
    /// After the first attempt, which wanted I/O.
    pub fn new() -> Attempts {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Attempts { number, begun_ns: time::now_ns(), count: 0, held: Vec::new() }
    }

    /// Waits for what the last attempt wanted. `EIO` after far too many attempts.
    pub async fn wait(&mut self) -> Result<(), Errno> {
        self.count += 1;
        if self.count > MOST_ATTEMPTS {
            return Err(Errno::EIO);
        }
        let wanted = core::mem::take(&mut *WANTED.here().lock());
        if wanted.is_empty() {
            task::yield_now().await;
            return Ok(());
        }
        for io in &wanted {
            io.wait().waiter.store(self.number, Ordering::Relaxed);
        }
        for io in &wanted {
            io.wait().end().await;
        }
        // What earlier attempts fetched has been taken by now, or is not wanted any more.
        self.held.retain(|io| io.is_change());
        self.held.extend(wanted);
        Ok(())
    }

    /// Makes an attempt.
    pub fn during<R>(&self, attempt: impl FnOnce() -> R) -> R {
        let since_before = FRESH_SINCE_NS.here().swap(self.begun_ns, Ordering::Relaxed);
        let call_before = RUNNING.here().swap(self.number, Ordering::Relaxed);
        let result = attempt();
        FRESH_SINCE_NS.here().store(since_before, Ordering::Relaxed);
        RUNNING.here().store(call_before, Ordering::Relaxed);
        result
    }
}

impl Attempts {
    /// Makes an attempt that may wait for other things too.
    pub async fn carry_out<F: Future>(&self, attempt: F) -> F::Output {
        let mut attempt = pin!(attempt);
        poll_fn(|context| self.during(|| attempt.as_mut().poll(context))).await
    }
}

/// Goes on with an operation that has just answered `EIOCBQUEUED`: waits and repeats it until it answers
/// something else.
pub async fn resume<R>(mut operation: impl FnMut() -> Result<R, Errno>) -> Result<R, Errno> {
    let mut attempts = Attempts::new();
    loop {
        attempts.wait().await?;
        match attempts.during(&mut operation) {
            Err(Errno::EIOCBQUEUED) => {}
            result => return result,
        }
    }
}

/// As `resume`, for something that waits for other things too.
pub async fn resume_future<R, F: Future<Output = Result<R, Errno>>>(
    mut begin: impl FnMut() -> F,
) -> Result<R, Errno> {
    let mut attempts = Attempts::new();
    loop {
        attempts.wait().await?;
        match attempts.carry_out(begin()).await {
            Err(Errno::EIOCBQUEUED) => {}
            result => return result,
        }
    }
}

/// Carries out an operation, with all the waiting that it needs.
pub async fn complete<R>(mut operation: impl FnMut() -> Result<R, Errno>) -> Result<R, Errno> {
    match operation() {
        Err(Errno::EIOCBQUEUED) => Box::pin(resume(operation)).await,
        result => result,
    }
}

/// Where one piece of I/O leaves its result until the operation is repeated.
pub struct Answer<T> {
    is_change: bool,
    wait: Wait,
    result: Mutex<Option<T>>,
}

impl<T> Answer<T> {
    /// No result yet. `is_change`: the I/O changes something.
    pub fn new(is_change: bool) -> Answer<T> {
        Answer { is_change, wait: Wait::new(), result: Mutex::new(&rank::REMOTE_ANSWER, None) }
    }

    /// Leaves the result and wakes who waits.
    pub fn set(&self, result: T) {
        *self.result.lock() = Some(result);
        self.wait.finish();
    }

    /// Takes the result out; `None` before it is there, or after somebody took it.
    pub fn take(&self) -> Option<T> {
        self.result.lock().take()
    }
}

impl<T: Send> Io for Answer<T> {
    fn wait(&self) -> &Wait {
        &self.wait
    }

    fn is_change(&self) -> bool {
        self.is_change
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::cpu::CpuId;
    use base::task::block_on_host;

    #[test]
    fn what_is_in_memory_is_answered_by_the_first_attempt() {
        let mut attempts = 0;
        let result = block_on_host(complete(|| {
            attempts += 1;
            Ok::<_, Errno>(7)
        }));
        assert_eq!((result, attempts), (Ok(7), 1));
    }

    #[test]
    fn an_operation_is_repeated_when_its_io_has_ended() {
        let answer = Arc::new(Answer::new(false));
        let mut attempts = 0;
        let result = block_on_host(complete(|| {
            attempts += 1;
            if let Some(value) = answer.take() {
                assert_ne!(fresh_since_ns(), u64::MAX);
                return Ok(value);
            }
            let later = answer.clone();
            task::spawn(CpuId::current(), async move {
                time::sleep_for(1_000_000).await;
                later.set(5);
            })?;
            Err(wanted(answer.clone()))
        }));
        assert_eq!((result, attempts), (Ok(5), 2));
        assert_eq!(fresh_since_ns(), u64::MAX);
    }

    #[test]
    fn a_lost_handle_costs_an_attempt_and_an_end_is_always_reached() {
        let mut attempts = 0;
        let result = block_on_host(complete(|| {
            attempts += 1;
            if attempts < 4 { Err(Errno::EIOCBQUEUED) } else { Ok(()) }
        }));
        assert_eq!((result, attempts), (Ok(()), 4));
        let never = block_on_host(complete(|| Err::<(), _>(Errno::EIOCBQUEUED)));
        assert_eq!(never, Err(Errno::EIO));
    }
}
