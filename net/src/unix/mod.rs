//! Sockets of the local domain.
//!
//! ```text
//!   name.rs      who is called what, and how one is found
//!   connect.rs   bind, listen, connect, accept, shutdown, close
//!   transfer.rs  messages: sending and receiving
//!   mod.rs       the socket itself, what it is ready for, and its options
//! ```
//!
//! A message waits in the queue of the socket that receives it and is charged to the socket that sent
//! it: a sender whose messages reach the size of its buffer has to wait, so what a program keeps in
//! queues is bounded by its sockets. A datagram socket that is not connected to its sender keeps at
//! most `most_datagrams` messages.

mod connect;
mod name;
mod transfer;

#[cfg(test)]
mod tests;

use crate::option::Options;
use crate::rights::Rights;
use crate::socket::{
    Address, Blocked, Directions, Incoming, Kind, Outgoing, Peer, Receive, Socket, Urged,
};
use abi::Errno;
use abi::fs::PollEvents;
use abi::socket::{AF_UNIX, option};
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use base::io::{Sink, Source};
use base::sync::{Mutex, Once, rank};
use base::wait::WaitQueue;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

pub use name::{InodeKey, Name, Target, unnamed};
use transfer::Message;

/// Most connections that `listen` lets wait (`/proc/sys/net/core/somaxconn`).
pub static MOST_WAITING: AtomicUsize = AtomicUsize::new(4096);
/// Messages that a new datagram socket keeps of senders that it is not connected to
/// (`/proc/sys/net/unix/max_dgram_qlen`).
pub static MOST_DATAGRAMS: AtomicUsize = AtomicUsize::new(10);

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// What became of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// New, or dissolved.
    Alone,
    /// Takes connections.
    Listening,
    /// Has or had a peer.
    Connected,
}

/// Guarded by the socket's lock.
struct State {
    phase: Phase,
    /// To whom messages go. Kept after it has closed, for its name.
    peer: Option<Arc<UnixSocket>>,
    queue: VecDeque<Message>,
    /// A message of the queue is an urgent byte that nobody received.
    has_urgent: bool,
    /// Connections that were not accepted yet.
    waiting: VecDeque<Arc<UnixSocket>>,
    /// Waiting connections are as many as this plus one at most; the same for messages of strangers.
    backlog: usize,
    shut: Directions,
    error: Option<Errno>,
    is_closed: bool,
    /// Who is at the other end, or who listens here.
    credentials: Option<Peer>,
    /// Senders to be woken when there is room for a datagram.
    hopeful: Vec<Weak<UnixSocket>>,
}

/// A local socket.
pub struct UnixSocket {
    number: u64,
    kind: Kind,
    options: Options,
    me: Weak<UnixSocket>,
    name: Once<Arc<Name>>,
    /// Bytes of its messages that nobody received yet.
    charged: AtomicUsize,
    /// Inode number of its file; 0 while it has none.
    inode: AtomicU64,
    /// A file was made for it.
    is_attached: AtomicBool,
    /// Who is told of urgent data.
    owner: Once<Arc<dyn Urged>>,
    readable: Arc<WaitQueue>,
    writable: Arc<WaitQueue>,
    /// Where senders and connections wait for room in its queue.
    room: Arc<WaitQueue>,
    state: Mutex<State>,
}

/// Local sockets that exist.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// What `/proc/net/unix` says of a socket.
#[derive(Debug)]
pub struct Summary {
    /// Its number.
    pub number: u64,
    /// References.
    pub references: usize,
    /// Takes connections.
    pub is_listening: bool,
    /// Its kind.
    pub kind: Kind,
    /// `SS_…`: 1 unconnected, 3 connected.
    pub state: u8,
    /// Inode number of its file; 0 for none.
    pub inode: u64,
    /// As `sun_path`; empty for none.
    pub path: Vec<u8>,
}

/// All local sockets.
pub fn summaries() -> Vec<Summary> {
    let summary = |socket: &Arc<UnixSocket>| {
        let state = socket.state.lock();
        Summary {
            number: socket.number,
            references: Arc::strong_count(socket),
            is_listening: state.phase == Phase::Listening,
            kind: socket.kind,
            state: if state.phase == Phase::Connected { 3 } else { 1 },
            inode: socket.inode.load(Ordering::Relaxed),
            path: socket.name.get().map(|name| name.path.clone()).unwrap_or_default(),
        }
    };
    name::all().iter().map(summary).collect()
}

