//! Moving bytes through pipes without a buffer of the caller's: splice, tee, vmsplice.
//!
//! A transfer waits for the first byte or the first free page, and then ends with what can be had
//! without waiting, as on Linux. No lock is held while it waits or while the other side copies.

use abi::Errno;
use abi::fs::{MAX_TRANSFER, OpenFlags, PollEvents, SpliceFlags};
use abi::signal::Signal;
use alloc::boxed::Box;
use base::io::{Sink, Source};
use fs::file::Transfer;
use fs::pending::Attempts;
use fs::pipe::{PipeEnd, Side};
use fs::{NodeKind, OpenFile};

use super::copy::{read_offset, write_offset};
use super::fanotify;
use super::support::{after_write, raise, ready, usable};
use crate::call::{Call, SysResult};
use crate::process::Resource;

/// Most bytes that are on their way at a time.
const PIECE: usize = 1 << 20;

/// The pipe behind an open file.
pub fn pipe_end(file: &OpenFile) -> Option<&PipeEnd> {
    file.file().as_any().downcast_ref()
}

/// Waits for a file; `EAGAIN` when the caller does not want to.
async fn wait_for(
    call: &Call,
    file: &OpenFile,
    events: PollEvents,
    nonblocking: bool,
) -> Result<(), Errno> {
    if nonblocking {
        return Err(Errno::EAGAIN);
    }
    ready(call, file, events, None).await.map_err(|_| Errno::ERESTARTSYS)
}

/// The signal that goes with an error of the side that is written.
fn note_failure(call: &Call, error: Errno) -> Errno {
    if error == Errno::EPIPE {
        raise(call, Signal::SIGPIPE);
    }
    error
}

fn flags(call: &Call) -> Result<SpliceFlags, Errno> {
    SpliceFlags::from_bits(call.unsigned(if call.number() == SPLICE { 5 } else { 3 }))
        .ok_or(Errno::EINVAL)
}

const SPLICE: usize = policy::table::number::splice;

fn length(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX).min(MAX_TRANSFER)
}

pub async fn splice(call: &Call) -> SysResult {
    let wanted = length(call.argument(4));
    if wanted == 0 {
        return Ok(0);
    }
    let flags = flags(call)?;
    let (from, to) = (usable(call, 0)?, usable(call, 2)?);
    let (from_address, to_address) = (call.argument(1), call.argument(3));
    let (from_pipe, to_pipe) = (pipe_end(&from), pipe_end(&to));
    if (from_pipe.is_some() && from_address != 0) || (to_pipe.is_some() && to_address != 0) {
        return Err(Errno::ESPIPE);
    }
    let to_offset = read_offset(call, to_address).await?;
    let from_offset = read_offset(call, from_address).await?;
    if !from.flags().reads() || !to.flags().writes() {
        return Err(Errno::EBADF);
    }
    let nonblocking = flags.contains(SpliceFlags::NONBLOCK)
        || (from_pipe.is_some() && from.is_nonblocking())
        || (to_pipe.is_some() && to.is_nonblocking());
    match (from_pipe, to_pipe) {
        (Some(from_end), Some(to_end)) => {
            if from_end.is_same_pipe(to_end) {
                return Err(Errno::EINVAL);
            }
            between(call, (&from, from_end), (&to, to_end), wanted, nonblocking, false).await
        }
        (Some(end), None) => {
            let offset = checked_offset(&to, to_offset)?;
            if to.flags().contains(OpenFlags::APPEND) {
                return Err(Errno::EINVAL);
            }
            let mut target = Target { file: &to, offset };
            let done = from_pipe_to(call, (&from, end), &mut target, wanted, nonblocking).await?;
            write_offset(call, to_address, target.offset).await?;
            Ok(done)
        }
        (None, Some(end)) => {
            let mut offset = checked_offset(&from, from_offset)?;
            fanotify::ask_before_read(call, &from).await?;
            let done =
                to_pipe_from(call, &from, &mut offset, (&to, end), wanted, nonblocking).await?;
            write_offset(call, from_address, offset).await?;
            Ok(done)
        }
        (None, None) => Err(Errno::EINVAL),
    }
}

fn checked_offset(file: &OpenFile, offset: Option<i64>) -> Result<Option<u64>, Errno> {
    let Some(offset) = offset else { return Ok(None) };
    if !file.file().is_seekable() {
        return Err(Errno::EINVAL);
    }
    u64::try_from(offset).map(Some).map_err(|_| Errno::EINVAL)
}

