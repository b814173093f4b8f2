//! `F_SETLEASE` and `F_GETLEASE`, and the waiting of those who open a file that is leased.

use abi::Errno;
use abi::fs::{F_RDLCK, F_UNLCK, F_WRLCK, OpenFlags};
use alloc::boxed::Box;
use alloc::sync::Arc;
use base::time::with_deadline;
use core::sync::atomic::Ordering;
use fs::file::{Owner, OwnerKind};
use fs::inode::Inode;
use fs::lock::LockKind;
use fs::metadata::Wanted;
use fs::open::Request;
use fs::walk::Lookup;
use fs::{NodeKind, OpenFile, lease, tree, walk};

use crate::call::{Call, Pace, SysResult};
use crate::process::{Capability, Interrupted, table};

/// `fcntl(F_SETLEASE)`
pub async fn set(call: &Call, file: &Arc<OpenFile>, argument: u64) -> SysResult {
    let kind = match argument as i16 {
        F_UNLCK => None,
        F_RDLCK => Some(LockKind::Shared),
        F_WRLCK => Some(LockKind::Exclusive),
        _ => return Err(Errno::EINVAL),
    };
    let inode = file.inode();
    let identity = call.thread.identity();
    if identity.user != inode.permissions().user && !identity.is_capable(Capability::Lease) {
        return Err(Errno::EACCES);
    }
    if inode.kind() != NodeKind::Regular {
        return Err(Errno::EINVAL);
    }
    let Some(kind) = kind else {
        return if lease::give_up(file) { Ok(0) } else { Err(Errno::EAGAIN) };
    };
    let is_open_elsewhere = match kind {
        LockKind::Shared => {
            inode.writers().is_some_and(|writers| writers.load(Ordering::Acquire) > 0)
        }
        LockKind::Exclusive => is_opened_twice(call, file).await?,
    };
    if is_open_elsewhere {
        return Err(Errno::EAGAIN);
    }
    lease::take(file, call.int(0), kind)?;
    if file.owner().id == 0 {
        let user = call.thread.credentials().user;
        let id = call.process().pid.0;
        file.set_owner(&Owner { kind: OwnerKind::Process, id, users: [user.real, user.effective] });
    }
    Ok(0)
}

/// `fcntl(F_GETLEASE)`
pub fn get(file: &OpenFile) -> SysResult {
    Ok(match lease::of(file) {
        None => F_UNLCK,
        Some(LockKind::Shared) => F_RDLCK,
        Some(LockKind::Exclusive) => F_WRLCK,
    } as u64)
}

/// Whether the descriptors of any process refer to another description of the same file.
async fn is_opened_twice(call: &Call, file: &OpenFile) -> Result<bool, Errno> {
    let inode = file.inode().id();
    let is_other = |open: &OpenFile| {
        open.id() != file.id() && !open.is_path_only() && open.inode().id() == inode
    };
    let mut pace = Pace::new();
    for process in table::processes() {
        let mut looks = 0;
        let found = process.find_thread(|thread| {
            let listed = thread.files().list();
            looks += listed.len() as u64;
            listed.iter().any(|(_, open, _)| is_other(open)).then_some(())
        });
        if found.is_some() {
            return Ok(true);
        }
        pace.spend(&call.thread, 1 + looks / DESCRIPTORS_PER_PAGE).await.map_err(Errno::from)?;
    }
    Ok(false)
}

/// Descriptors that cost as much to look at as a page.
const DESCRIPTORS_PER_PAGE: u64 = 16;

/// Waits until no lease stands against opening a file.
///
/// # Errors
/// `EAGAIN` when `is_nonblocking`, `ERESTARTSYS`.
pub async fn give_way_to(
    call: &Call,
    inode: &Arc<dyn Inode>,
    writes: bool,
    is_nonblocking: bool,
) -> Result<(), Errno> {
    while let Some(deadline_ns) = lease::ask(inode, writes) {
        if is_nonblocking {
            return Err(Errno::EAGAIN);
        }
        let look = lease::changed()
            .wait_until(|| (lease::ask(inode, writes) != Some(deadline_ns)).then_some(()));
        let wait = call.thread.interruptible(with_deadline(look, Some(deadline_ns)));
        if let Err(Interrupted) = Box::pin(wait).await {
            return Err(Errno::ERESTARTSYS);
        }
    }
    Ok(())
}

/// The same for who is about to open a path. What is wrong with the path shows when it is opened.
pub async fn give_way(
    call: &Call,
    lookup: Lookup<'_>,
    path: &[u8],
    request: Request,
) -> Result<(), Errno> {
    let flags = request.flags;
    let opens_nothing = flags.contains(OpenFlags::PATH)
        || flags.contains(OpenFlags::TMPFILE_BIT)
        || flags.contains(OpenFlags::CREAT | OpenFlags::EXCL);
    if !lease::any() || opens_nothing {
        return Ok(());
    }
    let follow = !flags.contains(OpenFlags::NOFOLLOW);
    let identity = lookup.identity;
    let Ok(location) = walk::resolve(lookup, path, follow) else { return Ok(()) };
    let writes = flags.writes() || flags.contains(OpenFlags::TRUNC);
    let wanted = if writes { Wanted::WRITE } else { Wanted::READ };
    if location.inode.kind() != NodeKind::Regular
        || tree::check(&location.inode, identity, wanted).is_err()
    {
        return Ok(());
    }
    give_way_to(call, &location.inode, writes, flags.contains(OpenFlags::NONBLOCK)).await
}
