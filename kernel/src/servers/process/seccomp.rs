//! `seccomp`, and the operations of `prctl` that do the same.

use abi::Errno;
use alloc::vec::Vec;
use zerocopy::FromBytes;

use crate::call::{Call, SysResult};
use crate::process::Capability;
use crate::process::seccomp::{
    self, ALLOW, ERRNO, Instruction, KILL_PROCESS, KILL_THREAD, LOG, MOST_INSTRUCTIONS, Program,
    TRACE, TRAP,
};

const SET_STRICT: u32 = 0;
const SET_FILTER: u32 = 1;
const GET_ACTION: u32 = 2;
const GET_SIZES: u32 = 3;

/// All threads of the process get the filter.
const FOR_ALL: u32 = 1;
/// Verdicts are logged; there is no log of them.
const LOGS: u32 = 2;
/// Speculation stays allowed, as it is always.
const SPECULATES: u32 = 4;
/// A failure of `FOR_ALL` is told as `ESRCH`.
const PLAIN_ERROR: u32 = 16;

/// `struct sock_fprog`
#[derive(FromBytes)]
#[repr(C)]
struct ProgramHeader {
    count: u16,
    padding: [u16; 3],
    address: u64,
}

/// Bytes of a notification, its answer and a record, for a listener.
const SIZES: [u16; 3] = [80, 24, 64];

/// `seccomp(operation, flags, arguments)`
pub(super) async fn seccomp(call: &Call) -> SysResult {
    let (operation, flags, address) = (call.unsigned(0), call.unsigned(1), call.argument(2));
    match operation {
        SET_STRICT if flags == 0 && address == 0 => be_strict(call),
        SET_FILTER => add_filter(call, flags, address).await,
        GET_ACTION if flags == 0 => {
            let action: u32 = call.user().read_value(address).await?;
            match action {
                KILL_PROCESS | KILL_THREAD | TRAP | ERRNO | TRACE | LOG | ALLOW => Ok(0),
                _ => Err(Errno::EOPNOTSUPP),
            }
        }
        GET_SIZES if flags == 0 => {
            call.user().write_value(address, &SIZES).await?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `prctl(PR_SET_SECCOMP, mode, program)`
pub(super) async fn set_mode(call: &Call, mode: u64, address: u64) -> SysResult {
    match mode {
        1 => be_strict(call),
        2 => add_filter(call, 0, address).await,
        _ => Err(Errno::EINVAL),
    }
}

fn be_strict(call: &Call) -> SysResult {
    call.thread.restrictions.be_strict()?;
    call.thread.signals.raise_attention();
    Ok(0)
}

async fn add_filter(call: &Call, flags: u32, address: u64) -> SysResult {
    if flags & !(FOR_ALL | LOGS | SPECULATES | PLAIN_ERROR) != 0 {
        return Err(Errno::EINVAL);
    }
    let header: ProgramHeader = call.user().read_value(address).await?;
    let count = usize::from(header.count);
    if !(1..=MOST_INSTRUCTIONS).contains(&count) {
        return Err(Errno::EINVAL);
    }
    let credentials = call.thread.credentials();
    if !credentials.no_new_privileges && !credentials.is_capable(Capability::Administer) {
        return Err(Errno::EACCES);
    }
    let instructions: Vec<Instruction> = call.user().read_array(header.address, count).await?;
    let program = Program::check(instructions)?;
    let is_for_all = flags & FOR_ALL != 0;
    if is_for_all && let Err(stranger) = seccomp::can_spread(&call.thread) {
        let is_plain = flags & PLAIN_ERROR != 0;
        return if is_plain { Err(Errno::ESRCH) } else { Ok(u64::from(stranger.unsigned_abs())) };
    }
    call.thread.restrictions.add(program)?;
    if is_for_all {
        seccomp::spread(&call.thread);
    }
    call.thread.signals.raise_attention();
    Ok(0)
}
