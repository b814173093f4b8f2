//! Files: the tree of mounted file systems, what stands behind a descriptor, and the file systems
//! that live in memory.
//!
//! What a newcomer meets, in order: an `inode::Inode` is an object on a file system; a
//! `mount::Location` says where one is in the tree; `walk` turns a path into a location; `tree`
//! changes the tree by path; `file::OpenFile` is an open file description, whose behaviour is a
//! `file::File`. `tmpfs`, `pseudo`, `pipe`, `device` and `terminal` provide inodes and files.
//!
//! The modules stand on floors (`xtask/src/check/floors.rs`): paths; file systems; kinds of files; inodes, mounts and
//! open files; waiting and locks; names and types. A module names those of its floor and below.
//!
//! Nothing here blocks: an operation that would wait answers `EAGAIN`, and `File::poll` says when to
//! try again. Nothing here knows of processes: who acts comes in as an `Identity`, and what a
//! terminal must ask about sessions and groups is handed in (`terminal::JobControl`).
//!
//! Bytes move through `base::io::Source` and `base::io::Sink`, which take less than offered when a
//! page of the caller is missing. So no lock of this crate is ever held across a page fault.
//!
//! Locks, in the order in which they are taken (ranks of `base::sync::rank`): an open file's
//! position, the mount tree, a directory, its child, a pipe, a terminal, wait queues.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod anonymous;
pub mod block;
pub mod context;
pub mod cpio;
pub mod device;
pub mod epoll;
pub mod eventfd;
pub mod ext4;
pub mod extended;
pub mod file;
pub mod identity;
pub mod inode;
pub mod lease;
mod listing;
pub mod lock;
pub mod mapped;
pub mod metadata;
pub mod mount;
pub mod notify;
pub mod open;
pub mod overlay;
pub mod pending;
pub mod pipe;
pub mod poll;
pub mod protected;
pub mod pseudo;
pub mod remote;
pub mod terminal;
pub mod tmpfs;
pub mod tree;
pub mod walk;

pub use abi::Errno;
pub use file::{File, OpenFile};
pub use identity::{Caller, Identity};
pub use inode::Inode;
pub use metadata::{Metadata, NodeKind, Timestamp};
pub use mount::Location;
