//! Locks that the kernel hands over: `FUTEX_LOCK_PI` and its kin.
//!
//! The word holds the number of the owner's thread, and a bit when somebody waits. Without contention a
//! program changes it alone. Here is who waits, in order of arrival, and the owner that they found; a word
//! in which nobody waits is unknown here. Who unlocks gives the word to the first waiter, so nobody can
//! get in between. When an owner ends, its locks go to their first waiters with the mark of a dead owner.
//!
//! Threads have no priorities that could be inherited: the order of arrival is all there is.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use base::heap::tree;
use core::sync::atomic::{AtomicUsize, Ordering};

use abi::Errno;
use abi::futex::{FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS};
use base::memory::Frame;
use base::sync::{Mutex, rank};

use super::{TABLE, Word};
use crate::call::Caller;
use crate::ipc::waiter::{Ended, Waiter, Woken};
use crate::memory::{Access, FutexKey};
use crate::process::table::thread as find_thread;
use crate::process::{Thread, Tid};

/// Most owners that are looked at to find a deadlock.
const LONGEST_CHAIN: usize = 1024;

static LOCKS: Mutex<Locks> =
    Mutex::new(&rank::IPC_TABLE, Locks { contended: BTreeMap::new(), blocked: BTreeMap::new() });

/// How many words are in `LOCKS`; changed under its lock.
static CONTENDED: AtomicUsize = AtomicUsize::new(0);

struct Locks {
    contended: BTreeMap<FutexKey, Contended>,
    /// Which word a thread waits for.
    blocked: BTreeMap<i32, FutexKey>,
}

/// A word for which somebody waits.
struct Contended {
    /// Number of the thread that has the lock.
    owner: i32,
    waiters: VecDeque<Blocked>,
}

struct Blocked {
    thread: i32,
    waiter: Arc<Waiter<Granted>>,
}

/// The lock was handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Granted {
    /// With the word.
    Word,
    /// By an owner that ended; the word is still to be written.
    ByDeadOwner,
}

/// What one look at the word led to.
enum Step {
    /// It changed meanwhile.
    Changed,
    /// The lock is the caller's (or was, and is free).
    Done,
    /// The caller waits.
    Waits(Arc<Waiter<Granted>>),
    /// It fails.
    Fails(Errno),
}

impl Locks {
    /// Whether waiting for a lock of `owner` would make a circle.
    fn would_deadlock(&self, thread: i32, owner: i32) -> bool {
        let mut owner = owner;
        for _ in 0..LONGEST_CHAIN {
            if owner == thread {
                return true;
            }
            let waited_for = self.blocked.get(&owner).and_then(|key| self.contended.get(key));
            match waited_for {
                Some(next) => owner = next.owner,
                None => return false,
            }
        }
        false
    }

    fn wait(&mut self, key: FutexKey, owner: i32, thread: i32) -> Step {
        let waiter = Waiter::new();
        let contended = tree::get_or_insert(&mut self.contended, key, || Contended {
            owner,
            waiters: VecDeque::new(),
        });
        if contended.waiters.try_reserve(1).is_err() {
            self.forget_if_idle(key);
            return Step::Fails(Errno::ENOMEM);
        }
        contended.waiters.push_back(Blocked { thread, waiter: waiter.clone() });
        tree::insert(&mut self.blocked, thread, key);
        CONTENDED.store(self.contended.len(), Ordering::Relaxed);
        Step::Waits(waiter)
    }

    /// Makes the first waiter the owner.
    fn hand_over(&mut self, key: FutexKey, granted: Granted, woken: &mut Woken) {
        let Some(contended) = self.contended.get_mut(&key) else { return };
        if let Some(next) = contended.waiters.pop_front() {
            contended.owner = next.thread;
            self.blocked.remove(&next.thread);
            next.waiter.answer(granted, woken);
        }
        self.forget_if_idle(key);
    }

    fn forget_if_idle(&mut self, key: FutexKey) {
        if self.contended.get(&key).is_some_and(|contended| contended.waiters.is_empty()) {
            self.contended.remove(&key);
        }
        CONTENDED.store(self.contended.len(), Ordering::Relaxed);
    }

