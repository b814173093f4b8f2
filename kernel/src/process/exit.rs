//! How threads and processes end.
//!
//! ```text
//! finish_thread
//!   memory: robust futexes, clear_child_tid, vfork gate, space     (may wait for pages)
//!   files, directories
//!   leave the process's list of threads
//!     not the last: number is free, whoever waits in execve is woken
//!     the last: a record of it, where those are kept; finish_process
//!       terminal of a session leader hangs up
//!       children go to the heir; groups that become orphaned and have stopped members
//!         get SIGHUP and SIGCONT
//!       zombie and the parent's signal, in one step under the tree's lock
//!       or, when nobody wants to know, gone at once
//! ```
//!
//! A parent that waits sees the zombie not before the signal is pending, and a handler of the signal
//! finds the zombie: both happen under one lock, which `wait` takes to look.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::{Future as _, poll_fn};
use core::pin::pin;
use core::sync::atomic::Ordering;

use abi::signal::{CLD_DUMPED, CLD_EXITED, CLD_KILLED, SIG_IGN, Signal};

use super::file_table::{Closed, FileTable};
use super::ids::INIT;
use super::process::Process;
use super::thread::{Resources, Thread};
use super::{accounting, first, session, table, tracing};
use crate::futex;
use crate::ipc::undo;
use crate::memory::{AddressSpace, USER_END, UserMemory};
use crate::posted;
use crate::signal::{self, SignalInfo};
use base::task;
use fs::notify::acting;

/// Wait status of an exit code.
pub const fn exit_status(code: i32) -> u32 {
    (code.cast_unsigned() & 0xff) << 8
}

/// The last act of a thread, after its last moment in user mode: gives up all it has and tells whom
/// it concerns.
pub async fn finish_thread(thread: Arc<Thread>) {
    posted::leave(&thread).await;
    release_memory(&thread, 0).await;
    let files = thread.files();
    // One is the thread's own, one is ours.
    if Arc::strong_count(&files) <= 2 {
        let mut close = pin!(close_in_turns(&files, Closed::All));
        let (process, tid) = (thread.process.pid.0, thread.tid().0);
        // Who listens is told who closed them.
        poll_fn(|context| acting(process, tid, || close.as_mut().poll(context))).await;
    }
    drop(files);
    leave(&thread);
}

/// Closes descriptors of a table that nobody else uses, a part at a time.
pub(super) async fn close_in_turns(files: &FileTable, which: Closed) {
    let mut next = 0;
    while let Some(rest) = files.close_part(next, u32::MAX, which) {
        next = rest;
        task::yield_now().await;
    }
}

/// Ends a thread that never ran.
pub(super) fn discard(thread: Arc<Thread>) {
    leave(&thread);
}

/// What other threads and the parent may wait for in the thread's memory, then the memory.
///
/// `held_by_task` is how many references to the thread's space its own task has on its stack.
pub(super) async fn release_memory(thread: &Arc<Thread>, held_by_task: usize) {
    futex::release_robust_list(thread).await;
    futex::leave_locks(thread);
    let space = thread.space();
    let word = thread.clear_child_tid.swap(0, Ordering::Relaxed);
    // Nobody else can look at memory that this thread alone has: this one and the thread's own.
    let own = 2 + held_by_task;
    if word != 0 && Arc::strong_count(&space) > own {
        let user = UserMemory::new(space.clone());
        if user.write_value(word, &0_u32).await.is_ok() {
            futex::wake_address(&user, word, 1);
        }
    }
    // What much memory there is goes a part at a time, while nobody else has it.
    if Arc::strong_count(&space) <= own && !space.is_one_part(0..USER_END) {
        clear_in_turns(&space).await;
    }
}

/// Frees what is mapped in a space that nobody runs in, a part at a time.
pub(super) async fn clear_in_turns(space: &Arc<AddressSpace>) {
    let mut change = space.begin_change().await;
    let mut at = 0;
    while let Some(next) = change.unmap_part(at..USER_END) {
        at = next;
        task::yield_now().await;
    }
}

/// Everything that needs no waiting.
fn leave(thread: &Arc<Thread>) {
    let process = thread.process.clone();
    let status = thread.exit_request().unwrap_or(0);
    undo::leave(thread);
    let memory = thread.space().counters().total * hal::PAGE_SIZE as u64;
    give_up_resources(thread);
    let usage = thread.usage();
    process.ended_threads.add(&usage);
    process.ended_transfers.add(&thread.transfers);
    super::system::add_ended_time(usage.user_ns, usage.system_ns);
    if thread.tid() == process.pid.leader() {
        process.leader_status.store(status, Ordering::Relaxed);
    }
    // The number goes before the place in the list: whoever waits in `execve` for the list to shrink
    // may take the number over.
    let removed = table::lock().remove_thread(thread);
    drop(removed);
    let departure = process.remove_thread(thread);
    if departure.was_last {
        let leader = process.leader_status.load(Ordering::Relaxed);
        let status = departure.group_exit.unwrap_or(leader);
        tracing::thread_ended(thread, Some(status));
        accounting::process_ended(&process, thread, status, memory);
        finish_process(&process, thread, status);
    } else {
        tracing::thread_ended(thread, None);
        signal::thread_ended(thread);
        process.thread_events.wake_all();
    }
}

