//! What every socket offers to the handlers of calls.

use crate::option::Options;
use crate::rights::{Passed, Rights};
use crate::unix;
use abi::Errno;
use abi::fs::PollEvents;
use abi::socket::{SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM, UserCredentials};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::io::{Sink, Source};
use base::wait::WaitQueue;
use core::any::Any;

/// How a socket carries data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Kind {
    /// Bytes in order, over a connection.
    Stream,
    /// Records without a connection.
    Datagram,
    /// Records in order, over a connection.
    Seqpacket,
}

impl Kind {
    /// `SOCK_…`
    pub const fn number(self) -> i32 {
        match self {
            Kind::Stream => SOCK_STREAM,
            Kind::Datagram => SOCK_DGRAM,
            Kind::Seqpacket => SOCK_SEQPACKET,
        }
    }

    /// Whether it keeps records apart.
    pub const fn has_records(self) -> bool {
        !matches!(self, Kind::Stream)
    }
}

/// Who is at the other end.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Process, effective user and group.
    pub credentials: UserCredentials,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
}

/// A name to send or connect to.
#[derive(Clone, Debug)]
pub enum Address {
    /// Of the local domain.
    Unix(unix::Target),
}

/// Why something did not happen.
#[derive(Debug)]
pub struct Blocked {
    /// The error. `EAGAIN` when waiting helps.
    pub errno: Errno,
    /// Where to wait; `None` when waiting does not help.
    pub room: Option<Arc<WaitQueue>>,
}

impl From<Errno> for Blocked {
    fn from(errno: Errno) -> Blocked {
        Blocked { errno, room: None }
    }
}

impl Blocked {
    /// A wait in `room`.
    pub fn until(room: &Arc<WaitQueue>) -> Blocked {
        Blocked { errno: Errno::EAGAIN, room: Some(room.clone()) }
    }
}

/// Directions to shut down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Directions {
    /// Nothing more is received.
    pub receive: bool,
    /// Nothing more is sent.
    pub send: bool,
}

/// What is to be sent, besides the bytes. The same value goes into every attempt to send one message.
pub struct Outgoing {
    /// Bytes in all.
    pub length: usize,
    /// To whom; else to the peer. Only datagram sockets look at it.
    pub target: Option<Address>,
    /// Who sends: process, real user and group, or what a control message claims.
    pub credentials: UserCredentials,
    /// The credentials come from a control message.
    pub is_explicit: bool,
    /// Open files, gone once they are sent.
    pub rights: Option<Box<Rights>>,
    /// The last byte is urgent (`MSG_OOB`).
    pub is_urgent: bool,
    /// The part of a record that has been read.
    gathered: Vec<u8>,
}

impl Outgoing {
    /// A message of bytes alone to the peer.
    pub fn plain(length: usize, credentials: UserCredentials) -> Outgoing {
        Outgoing {
            length,
            target: None,
            credentials,
            is_explicit: false,
            rights: None,
            is_urgent: false,
            gathered: Vec::new(),
        }
    }

    /// Reads what is missing of a record. `None` when the source stopped at a missing page, `ENOBUFS`
    /// when there is no memory for the record.
    pub(crate) fn gather(&mut self, source: &mut dyn Source) -> Result<Option<Vec<u8>>, Errno> {
        let done = self.gathered.len();
        if done < self.length {
            let missing = self.length - done;
            self.gathered.try_reserve_exact(missing).map_err(|_| Errno::ENOBUFS)?;
            self.gathered.resize(self.length, 0);
            let rest = self.gathered.get_mut(done..).unwrap_or_default();
            let count = source.read(rest);
            self.gathered.truncate(done + count);
            if count < missing {
                return Ok(None);
            }
        }
        Ok(Some(core::mem::take(&mut self.gathered)))
    }

    /// Gives back a record that was not sent.
    pub(crate) fn keep(&mut self, record: Vec<u8>) {
        self.gathered = record;
    }
}

/// How to receive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Receive {
    /// Leave it in the queue.
    pub peek: bool,
    /// Say who sent it.
    pub wants_credentials: bool,
    /// Say the sender's name.
    pub wants_name: bool,
    /// The caller does not wait.
    pub is_nonblocking: bool,
    /// A record goes to the sink, as far as it fits; left in the queue when nothing of it can be
    /// taken because a page is missing.
    pub into_sink: bool,
}

