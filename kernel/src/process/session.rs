//! Process groups, sessions and their terminals: job control's half of processes.
//!
//! A session is kept in the tree, with the terminal that controls it. What a terminal must know about
//! its callers it asks through `fs::terminal::JobControl`, which a thread implements.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::Ordering;

use abi::Errno;
use abi::signal::Signal;
use fs::terminal::{JobControl, Processes, Recipient, Terminal};
use fs::{Caller, Identity};

use super::ids::Pid;
use super::process::Process;
use super::table;
use super::thread::Thread;
use crate::signal::{self, SignalInfo};

/// `setsid`: `EPERM` when the number of the caller names a group already.
pub fn start_session(process: &Process) -> Result<Pid, Errno> {
    let mut tree = table::lock();
    if tree.has_group(process.pid) {
        return Err(Errno::EPERM);
    }
    tree.start_session(process);
    process.has_left_terminal.store(false, Ordering::Relaxed);
    Ok(process.pid)
}

/// `setpgid`: moves `pid` (the caller or a child of it) to `group`; 0 stands for the caller, or for
/// the number of the process.
pub fn set_group(caller: &Process, pid: Pid, group: Pid) -> Result<(), Errno> {
    if group.0 < 0 {
        return Err(Errno::EINVAL);
    }
    let mut tree = table::lock();
    let pid = if pid == Pid(0) { caller.pid } else { pid };
    let group = if group == Pid(0) { pid } else { group };
    let process = tree.process(pid).cloned().ok_or(Errno::ESRCH)?;
    if process.pid != caller.pid {
        if process.parent_pid() != caller.pid {
            return Err(Errno::ESRCH);
        }
        if process.session() != caller.session() {
            return Err(Errno::EPERM);
        }
        if process.has_executed.load(Ordering::Relaxed) {
            return Err(Errno::EACCES);
        }
    }
    if process.session() == process.pid {
        return Err(Errno::EPERM);
    }
    if group != pid {
        let founder = tree.group(group).next().ok_or(Errno::EPERM)?;
        if founder.0.session() != caller.session() {
            return Err(Errno::EPERM);
        }
    }
    tree.set_group(&process, group);
    Ok(())
}

/// The process of a number as the getters take it: 0 is the caller. `ESRCH` when there is none.
pub fn find(caller: &Arc<Process>, pid: i32) -> Result<Arc<Process>, Errno> {
    if pid == 0 {
        return Ok(caller.clone());
    }
    table::find_process(pid).ok_or(Errno::ESRCH)
}

/// A process has ended: if it led a session, the session loses its terminal, and the group in the
/// foreground is told.
pub(super) fn leader_ended(process: &Process) {
    if process.session() != process.pid {
        return;
    }
    let terminal = {
        let mut tree = table::lock();
        tree.set_terminal(process.session(), None)
    };
    let Some(terminal) = terminal else { return };
    let foreground = terminal.leave_session();
    if foreground > 0 {
        signal::send_to_group(foreground, SignalInfo::kernel(Signal::SIGHUP));
        signal::send_to_group(foreground, SignalInfo::kernel(Signal::SIGCONT));
    }
}

/// Sends a signal, for terminals.
fn signal_from_terminal(recipient: Recipient, signal: u8) {
    let leader = match recipient {
        Recipient::Group(group) => return signal_group(group, signal),
        Recipient::Leader(session) => table::process(Pid(session)),
    };
    if let (Some(leader), Some(signal)) = (leader, Signal::new(i32::from(signal))) {
        // One that ends just now needs no signal.
        let _ = signal::send_to_process(&leader, SignalInfo::kernel(signal));
    }
}

/// Sends a signal to a group.
fn signal_group(group: i32, signal: u8) {
    if let Some(signal) = Signal::new(i32::from(signal)) {
        signal::send_to_group(group, SignalInfo::kernel(signal));
    }
}

/// Numbers of the children of a process.
pub fn children_of(parent: Pid) -> Vec<Pid> {
    table::lock().children(parent).map(|(child, _)| child.pid).collect()
}

/// The terminal that controls a session.
pub fn terminal_of(session: Pid) -> Option<Arc<Terminal>> {
    table::lock().terminal(session)
}

/// Sets the terminal that controls a session.
pub fn set_terminal(session: Pid, terminal: Option<Arc<Terminal>>) {
    let old = table::lock().set_terminal(session, terminal);
    drop(old);
}

impl JobControl for Thread {
    fn process_group(&self) -> i32 {
        self.process.group().0
    }

    fn session(&self) -> i32 {
        self.process.session().0
    }

    fn is_session_leader(&self) -> bool {
        self.process.session() == self.process.pid
    }

    fn session_of_group(&self, group: i32) -> Option<i32> {
        let tree = table::lock();
        tree.group(Pid(group)).next().map(|(process, _)| process.session().0)
    }

    fn is_group_orphaned(&self) -> bool {
        table::lock().is_group_orphaned(self.process.group(), None)
    }

    fn blocks_or_ignores(&self, signal: u8) -> bool {
        Signal::new(i32::from(signal)).is_some_and(|signal| {
            self.signals.blocked().contains(signal)
                || self.process.signals.actions().ignores(signal)
        })
    }

    fn controlling_terminal(&self) -> Option<Arc<Terminal>> {
        if self.process.has_left_terminal.load(Ordering::Relaxed) {
            return None;
        }
        terminal_of(self.process.session())
    }

    fn leave_terminal(&self) {
        self.process.has_left_terminal.store(true, Ordering::Relaxed);
    }

    fn set_controlling_terminal(&self, terminal: Option<Arc<Terminal>>) {
        self.process.has_left_terminal.store(false, Ordering::Relaxed);
        set_terminal(self.process.session(), terminal);
    }

    fn take_terminal_from(&self, session: i32) {
        set_terminal(Pid(session), None);
    }

    fn signal_group(&self, group: i32, signal: u8) {
        signal_group(group, signal);
    }
}

impl Caller for Thread {
    fn identity(&self) -> Identity {
        Thread::identity(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// How terminals reach processes.
pub(super) const PROCESSES: Processes =
    Processes { member: member_of_session, signal: signal_from_terminal };

fn member_of_session(caller: &dyn Caller) -> Option<&dyn JobControl> {
    caller.as_any().downcast_ref().map(|thread: &Thread| thread as &dyn JobControl)
}