/// From a file into a pipe: waits for room, then takes what the file has, once.
pub async fn to_pipe_from(
    call: &Call,
    from: &OpenFile,
    offset: &mut Option<u64>,
    (to, end): (&OpenFile, &PipeEnd),
    length: usize,
    nonblocking: bool,
) -> SysResult {
    let transfer = Transfer { nonblocking: from.is_nonblocking(), ..Transfer::PLAIN };
    let mut attempts: Option<Box<Attempts>> = None;
    loop {
        let mut filling = match end.fill(length.min(PIECE)) {
            Ok(filling) => filling,
            Err(Errno::EAGAIN) => {
                wait_for(call, to, PollEvents::WRITABLE, nonblocking).await?;
                continue;
            }
            Err(error) => return Err(note_failure(call, error)),
        };
        if from.inode().kind() == NodeKind::Directory {
            return Err(Errno::EINVAL);
        }
        from.admit(&**call.thread, false)?;
        let result = match *offset {
            Some(offset) => from.read_at(offset, &mut filling, transfer),
            None => from.read(&mut filling, transfer),
        };
        match result {
            Ok(0) if filling.is_short_of_memory() => return Err(Errno::ENOMEM),
            Ok(_) => {
                let done = filling.commit() as u64;
                *offset = offset.map(|offset| offset.saturating_add(done));
                return Ok(done);
            }
            Err(Errno::EIOCBQUEUED) => {
                drop(filling);
                Box::pin(attempts.get_or_insert_with(Box::default).wait()).await?;
            }
            Err(Errno::EAGAIN) => {
                // Others may use the room meanwhile.
                drop(filling);
                wait_for(call, from, PollEvents::READABLE, transfer.nonblocking).await?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Where bytes of a pipe go to.
struct Target<'a> {
    file: &'a OpenFile,
    /// At this offset, else at the position.
    offset: Option<u64>,
}

/// Out of a pipe into a file: waits for the first byte, then goes on as long as there are some.
async fn from_pipe_to(
    call: &Call,
    (from, end): (&OpenFile, &PipeEnd),
    to: &mut Target<'_>,
    length: usize,
    nonblocking: bool,
) -> SysResult {
    let size_limit = call.process().limits.soft(Resource::FileSize);
    let transfer =
        Transfer { nonblocking: to.file.is_nonblocking(), size_limit, ..Transfer::PLAIN };
    let mut done = 0;
    let mut attempts: Option<Box<Attempts>> = None;
    let result = loop {
        if done == length || (done > 0 && call.thread.has_attention()) {
            break Ok(());
        }
        let mut draining = match end.drain((length - done).min(PIECE)) {
            Ok(Some(draining)) => draining,
            Ok(None) => break Ok(()),
            Err(Errno::EAGAIN) if done > 0 => break Ok(()),
            Err(Errno::EAGAIN) => {
                wait_for(call, from, PollEvents::READABLE, nonblocking).await?;
                continue;
            }
            Err(error) => break Err(error),
        };
        if let Err(error) = to.file.admit(&**call.thread, true) {
            break Err(error);
        }
        let offered = draining.remaining();
        let result = match to.offset {
            Some(offset) => to.file.write_at(offset, &mut draining, transfer, false),
            None => to.file.write(&mut draining, transfer),
        };
        match result {
            Ok(count) => {
                draining.commit(count);
                done += count;
                to.offset = to.offset.map(|offset| offset.saturating_add(count as u64));
                if count == 0 && offered > 0 {
                    break Err(Errno::EIO);
                }
                base::task::yield_now().await;
            }
            Err(Errno::EIOCBQUEUED) => {
                // Nothing has been taken out of the pipe.
                drop(draining);
                let wait = Box::pin(attempts.get_or_insert_with(Box::default).wait());
                if let Err(error) = wait.await {
                    break Err(error);
                }
            }
            Err(Errno::EAGAIN) => {
                drop(draining);
                let wait = wait_for(call, to.file, PollEvents::WRITABLE, transfer.nonblocking);
                if let Err(error) = wait.await {
                    break Err(error);
                }
            }
            Err(error) => {
                if error == Errno::EFBIG && size_limit != u64::MAX {
                    raise(call, Signal::SIGXFSZ);
                }
                break Err(note_failure(call, error));
            }
        }
    };
    after_write(&call.thread, to.file, done)?;
    match result {
        Err(error) if done == 0 => Err(error),
        _ => Ok(done as u64),
    }
}

/// From one pipe to another: waits until bytes can go over. They leave the first one unless they are to
/// be kept.
async fn between(
    call: &Call,
    (from, from_end): (&OpenFile, &PipeEnd),
    (to, to_end): (&OpenFile, &PipeEnd),
    length: usize,
    nonblocking: bool,
    keeps: bool,
) -> SysResult {
    let mut done = 0;
    loop {
        match from_end.pass_to(to_end, (length - done).min(PIECE), keeps) {
            Ok(0) => return Ok(done as u64),
            Ok(count) => {
                done += count;
                // What is kept would be passed on again.
                if done == length || keeps || call.thread.has_attention() {
                    return Ok(done as u64);
                }
                base::task::yield_now().await;
            }
            Err(Side::From(Errno::EAGAIN) | Side::To(_)) if done > 0 => return Ok(done as u64),
            Err(Side::From(Errno::EAGAIN)) => {
                wait_for(call, from, PollEvents::READABLE, nonblocking).await?;
            }
            Err(Side::To(Errno::EAGAIN)) => {
                wait_for(call, to, PollEvents::WRITABLE, nonblocking).await?;
            }
            Err(Side::To(error)) => return Err(note_failure(call, error)),
            Err(Side::From(error)) => return Err(error),
        }
    }
}

pub async fn tee(call: &Call) -> SysResult {
    let flags = flags(call)?;
    let wanted = length(call.argument(2));
    if wanted == 0 {
        return Ok(0);
    }
    let (from, to) = (usable(call, 0)?, usable(call, 1)?);
    if !from.flags().reads() || !to.flags().writes() {
        return Err(Errno::EBADF);
    }
    let (Some(from_end), Some(to_end)) = (pipe_end(&from), pipe_end(&to)) else {
        return Err(Errno::EINVAL);
    };
    if from_end.is_same_pipe(to_end) {
        return Err(Errno::EINVAL);
    }
    let nonblocking =
        flags.contains(SpliceFlags::NONBLOCK) || from.is_nonblocking() || to.is_nonblocking();
    between(call, (&from, from_end), (&to, to_end), wanted, nonblocking, true).await
}

pub async fn vmsplice(call: &Call) -> SysResult {
    let nonblocking = flags(call)?.contains(SpliceFlags::NONBLOCK);
    let file = usable(call, 0)?;
    let (reads, writes) = (file.flags().reads(), file.flags().writes());
    if !reads && !writes {
        return Err(Errno::EBADF);
    }
    let user = call.user();
    let vectors = user.read_io_vectors(call.argument(1), call.argument(2)).await?;
    if writes {
        let mut source = user.source_vector(vectors)?;
        if source.remaining() == 0 {
            return Ok(0);
        }
        let end = pipe_end(&file).ok_or(Errno::EBADF)?;
        let mut filling = loop {
            match end.fill(source.remaining().min(PIECE)) {
                Ok(filling) => break filling,
                Err(Errno::EAGAIN) => {
                    wait_for(call, &file, PollEvents::WRITABLE, nonblocking).await?;
                }
                Err(error) => return Err(note_failure(call, error)),
            }
        };
        let mut result = Ok(());
        loop {
            filling.take_from(&mut source);
            if !source.is_stopped() || filling.remaining() == 0 {
                break;
            }
            result = source.fault_in_next().await;
            if result.is_err() {
                break;
            }
        }
        let is_short_of_memory = filling.is_short_of_memory();
        return match (filling.commit(), result) {
            (0, Err(error)) => Err(error),
            (0, Ok(())) if is_short_of_memory => Err(Errno::ENOMEM),
            (done, _) => Ok(done as u64),
        };
    }
    let mut sink = user.sink_vector(vectors)?;
    if sink.remaining() == 0 {
        return Ok(0);
    }
    pipe_end(&file).ok_or(Errno::EBADF)?;
    let mut done = 0;
    loop {
        match file.read(&mut sink, Transfer::PLAIN) {
            Ok(count) => done += count,
            Err(Errno::EAGAIN) if done > 0 => return Ok(done as u64),
            Err(Errno::EAGAIN) => {
                wait_for(call, &file, PollEvents::READABLE, nonblocking).await?;
                continue;
            }
            Err(error) => return Err(error),
        }
        if !sink.is_stopped() || sink.remaining() == 0 || call.thread.has_attention() {
            return Ok(done as u64);
        }
        base::task::yield_now().await;
        match sink.fault_in_next().await {
            Err(error) if done == 0 => return Err(error),
            Err(_) => return Ok(done as u64),
            Ok(()) => {}
        }
    }
}
