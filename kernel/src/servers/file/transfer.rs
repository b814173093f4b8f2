//! Moving bytes: read, write, and their vectored and positioned kin.
//!
//! Bytes move straight between the program's pages and the file's. Where a page of the program is
//! missing the file stops short; it is brought in here, with no lock held, and the transfer goes on.
//! Small writes to streams are gathered first, so that they stay in one piece whatever happens.

use abi::Errno;
use abi::fs::{OpenFlags, PIPE_BUF, PollEvents, TransferFlags};
use abi::signal::Signal;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use base::io::{Sink, Source};
use base::{task, time};
use fs::file::Transfer;
use fs::{NodeKind, OpenFile, pending};

use super::support::{NotReady, Turn, after_write, raise, ready_in_turn};
use super::{append, fanotify};
use crate::call::{Call, SysResult};
use crate::memory::{AddressSpace, ShortRange, UserSink, UserSource};
use crate::process::{Interrupted, Resource, Thread};
use crate::servers::network;

/// Where a transfer takes place.
#[derive(Clone, Copy)]
struct Spot {
    /// At this offset, else at the position.
    offset: Option<u64>,
    flags: TransferFlags,
}

const HERE: Spot = Spot { offset: None, flags: TransferFlags::empty() };

fn offset(value: u64) -> Result<Spot, Errno> {
    if i64::try_from(value).is_err() {
        return Err(Errno::EINVAL);
    }
    Ok(Spot { offset: Some(value), flags: TransferFlags::empty() })
}

/// The offset of `preadv2`: -1 stands for the position.
fn offset_or_position(value: u64, flags: u32) -> Result<Spot, Errno> {
    let spot = if value == u64::MAX { HERE } else { offset(value)? };
    let flags = TransferFlags::from_bits(flags).ok_or(Errno::EOPNOTSUPP)?;
    if flags.contains(TransferFlags::APPEND | TransferFlags::NOAPPEND) {
        return Err(Errno::EINVAL);
    }
    Ok(Spot { flags, ..spot })
}

pub async fn read(call: &Call) -> SysResult {
    let file = call.file(0)?;
    check_reads(&file)?;
    read_from(call, &file, call.user().sink(call.argument(1), call.argument(2))?, HERE).await
}

/// A short read of what the file has, into pages of the caller that are there. `None` when anything
/// stands in the way: nothing has happened then, and `read` does it properly.
pub fn read_at_once(thread: &Thread, space: &AddressSpace, arguments: &[u64; 6]) -> Option<u64> {
    let [descriptor, address, length, ..] = *arguments;
    let file = thread.file(descriptor as i32).ok()?;
    check_reads(&file).ok()?;
    let mut sink = if file.is_seekable() {
        ShortRange::across(space, address, length, true)?
    } else {
        ShortRange::new(space, address, length)?
    };
    file.admit(thread, false).ok()?;
    let nonblocking = file.is_nonblocking();
    let transfer = Transfer { caller: Some(thread), nonblocking, ..Transfer::PLAIN };
    let count = match file.read(&mut sink, transfer) {
        Ok(count) => count,
        Err(error) => return network::told_once(&file, error),
    };
    // Nothing at all because a page is missing: the long way brings it in.
    if sink.is_stopped() && count == 0 {
        return None;
    }
    thread.note_read(count as u64);
    Some(count as u64)
}

pub async fn write(call: &Call) -> SysResult {
    let file = call.file(0)?;
    check_writes(&file)?;
    write_to(call, &file, call.user().source(call.argument(1), call.argument(2))?, HERE).await
}

/// A short write that the file takes whole, out of pages of the caller that are there. `None` as for
/// `read_at_once`. Only files and pipes: a terminal may take a part and have the rest wait.
pub fn write_at_once(thread: &Thread, space: &AddressSpace, arguments: &[u64; 6]) -> Option<u64> {
    let [descriptor, address, length, ..] = *arguments;
    let file = thread.file(descriptor as i32).ok()?;
    check_writes(&file).ok()?;
    if file.flags().contains(OpenFlags::DSYNC) {
        return None;
    }
    let mut source = if file.is_seekable() {
        ShortRange::across(space, address, length, false)?
    } else {
        ShortRange::new(space, address, length)?
    };
    if file.is_generated() || !(file.is_seekable() || file.kind() == NodeKind::Fifo) {
        return if is_socket(&file) {
            network::write_at_once(thread, &file, &mut source)
        } else {
            None
        };
    }
    let size_limit = thread.process.limits.soft(Resource::FileSize);
    let nonblocking = file.is_nonblocking();
    let transfer = Transfer { caller: Some(thread), nonblocking, size_limit, ..Transfer::PLAIN };
    let _end = append::try_hold(&file).ok()?;
    let count = file.write(&mut source, transfer).ok()?;
    if count == 0 && source.is_stopped() {
        return None;
    }
    thread.note_written(count as u64);
    match after_write(thread, &file, count) {
        Ok(()) => Some(count as u64),
        Err(errno) => Some(errno.to_return_value().cast_unsigned()),
    }
}

