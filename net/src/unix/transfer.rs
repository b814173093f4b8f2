//! Messages: how bytes, records, credentials and open files go from one socket to another.

use super::connect::wake_hopeful;
use super::name;
use super::{Phase, State, UnixSocket};
use crate::rights::{self, Rights};
use crate::socket::{Address, Blocked, Incoming, Kind, Outgoing, Receive, Record};
use abi::Errno;
use abi::fs::PollEvents;
use abi::socket::{UserCredentials, option};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::io::{Sink, Source};
use core::mem;
use core::sync::atomic::Ordering;

/// Most bytes of one piece of a stream.
const PIECE: usize = 32 << 10;
/// What keeping a message costs besides its bytes, as Linux counts it: the descriptor of the message.
const HEAD: usize = 256;
/// The same: what stands behind the bytes.
const TAIL: usize = 320;
/// Bytes of a buffer for sending that no record may have.
const RECORD_MARGIN: usize = 32;

/// Whether a message is urgent data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Urgency {
    /// It is not, or no longer because other such data have come.
    None,
    /// One byte that nobody received.
    Pending,
    /// It was received out of turn; its place is the mark.
    Taken,
}

/// What is in the queue of the socket that shall receive it.
pub(crate) struct Message {
    bytes: Vec<u8>,
    /// Bytes at the front that were received.
    start: usize,
    sender: Arc<UnixSocket>,
    /// What it costs the sender.
    charge: usize,
    credentials: Option<UserCredentials>,
    urgency: Urgency,
    pub(super) rights: Option<Box<Rights>>,
}

impl Message {
    /// Bytes that were not received yet.
    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(super) fn is_urgent(&self) -> bool {
        self.urgency == Urgency::Pending
    }

    pub(super) fn is_mark(&self) -> bool {
        self.urgency == Urgency::Taken
    }

    fn rest(&self, skipped: usize) -> &[u8] {
        self.bytes.get(self.start + skipped..).unwrap_or_default()
    }

    /// As a receiver is told who sent it: nobody, when the sender did not say.
    fn credentials(&self) -> UserCredentials {
        const NOBODY: u32 = 65534;
        self.credentials.unwrap_or(UserCredentials { process: 0, user: NOBODY, group: NOBODY })
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.sender.discharge(self.charge);
    }
}

/// What Linux charges a sender for a message of so many bytes.
fn cost(length: usize) -> usize {
    let body = length.next_multiple_of(64) + TAIL;
    let body = if body <= 8192 { body.next_power_of_two() } else { body.next_multiple_of(4096) };
    HEAD + body
}

impl UnixSocket {
    fn discharge(&self, charge: usize) {
        let had_room = self.has_room();
        self.charged.fetch_sub(charge, Ordering::AcqRel);
        if !had_room && self.has_room() {
            self.writable.notify_all(PollEvents::WRITABLE);
        }
    }

    /// Whether a message may be sent: `EPIPE` after a shutdown, and a wait while too much is on its way.
    fn check_sending(&self) -> Result<(), Blocked> {
        let mut state = self.state.lock();
        if let Some(error) = state.error.take() {
            return Err(error.into());
        }
        if state.shut.send {
            return Err(Errno::EPIPE.into());
        }
        drop(state);
        if self.charged.load(Ordering::Acquire) >= self.options.send_buffer() {
            return Err(Blocked::until(&self.writable));
        }
        Ok(())
    }

    /// A message from here to `receiver`.
    fn message(
        self: &Arc<UnixSocket>,
        bytes: Vec<u8>,
        outgoing: &mut Outgoing,
        receiver: &UnixSocket,
    ) -> Message {
        let tells = outgoing.is_explicit
            || self.wants_credentials()
            || receiver.wants_credentials()
            || !receiver.is_attached.load(Ordering::Relaxed);
        let charge = cost(bytes.len());
        self.charged.fetch_add(charge, Ordering::AcqRel);
        if let Some(rights) = &mut outgoing.rights {
            rights.depart();
        }
        Message {
            bytes,
            start: 0,
            sender: self.clone(),
            charge,
            credentials: tells.then_some(outgoing.credentials),
            urgency: Urgency::None,
            rights: outgoing.rights.take(),
        }
    }

