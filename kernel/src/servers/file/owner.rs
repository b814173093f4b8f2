//! Who is told of files by signal: `F_SETOWN` and its kin, `F_NOTIFY`, and the sending.

use abi::Errno;
use abi::fs::fcntl::*;
use abi::fs::notify::Events;
use abi::signal::{SI_SIGIO, Signal};
use alloc::sync::Arc;
use fs::file::{Owner, OwnerKind, Reason};
use fs::{NodeKind, OpenFile, notify as watches};

use crate::call::{Call, SysResult};
use crate::process::{Pid, Process, Tid, table};
use crate::signal::{self, SignalInfo};

/// Whether there is anything of that number, as whatever it is wanted for.
fn exists(id: i32) -> bool {
    table::find_process(id).is_some()
        || table::thread(Tid(id)).is_some()
        || !table::group_members(Pid(id)).is_empty()
}

/// Whether the owner is still there as what it was named as.
fn is_there(owner: &Owner) -> bool {
    match owner.kind {
        OwnerKind::Thread => table::thread(Tid(owner.id)).is_some(),
        OwnerKind::Process => table::find_process(owner.id).is_some(),
        OwnerKind::Group => !table::group_members(Pid(owner.id)).is_empty(),
    }
}

fn change(call: &Call, file: &OpenFile, kind: OwnerKind, id: i32) -> SysResult {
    if id != 0 && !exists(id) {
        return Err(Errno::ESRCH);
    }
    let user = call.thread.credentials().user;
    file.set_owner(&Owner { kind, id, users: [user.real, user.effective] });
    Ok(0)
}

/// `F_SETOWN`: a negative number names a group.
pub fn set(call: &Call, file: &OpenFile, id: i32) -> SysResult {
    if id >= 0 {
        return change(call, file, OwnerKind::Process, id);
    }
    change(call, file, OwnerKind::Group, id.checked_neg().ok_or(Errno::EINVAL)?)
}

/// `F_GETOWN`.
pub fn get(file: &OpenFile) -> SysResult {
    let owner = file.owner();
    let id = if is_there(&owner) { i64::from(owner.id) } else { 0 };
    Ok(if owner.kind == OwnerKind::Group { -id } else { id }.cast_unsigned())
}

/// `F_SETOWN_EX`.
pub async fn set_extended(call: &Call, file: &OpenFile, address: u64) -> SysResult {
    let [kind, id]: [i32; 2] = call.user().read_value(address).await?;
    let kind = OwnerKind::from_number(kind).ok_or(Errno::EINVAL)?;
    change(call, file, kind, id)
}

/// `F_GETOWN_EX`.
pub async fn get_extended(call: &Call, file: &OpenFile, address: u64) -> SysResult {
    let owner = file.owner();
    let id = if is_there(&owner) { owner.id } else { 0 };
    call.user().write_value(address, &[owner.kind.number(), id]).await?;
    Ok(0)
}

/// `F_NOTIFY`: the caller becomes the owner, and is told of what happens in the directory.
pub fn notify(call: &Call, file: &Arc<OpenFile>, mask: u32) -> SysResult {
    let pairs = [
        (DN_ACCESS, Events::ACCESS),
        (DN_MODIFY, Events::MODIFY),
        (DN_CREATE, Events::CREATE | Events::MOVED_TO),
        (DN_DELETE, Events::DELETE | Events::MOVED_FROM),
        (DN_RENAME, Events::RENAMED),
        (DN_ATTRIB, Events::ATTRIB),
        (DN_MULTISHOT, Events::MULTISHOT),
    ];
    let asked = pairs.into_iter().filter(|(bit, _)| mask & bit != 0);
    let wanted = asked.fold(Events::empty(), |all, (_, events)| all | events);
    let files = call.thread.files().number();
    if mask & !DN_MULTISHOT != 0 {
        if file.inode().kind() != NodeKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        change(call, file, OwnerKind::Process, call.process().pid.0)?;
    }
    watches::notify_of_directory(file, files, call.int(0), wanted);
    Ok(0)
}

/// Sends an owner the signal that it asked for, or `SIGIO`, as far as who set the owner may.
pub fn tell(owner: &Owner, signal: i32, descriptor: i32, reason: Reason) {
    let of_process = |process: &Arc<Process>| {
        if may_signal(owner, process) {
            send(signal, descriptor, reason, |info| signal::send_to_process(process, info));
        }
    };
    match owner.kind {
        OwnerKind::Thread => {
            let thread = table::thread(Tid(owner.id));
            if let Some(thread) = thread.filter(|thread| may_signal(owner, &thread.process)) {
                send(signal, descriptor, reason, |info| signal::send_to_thread(&thread, info));
            }
        }
        OwnerKind::Process => {
            if let Some(process) = table::find_process(owner.id) {
                of_process(&process);
            }
        }
        OwnerKind::Group => table::group_members(Pid(owner.id)).iter().for_each(of_process),
    }
}

fn may_signal(owner: &Owner, process: &Arc<Process>) -> bool {
    let [real, effective] = owner.users;
    let Some(target) = process.main_thread().map(|thread| thread.credentials().user) else {
        return false;
    };
    let matches = |user: u32| user == target.real || user == target.saved;
    effective == 0 || matches(effective) || matches(real)
}

fn send(
    signal: i32,
    descriptor: i32,
    reason: Reason,
    deliver: impl Fn(SignalInfo) -> Result<(), Errno>,
) {
    if reason == Reason::Urgent {
        // A process that cannot be told looks when it receives.
        let _ = deliver(SignalInfo::kernel(Signal::SIGURG));
        return;
    }
    if let Some(chosen) = Signal::new(signal) {
        // The codes of these signals mean something else.
        let has_codes = [
            Signal::SIGILL,
            Signal::SIGFPE,
            Signal::SIGSEGV,
            Signal::SIGBUS,
            Signal::SIGTRAP,
            Signal::SIGCHLD,
        ];
        let code = if has_codes.contains(&chosen) { SI_SIGIO } else { reason as i32 };
        let info = SignalInfo::file(chosen, code, reason.band().bits(), descriptor);
        if deliver(info).is_ok() {
            return;
        }
    }
    // With its queue full the owner gets at least this one, of which one is kept always.
    let _ = deliver(SignalInfo::kernel(Signal::SIGIO));
}
