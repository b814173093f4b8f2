//! Settings of descriptors and devices: fcntl, flock, ioctl.

use core::future::poll_fn;
use core::task::Poll;

use abi::Errno;
use abi::fs::fcntl::*;
use abi::fs::*;
use abi::socket::request::{FIOGETOWN, FIOSETOWN, SIOCGPGRP, SIOCSPGRP};
use abi::terminal::names::{
    TCSBRK, TCSBRKP, TCSETAF, TCSETAW, TCSETSF, TCSETSF2, TCSETSW, TCSETSW2,
};
use abi::terminal::{FIOASYNC, FIOCLEX, FIONBIO, FIONCLEX, FIONREAD};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use fs::block::BlockFile;
use fs::lock::{self, LockKind, Owner, Range, Record, Refusal};
use fs::pipe::PipeEnd;
use fs::terminal::Terminal;
use fs::{NodeKind, OpenFile};

use super::descriptor::{duplicate_from, install};
use super::support::usable;
use super::{lease, owner};
use crate::call::{Call, SysResult};
use crate::process::mapped::is_mapped_for_writing;
use crate::process::{Capability, Interrupted};

/// Requests to a terminal that come after what was written.
const WAITING_REQUESTS: [u32; 8] =
    [TCSBRK, TCSBRKP, TCSETSW, TCSETSF, TCSETSW2, TCSETSF2, TCSETAW, TCSETAF];

/// `ioctl` of any file: the size of a block, where a block lies, and that nothing changes.
const FIBMAP: u32 = 1;
const FIGETBSZ: u32 = 2;
const FIFREEZE: u32 = 0xc004_5877;
const FITHAW: u32 = 0xc004_5878;
/// Bytes of the blocks that `stat` counts.
const BLOCK: u64 = 512;
/// Room that a file takes.
/// `FICLONE`, `FICLONERANGE`, `FIDEDUPERANGE`, `FS_IOC_FIEMAP`: no file shares blocks, or tells where they are.
const OF_BLOCKS: [u32; 4] = [0x4004_9409, 0x4020_940d, 0xc018_9436, 0xc020_660b];
const FIOQSIZE: u32 = abi::terminal::names::FIOQSIZE;
/// `fcntl`: how long what is written will live, which nobody has said.
const F_GET_RW_HINT: i32 = 1035;

/// Commands that work on a mere place (`O_PATH`).
const PLACE_COMMANDS: [i32; 5] = [F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL];

pub async fn fcntl(call: &Call) -> SysResult {
    let file = call.file(0)?;
    let command = call.int(1);
    if file.is_path_only() && !PLACE_COMMANDS.contains(&command) {
        return Err(Errno::EBADF);
    }
    let argument = call.argument(2);
    let files = call.thread.files();
    let descriptor = call.int(0);
    match command {
        // The argument is a C `int`.
        F_DUPFD => duplicate_from(call, file, argument & 0xffff_ffff, false),
        F_DUPFD_CLOEXEC => duplicate_from(call, file, argument & 0xffff_ffff, true),
        F_GETFD => Ok(u64::from(files.close_on_exec(descriptor)?)),
        F_SETFD => {
            files.set_close_on_exec(descriptor, argument & FD_CLOEXEC != 0)?;
            Ok(0)
        }
        F_GETFL => Ok(u64::from(file.flags().bits())),
        F_SETFL => set_flags(call, &file, argument),
        F_GETLK | F_OFD_GETLK => get_lock(call, &file, command == F_OFD_GETLK).await,
        F_SETLK | F_SETLKW => set_lock(call, &file, false, command == F_SETLKW).await,
        F_OFD_SETLK | F_OFD_SETLKW => set_lock(call, &file, true, command == F_OFD_SETLKW).await,
        F_SETOWN => owner::set(call, &file, argument as u32 as i32),
        F_GETOWN => owner::get(&file),
        F_SETOWN_EX => owner::set_extended(call, &file, argument).await,
        F_GETOWN_EX => owner::get_extended(call, &file, argument).await,
        F_SETSIG => {
            let signal = i32::try_from(argument).map_err(|_| Errno::EINVAL)?;
            if !(0..=64).contains(&signal) {
                return Err(Errno::EINVAL);
            }
            file.set_owner_signal(signal);
            Ok(0)
        }
        F_GET_RW_HINT => {
            call.user().write_value(argument, &0_u64).await?;
            Ok(0)
        }
        F_GETSIG => Ok(u64::from(file.owner_signal().unsigned_abs())),
        F_NOTIFY => owner::notify(call, &file, argument as u32),
        F_GETLEASE => lease::get(&file),
        F_SETLEASE => lease::set(call, &file, argument).await,
        F_SETPIPE_SZ | F_GETPIPE_SZ => pipe_size(call, &file, command, argument),
        F_ADD_SEALS => {
            add_seals(&file, argument)?;
            Ok(0)
        }
        F_GET_SEALS => Ok(u64::from(file.inode().seals().ok_or(Errno::EINVAL)?.bits())),
        _ => Err(Errno::EINVAL),
    }
}

