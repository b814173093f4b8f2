//! Calls of class process: life, identity, limits, scheduling, control of processes and threads.

mod attributes;
mod capabilities;
mod compare;
mod control;
mod groups;
mod identity;
mod io_priority;
mod limits;
mod pidfd;
mod ptrace;
mod schedule;
mod seccomp;
mod wait;

use core::sync::atomic::Ordering;

use abi::Errno;
use abi::process::{
    ARCH_GET_CPUID, ARCH_GET_FS, ARCH_GET_GS, ARCH_SET_CPUID, ARCH_SET_FS, ARCH_SET_GS,
    CLONE_FILES, CLONE_FS, CLONE_NAMESPACES, CLONE_NEWNS, CLONE_SIGHAND, CLONE_SYSVSEM,
    CLONE_THREAD, CLONE_VM,
};
pub use pidfd::pidfd_send_signal;

use alloc::sync::Arc;
use alloc::vec::Vec;
use base::user::UserContext;
use hal::{Contract, Machine, UserContext as _};
use policy::table::number;

use crate::call::{self, Call, SysResult};
use crate::posted::trampoline;
use crate::process::access::Observer;
use crate::process::namespace::{self, Kind, NamespaceFile};
use crate::process::pidfd::ProcessFile;
use crate::process::{Capability, Tid, exec, exit, fork, rseq, table};

/// Carries out a call of this class that may run on any core.
pub async fn serve(call: &Call) -> SysResult {
    match call.number() {
        number::getpid => Ok(call.process().pid.to_value()),
        number::gettid => Ok(call.thread.tid().to_value()),
        number::getppid => Ok(call.process().parent_pid().to_value()),
        number::set_tid_address => set_tid_address(call),
        number::set_robust_list => set_robust_list(call),
        number::get_robust_list => get_robust_list(call).await,
        number::wait4 => wait::wait4(call).await,
        number::waitid => wait::waitid(call).await,
        number::pidfd_open => pidfd::pidfd_open(call),
        number::pidfd_getfd => pidfd::pidfd_getfd(call),
        number::getpgrp => Ok(call.process().group().to_value()),
        number::getpgid => groups::getpgid(call),
        number::setpgid => groups::setpgid(call),
        number::getsid => groups::getsid(call),
        number::setsid => groups::setsid(call),
        number::getuid
        | number::geteuid
        | number::getgid
        | number::getegid
        | number::setuid
        | number::setgid
        | number::setreuid
        | number::setregid
        | number::setresuid
        | number::setresgid
        | number::getresuid
        | number::getresgid
        | number::setfsuid
        | number::setfsgid
        | number::getgroups
        | number::setgroups => identity::serve(call).await,
        number::capget => capabilities::capget(call).await,
        number::capset => capabilities::capset(call).await,
        number::getrlimit => limits::getrlimit(call).await,
        number::setrlimit => limits::setrlimit(call).await,
        number::prlimit64 => limits::prlimit64(call).await,
        number::getrusage => limits::getrusage(call).await,
        number::prctl => control::prctl(call).await,
        number::seccomp => seccomp::seccomp(call).await,
        number::personality => control::personality(call),
        number::unshare => unshare(call).await,
        number::setns => setns(call),
        number::acct => crate::servers::file::acct(call).await,
        number::kcmp => compare::kcmp(call).await,
        number::ptrace => ptrace::ptrace(call).await,
        number::rseq => rseq::rseq(call).await,
        number::ioprio_get => io_priority::ioprio_get(call),
        number::ioprio_set => io_priority::ioprio_set(call),
        number::sched_setattr => attributes::set(call).await,
        number::sched_getattr => attributes::get(call).await,
        _ => schedule::serve(call).await,
    }
}

/// Carries out a call of this class that changes the caller's own control flow.
pub async fn serve_local(call: &Call, context: &mut UserContext) -> SysResult {
    match call.number() {
        number::fork => fork::fork(call, context).await,
        number::vfork => fork::vfork(call, context).await,
        number::clone => fork::clone(call, context).await,
        number::clone3 => fork::clone3(call, context).await,
        number::execve => exec::execve(call, context).await,
        number::execveat => exec::execveat(call, context).await,
        number::exit => {
            call.thread.request_exit(exit::exit_status(call.int(0)));
            Ok(0)
        }
        number::exit_group => {
            call.process().request_group_exit(exit::exit_status(call.int(0)));
            Ok(0)
        }
        number::arch_prctl => arch_prctl(call, context).await,
        number::sched_yield => {
            base::task::yield_now().await;
            Ok(0)
        }
        _ => Err(call::unknown(call.number())),
    }
}

fn set_tid_address(call: &Call) -> SysResult {
    call.thread.clear_child_tid.store(call.argument(0), Ordering::Relaxed);
    Ok(call.thread.tid().to_value())
}

/// Bytes of `struct robust_list_head`.
const ROBUST_LIST_HEAD_SIZE: u64 = 24;

