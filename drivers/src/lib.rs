//! Drivers: virtio devices. They know `base` and nothing of file systems, sockets or processes.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod blocks;
pub mod console;
pub mod files;
mod port;
