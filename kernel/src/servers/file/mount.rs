//! Mounts: mount, umount2; and the calls that make files stable, which files in memory always are.

use abi::Errno;
use abi::fs::mount::*;
use abi::fs::{AT_FDCWD, PROC_SUPER_MAGIC, SyncRangeFlags};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use base::sync::Once;
use fs::inode::FileSystem;
use fs::overlay::{self, Layers, OverlayFs};
use fs::tmpfs::{Options, TmpFs};
use fs::{Location, NodeKind, mount as mounts};

use super::support::{path, resolve, usable};
use crate::call::{Call, SysResult};
use crate::devices::{self, SHARE_FRESH_NS};
use crate::memory::PAGE;
use crate::process::{Capability, namespace};

pub fn fsync(call: &Call) -> SysResult {
    let file = usable(call, 0)?;
    if file.file().is_generated() {
        return Err(Errno::EINVAL);
    }
    match file.inode().kind() {
        NodeKind::Regular | NodeKind::Directory | NodeKind::BlockDevice => file.sync().map(|()| 0),
        _ => Err(Errno::EINVAL),
    }
}

pub fn syncfs(call: &Call) -> SysResult {
    usable(call, 0)?.location().mount.file_system().sync().map(|()| 0)
}

/// Waits until everything that was written anywhere is where it is kept. Errors are told by `fsync`.
pub async fn sync_all() {
    for file_system in fs::inode::to_be_synced() {
        // As on Linux, `sync` has no errors.
        let _ = fs::pending::complete(|| file_system.sync()).await;
    }
}

pub fn sync_file_range(call: &Call) -> SysResult {
    let file = usable(call, 0)?;
    SyncRangeFlags::from_bits(call.unsigned(3)).ok_or(Errno::EINVAL)?;
    let (offset, length) = (call.argument(1) as i64, call.argument(2) as i64);
    let end = offset.checked_add(length).ok_or(Errno::EINVAL)?;
    if offset < 0 || end < offset {
        return Err(Errno::EINVAL);
    }
    match file.inode().kind() {
        NodeKind::Regular | NodeKind::Directory | NodeKind::BlockDevice => file.sync().map(|()| 0),
        _ => Err(Errno::ESPIPE),
    }
}

/// File systems of which there is one, shown wherever they are mounted.
const SINGLE_NAMES: [&str; 4] = ["proc", "devtmpfs", "devpts", "sysfs"];
static SINGLE: [Once<Arc<dyn FileSystem>>; SINGLE_NAMES.len()] =
    [const { Once::new() }; SINGLE_NAMES.len()];

/// Says which file system a `mount` of type `proc`, `devtmpfs`, `devpts` or `sysfs` shows. Once each, at boot.
pub fn offer(file_system: Arc<dyn FileSystem>) {
    let name = file_system.type_name();
    let slot = SINGLE_NAMES.iter().position(|single| *single == name);
    if let Some(slot) = slot.and_then(|slot| SINGLE.get(slot)) {
        // A second offer of a type would be the same file system.
        let _ = slot.set(file_system);
    }
}

async fn optional_string(call: &Call, index: usize) -> Result<String, Errno> {
    let address = call.argument(index);
    if address == 0 {
        return Ok(String::new());
    }
    let bytes =
        call.user().read_string(address, PAGE as usize).await.map_err(|error| match error {
            Errno::ENAMETOOLONG => Errno::EINVAL,
            error => error,
        })?;
    String::from_utf8(bytes).map_err(|_| Errno::EINVAL)
}

pub async fn mount(call: &Call) -> SysResult {
    let mut flags = call.argument(3);
    if flags & MS_MGC_MSK == MS_MGC_VAL {
        flags &= !MS_MGC_MSK;
    }
    let type_name = optional_string(call, 2).await?;
    let source = optional_string(call, 0).await?;
    let data = optional_string(call, 4).await?;
    let (at, identity) = resolve(call, AT_FDCWD, 1, true).await?;
    call.thread.credentials().require(Capability::Administer)?;
    if flags & MS_REMOUNT != 0 {
        return remount(&at, flags, &data);
    }
    let names_its_source = flags & (MS_BIND | MS_MOVE) != 0;
    if names_its_source && flags & MS_REMOUNT == 0 && source.is_empty() {
        return Err(Errno::EINVAL);
    }
    if flags & MS_BIND != 0 {
        let start = super::support::Start::new(call, AT_FDCWD, source.as_bytes())?;
        let from = start.resolve(source.as_bytes(), true)?;
        if (from.inode.kind() == NodeKind::Directory) != (at.inode.kind() == NodeKind::Directory) {
            return Err(Errno::ENOTDIR);
        }
        mounts::bind(&at, &from, flags & MS_REC != 0)?;
        return Ok(0);
    }
    // There is one tree for everybody, so how changes spread makes no difference.
    let spread = flags & (MS_SHARED | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE);
    if spread != 0 {
        if spread.count_ones() > 1 || flags & !(spread | MS_REC | MS_SILENT) != 0 {
            return Err(Errno::EINVAL);
        }
        return if at.is_mount_root() { Ok(0) } else { Err(Errno::EINVAL) };
    }
    if flags & MS_MOVE != 0 {
        let start = super::support::Start::new(call, AT_FDCWD, source.as_bytes())?;
        let from = start.resolve(source.as_bytes(), true)?;
        mounts::relocate(&from, &at, &call.thread.directory().root())?;
        return Ok(0);
    }
    if type_name.is_empty() {
        return Err(Errno::EINVAL);
    }
    if at.inode.kind() != NodeKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    drop(identity);
    let file_system = make(call, &type_name, &source, &data, flags & MS_RDONLY != 0).await?;
    let source = if source.is_empty() { "none" } else { &source };
    mounts::mount(&at, file_system, source, flags)?;
    Ok(0)
}

