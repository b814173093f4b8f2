//! A namespace of IPC: its objects of System V, its message queues, and what may exist in it.

use alloc::sync::Arc;

use base::sync::{Mutex, Once, rank};
use fs::Identity;

use super::limits::Limits;
use super::message::Queue;
use super::mqueue;
use super::semaphore::Sets;
use super::shared_memory::Segments;
use super::table::Table;
use crate::process::{Tid, table};

/// A namespace. It ends with its last holder, and with it what is in it; segments that are attached live on until they
/// are not any more.
pub struct Space {
    /// The number of the namespace.
    pub number: u64,
    /// What may exist.
    pub limits: Arc<Limits>,
    /// POSIX message queues.
    pub message_queues: mqueue::Files,
    pub(super) segments: Mutex<Segments>,
    pub(super) sets: Mutex<Sets>,
    pub(super) queues: Mutex<Table<Queue>>,
}

impl Space {
    /// A new one, empty, with the usual limits.
    pub fn new(number: u64) -> Arc<Space> {
        let limits = Arc::new(Limits::new());
        Arc::new(Space {
            number,
            message_queues: mqueue::Files::new(limits.clone()),
            limits,
            segments: Mutex::new(&rank::IPC_TABLE, Segments::new()),
            sets: Mutex::new(&rank::IPC_TABLE, Sets::new()),
            queues: Mutex::new(&rank::IPC_TABLE, Table::new()),
        })
    }

    /// The one that is there from the start, with Linux's number for it.
    pub fn first() -> &'static Arc<Space> {
        static FIRST: Once<Arc<Space>> = Once::new();
        FIRST.call_once(|| Space::new(0xefff_ffff))
    }

    /// That of whoever asks.
    pub fn of(identity: &Identity) -> Arc<Space> {
        let thread = table::thread(Tid(identity.thread));
        thread.map_or_else(|| Space::first().clone(), |thread| thread.namespaces().ipc.clone())
    }
}
