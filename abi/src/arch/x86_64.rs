//! Linux on x86-64.

/// `AT_PLATFORM` and `uname` machine.
pub const MACHINE: &str = "x86_64";

pub mod signal;

/// `e_machine` of ELF files.
pub const ELF_MACHINE: u16 = 62;