    pub(super) fn send_piece(
        &self,
        source: &mut dyn Source,
        outgoing: &mut Outgoing,
    ) -> Result<usize, Blocked> {
        let me = self.strong()?;
        let peer = {
            let state = self.state.lock();
            let peer = state.peer.clone().ok_or(Errno::ENOTCONN)?;
            if state.shut.send {
                return Err(Errno::EPIPE.into());
            }
            peer
        };
        let length = source.remaining();
        if length == 0 {
            return Ok(0);
        }
        self.check_sending()?;
        let most = (self.options.send_buffer() / 2).saturating_sub(64).clamp(1, PIECE);
        let mut length = length.min(most);
        // The last byte goes by itself.
        let is_urgent = outgoing.is_urgent && source.remaining() == 1;
        if outgoing.is_urgent && !is_urgent {
            length = length.min(source.remaining() - 1);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| Errno::ENOBUFS)?;
        bytes.resize(length, 0);
        let count = source.read(&mut bytes);
        if count == 0 {
            return Ok(0);
        }
        bytes.truncate(count);
        let mut message = me.message(bytes, outgoing, &peer);
        if is_urgent {
            message.urgency = Urgency::Pending;
        }
        match peer.enqueue(message) {
            Ok(()) => {
                if is_urgent && let Some(owner) = peer.owner.get() {
                    owner.urge();
                }
                let urgent = if is_urgent { PollEvents::PRI } else { PollEvents::empty() };
                peer.readable.notify(PollEvents::READABLE | urgent);
                Ok(count)
            }
            Err((error, _)) => Err(error.into()),
        }
    }

    /// Adds a message to the queue; gives it back when that is closed.
    fn enqueue(&self, message: Message) -> Result<(), (Errno, Message)> {
        let mut state = self.state.lock();
        if state.is_closed || state.shut.receive {
            return Err((Errno::EPIPE, message));
        }
        if state.queue.try_reserve(1).is_err() {
            return Err((Errno::ENOBUFS, message));
        }
        if message.is_urgent() {
            // There is one urgent byte at a time: earlier ones become ordinary ones.
            if state.has_urgent {
                let earlier = state.queue.iter_mut().find(|earlier| earlier.is_urgent());
                earlier.into_iter().for_each(|earlier| earlier.urgency = Urgency::None);
            }
            state.has_urgent = true;
        }
        state.queue.push_back(message);
        Ok(())
    }

    /// Whether `sender` would have to wait for room in the queue; it is woken when there is some.
    pub(super) fn keeps_out(&self, sender: &UnixSocket) -> bool {
        let mut state = self.state.lock();
        let is_mutual = state.peer.as_ref().is_some_and(|peer| sender.is_self(peer));
        if self.is_self(sender) || is_mutual || state.is_closed || !state.is_full() {
            return false;
        }
        let is_known = |known: &alloc::sync::Weak<UnixSocket>| {
            core::ptr::eq(known.as_ptr(), core::ptr::from_ref(sender))
        };
        if !state.hopeful.iter().any(is_known) && state.hopeful.try_reserve(1).is_ok() {
            state.hopeful.push(sender.me.clone());
        }
        true
    }

