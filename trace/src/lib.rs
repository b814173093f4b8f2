//! The host's side of traces: what is done with a file of records once there is one.
//!
//! - [`Reader`] reads a file block by block, in bounded memory, past damage; [`Merged`] the rings of all
//!   cores in order of time. [`Writer`] writes one.
//! - [`check`] says whether a trace is complete and consistent; [`summary`] what calls, locks and cores
//!   took; [`diff`] what is different in another trace.
//! - [`export`] makes files for Perfetto and for spreadsheets; [`thesis`] reads and writes the rows of the
//!   published giant-lock system.
//!
//! Names of calls are handed in: this crate knows the format (`abi::trace`) and nothing of Ferry's calls.

#![forbid(unsafe_code)]

pub mod check;
pub mod diff;
pub mod export;
mod histogram;
mod merged;
mod problem;
mod reader;
pub mod summary;
pub mod text;
pub mod thesis;
mod writer;

#[cfg(test)]
mod testing;

pub use histogram::Histogram;
pub use merged::Merged;
pub use problem::{Error, Problem};
pub use reader::{Entry, Reader};
pub use writer::Writer;

/// What a call is called.
pub type Names<'a> = &'a dyn Fn(u16) -> String;

/// Ticks of a clock as nanoseconds.
pub fn nanoseconds(ticks: u64, ticks_per_second: u64) -> u64 {
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(ticks_per_second.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}
