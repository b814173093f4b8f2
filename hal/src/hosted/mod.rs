//! A machine made of the process that runs a test: 64 MiB of memory plays the RAM, threads play cores,
//! the host's clock is the cycle counter (1 cycle = 1 ns).
//!
//! Guarantees: two threads are never the same core at the same time, so per-core data needs no more
//! care than on bare metal; timers and interrupts end `wait_for_interrupt` as they do there. Leaves out
//! user mode, devices and the loading of page tables: entering user mode ends the process with a
//! message.

#[path = "../x86_64/cache.rs"]
mod cache;
mod context;
mod core_slot;
#[path = "../x86_64/entry.rs"]
mod entry;
// What it decides can be tested on every machine.
#[cfg(test)]
#[path = "../x86_64/red_zone.rs"]
mod red_zone;
#[path = "../x86_64/registers.rs"]
mod registers;
#[path = "../x86_64/stack.rs"]
mod stack;
#[path = "../x86_64/xsave.rs"]
mod xsave;

#[cfg(test)]
#[path = "../x86_64/acpi.rs"]
#[allow(dead_code, reason = "only its tests run here")]
mod acpi;
#[cfg(test)]
#[path = "../x86_64/clock.rs"]
mod clock;
#[cfg(test)]
#[path = "../x86_64/devices.rs"]
mod devices;
#[cfg(test)]
#[path = "../x86_64/ranges.rs"]
mod ranges;

use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::contract::{
    BootInfo, Contract, CpuCount, Entry, MAX_CPUS, MemoryRange, PAGE_SIZE, Pending, PhysAddr,
    PostTrampoline, Trap, VirtAddr,
};
pub use context::Context;

const RAM_SIZE: usize = 64 << 20;
/// The first MiB is the machine's own; its first frame is the kernel's root table.
const FREE_START: u64 = 1 << 20;

/// What only a hosted machine can be told.
pub mod control {
    /// Makes the calling thread core `cpu`, once no other thread is. Threads that do not choose get
    /// the lowest free number at their first question for it.
    pub fn become_cpu(cpu: usize) {
        super::core_slot::claim(Some(cpu));
    }

    /// From now on the log is kept in memory instead of going to stderr.
    pub fn capture_log() {
        let mut captured = super::captured();
        captured.get_or_insert_with(Vec::new);
    }

    /// What was captured; the log goes to stderr again.
    pub fn captured_log() -> Vec<u8> {
        super::captured().take().unwrap_or_default()
    }
}

static CAPTURED: Mutex<Option<Vec<u8>>> = Mutex::new(None);

fn captured() -> std::sync::MutexGuard<'static, Option<Vec<u8>>> {
    CAPTURED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process as a machine.
pub struct Machine;

fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// Address of the fake RAM, aligned to 2 MiB.
fn ram() -> *mut u8 {
    static RAM: OnceLock<usize> = OnceLock::new();
    let address = *RAM.get_or_init(|| {
        let layout = std::alloc::Layout::from_size_align(RAM_SIZE, 2 << 20);
        let Ok(layout) = layout else { stop("the RAM has no valid layout") };
        // SAFETY: the layout is not empty.
        let ram = unsafe { std::alloc::alloc_zeroed(layout) };
        if ram.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        ram.expose_provenance()
    });
    std::ptr::with_exposed_provenance_mut(address)
}

fn stop(message: &str) -> ! {
    eprintln!("hosted machine: {message}");
    std::process::abort()
}

impl Contract for Machine {
    type Context = Context;
    const NAME: &'static str = "x86_64";
    const TRAP_LOOP: &'static [u8] = &[];