    pub(super) fn send_record(
        &self,
        source: &mut dyn Source,
        outgoing: &mut Outgoing,
    ) -> Result<usize, Blocked> {
        let me = self.strong()?;
        let peer = {
            let mut state = self.state.lock();
            if self.kind == Kind::Seqpacket {
                if let Some(error) = state.error.take() {
                    return Err(error.into());
                }
                if state.phase != Phase::Connected {
                    return Err(Errno::ENOTCONN.into());
                }
            }
            state.peer.clone()
        };
        let target = match &outgoing.target {
            Some(Address::Unix(target)) if self.kind == Kind::Datagram => Some(target.clone()),
            _ => None,
        };
        if target.is_none() && peer.is_none() {
            return Err(Errno::ENOTCONN.into());
        }
        if self.wants_credentials() {
            name::bind_automatically(&me)?;
        }
        if outgoing.length > self.options.send_buffer().saturating_sub(RECORD_MARGIN) {
            return Err(Errno::EMSGSIZE.into());
        }
        self.check_sending()?;
        let Some(bytes) = outgoing.gather(source)? else {
            return Ok(0);
        };
        loop {
            let receiver = match (&target, &peer) {
                (Some(target), _) => name::find(target, self.kind)?,
                (None, Some(peer)) => peer.clone(),
                (None, None) => return Err(Errno::ENOTCONN.into()),
            };
            if !receiver.accepts(self) {
                return Err(Errno::EPERM.into());
            }
            if receiver.state.lock().is_closed {
                if self.kind == Kind::Seqpacket {
                    return Err(Errno::EPIPE.into());
                }
                if self.forget(&receiver) {
                    return Err(Errno::ECONNREFUSED.into());
                }
                if target.is_none() {
                    return Err(Errno::ECONNRESET.into());
                }
                continue;
            }
            if receiver.state.lock().shut.receive {
                return Err(Errno::EPIPE.into());
            }
            if receiver.keeps_out(self) {
                outgoing.keep(bytes);
                return Err(Blocked::until(&receiver.room));
            }
            let length = bytes.len();
            let message = me.message(bytes, outgoing, &receiver);
            return match receiver.enqueue(message) {
                Ok(()) => {
                    receiver.readable.notify(PollEvents::READABLE);
                    Ok(length)
                }
                Err((error, _)) => Err(error.into()),
            };
        }
    }

    /// Dissolves the association with a socket that has closed; false when there was none.
    fn forget(&self, closed: &UnixSocket) -> bool {
        let mut state = self.state.lock();
        if !state.peer.as_ref().is_some_and(|peer| closed.is_self(peer)) {
            return false;
        }
        let old = state.peer.take();
        state.phase = Phase::Alone;
        drop(state);
        drop(old);
        self.dissolve(closed);
        true
    }

    /// Why there is nothing to receive: an error, the end (0), or a wait.
    fn nothing(&self) -> Result<usize, Errno> {
        let mut state = self.state.lock();
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        if state.shut.receive { Ok(0) } else { Err(Errno::EAGAIN) }
    }

    pub(super) fn receive_bytes(
        &self,
        sink: &mut dyn Sink,
        how: Receive,
        incoming: &mut Incoming,
    ) -> Result<usize, Errno> {
        if self.state.lock().phase != Phase::Connected {
            return Err(Errno::EINVAL);
        }
        let mut done = 0;
        loop {
            let mut state = self.state.lock();
            if done == 0 || !state.ends_here() {
                let skipped = state.skip_urgent(self.receives_in_line());
                if skipped.is_some() {
                    drop(state);
                    drop(skipped);
                    continue;
                }
            } else {
                return Ok(done);
            }
            let Some(message) = state.queue.front_mut() else {
                drop(state);
                return if done > 0 { Ok(done) } else { self.nothing() };
            };
            if !incoming.admits(message, how) {
                incoming.is_complete = true;
                return Ok(done);
            }
            let wanted = message.remaining().min(sink.remaining());
            let count = sink.write(message.rest(0).get(..wanted).unwrap_or_default());
            if count == 0 && wanted > 0 {
                return Ok(done);
            }
            incoming.note(message, how);
            message.start += count;
            done += count;
            self.move_peek_start_back(count);
            let rights = message.rights.take();
            let is_empty = message.remaining() == 0;
            let finished = if is_empty { state.queue.pop_front() } else { None };
            drop(state);
            drop(finished);
            if let Some(mut rights) = rights {
                incoming.rights.append(&mut rights.arrive());
                incoming.has_rights = true;
            }
            if incoming.has_rights && is_empty {
                incoming.is_complete = true;
            }
            if !is_empty || incoming.is_complete || sink.remaining() == 0 {
                return Ok(done);
            }
        }
    }

