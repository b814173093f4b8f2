//! Event counters (`eventfd`): a 64-bit number that writes add to and reads take.
//!
//! A read waits while the number is 0 and takes all of it, or 1 of a semaphore. A write waits while
//! the sum would pass the largest value, which is one below the largest number. Every read and write
//! tells the watchers, also when the counter was readable before: edge-triggered users count on it.

use crate::anonymous::{AnonymousInode, Label};
use crate::file::{File, OpenFile, Transfer};
use crate::metadata::{NodeKind, Permissions};
use crate::poll::{PollTable, register};
use abi::Errno;
use abi::fs::{OpenFlags, PollEvents};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use base::io::{Sink, Source};
use base::sync::{Mutex, rank};
use base::wait::WaitQueue;
use core::any::Any;
use core::sync::atomic::{AtomicU32, Ordering};

/// Numbers shown in `/proc/PID/fdinfo`.
static NEXT_ID: AtomicU32 = AtomicU32::new(0);

/// Bytes of a record.
const RECORD: usize = 8;

/// An event counter.
pub struct EventCounter {
    count: Mutex<u64>,
    changed: WaitQueue,
    is_semaphore: bool,
    id: u32,
}

impl EventCounter {
    /// An open file of a new counter. `flags` may have `NONBLOCK`.
    pub fn open(
        initial: u32,
        is_semaphore: bool,
        flags: OpenFlags,
    ) -> Result<Arc<OpenFile>, Errno> {
        let counter = Arc::new(EventCounter {
            count: Mutex::new(&rank::PIPE, u64::from(initial)),
            changed: WaitQueue::new(),
            is_semaphore,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        });
        let label = Label::Plain("anon_inode:[eventfd]");
        let permissions = Permissions { mode: 0o600, user: 0, group: 0 };
        let location = AnonymousInode::location(NodeKind::Anonymous, label, permissions);
        OpenFile::new(counter, location, flags | OpenFlags::RDWR)
    }

    fn readiness(count: u64) -> PollEvents {
        let mut ready = PollEvents::empty();
        if count > 0 {
            ready |= PollEvents::IN;
        }
        if count < u64::MAX - 1 {
            ready |= PollEvents::OUT;
        }
        if count == u64::MAX {
            ready |= PollEvents::ERR;
        }
        ready
    }
}

impl File for EventCounter {
    fn can_signal(&self) -> bool {
        false
    }

    fn read(&self, _: u64, sink: &mut dyn Sink, _: Transfer) -> Result<usize, Errno> {
        if sink.remaining() < RECORD {
            return Err(Errno::EINVAL);
        }
        let mut count = self.count.lock();
        if *count == 0 {
            return Err(Errno::EAGAIN);
        }
        let value = if self.is_semaphore { 1 } else { *count };
        if !sink.write_record(&value.to_ne_bytes()) {
            return Ok(0);
        }
        *count -= value;
        drop(count);
        self.changed.notify(PollEvents::OUT);
        Ok(RECORD)
    }

    fn write(&self, _: u64, source: &mut dyn Source, _: Transfer) -> Result<usize, Errno> {
        if source.remaining() != RECORD {
            return Err(Errno::EINVAL);
        }
        let mut count = self.count.lock();
        let mut record = [0; RECORD];
        if !source.read_record(&mut record) {
            return Ok(0);
        }
        let value = u64::from_ne_bytes(record);
        if value == u64::MAX {
            return Err(Errno::EINVAL);
        }
        if value >= u64::MAX - *count {
            return Err(Errno::EAGAIN);
        }
        *count += value;
        drop(count);
        self.changed.notify(PollEvents::IN);
        Ok(RECORD)
    }

    fn seek(&self, position: u64, _: i64, _: i32) -> Result<u64, Errno> {
        Ok(position)
    }

    fn poll(&self, events: PollEvents, table: Option<&mut PollTable<'_>>) -> PollEvents {
        register(table, &self.changed);
        EventCounter::readiness(*self.count.lock()) & (events | PollEvents::ALWAYS)
    }

    fn information(&self) -> String {
        format!("eventfd-count: {:16x}\neventfd-id: {}\n", *self.count.lock(), self.id)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
