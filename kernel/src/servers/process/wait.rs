//! `wait4` and `waitid`: decoding, and what is written to the caller.

use abi::Errno;
use abi::process::*;
use abi::signal::Signal;
use zerocopy::IntoBytes;

use crate::call::{Call, SysResult};
use crate::process::Pid;
use crate::process::pidfd::{self, ProcessFile};
use crate::process::wait::{Found, WaitRequest, Which, usage_record, wait};
use crate::signal::SignalInfo;

const WAIT4_OPTIONS: i32 = WNOHANG | WUNTRACED | WCONTINUED | __WNOTHREAD | __WCLONE | __WALL;
const WAITID_OPTIONS: i32 = WAIT4_OPTIONS | WEXITED | WNOWAIT;
/// Bytes of `siginfo_t` that `waitid` writes: up to the status.
const INFO_SIZE: usize = 28;

/// `wait4(pid, status, options, usage)`
pub(super) async fn wait4(call: &Call) -> SysResult {
    let options = call.int(2);
    if options & !WAIT4_OPTIONS != 0 {
        return Err(Errno::EINVAL);
    }
    let which = match call.int(0) {
        i32::MIN => return Err(Errno::ESRCH),
        -1 => Which::Any,
        0 => Which::Group(call.process().group()),
        pid if pid < 0 => Which::Group(Pid(-pid)),
        pid => Which::Process(Pid(pid)),
    };
    let request = WaitRequest { which, options: options | WEXITED };
    let Some(found) = wait(&call.thread, request).await? else { return Ok(0) };
    let user = call.user();
    if call.argument(1) != 0 {
        user.write_value(call.argument(1), &found.status).await?;
    }
    if call.argument(3) != 0 {
        user.write_value(call.argument(3), &usage_record(&found.usage)).await?;
    }
    Ok(found.pid.to_value())
}

/// `waitid(kind, id, information, options, usage)`
pub(super) async fn waitid(call: &Call) -> SysResult {
    let options = call.int(3);
    if options & !WAITID_OPTIONS != 0 || options & (WEXITED | WSTOPPED | WCONTINUED) == 0 {
        return Err(Errno::EINVAL);
    }
    let id = call.int(1);
    let mut refuses_to_wait = false;
    let which = match call.int(0) {
        P_ALL => Which::Any,
        P_PID if id > 0 => Which::Process(Pid(id)),
        P_PGID if id == 0 => Which::Group(call.process().group()),
        P_PGID if id > 0 => Which::Group(Pid(id)),
        P_PIDFD if id >= 0 => {
            let file = call.thread.files().get(id)?;
            let process = ProcessFile::of(&file)?;
            // The number may be another's by now.
            if !pidfd::is_there(process) {
                return Err(Errno::ECHILD);
            }
            refuses_to_wait = file.is_nonblocking() && options & WNOHANG == 0;
            Which::Process(process.pid)
        }
        _ => return Err(Errno::EINVAL),
    };
    let at_once = if refuses_to_wait { WNOHANG } else { 0 };
    let found = wait(&call.thread, WaitRequest { which, options: options | at_once }).await?;
    if refuses_to_wait && found.is_none() {
        return Err(Errno::EAGAIN);
    }
    let user = call.user();
    if let (Some(found), true) = (&found, call.argument(4) != 0) {
        user.write_value(call.argument(4), &usage_record(&found.usage)).await?;
    }
    if call.argument(2) != 0 {
        let record = information(found.as_ref());
        user.write_bytes(call.argument(2), &record).await?;
    }
    Ok(0)
}

fn information(found: Option<&Found>) -> [u8; INFO_SIZE] {
    let mut record = [0; INFO_SIZE];
    if let Some(found) = found {
        let info = SignalInfo::child_with_signal(
            Signal::SIGCHLD,
            found.code,
            found.pid.0,
            found.user,
            found.value,
            0,
            0,
        );
        let raw = info.encode();
        for (to, from) in record.iter_mut().zip(raw.as_bytes()) {
            *to = *from;
        }
    }
    record
}
