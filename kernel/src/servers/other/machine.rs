//! Calls about the machine and the kernel itself: restarting, ports, the kernel's log, modules.
//!
//! There are no modules, no swap devices and no segments of a program's own: what is left is who may ask,
//! and what Linux answers to questions that make no sense.

use abi::Errno;
use fs::NodeKind;
use hal::{Contract, Machine};

use crate::call::{Call, SysResult};
use crate::process::{Capability, session, system};

/// Commands of `reboot`.
mod reboot_command {
    pub const RESTART: u32 = 0x0123_4567;
    pub const RESTART_WITH: u32 = 0xa1b2_c3d4;
    pub const HALT: u32 = 0xcdef_0123;
    pub const POWER_OFF: u32 = 0x4321_fedc;
    pub const KEYS_ON: u32 = 0x89ab_cdef;
    pub const KEYS_OFF: u32 = 0;
    pub const SUSPEND: u32 = 0xd000_fce2;
    /// The first magic number, and those that the second may be.
    pub const FIRST: u32 = 0xfee1_dead;
    pub const SECOND: [u32; 4] = [672_274_793, 85_072_278, 369_367_448, 537_993_216];
}

/// `reboot(magic, magic, command, argument)`: whatever ends the machine switches it off.
pub async fn reboot(call: &Call) -> SysResult {
    use reboot_command::*;
    call.thread.credentials().require(Capability::Boot)?;
    if call.unsigned(0) != FIRST || !SECOND.contains(&call.unsigned(1)) {
        return Err(Errno::EINVAL);
    }
    match call.unsigned(2) {
        KEYS_ON | KEYS_OFF => return Ok(0),
        RESTART | HALT | POWER_OFF => {}
        RESTART_WITH => {
            const LONGEST_COMMAND: usize = 256;
            call.user().read_string(call.argument(3), LONGEST_COMMAND).await?;
        }
        // There is nothing to write the memory to.
        SUSPEND => return Err(Errno::EPERM),
        _ => return Err(Errno::EINVAL),
    }
    log::info!("process {} switches the machine off", call.process().pid);
    Machine::power_off()
}

/// Bytes of the log of the kernel, as `syslog` tells.
const LOG_SIZE: u64 = 1 << 17;

/// `syslog(action, buffer, length)`: the kernel's messages go to the log device and are not kept.
pub async fn syslog(call: &Call) -> SysResult {
    const READ: i32 = 2;
    const READ_ALL: i32 = 3;
    const READ_CLEAR: i32 = 4;
    const LEVEL: i32 = 8;
    const SIZE: i32 = 10;
    let action = call.int(0);
    let is_restricted = system::is_log_restricted() || !matches!(action, READ_ALL | SIZE);
    let credentials = call.thread.credentials();
    if is_restricted && !credentials.is_capable(Capability::Administer) {
        credentials.require(Capability::KernelLog)?;
    }
    let length = call.int(2);
    match action {
        READ | READ_ALL | READ_CLEAR => {
            if call.argument(1) == 0 || length < 0 {
                return Err(Errno::EINVAL);
            }
            if length == 0 || action != READ {
                return Ok(0);
            }
            let never = core::future::pending::<()>();
            call.thread.interruptible(never).await.map_err(|_| Errno::ERESTARTSYS)?;
            Ok(0)
        }
        LEVEL if !(1..=8).contains(&length) => Err(Errno::EINVAL),
        SIZE => Ok(LOG_SIZE),
        // Open, close, clear, the console's level, and what is unread.
        0 | 1 | 5..=9 => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// `vhangup()`
pub fn vhangup(call: &Call) -> SysResult {
    call.thread.credentials().require(Capability::TerminalConfiguration)?;
    let owner = call.process().session();
    if let Some(terminal) = session::terminal_of(owner) {
        terminal.hang_up();
        terminal.leave_session();
        session::set_terminal(owner, None);
    }
    Ok(0)
}

/// `iopl(level)`
pub fn iopl(call: &Call) -> SysResult {
    if call.unsigned(0) > 3 {
        return Err(Errno::EINVAL);
    }
    if call.unsigned(0) > 0 {
        call.thread.credentials().require(Capability::RawIo)?;
    }
    Ok(0)
}

/// `ioperm(first, count, on)`
pub fn ioperm(call: &Call) -> SysResult {
    const PORTS: u64 = 65536;
    let (first, count) = (call.argument(0), call.argument(1));
    let end = first.checked_add(count).filter(|end| *end > first && *end <= PORTS);
    end.ok_or(Errno::EINVAL)?;
    if call.int(2) != 0 {
        call.thread.credentials().require(Capability::RawIo)?;
    }
    Ok(0)
}

/// `modify_ldt(function, pointer, bytes)`: no segment can be written, so there are none to read.
pub async fn modify_ldt(call: &Call) -> SysResult {
    const READ: i32 = 0;
    const WRITE: i32 = 1;
    const READ_DEFAULT: i32 = 2;
    const WRITE_NEW: i32 = 0x11;
    /// Bytes of `struct user_desc`.
    const DESCRIPTION: u64 = 16;
    /// Bytes of the table that every program has.
    const DEFAULT: u64 = 128;
    let (pointer, bytes) = (call.argument(1), call.argument(2));
    match call.int(0) {
        READ => Ok(0),
        READ_DEFAULT => {
            let count = bytes.min(DEFAULT);
            call.user().write_zeros(pointer, count).await?;
            Ok(count)
        }
        WRITE | WRITE_NEW => {
            if bytes != DESCRIPTION {
                return Err(Errno::EINVAL);
            }
            call.user().read_vector(pointer, DESCRIPTION as usize).await?;
            Err(Errno::EINVAL)
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// `lookup_dcookie(cookie, buffer, length)`: nobody profiles.
pub fn lookup_dcookie(call: &Call) -> SysResult {
    call.thread.credentials().require(Capability::Administer)?;
    Err(Errno::EINVAL)
}

/// Bytes of the header of a module's file.
const MODULE_HEADER: u64 = 64;

/// `init_module(image, length, parameters)`
pub async fn init_module(call: &Call) -> SysResult {
    call.thread.credentials().require(Capability::Modules)?;
    if call.argument(1) < MODULE_HEADER {
        return Err(Errno::ENOEXEC);
    }
    call.user().read_vector(call.argument(0), MODULE_HEADER as usize).await?;
    // No module was made for this kernel.
    Err(Errno::ENOEXEC)
}

/// `finit_module(file, parameters, flags)`
pub fn finit_module(call: &Call) -> SysResult {
    const FLAGS: u32 = 7;
    call.thread.credentials().require(Capability::Modules)?;
    if call.unsigned(2) & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let file = call.file(0)?;
    if file.is_path_only() || !file.flags().reads() {
        return Err(Errno::EBADF);
    }
    if file.inode().kind() != NodeKind::Regular || file.inode().metadata().size == 0 {
        return Err(Errno::EINVAL);
    }
    Err(Errno::ENOEXEC)
}

/// `delete_module(name, flags)`
pub async fn delete_module(call: &Call) -> SysResult {
    const LONGEST_NAME: u64 = 56;
    call.thread.credentials().require(Capability::Modules)?;
    for offset in 0..LONGEST_NAME {
        let at = call.argument(0).checked_add(offset).ok_or(Errno::EFAULT)?;
        if call.user().read_value::<u8>(at).await? == 0 {
            break;
        }
    }
    Err(Errno::ENOENT)
}
