//! Calls of class other: names and facts of the system, random bytes.

mod keys;
mod machine;

use abi::Errno;
use abi::process::{GRND_INSECURE, GRND_NONBLOCK, GRND_RANDOM, NAME_LENGTH, SystemInfo};
use alloc::vec;
use base::memory::frame_counts;
use core::sync::atomic::Ordering;
use hal::PAGE_SIZE;
use policy::table::number;

use crate::call::{self, Call, Pace, SysResult};
use crate::posted;
use crate::process::namespace::HostNames;
use crate::process::{Capability, system, table};

/// Random bytes that are made at a time.
const RANDOM_PIECE: usize = 4096;
/// Pages that can be copied while one of random bytes is made, roughly.
const RANDOM_WORK: u64 = 32;
/// Most bytes of one `getrandom`, as on Linux.
const RANDOM_LIMIT: u64 = i32::MAX as u64;

/// Carries out a call of this class.
pub async fn serve(call: &Call) -> SysResult {
    match call.number() {
        number::uname => {
            call.user()
                .write_value(call.argument(0), &system::names(&call.thread.namespaces().names))
                .await?;
            Ok(0)
        }
        number::sysinfo => sysinfo(call).await,
        number::sethostname => set_name(call, system::set_host_name).await,
        number::setdomainname => set_name(call, system::set_domain_name).await,
        number::getcpu => getcpu(call).await,
        number::getrandom => getrandom(call).await,
        number::reboot => machine::reboot(call).await,
        number::syslog => machine::syslog(call).await,
        number::vhangup => machine::vhangup(call),
        number::iopl => machine::iopl(call),
        number::ioperm => machine::ioperm(call),
        number::modify_ldt => machine::modify_ldt(call).await,
        number::lookup_dcookie => machine::lookup_dcookie(call),
        number::init_module => machine::init_module(call).await,
        number::finit_module => machine::finit_module(call),
        number::delete_module => machine::delete_module(call).await,
        number::add_key => keys::add_key(call).await,
        number::request_key => keys::request_key(call).await,
        number::keyctl => alloc::boxed::Box::pin(keys::keyctl(call)).await,
        number::ferry_wait | number::ferry_cancel => posted::serve(call).await,
        _ => Err(call::unknown(call.number())),
    }
}

async fn sysinfo(call: &Call) -> SysResult {
    let frames = frame_counts();
    let bytes = |frames: usize| frames as u64 * PAGE_SIZE as u64;
    let info = SystemInfo {
        uptime_seconds: (base::time::now_ns().div_ceil(1_000_000_000)).cast_signed(),
        // The call has 16 fraction bits, the averages have 11.
        loads: system::load_averages().map(|load| load << 5),
        total_memory: bytes(frames.total),
        free_memory: bytes(frames.free),
        processes: u16::try_from(table::counts().threads).unwrap_or(u16::MAX),
        memory_unit: 1,
        ..SystemInfo::default()
    };
    call.user().write_value(call.argument(0), &info).await?;
    Ok(0)
}

async fn set_name(call: &Call, set: fn(&HostNames, &[u8])) -> SysResult {
    call.thread.credentials().require(Capability::Administer)?;
    let length = usize::try_from(call.int(1)).map_err(|_| Errno::EINVAL)?;
    if length >= NAME_LENGTH {
        return Err(Errno::EINVAL);
    }
    let mut name = [0; NAME_LENGTH];
    let name = name.get_mut(..length).unwrap_or_default();
    call.user().read_bytes(call.argument(0), name).await?;
    set(&call.thread.namespaces().names, name);
    Ok(0)
}

/// The caller's core is the one that holds its task, wherever this call is carried out.
async fn getcpu(call: &Call) -> SysResult {
    let core = u32::try_from(call.thread.core.load(Ordering::Relaxed)).unwrap_or(0);
    if call.argument(0) != 0 {
        call.user().write_value(call.argument(0), &core).await?;
    }
    if call.argument(1) != 0 {
        call.user().write_value(call.argument(1), &0_u32).await?;
    }
    Ok(0)
}

async fn getrandom(call: &Call) -> SysResult {
    let flags = call.unsigned(2);
    if flags & !(GRND_NONBLOCK | GRND_RANDOM | GRND_INSECURE) != 0
        || flags & (GRND_RANDOM | GRND_INSECURE) == GRND_RANDOM | GRND_INSECURE
    {
        return Err(Errno::EINVAL);
    }
    let length = call.argument(1).min(RANDOM_LIMIT);
    let mut piece = vec![0; RANDOM_PIECE.min(usize::try_from(length).unwrap_or(RANDOM_PIECE))];
    let mut pace = Pace::new();
    let mut done = 0;
    while done < length {
        let rest = usize::try_from(length - done).unwrap_or(RANDOM_PIECE).min(piece.len());
        let Some(bytes) = piece.get_mut(..rest) else { break };
        base::random::fill(bytes);
        let target = call.argument(0).checked_add(done).ok_or(Errno::EFAULT)?;
        match call.user().write_bytes(target, bytes).await {
            Ok(()) => done += rest as u64,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
        let is_killed = pace.spend(&call.thread, RANDOM_WORK).await.is_err();
        if is_killed || (done < length && call.thread.has_attention()) {
            break;
        }
    }
    Ok(done)
}
