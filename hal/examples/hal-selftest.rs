//! Tries the machine on the machine: `cargo build -p hal --example hal-selftest` with the kernel's flags,
//! started by QEMU. Prints one line per check and `selftest: passed` at the end, then switches off.

#![cfg_attr(target_os = "none", no_std, no_main, feature(lang_items), allow(internal_features))]

use hal::{Contract, Machine};

#[cfg(target_os = "none")]
mod bare {
    use core::alloc::{GlobalAlloc, Layout};
    use core::sync::atomic::{AtomicUsize, Ordering};

    use hal::{Contract, Machine};

    /// Gives memory away and never takes it back.
    struct Bump;

    const SIZE: usize = 1 << 20;

    #[repr(align(4096))]
    struct Memory(core::cell::UnsafeCell<[u8; SIZE]>);

    // SAFETY: every byte is given away once.
    unsafe impl Sync for Memory {}

    static MEMORY: Memory = Memory(core::cell::UnsafeCell::new([0; SIZE]));
    static USED: AtomicUsize = AtomicUsize::new(0);

    // SAFETY: ranges are aligned, inside the memory, and never overlap.
    unsafe impl GlobalAlloc for Bump {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let used = USED.fetch_add(layout.size() + layout.align(), Ordering::Relaxed);
            let start = used.next_multiple_of(layout.align());
            if start + layout.size() > SIZE {
                return core::ptr::null_mut();
            }
            MEMORY.0.get().cast::<u8>().wrapping_add(start)
        }

        unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
    }

    #[global_allocator]
    static ALLOCATOR: Bump = Bump;

    /// Nothing here catches a panic.
    #[lang = "eh_personality"]
    fn personality() {}

    #[unsafe(no_mangle)]
    extern "C" fn _Unwind_Resume() -> ! {
        Machine::power_off()
    }

    #[panic_handler]
    fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
        crate::say!("selftest: FAILED: {info}");
        Machine::backtrace(&mut |address| crate::say!("  at {address:#x}"));
        Machine::power_off()
    }
}

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
    say!("selftest: command line {:?}", info.command_line);
    for range in info.free_memory {
        say!("selftest: free {:#x} to {:#x}", range.start, range.end);
    }
    say!("selftest: initramfs {} bytes, {} cores", info.initramfs.len(), info.cpu_count);
    for device in info.devices {
        say!("selftest: {device:x?}");
    }
    let hz = Machine::cycles_per_second();
    let boot_us = (Machine::cycles() - info.start_cycles) * 1_000_000 / hz;
    say!("selftest: {hz} cycles per second, {boot_us} us since start");
    say!("selftest: wall clock {} s", Machine::wall_clock_ns() / 1_000_000_000);
    say!("selftest: passed");
    Machine::power_off()
}
