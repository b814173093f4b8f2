//! Who talks to whom: listening, connections, associations, shutting down and closing.

use super::name::{self, Target};
use super::{MOST_WAITING, Phase, UnixSocket};
use crate::socket::{Blocked, Directions, Kind, Peer};
use abi::Errno;
use abi::fs::PollEvents;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::sync::atomic::Ordering;

/// How often a name is looked up again when its socket closes in between.
const ATTEMPTS: usize = 1000;

impl UnixSocket {
    pub(super) fn start_listening(&self, backlog: usize, caller: Peer) -> Result<(), Errno> {
        if self.kind == Kind::Datagram {
            return Err(Errno::EOPNOTSUPP);
        }
        if !self.is_bound() {
            return Err(Errno::EINVAL);
        }
        let mut state = self.state.lock();
        if state.phase == Phase::Connected {
            return Err(Errno::EINVAL);
        }
        let grows = backlog > state.backlog;
        state.backlog = backlog.min(MOST_WAITING.load(Ordering::Relaxed));
        state.phase = Phase::Listening;
        state.credentials = Some(caller);
        drop(state);
        if grows {
            self.room.wake_all();
        }
        Ok(())
    }

    /// Connects to a listening socket: makes its new socket and puts it into its queue.
    pub(super) fn connect_to(&self, target: &Target, caller: &Peer) -> Result<(), Blocked> {
        let me = self.strong()?;
        if self.wants_credentials() {
            name::bind_automatically(&me)?;
        }
        for _ in 0..ATTEMPTS {
            let other = name::find(target, self.kind)?;
            {
                let state = other.state.lock();
                if state.is_closed {
                    continue;
                }
                if state.phase != Phase::Listening || state.shut.receive {
                    return Err(Errno::ECONNREFUSED.into());
                }
                if state.is_full() {
                    return Err(Blocked::until(&other.room));
                }
            }
            self.begin_connection()?;
            match other.take_in(&me, caller) {
                Ok((near, listener)) => {
                    let mut state = self.state.lock();
                    state.credentials = listener;
                    if state.is_closed {
                        // Its file went while it was connecting.
                        drop(state);
                        near.release(true);
                    } else {
                        state.peer = Some(near);
                        drop(state);
                        self.writable.notify_all(PollEvents::WRITABLE);
                    }
                    return Ok(());
                }
                Err(blocked) => {
                    self.state.lock().phase = Phase::Alone;
                    if blocked.errno != Errno::ESTALE {
                        return Err(blocked);
                    }
                }
            }
        }
        Err(Errno::ECONNREFUSED.into())
    }

