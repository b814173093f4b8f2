//! Where a thread stands in the tree of files: root, working directory and umask.
//!
//! Shared by threads and by processes made with `CLONE_FS`. Root and working directory are replaced
//! under the lock; whoever walks a path takes a copy of both and so sees one consistent pair.

use core::sync::atomic::{AtomicU32, Ordering};

use base::sync::{Mutex, rank};
use fs::Location;

/// Root, working directory and umask.
pub struct DirectoryContext {
    places: Mutex<Places>,
    umask: AtomicU32,
}

#[derive(Clone)]
struct Places {
    root: Location,
    current: Location,
}

impl DirectoryContext {
    /// Both at the given places, with the usual umask.
    pub fn new(root: Location, current: Location) -> DirectoryContext {
        DirectoryContext {
            places: Mutex::new(&rank::FILE_TABLE, Places { root, current }),
            umask: AtomicU32::new(0o022),
        }
    }

    /// A copy for a new process.
    pub fn duplicate(&self) -> DirectoryContext {
        DirectoryContext {
            places: Mutex::new(&rank::FILE_TABLE, self.places.lock().clone()),
            umask: AtomicU32::new(self.umask()),
        }
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
        let places = self.places.lock().clone();
        (places.root, places.current)
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

    /// Permission bits that new files do not get.
    pub fn umask(&self) -> u32 {
        self.umask.load(Ordering::Relaxed)
    }

    /// Sets the umask and returns the old one.
    pub fn set_umask(&self, mask: u32) -> u32 {
        self.umask.swap(mask & 0o777, Ordering::Relaxed)
    }
}
