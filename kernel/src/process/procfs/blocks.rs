//! `/sys/block`, `/sys/class/block` and `/sys/dev/block`: disks, their partitions and loop devices.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use abi::fs::{device_major, device_minor};
use fs::Identity;
use fs::block::loops::flag;
use fs::block::{self, BlockDevice};
use fs::pseudo::{Content, Directory, Entry, Listed};

use super::{directory, number};

/// Unit of sizes, in bytes.
const UNIT: u64 = 512;
/// Inode numbers of one device.
const NUMBERS: u64 = 0x40;
/// Inode numbers of devices begin here, those of links to them there.
const DEVICES: u64 = number::SYSFS + 0x10_0000;
const LINKS: u64 = number::SYSFS + 0x8000_0000;

type Named = (String, Entry);

/// A directory whose entries are made when it is looked at. The cursor of an entry is its place.
struct Made<F>(F);

impl<F: Fn() -> Vec<Named> + Send + Sync + 'static> Directory for Made<F> {
    fn lookup(&self, name: &[u8]) -> Result<Entry, Errno> {
        let found = (self.0)().into_iter().find(|(known, _)| known.as_bytes() == name);
        found.map(|(_, entry)| entry).ok_or(Errno::ENOENT)
    }

    fn list(&self, after: u64, emit: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<(), Errno> {
        for (cursor, (name, entry)) in (1..).zip((self.0)()) {
            let kind = directory::kind(&entry);
            let listed = Listed { name: name.as_bytes(), number: entry.number, kind, cursor };
            if cursor > after && !emit(listed) {
                break;
            }
        }
        Ok(())
    }
}

fn made(number: u64, names: impl Fn() -> Vec<Named> + Send + Sync + 'static) -> Entry {
    Entry::directory(number, Arc::new(Made(names)))
}

/// The inode number of a device's directory.
fn place(device: &BlockDevice) -> u64 {
    let (major, minor) = (device_major(device.number()), device_minor(device.number()));
    DEVICES + (u64::from(major) << 20 | u64::from(minor)) * NUMBERS
}

/// `/sys/block`.
pub(super) fn whole(number: u64) -> Entry {
    made(number, || {
        let devices = block::devices().into_iter().filter(|device| device.whole().is_none());
        devices.map(|device| (String::from(device.name()), entry(device))).collect()
    })
}

/// `/sys/class/block`.
pub(super) fn by_name(number: u64) -> Entry {
    made(number, || links(|device| String::from(device.name())))
}

/// `/sys/dev/block`.
pub(super) fn by_number(number: u64) -> Entry {
    made(number, || links(numbers))
}

fn links(name: impl Fn(&BlockDevice) -> String) -> Vec<Named> {
    let link = |device: Arc<BlockDevice>| {
        let target = match device.whole() {
            Some((whole, _)) => format!("../../block/{}/{}", whole.name(), device.name()),
            None => format!("../../block/{}", device.name()),
        };
        let number = LINKS + place(&device) - DEVICES;
        let text = move |_: &Identity| Ok(target.clone().into_bytes());
        (name(&device), Entry::link(number, Arc::new(text)))
    };
    block::devices().into_iter().map(link).collect()
}

fn numbers(device: &BlockDevice) -> String {
    format!("{}:{}", device_major(device.number()), device_minor(device.number()))
}

/// The directory of a device.
fn entry(device: Arc<BlockDevice>) -> Entry {
    made(place(&device), move || content(&device))
}

/// Files with one line each, numbered from `first` on.
fn lines(first: u64, texts: Vec<(&str, String)>) -> Vec<Named> {
    let file = |(number, (name, text)): (u64, (&str, String))| {
        let content = move || Ok(format!("{text}\n").into_bytes());
        (String::from(name), Entry::file(number, Arc::new(content)))
    };
    (first..).zip(texts).map(file).collect()
}

