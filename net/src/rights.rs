//! Open files that travel in messages, and what becomes of those that nobody can receive.
//!
//! A socket that is in a message can hold messages itself. Once every reference to some sockets is in
//! messages of just those sockets, nobody can receive them: they are garbage, and `collect` finds them.
//! It counts for each socket in flight how many references are in messages. A socket with no others is
//! suspected; references from the queues of suspects are subtracted; a suspect that has some left, and
//! all that is in its queue, can still be reached. The queues of the rest are emptied.
//!
//! Lock rule: what is in flight changes only under `RIGHTS`; a message takes its files into the account
//! before it is queued and out of it after it was taken from the queue, so that a count is never too
//! low. Received files are handed out after that.
//!
//! Files are closed one after the other in one place, not where a message is dropped: a queue that
//! holds a socket whose queue holds a socket, and so on, would else use up the stack.

use crate::unix::UnixSocket;
use abi::Errno;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::heap::tree;
use base::sync::{Mutex, MutexGuard, rank};
use core::any::Any;
use core::mem;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// An open file in a message.
pub trait Passed: Send + Sync {
    /// The same file once more.
    fn duplicate(&self) -> Box<dyn Passed>;
    /// The local socket that it is, and a look at how many references it has.
    fn socket(&self) -> Option<(Arc<UnixSocket>, Box<dyn References>)>;
    /// The file as its concrete type.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// How many references an open file has. Is none itself.
pub trait References: Send + Sync {
    /// How many.
    fn count(&self) -> usize;
}

/// The open files of one message.
pub struct Rights {
    files: Vec<Box<dyn Passed>>,
    user: u32,
    is_in_flight: bool,
}

/// A socket that is in messages.
struct Flying {
    socket: Arc<UnixSocket>,
    references: Box<dyn References>,
    /// In how many messages, or how often in one.
    count: usize,
}

/// What is in flight.
pub(crate) struct Flight {
    /// Sockets by their numbers.
    sockets: BTreeMap<u64, Flying>,
    /// Files by who sent them.
    users: BTreeMap<u32, usize>,
}

static FLIGHT: Mutex<Flight> =
    Mutex::new(&rank::RIGHTS, Flight { sockets: BTreeMap::new(), users: BTreeMap::new() });
/// Sockets in flight: a hint whether there is anything to collect.
static FLYING_SOCKETS: AtomicUsize = AtomicUsize::new(0);
static DISCARDED: Mutex<VecDeque<Vec<Box<dyn Passed>>>> =
    Mutex::new(&rank::DISCARDED, VecDeque::new());
static IS_WORKING: AtomicBool = AtomicBool::new(false);
static IS_GARBAGE_LIKELY: AtomicBool = AtomicBool::new(false);

/// Keeps what is in flight from changing.
pub(crate) fn hold() -> MutexGuard<'static, Flight> {
    FLIGHT.lock()
}

impl Rights {
    /// The files of a message of `user`.
    pub fn new(files: Vec<Box<dyn Passed>>, user: u32) -> Rights {
        Rights { files, user, is_in_flight: false }
    }

    /// How many files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Checks that the user has no more than `limit` files in flight: `ETOOMANYREFS`.
    pub fn check(&self, limit: u64) -> Result<(), Errno> {
        let count = FLIGHT.lock().users.get(&self.user).copied().unwrap_or(0);
        if count as u64 > limit { Err(Errno::ETOOMANYREFS) } else { Ok(()) }
    }

    /// Takes the files into the account.
    pub(crate) fn depart(&mut self) {
        if self.is_in_flight {
            return;
        }
        self.is_in_flight = true;
        let sockets: Vec<_> = self.files.iter().filter_map(|file| file.socket()).collect();
        let mut flight = FLIGHT.lock();
        *tree::get_or_insert(&mut flight.users, self.user, || 0) += self.files.len();
        for (socket, references) in sockets {
            let make = |socket| Flying { socket, references, count: 0 };
            let number = socket.number();
            tree::get_or_insert(&mut flight.sockets, number, || make(socket)).count += 1;
        }
        FLYING_SOCKETS.store(flight.sockets.len(), Ordering::Relaxed);
    }