/// The options of a share that mean what is done anyway.
fn check_share_options(data: &str) -> Result<(), Errno> {
    let is_known = |option: &str| {
        let name = option.split('=').next().unwrap_or(option);
        let is_kept = ["trans=virtio", "version=9p2000.L"].contains(&option);
        is_kept || matches!(name, "msize" | "cache" | "access" | "aname" | "uname" | "noextend")
    };
    if data.split(',').all(|option| option.is_empty() || is_known(option)) {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

/// Whether there are file systems of this type.
pub fn is_known(type_name: &str) -> bool {
    matches!(type_name, "tmpfs" | "ramfs" | "9p" | "ext4" | "overlay" | "mqueue")
        || SINGLE_NAMES.contains(&type_name)
}

/// The value of a parameter that `fsconfig` sets.
pub enum Parameter {
    /// None.
    Flag,
    /// A string.
    Text(String),
    /// Bytes, a path or a descriptor, which no parameter here takes.
    Other,
}

/// Checks one parameter of a file system and gives it as an option of `mount`; an error says whether
/// there is such a parameter at all.
pub fn check_parameter(type_name: &str, key: &str, value: &Parameter) -> Result<String, bool> {
    let option = match value {
        Parameter::Flag => String::from(key),
        Parameter::Text(text) => alloc::format!("{key}={text}"),
        Parameter::Other => String::new(),
    };
    let (is_known, is_good) = match type_name {
        "tmpfs" | "devtmpfs" => {
            let is_flag = matches!(key, "inode32" | "inode64" | "noswap");
            let is_known = is_flag || Options::NAMES.contains(&key);
            let has_value = matches!(value, Parameter::Text(_));
            (is_known, is_flag != has_value && Options::parse(&option).is_ok())
        }
        // Every option of it that is not known is ignored on Linux too.
        "ramfs" => (true, true),
        "9p" => (true, check_share_options(&option).is_ok()),
        "ext4" => (true, check_disk_options(&option).is_ok()),
        "overlay" => {
            let is_known = overlay::check_option(&option).is_ok();
            (is_known, is_known)
        }
        "devpts" => {
            let names = ["uid", "gid", "mode", "ptmxmode", "max", "newinstance"];
            (names.contains(&key), true)
        }
        "proc" => (matches!(key, "gid" | "hidepid" | "subset"), true),
        _ => (false, false),
    };
    let is_right = is_known && is_good && !matches!(value, Parameter::Other);
    if is_right { Ok(option) } else { Err(is_known) }
}

/// The options of an ext4 that mean what is done anyway, or nothing here.
fn check_disk_options(data: &str) -> Result<(), Errno> {
    const KNOWN: [&str; 14] = [
        "data=ordered",
        "errors=remount-ro",
        "errors=continue",
        "barrier",
        "barrier=1",
        "delalloc",
        "nodelalloc",
        "block_validity",
        "nodiscard",
        "noquota",
        "noauto_da_alloc",
        "auto_da_alloc",
        "user_xattr",
        "acl",
    ];
    let is_known = |option: &str| option.is_empty() || KNOWN.contains(&option);
    if data.split(',').all(is_known) { Ok(()) } else { Err(Errno::EINVAL) }
}

/// The ext4 on the block device that a path leads to.
async fn mount_disk(
    call: &Call,
    source: &str,
    is_read_only: bool,
) -> Result<Arc<dyn FileSystem>, Errno> {
    if source.is_empty() {
        return Err(Errno::EINVAL);
    }
    let found = fs::pending::complete(|| {
        super::support::Start::new(call, AT_FDCWD, source.as_bytes())?
            .resolve(source.as_bytes(), true)
    });
    let location = found.await?;
    if location.inode.kind() != NodeKind::BlockDevice {
        return Err(Errno::ENOTBLK);
    }
    if location.mount.flags() & MS_NODEV != 0 {
        return Err(Errno::EACCES);
    }
    devices::mount_disk(location.inode.metadata().represented_device, is_read_only).await
}

/// The file system that a mount of this type shows: a new one, or the only one.
pub async fn make(
    call: &Call,
    type_name: &str,
    source: &str,
    data: &str,
    is_read_only: bool,
) -> Result<Arc<dyn FileSystem>, Errno> {
    if type_name == "ext4" {
        check_disk_options(data)?;
        return Box::pin(mount_disk(call, source, is_read_only)).await;
    }
    let identity = call.thread.identity();
    if type_name == "9p" {
        check_share_options(data)?;
        return Box::pin(devices::share(source, SHARE_FRESH_NS)).await;
    }
    if type_name == "overlay" {
        let find = |path: &str| {
            super::support::Start::new(call, AT_FDCWD, path.as_bytes())?
                .resolve(path.as_bytes(), true)
        };
        let layers = fs::pending::complete(|| Layers::parse(data, find)).await?;
        return Ok(OverlayFs::of(layers));
    }
    if matches!(type_name, "tmpfs" | "ramfs") {
        let defaults = Options { user: identity.user, group: identity.group, ..Options::default() };
        let file_system: Arc<dyn FileSystem> = TmpFs::new(&defaults.with(data)?)?;
        return Ok(file_system);
    }
    if type_name == "mqueue" {
        return Ok(call.thread.namespaces().ipc.message_queues.file_system());
    }
    let slot = SINGLE_NAMES.iter().position(|name| *name == type_name).ok_or(Errno::ENODEV)?;
    SINGLE.get(slot).and_then(Once::get).cloned().ok_or(Errno::ENODEV)
}

/// Changes flags and options of a mount. With `MS_BIND` only the flags of this mount change, otherwise the file system
/// takes no changes through others either, or takes them again.
///
/// # Errors
/// `EBUSY` when it would become read-only while a file is open for writing; `EROFS` when it cannot be written any more;
/// `EIOCBQUEUED` before anything has changed.
pub fn remount(at: &Location, flags: u64, data: &str) -> SysResult {
    if !at.is_mount_root() {
        return Err(Errno::EINVAL);
    }
    let file_system = at.mount.file_system();
    let (is_plain, is_read_only) = (flags & MS_BIND == 0, flags & MS_RDONLY != 0);
    let is_busy = match is_plain {
        true => !at.mount.is_frozen() && mounts::has_writers(file_system.device()),
        false => !at.mount.is_read_only() && at.mount.has_writers(),
    };
    if is_read_only && is_busy {
        return Err(Errno::EBUSY);
    }
    if is_plain {
        file_system.set_read_only(is_read_only)?;
        if file_system.statistics().magic != PROC_SUPER_MAGIC {
            file_system.remount(data)?;
        }
        mounts::freeze(file_system.device(), is_read_only);
    }
    at.mount.set_flags(flags);
    Ok(0)
}

pub async fn umount2(call: &Call) -> SysResult {
    let flags = call.unsigned(1);
    if flags & !(MNT_FORCE | MNT_DETACH | MNT_EXPIRE | UMOUNT_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    let name = path(call, 0).await?;
    let start = super::support::Start::new(call, AT_FDCWD, &name)?;
    // What is mounted on a working directory is meant by `.`, too.
    let location = start.resolve(&name, flags & UMOUNT_NOFOLLOW == 0)?.descend();
    call.thread.credentials().require(Capability::Administer)?;
    if !location.is_mount_root() {
        return Err(Errno::EINVAL);
    }
    let expires = flags & MNT_EXPIRE != 0;
    if expires && flags & (MNT_FORCE | MNT_DETACH) != 0 {
        return Err(Errno::EINVAL);
    }
    drop(start);
    if expires {
        mounts::expire(location)?;
        return Ok(0);
    }
    let file_system = location.mount.file_system().clone();
    // Nothing has changed yet: this may be repeated.
    if file_system.sync() == Err(Errno::EIOCBQUEUED) {
        return Err(Errno::EIOCBQUEUED);
    }
    mounts::unmount(location, flags & MNT_DETACH != 0)?;
    let is_last = flags & MNT_DETACH == 0 && !mounts::is_mounted(file_system.device());
    if is_last {
        // An error was logged; there is no mount any more whose user could be told.
        let _ = fs::pending::complete(|| file_system.close()).await;
    }
    Ok(0)
}

/// `pivot_root(new, old)`
pub async fn pivot_root(call: &Call) -> SysResult {
    call.thread.credentials().require(Capability::Administer)?;
    let mut places = [None, None];
    for (index, place) in places.iter_mut().enumerate() {
        let (location, _) = resolve(call, AT_FDCWD, index, true).await?;
        if location.inode.kind() != NodeKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        *place = Some(location);
    }
    let [Some(new), Some(old)] = places else { return Err(Errno::EINVAL) };
    namespace::pivot_root(&call.thread, &new, &old)?;
    Ok(0)
}

/// Closes all file systems that are kept elsewhere than in memory. Nothing runs any more that uses them.
pub async fn close_all() {
    for file_system in fs::inode::to_be_synced() {
        let _ = fs::pending::complete(|| file_system.close()).await;
    }
}