    pub(super) fn peek_bytes(
        &self,
        sink: &mut dyn Sink,
        how: Receive,
        incoming: &mut Incoming,
    ) -> Result<usize, Errno> {
        let held = rights::hold();
        let state = self.state.lock();
        if state.phase != Phase::Connected {
            return Err(Errno::EINVAL);
        }
        let mut skipped = self.peek_start() + incoming.peeked;
        let mut done = 0;
        let in_line = self.receives_in_line();
        for message in &state.queue {
            if message.is_urgent() {
                if done > 0 {
                    break;
                }
                if !in_line {
                    continue;
                }
            }
            if skipped >= message.remaining() {
                skipped -= message.remaining();
                continue;
            }
            if !incoming.admits(message, how) {
                incoming.is_complete = true;
                break;
            }
            let wanted = (message.remaining() - skipped).min(sink.remaining());
            let count = sink.write(message.rest(skipped).get(..wanted).unwrap_or_default());
            incoming.note(message, how);
            incoming.peeked += count;
            done += count;
            if let Some(rights) = &message.rights
                && skipped == 0
            {
                incoming.rights.append(&mut rights.copies(&held));
                incoming.is_complete = true;
            }
            skipped = 0;
            if count < wanted || incoming.is_complete || sink.remaining() == 0 {
                break;
            }
        }
        drop(state);
        drop(held);
        if done == 0 && !incoming.has_begun {
            return self.nothing();
        }
        self.move_peek_start(done);
        Ok(done)
    }

    /// Whether urgent data are received among the others (`SO_OOBINLINE`).
    fn receives_in_line(&self) -> bool {
        self.options.is_on(option::SO_OOBINLINE)
    }

