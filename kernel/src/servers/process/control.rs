//! `prctl` and `personality`.

use abi::Errno;
use abi::process::prctl::*;
use abi::signal::Signal;
use core::sync::atomic::Ordering;

use crate::call::{Call, SysResult};
use crate::process::credentials::{
    ALL_CAPABILITIES, Capability, Credentials, LAST_CAPABILITY, secure_bits,
};
use crate::process::thread::NAME_SIZE;

/// `PR_CAP_AMBIENT` operations.
const AMBIENT_IS_SET: u64 = 1;
const AMBIENT_RAISE: u64 = 2;
const AMBIENT_LOWER: u64 = 3;
const AMBIENT_CLEAR_ALL: u64 = 4;
/// `PR_TSC_ENABLE`: reading the cycle counter is permitted.
const TSC_ENABLE: i32 = 1;
/// `PR_TIMING_STATISTICAL`.
const TIMING_STATISTICAL: u64 = 0;
/// `PR_SET_VMA_ANON_NAME`.
const VMA_ANONYMOUS_NAME: u64 = 0;
/// `PR_MCE_KILL`: back to the default, or to a policy up to the default.
const MACHINE_CHECK_CLEAR: u64 = 0;
const MACHINE_CHECK_SET: u64 = 1;
const MACHINE_CHECK_DEFAULT: u64 = 2;
/// Kinds of speculation that can be asked about.
const SPECULATIONS: u64 = 3;
/// Operations of `PR_SET_MM` that take a length.
const MEMORY_AUXV: u64 = 12;
const MEMORY_MAP: u64 = 14;
const MEMORY_MAP_SIZE: u64 = 15;
/// Asks for the personality without setting it.
const PERSONALITY_QUERY: u32 = u32::MAX;