/// A short read at an offset, as `read_at_once`.
pub fn pread_at_once(thread: &Thread, space: &AddressSpace, arguments: &[u64; 6]) -> Option<u64> {
    let [descriptor, address, length, offset, ..] = *arguments;
    i64::try_from(offset).ok()?;
    let file = thread.file(descriptor as i32).ok()?;
    check_reads(&file).ok()?;
    if file.is_generated() || !file.is_seekable() {
        return None;
    }
    let mut sink = ShortRange::across(space, address, length, true)?;
    file.admit(thread, false).ok()?;
    let nonblocking = file.is_nonblocking();
    let transfer = Transfer { caller: Some(thread), nonblocking, ..Transfer::PLAIN };
    let count = file.read_at(offset, &mut sink, transfer).ok()?;
    if sink.is_stopped() && count == 0 { None } else { Some(count as u64) }
}

/// A short write at an offset, as `write_at_once`.
pub fn pwrite_at_once(thread: &Thread, space: &AddressSpace, arguments: &[u64; 6]) -> Option<u64> {
    let [descriptor, address, length, offset, ..] = *arguments;
    i64::try_from(offset).ok()?;
    let file = thread.file(descriptor as i32).ok()?;
    check_writes(&file).ok()?;
    let is_synchronous = file.flags().contains(OpenFlags::DSYNC);
    if is_synchronous || file.is_generated() || !file.is_seekable() {
        return None;
    }
    let mut source = ShortRange::across(space, address, length, false)?;
    file.admit(thread, true).ok()?;
    let size_limit = thread.process.limits.soft(Resource::FileSize);
    let nonblocking = file.is_nonblocking();
    let transfer = Transfer { caller: Some(thread), nonblocking, size_limit, ..Transfer::PLAIN };
    let appends = file.flags().contains(OpenFlags::APPEND);
    let _end = append::try_hold(&file).ok()?;
    let count = file.write_at(offset, &mut source, transfer, appends).ok()?;
    if count == 0 && source.is_stopped() {
        return None;
    }
    match after_write(thread, &file, count) {
        Ok(()) => Some(count as u64),
        Err(errno) => Some(errno.to_return_value().cast_unsigned()),
    }
}

pub async fn pread64(call: &Call) -> SysResult {
    let spot = offset(call.argument(3))?;
    let file = call.file(0)?;
    check_seekable(&file)?;
    check_reads(&file)?;
    read_from(call, &file, call.user().sink(call.argument(1), call.argument(2))?, spot).await
}

pub async fn pwrite64(call: &Call) -> SysResult {
    let spot = offset(call.argument(3))?;
    let file = call.file(0)?;
    check_seekable(&file)?;
    check_writes(&file)?;
    write_to(call, &file, call.user().source(call.argument(1), call.argument(2))?, spot).await
}

pub async fn readv(call: &Call) -> SysResult {
    read_vectors(call, HERE).await
}

pub async fn writev(call: &Call) -> SysResult {
    write_vectors(call, HERE).await
}

pub async fn preadv(call: &Call) -> SysResult {
    let spot = offset(call.argument(3))?;
    check_seekable(&*call.file(0)?)?;
    read_vectors(call, spot).await
}

pub async fn pwritev(call: &Call) -> SysResult {
    let spot = offset(call.argument(3))?;
    check_seekable(&*call.file(0)?)?;
    write_vectors(call, spot).await
}

pub async fn preadv2(call: &Call) -> SysResult {
    let spot = offset_or_position(call.argument(3), call.unsigned(5))?;
    if spot.offset.is_some() {
        check_seekable(&*call.file(0)?)?;
    }
    read_vectors(call, spot).await
}

