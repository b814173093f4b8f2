//! The machine. `contract.rs` is the whole of it on one page; one folder per machine implements it;
//! `select.rs` exports the one that this build is for as `Machine`.
//!
//! This crate may say `unsafe`, and what it offers is mostly unsafe to call. Only `base` calls it, and
//! turns it into safe interfaces.

#![cfg_attr(target_os = "none", no_std)]

pub mod contract;
mod select;

pub use contract::{
    BootInfo, Contract, CpuCount, Entry, MAX_CPUS, MemoryRange, MmioDevice, PAGE_SIZE, PageRights,
    Pending, PhysAddr, PostTrampoline, TrampolineOffsets, Trap, UserContext, VirtAddr,
};
pub use select::*;

/// Names the function that the machine calls, on core 0, once it is ready:
/// `hal::entry!(path::to::main)`, a `fn() -> !`. Once per program.
#[cfg(target_os = "none")]
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        const _: () = {
            #[unsafe(no_mangle)]
            fn ferry_kernel_entry() -> ! {
                let main: fn() -> ! = $main;
                main()
            }
        };
    };
}

/// Names the program's entry, a `fn() -> !`. On the host the program has nothing to run on, and says so.
#[cfg(not(target_os = "none"))]
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        fn main() {
            let _: fn() -> ! = $main;
            eprintln!(
                "this program is a kernel: build it for a target without an operating system"
            );
            std::process::exit(64);
        }
    };
}
