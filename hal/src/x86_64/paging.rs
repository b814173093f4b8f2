//! The kernel's half of the address space.
//!
//! ```text
//! ffff8000_00000000  direct map of all RAM: writable, never executable; read-only over kernel code
//! ffffff00_00000000  window: device registers (uncached) and kernel stacks with guard pages
//! ffffffff_80000000  kernel image: text r-x, constants r--, data rw-
//! ```
//! Every root table shares the tables below these entries, which all exist before the first root is
//! made; so what is mapped later appears in all of them. Nothing is ever unmapped.
//!
//! Table frames come from a pool that is set aside at boot.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::cpu::FEATURES;
use super::entry::{ACCESSED, ADDRESS, DIRTY, NO_EXECUTE, PRESENT, WRITE};
use super::lock::SpinLock;
use crate::contract::PhysAddr;

/// Where RAM appears.
pub(super) const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;
/// RAM beyond this is left alone.
pub(super) const MOST_MEMORY: u64 = 1 << 42;
const WINDOW: u64 = 0xffff_ff00_0000_0000;
const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;

/// Bytes of a kernel stack.
pub(super) const STACK_SIZE: usize = <super::Machine as crate::contract::Contract>::STACK_SIZE;

const PAGE: u64 = 4096;
const LARGE_PAGE: u64 = 2 << 20;
const HUGE_PAGE: u64 = 1 << 30;
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const WRITE_THROUGH: u64 = 1 << 3;
const CACHE_DISABLE: u64 = 1 << 4;

/// A writable mapping of ordinary memory. Accessed and dirty are set ahead, so that the processor
/// need not write them.
const DATA: u64 = PRESENT | WRITE | NO_EXECUTE | GLOBAL | ACCESSED | DIRTY;
const CONSTANTS: u64 = PRESENT | NO_EXECUTE | GLOBAL | ACCESSED;
const CODE: u64 = PRESENT | GLOBAL | ACCESSED;
const DEVICE: u64 = DATA | WRITE_THROUGH | CACHE_DISABLE;
const TABLE: u64 = PRESENT | WRITE | ACCESSED;

/// Tables set aside beyond what the direct map needs: kernel image, devices, stacks.
const SPARE_TABLES: u64 = 48;

struct Tables {
    next: u64,
    end: u64,
    window_next: u64,
}

static TABLES: SpinLock<Tables> = SpinLock::new(Tables { next: 0, end: 0, window_next: WINDOW });
static ROOT: AtomicU64 = AtomicU64::new(0);

/// Start and end of the parts of the kernel image, as the linker script places them.
pub(super) struct Image {
    pub(super) start: u64,
    text: u64,
    text_end: u64,
    rodata_end: u64,
    pub(super) end: u64,
}

pub(super) fn image() -> Image {
    unsafe extern "C" {
        static image_start: u8;
        static text_start: u8;
        static text_end: u8;
        static rodata_end: u8;
        static image_end: u8;
    }
    Image {
        start: (&raw const image_start).addr() as u64,
        text: (&raw const text_start).addr() as u64,
        text_end: (&raw const text_end).addr() as u64,
        rodata_end: (&raw const rodata_end).addr() as u64,
        end: (&raw const image_end).addr() as u64,
    }
}

/// Where an address of the kernel image lies in RAM.
pub(super) fn image_physical(address: u64) -> u64 {
    address - KERNEL_BASE
}

/// Where RAM at a physical address is mapped.
#[inline]
pub(super) fn direct(address: u64) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut((DIRECT_MAP + address) as usize)
}

fn table(address: u64) -> *mut [u64; 512] {
    direct(address).cast()
}

impl Tables {
    fn allocate(&mut self) -> Option<u64> {
        if self.next >= self.end {
            return None;
        }
        let frame = self.next;
        self.next += PAGE;
        // SAFETY: the pool is RAM below the first GiB, mapped from the start, and nobody else's.
        unsafe { (*table(frame)).fill(0) };
        Some(frame)
    }

    /// The entry for `address` at the level where a page covers `1 << shift` bytes.
    fn entry(&mut self, address: u64, shift: u32) -> Option<*mut u64> {
        let mut frame = ROOT.load(Relaxed);
        let mut level_shift = 39;
        loop {
            let index = (address >> level_shift & 511) as usize;
            // SAFETY: `frame` is a table of the pool; the lock of the tables is held.
            let entry = unsafe { &raw mut (*table(frame))[index] };
            if level_shift == shift {
                return Some(entry);
            }
            // SAFETY: as above.
            let value = unsafe { entry.read() };
            frame = if value & PRESENT == 0 {
                let lower = self.allocate()?;
                // SAFETY: as above; the new table is empty and complete.
                unsafe { entry.write(lower | TABLE) };
                lower
            } else if value & LARGE != 0 {
                return None;
            } else {
                value & ADDRESS
            };
            level_shift -= 9;
        }
    }

