//! From the first line of Rust to the kernel's entry: what core 0 does once.

use core::cell::UnsafeCell;

use super::acpi;
use super::boot::hal_call_on_stack;
use super::core_area::CoreArea;
use super::paging::{self, STACK_SIZE};
use super::ranges::{MOST_RANGES, Range, Ranges};
use super::start_info::StartInfo;
use super::{apic, cpu, devices, power, segments, serial, time};
use crate::contract::{BootInfo, MAX_CPUS, MemoryRange, PhysAddr};

/// Memory below is left to firmware and to the trampoline.
const LOW_MEMORY: u64 = 1 << 20;
const LARGE_PAGE: u64 = 2 << 20;
/// The boot tables map no more.
const BOOT_MAPPED: u64 = 1 << 30;

/// What `start_cores` needs.
pub(super) struct Plan {
    pub(super) cores: [u32; MAX_CPUS],
    pub(super) core_count: usize,
    pub(super) stacks: [(u64, u64); MAX_CPUS],
    /// Number of a free page below 1 MiB.
    pub(super) trampoline: Option<u8>,
}

struct Kept {
    info: BootInfo,
    plan: Plan,
    command_line: [u8; 4096],
    free: [MemoryRange; MOST_RANGES],
    devices: devices::List,
}

struct KeptCell(UnsafeCell<Kept>);

// SAFETY: core 0 writes it in `start`, before the kernel's entry and before other cores run; from then
// on it is only read.
unsafe impl Sync for KeptCell {}

const NO_RANGE: MemoryRange = MemoryRange { start: PhysAddr(0), end: PhysAddr(0) };

static KEPT: KeptCell = KeptCell(UnsafeCell::new(Kept {
    info: BootInfo {
        free_memory: &[],
        memory_end: PhysAddr(0),
        initramfs: &[],
        command_line: "",
        cpu_count: 1,
        devices: &[],
        start_cycles: 0,
    },
    plan: Plan {
        cores: [0; MAX_CPUS],
        core_count: 1,
        stacks: [(0, 0); MAX_CPUS],
        trampoline: None,
    },
    command_line: [0; 4096],
    free: [NO_RANGE; MOST_RANGES],
    devices: devices::List::new(),
}));

fn kept() -> &'static Kept {
    // SAFETY: no longer written once anybody may call this.
    unsafe { &*KEPT.0.get() }
}

pub(super) fn boot_info() -> &'static BootInfo {
    &kept().info
}

pub(super) fn plan() -> &'static Plan {
    &kept().plan
}

/// The RAM of the direct map, as the reader of ACPI tables sees it.
struct Mapped<'a>(&'a Ranges);

impl acpi::Memory for Mapped<'_> {
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        let end = address.checked_add(length as u64)?;
        let inside = |range: &Range| range.start <= address && end <= range.end;
        if !self.0.as_slice().iter().any(inside) {
            return None;
        }
        // SAFETY: the range is in the direct map, and is firmware's: nobody writes to it.
        Some(unsafe { core::slice::from_raw_parts(paging::direct(address), length) })
    }
}

unsafe extern "Rust" {
    /// The kernel's entry, which `hal::entry!` defines.
    safe fn ferry_kernel_entry() -> !;
}

extern "C" fn call_kernel() -> ! {
    ferry_kernel_entry()
}

