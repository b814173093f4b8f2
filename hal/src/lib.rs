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
    Pending, PhysAddr, Trap, UserContext, VirtAddr,
};
pub use select::*;
