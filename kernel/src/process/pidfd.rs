//! Descriptors of processes (`pidfd`): files that stand for a process, not for its number, which may
//! name another one later.
//!
//! Such a file becomes readable when the process has ended, whether or not it was reaped.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::any::Any;

use abi::Errno;
use abi::fs::{OpenFlags, PollEvents};
use fs::anonymous::{AnonymousInode, Label};
use fs::metadata::Permissions;
use fs::poll::{PollTable, register};
use fs::{File, NodeKind, OpenFile};

use super::ids::Pid;
use super::process::Process;
use super::table;

/// The file of a process.
pub struct ProcessFile {
    process: Arc<Process>,
}

impl ProcessFile {
    /// An open file of a process. `flags` may have `NONBLOCK`.
    pub fn open(process: Arc<Process>, flags: OpenFlags) -> Result<Arc<OpenFile>, Errno> {
        let label = Label::Plain("anon_inode:[pidfd]");
        let permissions = Permissions { mode: 0o600, user: 0, group: 0 };
        let location = AnonymousInode::location(NodeKind::Anonymous, label, permissions);
        OpenFile::new(Arc::new(ProcessFile { process }), location, flags | OpenFlags::RDWR)
    }

    /// The process behind an open file; `EBADF` when it is something else.
    pub fn of(file: &OpenFile) -> Result<&Arc<Process>, Errno> {
        let file: &ProcessFile = file.file().as_any().downcast_ref().ok_or(Errno::EBADF)?;
        Ok(&file.process)
    }
}

/// Whether the process is still in the tree: not reaped.
pub fn is_there(process: &Arc<Process>) -> bool {
    table::process(process.pid).is_some_and(|present| Arc::ptr_eq(&present, process))
}

impl File for ProcessFile {
    fn poll(&self, events: PollEvents, table: Option<&mut PollTable<'_>>) -> PollEvents {
        register(table, &self.process.thread_events);
        if self.process.exit_status().is_some() {
            PollEvents::READABLE & events
        } else {
            PollEvents::empty()
        }
    }

    fn information(&self) -> String {
        let Pid(number) = if is_there(&self.process) { self.process.pid } else { Pid(-1) };
        format!("Pid:\t{number}\nNSpid:\t{number}\n")
    }

    fn can_read(&self) -> bool {
        false
    }

    fn can_write(&self) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