    /// From here on no other thread connects this socket.
    fn begin_connection(&self) -> Result<(), Errno> {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Alone => {
                state.phase = Phase::Connected;
                Ok(())
            }
            Phase::Connected => Err(Errno::EISCONN),
            Phase::Listening => Err(Errno::EINVAL),
        }
    }

    /// Puts a new socket that is connected to `client` into the queue; gives it, and who listens.
    /// `ESTALE` when this one has closed.
    fn take_in(
        &self,
        client: &Arc<UnixSocket>,
        caller: &Peer,
    ) -> Result<(Arc<UnixSocket>, Option<Peer>), Blocked> {
        let near = UnixSocket::new(self.kind);
        {
            let mut state = near.state.lock();
            state.phase = Phase::Connected;
            state.peer = Some(client.clone());
            state.credentials = Some(caller.clone());
        }
        if let Some(name) = self.name.get() {
            near.name.call_once(|| name.clone());
        }
        let mut state = self.state.lock();
        let refusal = if state.is_closed {
            Some(Errno::ESTALE.into())
        } else if state.phase != Phase::Listening || state.shut.receive {
            Some(Errno::ECONNREFUSED.into())
        } else if state.is_full() {
            Some(Blocked::until(&self.room))
        } else if state.waiting.try_reserve(1).is_err() {
            Some(Errno::ENOMEM.into())
        } else {
            None
        };
        if let Some(refusal) = refusal {
            drop(state);
            near.state.lock().peer = None;
            near.release(false);
            return Err(refusal);
        }
        state.waiting.push_back(near.clone());
        let listener = state.credentials.clone();
        drop(state);
        self.readable.notify(PollEvents::READABLE);
        Ok((near, listener))
    }

    pub(super) fn take_connection(&self) -> Result<Arc<UnixSocket>, Errno> {
        if self.kind == Kind::Datagram {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut state = self.state.lock();
        if state.phase != Phase::Listening {
            return Err(Errno::EINVAL);
        }
        let Some(connection) = state.waiting.pop_front() else {
            return Err(if state.shut.receive { Errno::EINVAL } else { Errno::EAGAIN });
        };
        drop(state);
        self.room.wake_all();
        Ok(connection)
    }

    /// Makes a datagram socket send to `target`, or to nobody.
    pub(super) fn associate(&self, target: Option<&Target>) -> Result<(), Errno> {
        let me = self.strong()?;
        let peer = match target {
            None => None,
            Some(target) => {
                if self.wants_credentials() {
                    name::bind_automatically(&me)?;
                }
                let peer = name::find(target, self.kind)?;
                if !peer.accepts(self) {
                    return Err(Errno::EPERM);
                }
                Some(peer)
            }
        };
        let mut state = self.state.lock();
        state.phase = if peer.is_some() { Phase::Connected } else { Phase::Alone };
        let old = mem::replace(&mut state.peer, peer.clone());
        drop(state);
        if let Some(peer) = &peer {
            peer.state.lock().phase = Phase::Connected;
        }
        let same = match (&old, &peer) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            _ => false,
        };
        if let Some(old) = old
            && !same
        {
            self.dissolve(&old);
        }
        self.writable.notify_all(PollEvents::WRITABLE);
        Ok(())
    }

    /// What the old peer has sent and nobody received is dropped, and it is told so.
    pub(super) fn dissolve(&self, old: &UnixSocket) {
        let dropped = mem::take(&mut self.state.lock().queue);
        if dropped.is_empty() {
            return;
        }
        drop(dropped);
        self.room.wake_all();
        let mut state = old.state.lock();
        let was_mutual = state.peer.as_ref().is_some_and(|peer| self.is_self(peer));
        if was_mutual && !state.is_closed {
            state.error = Some(Errno::ECONNRESET);
            drop(state);
            old.wake_all();
        }
    }

    /// Whether it takes messages from `sender`: it has no peer, or that one.
    pub(super) fn accepts(&self, sender: &UnixSocket) -> bool {
        self.state.lock().peer.as_ref().is_none_or(|peer| sender.is_self(peer))
    }

    pub(super) fn shut_down(&self, directions: Directions) {
        let peer = {
            let mut state = self.state.lock();
            state.shut.receive |= directions.receive;
            state.shut.send |= directions.send;
            state.peer.clone().filter(|_| self.kind != Kind::Datagram)
        };
        if let Some(peer) = &peer {
            let mut state = peer.state.lock();
            state.shut.receive |= directions.send;
            state.shut.send |= directions.receive;
            drop(state);
            peer.wake_all();
        }
        self.wake_all();
        self.room.wake_all();
    }

    /// The socket ends. `was_waiting`: nobody accepted it.
    pub(super) fn release(&self, was_waiting: bool) {
        let (peer, queue, waiting, hopeful) = {
            let mut state = self.state.lock();
            state.is_closed = true;
            state.phase = Phase::Alone;
            state.shut = Directions { receive: true, send: true };
            (
                state.peer.take(),
                mem::take(&mut state.queue),
                mem::take(&mut state.waiting),
                mem::take(&mut state.hopeful),
            )
        };
        name::remove(self);
        if let Some(peer) = peer.filter(|_| self.kind != Kind::Datagram) {
            let mut state = peer.state.lock();
            state.shut = Directions { receive: true, send: true };
            if was_waiting || queue.iter().any(|message| !message.is_mark()) {
                state.error = Some(Errno::ECONNRESET);
            }
            drop(state);
            peer.wake_all();
        }
        for connection in waiting {
            connection.release(true);
        }
        drop(queue);
        self.room.wake_all();
        self.wake_all();
        wake_hopeful(hopeful);
    }
}

/// Wakes senders that may find room now.
pub(super) fn wake_hopeful(hopeful: Vec<alloc::sync::Weak<UnixSocket>>) {
    for sender in hopeful.iter().filter_map(alloc::sync::Weak::upgrade) {
        sender.writable.notify_all(PollEvents::WRITABLE);
    }
}
