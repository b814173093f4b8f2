//! The contract between Ferry, user space and host tools.
//!
//! Everything here is plain data: numbers, flags and `repr(C)` structures of the Linux ABI, and the
//! frames of the console channel. No behaviour beyond encoding, no dependency on any other part of
//! Ferry, no unsafe code.

#![no_std]
#![forbid(unsafe_code)]

pub mod arch;
pub mod capability;
pub mod console;
pub mod epoll;
pub mod errno;
pub mod fs;
pub mod futex;
pub mod ipc;
pub mod memory;
pub mod mqueue;
pub mod process;
pub mod ptrace;
pub mod signal;
pub mod socket;
pub mod syspage;
pub mod terminal;
pub mod time;
pub mod trace;

pub use errno::Errno;