    /// Takes a waiter out that does not want to wait any more.
    fn leave(&mut self, key: FutexKey, thread: i32, waiter: &Arc<Waiter<Granted>>) {
        let Some(contended) = self.contended.get_mut(&key) else { return };
        let before = contended.waiters.len();
        contended.waiters.retain(|blocked| !Arc::ptr_eq(&blocked.waiter, waiter));
        if contended.waiters.len() < before {
            self.blocked.remove(&thread);
        }
        self.forget_if_idle(key);
    }
}

/// Whether somebody waits for the word as for a lock: then it cannot be woken as a plain futex.
pub(super) fn is_contended(key: &FutexKey) -> bool {
    CONTENDED.load(Ordering::Relaxed) != 0 && LOCKS.lock().contended.contains_key(key)
}

/// How far a caller goes to get a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Only if it is free.
    None,
    /// Until the time on the monotonic clock, or for ever.
    Until(Option<u64>),
}

/// `FUTEX_LOCK_PI`, `FUTEX_TRYLOCK_PI`.
///
/// # Errors
/// `EDEADLK`, `EAGAIN` when a lock that was only tried is not free, `ESRCH` when its owner does not exist,
/// `EINVAL` when the word and who waits contradict each other, `ETIMEDOUT`, `EFAULT`, or a restart code.
pub async fn lock(caller: &Caller, word: &Word, patience: Patience) -> Result<u64, Errno> {
    let thread = caller.tid().0;
    let waiter = loop {
        let value = word.memory.load_u32(word.address).await?;
        let owner = (value & FUTEX_TID_MASK).cast_signed();
        if owner == thread {
            return Err(Errno::EDEADLK);
        }
        let owner_thread = if owner == 0 { None } else { find_thread(Tid(owner)) };
        let step = word.memory.space().with_word(word.address, true, |frame, offset| {
            let attempt = Attempt { key: word.key, value, thread, owner, patience };
            attempt.carry_out(frame, offset, owner_thread.as_deref())
        });
        match step {
            None => word.memory.bring_in(word.address, Access::WRITE).await?,
            Some(Step::Changed) => {}
            Some(Step::Done) => return Ok(0),
            Some(Step::Fails(errno)) => return Err(errno),
            Some(Step::Waits(waiter)) => break waiter,
        }
    };
    let Patience::Until(deadline_ns) = patience else { return Err(Errno::EAGAIN) };
    let waiting = InList { key: word.key, thread, waiter };
    let wait = alloc::boxed::Box::pin(waiting.waiter.wait(caller, deadline_ns));
    let granted = match wait.await {
        Ok(granted) => granted,
        Err(ended) => {
            waiting.leave();
            match (waiting.waiter.take(), ended) {
                (Some(granted), _) => granted,
                (None, Ended::TimedOut) => return Err(Errno::ETIMEDOUT),
                (None, Ended::Interrupted) => return Err(Errno::ERESTARTNOINTR),
            }
        }
    };
    if granted == Granted::ByDeadOwner {
        take_from_the_dead(word, thread).await?;
    }
    Ok(0)
}

/// One look at the word and who waits for it.
struct Attempt {
    key: FutexKey,
    /// What the word was.
    value: u32,
    /// Who wants the lock.
    thread: i32,
    /// Who has it, by the word; 0 for nobody.
    owner: i32,
    patience: Patience,
}