pub async fn pwritev2(call: &Call) -> SysResult {
    let spot = offset_or_position(call.argument(3), call.unsigned(5))?;
    if spot.offset.is_some() {
        check_seekable(&*call.file(0)?)?;
    }
    write_vectors(call, spot).await
}

async fn read_vectors(call: &Call, spot: Spot) -> SysResult {
    let file = call.file(0)?;
    check_reads(&file)?;
    let user = call.user();
    let vectors = user.read_io_vectors(call.argument(1), call.argument(2)).await?;
    if vectors.iter().all(|vector| vector.length == 0) {
        return Ok(0);
    }
    read_from(call, &file, user.sink_vector(vectors)?, spot).await
}

async fn write_vectors(call: &Call, spot: Spot) -> SysResult {
    let file = call.file(0)?;
    check_writes(&file)?;
    let user = call.user();
    let vectors = user.read_io_vectors(call.argument(1), call.argument(2)).await?;
    if vectors.iter().all(|vector| vector.length == 0) {
        return Ok(0);
    }
    write_to(call, &file, user.source_vector(vectors)?, spot).await
}

/// Reads into `sink` for somebody who has checked the file: at an offset, else at the position.
pub(super) async fn read_vectors_at(
    call: &Call,
    file: &Arc<OpenFile>,
    sink: UserSink,
    offset: Option<u64>,
    flags: TransferFlags,
) -> SysResult {
    read_from(call, file, sink, Spot { offset, flags }).await
}

/// Writes from `source`, as `read_vectors_at` reads.
pub(super) async fn write_vectors_at(
    call: &Call,
    file: &Arc<OpenFile>,
    source: UserSource,
    offset: Option<u64>,
    flags: TransferFlags,
) -> SysResult {
    write_to(call, file, source, Spot { offset, flags }).await
}

fn check_reads(file: &OpenFile) -> Result<(), Errno> {
    let flags = file.flags();
    if !flags.reads() || flags.contains(OpenFlags::PATH) {
        return Err(Errno::EBADF);
    }
    if file.file().can_read() { Ok(()) } else { Err(Errno::EINVAL) }
}

fn check_writes(file: &OpenFile) -> Result<(), Errno> {
    let flags = file.flags();
    if !flags.writes() || flags.contains(OpenFlags::PATH) {
        return Err(Errno::EBADF);
    }
    if file.file().can_write() { Ok(()) } else { Err(Errno::EINVAL) }
}

fn check_seekable(file: &OpenFile) -> Result<(), Errno> {
    if file.is_path_only() {
        Err(Errno::EBADF)
    } else if file.is_seekable() {
        Ok(())
    } else {
        Err(Errno::ESPIPE)
    }
}

/// Sockets wait in their own ways, and their messages may be more than bytes.
fn is_socket(file: &OpenFile) -> bool {
    file.kind() == NodeKind::Socket
}

/// The result of a transfer that moved `done` bytes before an error.
fn partly(done: usize, error: Errno) -> SysResult {
    if done > 0 { Ok(done as u64) } else { Err(error) }
}

async fn read_from(call: &Call, file: &Arc<OpenFile>, sink: UserSink, spot: Spot) -> SysResult {
    let result = read_all(call, file, sink, spot).await;
    call.thread.note_read(result.unwrap_or(0));
    result
}

