//! The little of ACPI that is needed: which cores and interrupt controllers there are, and how to
//! switch the machine off. Tables come from firmware, so every length and checksum is checked, and a
//! table that is wrong is as good as absent.
//!
//! ACPI specification 6.5: 5.2.5 (root pointer), 5.2.12 (MADT), 5.2.9 (FADT), 7.4.2 (`_S5`).

use core::slice;

use super::start_info::Range;
use super::{devices, paging};
use crate::contract::{MAX_CPUS, MmioDevice, PhysAddr};

const MOST_IO_APICS: usize = 4;
const MOST_OVERRIDES: usize = 16;
const MOST_TABLES: usize = 64;
/// Longer tables are not believed.
const MOST_BYTES: usize = 1 << 20;
const HEADER_SIZE: usize = 36;

/// An I/O APIC and the first global interrupt that it serves.
#[derive(Clone, Copy)]
pub(super) struct IoApic {
    pub(super) address: u64,
    pub(super) first: u32,
}

/// How the machine is switched off.
#[derive(Clone, Copy)]
pub(super) enum SleepRegister {
    Port { port: u16, wide: bool, value: u16 },
    Memory { address: u64, value: u8 },
}

/// What the tables said.
pub(super) struct Tables {
    /// Local APIC ids of usable cores; the running one is among them.
    pub(super) cores: [u32; MAX_CPUS],
    pub(super) core_count: usize,
    pub(super) local_apic: u64,
    pub(super) io_apics: [Option<IoApic>; MOST_IO_APICS],
    /// Legacy line and the global interrupt that it is wired to.
    pub(super) overrides: [Option<(u32, u32)>; MOST_OVERRIDES],
    pub(super) sleep: Option<SleepRegister>,
    /// virtio-mmio devices.
    pub(super) devices: devices::List,
}

impl Tables {
    /// What to assume without tables: one core, controllers at their usual places.
    pub(super) const fn new() -> Self {
        Self {
            cores: [0; MAX_CPUS],
            core_count: 0,
            local_apic: 0xfee0_0000,
            io_apics: [None; MOST_IO_APICS],
            overrides: [None; MOST_OVERRIDES],
            sleep: None,
            devices: devices::List::new(),
        }
    }
}

/// Reads tables that lie in mapped RAM.
struct Reader<'a> {
    mapped: &'a [Range],
}

impl Reader<'_> {
    fn bytes(&self, address: u64, length: usize) -> Option<&'static [u8]> {
        let end = address.checked_add(length as u64)?;
        if address == 0 || length > MOST_BYTES {
            return None;
        }
        let place = if self.mapped.iter().any(|range| range.start <= address && end <= range.end) {
            paging::direct(address)
        } else {
            return None;
        };
        // SAFETY: the range is in the direct map, and is firmware's: nobody writes to it.
        Some(unsafe { slice::from_raw_parts(place, length) })
    }

    /// A whole table, if it is there and its checksum is right.
    fn table(&self, address: u64) -> Option<&'static [u8]> {
        let header = self.bytes(address, HEADER_SIZE)?;
        let length = u32_at(header, 4)? as usize;
        let table = self.bytes(address, length)?;
        (length >= HEADER_SIZE && sums_to_zero(table)).then_some(table)
    }
}

fn sums_to_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)) == 0
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

/// Finds and reads the tables. `root_pointer` is where the loader says the root pointer is, or 0;
/// `own` is the running core's APIC id.
pub(super) fn read(root_pointer: u64, mapped: &[Range], own: u32) -> Tables {
    let reader = Reader { mapped };
    let mut tables = Tables::new();
    if let Some((root, wide)) = find_root(&reader, root_pointer)
        && let Some(root) = reader.table(root)
    {
        let width = if wide { 8 } else { 4 };
        for pointer in root[HEADER_SIZE..].chunks_exact(width).take(MOST_TABLES) {
            let address = if wide { u64_at(pointer, 0) } else { u32_at(pointer, 0).map(u64::from) };
            let Some(table) = address.and_then(|address| reader.table(address)) else { continue };
            match &table[..4] {
                b"APIC" => read_madt(table, &mut tables),
                b"FACP" => read_fadt(&reader, table, &mut tables),
                _ => {}
            }
        }
    }
    put_first(&mut tables, own);
    tables
}

/// The running core becomes number 0, known or not.
fn put_first(tables: &mut Tables, own: u32) {
    let known = tables.cores[..tables.core_count].iter().position(|&id| id == own);
    match known {
        Some(index) => tables.cores.swap(0, index),
        None => {
            tables.cores.copy_within(..MAX_CPUS - 1, 1);
            tables.cores[0] = own;
            tables.core_count = (tables.core_count + 1).min(MAX_CPUS);
        }
    }
}

/// Address of the root table, and whether its pointers are 64 bits wide.
fn find_root(reader: &Reader<'_>, told: u64) -> Option<(u64, bool)> {
    let at = |address| {
        let pointer = reader.bytes(address, 20)?;
        if !pointer.starts_with(b"RSD PTR ") || !sums_to_zero(pointer) {
            return None;
        }
        if pointer[15] >= 2
            && let Some(long) = reader.bytes(address, 36)
            && sums_to_zero(long)
            && let Some(table) = u64_at(long, 24).filter(|&table| table != 0)
        {
            return Some((table, true));
        }
        u32_at(pointer, 16).map(|table| (u64::from(table), false))
    };
    at(told).or_else(|| (0xe_0000..0x10_0000).step_by(16).find_map(at))
}

