//! System V IPC and POSIX message queues. Those of System V are objects that are found by a key and named by a number, until somebody removes them.
//!
//! ```text
//! space            a namespace of all of them
//! table            numbers and keys of the objects of one kind      limits   what may exist
//! permission       who may use, change and remove one               waiter   who waits for one
//! mqueue           POSIX message queues, with names in a file system
//! shared_memory    segments       semaphore, undo  sets of semaphores       message  queues
//! ```
//!
//! Locks: a table before an object of it before a waiter. Those of segments are taken with an address
//! space locked, since areas come and go there. Nobody is woken and no memory of a program is touched
//! while one of them is held.

pub mod limits;
pub mod message;
pub mod mqueue;
pub mod permission;
pub mod semaphore;
pub mod shared_memory;
pub mod space;
pub mod table;
pub mod undo;
pub mod waiter;

/// Seconds since 1970.
pub fn now_s() -> i64 {
    (base::time::wall_ns() / 1_000_000_000).cast_signed()
}
