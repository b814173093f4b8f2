//! Contexts of the mount interface (`fsopen`, `fspick`): the parameters of a file system that is to be made
//! or changed, and what went wrong with them.
//!
//! ```text
//! fsopen ──> Creating ──create──> Made ──fsmount──> Idle ──parameter──> Changing ──reconfigure──> Idle
//! fspick ─────────────────────────────────────────────────────────────>    │
//!               └── any command that fails ──> Failed  <──────────────────┘
//! ```
//!
//! The context knows the order of the steps and collects parameters; what makes the file system of them
//! is the kernel's. Reading the descriptor gives one message per read, `ENODATA` when there is none.

use crate::file::{File, Transfer};
use crate::inode::FileSystem;
use crate::mount::{self, Mount};
use abi::Errno;
use abi::fs::PollEvents;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use base::io::{Sink, Source};
use base::sync::{Mutex, rank};
use core::any::Any;

/// Messages that wait to be read; the oldest are lost beyond that, as on Linux.
const MOST_MESSAGES: usize = 8;

/// Bytes of parameters that one context takes.
const MOST_PARAMETERS: usize = 4096;

/// Where a context stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Takes parameters of a file system that is to be made.
    Creating,
    /// The file system is made and waits to be mounted.
    Made,
    /// It was mounted; the next parameter begins a change.
    Idle,
    /// Takes parameters of a change.
    Changing,
    /// A command is being carried out.
    Busy,
    /// A command failed: nothing goes any more.
    Failed,
}

/// Parameters and what they are for.
pub struct State {
    /// Where it stands.
    pub phase: Phase,
    /// Options as `mount` takes them, each with a comma before it.
    pub options: String,
    /// The parameter `source`.
    pub source: Option<String>,
    /// The file system is to be read-only; `None` when that was not said.
    pub is_read_only: Option<bool>,
    /// What was made, to be mounted.
    pub made: Option<Arc<dyn FileSystem>>,
    messages: VecDeque<String>,
}

/// A context.
pub struct Context {
    /// Type of the file system.
    pub type_name: String,
    /// The mount that is to be changed; `None` for a context that makes one.
    pub mount: Option<Arc<Mount>>,
    state: Mutex<State>,
}

impl Context {
    /// A context that makes a file system, or changes that of `mount`.
    pub fn new(type_name: &str, mount: Option<Arc<Mount>>) -> Arc<Context> {
        let phase = if mount.is_some() { Phase::Changing } else { Phase::Creating };
        let state = State {
            phase,
            options: String::new(),
            source: None,
            is_read_only: None,
            made: None,
            messages: VecDeque::new(),
        };
        let state = Mutex::new(&rank::PIPE, state);
        Arc::new(Context { type_name: String::from(type_name), mount, state })
    }

    /// Looks at its state, or changes it.
    pub fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        act(&mut self.state.lock())
    }
}

impl State {
    /// Adds a message of an error for whoever reads the descriptor.
    pub fn complain(&mut self, message: String) {
        if self.messages.len() == MOST_MESSAGES {
            self.messages.pop_front();
        }
        self.messages.push_back(message);
    }

    /// A parameter comes: `EBUSY` unless the context takes parameters now.
    pub fn begin_parameter(&mut self) -> Result<(), Errno> {
        if self.phase == Phase::Idle {
            self.phase = Phase::Changing;
        }
        match self.phase {
            Phase::Creating | Phase::Changing => Ok(()),
            _ => Err(Errno::EBUSY),
        }
    }

    /// Adds an option, `name` or `name=value`.
    ///
    /// # Errors
    /// `EINVAL` when there are too many, or one has a comma.
    pub fn add_option(&mut self, option: &str) -> Result<(), Errno> {
        if option.contains(',') || self.options.len() + option.len() >= MOST_PARAMETERS {
            return Err(Errno::EINVAL);
        }
        self.options.push(',');
        self.options.push_str(option);
        Ok(())
    }

    /// A command begins in this phase: `EBUSY` in any other.
    pub fn begin(&mut self, phase: Phase) -> Result<(), Errno> {
        if self.phase == Phase::Idle && phase == Phase::Changing {
            self.phase = Phase::Changing;
        }
        if self.phase != phase {
            return Err(Errno::EBUSY);
        }
        self.phase = Phase::Busy;
        Ok(())
    }

    /// A command has ended: the parameters are used up.
    pub fn end(&mut self, phase: Phase) {
        self.phase = phase;
        self.options = String::new();
        self.is_read_only = None;
    }
}

impl File for Context {
    fn read(&self, _: u64, sink: &mut dyn Sink, _: Transfer) -> Result<usize, Errno> {
        let mut state = self.state.lock();
        let length = state.messages.front().ok_or(Errno::ENODATA)?.len();
        if length > sink.remaining() {
            // It stays: the caller may come again with more room.
            return Err(Errno::EMSGSIZE);
        }
        let message = state.messages.pop_front().unwrap_or_default();
        drop(state);
        Ok(sink.write(message.as_bytes()))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What stands behind the descriptor of a tree of mounts that is attached nowhere (`fsmount`,
/// `open_tree`): a mere place. The tree ends with it unless it was attached meanwhile.
pub struct LooseTree {
    mount: Arc<Mount>,
}

impl LooseTree {
    /// Keeps the tree of a mount that `mount::loose` or `mount::copy` made.
    pub fn new(mount: Arc<Mount>) -> Arc<LooseTree> {
        Arc::new(LooseTree { mount })
    }
}

impl Drop for LooseTree {
    fn drop(&mut self) {
        mount::dissolve(&self.mount);
    }
}

impl File for LooseTree {
    fn read(&self, _: u64, _: &mut dyn Sink, _: Transfer) -> Result<usize, Errno> {
        Err(Errno::EBADF)
    }

    fn write(&self, _: u64, _: &mut dyn Source, _: Transfer) -> Result<usize, Errno> {
        Err(Errno::EBADF)
    }

    fn poll(&self, _: PollEvents, _: Option<&mut crate::poll::PollTable<'_>>) -> PollEvents {
        PollEvents::NVAL
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
