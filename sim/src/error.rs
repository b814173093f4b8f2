//! What can go wrong before or while something is simulated.

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] trace::Error),
    /// The text of a configuration is neither of the formats, or has unknown keys or wrong types.
    #[error("the configuration is wrong: {0}")]
    Syntax(String),
    /// A value of a configuration is impossible; the text says what would be possible.
    #[error("{key} is {value}: {what}")]
    Value {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What would be possible.
        what: String,
    },
    /// There is nothing to simulate.
    #[error("the trace has no calls of core {core}: it cannot be replayed on other cores")]
    Empty {
        /// A core of the trace.
        core: u8,
    },
}
