//! `pidfd_open`, `pidfd_send_signal`, `pidfd_getfd`.

use abi::Errno;
use abi::fs::OpenFlags;
use abi::signal::{RawSignalInfo, SI_TKILL, Signal};
use alloc::sync::Arc;

use crate::call::{Call, SysResult};
use crate::process::access::Observer;
use crate::process::pidfd::{self, ProcessFile};
use crate::process::{Pid, Resource, procfs, table};
use crate::servers::signal::check_permission;
use crate::signal::{self, SignalInfo};

/// `pidfd_open(process, flags)`
pub(super) fn pidfd_open(call: &Call) -> SysResult {
    let flags = OpenFlags::from_bits(call.unsigned(1)).ok_or(Errno::EINVAL)?;
    if !OpenFlags::NONBLOCK.contains(flags) || call.int(0) <= 0 {
        return Err(Errno::EINVAL);
    }
    let process = match table::process(Pid(call.int(0))) {
        Some(process) => process,
        // The number of a thread that leads no process.
        None if table::find_process(call.int(0)).is_some() => return Err(Errno::EINVAL),
        None => return Err(Errno::ESRCH),
    };
    let file = ProcessFile::open(process, flags)?;
    let limit = call.process().limits.soft(Resource::Files);
    call.thread.files().insert(file, true, limit).map(|number| u64::from(number.unsigned_abs()))
}

/// `pidfd_send_signal(pidfd, signal, information, flags)`. An open `/proc/PID` will do as well.
pub async fn pidfd_send_signal(call: &Call) -> SysResult {
    if call.unsigned(3) != 0 {
        return Err(Errno::EINVAL);
    }
    let file = call.file(0)?;
    if file.is_path_only() {
        return Err(Errno::EBADF);
    }
    let target = &match ProcessFile::of(&file) {
        Ok(process) => process.clone(),
        Err(_) => procfs::process_of(file.inode().as_ref())?,
    };
    let number = call.int(1);
    let signal = match number {
        0 => None,
        number => Some(Signal::new(number)),
    };
    let information = match call.argument(2) {
        0 => None,
        address => {
            let raw: RawSignalInfo = call.user().read_value(address).await?;
            if raw.signal != number {
                return Err(Errno::EINVAL);
            }
            let pretends = raw.code >= 0 || raw.code == SI_TKILL;
            if pretends && !Arc::ptr_eq(target, call.process()) {
                return Err(Errno::EPERM);
            }
            Some(raw)
        }
    };
    if !pidfd::is_there(target) {
        return Err(Errno::ESRCH);
    }
    let signal = signal.map(|signal| signal.ok_or(Errno::EINVAL)).transpose()?;
    check_permission(call, target, None, signal)?;
    let Some(signal) = signal else { return Ok(0) };
    let information = match information {
        Some(raw) => SignalInfo::decode(signal, &raw),
        None => {
            let user = call.thread.credentials().user.real;
            SignalInfo::kill(signal, call.process().pid.0, user)
        }
    };
    signal::send_to_process(target, information).map(|()| 0)
}

/// `pidfd_getfd(pidfd, descriptor, flags)`
pub(super) fn pidfd_getfd(call: &Call) -> SysResult {
    if call.unsigned(2) != 0 {
        return Err(Errno::EINVAL);
    }
    let file = call.file(0)?;
    if file.is_path_only() {
        return Err(Errno::EBADF);
    }
    let target = ProcessFile::of(&file)?;
    let thread = target.main_thread().ok_or(Errno::ESRCH)?;
    let resources = Observer::of_call(&call.thread).look_into(&thread)?;
    let theirs = resources.files.get(call.int(1))?;
    let limit = call.process().limits.soft(Resource::Files);
    call.thread.files().insert(theirs, true, limit).map(|number| u64::from(number.unsigned_abs()))
}