fn set_flags(call: &Call, file: &Arc<OpenFile>, argument: u64) -> SysResult {
    let flags = OpenFlags::from_bits_truncate(argument as u32);
    let newly_unseen =
        flags.contains(OpenFlags::NOATIME) && !file.flags().contains(OpenFlags::NOATIME);
    if newly_unseen && !call.thread.identity().owns(file.inode().permissions().user) {
        return Err(Errno::EPERM);
    }
    if flags.contains(OpenFlags::DIRECT) && !file.file().takes_direct() {
        return Err(Errno::EINVAL);
    }
    let signals = flags.contains(OpenFlags::ASYNC);
    if signals != file.flags().contains(OpenFlags::ASYNC) && file.can_signal() {
        file.set_signals(call.int(0), signals)?;
    }
    file.change_flags(fs::file::CHANGEABLE_FLAGS, flags);
    file.file().flags_changed(flags);
    Ok(0)
}

fn pipe_size(call: &Call, file: &OpenFile, command: i32, argument: u64) -> SysResult {
    let behaviour = file.file().as_any();
    let end = behaviour.downcast_ref::<PipeEnd>().ok_or(Errno::EBADF)?;
    if command == F_GETPIPE_SZ {
        return Ok(end.capacity() as u64);
    }
    let privileged = call.thread.credentials().is_capable(Capability::Resource);
    end.set_capacity(argument & 0xffff_ffff, privileged).map(|size| size as u64)
}

fn add_seals(file: &OpenFile, argument: u64) -> Result<(), Errno> {
    if !file.flags().writes() {
        return Err(Errno::EPERM);
    }
    let wanted = u32::try_from(argument).ok().and_then(Seals::from_bits).ok_or(Errno::EINVAL)?;
    let inode = file.inode();
    let present = inode.seals().ok_or(Errno::EINVAL)?;
    if present.contains(Seals::SEAL) {
        return Err(Errno::EPERM);
    }
    let forbids = wanted.contains(Seals::WRITE) && !present.contains(Seals::WRITE);
    if forbids && is_mapped_for_writing(inode.id()) {
        return Err(Errno::EBUSY);
    }
    inode.add_seals(wanted)
}

/// The kind of lock that a request names.
fn lock_kind(kind: i16) -> Result<Option<LockKind>, Errno> {
    match kind {
        F_RDLCK => Ok(Some(LockKind::Shared)),
        F_WRLCK => Ok(Some(LockKind::Exclusive)),
        F_UNLCK => Ok(None),
        _ => Err(Errno::EINVAL),
    }
}

fn lock_range(file: &OpenFile, lock: &FileLock) -> Result<Range, Errno> {
    let base = match i32::from(lock.whence) {
        seek::SEEK_SET => 0,
        seek::SEEK_CUR => file.position(),
        seek::SEEK_END => file.inode().metadata().size,
        _ => return Err(Errno::EINVAL),
    };
    let base = i64::try_from(base).map_err(|_| Errno::EOVERFLOW)?;
    Range::new(base.checked_add(lock.start).ok_or(Errno::EOVERFLOW)?, lock.length)
}

fn lock_owner(call: &Call, file: &OpenFile, of_description: bool) -> (Owner, i32) {
    if of_description {
        (Owner::Description(file.id()), -1)
    } else {
        (Owner::Process(call.thread.files().number()), call.process().pid.0)
    }
}

