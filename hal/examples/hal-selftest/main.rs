//! Tries the machine on the machine: built by `hal/build-selftest.sh`, started by QEMU. Prints one line
//! per check and `selftest: passed` at the end, then switches off.
//!
//! Words of the command line choose what else happens: `selftest.overflow` ends it by a stack overflow,
//! `selftest.idle` waits ten seconds, `selftest.starve` measures whether a spinning core keeps another
//! from its work.

#![cfg_attr(target_os = "none", no_std, no_main, feature(lang_items), allow(internal_features))]

#[cfg(target_os = "none")]
mod checks;
#[cfg(target_os = "none")]
mod runtime;
#[cfg(target_os = "none")]
mod space;

use hal::{Contract, Machine};

struct Log;

impl core::fmt::Write for Log {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        Machine::log_write(text.as_bytes());
        Ok(())
    }
}

/// Prints a line.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => {{
        use core::fmt::Write as _;
        // The log cannot fail.
        let _ = writeln!($crate::Log, $($argument)*);
    }};
}

hal::entry!(run);

fn run() -> ! {
    let info = Machine::boot_info();
    let hz = Machine::cycles_per_second();
    let boot_us = (Machine::cycles() - info.start_cycles) * 1_000_000 / hz;
    say!("selftest: {hz} cycles per second, {boot_us} us since start");
    say!("selftest: command line {:?}", info.command_line);
    for range in info.free_memory {
        say!("selftest: free {:#x} to {:#x}", range.start, range.end);
    }
    say!("selftest: initramfs {} bytes, {} cores", info.initramfs.len(), info.cpu_count);
    for device in info.devices {
        say!("selftest: {device:x?}");
    }
    say!("selftest: wall clock {} s", Machine::wall_clock_ns() / 1_000_000_000);
    #[cfg(target_os = "none")]
    checks::all();
    say!("selftest: passed");
    Machine::power_off()
}
