//! x86-64 without an operating system below: QEMU's microvm and q35, Firecracker, Cloud Hypervisor, or
//! anything else that starts a PVH image. 1 to 8 cores.
//!
//! `boot.rs` → `start.rs` is the way to the kernel's entry; `trap.rs` → `fault.rs` the way into user
//! mode and back; `context.rs` says who owns a thread's floating-point state. Leaves out: PCI, NUMA,
//! power saving beyond `hlt`, 32-bit programs.

mod acpi;
mod apic;
mod boot;
mod cache;
mod clock;
mod context;
mod core_area;
mod cpu;
mod devices;
mod entry;
mod fault;
mod lock;
mod paging;
mod power;
mod ranges;
mod red_zone;
mod registers;
mod segments;
mod serial;
mod smp;
mod stack;
mod start;
mod start_info;
mod time;
mod trampoline;
mod trap;
mod user_copy;
mod xsave;

use core::arch::asm;
use core::ops::Range;

use crate::contract::{
    BootInfo, Contract, CpuCount, Entry, Pending, PhysAddr, PostTrampoline, Trap, VirtAddr,
};
pub use context::Context;
use core_area::{CoreArea, PENDING_DEVICE, PENDING_IPI, PENDING_TIMER};

/// The x86-64 machine.
pub struct Machine;

impl Contract for Machine {
    type Context = Context;
    const NAME: &'static str = "x86_64";
    /// `syscall`, and a jump back to it.
    const TRAP_LOOP: &'static [u8] = &[0x0f, 0x05, 0xeb, 0xfc];

