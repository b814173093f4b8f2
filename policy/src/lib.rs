//! Pure decisions: which path, which server, which core, when to park.
//!
//! Every function here is a function of its arguments alone. The kernel and the simulator call the
//! same ones, so a decision can be tested, replayed and compared without a machine.

#![no_std]
#![forbid(unsafe_code)]

pub mod choice;
pub mod park;
pub mod patch;
pub mod place;
pub mod route;
pub mod slice;
pub mod table;
