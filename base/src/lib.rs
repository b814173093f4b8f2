//! The safe floor: everything that the rest of Ferry builds on without saying `unsafe`.
//!
//! | module | gives |
//! |---|---|
//! | `cpu` | core numbers and data per core |
//! | `sync` | ranked spin locks, `Once` |
//! | `memory` | owned frames of RAM, page tables, contiguous memory |
//! | `heap` | the global allocator of the kernel |
//! | `task` | tasks, one executor per core, doorbells, parking |
//! | `wait` | queues of waiting tasks |
//! | `ring`, `answer` | bounded queue between cores, and the place for one answer |
//! | `posted` | the entries that a thread shares with the kernel, and both sides of them |
//! | `syspage` | the pages that a thread shares with the kernel, as frames |
//! | `time` | clocks, timers, deadlines |
//! | `io` | how bytes move between handlers, files and users |
//! | `device` | what drivers are built on |
//! | `quota` | what each user holds of what all share |
//! | `random` | random bytes |
//! | `panic`, `log` | containment of panics, messages |
//! | `user` | user mode and the address space loaded on each core |
//!
//! `unsafe` is allowed here, each use with the reason why it holds; what is offered is sound whatever
//! safe code does with it. Under `--cfg loom` only the lock-free algorithms are compiled, with their
//! models (`models`).

#![cfg_attr(target_os = "none", no_std, feature(alloc_error_handler))]

extern crate alloc;

mod presence;
mod primitives;

pub mod answer;
pub mod bell;
pub mod posted;
#[cfg(not(loom))]
pub mod record_ring;
pub mod ring;
pub mod sync;
pub mod task;
pub mod wait;

#[cfg(not(loom))]
pub mod cpu;
#[cfg(not(loom))]
pub mod device;
#[cfg(not(loom))]
pub mod heap;
#[cfg(not(loom))]
pub mod io;
#[cfg(not(loom))]
pub mod logging;
#[cfg(not(loom))]
pub mod memory;
#[cfg(not(loom))]
pub mod panic;
#[cfg(not(loom))]
pub mod quota;
#[cfg(not(loom))]
pub mod random;
#[cfg(not(loom))]
pub mod syspage;
#[cfg(not(loom))]
pub mod time;
#[cfg(not(loom))]
pub mod user;

/// The first thing that the kernel does: from here on there are messages and memory.
#[cfg(not(loom))]
pub fn start() {
    logging::start(log::LevelFilter::Info);
    start_core();
}

/// The first thing that every other core does: fetches its first frames, so that no call has
/// to, and what it needs when there is no memory.
#[cfg(not(loom))]
pub fn start_core() {
    if memory::Frame::uninitialised().is_err() {
        log::error!("there is no memory at all");
    }
    panic::prepare_core();
}

#[cfg(all(loom, test))]
mod models;
