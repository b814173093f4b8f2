//! Traces in the formats of other tools.

pub mod csv;
pub mod perfetto;
mod protobuf;