fn content(device: &Arc<BlockDevice>) -> Vec<Named> {
    let is_read_only = u32::from(device.geometry().is_read_only);
    let mut texts = Vec::from([
        ("dev", numbers(device)),
        ("ro", format!("{is_read_only}")),
        ("size", format!("{}", device.size() / UNIT)),
    ]);
    match device.whole() {
        Some((_, number)) => {
            texts.push(("partition", format!("{number}")));
            texts.push(("start", format!("{}", device.disk().1 / UNIT)));
        }
        None => {
            texts.push(("removable", String::from("0")));
            texts.push(("range", String::from("16")));
            texts.push(("ext_range", String::from("256")));
            texts.push(("hidden", String::from("0")));
        }
    }
    let mut names = lines(place(device) + 1, texts);
    if device.whole().is_none() {
        let of_queue = device.clone();
        let number = place(device) + 0x10;
        names.push((String::from("queue"), made(number, move || queue(&of_queue, number + 1))));
    }
    if device.as_loop().is_some_and(|disk| disk.is_bound()) {
        let of_loop = device.clone();
        let number = place(device) + 0x20;
        names.push((String::from("loop"), made(number, move || backing(&of_loop, number + 1))));
    }
    for partition in device.partitions() {
        names.push((String::from(partition.name()), entry(partition)));
    }
    names
}

/// `queue/io_timeout`: how many milliseconds a request may wait for its answer.
struct Timeout(Arc<BlockDevice>);

const MILLISECOND_NS: u64 = 1_000_000;

impl Content for Timeout {
    fn generate(&self, _: &Identity) -> Result<Vec<u8>, Errno> {
        let timeout_ns = self.0.disk().0.timeout_ns();
        Ok(format!("{}\n", timeout_ns / MILLISECOND_NS).into_bytes())
    }

    fn write(&self, _: &Identity, _offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let text = core::str::from_utf8(bytes).map_err(|_| Errno::EINVAL)?;
        let milliseconds: u32 = text.trim().parse().map_err(|_| Errno::EINVAL)?;
        if milliseconds == 0 {
            return Err(Errno::EINVAL);
        }
        self.0.disk().0.set_timeout_ns(u64::from(milliseconds) * MILLISECOND_NS);
        Ok(bytes.len())
    }
}

fn queue(device: &Arc<BlockDevice>, first: u64) -> Vec<Named> {
    let geometry = device.geometry();
    let sector = format!("{}", geometry.sector_size);
    let discard = if geometry.can_discard { geometry.sector_size } else { 0 };
    let cache = if geometry.has_cache { "write back" } else { "write through" };
    let mut names = lines(
        first,
        Vec::from([
            ("logical_block_size", sector.clone()),
            ("physical_block_size", sector.clone()),
            ("hw_sector_size", sector.clone()),
            ("minimum_io_size", sector),
            ("optimal_io_size", String::from("0")),
            ("discard_granularity", format!("{discard}")),
            ("rotational", String::from("1")),
            ("write_cache", String::from(cache)),
        ]),
    );
    if device.disk().0.timeout_ns() > 0 {
        let content = Arc::new(Timeout(device.clone()));
        let entry = Entry::file(first + names.len() as u64, content).with_mode(0o644);
        names.push((String::from("io_timeout"), entry));
    }
    names
}

fn backing(device: &BlockDevice, first: u64) -> Vec<Named> {
    let Some(disk) = device.as_loop() else { return Vec::new() };
    let (Ok(info), Ok(file)) = (disk.info(), disk.file()) else { return Vec::new() };
    let root = fs::mount::root_of(file.location());
    let path = fs::mount::display_path(file.location(), &root);
    let has = |bit: u32| format!("{}", u32::from(info.flags & bit != 0));
    lines(
        first,
        Vec::from([
            ("autoclear", has(flag::AUTOCLEAR)),
            ("backing_file", String::from_utf8_lossy(&path).into_owned()),
            ("dio", has(flag::DIRECT_IO)),
            ("offset", format!("{}", info.offset)),
            ("partscan", has(flag::PARTSCAN)),
            ("sizelimit", format!("{}", info.limit)),
        ]),
    )
}