    /// Receives the urgent byte, which leaves a mark where it was.
    pub(super) fn take_urgent(&self, peek: bool) -> Result<u8, Errno> {
        if self.kind != Kind::Stream {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut state = self.state.lock();
        if state.phase != Phase::Connected || self.receives_in_line() {
            return Err(Errno::EINVAL);
        }
        let urgent = state.queue.iter_mut().find(|message| message.is_urgent());
        let message = urgent.ok_or(Errno::EINVAL)?;
        let byte = message.rest(0).first().copied().ok_or(Errno::EINVAL)?;
        if peek {
            return Ok(byte);
        }
        message.urgency = Urgency::Taken;
        message.start = message.bytes.len();
        let rights = message.rights.take();
        state.has_urgent = false;
        drop(state);
        drop(rights);
        Ok(byte)
    }

    /// Where looking begins.
    fn peek_start(&self) -> usize {
        usize::try_from(self.options.peek_offset.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Looking has gone on, if the program wants it to.
    fn move_peek_start(&self, count: usize) {
        let step = i32::try_from(count).unwrap_or(i32::MAX);
        let forward = |offset: i32| (offset >= 0).then(|| offset.saturating_add(step));
        let offset = &self.options.peek_offset;
        // Refused where the option is off.
        let _ = offset.fetch_update(Ordering::Relaxed, Ordering::Relaxed, forward);
    }

    /// A message was received, which looking needs not skip any more.
    fn move_peek_start_back(&self, count: usize) {
        let step = i32::try_from(count).unwrap_or(i32::MAX);
        let back = |offset: i32| (offset >= 0).then(|| (offset - step).max(0));
        let _ = self.options.peek_offset.fetch_update(Ordering::Relaxed, Ordering::Relaxed, back);
    }

    /// Why there is no record to receive.
    fn no_record(&self, how: Receive) -> Result<usize, Errno> {
        let mut state = self.state.lock();
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        if state.shut.receive && (self.kind == Kind::Seqpacket || !how.is_nonblocking) {
            return Ok(0);
        }
        if self.kind == Kind::Seqpacket && state.phase != Phase::Connected {
            return Err(Errno::ENOTCONN);
        }
        Err(Errno::EAGAIN)
    }

    pub(super) fn receive_record(
        &self,
        sink: &mut dyn Sink,
        how: Receive,
        incoming: &mut Incoming,
    ) -> Result<usize, Errno> {
        let mut state = self.state.lock();
        if self.kind == Kind::Seqpacket && state.phase != Phase::Connected {
            return Err(Errno::ENOTCONN);
        }
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        let mut sunk = None;
        if how.into_sink
            && let Some(message) = state.queue.front()
        {
            let wanted = message.remaining().min(sink.remaining());
            let count = sink.write(message.rest(0).get(..wanted).unwrap_or_default());
            if count == 0 && wanted > 0 {
                return Ok(0);
            }
            sunk = Some(count);
        }
        let Some(mut message) = state.queue.pop_front() else {
            drop(state);
            return self.no_record(how);
        };
        let hopeful = mem::take(&mut state.hopeful);
        drop(state);
        if self.kind == Kind::Datagram {
            self.room.wake_all();
            wake_hopeful(hopeful);
        }
        incoming.note(&message, how);
        if let Some(mut rights) = message.rights.take() {
            incoming.rights = rights.arrive();
        }
        let bytes = mem::take(&mut message.bytes);
        let length = bytes.len();
        self.move_peek_start_back(length);
        if let Some(count) = sunk {
            return Ok(count);
        }
        incoming.record = Some(Record { bytes, start: 0 });
        Ok(length)
    }

    pub(super) fn peek_record(
        &self,
        sink: &dyn Sink,
        how: Receive,
        incoming: &mut Incoming,
    ) -> Result<usize, Errno> {
        let held = rights::hold();
        let mut state = self.state.lock();
        if self.kind == Kind::Seqpacket && state.phase != Phase::Connected {
            return Err(Errno::ENOTCONN);
        }
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        let mut skipped = self.peek_start();
        let mut found = None;
        for message in &state.queue {
            let length = message.bytes.len();
            if skipped > 0 && skipped >= length {
                skipped -= length;
                continue;
            }
            found = Some(message);
            break;
        }
        let Some(message) = found else {
            drop(state);
            drop(held);
            return self.no_record(how);
        };
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(message.bytes.len()).map_err(|_| Errno::ENOBUFS)?;
        bytes.extend_from_slice(&message.bytes);
        incoming.note(message, how);
        if let Some(rights) = &message.rights {
            incoming.rights = rights.copies(&held);
        }
        drop(state);
        drop(held);
        let length = bytes.len();
        self.move_peek_start((length - skipped).min(sink.remaining()));
        incoming.record = Some(Record { bytes, start: skipped });
        Ok(length - skipped)
    }
}

impl State {
    /// Whether a reader who has got something stops before the first message: at urgent data, or where the last of
    /// them were.
    fn ends_here(&self) -> bool {
        self.queue
            .front()
            .is_some_and(|first| first.is_urgent() || first.is_mark() && !self.has_urgent)
    }

    /// Removes the first message if a reader passes over it: a mark, or urgent data that nobody received in time.
    /// Where they are received in line they become ordinary data.
    fn skip_urgent(&mut self, in_line: bool) -> Option<Message> {
        let first = self.queue.front_mut()?;
        if first.is_mark() {
            return self.queue.pop_front();
        }
        if !first.is_urgent() {
            return None;
        }
        self.has_urgent = false;
        if in_line {
            first.urgency = Urgency::None;
            return None;
        }
        self.queue.pop_front()
    }
}

impl Incoming {
    /// Whether a message may join what was received: when the receiver is told who sent it, messages
    /// of different senders stay apart.
    fn admits(&self, message: &Message, how: Receive) -> bool {
        match self.credentials {
            Some(credentials) if how.wants_credentials => credentials == message.credentials(),
            _ => true,
        }
    }

    fn note(&mut self, message: &Message, how: Receive) {
        if how.wants_name
            && !self.has_begun
            && let Some(name) = message.sender.name.get()
        {
            self.sender = name.to_address();
        }
        self.has_begun = true;
        if how.wants_credentials && self.credentials.is_none() {
            self.credentials = Some(message.credentials());
        }
    }
}
