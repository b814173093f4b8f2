//! What there is none of, with the answers of Linux: swap devices, quotas. And `ustat` and `sysfs`, which tell of file
//! systems, and `acct`.

use abi::Errno;
use abi::fs::{AT_FDCWD, OpenFlags, PATH_MAX};
use fs::open::Request;
use fs::{NodeKind, mount as mounts};
use zerocopy::{Immutable, IntoBytes};

use super::support::{Start, path, resolve};
use crate::call::{Call, SysResult};
use crate::process::system::FILE_SYSTEMS;
use crate::process::{Capability, accounting};

/// `struct ustat`
#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
struct Ustat {
    free_blocks: i32,
    padding: u32,
    free_inodes: u64,
    name: [u8; 6],
    pack: [u8; 6],
    end: u32,
}

/// `ustat(device, buffer)`
pub async fn ustat(call: &Call) -> SysResult {
    let number = call.unsigned(0);
    let major = number >> 8 & 0xfff;
    let minor = number & 0xff | number >> 12 & 0xf_ff00;
    let root = call.thread.directory().root();
    let found = mounts::find_device(&root, major, minor).ok_or(Errno::EINVAL)?;
    let numbers = found.statistics();
    let answer = Ustat {
        free_blocks: i32::try_from(numbers.free_blocks).unwrap_or(i32::MAX),
        free_inodes: numbers.free_inodes,
        ..Ustat::default()
    };
    call.user().write_value(call.argument(1), &answer).await?;
    Ok(0)
}

/// `sysfs(option, ...)`: numbers and names of the kinds of file systems.
pub async fn sysfs(call: &Call) -> SysResult {
    const NUMBER: i32 = 1;
    const NAME: i32 = 2;
    const COUNT: i32 = 3;
    match call.int(0) {
        NUMBER => {
            let name = path(call, 1).await?;
            let found = FILE_SYSTEMS.iter().position(|known| known.as_bytes() == name);
            found.map(|index| index as u64).ok_or(Errno::EINVAL)
        }
        NAME => {
            let index = call.unsigned(1) as usize;
            let name = FILE_SYSTEMS.get(index).ok_or(Errno::EINVAL)?;
            let mut text = name.as_bytes().to_vec();
            text.push(0);
            call.user().write_bytes(call.argument(2), &text).await?;
            Ok(0)
        }
        COUNT => Ok(FILE_SYSTEMS.len() as u64),
        _ => Err(Errno::EINVAL),
    }
}

/// `swapon(path, flags)`: nothing here can be swapped to.
pub async fn swapon(call: &Call) -> SysResult {
    const FLAGS: u32 = 0x7_ffff;
    if call.unsigned(1) & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    call.thread.credentials().require(Capability::Administer)?;
    openable(call).await?;
    Err(Errno::EINVAL)
}

/// `swapoff(path)`
pub async fn swapoff(call: &Call) -> SysResult {
    call.thread.credentials().require(Capability::Administer)?;
    openable(call).await?;
    Err(Errno::EINVAL)
}

/// Resolves the path in argument 0 as one that is opened for reading and writing.
async fn openable(call: &Call) -> Result<NodeKind, Errno> {
    let name = path(call, 0).await?;
    let start = Start::new(call, AT_FDCWD, &name)?;
    let kind = start.resolve(&name, true)?.inode.kind();
    if kind == NodeKind::Directory { Err(Errno::EISDIR) } else { Ok(kind) }
}

const KINDS_OF_QUOTA: u32 = 3;
const SYNC: u32 = 0x80_0001;
const QUOTA_ON: u32 = 0x80_0002;

/// `quotactl(command, device, id, address)`: no file system has quotas.
pub async fn quotactl(call: &Call) -> SysResult {
    let (command, kind) = (call.unsigned(0) >> 8, call.unsigned(0) & 0xff);
    if kind >= KINDS_OF_QUOTA {
        return Err(Errno::EINVAL);
    }
    if call.argument(1) == 0 {
        return if command == SYNC { Ok(0) } else { Err(Errno::ENODEV) };
    }
    if command == QUOTA_ON {
        // What is wrong with this path shows only where there are quotas.
        let _ = call.user().read_string(call.argument(3), PATH_MAX).await;
    }
    let (location, _) = resolve(call, AT_FDCWD, 1, true).await?;
    if location.inode.kind() != NodeKind::BlockDevice {
        return Err(Errno::ENOTBLK);
    }
    Err(Errno::ENODEV)
}

/// `quotactl_fd(file, command, id, address)`
pub fn quotactl_fd(call: &Call) -> SysResult {
    call.file(0)?;
    if call.unsigned(1) & 0xff >= KINDS_OF_QUOTA {
        return Err(Errno::EINVAL);
    }
    Err(Errno::ENOSYS)
}

/// `acct(path)`: records of processes that end go there from now on; nowhere without a path.
pub async fn acct(call: &Call) -> SysResult {
    call.thread.credentials().require(Capability::Accounting)?;
    if call.argument(0) == 0 {
        accounting::record_to(None);
        return Ok(0);
    }
    let name = path(call, 0).await?;
    let start = Start::new(call, AT_FDCWD, &name)?;
    let flags = OpenFlags::WRONLY | OpenFlags::APPEND | OpenFlags::LARGEFILE;
    let request = Request::new(flags.bits(), 0, 0)?;
    let file = fs::open::open(start.lookup(), &name, request, &**call.thread)?;
    if file.inode().kind() != NodeKind::Regular {
        return Err(Errno::EACCES);
    }
    accounting::record_to(Some(file));
    Ok(0)
}
