//! Making sockets, and who talks to whom.

use abi::Errno;
use abi::fs::{AT_FDCWD, OpenFlags};
use abi::socket::*;
use alloc::sync::Arc;
use alloc::vec::Vec;
use fs::inode::NewContent;
use fs::tree;
use net::Socket;
use net::socket::{Address, Blocked, Directions, Kind};
use net::unix::{Name, UnixSocket};

use super::super::file::support::Start;
use super::{Handle, Patience, address, attempt, attempt_to_take};
use crate::call::{Call, SysResult};
use crate::process::Resource;
use crate::socket;

/// The flags in a type or in an argument of their own; `EINVAL` for others.
fn flags(bits: i32) -> Result<OpenFlags, Errno> {
    if bits & !(SOCK_CLOEXEC | SOCK_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(OpenFlags::from_bits_truncate(bits.cast_unsigned()))
}

/// The kind of a new socket, checked in the order of Linux.
fn kind(domain: i32, kind: i32, protocol: i32) -> Result<Kind, Errno> {
    if !(0..AF_MAX).contains(&domain) {
        return Err(Errno::EAFNOSUPPORT);
    }
    if kind >= SOCK_MAX {
        return Err(Errno::EINVAL);
    }
    if domain != AF_UNIX {
        return Err(Errno::EAFNOSUPPORT);
    }
    if protocol != 0 && protocol != AF_UNIX {
        return Err(Errno::EPROTONOSUPPORT);
    }
    match kind {
        SOCK_STREAM => Ok(Kind::Stream),
        SOCK_DGRAM | SOCK_RAW => Ok(Kind::Datagram),
        SOCK_SEQPACKET => Ok(Kind::Seqpacket),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

fn limit(call: &Call) -> u64 {
    call.process().limits.soft(Resource::Files)
}

pub fn socket(call: &Call) -> SysResult {
    let type_argument = call.int(1);
    let flags = flags(type_argument & !SOCK_TYPE_MASK)?;
    let kind = kind(call.int(0), type_argument & SOCK_TYPE_MASK, call.int(2))?;
    let file = socket::open_file(UnixSocket::new(kind), &call.thread.identity(), flags)?;
    let close_on_exec = flags.contains(OpenFlags::CLOEXEC);
    let descriptor = call.thread.files().insert(file, close_on_exec, limit(call))?;
    Ok(u64::from(descriptor.unsigned_abs()))
}

pub async fn socketpair(call: &Call) -> SysResult {
    let type_argument = call.int(1);
    let flags = flags(type_argument & !SOCK_TYPE_MASK)?;
    let files = call.thread.files();
    let close_on_exec = flags.contains(OpenFlags::CLOEXEC);
    let ends =
        [files.reserve(close_on_exec, limit(call))?, files.reserve(close_on_exec, limit(call))?];
    let [first, second] = &ends;
    let numbers = [first.descriptor(), second.descriptor()];
    call.user().write_value(call.argument(3), &numbers).await?;
    let kind = kind(call.int(0), type_argument & SOCK_TYPE_MASK, call.int(2))?;
    let identity = call.thread.identity();
    let pair = UnixSocket::pair(kind, &socket::peer(&call.thread));
    let first_file = socket::open_file(pair.0, &identity, flags)?;
    let second_file = socket::open_file(pair.1, &identity, flags)?;
    for (end, file) in ends.into_iter().zip([first_file, second_file]) {
        end.install(file);
    }
    Ok(0)
}

/// A local socket as itself.
fn local(socket: &Arc<dyn Socket>) -> Result<Arc<UnixSocket>, Errno> {
    socket.clone().as_any().downcast().map_err(|_| Errno::EOPNOTSUPP)
}

pub async fn bind(call: &Call) -> SysResult {
    let handle = Handle::new(call, 0)?;
    let bytes = address::read(call, call.argument(1), call.int(2)).await?;
    let socket = local(&handle.socket)?;
    if bytes.len() == UNIX_PATH_OFFSET && address::family(&bytes) == Some(AF_UNIX) {
        socket.bind_automatically()?;
        return Ok(0);
    }
    let path = address::path(&bytes)?;
    if path.first() == Some(&0) {
        socket.bind(Name { path: path.to_vec(), inode: None })?;
        return Ok(0);
    }
    bind_path(call, &handle, &socket, address::text(path))?;
    Ok(0)
}

fn bind_path(
    call: &Call,
    handle: &Handle,
    socket: &Arc<UnixSocket>,
    path: &[u8],
) -> Result<(), Errno> {
    let start = Start::new(call, AT_FDCWD, path)?;
    let mode = handle.file.inode().permissions().mode & 0o777 & !call.thread.directory().umask();
    let location = match tree::create(start.lookup(), path, NewContent::Socket, mode) {
        Err(Errno::EEXIST) => return Err(Errno::EADDRINUSE),
        result => result?,
    };
    let id = location.inode.id();
    let mut name: Vec<u8> = path.to_vec();
    name.push(0);
    let inode = Some(((id.device, id.number), Arc::new(location.inode) as _));
    let bound = socket.bind(Name { path: name, inode });
    if bound.is_err() {
        // The inode was made for nothing. Somebody may have been faster to remove it.
        let _ = tree::unlink(start.lookup(), path);
    }
    bound
}

pub fn listen(call: &Call) -> SysResult {
    let handle = Handle::new(call, 0)?;
    // A negative number counts as a very large one, as in Linux.
    let backlog = usize::try_from(call.int(1)).unwrap_or(usize::MAX);
    handle.socket.listen(backlog, socket::peer(&call.thread))?;
    Ok(0)
}

pub async fn accept(call: &Call, bits: i32) -> SysResult {
    let file = super::usable(call, 0)?;
    let flags = flags(bits)?;
    let close_on_exec = flags.contains(OpenFlags::CLOEXEC);
    let reservation = call.thread.files().reserve(close_on_exec, limit(call))?;
    let Handle { file, socket: listener } = Handle::of(file)?;
    let patience = Patience::new(file.is_nonblocking(), &listener.options().receive_limit);
    let take = || match listener.accept() {
        Err(Errno::EAGAIN) => Err(Blocked::until(listener.readable())),
        result => result.map_err(Blocked::from),
    };
    let connection = attempt_to_take(call, &patience, &listener, take).await?;
    let accepted = socket::open_file(connection.clone(), &call.thread.identity(), flags)?;
    if call.argument(1) != 0 {
        let name = connection.peer_name().unwrap_or_else(|_| net::unix::unnamed());
        address::write(call, &name, call.argument(1), call.argument(2)).await?;
    }
    Ok(u64::from(reservation.install(accepted).unsigned_abs()))
}

pub async fn connect(call: &Call) -> SysResult {
    let file = super::usable(call, 0)?;
    let bytes = address::read(call, call.argument(1), call.int(2)).await?;
    let handle = Handle::of(file)?;
    let family = address::family(&bytes).ok_or(Errno::EINVAL)?;
    let target = if handle.socket.kind() == Kind::Datagram && family == AF_UNSPEC {
        None
    } else {
        Some(Address::Unix(address::target(call, &bytes)?))
    };
    let peer = socket::peer(&call.thread);
    let options = handle.socket.options();
    let patience = Patience::new(handle.file.is_nonblocking(), &options.send_limit);
    attempt(call, &patience, || handle.socket.connect(target.as_ref(), &peer)).await?;
    Ok(0)
}

pub fn shutdown(call: &Call) -> SysResult {
    let handle = Handle::new(call, 0)?;
    let (receive, send) = match call.int(1) {
        0 => (true, false),
        1 => (false, true),
        2 => (true, true),
        _ => return Err(Errno::EINVAL),
    };
    handle.socket.shutdown(Directions { receive, send })?;
    Ok(0)
}

pub async fn getsockname(call: &Call) -> SysResult {
    let handle = Handle::new(call, 0)?;
    address::write(call, &handle.socket.name(), call.argument(1), call.argument(2)).await?;
    Ok(0)
}

pub async fn getpeername(call: &Call) -> SysResult {
    let handle = Handle::new(call, 0)?;
    let name = handle.socket.peer_name()?;
    address::write(call, &name, call.argument(1), call.argument(2)).await?;
    Ok(0)
}