/// A record that was received.
pub struct Record {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Where reading begins (`SO_PEEK_OFF`).
    pub start: usize,
}

/// What was received, besides the bytes of a stream. The same value goes into every attempt to receive
/// one message.
#[derive(Default)]
pub struct Incoming {
    /// The name of the sender, as an address; empty when it has none.
    pub sender: Vec<u8>,
    /// Something was received, if only a message without bytes.
    pub(crate) has_begun: bool,
    /// Who sent it.
    pub credentials: Option<UserCredentials>,
    /// Open files.
    pub rights: Vec<Box<dyn Passed>>,
    /// The record, of sockets that keep records apart.
    pub record: Option<Record>,
    /// Bytes that were left in the queue and must not be given again (`MSG_PEEK`).
    pub(crate) peeked: usize,
    /// A message with open files has begun; it is the last.
    pub(crate) has_rights: bool,
    /// What follows does not belong to this message.
    pub is_complete: bool,
}

/// Who is told when urgent data come to a socket.
pub trait Urged: Send + Sync {
    /// They have come. Called with no lock held.
    fn urge(&self);
}

/// A socket.
pub trait Socket: Send + Sync + Any {
    /// `AF_…`
    fn domain(&self) -> i32;
    /// How it carries data.
    fn kind(&self) -> Kind;
    /// Its protocol.
    fn protocol(&self) -> i32 {
        0
    }
    /// Its options.
    fn options(&self) -> &Options;
    /// Takes connections from now on, `backlog` + 1 of them waiting at most.
    fn listen(&self, backlog: usize, caller: Peer) -> Result<(), Errno>;
    /// Whether it takes connections.
    fn is_listening(&self) -> bool;
    /// A connection that was waiting; `EAGAIN` when there is none.
    fn accept(&self) -> Result<Arc<dyn Socket>, Errno>;
    /// Connects; `None` dissolves the association of a datagram socket.
    fn connect(&self, target: Option<&Address>, caller: &Peer) -> Result<(), Blocked>;
    /// Its name, as an address.
    fn name(&self) -> Vec<u8>;
    /// The name of its peer, as an address. `ENOTCONN` without a peer.
    fn peer_name(&self) -> Result<Vec<u8>, Errno>;
    /// Who is at the other end.
    fn peer(&self) -> Option<Peer>;
    /// Ends one direction or both.
    fn shutdown(&self, directions: Directions) -> Result<(), Errno>;
    /// Sends bytes from the source, and how many; fewer than there are when a page is missing, or when
    /// a stream takes no more at once.
    fn send(&self, source: &mut dyn Source, message: &mut Outgoing) -> Result<usize, Blocked>;
    /// Receives. Bytes of a stream go to the sink, and the result is how many; a record goes to
    /// `message`, and the result is its length. 0 at the end.
    fn receive(
        &self,
        sink: &mut dyn Sink,
        how: Receive,
        message: &mut Incoming,
    ) -> Result<usize, Errno>;
    /// The urgent byte, which is left there when it is only looked at. `EINVAL` when there is none, or when it is
    /// received in line.
    fn receive_urgent(&self, peek: bool) -> Result<u8, Errno> {
        let _ = peek;
        Err(Errno::EOPNOTSUPP)
    }
    /// Whether the next byte is the urgent one, or the one that came after it.
    fn is_at_mark(&self) -> bool {
        false
    }
    /// Which events are there.
    fn poll(&self, events: PollEvents) -> PollEvents;
    /// Woken when it may have become readable.
    fn readable(&self) -> &Arc<WaitQueue>;
    /// Woken when it may have become writable.
    fn writable(&self) -> &Arc<WaitQueue>;
    /// Takes the pending error.
    fn take_error(&self) -> Option<Errno>;
    /// Bytes that can be read now, as `SIOCINQ`.
    fn unread(&self) -> Result<usize, Errno>;
    /// Bytes on their way, as `SIOCOUTQ`.
    fn unsent(&self) -> usize;
    /// The socket has a file with this inode number. `owner` is told of urgent data.
    fn attach(&self, inode: u64, owner: Option<Arc<dyn Urged>>);
    /// Its file is gone.
    fn close(&self);
    /// The socket as its concrete type.
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}
