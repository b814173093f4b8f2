//! The code that the kernel maps into every program so that reading the time needs no system call.
//!
//! A freestanding program of its own: `kernel/build.rs` compiles and links it into a small shared
//! object (`vdso.ld`, `vdso.version`), and the kernel maps that object with its data page directly
//! below it. It runs in user mode with the program's rights, calls nothing, has no data of its own
//! and no relocations.
//!
//! The data page (`Data`) is written by the kernel under a sequence counter: odd while it changes. A
//! reader takes a copy and tries again when the counter was odd or moved.
//!
//! Clocks that are not here, null pointers included, go to the kernel, which knows every case.

#![no_std]
#![deny(unsafe_op_in_unsafe_fn, missing_docs)]

use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The data page; the kernel's `memory/vdso.rs` writes the same layout.
#[repr(C)]
struct Data {
    /// Odd while the rest changes.
    sequence: AtomicU32,
    /// Bits that the product of cycles and `multiplier` is shifted right by; 0 means that there is
    /// no clock here and every call goes to the kernel.
    shift: AtomicU32,
    /// Nanoseconds per cycle, times two to the power of `shift`.
    multiplier: AtomicU64,
    /// Cycle counter at `base_ns`.
    base_cycles: AtomicU64,
    /// Nanoseconds since boot at `base_cycles`.
    base_ns: AtomicU64,
    /// Nanoseconds from the boot clock to the wall clock.
    wall_offset_ns: AtomicU64,
    /// Not 0: the processor tells the number of the core to user mode.
    has_core_number: AtomicU32,
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

#[repr(C)]
struct Timeval {
    seconds: i64,
    microseconds: i64,
}

#[repr(C)]
struct Timezone {
    minutes_west: i32,
    summer_time: i32,
}

const CALL_GETTIMEOFDAY: usize = 96;
const CALL_TIME: usize = 201;
const CALL_CLOCK_GETTIME: usize = 228;
const CALL_GETCPU: usize = 309;

const SECOND_NS: u64 = 1_000_000_000;

#[inline(always)]
fn data() -> &'static Data {
    let address: *const Data;
    // SAFETY: only computes an address: the page before the headers of this object.
    unsafe {
        asm!("lea {}, [rip + __ehdr_start - 4096]", out(reg) address,
            options(pure, nomem, nostack, preserves_flags));
    }
    // SAFETY: the kernel maps the data page there, readable, as long as this code is mapped; it is
    // only accessed atomically.
    unsafe { &*address }
}

