//! What the language asks of a program without an operating system: memory, panics, a log.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

use hal::{Contract, Machine};

/// Gives memory away and never takes it back.
struct Bump;

const SIZE: usize = 1 << 20;

#[repr(align(4096))]
struct Memory(UnsafeCell<[u8; SIZE]>);

// SAFETY: every byte is given away once.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; SIZE]));
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
