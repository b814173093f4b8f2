//! Questions to a server, and what they find.

use super::content::Arrival;
use super::server::{Attributes, Change, Handle};
use crate::listing::Entry;
use abi::Errno;
use abi::fs::{AllocateFlags, RenameFlags, XattrFlags};
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::memory::Frame;

/// A question to the server, by which its result is found again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// The file of a name in a directory.
    Lookup { directory: u64, name: Arc<[u8]> },
    /// Attributes.
    Attributes { node: u64 },
    /// Entries of a directory.
    Entries { node: u64 },
    /// Everything is written, and nothing is asked any more.
    Close,
    /// Changes are refused from now on, or not any more.
    SetReadOnly(bool),
    /// The text of a symbolic link.
    ReadLink { node: u64 },
    /// A handle for reading, or for writing too.
    Open { node: u64, writes: bool },
    /// Pages of a chunk.
    Read { node: u64, chunk: u64 },
    /// What was written has arrived.
    Written { node: u64, end: Arrival },
    /// Numbers of the file system.
    Statistics,
    /// Everything that was written has arrived.
    AllWritten,
    /// There is room to write more.
    Room,
    /// Something new in a directory.
    Create { directory: u64, name: Arc<[u8]>, owner: Owner, content: Made },
    /// One more name.
    Link { directory: u64, name: Arc<[u8]>, node: u64 },
    /// A name less.
    Unlink { directory: u64, name: Arc<[u8]>, is_directory: bool },
    /// A name elsewhere.
    Rename { from: u64, old: Arc<[u8]>, to: u64, new: Arc<[u8]>, flags: RenameFlags },
    /// Other attributes.
    Change { node: u64, change: Change },
    /// A new inode without a name.
    CreateNameless { directory: u64, owner: Owner, is_linkable: bool },
    /// The value of an extended attribute.
    Extended { node: u64, name: Vec<u8> },
    /// The names of extended attributes.
    ExtendedNames { node: u64 },
    /// Another value of an extended attribute, or none.
    SetExtended { node: u64, name: Vec<u8>, value: Option<Vec<u8>>, flags: XattrFlags },
    /// A range of bytes reserved, punched, zeroed, cut out or inserted.
    Allocate { node: u64, flags: AllocateFlags, offset: u64, length: u64 },
    /// Where data or a hole begins.
    Seek { node: u64, offset: u64, hole: bool },
}

/// Mode, owner and group of what is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub mode: u32,
    pub user: u32,
    pub group: u32,
}

/// What is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    File,
    Directory,
    Link(Vec<u8>),
    /// A device, pipe or socket: the bits of its kind, and its number.
    Node(u32, u64),
}

impl Question {
    /// Whether it changes something.
    pub(super) fn is_change(&self) -> bool {
        use Question::*;
        matches!(
            self,
            Create { .. }
                | Link { .. }
                | Unlink { .. }
                | Rename { .. }
                | Change { .. }
                | CreateNameless { .. }
                | SetExtended { .. }
                | Allocate { .. }
        )
    }

    /// Whether its answer is about what was done before it was asked, so that an earlier caller's says too little.
    pub(super) fn is_about_the_past(&self) -> bool {
        matches!(self, Question::Written { .. } | Question::AllWritten)
    }

    /// Whether it changes what is known of this inode.
    pub(super) fn changes(&self, number: u64) -> bool {
        match self {
            Question::Create { directory, .. } | Question::Unlink { directory, .. } => {
                *directory == number
            }
            Question::Link { directory, node, .. } => *directory == number || *node == number,
            Question::Rename { from, to, .. } => *from == number || *to == number,
            Question::Change { node, .. }
            | Question::SetExtended { node, .. }
            | Question::Allocate { node, .. } => *node == number,
            _ => false,
        }
    }
}

/// What a question found.
pub(crate) enum Found {
    Nothing,
    File(Handle, Attributes),
    /// A file that was made, and a handle that is open for reading and writing.
    Made(Handle, Attributes, Option<Handle>),
    Attributes(Attributes),
    Entries(Vec<Entry>),
    Text(Vec<u8>),
    Place(u64),
    Open(Handle),
    Pages(Vec<Frame>),
    Statistics([u64; 5]),
}

pub(crate) type Outcome = Result<Found, Errno>;
