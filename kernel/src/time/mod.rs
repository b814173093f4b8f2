//! Clocks and sleeping.
//!
//! There are two clocks of the machine, monotonic and wall, and processor time of threads and
//! processes; every clock of the Linux ABI is one of them. A sleep until a time of the wall clock
//! looks again when that clock is set.

mod accounting;
mod clock;
mod sleep;
pub mod timer;
pub mod timerfd;

pub use accounting::ProcessorTime;
pub use clock::{Clock, publish, set_wall};
pub use sleep::{SleepEnd, sleep_span, sleep_until};