/// Memory, files and directories go now, not when the last reference to the thread goes: the thread
/// gets those of the first process, which are empty.
fn give_up_resources(thread: &Thread) {
    let resident = thread.space().counters().resident_peak;
    thread
        .process
        .ended_threads
        .max_resident_kib
        .fetch_max(resident * (hal::PAGE_SIZE as u64 / 1024), Ordering::Relaxed);
    thread.open_vfork_gate();
    if let Some(empty) = first::empty_resources() {
        let old = thread.resources();
        let Resources { space, files, directory, .. } = thread.set_resources(Resources {
            credentials: old.credentials.clone(),
            name: old.name,
            ..empty
        });
        drop(old);
        drop(directory);
        drop(files);
        base::user::leave_space();
        drop(space);
    }
}

/// The end of a process: `last` was its last thread.
fn finish_process(process: &Arc<Process>, last: &Arc<Thread>, status: u32) {
    process.last_user.store(last.credentials().user.real, Ordering::Relaxed);
    process.forget_program(last.name());
    process.set_exit_status(status);
    session::leader_ended(process);
    signal::process_ended(process);
    let mut orders: Vec<(Arc<Process>, Signal)> = Vec::new();
    let mut reaped: Vec<Arc<Process>> = Vec::new();
    {
        let mut tree = table::lock();
        leave_children(&mut tree, process, &mut orders, &mut reaped);
        if let Some(parent) = process.parent()
            && parent.pid != INIT
        {
            order_orphans(&tree, process, process, &parent, &mut orders);
        }
        tree.set_zombie(process);
        for child in &reaped {
            tree.remove_process(child);
        }
        if !tell_parent(process, status) {
            tree.remove_process(process);
        }
        for (process, signal) in &orders {
            let _ = signal::send_to_process(process, SignalInfo::kernel(*signal));
        }
    }
    process.thread_events.wake_all();
    if let Some(parent) = process.parent() {
        parent.signals.child_events.wake_all();
    }
    for child in reaped {
        if let Some(heir) = child.parent() {
            heir.signals.child_events.wake_all();
        }
    }
}

/// Sends the parent the signal that the child was made with. Returns whether the process must stay as
/// a zombie. The tree is locked.
fn tell_parent(process: &Arc<Process>, status: u32) -> bool {
    let Some(parent) = process.parent() else { return false };
    if parent.pid == INIT {
        return false;
    }
    // A new program of the parent's, which may do more, has not asked for that signal.
    let executions = parent.executions.load(Ordering::Relaxed);
    let is_asked_for = process.parent_executions.load(Ordering::Relaxed) == executions;
    let number = process.exit_signal.load(Ordering::Relaxed);
    let number = if is_asked_for { number } else { Signal::SIGCHLD.number() };
    let Some(exit_signal) = Signal::new(number) else { return true };
    let mut stays = true;
    let mut is_wanted = true;
    if exit_signal == Signal::SIGCHLD {
        let actions = parent.signals.actions();
        stays = !actions.reaps_children();
        is_wanted = actions.get(Signal::SIGCHLD).handler != SIG_IGN;
    }
    if is_wanted {
        let (code, value) = describe(status);
        let times = process.usage();
        let info = SignalInfo::child_with_signal(
            exit_signal,
            code,
            process.pid.0,
            process.user(),
            value,
            times.user_ticks(),
            times.system_ticks(),
        );
        let _ = signal::send_to_process(&parent, info);
    }
    stays
}

/// `si_code` and `si_status` of a wait status.
pub(super) fn describe(status: u32) -> (i32, i32) {
    let killer = (status & 0x7f).cast_signed();
    if killer == 0 {
        (CLD_EXITED, (status >> 8 & 0xff).cast_signed())
    } else if status & 0x80 != 0 {
        (CLD_DUMPED, killer)
    } else {
        (CLD_KILLED, killer)
    }
}

/// Gives the children to their heir, with the signals that they asked for.
fn leave_children(
    tree: &mut table::Tree,
    process: &Arc<Process>,
    orders: &mut Vec<(Arc<Process>, Signal)>,
    reaped: &mut Vec<Arc<Process>>,
) {
    let children: Vec<(Arc<Process>, bool)> =
        tree.children(process.pid).map(|(child, zombie)| (child.clone(), zombie)).collect();
    if children.is_empty() {
        return;
    }
    let Some(heir) = tree.heir(process) else { return };
    for (child, is_zombie) in children {
        tree.move_child(&child, &heir);
        child.exit_signal.store(Signal::SIGCHLD.number(), Ordering::Relaxed);
        if is_zombie {
            if heir.pid == INIT || heir.signals.actions().reaps_children() {
                reaped.push(child);
            } else {
                let status = child.exit_status().unwrap_or(0);
                tell_parent(&child, status);
                heir.signals.child_events.wake_all();
            }
            continue;
        }
        child.for_each_thread(|thread| {
            let wanted = thread.parent_death_signal.load(Ordering::Relaxed);
            if let Some(signal) = Signal::new(wanted) {
                orders.push((child.clone(), signal));
            }
        });
        order_orphans(tree, &child, process, process, orders);
    }
}

/// Orders SIGHUP and SIGCONT for the group of `member` if the end of `ending` makes it an orphan and
/// one of it is stopped. `tied_to` is the parent through which the group was not an orphan.
fn order_orphans(
    tree: &table::Tree,
    member: &Process,
    ending: &Process,
    tied_to: &Process,
    orders: &mut Vec<(Arc<Process>, Signal)>,
) {
    let group = member.group();
    if group == tied_to.group()
        || member.session() != tied_to.session()
        || !tree.is_group_orphaned(group, Some(ending.pid))
        || !tree.has_stopped_member(group)
    {
        return;
    }
    for (member, is_zombie) in tree.group(group) {
        if !is_zombie {
            orders.push((member.clone(), Signal::SIGHUP));
            orders.push((member.clone(), Signal::SIGCONT));
        }
    }
}
