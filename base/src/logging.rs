//! Messages of the kernel, through crate `log` to the machine's log device.
//!
//! One line per message: seconds since boot, core, level, target, text. The lock has the highest rank of
//! all, so anything may log. A core that panics while it logs writes without the lock rather than wait
//! for itself.

use core::fmt::{self, Write};

use hal::{Contract, Machine};
use log::{LevelFilter, Log, Metadata, Record};

use crate::sync::{Mutex, rank};
use crate::{cpu, time};

/// Turns of waiting for the lock before a line is written without it.
const PATIENCE: u32 = 1_000_000;

static LOCK: Mutex<()> = Mutex::new(&rank::LOG, ());

struct MachineLog;

struct Output;

impl Write for Output {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        Machine::log_write(text.as_bytes());
        Ok(())
    }
}

impl Log for MachineLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            line(format_args!("{:5} {}: {}", record.level(), record.target(), record.args()));
        }
    }

    fn flush(&self) {}
}

/// Writes one line to the log device, whatever the level.
pub fn line(text: fmt::Arguments<'_>) {
    let mut guard = LOCK.try_lock();
    for _ in 0..PATIENCE {
        if guard.is_some() {
            break;
        }
        cpu::relax();
        guard = LOCK.try_lock();
    }
    let now_us = time::now_ns() / 1000;
    let core = Machine::cpu_id();
    // The log device takes everything; there is nobody to tell otherwise.
    let _ = writeln!(Output, "[{:5}.{:06} {core}] {text}", now_us / 1_000_000, now_us % 1_000_000);
    drop(guard);
}

/// Starts to pass on messages up to `level`. May be called again to change the level.
pub fn start(level: LevelFilter) {
    static LOG: MachineLog = MachineLog;
    // Fails only when a logger was set before: this one, or that of a host program.
    let _ = log::set_logger(&LOG);
    log::set_max_level(level);
}

/// The level that a word such as `info` means; `None` for other words.
pub fn level_from(word: &str) -> Option<LevelFilter> {
    word.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_levels() {
        assert_eq!(level_from("debug"), Some(LevelFilter::Debug));
        assert_eq!(level_from("OFF"), Some(LevelFilter::Off));
        assert_eq!(level_from("loud"), None);
    }
}