async fn get_lock(call: &Call, file: &OpenFile, of_description: bool) -> SysResult {
    let mut lock: FileLock = call.user().read_value(call.argument(2)).await?;
    if of_description && lock.process != 0 {
        return Err(Errno::EINVAL);
    }
    let kind = lock_kind(lock.kind)?.ok_or(Errno::EINVAL)?;
    let range = lock_range(file, &lock)?;
    let (owner, _) = lock_owner(call, file, of_description);
    match lock::test(file.inode().id(), owner, kind, &range) {
        None => lock.kind = F_UNLCK,
        Some(record) => {
            lock.kind = if record.kind == LockKind::Shared { F_RDLCK } else { F_WRLCK };
            lock.whence = 0;
            lock.start = i64::try_from(record.range.start).unwrap_or(i64::MAX);
            lock.length = record.range.length();
            lock.process = record.process;
        }
    }
    call.user().write_value(call.argument(2), &lock).await?;
    Ok(0)
}

async fn set_lock(call: &Call, file: &OpenFile, of_description: bool, waits: bool) -> SysResult {
    let lock: FileLock = call.user().read_value(call.argument(2)).await?;
    if of_description && lock.process != 0 {
        return Err(Errno::EINVAL);
    }
    let range = lock_range(file, &lock)?;
    let kind = lock_kind(lock.kind)?;
    match kind {
        Some(LockKind::Shared) if !file.flags().reads() => return Err(Errno::EBADF),
        Some(LockKind::Exclusive) if !file.flags().writes() => return Err(Errno::EBADF),
        _ => {}
    }
    let (owner, process) = lock_owner(call, file, of_description);
    let attempt = || lock::set(file.locks(), owner, process, kind, &range);
    match attempt() {
        Ok(()) => Ok(0),
        Err(Refusal::TooMany) => Err(Errno::ENOLCK),
        Err(Refusal::Held(_)) if !waits => Err(Errno::EAGAIN),
        Err(Refusal::Held(holder)) => wait_for_lock(call, owner, holder, attempt).await,
    }
}

/// Tries again whenever a lock goes away, until it works, a signal comes or a deadlock shows.
async fn wait_for_lock(
    call: &Call,
    owner: Owner,
    mut holder: Record,
    attempt: impl Fn() -> Result<(), Refusal>,
) -> SysResult {
    // Descriptions can be passed on, so nobody knows who waits for whom: no deadlock is looked for.
    let is_looked_for = matches!(owner, Owner::Process(_));
    loop {
        if is_looked_for {
            lock::wait_for(owner, holder.owner)?;
        }
        let wait = lock::released().wait_until(|| match attempt() {
            Ok(()) => Some(Ok(None)),
            // The holder changed, which may be a new deadlock.
            Err(Refusal::Held(record)) if record.owner != holder.owner => Some(Ok(Some(record))),
            Err(Refusal::Held(_)) => None,
            Err(Refusal::TooMany) => Some(Err(Errno::ENOLCK)),
        });
        let result = call.thread.interruptible(wait).await;
        if is_looked_for {
            lock::stop_waiting(owner);
        }
        match result {
            Ok(Ok(None)) => return Ok(0),
            Ok(Ok(Some(record))) => holder = record,
            Ok(Err(error)) => return Err(error),
            Err(Interrupted) => return Err(Errno::ERESTARTSYS),
        }
    }
}

pub async fn flock(call: &Call) -> SysResult {
    /// Mandatory locks of the share modes of other systems, which Linux takes and does nothing about.
    const LOCK_MAND: i32 = 32;
    let operation = call.int(1);
    if operation & LOCK_MAND != 0 {
        return Ok(0);
    }
    let kind = match operation & !flock::LOCK_NB {
        flock::LOCK_SH => Some(LockKind::Shared),
        flock::LOCK_EX => Some(LockKind::Exclusive),
        flock::LOCK_UN => None,
        _ => return Err(Errno::EINVAL),
    };
    let file = usable(call, 0)?;
    let waits = operation & flock::LOCK_NB == 0;
    match lock::flock(file.locks(), kind) {
        Err(Errno::EAGAIN) if waits => {}
        result => return result.map(|()| 0),
    }
    let mut registrations = Vec::new();
    let wait = poll_fn(|context| {
        registrations.clear();
        registrations.push(lock::released().register(context.waker()));
        match lock::flock_quietly(file.locks(), kind) {
            Err(Errno::EAGAIN) => Poll::Pending,
            result => Poll::Ready(result),
        }
    });
    match call.thread.interruptible(wait).await {
        Ok(result) => result.map(|()| 0),
        Err(Interrupted) => Err(Errno::ERESTARTSYS),
    }
}

