//! `/sys`: what programs read to find out how many processors there are and what memory can do.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use base::sync::Once;
use fs::NodeKind;
use fs::pseudo::{Directory, Entry, Listed, PseudoFs};

use super::directory::{Fixed, MakeEntry};
use super::number;
use crate::machine;

/// Magic number of the file system, for `statfs`.
const MAGIC: i64 = 0x6265_6572;
/// Inode numbers of one directory.
const DIRECTORY: u64 = 0x100;

/// The file system; the same for every mount.
pub fn sysfs() -> Arc<PseudoFs> {
    static FILE_SYSTEM: Once<Arc<PseudoFs>> = Once::new();
    FILE_SYSTEM
        .call_once(|| {
            let root = Fixed { first_number: number::SYSFS + DIRECTORY, names: ROOT };
            PseudoFs::new("sysfs", MAGIC, Entry::directory(number::SYSFS, Arc::new(root)))
        })
        .clone()
}

fn directory(number: u64, place: u64, names: &'static [(&'static str, MakeEntry)]) -> Entry {
    let first_number = number::SYSFS + place * DIRECTORY;
    Entry::directory(number, Arc::new(Fixed { first_number, names }))
}

/// A file with one line.
fn line(number: u64, text: impl Fn() -> String + Send + Sync + 'static) -> Entry {
    Entry::file(number, Arc::new(move || Ok((text() + "\n").into_bytes())))
}