    fn boot_info() -> &'static BootInfo {
        start::boot_info()
    }

    fn start_cores(entry: fn(usize) -> !) -> CpuCount {
        smp::start_cores(start::plan(), entry)
    }

    #[inline]
    fn cpu_id() -> usize {
        core_area::number()
    }

    #[inline]
    fn cycles() -> u64 {
        cpu::cycles()
    }

    fn cycles_per_second() -> u64 {
        time::cycles_per_second()
    }

    fn wall_clock_ns() -> u64 {
        time::wall_clock_ns()
    }

    fn set_timer(deadline_cycles: Option<u64>) {
        apic::set_timer(CoreArea::here(), deadline_cycles);
    }

    fn wait_for_interrupt() {
        if CoreArea::here().pending.get() == 0 {
            // SAFETY: handlers in the kernel only note what came; `sti` takes effect after the next
            // instruction, so nothing comes between it and `hlt`.
            unsafe { asm!("sti", "hlt", "cli", options(nostack)) };
        }
    }

    #[inline]
    fn take_pending() -> Pending {
        let bits = CoreArea::here().pending.replace(0);
        Pending {
            timer: bits & PENDING_TIMER != 0,
            ipi: bits & PENDING_IPI != 0,
            device: bits & PENDING_DEVICE != 0,
        }
    }

    fn send_ipi(cpu: usize) {
        if let Some(area) = CoreArea::of(cpu) {
            apic::send_ipi(area.apic_id.get());
        }
    }

    fn enable_line(line: u32, cpu: usize) {
        apic::enable_line(line, cpu);
    }

    #[inline]
    fn relax() {
        cpu::relax();
    }

    #[inline]
    fn prepare_write(line: *const u8) {
        cache::prepare_write(line);
    }

    #[inline]
    fn phys_to_virt(address: PhysAddr) -> *mut u8 {
        paging::direct(address.0)
    }

    fn map_device(base: PhysAddr, size: usize) -> *mut u8 {
        paging::map_device(base.0, size)
    }

    fn map_stack(memory: PhysAddr) -> Option<*mut u8> {
        let (_, top) = paging::map_stack(memory.0)?;
        Some(core::ptr::with_exposed_provenance_mut(top as usize))
    }

    unsafe fn prepare_stack(
        top: *mut u8,
        function: extern "C" fn(usize) -> !,
        argument: usize,
    ) -> u64 {
        // SAFETY: the caller's promise is the same.
        unsafe { stack::prepare(top, function, argument) }
    }

    unsafe fn switch_stack(save: *mut u64, stack: u64, bounds: Range<u64>) {
        let area = CoreArea::here();
        let own = area.stack.replace((bounds.start, bounds.end));
        // SAFETY: the caller's promise is the same.
        unsafe { stack::switch(save, stack) };
        area.stack.set(own);
    }

    fn stack_bounds() -> Range<u64> {
        let (start, end) = CoreArea::here().stack.get();
        start..end
    }

    const USER_END: u64 = 0x7fff_ffff_f000;
    const TABLE_LEVELS: u32 = 4;

    #[inline]
    fn encode_entry(entry: Entry, leaf: bool) -> u64 {
        entry::encode(entry, leaf)
    }

    #[inline]
    fn decode_entry(raw: u64) -> Option<Entry> {
        entry::decode(raw)
    }

    #[inline]
    fn entry_frame(raw: u64) -> Option<PhysAddr> {
        entry::frame(raw)
    }

    #[inline]
    fn used_page(raw: u64, write: bool) -> Option<PhysAddr> {
        entry::used_page(raw, write)
    }

    #[inline]
    fn shared_entry(raw: u64, copy_on_write: bool, mark: u8) -> Option<(u64, u64)> {
        entry::shared(raw, copy_on_write, mark)
    }

    unsafe fn prepare_root(root: PhysAddr) {
        // SAFETY: the caller's promise.
        unsafe { paging::prepare_root(root) };
    }

    fn kernel_root() -> PhysAddr {
        paging::root()
    }

    unsafe fn load_root(root: PhysAddr) {
        // SAFETY: the caller's promise.
        unsafe { paging::load(root) };
    }

    fn flush_page(address: VirtAddr) {
        paging::flush_page(address.0);
    }

    #[inline]
    unsafe fn copy_user(to: *mut u8, from: *const u8, length: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { user_copy::copy(to, from, length) }
    }

    #[inline]
    unsafe fn enter_user(context: &mut Self::Context) -> Trap {
        let core = CoreArea::here();
        if !core::ptr::eq(core.live.get(), context.extended()) {
            context.make_live();
        }
        if !is_canonical(context.registers.rip) {
            return fault::bad_instruction_pointer();
        }
        // SAFETY: the registers are the thread's alone (caller); flags are always a user's; the rest
        // was just made live.
        if unsafe { trap::enter(&mut context.registers) } == trap::CALL {
            Trap::SystemCall
        } else {
            fault::classify(&context.registers, core)
        }
    }

    fn release_fpu(context: &mut Self::Context) {
        context.release();
    }

    fn log_write(bytes: &[u8]) {
        serial::write(bytes);
    }

    fn post_trampoline() -> Option<PostTrampoline> {
        trampoline::post_trampoline()
    }

    fn random_u64() -> Option<u64> {
        cpu::random()
    }

    fn power_off() -> ! {
        power::power_off()
    }

    #[inline(never)]
    fn backtrace(each: &mut dyn FnMut(u64)) {
        /// Longer chains are cut.
        const MOST_FRAMES: usize = 64;
        let mut frame: u64;
        // SAFETY: reads a register.
        unsafe { asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags)) };
        let core = CoreArea::here();
        for _ in 0..MOST_FRAMES {
            if !core.is_stack(frame) {
                return;
            }
            // SAFETY: two words inside a mapped stack of this core.
            let (next, back) = unsafe {
                let frame = core::ptr::with_exposed_provenance::<u64>(frame as usize);
                (frame.read(), frame.add(1).read())
            };
            if back == 0 {
                return;
            }
            each(back);
            // The chain only goes up, but may leave a trap's stack once for the ordinary one.
            if next <= frame && core.is_same_stack(next, frame) {
                return;
            }
            frame = next;
        }
    }
}

/// IRETQ and SYSRET fault in the kernel on other addresses.
#[inline]
fn is_canonical(address: u64) -> bool {
    ((address << 16) as i64 >> 16) as u64 == address
}
