use super::*;
use crate::rights::{Passed, References};
use abi::socket::UserCredentials;
use std::boxed::Box;
use std::sync::{Mutex as HostMutex, MutexGuard, PoisonError};

/// What is in flight is the same for all tests: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: HostMutex<()> = HostMutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file as the kernel has it: its end is the end of the socket.
struct File(Arc<UnixSocket>);

impl Drop for File {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct Parcel(Arc<File>);
struct Look(Weak<File>);

impl References for Look {
    fn count(&self) -> usize {
        self.0.strong_count()
    }
}

impl Passed for Parcel {
    fn duplicate(&self) -> Box<dyn Passed> {
        Box::new(Parcel(self.0.clone()))
    }

    fn socket(&self) -> Option<(Arc<UnixSocket>, Box<dyn References>)> {
        Some((self.0.0.clone(), Box::new(Look(Arc::downgrade(&self.0)))))
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

fn nobody() -> Peer {
    Peer { credentials: UserCredentials::default(), groups: Arc::from([]) }
}

fn pair(kind: Kind) -> [Arc<File>; 2] {
    let (first, second) = UnixSocket::pair(kind, &nobody());
    for socket in [&first, &second] {
        socket.attach(1, None);
    }
    [first, second].map(|socket| Arc::new(File(socket)))
}

fn send(file: &File, bytes: &[u8], passed: &[&Arc<File>]) -> Result<usize, Errno> {
    let mut message = Outgoing::plain(bytes.len(), UserCredentials::default());
    if !passed.is_empty() {
        let parcels =
            passed.iter().map(|file| Box::new(Parcel((*file).clone())) as Box<dyn Passed>);
        message.rights = Some(Box::new(Rights::new(parcels.collect(), 4711)));
    }
    file.0.send(&mut &bytes[..], &mut message).map_err(|blocked| blocked.errno)
}

fn receive(file: &File, message: &mut Incoming) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    file.0.receive(&mut bytes, Receive { into_sink: true, ..Receive::default() }, message)?;
    Ok(bytes)
}

#[test]
fn bytes_join_and_records_do_not() {
    let _alone = alone();
    let [first, second] = pair(Kind::Stream);
    send(&first, b"ab", &[]).unwrap();
    send(&first, b"c", &[]).unwrap();
    assert_eq!(receive(&second, &mut Incoming::default()).unwrap(), b"abc");
    let [first, second] = pair(Kind::Seqpacket);
    send(&first, b"ab", &[]).unwrap();
    send(&first, b"c", &[]).unwrap();
    assert_eq!(receive(&second, &mut Incoming::default()).unwrap(), b"ab");
    assert_eq!(receive(&second, &mut Incoming::default()).unwrap(), b"c");
}

#[test]
fn a_sender_is_charged_until_its_message_is_received() {
    let _alone = alone();
    let [first, second] = pair(Kind::Stream);
    while send(&first, b"x", &[]).is_ok() {}
    assert_eq!(send(&first, b"x", &[]), Err(Errno::EAGAIN));
    assert!(!first.0.poll(PollEvents::WRITABLE).intersects(PollEvents::OUT));
    receive(&second, &mut Incoming::default()).unwrap();
    assert_eq!(first.0.unsent(), 0);
    assert!(first.0.poll(PollEvents::WRITABLE).intersects(PollEvents::OUT));
}

#[test]
fn open_files_arrive_once_and_end_the_message() {
    let _alone = alone();
    let [first, second] = pair(Kind::Stream);
    let [passed, other] = pair(Kind::Stream);
    send(&first, b"a", &[&passed]).unwrap();
    send(&first, b"b", &[]).unwrap();
    drop(passed);
    let mut message = Incoming::default();
    assert_eq!(receive(&second, &mut message).unwrap(), b"a");
    assert_eq!(message.rights.len(), 1);
    assert!(send(&other, b"still there", &[]).is_ok());
    drop(message);
    assert_eq!(send(&other, b"gone", &[]), Err(Errno::EPIPE));
}

/// Whether the peer of a pair has been closed.
fn is_over(file: &File) -> bool {
    file.0.poll(PollEvents::RDHUP).contains(PollEvents::HUP)
}

#[test]
fn sockets_in_their_own_queues_are_collected() {
    let _alone = alone();
    let [first, second] = pair(Kind::Datagram);
    let [watched, watcher] = pair(Kind::Stream);
    // Each is in the other's queue, and the pair holds a third.
    send(&first, b"", &[&first, &second, &watched]).unwrap();
    send(&second, b"", &[&second]).unwrap();
    drop(watched);
    assert!(!is_over(&watcher));
    drop(first);
    assert!(!is_over(&watcher));
    drop(second);
    crate::rights::collect();
    assert!(is_over(&watcher));
}

#[test]
fn what_can_still_be_received_is_not_collected() {
    let _alone = alone();
    let [first, second] = pair(Kind::Datagram);
    let [inner, far] = pair(Kind::Datagram);
    let [watched, watcher] = pair(Kind::Stream);
    // `inner` holds itself and is reachable through the queue of `second`.
    send(&far, b"", &[&inner, &watched]).unwrap();
    send(&first, b"", &[&inner]).unwrap();
    drop((inner, watched, far));
    crate::rights::collect();
    assert!(!is_over(&watcher));
    drop((first, second));
    crate::rights::collect();
    assert!(is_over(&watcher));
}

#[test]
fn a_long_chain_of_queues_is_closed_without_recursion() {
    let _alone = alone();
    let [mut outer, end] = pair(Kind::Datagram);
    let mut ends = vec![end];
    for _ in 0..1_000 {
        let [next, far] = pair(Kind::Datagram);
        send(&far, b"", &[&outer]).unwrap();
        outer = next;
        ends.push(far);
    }
    assert_eq!(send(&ends[0], b"", &[]), Ok(0));
    drop(outer);
    assert_eq!(send(&ends[0], b"", &[]), Err(Errno::ECONNREFUSED));
}
