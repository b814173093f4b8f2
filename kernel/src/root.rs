//! The root file system as it is at boot: a tmpfs with the initramfs in it, the host's root under a tmpfs, or the
//! ext4 of the first disk; with devices in `/dev` and processes in `/proc`.
//!
//! On a disk that cannot be written, what would have to be made there is left out, and `/tmp` is in memory; `/run` is
//! on every disk.

use abi::Errno;
use abi::fs::mount::{MS_NODEV, MS_NOSUID, MS_RDONLY};
use abi::fs::{DEVPTS_SUPER_MAGIC, TMPFS_MAGIC};
use fs::tmpfs::{self, TmpFs};
use fs::walk::{self, Lookup};
use fs::{Identity, Location};
use hal::{Contract, Machine};

use fs::inode::{FileSystem, NewContent};
use fs::mount::{self, Mount};
use fs::overlay::OverlayFs;
use fs::{block, cpio, device, pending, terminal, tree};

use crate::devices;
use crate::ipc::space::Space;
use crate::options::{self, Root};
use crate::process::procfs;
use crate::servers::file;

/// Mode of the root directory.
const ROOT_MODE: u32 = 0o755;
/// Mode of `/tmp`.
const SHARED_MODE: u32 = 0o1777;

/// Makes the root file system and everything that is mounted in it. Called once, at boot.
pub async fn mount() -> Result<Location, Errno> {
    let memory = tmpfs::Options { mode: ROOT_MODE, ..tmpfs::Options::default() };
    block::scan_all().await;
    let kind = options::parse(Machine::boot_info().command_line, |_| ()).root;
    let root = match kind {
        Root::Memory => {
            let root = Location::root_of(&Mount::detached(TmpFs::new(&memory)?, "rootfs", 0));
            let unpacked = cpio::unpack(Machine::boot_info().initramfs, &root)
                .inspect_err(|errno| log::error!("the initramfs cannot be used: {errno}"))?;
            log::info!("initramfs: {} entries, {} bytes", unpacked.entries, unpacked.bytes);
            root
        }
        Root::Host => {
            let host = devices::share(options::ROOT_TAG, devices::ROOT_FRESH_NS).await?;
            let over = OverlayFs::new(&host, TmpFs::new(&memory)?);
            Location::root_of(&Mount::detached(over, "host", 0))
        }
        Root::Disk => mount_disk().await?,
    };
    mount::set_root(&root.mount);
    mount_pseudo(&root, &memory).await?;
    if kind == Root::Disk {
        mount_memory(&root, &memory).await?;
    }
    Ok(root)
}

/// The ext4 of the first disk, or of the first of its partitions that has one; read-only when the disk is.
async fn mount_disk() -> Result<Location, Errno> {
    let disk = block::devices().into_iter().find(|device| device.as_loop().is_none());
    let disk = disk.ok_or(Errno::ENXIO)?;
    let is_read_only = disk.geometry().is_read_only;
    let flags = if is_read_only { MS_RDONLY } else { 0 };
    let mut outcome = Err(Errno::ENXIO);
    for device in core::iter::once(disk.clone()).chain(disk.partitions()) {
        match devices::mount_disk(device.number(), is_read_only).await {
            Ok(file_system) => {
                let source = alloc::format!("/dev/{}", device.name());
                return Ok(Location::root_of(&Mount::detached(file_system, &source, flags)));
            }
            // There is none.
            Err(Errno::EINVAL) => outcome = Err(Errno::EINVAL),
            Err(error) => return Err(error),
        }
    }
    outcome
}

/// What Linux's start would keep in memory over a disk: `/run`, and `/tmp` when the disk cannot be written.
async fn mount_memory(root: &Location, options: &tmpfs::Options) -> Result<(), Errno> {
    let shared = tmpfs::Options { mode: SHARED_MODE, ..*options };
    let mut places = alloc::vec![(b"/run".as_slice(), options)];
    if root.mount.is_read_only() {
        places.push((b"/tmp", &shared));
    }
    for (path, options) in places {
        if let Some(at) = place(root, path).await? {
            mount::mount(&at, TmpFs::new(options)?, "tmpfs", MS_NOSUID | MS_NODEV)?;
        }
    }
    Ok(())
}

/// The directory where something is to be mounted, made if it is missing; `None` where it cannot be.
async fn place(root: &Location, path: &[u8]) -> Result<Option<Location>, Errno> {
    match pending::complete(|| directory(root, path)).await {
        Ok(found) => Ok(Some(found)),
        Err(error @ (Errno::EROFS | Errno::ENOENT | Errno::ENOTDIR | Errno::ENOSPC)) => {
            log::warn!("nothing is mounted on {}: {error}", path.escape_ascii());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Mounts devices, processes and what else is no file.
async fn mount_pseudo(root: &Location, options: &tmpfs::Options) -> Result<(), Errno> {
    let devices = TmpFs::of_type("devtmpfs", TMPFS_MAGIC, options)?;
    file::offer(devices.clone());
    let devices = match place(root, b"/dev").await? {
        Some(at) => mount::mount(&at, devices, "devtmpfs", 0)?,
        None => Mount::detached(devices, "devtmpfs", 0),
    };
    let devices = Location::root_of(&devices);
    device::populate(&devices)?;
    let slaves = TmpFs::of_type("devpts", DEVPTS_SUPER_MAGIC, options)?;
    file::offer(slaves.clone());
    terminal::set_home(mount::mount(&directory(&devices, b"/pts")?, slaves, "devpts", 0)?);
    let queues = directory(&devices, b"/mqueue")?;
    mount::mount(&queues, Space::first().message_queues.file_system(), "mqueue", 0)?;
    for (path, file_system) in
        [(b"/proc".as_slice(), procfs::file_system()), (b"/sys", procfs::sysfs())]
    {
        file::offer(file_system.clone());
        if let Some(at) = place(root, path).await? {
            let name = file_system.type_name();
            mount::mount(&at, file_system, name, 0)?;
        }
    }
    Ok(())
}

/// Mounts the directories of the host that the command line asks for.
pub async fn mount_shares(root: &Location) -> Result<(), Errno> {
    for share in options::shares(Machine::boot_info().command_line) {
        let file_system = devices::share(&share.tag, devices::SHARE_FRESH_NS).await?;
        let at = pending::complete(|| directories(root, &share.path)).await?;
        let flags = if share.is_read_only { MS_RDONLY } else { 0 };
        mount::mount(&at, file_system, &share.tag, flags)?;
    }
    Ok(())
}

/// The directory at `path`, made with all above it.
fn directories(root: &Location, path: &[u8]) -> Result<Location, Errno> {
    let mut end = 0;
    while let Some(rest) = path.get(end + 1..).filter(|rest| !rest.is_empty()) {
        end += 1 + rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        directory(root, path.get(..end).unwrap_or(path))?;
    }
    resolve(root, path)
}

/// Where a path leads, for the superuser.
pub fn resolve(root: &Location, path: &[u8]) -> Result<Location, Errno> {
    let identity = Identity::kernel();
    walk::resolve(Lookup { root, start: root, identity: &identity }, path, true)
}

/// The directory at `path`, made if it is missing.
fn directory(root: &Location, path: &[u8]) -> Result<Location, Errno> {
    match resolve(root, path) {
        Err(Errno::ENOENT) => {
            let identity = Identity::kernel();
            let lookup = Lookup { root, start: root, identity: &identity };
            tree::create(lookup, path, NewContent::Directory, ROOT_MODE)?;
            resolve(root, path)
        }
        other => other,
    }
}