#[inline(always)]
fn cycles() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads the cycle counter, which user mode may; the fence keeps it in program order.
    unsafe {
        asm!("lfence", "rdtsc", out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Nanoseconds since boot, and from there to the wall clock; `None` without a clock.
#[inline(always)]
fn read_clock() -> Option<(u64, u64)> {
    let data = data();
    loop {
        let before = data.sequence.load(Ordering::Acquire);
        let shift = data.shift.load(Ordering::Relaxed);
        if shift == 0 {
            return None;
        }
        let multiplier = data.multiplier.load(Ordering::Relaxed);
        let base_cycles = data.base_cycles.load(Ordering::Relaxed);
        let base_ns = data.base_ns.load(Ordering::Relaxed);
        let wall_offset_ns = data.wall_offset_ns.load(Ordering::Relaxed);
        let elapsed = cycles().saturating_sub(base_cycles);
        core::sync::atomic::fence(Ordering::Acquire);
        if before & 1 != 0 || data.sequence.load(Ordering::Relaxed) != before {
            continue;
        }
        let product = u128::from(elapsed) * u128::from(multiplier);
        let elapsed_ns = (product >> (shift & 127)) as u64;
        return Some((base_ns.wrapping_add(elapsed_ns), wall_offset_ns));
    }
}

/// Two-argument system call.
#[inline(always)]
fn call(number: usize, first: usize, second: usize, third: usize) -> i64 {
    let result: i64;
    // SAFETY: a system call with the caller's own arguments, which the kernel checks.
    unsafe {
        asm!("syscall", inlateout("rax") number as i64 => result, in("rdi") first, in("rsi") second,
            in("rdx") third, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// `clock_gettime`.
#[unsafe(no_mangle)]
extern "C" fn __vdso_clock_gettime(clock: i32, into: *mut Timespec) -> i32 {
    // REALTIME, MONOTONIC, MONOTONIC_RAW, REALTIME_COARSE, MONOTONIC_COARSE, BOOTTIME, TAI
    const WALL: u32 = 1 << 0 | 1 << 5 | 1 << 11;
    const BOOT: u32 = 1 << 1 | 1 << 4 | 1 << 6 | 1 << 7;
    let bit = if (0..32).contains(&clock) { 1_u32 << clock } else { 0 };
    if bit & (WALL | BOOT) != 0 {
        if let Some((boot_ns, wall_offset_ns)) = read_clock() {
            let offset = if bit & WALL != 0 { wall_offset_ns } else { 0 };
            let now = boot_ns.wrapping_add(offset);
            let value = Timespec {
                seconds: (now / SECOND_NS) as i64,
                nanoseconds: (now % SECOND_NS) as i64,
            };
            // SAFETY: the caller's pointer, as the C function demands; a bad one is the program's fault.
            unsafe { into.write(value) };
            return 0;
        }
    }
    call(CALL_CLOCK_GETTIME, clock as usize, into as usize, 0) as i32
}

/// `gettimeofday`.
#[unsafe(no_mangle)]
extern "C" fn __vdso_gettimeofday(into: *mut Timeval, zone: *mut Timezone) -> i32 {
    let Some((boot_ns, wall_offset_ns)) = read_clock() else {
        return call(CALL_GETTIMEOFDAY, into as usize, zone as usize, 0) as i32;
    };
    let now = boot_ns.wrapping_add(wall_offset_ns);
    if !into.is_null() {
        let value = Timeval {
            seconds: (now / SECOND_NS) as i64,
            microseconds: (now % SECOND_NS / 1000) as i64,
        };
        // SAFETY: as for `__vdso_clock_gettime`.
        unsafe { into.write(value) };
    }
    if !zone.is_null() {
        // SAFETY: as for `__vdso_clock_gettime`.
        unsafe { zone.write(Timezone { minutes_west: 0, summer_time: 0 }) };
    }
    0
}

/// `time`.
#[unsafe(no_mangle)]
extern "C" fn __vdso_time(into: *mut i64) -> i64 {
    let Some((boot_ns, wall_offset_ns)) = read_clock() else {
        return call(CALL_TIME, into as usize, 0, 0);
    };
    let seconds = (boot_ns.wrapping_add(wall_offset_ns) / SECOND_NS) as i64;
    if !into.is_null() {
        // SAFETY: as for `__vdso_clock_gettime`.
        unsafe { into.write(seconds) };
    }
    seconds
}

/// `getcpu`.
#[unsafe(no_mangle)]
extern "C" fn __vdso_getcpu(core: *mut u32, node: *mut u32, unused: *mut u8) -> i32 {
    if data().has_core_number.load(Ordering::Relaxed) == 0 {
        return call(CALL_GETCPU, core as usize, node as usize, unused as usize) as i32;
    }
    let number: u32;
    // SAFETY: reads the cycle counter and the core's number, which user mode may.
    unsafe {
        asm!("rdtscp", out("eax") _, out("edx") _, out("ecx") number,
            options(nomem, nostack, preserves_flags));
    }
    if !core.is_null() {
        // SAFETY: as for `__vdso_clock_gettime`.
        unsafe { core.write(number & 0xfff) };
    }
    if !node.is_null() {
        // SAFETY: as for `__vdso_clock_gettime`.
        unsafe { node.write(number >> 12) };
    }
    0
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
