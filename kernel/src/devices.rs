//! The devices of the machine: found once at boot, looked at by the device core.
//!
//! The console carries the program's streams. Each file server (virtio-9p) is one directory that the host
//! shares; it is connected with when it is mounted for the first time, and every mount shows that
//! connection. Each disk (virtio-blk) is a block device.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use abi::Errno;
use base::device::virtio::{Kind, Transport};
use base::sync::{Mutex, Once, rank};
use drivers::blocks::BlockDisk;
use drivers::files::Files;
use fs::inode::FileSystem;
use fs::pending;
use fs::remote::{Options, RemoteFs};
use hal::{Contract, Machine};

use crate::{console, machine};

/// How long what the host says of a share is believed, in nanoseconds.
pub const SHARE_FRESH_NS: u64 = 1_000_000_000;
/// The same of the host's root, which is only read, in nanoseconds.
pub const ROOT_FRESH_NS: u64 = 10_000_000_000;

/// A directory of the host.
struct Share {
    server: Arc<Files>,
    connection: Once<Arc<dyn FileSystem>>,
    /// Somebody is connecting: a second one would end the first one's connection.
    is_taken: AtomicBool,
}

static SHARES: Once<Vec<Share>> = Once::new();
/// What was mounted from each disk last.
static MOUNTED: Mutex<Vec<(u64, Weak<dyn FileSystem>)>> = Mutex::new(&rank::MOUNTS, Vec::new());
static DISKS: Once<Vec<Arc<BlockDisk>>> = Once::new();

/// Finds and starts all devices. Called once, at boot; false when there is no console.
pub fn start() -> bool {
    let mut shares = Vec::new();
    let mut disks = Vec::new();
    let mut has_console = false;
    for window in Machine::boot_info().devices {
        let Some(transport) = Transport::probe(window) else { continue };
        let is_started = match transport.kind() {
            Kind::Console if !has_console => {
                has_console = console::start(transport);
                has_console
            }
            Kind::Files => match Files::new(transport) {
                Some(server) => {
                    shares.push(Share {
                        server: Arc::new(server),
                        connection: Once::new(),
                        is_taken: AtomicBool::new(false),
                    });
                    true
                }
                None => {
                    log::error!("a file server of the host cannot be used");
                    false
                }
            },
            Kind::Block => match BlockDisk::new(transport) {
                Some(disk) => {
                    disks.push(Arc::new(disk));
                    true
                }
                None => {
                    log::error!("a disk cannot be used");
                    false
                }
            },
            _ => false,
        };
        if is_started {
            Machine::enable_line(window.line, machine::device_core().index());
        }
    }
    SHARES.call_once(|| shares);
    for disk in &disks {
        // Whoever opens a disk looks whether what is mounted from it has changed it.
        let options = Options { fresh_ns: 0, core: machine::device_core() };
        fs::block::register(disk.clone(), options);
    }
    DISKS.call_once(|| disks);
    fs::block::loops::start(Options { fresh_ns: 0, core: machine::device_core() });
    has_console
}

fn disks() -> &'static [Arc<BlockDisk>] {
    DISKS.get().map_or(&[], Vec::as_slice)
}

fn shares() -> &'static [Share] {
    SHARES.get().map_or(&[], Vec::as_slice)
}

/// Looks whether a device did anything; true when one did. Reads memory only.
pub fn poll() -> bool {
    let mut active = console::poll();
    for share in shares() {
        active |= share.server.poll();
    }
    for disk in disks() {
        active |= disk.poll();
    }
    active
}

/// A device's line fired.
pub fn interrupt() {
    console::interrupt();
    for share in shares() {
        share.server.interrupt();
    }
    for disk in disks() {
        disk.interrupt();
    }
}

/// The file system that the host shares under a tag, believed for `fresh_ns` nanoseconds.
///
/// # Errors
/// `ENXIO` when there is none, `EBUSY` while somebody else connects with it, `EIO` when the host does not answer as it should.
pub async fn share(tag: &str, fresh_ns: u64) -> Result<Arc<dyn FileSystem>, Errno> {
    let share = shares().iter().find(|share| share.server.name() == tag).ok_or(Errno::ENXIO)?;
    if let Some(known) = share.connection.get() {
        return Ok(known.clone());
    }
    if share.is_taken.swap(true, Ordering::AcqRel) {
        return Err(Errno::EBUSY);
    }
    let options = Options { fresh_ns, core: machine::device_core() };
    let connection = RemoteFs::connect(share.server.clone(), options).await;
    share.is_taken.store(false, Ordering::Release);
    let connection = connection?;
    Ok(share.connection.call_once(|| connection).clone())
}

/// The ext4 on the disk of a device number: the same for every mount.
///
/// # Errors
/// `ENXIO` when there is no such disk, `EACCES` when it cannot be written as wanted, `EBUSY` while it is being mounted or
/// left, and those of `RemoteFs::mount_ext4`.
pub async fn mount_disk(number: u64, is_read_only: bool) -> Result<Arc<dyn FileSystem>, Errno> {
    let disk = fs::block::find(number).ok_or(Errno::ENXIO)?;
    if !is_read_only && disk.disk().0.geometry().is_read_only {
        return Err(Errno::EACCES);
    }
    let known = MOUNTED.lock().iter().find(|(device, _)| *device == number).cloned();
    if let Some(known) = known.and_then(|(_, known)| known.upgrade())
        && fs::mount::is_mounted(number)
    {
        return Ok(known);
    }
    pending::complete(|| disk.settle()).await?;
    let options = Options { fresh_ns: u64::MAX, core: machine::device_core() };
    let file_system = RemoteFs::mount_ext4(disk, is_read_only, options).await?;
    let mut mounted = MOUNTED.lock();
    mounted.retain(|(device, _)| *device != number);
    mounted.push((number, Arc::downgrade(&file_system)));
    drop(mounted);
    Ok(file_system)
}
