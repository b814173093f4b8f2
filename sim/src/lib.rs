//! What would happen on other cores: a deterministic discrete-event simulator.
//!
//! A trace is replayed on more, fewer or other cores, under another layout, path or lock scheme. Paths,
//! servers and parking are decided by `policy`, by the very functions that the kernel calls.
//!
//! - [`Configuration`] says what is simulated, from JSON or TOML; [`Costs`] what it costs.
//! - A [`Source`] hands out the [`Work`] of each application core: [`Replay`] that of a trace, [`Rows`] that
//!   of the published giant-lock system, [`synthetic::Synthetic`] one that is made up.
//! - [`Engine`] runs it and answers an [`Outcome`]; [`explain`] runs it again without one bound at a time.
//! - [`published`] is the published simulator as a configuration of this one; [`closed`] predicts from
//!   figures of one and two cores alone; [`accuracy`] compares that with what was published.
//!
//! Times are ticks of the trace's clock. The same input gives the same output, bit by bit.

#![forbid(unsafe_code)]

pub mod accuracy;
mod agenda;
pub mod calibrate;
pub mod closed;
pub mod configuration;
mod costs;
pub mod engine;
mod error;
pub mod explain;
mod lock;
pub mod machine;
mod outcome;
pub mod published;
mod random;
pub mod replay;
mod server;
pub mod speed;
mod stream;
pub mod synthetic;
mod work;

pub use agenda::Agenda;
pub use configuration::Configuration;
pub use costs::Costs;
pub use engine::Engine;
pub use error::Error;
pub use machine::{Locking, Machine};
pub use outcome::{LockOutcome, Outcome, ServerOutcome, StreamOutcome};
pub use replay::{Profile, Replay, Rows};
pub use work::{Source, Work};