async fn read_all(call: &Call, file: &Arc<OpenFile>, sink: UserSink, spot: Spot) -> SysResult {
    let nonblocking = file.is_nonblocking() || spot.flags.contains(TransferFlags::NOWAIT);
    if is_socket(file) && spot.offset.is_none() {
        return Box::pin(network::read_from(call, file.clone(), sink, nonblocking)).await;
    }
    if fanotify::is_group(file) {
        return Box::pin(fanotify::read_events(call, file, sink)).await;
    }
    fanotify::ask_before_read(call, file).await?;
    let mut sink = sink.in_pieces(piece_of(file));
    let caller: &Thread = &call.thread;
    let mut transfer = Transfer { caller: Some(caller), nonblocking, ..Transfer::PLAIN };
    let mut turn = Turn::new();
    let mut done = 0;
    let result = loop {
        if let Err(error) = file.admit(caller, false) {
            break partly(done, error);
        }
        let mut attempt = || match spot.offset {
            None => file.read(&mut sink, transfer),
            Some(offset) => file.read_at(offset.saturating_add(done as u64), &mut sink, transfer),
        };
        let mut result = attempt();
        if result == Err(Errno::EIOCBQUEUED) {
            result = Box::pin(pending::resume(attempt)).await;
        }
        match result {
            Ok(count) => {
                done += count;
                if sink.next_piece() {
                    if breathe(call, file).await.is_err() {
                        break Ok(done as u64);
                    }
                    continue;
                }
                if !sink.is_stopped() || sink.remaining() == 0 {
                    break Ok(done as u64);
                }
                if let Err(error) = sink.fault_in_next().await {
                    break partly(done, error);
                }
            }
            // A part of a long text was made that is not the one wanted.
            Err(Errno::EAGAIN) if file.is_generated() => {
                if breathe(call, file).await.is_err() {
                    break partly(done, Errno::ERESTARTSYS);
                }
            }
            Err(Errno::EAGAIN) if done == 0 && !nonblocking => {
                let deadline_ns =
                    file.file().read_timeout_ns().map(|ns| time::now_ns().saturating_add(ns));
                match ready_in_turn(call, file, PollEvents::READABLE, deadline_ns, &mut turn).await
                {
                    Ok(()) => {}
                    Err(NotReady::TimedOut) => transfer.expired = true,
                    Err(NotReady::Interrupted) => break Err(Errno::ERESTARTSYS),
                }
            }
            Err(error) => break partly(done, error),
        }
    };
    turn.end(call, file, PollEvents::READABLE);
    result
}

async fn write_to(call: &Call, file: &Arc<OpenFile>, source: UserSource, spot: Spot) -> SysResult {
    let result = write_whole(call, file, source, spot).await;
    call.thread.note_written(result.unwrap_or(0));
    result
}

async fn write_whole(
    call: &Call,
    file: &Arc<OpenFile>,
    source: UserSource,
    spot: Spot,
) -> SysResult {
    if is_socket(file) && spot.offset.is_none() {
        let nonblocking = file.is_nonblocking() || spot.flags.contains(TransferFlags::NOWAIT);
        return Box::pin(network::write_to(call, file.clone(), source, nonblocking)).await;
    }
    let length = source.remaining();
    let mut source = source.in_pieces(piece_of(file));
    let is_stream = !file.is_seekable();
    if !is_stream || length > PIPE_BUF || length == 0 {
        return write_all(call, file, &mut Supply::User(&mut source), spot).await;
    }
    // On the heap, so that the futures of all calls stay small.
    let mut gathered = vec![0u8; length];
    let mut filled = 0;
    while filled < length {
        let Some(rest) = gathered.get_mut(filled..) else { break };
        filled += source.read(rest);
        if filled < length {
            source.fault_in_next().await?;
        }
    }
    write_all(call, file, &mut Supply::Gathered(&gathered), spot).await
}

/// Where a write takes its bytes from.
enum Supply<'a> {
    User(&'a mut UserSource),
    Gathered(&'a [u8]),
}

impl<'a> Supply<'a> {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Supply::User(source) => *source,
            Supply::Gathered(bytes) => bytes,
        }
    }

    /// What was gathered, as it is before an attempt.
    fn mark(&self) -> Option<&'a [u8]> {
        match self {
            Supply::User(_) => None,
            Supply::Gathered(bytes) => Some(bytes),
        }
    }

    /// Nothing has been taken of what was gathered.
    fn go_back(&mut self, mark: Option<&'a [u8]>) {
        if let (Supply::Gathered(bytes), Some(mark)) = (self, mark) {
            *bytes = mark;
        }
    }

    fn is_stopped(&self) -> bool {
        match self {
            Supply::User(source) => source.is_stopped(),
            Supply::Gathered(_) => false,
        }
    }

    fn next_piece(&mut self) -> bool {
        match self {
            Supply::User(source) => source.next_piece(),
            Supply::Gathered(_) => false,
        }
    }

    async fn fault_in_next(&mut self) -> Result<(), Errno> {
        match self {
            Supply::User(source) => source.fault_in_next().await,
            Supply::Gathered(_) => Ok(()),
        }
    }
}

