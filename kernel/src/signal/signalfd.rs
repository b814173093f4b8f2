//! Signals as files (`signalfd`): a read takes pending signals of a set out of the queues of whoever
//! reads, as `sigwaitinfo` does.
//!
//! The file keeps the set only. Whose signals it gives is decided by the reader, so it waits in the
//! queue of its own process, which every signal that is sent to it or its threads tells.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use abi::fs::{OpenFlags, PollEvents};
use abi::signal::{SI_KERNEL, SI_TIMER, SI_USER, Signal, SignalFdRecord, SignalSet};
use base::io::Sink;
use fs::anonymous::{AnonymousInode, Label};
use fs::file::Transfer;
use fs::metadata::Permissions;
use fs::poll::{PollTable, register};
use fs::{Caller, File, NodeKind, OpenFile};
use zerocopy::IntoBytes;

use super::info::SignalInfo;
use super::made_timers::note_delivery;
use super::wait::{put_back, take_from};
use crate::process::Thread;

/// Codes of `SIGIO` up to which its layout is used.
const MOST_POLL_CODES: i32 = 6;
/// `si_code` of queued `SIGIO`.
const SI_SIGIO: i32 = -5;

/// The file of a set of signals.
pub struct SignalFile {
    set: AtomicU64,
}

impl SignalFile {
    /// An open file of a set. `flags` may have `NONBLOCK`.
    pub fn open(set: SignalSet, flags: OpenFlags) -> Result<Arc<OpenFile>, Errno> {
        let file = Arc::new(SignalFile { set: AtomicU64::new(set.0) });
        let label = Label::Plain("anon_inode:[signalfd]");
        let permissions = Permissions { mode: 0o600, user: 0, group: 0 };
        let location = AnonymousInode::location(NodeKind::Anonymous, label, permissions);
        OpenFile::new(file, location, flags | OpenFlags::RDWR)
    }

    /// The signals behind an open file; `EINVAL` when it is something else.
    pub fn of(file: &OpenFile) -> Result<&SignalFile, Errno> {
        file.file().as_any().downcast_ref().ok_or(Errno::EINVAL)
    }

    fn set(&self) -> SignalSet {
        SignalSet(self.set.load(Ordering::Relaxed))
    }

    /// Changes the set; `thread` calls, and others of its process may wait.
    pub fn change(&self, thread: &Thread, set: SignalSet) {
        self.set.store(set.0, Ordering::Relaxed);
        thread.process.signals.arrived.notify_all(PollEvents::IN);
    }
}

/// The thread that calls.
fn thread_of(caller: &dyn Caller) -> Option<&Thread> {
    caller.as_any().downcast_ref()
}

impl File for SignalFile {
    fn can_signal(&self) -> bool {
        false
    }

    fn read(&self, _: u64, sink: &mut dyn Sink, transfer: Transfer) -> Result<usize, Errno> {
        const RECORD: usize = size_of::<SignalFdRecord>();
        if sink.remaining() < RECORD {
            return Err(Errno::EINVAL);
        }
        let thread = transfer.caller.and_then(thread_of).ok_or(Errno::EINVAL)?;
        let mut done = 0;
        while sink.remaining() >= RECORD {
            let Some(taken) = take_from(thread, self.set()) else { break };
            let record = record(&note_delivery(&thread.process, taken.info));
            if !sink.write_record(record.as_bytes()) {
                put_back(thread, taken);
                return Ok(done);
            }
            done += RECORD;
        }
        if done == 0 { Err(Errno::EAGAIN) } else { Ok(done) }
    }

    fn seek(&self, position: u64, _: i64, _: i32) -> Result<u64, Errno> {
        Ok(position)
    }

    fn poll(&self, _: PollEvents, _: Option<&mut PollTable<'_>>) -> PollEvents {
        // Without a caller there are no signals.
        PollEvents::empty()
    }

    fn poll_for(
        &self,
        caller: &dyn Caller,
        events: PollEvents,
        table: Option<&mut PollTable<'_>>,
    ) -> PollEvents {
        let Some(thread) = thread_of(caller) else { return PollEvents::empty() };
        register(table, &thread.process.signals.arrived);
        let pending = thread.signals.pending() | thread.process.signals.pending();
        if (pending & self.set()).is_empty() {
            PollEvents::empty()
        } else {
            PollEvents::IN & events
        }
    }

    fn information(&self) -> String {
        format!("sigmask:\t{:016x}\n", self.set().0)
    }

    fn can_write(&self) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// `struct signalfd_siginfo`: what the layout of the signal's information has.
fn record(info: &SignalInfo) -> SignalFdRecord {
    let mut record = SignalFdRecord {
        signal: info.signal.number().unsigned_abs(),
        errno: info.errno,
        code: info.code,
        ..SignalFdRecord::default()
    };
    let [first, second, third, fourth] = info.fields;
    let (low, high) = (first as u32, (first >> 32) as u32);
    let is_fault = SignalSet::SYNCHRONOUS.contains(info.signal) && info.signal != Signal::SIGSYS;
    if info.code > SI_USER && info.code < SI_KERNEL && is_fault {
        record.address = first;
    } else if info.code > SI_USER && info.code < SI_KERNEL && info.signal == Signal::SIGCHLD {
        (record.process, record.user) = (low, high);
        record.status = (second as u32).cast_signed();
        (record.user_time, record.system_time) = (third, fourth);
    } else if (info.code > SI_USER && info.code <= MOST_POLL_CODES) || info.code == SI_SIGIO {
        record.band = low;
        record.descriptor = (second as u32).cast_signed();
    } else if info.code == SI_TIMER {
        (record.timer, record.overrun) = (low, high);
        (record.pointer, record.int) = (second, (second as u32).cast_signed());
    } else {
        (record.process, record.user) = (low, high);
        if info.code < SI_USER {
            (record.pointer, record.int) = (second, (second as u32).cast_signed());
        }
    }
    record
}
