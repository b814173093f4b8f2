//! Sending and receiving.
//!
//! Bytes of a stream move straight between the program's pages and the queue. A record is gathered
//! first, so that it goes out whole, and is taken from the queue before it is copied to the program.

use abi::Errno;
use abi::fs::MAX_TRANSFER;
use abi::signal::Signal;
use abi::socket::*;
use abi::time::Timespec;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::io::{Sink, Source};
use base::time;
use fs::OpenFile;
use net::rights::discard;
use net::socket::{Address, Blocked, Incoming, Kind, Outgoing, Receive, Record};

use super::super::file::support::raise;
use super::{Handle, Patience, address, attempt, attempt_to_take, control};
use crate::call::{Call, Pace, SysResult};
use crate::memory::{ShortRange, UserSink, UserSource};
use crate::process::Thread;
use crate::socket;

/// Most messages of one `sendmmsg` or `recvmmsg`, and most ranges of one message.
const MOST_MESSAGES: u64 = 1024;
/// Bytes that every stream takes in one piece: a short write of so many is never cut.
const UNCUT: usize = 2048;

/// Pages as which a message counts.
fn pages(bytes: usize) -> u64 {
    1 + (bytes / hal::PAGE_SIZE) as u64
}

/// Sends a message: the bytes of the source and what else is in `outgoing`.
async fn send(
    call: &Call,
    handle: &Handle,
    mut source: UserSource,
    mut outgoing: Outgoing,
    flags: MessageFlags,
) -> SysResult {
    let socket = &handle.socket;
    let is_stream = socket.kind() == Kind::Stream;
    if flags.contains(MessageFlags::OOB) {
        if !is_stream || source.remaining() == 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        outgoing.is_urgent = true;
    }
    let is_nonblocking = handle.file.is_nonblocking() || flags.contains(MessageFlags::DONTWAIT);
    let patience = Patience::new(is_nonblocking, &socket.options().send_limit);
    let mut done = 0;
    let mut pace = Pace::new();
    loop {
        let sent = attempt(call, &patience, || socket.send(&mut source, &mut outgoing)).await;
        match sent {
            Ok(count) => {
                done += count;
                if source.remaining() > 0 && source.is_stopped() {
                    match source.fault_in_next().await {
                        Ok(()) => continue,
                        Err(_) if done > 0 => break,
                        Err(error) => return Err(error),
                    }
                }
                if !is_stream || source.remaining() == 0 {
                    break;
                }
                // Whoever receives makes room all the time.
                if pace.spend(&call.thread, pages(count)).await.is_err() {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(error) => {
                if error == Errno::EPIPE && is_stream && !flags.contains(MessageFlags::NOSIGNAL) {
                    raise(call, Signal::SIGPIPE);
                }
                return Err(error);
            }
        }
    }
    Ok(done as u64)
}

/// Puts the receiver of a message into it.
fn set_target(
    call: &Call,
    handle: &Handle,
    name: &[u8],
    outgoing: &mut Outgoing,
) -> Result<(), Errno> {
    if name.is_empty() {
        return Ok(());
    }
    let socket = &handle.socket;
    match socket.kind() {
        Kind::Seqpacket => {}
        Kind::Stream if socket.peer_name().is_ok() => return Err(Errno::EISCONN),
        Kind::Stream => return Err(Errno::EOPNOTSUPP),
        Kind::Datagram => {
            address::path(name)?;
            let room = socket.options().send_buffer().saturating_sub(32);
            if outgoing.length > room {
                return Err(Errno::EMSGSIZE);
            }
            outgoing.target = Some(Address::Unix(address::target(call, name)?));
        }
    }
    Ok(())
}

/// `write` and its kin on a socket.
pub async fn write_to(
    call: &Call,
    file: Arc<OpenFile>,
    source: UserSource,
    is_nonblocking: bool,
) -> SysResult {
    let handle = Handle::of(file)?;
    let outgoing = Outgoing::plain(source.remaining(), socket::sender(&call.thread));
    let flags = if is_nonblocking { MessageFlags::DONTWAIT } else { MessageFlags::empty() };
    send(call, &handle, source, outgoing, flags).await
}

/// A short write to a socket that takes it whole. `None` when anything stands in the way; nothing has
/// happened then.
pub fn write_at_once(thread: &Thread, file: &OpenFile, source: &mut ShortRange<'_>) -> Option<u64> {
    let length = Source::remaining(source);
    if length > UNCUT {
        return None;
    }
    let socket = socket::of(file).ok()?;
    let mut outgoing = Outgoing::plain(length, socket::sender(thread));
    match socket.send(source, &mut outgoing) {
        Ok(_) if source.is_stopped() => None,
        Ok(count) => Some(count as u64),
        // The long way sends the signal.
        Err(blocked) if blocked.errno == Errno::EPIPE => None,
        Err(blocked) => told_once(file, blocked.errno),
    }
}

/// The answer of a short transfer that failed: a socket tells its pending error once, so that is the
/// answer. `None` when the long way finds the same again.
pub fn told_once(file: &OpenFile, error: Errno) -> Option<u64> {
    let is_final = error != Errno::EAGAIN && socket::of(file).is_ok();
    is_final.then(|| error.to_return_value().cast_unsigned())
}

pub async fn sendto(call: &Call) -> SysResult {
    let length = call.argument(2).min(MAX_TRANSFER as u64);
    let source = call.user().source(call.argument(1), length)?;
    let handle = Handle::new(call, 0)?;
    let name = match call.argument(4) {
        0 => Vec::new(),
        address => address::read(call, address, call.int(5)).await?,
    };
    let mut outgoing = Outgoing::plain(source.remaining(), socket::sender(&call.thread));
    set_target(call, &handle, &name, &mut outgoing)?;
    send(call, &handle, source, outgoing, flags(call.unsigned(3))).await
}

fn flags(bits: u32) -> MessageFlags {
    MessageFlags::from_bits_retain(bits)
}

/// `EINVAL` for a flag that Linux keeps for messages of 32-bit programs.
fn refuse_old_layouts(flags: u32) -> Result<(), Errno> {
    const CMSG_COMPAT: u32 = 1 << 31;
    if flags & CMSG_COMPAT != 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Checks the header of a message.
fn check(mut header: MessageHeader) -> Result<MessageHeader, Errno> {
    if header.name == 0 {
        header.name_length = 0;
    }
    if header.name_length < 0 {
        return Err(Errno::EINVAL);
    }
    header.name_length = header.name_length.min(ADDRESS_LIMIT as i32);
    if header.vector_count > MOST_MESSAGES {
        return Err(Errno::EMSGSIZE);
    }
    Ok(header)
}

async fn send_message(
    call: &Call,
    handle: &Handle,
    header: MessageHeader,
    flags: MessageFlags,
) -> SysResult {
    let header = check(header)?;
    let name = address::read(call, header.name, header.name_length).await?;
    let user = call.user();
    let vectors = user.read_io_vectors(header.vectors, header.vector_count).await?;
    let source = user.source_vector(vectors)?;
    if header.control_length > i32::MAX as u64 {
        return Err(Errno::ENOBUFS);
    }
    let mut outgoing = Outgoing::plain(source.remaining(), socket::sender(&call.thread));
    if header.control_length > 0 {
        control::read(call, header.control, header.control_length, &mut outgoing).await?;
    }
    set_target(call, handle, &name, &mut outgoing)?;
    send(call, handle, source, outgoing, flags).await
}

pub async fn sendmsg(call: &Call) -> SysResult {
    refuse_old_layouts(call.unsigned(2))?;
    let handle = Handle::new(call, 0)?;
    let header = call.user().read_value(call.argument(1)).await?;
    send_message(call, &handle, header, flags(call.unsigned(2))).await
}

/// Where message `index` of an array is.
fn entry(array: u64, index: u64) -> Result<u64, Errno> {
    let offset = index * size_of::<ManyMessageHeader>() as u64;
    array.checked_add(offset).ok_or(Errno::EFAULT)
}

/// Where the length of the message at `entry` is.
fn length_of(entry: u64) -> u64 {
    entry + size_of::<MessageHeader>() as u64
}

pub async fn sendmmsg(call: &Call) -> SysResult {
    refuse_old_layouts(call.unsigned(3))?;
    let handle = Handle::new(call, 0)?;
    let count = u64::from(call.unsigned(2)).min(MOST_MESSAGES);
    let flags = flags(call.unsigned(3));
    let mut done = 0;
    let mut pace = Pace::new();
    while done < count {
        let result = async {
            let entry = entry(call.argument(1), done)?;
            let header = call.user().read_value(entry).await?;
            let length = send_message(call, &handle, header, flags).await?;
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            call.user().write_value(length_of(entry), &length).await?;
            Ok(pages(length as usize))
        };
        let moved = match result.await {
            Ok(moved) => moved,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        };
        done += 1;
        if pace.spend(&call.thread, moved).await.is_err() || call.thread.has_attention() {
            break;
        }
    }
    Ok(done)
}

/// What was received.
struct Received {
    /// The answer of the call.
    count: usize,
    /// What is said of the message.
    flags: MessageFlags,
    message: Incoming,
}

/// Receives a message into the sink.
async fn receive(
    call: &Call,
    handle: &Handle,
    sink: &mut UserSink,
    flags: MessageFlags,
    wants_name: bool,
) -> Result<Received, Errno> {
    let mut received = Received {
        count: 0,
        flags: flags & MessageFlags::CMSG_CLOEXEC,
        message: Incoming::default(),
    };
    let result = receive_bytes(call, handle, sink, flags, wants_name, &mut received).await;
    if let Err(error) = result {
        discard(received.message.rights);
        return Err(error);
    }
    Ok(received)
}

async fn receive_bytes(
    call: &Call,
    handle: &Handle,
    sink: &mut UserSink,
    flags: MessageFlags,
    wants_name: bool,
    received: &mut Received,
) -> Result<(), Errno> {
    let socket = &handle.socket;
    let options = socket.options();
    if flags.contains(MessageFlags::OOB) {
        let byte = socket.receive_urgent(flags.contains(MessageFlags::PEEK))?;
        received.flags |= MessageFlags::OOB;
        received.count = 1;
        while sink.write(&[byte]) == 0 {
            if sink.remaining() == 0 {
                return Err(Errno::EFAULT);
            }
            sink.fault_in_next().await?;
        }
        return Ok(());
    }
    let is_nonblocking = handle.file.is_nonblocking() || flags.contains(MessageFlags::DONTWAIT);
    let patience = Patience::new(is_nonblocking, &options.receive_limit);
    let how = Receive {
        peek: flags.contains(MessageFlags::PEEK),
        wants_credentials: options.is_on(option::SO_PASSCRED),
        wants_name,
        is_nonblocking,
        into_sink: false,
    };
    let low_water = usize::try_from(options.low_water.load(core::sync::atomic::Ordering::Relaxed));
    let target = match low_water {
        _ if flags.contains(MessageFlags::WAITALL) => sink.remaining(),
        Ok(low_water) => low_water.min(sink.remaining()),
        Err(_) => sink.remaining(),
    };
    let mut pace = Pace::new();
    loop {
        let message = &mut received.message;
        let take = || match socket.receive(sink, how, message) {
            Err(Errno::EAGAIN) => Err(Blocked::until(socket.readable())),
            result => result.map_err(Blocked::from),
        };
        let count = match attempt_to_take(call, &patience, socket, take).await {
            Ok(count) => count,
            Err(_) if received.count > 0 => return Ok(()),
            Err(error) => return Err(error),
        };
        if let Some(record) = received.message.record.take() {
            return deliver(record, sink, flags, received).await;
        }
        received.count += count;
        if sink.is_stopped() && sink.remaining() > 0 {
            match sink.fault_in_next().await {
                Ok(()) => continue,
                Err(_) if received.count > 0 => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        let is_over = count == 0 || how.peek || received.message.is_complete;
        if is_over || received.count >= target.max(1) || sink.remaining() == 0 {
            return Ok(());
        }
        // Whoever sends brings more all the time.
        if pace.spend(&call.thread, pages(count)).await.is_err() {
            return Ok(());
        }
    }
}

/// Copies a record to the program; what does not fit is lost.
async fn deliver(
    record: Record,
    sink: &mut UserSink,
    flags: MessageFlags,
    received: &mut Received,
) -> Result<(), Errno> {
    let mut rest = record.bytes.get(record.start..).unwrap_or_default();
    let length = rest.len();
    if length > sink.remaining() {
        received.flags |= MessageFlags::TRUNC;
        rest = rest.get(..sink.remaining()).unwrap_or(rest);
    }
    received.count = if flags.contains(MessageFlags::TRUNC) { length } else { rest.len() };
    while !rest.is_empty() {
        let count = sink.write(rest);
        rest = rest.get(count..).unwrap_or_default();
        if !rest.is_empty() {
            sink.fault_in_next().await?;
        }
    }
    Ok(())
}

/// `read` and its kin on a socket.
pub async fn read_from(
    call: &Call,
    file: Arc<OpenFile>,
    mut sink: UserSink,
    is_nonblocking: bool,
) -> SysResult {
    if sink.remaining() == 0 {
        return Ok(0);
    }
    let handle = Handle::of(file)?;
    let flags = if is_nonblocking { MessageFlags::DONTWAIT } else { MessageFlags::empty() };
    let received = receive(call, &handle, &mut sink, flags, false).await?;
    discard(received.message.rights);
    Ok(received.count as u64)
}

pub async fn recvfrom(call: &Call) -> SysResult {
    let length = call.argument(2).min(MAX_TRANSFER as u64);
    let mut sink = call.user().sink(call.argument(1), length)?;
    let handle = Handle::new(call, 0)?;
    let wants_name = call.argument(4) != 0;
    let received = receive(call, &handle, &mut sink, flags(call.unsigned(3)), wants_name).await?;
    discard(received.message.rights);
    if wants_name {
        let name = &received.message.sender;
        address::write(call, name, call.argument(4), call.argument(5)).await?;
    }
    Ok(received.count as u64)
}

/// Receives a message into what the header at `address` describes, and updates that.
async fn receive_message(
    call: &Call,
    handle: &Handle,
    address: u64,
    flags: MessageFlags,
) -> SysResult {
    let user = call.user();
    let header = check(user.read_value::<MessageHeader>(address).await?)?;
    let vectors = user.read_io_vectors(header.vectors, header.vector_count).await?;
    let mut sink = user.sink_vector(vectors)?;
    let mut received = receive(call, handle, &mut sink, flags, header.name != 0).await?;
    let files = core::mem::take(&mut received.message.rights);
    let told = received.message.credentials;
    let field = |offset: usize| address + offset as u64;
    if header.name != 0 {
        let length_address = field(core::mem::offset_of!(MessageHeader, name_length));
        let name = &received.message.sender;
        if let Err(error) = address::write(call, name, header.name, length_address).await {
            discard(files);
            return Err(error);
        }
    }
    let mut writer = control::Writer::new(header.control, header.control_length);
    if header.control == 0 {
        writer.is_cut = told.is_some() || !files.is_empty();
        discard(files);
    } else {
        if let Some(credentials) = told {
            writer.put_credentials(call, &credentials).await?;
        }
        if !files.is_empty() {
            let close_on_exec = flags.contains(MessageFlags::CMSG_CLOEXEC);
            writer.put_files(call, files, close_on_exec).await?;
        }
    }
    if writer.is_cut {
        received.flags |= MessageFlags::CTRUNC;
    }
    let flags_address = field(core::mem::offset_of!(MessageHeader, flags));
    user.write_value(flags_address, &received.flags.bits()).await?;
    let control_address = field(core::mem::offset_of!(MessageHeader, control_length));
    user.write_value(control_address, &writer.written).await?;
    Ok(received.count as u64)
}

pub async fn recvmsg(call: &Call) -> SysResult {
    refuse_old_layouts(call.unsigned(2))?;
    let handle = Handle::new(call, 0)?;
    receive_message(call, &handle, call.argument(1), flags(call.unsigned(2))).await
}

pub async fn recvmmsg(call: &Call) -> SysResult {
    refuse_old_layouts(call.unsigned(3))?;
    let timeout_address = call.argument(4);
    let deadline_ns = if timeout_address == 0 {
        None
    } else {
        let timeout: Timespec = call.user().read_value(timeout_address).await?;
        Some(time::now_ns().saturating_add(timeout.to_ns()?))
    };
    let handle = Handle::new(call, 0)?;
    if let Some(error) = handle.socket.take_error() {
        return Err(error);
    }
    let count = u64::from(call.unsigned(2)).min(MOST_MESSAGES);
    let mut flags = flags(call.unsigned(3));
    let mut done = 0;
    let mut pace = Pace::new();
    while done < count {
        let result = async {
            let entry = entry(call.argument(1), done)?;
            let length =
                receive_message(call, &handle, entry, flags - MessageFlags::WAITFORONE).await?;
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            call.user().write_value(length_of(entry), &length).await?;
            Ok(pages(length as usize))
        };
        let moved = match result.await {
            Ok(moved) => moved,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        };
        done += 1;
        if pace.spend(&call.thread, moved).await.is_err() {
            break;
        }
        if flags.contains(MessageFlags::WAITFORONE) {
            flags |= MessageFlags::DONTWAIT;
        }
        let is_over = deadline_ns.is_some_and(|deadline_ns| deadline_ns <= time::now_ns());
        if is_over || call.thread.has_attention() {
            break;
        }
    }
    if let Some(deadline_ns) = deadline_ns {
        let left = Timespec::from_ns(deadline_ns.saturating_sub(time::now_ns()));
        call.user().write_value(timeout_address, &left).await?;
    }
    Ok(done)
}
