//! What a process took from semaphores with `SEM_UNDO` and gives back when it ends.
//!
//! Threads that were made with `CLONE_SYSVSEM` share one list; the last of them to end settles it. The
//! adjustments themselves are kept with the sets; the list knows which sets to look at.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use base::sync::{Mutex, rank};

use super::semaphore::{self, Set};
use crate::process::Thread;

/// The list of one process.
pub struct UndoList {
    /// A number that no other list has had or will have.
    pub id: u64,
    sets: Mutex<Vec<Weak<Set>>>,
}

/// The share that one thread has in a list.
pub struct UndoShare(Mutex<Option<Arc<UndoList>>>);

impl Default for UndoShare {
    fn default() -> UndoShare {
        UndoShare(Mutex::new(&rank::THREAD, None))
    }
}

impl UndoShare {
    /// The list, made if there is none.
    pub fn list(&self) -> Arc<UndoList> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let make = || UndoList {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            sets: Mutex::new(&rank::IPC_TABLE, Vec::new()),
        };
        self.0.lock().get_or_insert_with(|| Arc::new(make())).clone()
    }

    /// The list, if there is one.
    pub fn present(&self) -> Option<Arc<UndoList>> {
        self.0.lock().clone()
    }

    /// A share in the same list.
    pub fn share(&self) -> UndoShare {
        UndoShare(Mutex::new(&rank::THREAD, Some(self.list())))
    }
}

impl UndoList {
    /// Room to note one more set.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn note(&self, set: &Arc<Set>) -> Result<(), Errno> {
        let mut sets = self.sets.lock();
        if sets.iter().any(|known| core::ptr::eq(known.as_ptr(), Arc::as_ptr(set))) {
            return Ok(());
        }
        sets.retain(|known| known.strong_count() > 0);
        sets.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        sets.push(Arc::downgrade(set));
        Ok(())
    }
}

/// The thread gives up its share (it ends, or unshares); the last one settles the list.
pub fn leave(thread: &Thread) {
    let list = thread.undo.0.lock().take();
    if let Some(list) = list.and_then(Arc::into_inner) {
        let id = list.id;
        for set in list.sets.into_inner().iter().filter_map(Weak::upgrade) {
            semaphore::settle(&set, id, thread.process.pid);
        }
    }
}