fn read_madt(table: &[u8], tables: &mut Tables) {
    if let Some(address) = u32_at(table, 36) {
        tables.local_apic = u64::from(address);
    }
    let mut rest = table.get(44..).unwrap_or_default();
    while let [kind, length, ..] = *rest {
        let length = usize::from(length);
        let Some(entry) = rest.get(..length).filter(|_| length >= 2) else { break };
        rest = &rest[length..];
        let _ = read_madt_entry(kind, entry, tables);
    }
}

/// `None` when the entry is too short, which only loses that entry.
fn read_madt_entry(kind: u8, entry: &[u8], tables: &mut Tables) -> Option<()> {
    /// Enabled, or can be.
    const USABLE: u32 = 1;
    let mut add_core = |id: u32, flags: u32| {
        let seen = tables.cores[..tables.core_count].contains(&id);
        if flags & USABLE != 0 && !seen && tables.core_count < MAX_CPUS {
            tables.cores[tables.core_count] = id;
            tables.core_count += 1;
        }
    };
    match kind {
        0 => add_core(u32::from(*entry.get(3)?), u32_at(entry, 4)?),
        9 => add_core(u32_at(entry, 4)?, u32_at(entry, 8)?),
        1 => {
            let controller =
                IoApic { address: u64::from(u32_at(entry, 4)?), first: u32_at(entry, 8)? };
            let free = tables.io_apics.iter_mut().find(|slot| slot.is_none())?;
            *free = Some(controller);
        }
        2 => {
            let pair = (u32::from(*entry.get(3)?), u32_at(entry, 4)?);
            let free = tables.overrides.iter_mut().find(|slot| slot.is_none())?;
            *free = Some(pair);
        }
        5 => tables.local_apic = u64_at(entry, 4)?,
        _ => {}
    }
    Some(())
}

fn read_fadt(reader: &Reader<'_>, table: &[u8], tables: &mut Tables) {
    let code = u64_at(table, 140)
        .filter(|&address| address != 0)
        .or_else(|| u32_at(table, 40).map(u64::from))
        .and_then(|address| reader.table(address))
        .unwrap_or_default();
    tables.sleep = sleep_register(table, soft_off_type(code));
    find_virtio(code, &mut tables.devices);
}

fn sleep_register(table: &[u8], soft_off: Option<u8>) -> Option<SleepRegister> {
    const HARDWARE_REDUCED: u32 = 1 << 20;
    const ENABLE_8: u8 = 1 << 5;
    const ENABLE_16: u16 = 1 << 13;
    if u32_at(table, 112)? & HARDWARE_REDUCED != 0 {
        // Generic address: space (0 memory, 1 port), width, offset, access size, address.
        let register = table.get(244..256)?;
        let address = u64_at(register, 4).filter(|&address| address != 0)?;
        let value = soft_off.unwrap_or(5) << 2 | ENABLE_8;
        match register[0] {
            0 => Some(SleepRegister::Memory { address, value }),
            1 => Some(SleepRegister::Port {
                port: u16::try_from(address).ok()?,
                wide: false,
                value: u16::from(value),
            }),
            _ => None,
        }
    } else {
        let port = u16::try_from(u32_at(table, 64)?).ok().filter(|&port| port != 0)?;
        let value = u16::from(soft_off.unwrap_or(0)) << 10 | ENABLE_16;
        Some(SleepRegister::Port { port, wide: true, value })
    }
}

/// Finds the virtio-mmio devices that the byte code describes, without interpreting the rest: after the
/// hardware id stand a descriptor of fixed memory and one of an interrupt (6.4.3.4 and 6.4.3.6).
fn find_virtio(code: &[u8], devices: &mut devices::List) {
    const ID: &[u8] = b"LNRO0005";
    /// The descriptors stand no further behind the id.
    const REACH: usize = 160;
    const MEMORY: &[u8] = &[0x86, 9, 0];
    const INTERRUPT: &[u8] = &[0x89, 6, 0];
    let places = code.windows(ID.len()).enumerate().filter(|(_, window)| *window == ID);
    for (place, _) in places {
        let rest = &code[place + ID.len()..];
        let rest = &rest[..rest.len().min(REACH)];
        let after = |tag: &[u8]| {
            rest.windows(tag.len()).position(|window| window == tag).map(|at| at + tag.len())
        };
        let device = || {
            let (memory, interrupt) = (after(MEMORY)?, after(INTERRUPT)?);
            Some(MmioDevice {
                base: PhysAddr(u64::from(u32_at(rest, memory + 1)?)),
                size: u32_at(rest, memory + 5)? as usize,
                line: u32_at(rest, interrupt + 2)?,
            })
        };
        if let Some(device) = device() {
            devices.push(device);
        }
    }
}

/// Finds `Name (\_S5, Package {type, …})` in the byte code, without interpreting the rest.
fn soft_off_type(code: &[u8]) -> Option<u8> {
    const PACKAGE: u8 = 0x12;
    const BYTE: u8 = 0x0a;
    let place = code.windows(4).position(|window| window == b"_S5_")?;
    let mut rest = code.get(place + 4..)?;
    if *rest.first()? != PACKAGE {
        return None;
    }
    // The length takes one to four bytes, then comes the number of elements.
    let length_bytes = usize::from(rest.get(1)? >> 6) + 1;
    rest = rest.get(1 + length_bytes + 1..)?;
    let value = match *rest.first()? {
        BYTE => *rest.get(1)?,
        constant @ 0..=1 => constant,
        _ => return None,
    };
    (value < 8).then_some(value)
}
