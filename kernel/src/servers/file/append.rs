//! Whole appends: what one call appends to a regular file stays together, however many pieces it is moved in.
//!
//! A write in pieces gives the core back between them, and stops where a page of the program is missing. So whoever
//! appends holds the end of the file until the call is over; others who append to the same file wait for it. Writes
//! at a position do not.

use abi::Errno;
use abi::fs::OpenFlags;
use alloc::vec::Vec;
use base::sync::{Mutex, rank};
use base::wait::WaitQueue;
use fs::metadata::InodeId;
use fs::{NodeKind, OpenFile};

use crate::process::Thread;

/// The files to whose end somebody writes just now.
static HELD: Mutex<Vec<InodeId>> = Mutex::new(&rank::FILE_ENDS, Vec::new());
/// Woken when one is given back.
static RELEASED: WaitQueue = WaitQueue::new();

/// The end of a file, held until dropped.
pub struct End {
    id: InodeId,
}

impl Drop for End {
    fn drop(&mut self) {
        let mut held = HELD.lock();
        if let Some(index) = held.iter().position(|id| *id == self.id) {
            held.swap_remove(index);
        }
        drop(held);
        if RELEASED.has_waiters() {
            RELEASED.wake_all();
        }
    }
}

/// Whether a write to the file with these flags goes to an end that has to be held.
fn is_held_for(file: &OpenFile, appends: bool) -> bool {
    appends && file.inode().kind() == NodeKind::Regular && !file.file().is_generated()
}

fn take(id: InodeId) -> Option<Result<End, Errno>> {
    let mut held = HELD.lock();
    if held.contains(&id) {
        return None;
    }
    if held.try_reserve(1).is_err() {
        return Some(Err(Errno::ENOMEM));
    }
    held.push(id);
    Some(Ok(End { id }))
}

/// Takes the end of the file, if the write needs it. `Err` when somebody else has it: then the write has to wait.
pub fn try_hold(file: &OpenFile) -> Result<Option<End>, Errno> {
    if !is_held_for(file, file.flags().contains(OpenFlags::APPEND)) {
        return Ok(None);
    }
    take(file.inode().id()).unwrap_or(Err(Errno::EAGAIN)).map(Some)
}

/// Waits for the end of the file, if the write needs it.
///
/// # Errors
/// `EINTR` when the caller is killed meanwhile, `ENOMEM`.
pub async fn hold(thread: &Thread, file: &OpenFile, appends: bool) -> Result<Option<End>, Errno> {
    if !is_held_for(file, appends) {
        return Ok(None);
    }
    let id = file.inode().id();
    if let Some(end) = take(id) {
        return end.map(Some);
    }
    let wait = alloc::boxed::Box::pin(thread.killable(RELEASED.wait_until(|| take(id))));
    wait.await.map_err(|_| Errno::EINTR)?.map(Some)
}