/// First Rust on core 0: `start_info` is physical, `start_cycles` the counter at the first instruction.
pub(super) extern "C" fn start(start_info: u64, start_cycles: u64) -> ! {
    serial::set_up();
    cpu::detect();
    // SAFETY: core 0 adopts its number once.
    let area = unsafe { CoreArea::adopt(0) };
    cpu::set_up(0);
    segments::fill_gates();
    segments::load(area);
    cpu::measure_state();

    let loader = StartInfo::read(start_info);
    let mapped = loader.ram.rounded_out(LARGE_PAGE);
    let memory_end = mapped.as_slice().iter().map(|range| range.end).max().unwrap_or(0);
    let mut free = free_ranges(&loader);
    let pool_size = paging::pool_size(memory_end);
    let Some(pool) = free.take(pool_size, BOOT_MAPPED) else {
        panic!("machine: no {pool_size} bytes of memory below 1 GiB for page tables")
    };
    let pairs = mapped.as_slice().iter().map(|range| (range.start, range.end));
    paging::build(pool, pool_size, pairs);

    let tables = acpi::read(loader.root_pointer, &Mapped(&mapped), apic::early_id());
    power::set_up(tables.sleep);
    apic::find(&tables);
    apic::set_up(area);
    time::calibrate();

    let mut stacks = [(0, 0); MAX_CPUS];
    let mut core_count = 0;
    for stack in stacks.iter_mut().take(tables.core_count) {
        let Some(memory) = free.take(STACK_SIZE as u64, u64::MAX) else { break };
        let mapped = paging::map_stack(memory);
        assert!(mapped.is_some(), "machine: no page table left for a stack");
        *stack = mapped.unwrap_or_default();
        core_count += 1;
    }
    assert!(core_count > 0, "machine: no memory for a stack");
    area.stack.set(stacks[0]);

    let plan =
        Plan { cores: tables.cores, core_count, stacks, trampoline: trampoline(&loader.ram) };
    keep(&loader, plan, tables.devices, &free, memory_end, start_cycles);
    // SAFETY: the stack is mapped and nobody's.
    unsafe { hal_call_on_stack(stacks[0].1, call_kernel) }
}

fn keep(
    loader: &StartInfo,
    plan: Plan,
    devices: devices::List,
    free: &Ranges,
    memory_end: u64,
    start_cycles: u64,
) {
    // SAFETY: only core 0 runs, and nobody has a reference yet.
    let kept: &'static mut Kept = unsafe { &mut *KEPT.0.get() };
    kept.command_line = loader.command_line;
    let command_line: &'static [u8] = &kept.command_line[..loader.command_line_length];
    let command_line = core::str::from_utf8(command_line).unwrap_or("");
    kept.devices = devices;
    kept.devices.read(command_line);
    let mut count = 0;
    for (slot, range) in kept.free.iter_mut().zip(free.as_slice()) {
        *slot = MemoryRange { start: PhysAddr(range.start), end: PhysAddr(range.end) };
        count += 1;
    }
    let Range { start, end } = loader.initramfs;
    // SAFETY: the loader's module lies in the direct map (checked when the ranges were made), and its
    // memory is not in the free list.
    let initramfs =
        unsafe { core::slice::from_raw_parts(paging::direct(start), (end - start) as usize) };
    kept.info = BootInfo {
        free_memory: &kept.free[..count],
        memory_end: PhysAddr(memory_end),
        initramfs,
        command_line,
        cpu_count: plan.core_count,
        devices: kept.devices.as_slice(),
        start_cycles,
    };
    kept.plan = plan;
}

/// RAM that is nobody's yet.
fn free_ranges(loader: &StartInfo) -> Ranges {
    let image = paging::image();
    let Range { start, end } = loader.initramfs;
    let inside = loader.ram.as_slice().iter().any(|range| range.start <= start && end <= range.end);
    assert!(start == end || inside, "machine: the initramfs at {start:#x} is not in RAM");
    let mut free = Ranges::new();
    for range in loader.ram.as_slice() {
        free.push(*range);
    }
    free.remove(Range { start: 0, end: LOW_MEMORY });
    free.remove(Range {
        start: paging::image_physical(image.start),
        end: paging::image_physical(image.end),
    });
    free.remove(Range { start: start & !4095, end: end.next_multiple_of(4096) });
    free
}

/// A page for the trampoline: RAM, above the tables of firmware at 0.
fn trampoline(ram: &Ranges) -> Option<u8> {
    const FIRST: u64 = 0x8000;
    let page = ram
        .as_slice()
        .iter()
        .find(|range| range.start <= FIRST && FIRST + 4096 <= range.end)
        .map(|_| FIRST >> 12)?;
    u8::try_from(page).ok()
}
