//! The Ferry kernel: the boot sequence, the loop of every core, the two call paths, processes,
//! signals, address spaces, and the servers that carry calls out.
//!
//! A newcomer starts at `boot`, goes on to `core_loop` and `run_user`, and follows a call through
//! `request`, `dispatch` and one module of `servers`.
//!
//! There is no unsafe code here: what needs it lies below, in `hal` and `base`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod boot;
pub mod calibration;
pub mod call;
pub mod choice;
pub mod console;
pub mod core_loop;
pub mod counters;
pub mod devices;
pub mod dispatch;
pub mod futex;
pub mod init;
pub mod injection;
pub mod ipc;
pub mod locks;
pub mod machine;
pub mod memory;
pub mod options;
pub mod polls;
pub mod posted;
pub mod process;
pub mod request;
pub mod root;
pub mod run_user;
pub mod servers;
pub mod signal;
pub mod socket;
pub mod stages;
pub mod time;
pub mod trace;
