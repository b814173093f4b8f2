//! What the handlers of files share: paths and their starting places, and waiting for readiness.

use core::future::poll_fn;
use core::task::Poll;

use abi::Errno;
use abi::fs::{AT_FDCWD, PATH_MAX, PollEvents};
use abi::signal::Signal;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::time;
use base::wait::{Kind, Registration, Target};
use fs::poll::PollTable;
use fs::walk::{self, Lookup};
use fs::{Identity, Location, NodeKind, OpenFile, tree};

use crate::call::Call;
use crate::process::{Interrupted, Thread};
use crate::signal::{self, SignalInfo};

/// The path at the address in argument `index`.
pub async fn path(call: &Call, index: usize) -> Result<Vec<u8>, Errno> {
    call.user().read_string(call.argument(index), PATH_MAX).await
}

/// From where and for whom a path is resolved.
pub struct Start {
    root: Location,
    start: Location,
    pub identity: Identity,
}

impl Start {
    /// The starting place of a path that is relative to a directory's descriptor. `ENOENT` for the
    /// empty path, `EBADF` when the descriptor matters and is not open.
    pub fn new(call: &Call, directory: i32, path: &[u8]) -> Result<Start, Errno> {
        Start::for_identity(call, directory, path, call.thread.identity())
    }

    /// The same for somebody else than the effective user (`access`).
    pub fn for_identity(
        call: &Call,
        directory: i32,
        path: &[u8],
        identity: Identity,
    ) -> Result<Start, Errno> {
        let is_absolute = match path.first() {
            None => return Err(Errno::ENOENT),
            Some(first) => *first == b'/',
        };
        let (root, current) = call.thread.directory().places();
        let start = if is_absolute || directory == AT_FDCWD {
            current
        } else {
            call.thread.files().get(directory)?.location().clone()
        };
        Ok(Start { root, start, identity })
    }

    /// What the file layer takes.
    pub fn lookup(&self) -> Lookup<'_> {
        Lookup { root: &self.root, start: &self.start, identity: &self.identity }
    }

    /// Resolves the path.
    pub fn resolve(&self, path: &[u8], follow: bool) -> Result<Location, Errno> {
        walk::resolve(self.lookup(), path, follow)
    }
}

/// Resolves the path in argument `index`, relative to a directory's descriptor.
pub async fn resolve(
    call: &Call,
    directory: i32,
    index: usize,
    follow: bool,
) -> Result<(Location, Identity), Errno> {
    let path = path(call, index).await?;
    let start = Start::new(call, directory, &path)?;
    let location = start.resolve(&path, follow)?;
    Ok((location, start.identity))
}

/// As `resolve`; with `may_be_empty` an empty path stands for the descriptor itself.
pub async fn resolve_or_itself(
    call: &Call,
    directory: i32,
    index: usize,
    follow: bool,
    may_be_empty: bool,
) -> Result<(Location, Identity), Errno> {
    let path = path(call, index).await?;
    if path.is_empty() && may_be_empty {
        let location = if directory == AT_FDCWD {
            call.thread.directory().current()
        } else {
            call.thread.files().get(directory)?.location().clone()
        };
        return Ok((location, call.thread.identity()));
    }
    let start = Start::new(call, directory, &path)?;
    let location = start.resolve(&path, follow)?;
    Ok((location, start.identity))
}

/// The open file in argument `index`, which must be more than a place: `EBADF` for `O_PATH`.
pub fn usable(call: &Call, index: usize) -> Result<Arc<OpenFile>, Errno> {
    let file = call.file(index)?;
    if file.is_path_only() { Err(Errno::EBADF) } else { Ok(file) }
}

/// How a wait for readiness ended without it.
pub enum NotReady {
    /// The time is over.
    TimedOut,
    /// A signal came.
    Interrupted,
}

/// Places in the queues of a file, for one who waits to take something: of several only one is woken
/// for what only one can take. Kept over several attempts of one call. Whoever was told and does not
/// take all that is there passes it on.
pub struct Turn {
    places: Vec<Registration>,
    /// We were told in place of somebody else.
    owes: bool,
}

impl Turn {
    /// No place yet.
    pub const fn new() -> Turn {
        Turn { places: Vec::new(), owes: false }
    }

    /// Notes which places told us something, knowing that we look again.
    fn take_note(&mut self) {
        for place in &mut self.places {
            if place.was_told() {
                self.owes = true;
                place.settle();
            }
        }
    }

    /// Leaves after an attempt: if there is more, the next is told.
    pub fn end(mut self, call: &Call, file: &OpenFile, events: PollEvents) {
        if self.places.is_empty() {
            return;
        }
        self.take_note();
        self.owes &= !file.file().poll_for(&**call.thread, events, None).is_empty();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let owes = self.owes;
        // Places that are dropped without a word pass on what they were told just now.
        self.places.drain(..).filter(|_| owes).for_each(Registration::pass_on);
    }
}

/// Waits until one of the events is there, no longer than until a deadline of `base::time`, in the
/// order in which callers came. Called again with the same `turn`, after an attempt that found
/// nothing, it waits for the next change, whatever `File::poll` says.
pub async fn ready_in_turn(
    call: &Call,
    file: &OpenFile,
    events: PollEvents,
    deadline_ns: Option<u64>,
    turn: &mut Turn,
) -> Result<(), NotReady> {
    let caller: &Thread = &call.thread;
    let wait = poll_fn(|context| {
        let is_first = turn.places.is_empty();
        if !is_first {
            if turn.places.iter().all(|place| place.still_waits(context.waker())) {
                return Poll::Pending;
            }
            turn.take_note();
            turn.places.clear();
        }
        let target = Target::Waker(context.waker().clone());
        let mut table = PollTable::new(Kind::Taker, events, &target, &mut turn.places);
        let there = file.file().poll_for(caller, events, Some(&mut table));
        if is_first && there.is_empty() { Poll::Pending } else { Poll::Ready(()) }
    });
    // On the heap, as whatever waits is: the futures of all calls stay small.
    let wait = Box::pin(call.thread.interruptible(time::with_deadline(wait, deadline_ns)));
    match wait.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(NotReady::TimedOut),
        Err(Interrupted) => Err(NotReady::Interrupted),
    }
}

/// As `ready_in_turn`, for one who has tried only once.
pub async fn ready(
    call: &Call,
    file: &OpenFile,
    events: PollEvents,
    deadline_ns: Option<u64>,
) -> Result<(), NotReady> {
    ready_in_turn(call, file, events, deadline_ns, &mut Turn::new()).await
}

/// Sends a signal that the call itself causes (`SIGPIPE`, `SIGXFSZ`): as if the caller had sent it.
pub fn raise(call: &Call, signal: Signal) {
    // A full queue of pending signals loses it, as on Linux.
    let (process, user) = (call.process().pid.0, call.thread.credentials().user.real);
    let _ = signal::send_to_thread(&call.thread, SignalInfo::kill(signal, process, user));
}

/// Who writes to a program takes its set-user-ID and set-group-ID bits away.
pub fn after_write(thread: &Thread, file: &OpenFile, count: usize) -> Result<(), Errno> {
    if count > 0 && file.kind() == NodeKind::Regular {
        tree::drop_set_id(file.inode(), &thread.identity())?;
    }
    Ok(())
}
