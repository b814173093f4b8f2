//! Sockets: what every kind of them offers, and those of the local domain.
//!
//! `socket` has the trait that a handler works with, `option` what all sockets remember, `rights` the
//! open files that travel in messages, and `unix` the local domain. Nothing here knows of files,
//! paths or processes: who sends comes in as `Credentials`, the inode of a name as a key, an open file
//! as a `Passed`.
//!
//! Nothing here waits: what would have to answers `EAGAIN` and, where the wait is not for the socket
//! itself, says in which queue to wait.
//!
//! Locks, in the order in which they are taken: the names, the open files in messages, one socket,
//! what is to be closed. No two sockets are locked at a time. Nobody is woken, no message and no open
//! file is dropped while one of them is held.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod option;
pub mod rights;
pub mod socket;
pub mod unix;

pub use abi::Errno;
pub use socket::Socket;