fn set_robust_list(call: &Call) -> SysResult {
    if call.argument(1) != ROBUST_LIST_HEAD_SIZE {
        return Err(Errno::EINVAL);
    }
    call.thread.robust_list.store(call.argument(0), Ordering::Relaxed);
    Ok(0)
}

async fn get_robust_list(call: &Call) -> SysResult {
    let thread = match call.int(0) {
        0 => call.thread.clone(),
        tid => table::thread_or_init(Tid(tid)).ok_or(Errno::ESRCH)?,
    };
    if !Arc::ptr_eq(&thread.process, call.process()) {
        Observer::of_call(&call.thread).look_into(&thread)?;
    }
    let head = thread.robust_list.load(Ordering::Relaxed);
    call.user().write_value(call.argument(2), &ROBUST_LIST_HEAD_SIZE).await?;
    call.user().write_value(call.argument(1), &head).await?;
    Ok(0)
}

async fn arch_prctl(call: &Call, context: &mut UserContext) -> SysResult {
    let address = call.argument(1);
    match call.int(0) {
        ARCH_SET_FS | ARCH_SET_GS if address >= Machine::USER_END => Err(Errno::EPERM),
        ARCH_SET_FS => {
            context.set_thread_pointer(address);
            Ok(0)
        }
        ARCH_SET_GS => {
            trampoline::give_up(&call.thread, &call.thread.space()).await;
            context.set_second_pointer(address);
            Ok(0)
        }
        ARCH_GET_FS => {
            call.user().write_value(address, &context.thread_pointer()).await?;
            Ok(0)
        }
        ARCH_GET_GS => {
            call.user()
                .write_value(address, &trampoline::second_pointer(&call.thread.space(), context))
                .await?;
            Ok(0)
        }
        // `cpuid` is always permitted, and forbidding it is not possible.
        ARCH_GET_CPUID => Ok(1),
        ARCH_SET_CPUID => Err(Errno::ENODEV),
        _ => Err(Errno::EINVAL),
    }
}

async fn unshare(call: &Call) -> SysResult {
    let mut flags = call.argument(0);
    if flags & CLONE_NEWNS != 0 {
        flags |= CLONE_FS;
    }
    // Nothing to be done by a thread that is alone, impossible to another.
    let alone = CLONE_THREAD | CLONE_SIGHAND | CLONE_VM;
    let known = CLONE_FILES | CLONE_FS | CLONE_SYSVSEM | alone;
    let is_alone = call.process().thread_count() == 1;
    if flags & !(known | CLONE_NAMESPACES) != 0 || (flags & alone != 0 && !is_alone) {
        return Err(Errno::EINVAL);
    }
    if flags & CLONE_NAMESPACES != 0 {
        namespace::check_new(&call.thread, flags)?;
    }
    if flags & CLONE_SYSVSEM != 0 {
        crate::ipc::undo::leave(&call.thread);
    }
    if flags & CLONE_FILES != 0 {
        let own = call.thread.files().duplicate_in_turns(u32::MAX).await?;
        drop(call.thread.set_files(Arc::new(own)));
    }
    if flags & CLONE_FS != 0 {
        let own = call.thread.directory().duplicate();
        call.thread.set_directory(Arc::new(own));
    }
    if flags & namespace::MADE != 0 {
        namespace::renew(&call.thread, flags);
    }
    Ok(0)
}

/// `setns(descriptor, kinds)`: the descriptor is that of a namespace, or of a process whose namespaces of these
/// kinds are meant.
fn setns(call: &Call) -> SysResult {
    let flags = u64::from(call.unsigned(1));
    let file = call.file(0)?;
    if file.is_path_only() {
        return Err(Errno::EBADF);
    }
    let mut wanted = Vec::new();
    if let Some(namespace) = NamespaceFile::of(&file) {
        if flags != 0 && flags != namespace.kind().flag() {
            return Err(Errno::EINVAL);
        }
        wanted.push(namespace.clone());
    } else {
        let target = ProcessFile::of(&file).map_err(|_| Errno::EINVAL)?;
        if flags == 0 || flags & !CLONE_NAMESPACES != 0 {
            return Err(Errno::EINVAL);
        }
        let gone = !crate::process::pidfd::is_there(target);
        let thread = target.main_thread().filter(|_| !gone).ok_or(Errno::ESRCH)?;
        Observer::of_call(&call.thread).look_into(&thread)?;
        let of_target = thread.namespaces();
        wanted.extend(namespace::kinds_in(flags).into_iter().map(|kind| of_target.get(kind)));
    }
    let credentials = call.thread.credentials();
    for namespace in &wanted {
        // Nobody may enter the user namespace that it is in.
        if namespace.kind() == Kind::Users {
            return Err(Errno::EINVAL);
        }
        credentials.require(Capability::Administer)?;
        if namespace.kind() == Kind::Mounts {
            credentials.require(Capability::ChangeRoot)?;
        }
    }
    for namespace in &wanted {
        namespace::enter(&call.thread, namespace)?;
    }
    Ok(0)
}
