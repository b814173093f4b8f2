//! Where a thread stands in the tree of files: root, working directory and umask.
//!
//! Shared by threads and by processes made with `CLONE_FS`. Root and working directory are replaced
//! under the lock; whoever walks a path takes a copy of both and so sees one consistent pair.
//!
//! The threads that have a context are counted: a program whose root somebody else can change must not
//! gain rights (`begin_execution`). A new context is counted for the thread that it is made for.

use core::sync::atomic::{AtomicU32, Ordering};

use abi::Errno;
use alloc::sync::Arc;
use base::sync::{Mutex, rank};
use fs::Location;

/// Root, working directory and umask.
pub struct DirectoryContext {
    places: Mutex<Places>,
    umask: AtomicU32,
}

struct Places {
    root: Location,
    current: Location,
    /// Threads that have the context.
    holders: usize,
    /// Calls of `execve` under way that count on nobody else sharing it.
    executions: usize,
}

impl DirectoryContext {
    /// Both at the given places, with the usual umask.
    pub fn new(root: Location, current: Location) -> DirectoryContext {
        DirectoryContext {
            places: Mutex::new(
                &rank::FILE_TABLE,
                Places { root, current, holders: 1, executions: 0 },
            ),
            umask: AtomicU32::new(0o022),
        }
    }

    /// A copy for a new process.
    pub fn duplicate(&self) -> DirectoryContext {
        let (root, current) = self.places();
        let copy = DirectoryContext::new(root, current);
        copy.set_umask(self.umask());
        copy
    }

    /// Counts one more thread, which was made to share it. `EAGAIN` while somebody executes a program
    /// that counts on the opposite.
    pub fn share(&self) -> Result<(), Errno> {
        let mut places = self.places.lock();
        if places.executions > 0 {
            return Err(Errno::EAGAIN);
        }
        places.holders += 1;
        Ok(())
    }

    /// Counts one more thread.
    pub(super) fn join(&self) {
        self.places.lock().holders += 1;
    }

    /// Counts one thread less.
    pub(super) fn leave(&self) {
        let mut places = self.places.lock();
        places.holders = places.holders.saturating_sub(1);
    }

    /// Whether more threads than one have it.
    pub(super) fn is_shared(&self) -> bool {
        self.places.lock().holders > 1
    }

    /// Begins to execute a program. Answers a guard that keeps others from starting to share the
    /// context, or `None` when threads besides `own` ones, which will end, share it already.
    pub(super) fn begin_execution(self: &Arc<Self>, own: usize) -> Option<Execution> {
        let mut places = self.places.lock();
        if places.holders > own {
            return None;
        }
        places.executions += 1;
        drop(places);
        Some(Execution(self.clone()))
    }

    /// Where absolute paths start.
    pub fn root(&self) -> Location {
        self.places.lock().root.clone()
    }

    /// Where relative paths start.
    pub fn current(&self) -> Location {
        self.places.lock().current.clone()
    }

    /// Root and working directory of one moment.
    pub fn places(&self) -> (Location, Location) {
        let places = self.places.lock();
        (places.root.clone(), places.current.clone())
    }

    /// Changes the root (`chroot`).
    pub fn set_root(&self, root: Location) {
        let old = core::mem::replace(&mut self.places.lock().root, root);
        drop(old);
    }

    /// Changes the working directory (`chdir`).
    pub fn set_current(&self, current: Location) {
        let old = core::mem::replace(&mut self.places.lock().current, current);
        drop(old);
    }

    /// Puts another place where root or working directory are this one.
    pub(super) fn replace(&self, old: &Location, new: &Location) {
        let mut places = self.places.lock();
        let Places { root, current, .. } = &mut *places;
        let replaced = [root, current]
            .map(|place| place.is_same(old).then(|| core::mem::replace(place, new.clone())));
        drop(places);
        drop(replaced);
    }

    /// Permission bits that new files do not get.
    pub fn umask(&self) -> u32 {
        self.umask.load(Ordering::Relaxed)
    }

    /// Sets the umask and returns the old one.
    pub fn set_umask(&self, mask: u32) -> u32 {
        self.umask.swap(mask & 0o777, Ordering::Relaxed)
    }
}

/// Keeps a directory context from being shared until it is dropped.
pub(super) struct Execution(Arc<DirectoryContext>);

impl Drop for Execution {
    fn drop(&mut self) {
        self.0.places.lock().executions -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn nobody_begins_to_share_while_a_program_is_executed() {
        let parent = testing::process();
        let context = parent.directory();
        let execution = context.begin_execution(1);
        assert!(execution.is_some());
        assert_eq!(context.share(), Err(Errno::EAGAIN));
        drop(execution);
        assert_eq!(context.share(), Ok(()));
        context.leave();
        testing::end(parent, 0);
    }
}
