//! The little of ACPI that is needed: which cores and interrupt controllers there are, and how to
//! switch the machine off. Tables come from firmware, so every length and checksum is checked, and a
//! table that is wrong is as good as absent.
//!
//! ACPI specification 6.5: 5.2.5 (root pointer), 5.2.12 (MADT), 5.2.9 (FADT), 7.4.2 (`_S5`).

use super::devices;
use crate::contract::{MAX_CPUS, MmioDevice, PhysAddr};

const MOST_IO_APICS: usize = 4;
const MOST_OVERRIDES: usize = 16;
const MOST_TABLES: usize = 64;
/// Longer tables are not believed.
const MOST_BYTES: usize = 1 << 20;
const HEADER_SIZE: usize = 36;

/// An I/O APIC and the first global interrupt that it serves.
#[derive(Clone, Copy)]
pub(crate) struct IoApic {
    pub(crate) address: u64,
    pub(crate) first: u32,
}

/// How the machine is switched off.
#[derive(Clone, Copy)]
pub(crate) enum SleepRegister {
    Port { port: u16, wide: bool, value: u16 },
    Memory { address: u64, value: u8 },
}

/// What the tables said.
pub(crate) struct Tables {
    /// Local APIC ids of usable cores; the running one is among them.
    pub(crate) cores: [u32; MAX_CPUS],
    pub(crate) core_count: usize,
    pub(crate) local_apic: u64,
    pub(crate) io_apics: [Option<IoApic>; MOST_IO_APICS],
    /// Legacy line and the global interrupt that it is wired to.
    pub(crate) overrides: [Option<(u32, u32)>; MOST_OVERRIDES],
    pub(crate) sleep: Option<SleepRegister>,
    /// virtio-mmio devices.
    pub(crate) devices: devices::List,
}

impl Tables {
    /// What to assume without tables: one core, controllers at their usual places.
    pub(crate) const fn new() -> Self {
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

/// Physical memory as the tables' reader sees it.
pub(crate) trait Memory {
    /// Bytes of it, if they are mapped.
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]>;
}

/// Reads tables.
struct Reader<'a, M: Memory>(&'a M);

