//! Sockets as files: what stands between the file layer and `net`, which do not know each other.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::any::Any;

use abi::Errno;
use abi::fs::{OpenFlags, PollEvents};
use abi::socket::{UserCredentials, request};
use base::io::{Sink, Source};
use fs::anonymous::AnonymousInode;
use fs::file::{File, IoctlAnswer, Reason, Transfer};
use fs::poll::PollTable;
use fs::{Caller, Identity, OpenFile};
use net::Socket;
use net::rights::{Passed, References, discard};
use net::socket::{Incoming, Outgoing, Peer, Receive, Urged};
use net::unix::UnixSocket;

use crate::process::Thread;

/// Most bytes of control messages to be sent (`/proc/sys/net/core/optmem_max`).
pub const CONTROL_LIMIT: u64 = 20_480;

/// The behaviour of a socket's file. Its end is the end of the socket.
pub struct SocketFile {
    socket: Arc<dyn Socket>,
}

/// The file of a new socket. `flags` may have `NONBLOCK`.
pub fn open_file(
    socket: Arc<dyn Socket>,
    identity: &Identity,
    flags: OpenFlags,
) -> Result<Arc<OpenFile>, Errno> {
    let location = AnonymousInode::socket_location(identity.user, identity.group);
    let number = location.inode.id().number;
    let file = Arc::new(SocketFile { socket: socket.clone() });
    let open = OpenFile::new(file, location, OpenFlags::RDWR | (flags & OpenFlags::NONBLOCK))?;
    socket.attach(number, Some(Arc::new(UrgedFile(Arc::downgrade(&open)))));
    Ok(open)
}

/// The owner of a socket's file is told of urgent data.
struct UrgedFile(Weak<OpenFile>);

impl Urged for UrgedFile {
    fn urge(&self) {
        if let Some(open) = self.0.upgrade() {
            open.signal_owner(0, Reason::Urgent);
        }
    }
}

/// The socket behind a file; `ENOTSOCK` when there is none.
pub fn of(file: &OpenFile) -> Result<&Arc<dyn Socket>, Errno> {
    let file = file.file().as_any().downcast_ref::<SocketFile>();
    file.map(|file| &file.socket).ok_or(Errno::ENOTSOCK)
}

/// Who a thread is to those whom it sends messages.
pub fn sender(thread: &Thread) -> UserCredentials {
    let credentials = thread.credentials();
    UserCredentials {
        process: thread.process.pid.0,
        user: credentials.user.real,
        group: credentials.group.real,
    }
}

/// Who a thread is to those whom it is connected to.
pub fn peer(thread: &Thread) -> Peer {
    let credentials = thread.credentials();
    Peer {
        credentials: UserCredentials {
            process: thread.process.pid.0,
            user: credentials.user.effective,
            group: credentials.group.effective,
        },
        groups: credentials.groups.clone(),
    }
}

impl File for SocketFile {
    fn read(&self, _: u64, sink: &mut dyn Sink, transfer: Transfer<'_>) -> Result<usize, Errno> {
        if sink.remaining() == 0 {
            return Ok(0);
        }
        let how =
            Receive { is_nonblocking: transfer.nonblocking, into_sink: true, ..Receive::default() };
        let mut message = Incoming::default();
        let result = self.socket.receive(sink, how, &mut message);
        discard(message.rights);
        result
    }

    fn write(
        &self,
        _: u64,
        source: &mut dyn Source,
        transfer: Transfer<'_>,
    ) -> Result<usize, Errno> {
        let thread = transfer.caller.and_then(|caller| caller.as_any().downcast_ref::<Thread>());
        let mut message =
            Outgoing::plain(source.remaining(), thread.map(sender).unwrap_or_default());
        self.socket.send(source, &mut message).map_err(|blocked| blocked.errno)
    }

    fn poll(&self, events: PollEvents, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(self.socket.readable());
            table.register(self.socket.writable());
        }
        self.socket.poll(events)
    }

    fn ioctl_input(&self, request: u32) -> Result<usize, Errno> {
        match request {
            request::SIOCINQ | request::SIOCOUTQ | request::SIOCATMARK => Ok(0),
            _ => Err(Errno::ENOTTY),
        }
    }

    fn ioctl(
        &self,
        _caller: &dyn Caller,
        request: u32,
        _argument: u64,
        _input: &[u8],
    ) -> Result<IoctlAnswer, Errno> {
        let count = match request {
            request::SIOCINQ => self.socket.unread()?,
            request::SIOCOUTQ => self.socket.unsent(),
            request::SIOCATMARK => usize::from(self.socket.is_at_mark()),
            _ => return Err(Errno::ENOTTY),
        };
        Ok(IoctlAnswer::bytes(&i32::try_from(count).unwrap_or(i32::MAX).to_ne_bytes()))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.socket.close();
    }
}

/// An open file in a message.
pub struct PassedFile(pub Arc<OpenFile>);

struct FileReferences(Weak<OpenFile>);

impl References for FileReferences {
    fn count(&self) -> usize {
        self.0.strong_count()
    }
}

impl Passed for PassedFile {
    fn duplicate(&self) -> Box<dyn Passed> {
        Box::new(PassedFile(self.0.clone()))
    }

    fn socket(&self) -> Option<(Arc<UnixSocket>, Box<dyn References>)> {
        let socket = of(&self.0).ok()?.clone().as_any().downcast::<UnixSocket>().ok()?;
        Some((socket, Box::new(FileReferences(Arc::downgrade(&self.0)))))
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
