//! Tasks that usually end at their first poll, in memory that is used again.
//!
//! A server gets requests one after the other; most are answered at once. Such a request costs no
//! allocation: its future is made in the memory of the one before it and polled right there. Only
//! when it must wait does it stay behind, as an ordinary task of this core.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::future::Future;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::executor::{count_end, count_start, queue};
use super::storage::{Header, Task};
use crate::cpu::CpuId;
use crate::memory::OutOfMemory;
use crate::sync::{Mutex, rank};

/// Memory that pending tasks left when they ended. Lives for ever, because tasks point to it.
pub(super) struct Shelf<F: Future<Output = ()> + Send + 'static> {
    free: Mutex<Vec<Slot<F>>>,
    /// Tasks that are neither here nor in `TaskPool::spare`.
    pending: AtomicUsize,
}

struct Slot<F: Future<Output = ()> + Send + 'static>(NonNull<Task<F>>);

// SAFETY: a slot is memory without a future in it, owned by whoever has the slot.
unsafe impl<F: Future<Output = ()> + Send + 'static> Send for Slot<F> {}

/// Most free slots that are kept; more are given back to the heap.
const MOST_KEPT: usize = 64;

impl<F: Future<Output = ()> + Send + 'static> Shelf<F> {
    /// Takes the memory of a task that has ended and that nobody knows any more.
    pub(super) fn take_back(&self, task: NonNull<Task<F>>) {
        self.pending.fetch_sub(1, Ordering::Relaxed);
        let mut free = self.free.lock();
        if free.len() < free.capacity() {
            free.push(Slot(task));
            return;
        }
        drop(free);
        // SAFETY: by the caller's promise.
        unsafe { Task::free(task) };
    }
}

/// Recycled memory for the tasks of one core.
pub struct TaskPool<F: Future<Output = ()> + Send + 'static> {
    core: CpuId,
    capacity: usize,
    /// Memory that is ready for the next task.
    spare: Option<Slot<F>>,
    shelf: &'static Shelf<F>,
}

impl<F: Future<Output = ()> + Send + 'static> TaskPool<F> {
    /// A pool of this core for at most `capacity` pending tasks. Part of it lives for ever: make one
    /// per server, at boot.
    pub fn new(capacity: usize) -> TaskPool<F> {
        let shelf = Box::leak(Box::new(Shelf {
            free: Mutex::new(&rank::EXECUTOR, Vec::with_capacity(capacity.min(MOST_KEPT))),
            pending: AtomicUsize::new(0),
        }));
        TaskPool { core: CpuId::current(), capacity, spare: None, shelf }
    }

    /// Whether `submit` has room now. Ask before taking a request from its queue.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        if self.spare.is_some() {
            return true;
        }
        if self.shelf.pending.load(Ordering::Relaxed) >= self.capacity {
            return false;
        }
        let slot = self.shelf.free.lock().pop();
        self.spare = match slot {
            Some(Slot(task)) => {
                // SAFETY: tasks on the shelf have ended and nobody knows them.
                unsafe { Task::recycle(task) };
                Some(Slot(task))
            }
            None => Task::allocate(self.core, Some(self.shelf)).ok().map(Slot),
        };
        self.spare.is_some()
    }

    /// Polls the future that `make` makes right here, once. True when it has ended; otherwise it goes
    /// on as a task of this core. Fails, without calling `make`, when there is no room.
    ///
    /// Must be called on the core that made the pool.
    pub fn submit(&mut self, make: impl FnOnce() -> F) -> Result<bool, OutOfMemory> {
        if !self.has_room() || self.core != CpuId::current() {
            return Err(OutOfMemory);
        }
        let Some(Slot(task)) = self.spare.take() else { return Err(OutOfMemory) };
        // SAFETY: spare memory is ours and has no future. A panic in `make` leaks the memory, no more.
        let header = unsafe { Task::fill(task, make) };
        count_start();
        // SAFETY: the task is on its core, idle and known to nobody else, so we are its only poller;
        // what follows is what the executor does, except that the memory comes back to us.
        unsafe {
            header.as_ref().state.begin_unknown();
            if Header::poll(header) {
                header.as_ref().state.finish();
                count_end();
                if Header::is_last(header) {
                    Task::recycle(task);
                    self.spare = Some(Slot(task));
                } else {
                    self.shelf.pending.fetch_add(1, Ordering::Relaxed);
                    Header::release(header);
                }
                return Ok(true);
            }
            self.shelf.pending.fetch_add(1, Ordering::Relaxed);
            if header.as_ref().state.pause() {
                queue(self.core, header);
            }
        }
        Ok(false)
    }

    /// Tasks that wait, and ended ones that somebody still has a waker of.
    pub fn pending(&self) -> usize {
        self.shelf.pending.load(Ordering::Relaxed)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Drop for TaskPool<F> {
    fn drop(&mut self) {
        if let Some(Slot(task)) = self.spare.take() {
            // SAFETY: spare memory is ours and has no future.
            unsafe { Task::free(task) };
        }
    }
}