/// Numbers as ranges: `0-1,3`.
fn ranges(numbers: &[usize]) -> String {
    let mut text = String::new();
    let mut rest = numbers;
    while let Some((&first, _)) = rest.split_first() {
        let length =
            rest.iter().zip(first..).take_while(|(number, next)| **number == *next).count();
        if !text.is_empty() {
            text.push(',');
        }
        text += &match length {
            1 => format!("{first}"),
            _ => format!("{first}-{}", first + length - 1),
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    text
}

fn cores() -> Vec<usize> {
    machine::layout().application.iter().collect()
}

const ROOT: &[(&str, MakeEntry)] = &[
    ("block", super::blocks::whole),
    ("bus", |number| directory(number, 3, &[])),
    ("class", |number| directory(number, 4, &[("block", super::blocks::by_name)])),
    ("dev", |number| directory(number, 0x60, DEVICE_NUMBERS)),
    ("devices", |number| {
        directory(number, 5, &[("system", |number| directory(number, 6, SYSTEM))])
    }),
    ("firmware", |number| directory(number, 0x63, &[])),
    ("fs", |number| directory(number, 7, &[("cgroup", |number| directory(number, 8, &[]))])),
    ("kernel", |number| directory(number, 9, KERNEL)),
    ("module", |number| directory(number, 10, &[])),
    ("power", |number| directory(number, 0x64, &[])),
];

/// `dev`: devices by number.
const DEVICE_NUMBERS: &[(&str, MakeEntry)] =
    &[("block", super::blocks::by_number), ("char", |number| directory(number, 0x62, &[]))];

const SYSTEM: &[(&str, MakeEntry)] = &[
    ("cpu", |number| Entry::directory(number, Arc::new(Processors))),
    ("node", |number| {
        directory(
            number,
            11,
            &[
                ("has_cpu", |number| line(number, || String::from("0"))),
                ("has_memory", |number| line(number, || String::from("0"))),
                ("has_normal_memory", |number| line(number, || String::from("0"))),
                ("node0", |number| directory(number, 0x65, NODE)),
                ("online", |number| line(number, || String::from("0"))),
                ("possible", |number| line(number, || String::from("0"))),
            ],
        )
    }),
];

/// `devices/system/node/node0`: all processors and all memory.
const NODE: &[(&str, MakeEntry)] = &[
    ("cpulist", |number| line(number, || ranges(&cores()))),
    ("cpumap", |number| line(number, || mask(&cores()))),
    ("distance", |number| line(number, || String::from("10"))),
    ("meminfo", |number| line(number, memory_of_node)),
    ("numastat", |number| {
        line(number, || {
            let names = ["numa_hit", "numa_miss", "numa_foreign", "interleave_hit", "local_node"];
            names.map(|name| format!("{name} 0\n")).concat() + "other_node 0"
        })
    }),
];

/// Numbers as bits, in groups of 32 from the highest one: `00000001,00000003`.
fn mask(numbers: &[usize]) -> String {
    const GROUP: usize = 32;
    let groups = hal::MAX_CPUS.div_ceil(GROUP);
    let mut text = String::new();
    for group in (0..groups).rev() {
        let inside = numbers.iter().filter(|number| **number / GROUP == group);
        let bits = inside.fold(0u32, |bits, number| bits | 1 << (number % GROUP));
        match groups {
            1 => text += &format!("{bits:x}"),
            _ => text += &format!("{bits:08x}"),
        }
        if group > 0 {
            text.push(',');
        }
    }
    text
}

fn memory_of_node() -> String {
    let frames = base::memory::frame_counts();
    let kib = |count: usize| count * 4;
    let used = frames.total.saturating_sub(frames.free);
    let amounts = [("MemTotal:", frames.total), ("MemFree:", frames.free), ("MemUsed:", used)];
    let lines = amounts.map(|(name, count)| format!("Node 0 {name:15} {:8} kB", kib(count)));
    lines.join("\n")
}

const KERNEL: &[(&str, MakeEntry)] = &[("mm", |number| {
    directory(
        number,
        12,
        &[
            ("hugepages", |number| directory(number, 13, &[])),
            ("transparent_hugepage", |number| directory(number, 14, HUGE_PAGES)),
        ],
    )
})];

const HUGE_PAGES: &[(&str, MakeEntry)] = &[
    ("defrag", |number| {
        line(number, || String::from("always defer defer+madvise madvise [never]"))
    }),
    ("enabled", |number| line(number, || String::from("always madvise [never]"))),
    ("hpage_pmd_size", |number| line(number, || String::from("2097152"))),
    ("shmem_enabled", |number| {
        line(number, || String::from("always within_size advise [never] deny force"))
    }),
];

/// `devices/system/cpu`: files about all processors, then a directory for each.
struct Processors;

const PROCESSOR_FILES: Fixed = Fixed {
    first_number: number::SYSFS + 15 * DIRECTORY,
    names: &[
        ("isolated", |number| line(number, String::new)),
        ("kernel_max", |number| line(number, || format!("{}", hal::MAX_CPUS - 1))),
        ("offline", |number| line(number, String::new)),
        ("online", |number| line(number, || ranges(&cores()))),
        ("possible", |number| line(number, || ranges(&cores()))),
        ("present", |number| line(number, || ranges(&cores()))),
    ],
};

/// Cursors of processors are their numbers plus this.
const PROCESSOR_CURSOR: u64 = 0x1000;

fn processor_number(core: usize) -> u64 {
    number::SYSFS + (0x100 + core as u64) * DIRECTORY
}

impl Directory for Processors {
    fn lookup(&self, name: &[u8]) -> Result<Entry, Errno> {
        let core = cores().into_iter().find(|core| format!("cpu{core}").as_bytes() == name);
        match core {
            Some(core) => {
                let number = processor_number(core);
                Ok(Entry::directory(number, Arc::new(Processor { core, number })))
            }
            None => PROCESSOR_FILES.lookup(name),
        }
    }

    fn list(&self, after: u64, emit: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<(), Errno> {
        let mut goes_on = true;
        PROCESSOR_FILES.list(after, &mut |listed| {
            goes_on = emit(listed);
            goes_on
        })?;
        for core in cores() {
            let cursor = PROCESSOR_CURSOR + core as u64;
            let name = format!("cpu{core}");
            let (number, kind) = (processor_number(core), NodeKind::Directory);
            goes_on = goes_on
                && (cursor <= after
                    || emit(Listed { name: name.as_bytes(), number, kind, cursor }));
        }
        Ok(())
    }
}

/// `cpuN`, and the `topology` in it.
struct Processor {
    core: usize,
    number: u64,
}

struct Topology {
    core: usize,
    number: u64,
}

impl Directory for Processor {
    fn lookup(&self, name: &[u8]) -> Result<Entry, Errno> {
        if name != b"topology" {
            return Err(Errno::ENOENT);
        }
        let number = self.number + 1;
        Ok(Entry::directory(number, Arc::new(Topology { core: self.core, number })))
    }

    fn list(&self, after: u64, emit: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<(), Errno> {
        if after == 0 {
            let (number, kind) = (self.number + 1, NodeKind::Directory);
            emit(Listed { name: b"topology", number, kind, cursor: 1 });
        }
        Ok(())
    }
}

const TOPOLOGY: [&str; 6] = [
    "core_cpus_list",
    "core_id",
    "core_siblings_list",
    "package_cpus_list",
    "physical_package_id",
    "thread_siblings_list",
];

impl Directory for Topology {
    fn lookup(&self, name: &[u8]) -> Result<Entry, Errno> {
        let found = (1..).zip(TOPOLOGY).find(|(_, known)| known.as_bytes() == name);
        let (index, name) = found.ok_or(Errno::ENOENT)?;
        let core = self.core;
        Ok(line(self.number + index, move || match name {
            "physical_package_id" => String::from("0"),
            "core_siblings_list" | "package_cpus_list" => ranges(&cores()),
            _ => format!("{core}"),
        }))
    }

    fn list(&self, after: u64, emit: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<(), Errno> {
        for (index, name) in (1..).zip(TOPOLOGY) {
            let (number, kind) = (self.number + index, NodeKind::Regular);
            if index > after && !emit(Listed { name: name.as_bytes(), number, kind, cursor: index })
            {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_joined_to_ranges() {
        assert_eq!(ranges(&[0, 1, 3, 5, 6, 7]), "0-1,3,5-7");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn numbers_are_bits_of_a_mask() {
        assert!(mask(&[0, 1, 3]).ends_with('b'));
        assert!(mask(&[]).chars().all(|digit| digit == '0' || digit == ','));
    }
}