    /// Maps a range with the largest pages that fit. `None` when the pool is used up.
    fn map(&mut self, mut virt: u64, mut phys: u64, mut size: u64, flags: u64) -> Option<()> {
        let huge = FEATURES.gigabyte_pages.load(Relaxed);
        while size > 0 {
            let aligned = |page: u64| (virt | phys) & (page - 1) == 0 && size >= page;
            let (page, shift, large) = if huge && aligned(HUGE_PAGE) {
                (HUGE_PAGE, 30, LARGE)
            } else if aligned(LARGE_PAGE) {
                (LARGE_PAGE, 21, LARGE)
            } else {
                (PAGE, 12, 0)
            };
            let entry = self.entry(virt, shift)?;
            // SAFETY: the entry is of a table of the pool, and nothing was mapped there.
            unsafe { entry.write(phys | flags | large) };
            virt += page;
            phys += page;
            size = size.saturating_sub(page);
        }
        Some(())
    }
}

/// Bytes that the pool of tables needs for a machine whose memory ends at `memory_end`.
pub(super) fn pool_size(memory_end: u64) -> u64 {
    let gigabytes = memory_end.div_ceil(HUGE_PAGE);
    // A directory per GiB, its own tables at the edges of ranges (counted in the spare ones), and the
    // tables above.
    (gigabytes + gigabytes.div_ceil(512) + SPARE_TABLES) * PAGE
}

/// Builds the kernel's tables in the pool and loads them. `ranges` are what the direct map holds.
pub(super) fn build(pool: u64, pool_size: u64, ranges: impl Iterator<Item = (u64, u64)>) {
    let mut tables = TABLES.lock();
    tables.next = pool;
    tables.end = pool + pool_size;
    let built = fill(&mut tables, ranges);
    drop(tables);
    assert!(built.is_some(), "machine: the pool of page tables is too small for this memory map");
    // SAFETY: the root maps the running code, its stack and all RAM as the boot tables did.
    unsafe { load(PhysAddr(ROOT.load(Relaxed))) };
}

fn fill(tables: &mut Tables, ranges: impl Iterator<Item = (u64, u64)>) -> Option<()> {
    let root = tables.allocate()?;
    ROOT.store(root, Relaxed);
    let image = image();
    let guarded = (image_physical(image.text), image_physical(image.rodata_end));
    for (start, end) in ranges {
        for (from, to, flags) in [
            (start, end.min(guarded.0), DATA),
            (start.max(guarded.0), end.min(guarded.1), CONSTANTS),
            (start.max(guarded.1), end, DATA),
        ] {
            if from < to {
                tables.map(DIRECT_MAP + from, from, to - from, flags)?;
            }
        }
    }
    for (from, to, flags) in [
        (image.text, image.text_end, CODE),
        (image.text_end, image.rodata_end, CONSTANTS),
        (image.rodata_end, image.end, DATA),
    ] {
        tables.map(from, image_physical(from), to - from, flags)?;
    }
    // The window's entry in the root must exist before other roots copy it.
    tables.entry(WINDOW, 12).map(|_| ())
}

/// Maps device registers and returns where; the same place for the same registers is not promised.
pub(super) fn map_device(base: u64, size: usize) -> *mut u8 {
    let offset = base % PAGE;
    let length = (size as u64 + offset).next_multiple_of(PAGE);
    let mut tables = TABLES.lock();
    let place = tables.window_next;
    tables.window_next += length;
    let mapped = tables.map(place, base - offset, length, DEVICE);
    drop(tables);
    assert!(mapped.is_some(), "machine: no page table left for the device at {base:#x}");
    core::ptr::with_exposed_provenance_mut((place + offset) as usize)
}

/// Maps a stack with a guard page below and returns its bounds; `None` when no page table is left. `memory`
/// is `STACK_SIZE` bytes of RAM.
pub(super) fn map_stack(memory: u64) -> Option<(u64, u64)> {
    let mut tables = TABLES.lock();
    let bottom = tables.window_next + PAGE;
    tables.window_next = bottom + STACK_SIZE as u64;
    let mapped = tables.map(bottom, memory, STACK_SIZE as u64, DATA);
    drop(tables);
    mapped.map(|()| (bottom, bottom + STACK_SIZE as u64))
}

/// The root that maps no user memory.
pub(super) fn root() -> PhysAddr {
    PhysAddr(ROOT.load(Relaxed))
}

/// Fills the upper half of a root.
///
/// # Safety
/// `new` is a frame that nobody else uses.
pub(super) unsafe fn prepare_root(new: PhysAddr) {
    // SAFETY: both are frames of RAM; the kernel's upper entries do not change any more.
    unsafe {
        let from = table(root().0);
        let to = table(new.0);
        for index in 256..512 {
            (*to)[index] = (*from)[index];
        }
    }
}

/// Loads a root.
///
/// # Safety
/// Its upper half is the kernel's; it stays valid while loaded.
pub(super) unsafe fn load(root: PhysAddr) {
    // SAFETY: the caller's promise: kernel code, data and stack stay where they are.
    unsafe { asm!("mov cr3, {}", in(reg) root.0, options(nostack, preserves_flags)) };
}

/// Drops the translation of one page.
pub(super) fn flush_page(address: u64) {
    // SAFETY: only drops a cached translation.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) };
}