impl UnixSocket {
    /// A new socket of this kind.
    pub fn new(kind: Kind) -> Arc<UnixSocket> {
        let state = State {
            phase: Phase::Alone,
            peer: None,
            queue: VecDeque::new(),
            has_urgent: false,
            waiting: VecDeque::new(),
            backlog: MOST_DATAGRAMS.load(Ordering::Relaxed),
            shut: Directions { receive: false, send: false },
            error: None,
            is_closed: false,
            credentials: None,
            hopeful: Vec::new(),
        };
        COUNT.fetch_add(1, Ordering::Relaxed);
        let socket = Arc::new_cyclic(|me| UnixSocket {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            kind,
            options: Options::default(),
            me: me.clone(),
            name: Once::new(),
            charged: AtomicUsize::new(0),
            inode: AtomicU64::new(0),
            is_attached: AtomicBool::new(false),
            owner: Once::new(),
            readable: Arc::new(WaitQueue::new()),
            writable: Arc::new(WaitQueue::new()),
            room: Arc::new(WaitQueue::new()),
            state: Mutex::new(&rank::SOCKET, state),
        });
        name::add(&socket);
        socket
    }

    /// Two sockets that are each other's peers.
    pub fn pair(kind: Kind, caller: &Peer) -> (Arc<UnixSocket>, Arc<UnixSocket>) {
        let (first, second) = (UnixSocket::new(kind), UnixSocket::new(kind));
        for (socket, peer) in [(&first, &second), (&second, &first)] {
            let mut state = socket.state.lock();
            state.phase = Phase::Connected;
            state.peer = Some(peer.clone());
            state.credentials = Some(caller.clone());
        }
        (first, second)
    }

    /// A number that no other local socket has or had.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Gives it a name.
    pub fn bind(&self, name: Name) -> Result<(), Errno> {
        name::bind(&self.strong()?, name)
    }

    /// Gives it an abstract name, unless it has a name.
    pub fn bind_automatically(&self) -> Result<(), Errno> {
        name::bind_automatically(&self.strong()?)
    }

    /// Whether it has a name.
    pub fn is_bound(&self) -> bool {
        self.name.get().is_some()
    }

    fn strong(&self) -> Result<Arc<UnixSocket>, Errno> {
        // Whoever calls has a reference, so this does not fail.
        self.me.upgrade().ok_or(Errno::EBADF)
    }

    fn is_self(&self, other: &UnixSocket) -> bool {
        core::ptr::eq(self, other)
    }

    fn wants_credentials(&self) -> bool {
        self.options.is_on(option::SO_PASSCRED)
    }

    fn address(&self) -> Vec<u8> {
        self.name.get().map_or_else(unnamed, |name| name.to_address())
    }

    /// Whether messages take at most a quarter of the buffer: only then is a sender told that it can
    /// go on, so that it does not wake for every message.
    fn has_room(&self) -> bool {
        self.charged.load(Ordering::Acquire) << 2 <= self.options.send_buffer()
    }

    fn wake_all(&self) {
        self.readable.wake_all();
        self.writable.wake_all();
    }

    /// Shows the open files of all messages in the queue, and in those of connections that wait.
    pub(crate) fn visit_rights(&self, visit: &mut dyn FnMut(&Rights)) {
        let waiting: Vec<Arc<UnixSocket>> = {
            let state = self.state.lock();
            state
                .queue
                .iter()
                .filter_map(|message| message.rights.as_deref())
                .for_each(&mut *visit);
            state.waiting.iter().cloned().collect()
        };
        for socket in waiting {
            let state = socket.state.lock();
            state
                .queue
                .iter()
                .filter_map(|message| message.rights.as_deref())
                .for_each(&mut *visit);
        }
    }

    /// Takes all messages with open files out of the queue, and out of those of connections that wait.
    pub(crate) fn take_messages_with_rights(&self, taken: &mut Vec<Message>) {
        let waiting: Vec<Arc<UnixSocket>> = {
            let mut state = self.state.lock();
            state.take_messages_with_rights(taken);
            state.waiting.iter().cloned().collect()
        };
        for socket in waiting {
            socket.state.lock().take_messages_with_rights(taken);
        }
    }
}

impl State {
    fn take_messages_with_rights(&mut self, taken: &mut Vec<Message>) {
        for message in core::mem::take(&mut self.queue) {
            if message.rights.is_some() {
                taken.push(message);
            } else {
                self.queue.push_back(message);
            }
        }
    }

    /// Whether a message or a connection of a stranger has to wait.
    fn is_full(&self) -> bool {
        self.queue.len().max(self.waiting.len()) > self.backlog
    }

    /// Whether the urgent byte is the next one, or was.
    fn is_at_mark(&self) -> bool {
        let mut messages = self.queue.iter();
        let Some(first) = messages.next() else { return false };
        let mut urgent_follows = || messages.next().is_some_and(Message::is_urgent);
        first.is_urgent() || first.is_mark() && (!self.has_urgent || urgent_follows())
    }

