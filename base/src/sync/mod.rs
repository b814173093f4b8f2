//! Locks that know their rank, and those of the lock schemes (`scheme`).
//!
//! The kernel runs with interrupts off, so a lock is a plain spin lock: first come, first served
//! (`ticket`). Every lock names its class, and classes have ranks (`rank`): a core that holds a lock
//! takes further ones only in rising order. Builds with debug assertions check that (`order`).
//! Guards are not `Send`, so a future that keeps one across an `await` does not compile where it must
//! be `Send`. There is no poisoning: a panic releases the lock, and what it guards must be left valid
//! at every step that can panic.

mod clh;
#[cfg(not(loom))]
mod kernel_lock;
mod mcs;
mod mutex;
mod once;
#[cfg(not(loom))]
mod order;
pub mod rank;
#[cfg(not(loom))]
mod rwlock;
mod scheme;
mod ticket;

pub use clh::ClhLock;
#[cfg(not(loom))]
pub use kernel_lock::{Hold, KernelLock};
pub use mcs::McsLock;
pub use mutex::{Mutex, MutexGuard};
pub use once::Once;
#[cfg(not(loom))]
pub(crate) use order::assert_none_held;
pub use rank::LockClass;
#[cfg(not(loom))]
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub use scheme::SpinLock;
pub use ticket::TicketLock;

/// Under loom nobody looks at ranks: the models use few locks and look for other mistakes.
#[cfg(loom)]
mod order {
    use super::LockClass;

    pub fn acquire(_class: &'static LockClass, _nested: bool) {}
    pub fn acquired_without_waiting(_class: &'static LockClass) {}
    pub fn release(_class: &'static LockClass) {}
}