    /// Takes the files out of the account and hands them out.
    pub(crate) fn arrive(&mut self) -> Vec<Box<dyn Passed>> {
        let files = mem::take(&mut self.files);
        if !mem::take(&mut self.is_in_flight) {
            return files;
        }
        let sockets: Vec<_> = files.iter().filter_map(|file| file.socket()).collect();
        let mut landed = Vec::new();
        let mut flight = FLIGHT.lock();
        if let Some(count) = flight.users.get_mut(&self.user) {
            *count = count.saturating_sub(files.len());
            if *count == 0 {
                flight.users.remove(&self.user);
            }
        }
        for (socket, _) in &sockets {
            let number = socket.number();
            if let Some(flying) = flight.sockets.get_mut(&number) {
                flying.count -= 1;
                if flying.count == 0 {
                    landed.push(flight.sockets.remove(&number));
                }
            }
        }
        FLYING_SOCKETS.store(flight.sockets.len(), Ordering::Relaxed);
        drop(flight);
        files
    }

    /// The same files once more, for somebody who looks at a message without taking it. What is in
    /// flight is held meanwhile.
    pub(crate) fn copies(&self, _held: &MutexGuard<'static, Flight>) -> Vec<Box<dyn Passed>> {
        self.files.iter().map(|file| file.duplicate()).collect()
    }

    /// The numbers of the sockets among the files.
    fn socket_numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.files.iter().filter_map(|file| file.socket()).map(|(socket, _)| socket.number())
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        if !self.files.is_empty() {
            discard(self.arrive());
        }
    }
}

/// Closes files that nobody received.
pub fn discard(files: Vec<Box<dyn Passed>>) {
    if files.is_empty() {
        return;
    }
    let mut discarded = DISCARDED.lock();
    if discarded.try_reserve(1).is_ok() {
        discarded.push_back(files);
        drop(discarded);
    } else {
        drop(discarded);
        drop(files);
    }
    work();
}

/// Whether a socket is in a message.
pub fn has_sockets_in_flight() -> bool {
    FLYING_SOCKETS.load(Ordering::Relaxed) > 0
}

/// A socket was closed, or a descriptor of one: what it kept reachable may be garbage.
pub fn collect() {
    if has_sockets_in_flight() {
        IS_GARBAGE_LIKELY.store(true, Ordering::Release);
        work();
    }
}

/// Closes what is to be closed and collects garbage, until nothing is left. Whoever closes a file here
/// may come here again, and another core at the same time: they leave it to the first.
fn work() {
    loop {
        if IS_WORKING.swap(true, Ordering::AcqRel) {
            return;
        }
        loop {
            let next = DISCARDED.lock().pop_front();
            if next.is_some() {
                drop(next);
            } else if IS_GARBAGE_LIKELY.swap(false, Ordering::AcqRel) {
                empty_unreachable_queues();
            } else {
                break;
            }
        }
        IS_WORKING.store(false, Ordering::Release);
        if DISCARDED.lock().is_empty() && !IS_GARBAGE_LIKELY.load(Ordering::Acquire) {
            return;
        }
    }
}

/// Empties the queues of sockets that nobody can reach any more.
fn empty_unreachable_queues() {
    let mut garbage = Vec::new();
    {
        let flight = FLIGHT.lock();
        let suspects = flight.sockets.values().filter(|flying| {
            // One more reference than messages have: somebody else's.
            flying.references.count() <= flying.count
        });
        let mut left: BTreeMap<u64, usize> = BTreeMap::new();
        for flying in suspects {
            tree::insert(&mut left, flying.socket.number(), flying.count);
        }
        let contents = |number: &u64| -> Vec<u64> {
            let mut inside = Vec::new();
            if let Some(flying) = flight.sockets.get(number) {
                flying.socket.visit_rights(&mut |rights| inside.extend(rights.socket_numbers()));
            }
            inside
        };
        let numbers: Vec<u64> = left.keys().copied().collect();
        for number in &numbers {
            for inside in contents(number) {
                if let Some(count) = left.get_mut(&inside) {
                    *count = count.saturating_sub(1);
                }
            }
        }
        let mut reachable: Vec<u64> =
            left.iter().filter(|(_, count)| **count > 0).map(|(number, _)| *number).collect();
        for number in &reachable {
            left.remove(number);
        }
        while let Some(number) = reachable.pop() {
            for inside in contents(&number) {
                if left.remove(&inside).is_some() {
                    reachable.push(inside);
                }
            }
        }
        for number in left.keys() {
            if let Some(flying) = flight.sockets.get(number) {
                flying.socket.take_messages_with_rights(&mut garbage);
            }
        }
    }
    drop(garbage);
}

/// Open files in messages, for tests that look for leaks.
pub fn count() -> usize {
    FLIGHT.lock().users.values().sum()
}
