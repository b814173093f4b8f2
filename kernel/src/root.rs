//! The root file system as it is at boot: a tmpfs with the initramfs in it, devices in `/dev`,
//! processes in `/proc`.

use abi::Errno;
use abi::fs::mount::MS_RDONLY;
use abi::fs::{DEVPTS_SUPER_MAGIC, TMPFS_MAGIC};
use fs::tmpfs::{self, TmpFs};
use fs::walk::{self, Lookup};
use fs::{Identity, Location};
use hal::{Contract, Machine};

use fs::inode::NewContent;
use fs::mount::{self, Mount};
use fs::overlay::OverlayFs;
use fs::{cpio, device, pending, terminal, tree};

use crate::ipc::mqueue;
use crate::process::procfs;
use crate::servers::file;
use crate::{devices, options};

/// Mode of the root directory.
const ROOT_MODE: u32 = 0o755;

/// Makes the root file system and everything that is mounted in it: a tmpfs with the initramfs in it, or
/// the host's root under a tmpfs. Called once, at boot.
pub async fn mount() -> Result<Location, Errno> {
    let memory = tmpfs::Options { mode: ROOT_MODE, ..tmpfs::Options::default() };
    let root = if options::parse(Machine::boot_info().command_line, |_| ()).is_root_of_host {
        let host = devices::share(options::ROOT_TAG, devices::ROOT_FRESH_NS).await?;
        let over = OverlayFs::new(&host, TmpFs::new(&memory)?);
        Location::root_of(&Mount::detached(over, "host", 0))
    } else {
        let root = Location::root_of(&Mount::detached(TmpFs::new(&memory)?, "rootfs", 0));
        let unpacked = cpio::unpack(Machine::boot_info().initramfs, &root)
            .inspect_err(|errno| log::error!("the initramfs cannot be used: {errno}"))?;
        log::info!("initramfs: {} entries, {} bytes", unpacked.entries, unpacked.bytes);
        root
    };
    mount_pseudo(&root, &memory).await?;
    Ok(root)
}

/// Mounts devices, processes and what else is no file.
async fn mount_pseudo(root: &Location, options: &tmpfs::Options) -> Result<(), Errno> {
    let directory = async |path: &[u8]| pending::complete(|| directory(root, path)).await;
    let devices = TmpFs::of_type("devtmpfs", TMPFS_MAGIC, options)?;
    file::offer(devices.clone());
    mount::mount(&directory(b"/dev").await?, devices, "devtmpfs", 0)?;
    device::populate(&directory(b"/dev").await?)?;
    let slaves = TmpFs::of_type("devpts", DEVPTS_SUPER_MAGIC, options)?;
    file::offer(slaves.clone());
    terminal::set_home(mount::mount(&directory(b"/dev/pts").await?, slaves, "devpts", 0)?);
    file::offer(mqueue::file_system());
    mount::mount(&directory(b"/dev/mqueue").await?, mqueue::file_system(), "mqueue", 0)?;
    file::offer(procfs::file_system());
    mount::mount(&directory(b"/proc").await?, procfs::file_system(), "proc", 0)?;
    file::offer(procfs::sysfs());
    mount::mount(&directory(b"/sys").await?, procfs::sysfs(), "sysfs", 0)?;
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