impl Attempt {
    fn carry_out(&self, frame: &Frame, offset: usize, owner: Option<&Thread>) -> Step {
        let mut locks = LOCKS.lock();
        let replace = |new| match frame.compare_exchange_u32(offset, self.value, new) {
            Ok(_) => Step::Done,
            Err(_) => Step::Changed,
        };
        if frame.load_u32(offset) != self.value {
            return Step::Changed;
        }
        let owner = match locks.contended.get(&self.key) {
            Some(contended) => {
                let is_dead = self.value & FUTEX_OWNER_DIED != 0;
                if !is_dead && contended.owner != self.owner {
                    return Step::Fails(Errno::EINVAL);
                }
                contended.owner
            }
            None if TABLE.has_waiter(&self.key) => return Step::Fails(Errno::EINVAL),
            None if self.owner == 0 => {
                return replace(self.value & FUTEX_OWNER_DIED | self.thread.unsigned_abs());
            }
            None => {
                // An owner that gives up its locks finds who waits, or is found to have done so.
                if owner.is_none_or(|owner| owner.has_left_locks.load(Ordering::Relaxed)) {
                    return Step::Fails(Errno::ESRCH);
                }
                if let Step::Changed = replace(self.value | FUTEX_WAITERS) {
                    return Step::Changed;
                }
                self.owner
            }
        };
        if self.patience == Patience::None {
            return Step::Fails(Errno::EAGAIN);
        }
        if locks.would_deadlock(self.thread, owner) {
            return Step::Fails(Errno::EDEADLK);
        }
        locks.wait(self.key, owner, self.thread)
    }
}

/// Writes the word of a lock that came from an owner that ended.
async fn take_from_the_dead(word: &Word, thread: i32) -> Result<(), Errno> {
    let own = thread.unsigned_abs() | FUTEX_WAITERS | FUTEX_OWNER_DIED;
    let mut value = word.memory.load_u32(word.address).await?;
    while let Err(found) = word.memory.compare_exchange_u32(word.address, value, own).await? {
        value = found;
    }
    Ok(())
}

/// Takes a waiter out when its wait ends in whatever way.
struct InList {
    key: FutexKey,
    thread: i32,
    waiter: Arc<Waiter<Granted>>,
}

impl InList {
    fn leave(&self) {
        LOCKS.lock().leave(self.key, self.thread, &self.waiter);
    }
}

impl Drop for InList {
    fn drop(&mut self) {
        self.leave();
    }
}

/// `FUTEX_UNLOCK_PI`: frees the lock, or gives it to the first who waits.
///
/// # Errors
/// `EPERM` when it is not the caller's, `EINVAL` when who waits found another owner, `EFAULT`.
pub async fn unlock(caller: &Caller, word: &Word) -> Result<u64, Errno> {
    let thread = caller.tid().0;
    loop {
        let value = word.memory.load_u32(word.address).await?;
        if (value & FUTEX_TID_MASK).cast_signed() != thread {
            return Err(Errno::EPERM);
        }
        let mut woken = Woken::default();
        let step = word.memory.space().with_word(word.address, true, |frame, offset| {
            let mut locks = LOCKS.lock();
            let new = match locks.contended.get(&word.key) {
                None => 0,
                Some(contended) if contended.owner != thread => return Step::Fails(Errno::EINVAL),
                Some(contended) => contended
                    .waiters
                    .front()
                    .map_or(0, |next| next.thread.unsigned_abs() | FUTEX_WAITERS),
            };
            if frame.compare_exchange_u32(offset, value, new).is_err() {
                return Step::Changed;
            }
            locks.hand_over(word.key, Granted::Word, &mut woken);
            Step::Done
        });
        woken.wake();
        match step {
            None => word.memory.bring_in(word.address, Access::WRITE).await?,
            Some(Step::Fails(errno)) => return Err(errno),
            Some(Step::Done) => return Ok(0),
            Some(Step::Changed | Step::Waits(_)) => {}
        }
    }
}

/// The thread ends, or executes another program: its locks go to those who wait for them.
pub fn leave_locks(thread: &Thread) {
    let mut woken = Woken::default();
    {
        let mut locks = LOCKS.lock();
        thread.has_left_locks.store(true, Ordering::Relaxed);
        let tid = thread.tid().0;
        while let Some(key) =
            locks.contended.iter().find(|(_, lock)| lock.owner == tid).map(|(key, _)| *key)
        {
            locks.hand_over(key, Granted::ByDeadOwner, &mut woken);
        }
    }
    woken.wake();
}