pub async fn ioctl(call: &Call) -> SysResult {
    let file = usable(call, 0)?;
    let request = call.unsigned(1);
    let argument = call.argument(2);
    let user = call.user();
    match request {
        FIOCLEX | FIONCLEX => {
            call.thread.files().set_close_on_exec(call.int(0), request == FIOCLEX)?;
            return Ok(0);
        }
        FIONBIO => {
            let on: i32 = user.read_value(argument).await?;
            let flag = if on != 0 { OpenFlags::NONBLOCK } else { OpenFlags::empty() };
            file.change_flags(OpenFlags::NONBLOCK, flag);
            return Ok(0);
        }
        FIOASYNC => {
            let on: i32 = user.read_value(argument).await?;
            if (on != 0) != file.flags().contains(OpenFlags::ASYNC) {
                if !file.file().can_signal() {
                    return Err(Errno::ENOTTY);
                }
                file.set_signals(call.int(0), on != 0)?;
            }
            return Ok(0);
        }
        FIONREAD if file.inode().kind() == NodeKind::Regular => {
            // Less than none behind the end.
            let left = file.inode().metadata().size.wrapping_sub(file.position()).cast_signed();
            let left = left.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
            user.write_value(argument, &left).await?;
            return Ok(0);
        }
        FIOSETOWN | SIOCSPGRP if file.inode().kind() == NodeKind::Socket => {
            let id: i32 = user.read_value(argument).await?;
            return owner::set(call, &file, id);
        }
        FIOGETOWN | SIOCGPGRP if file.inode().kind() == NodeKind::Socket => {
            let id = owner::get(&file)? as i32;
            user.write_value(argument, &id).await?;
            return Ok(0);
        }
        FIGETBSZ => {
            let size = file.location().mount.file_system().statistics().block_size;
            user.write_value(argument, &size).await?;
            return Ok(0);
        }
        FIOQSIZE if matches!(file.inode().kind(), NodeKind::Regular | NodeKind::Directory) => {
            // What it takes, not what it holds.
            let bytes = file.inode().metadata().blocks.saturating_mul(BLOCK);
            user.write_value(argument, &bytes).await?;
            return Ok(0);
        }
        // No file lies in blocks that could be told of.
        FIBMAP if file.inode().kind() == NodeKind::Regular => {
            call.thread.credentials().require(Capability::RawIo)?;
            let _block: i32 = user.read_value(argument).await?;
            return Err(Errno::EINVAL);
        }
        request if OF_BLOCKS.contains(&request) && file.inode().kind() == NodeKind::Regular => {
            return Err(Errno::EOPNOTSUPP);
        }
        FIFREEZE | FITHAW => {
            call.thread.credentials().require(Capability::Administer)?;
            return Err(if request == FIFREEZE { Errno::EOPNOTSUPP } else { Errno::EINVAL });
        }
        _ => {}
    }
    if let Some(disk) = file.file().as_any().downcast_ref::<BlockFile>()
        && let Some(result) = Box::pin(super::block::ioctl(call, disk, request, argument)).await
    {
        return result;
    }
    if WAITING_REQUESTS.contains(&request)
        && let Some(terminal) = Terminal::of(&**file.file())
    {
        let wait = Box::pin(call.thread.interruptible(terminal.wait_until_sent()));
        wait.await.map_err(|_| Errno::EINTR)?;
    }
    let length = file.file().ioctl_input(request)?;
    let input = user.read_vector(argument, length).await?;
    let answer = file.file().ioctl(&**call.thread, request, argument, &input)?;
    if !answer.output.is_empty() {
        user.write_bytes(argument, &answer.output).await?;
    }
    match answer.opened {
        None => Ok(answer.value),
        Some(opened) => {
            let close_on_exec = argument & u64::from(OpenFlags::CLOEXEC.bits()) != 0;
            install(call, Arc::clone(&opened), close_on_exec)
        }
    }
}
