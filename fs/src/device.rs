//! Device nodes: what opening a device by number gives, and the tree of `/dev`.
//!
//! There are the memory devices (null, zero, full, random, urandom), the terminals (tty, console,
//! ptmx and its slaves), disks and what makes loop devices (`block`).

use crate::block;
use crate::file::{File, Mapping, Transfer, seek_in};
use crate::identity::{Caller, Identity};
use crate::inode::NewContent;
use crate::metadata::NodeKind;
use crate::mount::Location;
use crate::terminal::{self, Terminal};
use crate::tree;
use crate::walk::Lookup;
use abi::Errno;
use abi::fs::{OpenFlags, device_major, device_minor, make_device};
use alloc::sync::Arc;
use base::io::{Sink, Source};
use base::memory::PAGE_SIZE;
use base::sync::Once;
use core::any::Any;

/// Zeros that go to a sink in one step, for which it may hold a lock.
const ZEROS_AT_ONCE: usize = 16 * PAGE_SIZE;

static CONSOLE: Once<Arc<Terminal>> = Once::new();

/// Device number of `/dev/console`.
pub const CONSOLE_DEVICE: u64 = make_device(5, 1);

/// Says which terminal `/dev/console` is. Once, when the kernel starts.
pub fn set_console(terminal: Arc<Terminal>) {
    // There is one console; a second call would name the same.
    let _ = CONSOLE.set(terminal);
}

/// Opens a device by kind and number. `ENXIO` when there is no such device.
pub fn open(
    kind: NodeKind,
    number: u64,
    flags: OpenFlags,
    caller: &dyn Caller,
) -> Result<Arc<dyn File>, Errno> {
    if kind == NodeKind::BlockDevice {
        return block::open(number, flags);
    }
    if kind != NodeKind::CharacterDevice {
        return Err(Errno::ENXIO);
    }
    let memory = |behaviour| -> Result<Arc<dyn File>, Errno> { Ok(Arc::new(behaviour)) };
    match (device_major(number), device_minor(number)) {
        (1, 3) => memory(MemoryDevice::Null),
        (1, 5) => memory(MemoryDevice::Zero),
        (1, 7) => memory(MemoryDevice::Full),
        (1, 8 | 9) => memory(MemoryDevice::Random),
        (5, 0) => {
            let terminal = terminal::controlling(caller).ok_or(Errno::ENXIO)?;
            terminal.open(flags, caller, false)
        }
        (5, 1) => CONSOLE.get().ok_or(Errno::ENXIO)?.open(flags, caller, false),
        (5, 2) => terminal::open_ptmx(caller),
        (10, 237) => Ok(Arc::new(block::loops::Control)),
        (136, slave) => terminal::open_slave(slave, flags, caller),
        _ => Err(Errno::ENXIO),
    }
}

/// Devices that are nothing but their reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryDevice {
    /// Swallows everything and is empty.
    Null,
    /// Swallows everything and is full of zeros.
    Zero,
    /// Has no room and is full of zeros.
    Full,
    /// Random bytes; writing adds nothing to them.
    Random,
}

fn read_zeros(sink: &mut dyn Sink) -> usize {
    let length = sink.remaining();
    let mut done = 0;
    while done < length {
        let wanted = (length - done).min(ZEROS_AT_ONCE);
        let count = sink.write_zeros(wanted);
        done += count;
        if count < wanted {
            break;
        }
    }
    done
}

fn read_random(sink: &mut dyn Sink) -> usize {
    let mut done = 0;
    let mut random = [0; 256];
    loop {
        let wanted = sink.remaining().min(random.len());
        let Some(part) = random.get_mut(..wanted) else { return done };
        base::random::fill(part);
        let count = sink.write(part);
        done += count;
        if count == 0 || count < wanted || sink.remaining() == 0 {
            return done;
        }
    }
}

impl File for MemoryDevice {
    fn read(&self, _: u64, sink: &mut dyn Sink, _: Transfer) -> Result<usize, Errno> {
        match self {
            MemoryDevice::Null => Ok(0),
            MemoryDevice::Zero | MemoryDevice::Full => Ok(read_zeros(sink)),
            MemoryDevice::Random => Ok(read_random(sink)),
        }
    }

    fn has_position(&self) -> bool {
        false
    }

    fn write(&self, _: u64, source: &mut dyn Source, _: Transfer) -> Result<usize, Errno> {
        match self {
            MemoryDevice::Full => Err(Errno::ENOSPC),
            // The bytes are not looked at, so a bad address is no error, as in Linux.
            MemoryDevice::Null | MemoryDevice::Zero => Ok(source.remaining()),
            MemoryDevice::Random => {
                let mut part = [0u8; 256];
                let mut done = 0;
                loop {
                    let wanted = source.remaining().min(part.len());
                    let count = part.get_mut(..wanted).map_or(0, |into| source.read(into));
                    done += count;
                    if count < part.len() {
                        return Ok(done);
                    }
                }
            }
        }
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn seek(&self, position: u64, offset: i64, whence: i32) -> Result<u64, Errno> {
        match self {
            // As in Linux: always at the beginning.
            MemoryDevice::Null | MemoryDevice::Zero | MemoryDevice::Full => Ok(0),
            MemoryDevice::Random => seek_in(0, position, offset, whence).map(|_| 0),
        }
    }

    fn mapping(&self) -> Mapping {
        if *self == MemoryDevice::Zero { Mapping::Anonymous } else { Mapping::None }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Makes the nodes of `/dev` in an empty directory.
pub fn populate(directory: &Location) -> Result<(), Errno> {
    let identity = Identity::kernel();
    let lookup = Lookup { root: directory, start: directory, identity: &identity };
    let nodes: [(&[u8], u32, u32, u32); 9] = [
        (b"null", 1, 3, 0o666),
        (b"zero", 1, 5, 0o666),
        (b"full", 1, 7, 0o666),
        (b"random", 1, 8, 0o666),
        (b"urandom", 1, 9, 0o666),
        (b"tty", 5, 0, 0o666),
        (b"console", 5, 1, 0o600),
        (b"ptmx", 5, 2, 0o666),
        (b"loop-control", 10, 237, 0o660),
    ];
    for (name, major, minor, mode) in nodes {
        let content = NewContent::CharacterDevice(make_device(major, minor));
        tree::create(lookup, name, content, mode)?;
    }
    block::nodes::populate(directory)?;
    for (name, mode) in [(b"pts".as_slice(), 0o755), (b"shm", 0o1777)] {
        tree::create(lookup, name, NewContent::Directory, mode)?;
    }
    let links: [(&[u8], &[u8]); 4] = [
        (b"fd", b"/proc/self/fd"),
        (b"stdin", b"/proc/self/fd/0"),
        (b"stdout", b"/proc/self/fd/1"),
        (b"stderr", b"/proc/self/fd/2"),
    ];
    for (name, target) in links {
        tree::create(lookup, name, NewContent::Symlink(target), 0o777)?;
    }
    Ok(())
}