/// `prctl(operation, ...)`
pub(super) async fn prctl(call: &Call) -> SysResult {
    let thread = &call.thread;
    let process = call.process();
    let argument = call.argument(1);
    let rest = [call.argument(2), call.argument(3), call.argument(4)];
    let no_rest = if rest == [0; 3] { Ok(()) } else { Err(Errno::EINVAL) };
    match call.int(0) {
        PR_SET_NAME => {
            let name = first_bytes(call, argument).await?;
            thread.set_name(&name);
        }
        PR_GET_NAME => call.user().write_value(argument, &thread.name()).await?,
        PR_SET_PDEATHSIG => {
            let number = i32::try_from(argument).map_err(|_| Errno::EINVAL)?;
            if number != 0 && Signal::new(number).is_none() {
                return Err(Errno::EINVAL);
            }
            thread.parent_death_signal.store(number, Ordering::Relaxed);
        }
        PR_GET_PDEATHSIG => {
            let number = thread.parent_death_signal.load(Ordering::Relaxed);
            call.user().write_value(argument, &number).await?;
        }
        PR_GET_DUMPABLE => return Ok(u64::from(thread.space().is_dumpable())),
        PR_SET_DUMPABLE => match u32::try_from(argument) {
            Ok(value @ (0 | 1)) => thread.space().set_dumpable(value == 1),
            _ => return Err(Errno::EINVAL),
        },
        PR_GET_KEEPCAPS | PR_SET_KEEPCAPS | PR_GET_SECUREBITS | PR_SET_SECUREBITS
        | PR_CAPBSET_READ | PR_CAPBSET_DROP | PR_CAP_AMBIENT | PR_SET_NO_NEW_PRIVS
        | PR_GET_NO_NEW_PRIVS => return privileges(call, argument, rest),
        PR_SET_TIMERSLACK => {
            let slack_ns = match argument.cast_signed() {
                ..=0 => thread.first_timer_slack_ns,
                _ => argument,
            };
            thread.timer_slack_ns.store(slack_ns, Ordering::Relaxed);
        }
        PR_GET_TIMERSLACK => return Ok(thread.timer_slack_ns.load(Ordering::Relaxed)),
        PR_SET_CHILD_SUBREAPER => process.is_subreaper.store(argument != 0, Ordering::Relaxed),
        PR_GET_CHILD_SUBREAPER => {
            let value = i32::from(process.is_subreaper.load(Ordering::Relaxed));
            call.user().write_value(argument, &value).await?;
        }
        PR_GET_TID_ADDRESS => {
            let address = thread.clear_child_tid.load(Ordering::Relaxed);
            call.user().write_value(argument, &address).await?;
        }
        PR_GET_TSC => call.user().write_value(argument, &TSC_ENABLE).await?,
        PR_SET_TSC if argument == u64::from(TSC_ENABLE.unsigned_abs()) => {}
        PR_GET_TIMING => {}
        PR_SET_TIMING if argument == TIMING_STATISTICAL => {}
        PR_GET_THP_DISABLE if argument == 0 => {
            no_rest?;
            return Ok(u64::from(process.refuses_huge_pages.load(Ordering::Relaxed)));
        }
        PR_SET_THP_DISABLE => {
            no_rest?;
            process.refuses_huge_pages.store(argument != 0, Ordering::Relaxed);
        }
        // Nobody counts events of the processor.
        PR_TASK_PERF_EVENTS_DISABLE | PR_TASK_PERF_EVENTS_ENABLE => {}
        PR_MCE_KILL => {
            let [policy, third, fourth] = rest;
            let is_known = match argument {
                MACHINE_CHECK_CLEAR => policy == 0,
                MACHINE_CHECK_SET => policy <= MACHINE_CHECK_DEFAULT,
                _ => false,
            };
            if third | fourth != 0 || !is_known {
                return Err(Errno::EINVAL);
            }
            let policy = if argument == MACHINE_CHECK_SET { policy } else { MACHINE_CHECK_DEFAULT };
            process.machine_check_policy.store(policy as u32, Ordering::Relaxed);
        }
        PR_MCE_KILL_GET if argument == 0 => {
            no_rest?;
            return Ok(u64::from(process.machine_check_policy.load(Ordering::Relaxed)));
        }
        PR_GET_SPECULATION_CTRL => {
            no_rest?;
            // The processor is told of as not affected.
            return if argument < SPECULATIONS { Ok(0) } else { Err(Errno::ENODEV) };
        }
        PR_SET_SPECULATION_CTRL => {
            let [control, third, fourth] = rest;
            if third | fourth != 0 {
                return Err(Errno::EINVAL);
            }
            if argument >= SPECULATIONS {
                return Err(Errno::ENODEV);
            }
            let is_known = matches!(control, 2 | 4 | 8 | 16);
            return Err(if is_known { Errno::ENXIO } else { Errno::ERANGE });
        }
        PR_SET_IO_FLUSHER | PR_GET_IO_FLUSHER => {
            thread.credentials().require(Capability::Resource)?;
            let is_get = call.int(0) == PR_GET_IO_FLUSHER;
            if rest != [0; 3] || argument > u64::from(!is_get) {
                return Err(Errno::EINVAL);
            }
            if is_get {
                return Ok(u64::from(process.flushes.load(Ordering::Relaxed)));
            }
            process.flushes.store(argument == 1, Ordering::Relaxed);
        }
        PR_SET_MM => {
            let [_, third, fourth] = rest;
            let takes_length = matches!(argument, MEMORY_AUXV | MEMORY_MAP | MEMORY_MAP_SIZE);
            if fourth != 0 || (third != 0 && !takes_length) {
                return Err(Errno::EINVAL);
            }
            thread.credentials().require(Capability::Resource)?;
            return Err(Errno::EINVAL);
        }
        PR_GET_SECCOMP => return Ok(u64::from(thread.restrictions.mode())),
        PR_SET_SECCOMP => return super::seccomp::set_mode(call, argument, rest[0]).await,
        // Names of anonymous areas are for show alone; taking them saves allocators a warning.
        PR_SET_VMA if argument == VMA_ANONYMOUS_NAME => {}
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// Up to a name's length of bytes, as far as they can be read before the first zero.
async fn first_bytes(call: &Call, address: u64) -> Result<alloc::vec::Vec<u8>, Errno> {
    let mut name = alloc::vec::Vec::with_capacity(NAME_SIZE);
    for offset in 0..NAME_SIZE as u64 - 1 {
        let at = address.checked_add(offset).ok_or(Errno::EFAULT)?;
        match call.user().read_value::<u8>(at).await? {
            0 => break,
            byte => name.push(byte),
        }
    }
    Ok(name)
}

/// The operations that read or change credentials.
fn privileges(call: &Call, argument: u64, rest: [u64; 3]) -> SysResult {
    let old = call.thread.credentials();
    let mut new = (*old).clone();
    match call.int(0) {
        PR_GET_KEEPCAPS => {
            return Ok(u64::from(old.secure_bits & secure_bits::KEEP_CAPABILITIES != 0));
        }
        PR_SET_KEEPCAPS => match argument {
            0 => new.secure_bits &= !secure_bits::KEEP_CAPABILITIES,
            1 => new.secure_bits |= secure_bits::KEEP_CAPABILITIES,
            _ => return Err(Errno::EINVAL),
        },
        PR_GET_SECUREBITS => return Ok(u64::from(old.secure_bits)),
        PR_SET_SECUREBITS => {
            let bits = u32::try_from(argument).map_err(|_| Errno::EPERM)?;
            let locked = (old.secure_bits & secure_bits::LOCKS) >> 1;
            if bits & !secure_bits::ALL != 0
                || (bits ^ old.secure_bits) & locked != 0
                || old.secure_bits & secure_bits::LOCKS & !bits != 0
            {
                return Err(Errno::EPERM);
            }
            old.require(Capability::SetCapabilities)?;
            new.secure_bits = bits;
        }
        PR_CAPBSET_READ => {
            let bit = capability_bit(argument)?;
            return Ok(u64::from(old.capabilities.bounding & bit != 0));
        }
        PR_CAPBSET_DROP => {
            old.require(Capability::SetCapabilities)?;
            new.capabilities.bounding &= !capability_bit(argument)?;
        }
        PR_SET_NO_NEW_PRIVS => {
            if argument != 1 || rest != [0; 3] {
                return Err(Errno::EINVAL);
            }
            new.no_new_privileges = true;
        }
        PR_GET_NO_NEW_PRIVS => {
            if argument != 0 || rest != [0; 3] {
                return Err(Errno::EINVAL);
            }
            return Ok(u64::from(old.no_new_privileges));
        }
        _ => return ambient(call, new, argument, rest),
    }
    call.thread.set_credentials(new);
    Ok(0)
}

fn ambient(call: &Call, mut new: Credentials, operation: u64, rest: [u64; 3]) -> SysResult {
    let [capability, third, fourth] = rest;
    if third | fourth != 0 || (operation == AMBIENT_CLEAR_ALL && capability != 0) {
        return Err(Errno::EINVAL);
    }
    let sets = &mut new.capabilities;
    match operation {
        AMBIENT_CLEAR_ALL => sets.ambient = 0,
        AMBIENT_IS_SET => {
            return Ok(u64::from(sets.ambient & capability_bit(capability)? != 0));
        }
        AMBIENT_RAISE => {
            let bit = capability_bit(capability)?;
            if sets.permitted & sets.inheritable & bit == 0
                || new.secure_bits & secure_bits::NO_AMBIENT_RAISE != 0
            {
                return Err(Errno::EPERM);
            }
            sets.ambient |= bit;
        }
        AMBIENT_LOWER => sets.ambient &= !capability_bit(capability)?,
        _ => return Err(Errno::EINVAL),
    }
    call.thread.set_credentials(new);
    Ok(0)
}

fn capability_bit(number: u64) -> Result<u64, Errno> {
    if number > u64::from(LAST_CAPABILITY) {
        return Err(Errno::EINVAL);
    }
    Ok(1 << number & ALL_CAPABILITIES)
}

/// `personality(persona)`
pub(super) fn personality(call: &Call) -> SysResult {
    let wanted = call.unsigned(0);
    let personality = &call.process().personality;
    let old = match wanted {
        PERSONALITY_QUERY => personality.load(Ordering::Relaxed),
        _ => personality.swap(wanted, Ordering::Relaxed),
    };
    Ok(u64::from(old))
}
