//! inotify: instances, watches.

use abi::Errno;
use abi::fs::notify::Events;
use abi::fs::{AT_FDCWD, OpenFlags};
use alloc::sync::Arc;
use fs::anonymous::{AnonymousInode, Label};
use fs::metadata::{Permissions, Wanted};
use fs::notify::Inotify;
use fs::{NodeKind, OpenFile, tree};

use super::descriptor::install;
use super::support::{resolve, usable};
use crate::call::{Call, SysResult};

pub fn inotify_init(call: &Call, flags: u32) -> SysResult {
    let flags = OpenFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
    if !(OpenFlags::CLOEXEC | OpenFlags::NONBLOCK).contains(flags) {
        return Err(Errno::EINVAL);
    }
    let instance = Inotify::new(call.thread.credentials().user.effective)?;
    let permissions = Permissions { mode: 0o600, user: 0, group: 0 };
    let label = Label::Plain("anon_inode:inotify");
    let location = AnonymousInode::location(NodeKind::Anonymous, label, permissions);
    let file = OpenFile::new(instance, location, flags & OpenFlags::NONBLOCK)?;
    install(call, file, flags.contains(OpenFlags::CLOEXEC))
}

fn instance(file: &Arc<OpenFile>) -> Result<&Inotify, Errno> {
    file.file().as_any().downcast_ref().ok_or(Errno::EINVAL)
}

pub async fn inotify_add_watch(call: &Call) -> SysResult {
    let mask = call.unsigned(2);
    let events = Events::from_bits_truncate(mask);
    if mask == 0 || mask & !Events::OF_INOTIFY.bits() != 0 {
        return Err(Errno::EINVAL);
    }
    let file = usable(call, 0)?;
    if events.contains(Events::MASK_ADD | Events::MASK_CREATE) {
        return Err(Errno::EINVAL);
    }
    let instance = instance(&file)?;
    let follow = !events.contains(Events::DONT_FOLLOW);
    let (location, identity) = resolve(call, AT_FDCWD, 1, follow).await?;
    if events.contains(Events::ONLYDIR) && location.inode.kind() != NodeKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    tree::check(&location.inode, &identity, Wanted::READ)?;
    let number = instance.watch(&location.inode, events)?;
    Ok(u64::from(number.unsigned_abs()))
}

pub fn inotify_rm_watch(call: &Call) -> SysResult {
    let file = usable(call, 0)?;
    instance(&file)?.unwatch(call.int(1))?;
    Ok(0)
}