    fn shut_both(&self) -> bool {
        self.shut.receive && self.shut.send
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Socket for UnixSocket {
    fn domain(&self) -> i32 {
        AF_UNIX
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn listen(&self, backlog: usize, caller: Peer) -> Result<(), Errno> {
        self.start_listening(backlog, caller)
    }

    fn is_listening(&self) -> bool {
        self.state.lock().phase == Phase::Listening
    }

    fn accept(&self) -> Result<Arc<dyn Socket>, Errno> {
        self.take_connection().map(|socket| socket as Arc<dyn Socket>)
    }

    fn connect(&self, target: Option<&Address>, caller: &Peer) -> Result<(), Blocked> {
        let target = target.map(|Address::Unix(target)| target);
        match (self.kind, target) {
            (Kind::Datagram, _) => Ok(self.associate(target)?),
            (_, Some(target)) => self.connect_to(target, caller),
            (_, None) => Err(Errno::EINVAL.into()),
        }
    }

    fn name(&self) -> Vec<u8> {
        self.address()
    }

    fn peer_name(&self) -> Result<Vec<u8>, Errno> {
        let peer = self.state.lock().peer.clone();
        Ok(peer.ok_or(Errno::ENOTCONN)?.address())
    }

    fn peer(&self) -> Option<Peer> {
        self.state.lock().credentials.clone()
    }

    fn shutdown(&self, directions: Directions) -> Result<(), Errno> {
        self.shut_down(directions);
        Ok(())
    }

    fn send(&self, source: &mut dyn Source, message: &mut Outgoing) -> Result<usize, Blocked> {
        if self.kind == Kind::Stream {
            self.send_piece(source, message)
        } else {
            self.send_record(source, message)
        }
    }

    fn receive(
        &self,
        sink: &mut dyn Sink,
        how: Receive,
        message: &mut Incoming,
    ) -> Result<usize, Errno> {
        match (self.kind, how.peek) {
            (Kind::Stream, false) => self.receive_bytes(sink, how, message),
            (Kind::Stream, true) => self.peek_bytes(sink, how, message),
            (_, false) => self.receive_record(sink, how, message),
            (_, true) => self.peek_record(sink, how, message),
        }
    }

    fn receive_urgent(&self, peek: bool) -> Result<u8, Errno> {
        self.take_urgent(peek)
    }

    fn is_at_mark(&self) -> bool {
        self.state.lock().is_at_mark()
    }

    fn poll(&self, events: PollEvents) -> PollEvents {
        let mut ready = PollEvents::empty();
        let state = self.state.lock();
        if state.error.is_some() {
            ready |= PollEvents::ERR;
        }
        if state.shut_both() {
            ready |= PollEvents::HUP;
        }
        if state.shut.receive {
            ready |= PollEvents::RDHUP | PollEvents::READABLE;
        }
        if !state.queue.is_empty() || !state.waiting.is_empty() {
            ready |= PollEvents::READABLE;
        }
        if state.has_urgent {
            ready |= PollEvents::PRI;
        }
        if self.kind != Kind::Datagram && state.phase == Phase::Alone {
            ready |= PollEvents::HUP;
        }
        let is_listening = state.phase == Phase::Listening;
        let peer = state.peer.clone().filter(|_| self.kind == Kind::Datagram);
        drop(state);
        let writable = PollEvents::WRITABLE | PollEvents::WRBAND;
        if events.intersects(writable)
            && !is_listening
            && self.has_room()
            && !peer.is_some_and(|peer| peer.keeps_out(self))
        {
            ready |= writable;
        }
        ready & (events | PollEvents::ALWAYS)
    }

    fn readable(&self) -> &Arc<WaitQueue> {
        &self.readable
    }

    fn writable(&self) -> &Arc<WaitQueue> {
        &self.writable
    }

    fn take_error(&self) -> Option<Errno> {
        self.state.lock().error.take()
    }

    fn unread(&self) -> Result<usize, Errno> {
        let state = self.state.lock();
        if state.phase == Phase::Listening {
            return Err(Errno::EINVAL);
        }
        Ok(match self.kind {
            Kind::Datagram => state.queue.front().map_or(0, Message::remaining),
            _ => state.queue.iter().map(Message::remaining).sum(),
        })
    }

    fn unsent(&self) -> usize {
        self.charged.load(Ordering::Relaxed)
    }

    fn attach(&self, inode: u64, owner: Option<Arc<dyn Urged>>) {
        if let Some(owner) = owner {
            // A socket has one file in its life.
            self.owner.call_once(|| owner);
        }
        self.inode.store(inode, Ordering::Relaxed);
        self.is_attached.store(true, Ordering::Relaxed);
    }

    fn close(&self) {
        self.release(false);
        crate::rights::collect();
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