async fn write_all(call: &Call, file: &OpenFile, supply: &mut Supply<'_>, spot: Spot) -> SysResult {
    let mut turn = Turn::new();
    let result = write_in_turn(call, file, supply, spot, &mut turn).await;
    turn.end(call, file, PollEvents::WRITABLE);
    result
}

async fn write_in_turn(
    call: &Call,
    file: &OpenFile,
    supply: &mut Supply<'_>,
    spot: Spot,
    turn: &mut Turn,
) -> SysResult {
    let nonblocking = file.is_nonblocking() || spot.flags.contains(TransferFlags::NOWAIT);
    let is_stream = !file.is_seekable();
    let size_limit = call.process().limits.soft(Resource::FileSize);
    let caller: &Thread = &call.thread;
    let transfer = Transfer { caller: Some(caller), nonblocking, size_limit, ..Transfer::PLAIN };
    let _end = append::hold(caller, file, appends(file, spot)).await?;
    let mut done = 0;
    loop {
        if let Err(error) = file.admit(caller, true) {
            return partly(done, error);
        }
        let mark = supply.mark();
        let mut result = write_once(file, supply.source(), spot, done, transfer);
        if result == Err(Errno::EIOCBQUEUED) {
            // Nothing was taken from the source.
            let again = || write_once(file, supply.source(), spot, done, transfer);
            result = Box::pin(pending::resume(again)).await;
        }
        match result {
            // A stream that takes nothing and does not say why must not be asked for ever.
            Ok(0) if is_stream && supply.source().remaining() > 0 && !supply.is_stopped() => {
                return partly(done, Errno::EIO);
            }
            Ok(count) => {
                done += count;
                if supply.next_piece() {
                    if breathe(call, file).await.is_err() {
                        break;
                    }
                    continue;
                }
                if supply.source().remaining() == 0 {
                    break;
                }
                if supply.is_stopped() {
                    if let Err(error) = supply.fault_in_next().await {
                        return partly(done, error);
                    }
                } else if !is_stream {
                    break;
                }
            }
            Err(Errno::EAGAIN) if !nonblocking => {
                supply.go_back(mark);
                match ready_in_turn(call, file, PollEvents::WRITABLE, None, turn).await {
                    Ok(()) => {}
                    Err(_) => return partly(done, Errno::ERESTARTSYS),
                }
            }
            Err(error) => {
                match error {
                    Errno::EPIPE => raise(call, Signal::SIGPIPE),
                    Errno::EFBIG if size_limit != u64::MAX && done == 0 => {
                        raise(call, Signal::SIGXFSZ);
                    }
                    _ => {}
                }
                return partly(done, error);
            }
        }
    }
    after_write(&call.thread, file, done)?;
    let is_synchronous = file.flags().contains(OpenFlags::DSYNC)
        || spot.flags.intersects(TransferFlags::DSYNC | TransferFlags::SYNC);
    if is_synchronous && done > 0 && !is_stream {
        Box::pin(pending::complete(|| file.sync())).await?;
    }
    Ok(done as u64)
}

/// Bytes that a call moves before it gives the core to others. Devices may have to make theirs.
fn piece_of(file: &OpenFile) -> u64 {
    if file.kind() == NodeKind::CharacterDevice { 32 << 10 } else { 1 << 20 }
}

/// Gives the core to others between two pieces of a long transfer. An error when it is to end early: the
/// caller is killed, or has a signal and what it reads or writes is a device.
async fn breathe(call: &Call, file: &OpenFile) -> Result<(), Interrupted> {
    task::yield_now().await;
    let is_device = file.kind() == NodeKind::CharacterDevice;
    let must_end = call.thread.is_killed() || (is_device && call.thread.has_attention());
    if must_end { Err(Interrupted) } else { Ok(()) }
}

fn appends(file: &OpenFile, spot: Spot) -> bool {
    spot.flags.contains(TransferFlags::APPEND)
        || (file.flags().contains(OpenFlags::APPEND)
            && !spot.flags.contains(TransferFlags::NOAPPEND))
}

fn write_once(
    file: &OpenFile,
    source: &mut dyn Source,
    spot: Spot,
    done: usize,
    transfer: Transfer,
) -> Result<usize, Errno> {
    let appends = appends(file, spot);
    match spot.offset {
        None => file.write_as(source, transfer, appends),
        Some(offset) => {
            file.write_at(offset.saturating_add(done as u64), source, transfer, appends)
        }
    }
}
