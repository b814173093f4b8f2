//! A model of caches, TLBs and their coherence: what the processor in an emulator does not have.
//!
//! It is fed with what virtual CPUs execute and access, and counts for each of them. It knows nothing
//! of QEMU: the crate `model-plugin` feeds it, the tool reads its reports, and tests drive it with
//! programs whose misses are known on paper. `docs/model.md` says what is modelled and what is not.
//!
//! ```text
//!   CPU 0: L1I L1D L2, TLBs      CPU 1: L1I L1D L2, TLBs      private: a mutex each, only of its CPU
//!              |   ^ inbox                  |   ^ inbox       "another CPU wrote this line"
//!              v   |                        v   |
//!           LLC: lines, each with an owner and sharers        shared: one mutex
//! ```

#![forbid(unsafe_code)]

mod cache;
mod counts;
mod cpu;
pub mod decode;
mod llc;
mod machine;
mod report;
mod sizes;
mod tlb;

pub use counts::Counts;
pub use cpu::{Access, Block};
pub use machine::{Machine, Mark};
pub use report::{FORMAT, HotSpot, Region, Report};
pub use sizes::{Sizes, WrongOption};