impl<'a, M: Memory> Reader<'a, M> {
    fn bytes(&self, address: u64, length: usize) -> Option<&'a [u8]> {
        (address != 0 && length <= MOST_BYTES).then(|| self.0.bytes(address, length))?
    }

    /// A whole table, if it is there and its checksum is right.
    fn table(&self, address: u64) -> Option<&'a [u8]> {
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
pub(crate) fn read(root_pointer: u64, memory: &impl Memory, own: u32) -> Tables {
    let reader = Reader(memory);
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
fn find_root(reader: &Reader<'_, impl Memory>, told: u64) -> Option<(u64, bool)> {
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

fn read_fadt(reader: &Reader<'_, impl Memory>, table: &[u8], tables: &mut Tables) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory that begins at `BASE` and holds nothing else.
    struct Fake(Vec<u8>);

    const BASE: u64 = 0x1000;

    impl Memory for Fake {
        fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
            let start = usize::try_from(address.checked_sub(BASE)?).ok()?;
            self.0.get(start..start.checked_add(length)?)
        }
    }

    fn seal(table: &mut [u8], checksum: usize) {
        table[checksum] = 0;
        let sum = table.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        table[checksum] = sum.wrapping_neg();
    }

    fn table(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let mut table = vec![0; HEADER_SIZE];
        table[..4].copy_from_slice(name);
        table.extend_from_slice(body);
        let length = table.len() as u32;
        table[4..8].copy_from_slice(&length.to_le_bytes());
        seal(&mut table, 9);
        table
    }

    impl Fake {
        fn put(&mut self, bytes: &[u8]) -> u64 {
            self.0.resize(self.0.len().next_multiple_of(16), 0);
            let address = BASE + self.0.len() as u64;
            self.0.extend_from_slice(bytes);
            address
        }
    }

    /// A machine with two cores, an I/O APIC, one device and a sleep register in memory; and the address
    /// of its root pointer.
    fn machine() -> (Fake, u64) {
        let mut memory = Fake(Vec::new());
        let mut code = b"\x08_S5_\x12\x06\x04\x0a\x05\0\0\0 VR00 LNRO0005 ".to_vec();
        code.extend_from_slice(&[0x86, 9, 0, 1, 0, 0x2e, 0xb0, 0xfe, 0, 2, 0, 0]);
        code.extend_from_slice(&[0x89, 6, 0, 3, 1, 47, 0, 0, 0]);
        let code = memory.put(&table(b"DSDT", &code));
        let mut fixed = vec![0; 276 - HEADER_SIZE];
        fixed[112 - HEADER_SIZE + 2] = 0x10;
        fixed[140 - HEADER_SIZE..148 - HEADER_SIZE].copy_from_slice(&code.to_le_bytes());
        fixed[248 - HEADER_SIZE..256 - HEADER_SIZE].copy_from_slice(&0xfea0_0000u64.to_le_bytes());
        let fixed = memory.put(&table(b"FACP", &fixed));
        let mut cores = vec![0, 0, 0xe0, 0xfe, 0, 0, 0, 0];
        cores.extend_from_slice(&[
            0, 8, 0, 3, 1, 0, 0, 0, 0, 8, 1, 5, 1, 0, 0, 0, 0, 8, 2, 7, 0, 0, 0, 0,
        ]);
        cores.extend_from_slice(&[1, 12, 0, 0, 0, 0, 0xc0, 0xfe, 24, 0, 0, 0]);
        cores.extend_from_slice(&[2, 10, 0, 0, 2, 0, 0, 0, 0, 0]);
        let cores = memory.put(&table(b"APIC", &cores));
        let pointers: Vec<u8> = [fixed, cores].into_iter().flat_map(u64::to_le_bytes).collect();
        let root = memory.put(&table(b"XSDT", &pointers));
        let mut pointer = b"RSD PTR \0FERRY \x02".to_vec();
        pointer.extend_from_slice(&[0; 4]);
        pointer.extend_from_slice(&36u32.to_le_bytes());
        pointer.extend_from_slice(&root.to_le_bytes());
        pointer.extend_from_slice(&[0; 4]);
        seal(&mut pointer[..20], 8);
        seal(&mut pointer, 32);
        let pointer = memory.put(&pointer);
        (memory, pointer)
    }

    #[test]
    fn a_sound_machine_is_read() {
        let (memory, pointer) = machine();
        let tables = read(pointer, &memory, 5);
        assert_eq!(tables.cores[..tables.core_count], [5, 3], "the running core comes first");
        assert_eq!(tables.local_apic, 0xfee0_0000);
        let io_apic = tables.io_apics[0].expect("one is described");
        assert_eq!((io_apic.address, io_apic.first), (0xfec0_0000, 24));
        assert_eq!(tables.overrides[0], Some((0, 2)));
        assert!(matches!(
            tables.sleep,
            Some(SleepRegister::Memory { address: 0xfea0_0000, value: 0x34 })
        ));
        let [device] = tables.devices.as_slice() else { panic!("one device is described") };
        assert_eq!((device.base.0, device.size, device.line), (0xfeb0_2e00, 0x200, 47));
    }

    #[test]
    fn without_tables_there_is_the_running_core() {
        let tables = read(0, &Fake(Vec::new()), 9);
        assert_eq!(tables.cores[..tables.core_count], [9]);
        assert!(tables.sleep.is_none());
    }

    #[test]
    fn any_wrong_byte_is_survived() {
        let (memory, pointer) = machine();
        for place in 0..memory.0.len() {
            for value in [0, 1, 0x7f, 0xff, memory.0[place] ^ 0x80] {
                let mut wrong = Fake(memory.0.clone());
                wrong.0[place] = value;
                let tables = read(pointer, &wrong, 5);
                assert!((1..=MAX_CPUS).contains(&tables.core_count), "byte {place} = {value}");
                assert_eq!(tables.cores[0], 5);
            }
        }
    }

    #[test]
    fn entries_with_wrong_lengths_are_survived_when_the_checksum_is_right() {
        for length in 0..=255u8 {
            for kind in 0..12u8 {
                let mut tables = Tables::new();
                let body = [0, 0, 0, 0, 0, 0, 0, 0, kind, length, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0];
                read_madt(&table(b"APIC", &body), &mut tables);
                assert!(tables.core_count <= 1);
            }
        }
    }
}