    fn boot_info() -> &'static BootInfo {
        static INFO: OnceLock<BootInfo> = OnceLock::new();
        static FREE: [MemoryRange; 1] =
            [MemoryRange { start: PhysAddr(FREE_START), end: PhysAddr(RAM_SIZE as u64) }];
        INFO.get_or_init(|| BootInfo {
            free_memory: &FREE,
            memory_end: PhysAddr(RAM_SIZE as u64),
            initramfs: &[],
            command_line: "",
            cpu_count: MAX_CPUS,
            devices: &[],
            start_cycles: Self::cycles(),
        })
    }

    fn start_cores(entry: fn(usize) -> !) -> CpuCount {
        for cpu in 1..MAX_CPUS {
            std::thread::spawn(move || {
                core_slot::claim(Some(cpu));
                entry(cpu)
            });
        }
        MAX_CPUS
    }

    fn cpu_id() -> usize {
        core_slot::current()
    }

    fn cycles() -> u64 {
        nanoseconds(epoch().elapsed())
    }

    fn cycles_per_second() -> u64 {
        1_000_000_000
    }

    fn wall_clock_ns() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, nanoseconds)
    }

    fn set_timer(deadline_cycles: Option<u64>) {
        core_slot::set_timer(Self::cpu_id(), deadline_cycles);
    }

    fn wait_for_interrupt() {
        core_slot::wait(Self::cpu_id());
    }

    fn take_pending() -> Pending {
        core_slot::take(Self::cpu_id())
    }

    fn send_ipi(cpu: usize) {
        core_slot::interrupt(cpu);
    }

    fn enable_line(_line: u32, _cpu: usize) {}

    fn relax() {
        // With fewer host processors than threads a spinning thread must let others run.
        std::thread::yield_now();
    }

    fn prepare_write(line: *const u8) {
        cache::prepare_write(line);
    }

    fn phys_to_virt(address: PhysAddr) -> *mut u8 {
        let offset = usize::try_from(address.0).unwrap_or(usize::MAX);
        if offset >= RAM_SIZE {
            stop(&format!("physical address {address:#x} is beyond the end of RAM"));
        }
        ram().wrapping_add(offset)
    }

    fn map_device(base: PhysAddr, size: usize) -> *mut u8 {
        stop(&format!("there is no device at {base:#x} ({size} bytes)"))
    }

    fn map_stack(memory: PhysAddr) -> Option<*mut u8> {
        Some(Self::phys_to_virt(memory).wrapping_add(Self::STACK_SIZE))
    }

    unsafe fn prepare_stack(
        top: *mut u8,
        function: extern "C" fn(usize) -> !,
        argument: usize,
    ) -> u64 {
        // SAFETY: the caller's promise is the same.
        unsafe { stack::prepare(top, function, argument) }
    }

    unsafe fn switch_stack(save: *mut u64, stack: u64, _bounds: std::ops::Range<u64>) {
        // SAFETY: the caller's promise is the same.
        unsafe { stack::switch(save, stack) };
    }

    fn stack_bounds() -> std::ops::Range<u64> {
        0..0
    }

    const USER_END: u64 = 0x7fff_ffff_f000;
    const TABLE_LEVELS: u32 = 4;

    fn encode_entry(entry: Entry, leaf: bool) -> u64 {
        entry::encode(entry, leaf)
    }

    fn decode_entry(raw: u64) -> Option<Entry> {
        entry::decode(raw)
    }

    fn entry_frame(raw: u64) -> Option<PhysAddr> {
        entry::frame(raw)
    }

    fn used_page(raw: u64, write: bool) -> Option<PhysAddr> {
        entry::used_page(raw, write)
    }

    #[inline]
    fn shared_entry(raw: u64, copy_on_write: bool, mark: u8) -> Option<(u64, u64)> {
        entry::shared(raw, copy_on_write, mark)
    }

    unsafe fn prepare_root(root: PhysAddr) {
        debug_assert_eq!(root.0 % PAGE_SIZE as u64, 0);
    }

    fn kernel_root() -> PhysAddr {
        PhysAddr(0)
    }

    unsafe fn load_root(root: PhysAddr) {
        debug_assert_eq!(root.0 % PAGE_SIZE as u64, 0);
    }

    fn flush_page(_address: VirtAddr) {}

    unsafe fn copy_user(_to: *mut u8, _from: *const u8, _length: usize) -> bool {
        false
    }

    unsafe fn enter_user(_context: &mut Self::Context) -> Trap {
        stop("it has no user mode")
    }

    fn release_fpu(_context: &mut Self::Context) {}

    fn log_write(bytes: &[u8]) {
        match captured().as_mut() {
            Some(captured) => captured.extend_from_slice(bytes),
            // A log that cannot be written has nowhere to complain.
            None => drop(std::io::stderr().write_all(bytes)),
        }
    }

    fn random_u64() -> Option<u64> {
        use std::hash::{BuildHasher, Hasher, RandomState};
        Some(RandomState::new().build_hasher().finish())
    }

    fn power_off() -> ! {
        std::process::exit(0)
    }

    fn post_trampoline() -> Option<PostTrampoline> {
        None
    }

    fn backtrace(_each: &mut dyn FnMut(u64)) {}
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_different_cores() {
        let mine = Machine::cpu_id();
        assert_eq!(mine, Machine::cpu_id());
        let other = std::thread::spawn(Machine::cpu_id).join().expect("the thread ends");
        assert_ne!(mine, other);
    }

    #[test]
    fn the_timer_ends_the_wait_at_its_time() {
        let deadline = Machine::cycles() + 3_000_000;
        Machine::set_timer(Some(deadline));
        assert_eq!(Machine::take_pending(), Pending::default());
        Machine::wait_for_interrupt();
        assert!(Machine::cycles() >= deadline);
        assert_eq!(Machine::take_pending(), Pending { timer: true, ..Pending::default() });
        assert_eq!(Machine::take_pending(), Pending::default());
    }

    #[test]
    fn an_interrupt_ends_the_wait_of_another_core() {
        let (told, number) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn(move || {
            told.send(Machine::cpu_id()).expect("the receiver lives");
            Machine::wait_for_interrupt();
            Machine::take_pending()
        });
        Machine::send_ipi(number.recv().expect("the thread lives"));
        let pending = waiting.join().expect("the thread ends");
        assert_eq!(pending, Pending { ipi: true, ..Pending::default() });
    }

    #[test]
    fn ram_is_zero_and_writable() {
        let last = Machine::phys_to_virt(PhysAddr(RAM_SIZE as u64 - 1));
        // SAFETY: the last byte of RAM, which no other test uses.
        unsafe {
            assert_eq!(last.read(), 0);
            last.write(7);
            assert_eq!(last.read(), 7);
        }
    }
}
