//! One system call on its way: who calls, which number, which arguments, and how to decode them.
//!
//! A handler decodes all its arguments into typed values first, which may fail, and then acts. The
//! caller's identity travels with the call: a handler never asks "who runs here".

use alloc::sync::Arc;

use abi::Errno;
use fs::OpenFile;

use crate::memory::UserMemory;
use crate::process::{Process, Thread};

/// What a handler answers: the value for the caller, or an error.
pub type SysResult = Result<u64, Errno>;

/// One system call.
pub struct Call {
    /// The thread that called.
    pub thread: Arc<Thread>,
    /// Number of the call.
    pub number: usize,
    /// Its arguments, raw.
    pub arguments: [u64; 6],
}

impl Call {
    /// The process of the caller.
    pub fn process(&self) -> &Arc<Process> {
        &self.thread.process
    }

    /// The caller's memory.
    pub fn user(&self) -> UserMemory {
        UserMemory::new(self.thread.space())
    }

    /// Argument `index` (0 to 5), raw.
    pub fn argument(&self, index: usize) -> u64 {
        self.arguments.get(index).copied().unwrap_or(0)
    }

    /// Argument `index` as the C type `int`: the upper half of the register is ignored.
    pub fn int(&self, index: usize) -> i32 {
        self.argument(index) as i32
    }

    /// Argument `index` as the C type `unsigned int`: the upper half of the register is ignored.
    pub fn unsigned(&self, index: usize) -> u32 {
        self.argument(index) as u32
    }

    /// The open file of the descriptor in argument `index`; `EBADF` when there is none.
    pub fn file(&self, index: usize) -> Result<Arc<OpenFile>, Errno> {
        self.thread.files().get(self.int(index))
    }
}
