//! What the loader left in memory: the PVH start info, copied out before any memory is given away.
//!
//! The loader is trusted to have put the structures where it says, but not to have filled them
//! sensibly: counts and lengths are bounded, and ranges that make no sense are dropped.
//! Layout: Xen's `public/arch-x86/hvm/start_info.h`.

use super::paging::{self, MOST_MEMORY};
use super::ranges::{MOST_RANGES, Range, Ranges};

const MAGIC: u32 = 0x336e_c578;
const MOST_MODULES: u32 = 8;
const MOST_COMMAND_LINE: usize = 4096;
/// What the boot tables map.
const REACHABLE: u64 = 1 << 30;
const TYPE_RAM: u32 = 1;

#[derive(Clone, Copy)]
#[repr(C)]
struct Header {
    magic: u32,
    version: u32,
    flags: u32,
    module_count: u32,
    modules: u64,
    command_line: u64,
    root_pointer: u64,
    memory_map: u64,
    memory_map_count: u32,
    reserved: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Module {
    address: u64,
    size: u64,
    command_line: u64,
    reserved: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct MapEntry {
    address: u64,
    size: u64,
    kind: u32,
    reserved: u32,
}

/// The loader's information.
pub(super) struct StartInfo {
    /// RAM, page-aligned.
    pub(super) ram: Ranges,
    pub(super) initramfs: Range,
    pub(super) command_line: [u8; MOST_COMMAND_LINE],
    pub(super) command_line_length: usize,
    /// ACPI root pointer, 0 when the loader did not say.
    pub(super) root_pointer: u64,
}

/// Reads a structure of the loader's.
fn read<T: Copy>(address: u64) -> Option<T> {
    let end = address.checked_add(size_of::<T>() as u64)?;
    // SAFETY: the boot tables map the first GiB; `T` is a structure of integers, for which any bytes
    // will do.
    (end <= REACHABLE).then(|| unsafe { paging::direct(address).cast::<T>().read_unaligned() })
}

impl StartInfo {
    /// Copies the start info at physical `address`. Only with the boot tables or the direct map of the
    /// first GiB.
    pub(super) fn read(address: u64) -> Self {
        let mut info = Self {
            ram: Ranges::new(),
            initramfs: Range::default(),
            command_line: [0; MOST_COMMAND_LINE],
            command_line_length: 0,
            root_pointer: 0,
        };
        let header = read::<Header>(address).filter(|header| header.magic == MAGIC);
        let Some(header) = header else {
            panic!("machine: no PVH start info at {address:#x}: the loader must use the PVH entry")
        };
        assert!(header.version >= 1, "machine: the loader gives no memory map (PVH version 0)");
        info.root_pointer = header.root_pointer;
        for index in 0..header.memory_map_count.min(MOST_RANGES as u32) {
            let place = header.memory_map + u64::from(index) * size_of::<MapEntry>() as u64;
            let Some(entry) = read::<MapEntry>(place) else { break };
            if entry.kind == TYPE_RAM {
                let start = entry.address.next_multiple_of(4096);
                let end = entry.address.saturating_add(entry.size).min(MOST_MEMORY) & !4095;
                info.ram.push(Range { start, end });
            }
        }
        for index in 0..header.module_count.min(MOST_MODULES) {
            let place = header.modules + u64::from(index) * size_of::<Module>() as u64;
            let Some(module) = read::<Module>(place) else { break };
            if index == 0 && module.size > 0 {
                let end = module.address.saturating_add(module.size).min(MOST_MEMORY);
                info.initramfs = Range { start: module.address.min(end), end };
            }
        }
        info.copy_command_line(header.command_line);
        info
    }

    fn copy_command_line(&mut self, address: u64) {
        if address == 0 {
            return;
        }
        for (place, slot) in (address..).zip(&mut self.command_line) {
            match read::<u8>(place) {
                Some(byte) if byte != 0 => *slot = byte,
                _ => break,
            }
            self.command_line_length += 1;
        }
    }
}
