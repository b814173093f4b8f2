//! Exit statuses of `ferry` that are not those of the program it runs.

/// A wrong option or argument (`EX_USAGE`).
pub const USAGE: u8 = 64;
/// Something that Ferry needs is not installed (`EX_UNAVAILABLE`).
pub const UNAVAILABLE: u8 = 69;
/// The kernel panicked, or the tool itself failed (`EX_SOFTWARE`).
pub const SOFTWARE: u8 = 70;
/// The program succeeded, and its trace is not complete (`EX_IOERR`).
pub const TRACE: u8 = 74;
/// A replay did not go the way that was recorded.
pub const ASTRAY: u8 = 75;
/// The time given by `--timeout` is over.
pub const TIMED_OUT: u8 = 124;
/// The program is there, but cannot be run.
pub const NOT_RUNNABLE: u8 = 126;
/// There is no such program.
pub const NOT_FOUND: u8 = 127;
/// Added to the number of the signal that killed the program.
pub const SIGNALLED: u8 = 128;

/// Something that Ferry needs is not installed; the text says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// Options that contradict each other.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The program cannot be run; carries the exit status (126 or 127).
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct NotStarted {
    /// The exit status.
    pub status: u8,
    /// What is wrong.
    pub message: String,
}

/// The exit status for an error.
pub fn of_error(error: &anyhow::Error) -> u8 {
    if error.downcast_ref::<Unavailable>().is_some() {
        UNAVAILABLE
    } else if error.downcast_ref::<Usage>().is_some() {
        USAGE
    } else if let Some(not_started) = error.downcast_ref::<NotStarted>() {
        not_started.status
    } else {
        SOFTWARE
    }
}
