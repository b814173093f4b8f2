//! A share against a server in memory, which answers as told: rightly, or not.

use super::wire::{Body, HEADER, Message, kind};
use super::*;
use crate::inode::{AttributeChange, NewContent, NewNode};
use crate::pending::complete;
use abi::fs::RenameFlags;
use base::device::Reply;
use base::task::block_on_host;
use std::collections::HashMap;
use std::sync::Mutex as HostMutex;

#[derive(Clone, Default)]
struct HostFile {
    mode: u32,
    bytes: Vec<u8>,
    names: BTreeMap<Vec<u8>, u64>,
}

/// How the server misbehaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mood {
    Honest,
    /// Every answer is cut after so many bytes, its size field as it was.
    Cut(usize),
    /// Every byte behind the header is this one.
    Noise(u8),
    /// The answer is that to another question.
    WrongKind,
    /// It is told that the channel broke.
    Silent,
    /// Directories list a name that leads elsewhere.
    EvilNames,
    /// Every name is the root itself.
    Loop,
}

struct Server {
    files: HostMutex<HashMap<u64, HostFile>>,
    fids: HostMutex<HashMap<u32, u64>>,
    mood: HostMutex<Mood>,
    asked: HostMutex<Vec<u8>>,
}

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;

impl Server {
    fn new() -> Arc<Server> {
        let root = HostFile { mode: DIRECTORY, ..HostFile::default() };
        Arc::new(Server {
            files: HostMutex::new(HashMap::from([(1, root)])),
            fids: HostMutex::default(),
            mood: HostMutex::new(Mood::Honest),
            asked: HostMutex::default(),
        })
    }

    fn add(&self, parent: u64, name: &[u8], mode: u32, bytes: &[u8]) -> u64 {
        let mut files = self.files.lock().unwrap();
        let number = files.len() as u64 + 1;
        let file = HostFile { mode, bytes: bytes.to_vec(), ..HostFile::default() };
        files.insert(number, file);
        files.get_mut(&parent).unwrap().names.insert(name.to_vec(), number);
        number
    }

    fn count(&self, kind: u8) -> usize {
        self.asked.lock().unwrap().iter().filter(|&&asked| asked == kind).count()
    }

    fn qid(message: Message, number: u64) -> Message {
        message.data_free(&[0]).u32(0).u64(number)
    }

    fn answer(&self, message: &[u8]) -> Result<Vec<u8>, u32> {
        const ENOENT: u32 = 2;
        const EEXIST: u32 = 17;
        let kind = message[4];
        let mut body = Body::part(&message[HEADER..]);
        let mut files = self.files.lock().unwrap();
        let mut fids = self.fids.lock().unwrap();
        let reply = Message::new(kind + 1, 1 << 16).unwrap();
        let reply = match kind {
            kind::VERSION => {
                let size = body.u32().unwrap();
                reply.u32(size).string(b"9P2000.L")
            }
            kind::ATTACH => {
                fids.insert(body.u32().unwrap(), 1);
                Server::qid(reply, 1)
            }
            kind::WALK => {
                let (from, to) = (body.u32().unwrap(), body.u32().unwrap());
                let count = body.u16().unwrap();
                let mut number = fids[&from];
                if count == 1 {
                    let name = body.string().unwrap();
                    number = match *self.mood.lock().unwrap() {
                        Mood::Loop => 1,
                        _ => *files[&number].names.get(name).ok_or(ENOENT)?,
                    };
                }
                fids.insert(to, number);
                let reply = reply.u16(count);
                if count == 1 { Server::qid(reply, number) } else { reply }
            }
            kind::GETATTR => {
                let number = fids[&body.u32().unwrap()];
                let file = &files[&number];
                let mut reply = Server::qid(reply.u64(0x7ff), number).u32(file.mode).u32(0).u32(0);
                for value in [1, 0, file.bytes.len() as u64, 4096, 0, 1, 0, file.bytes.len() as u64]
                {
                    reply = reply.u64(value);
                }
                (0..7).fold(reply, |reply, _| reply.u64(0))
            }
            kind::SETATTR => {
                let number = fids[&body.u32().unwrap()];
                let valid = body.u32().unwrap();
                let mode = body.u32().unwrap();
                body.u64().unwrap();
                let size = body.u64().unwrap();
                let file = files.get_mut(&number).unwrap();
                if valid & 1 != 0 {
                    file.mode = file.mode & !0o7777 | mode;
                }
                if valid & 8 != 0 {
                    file.bytes.resize(size as usize, 0);
                }
                reply
            }
            kind::OPEN => Server::qid(reply, fids[&body.u32().unwrap()]).u32(0),
            kind::CREATE | kind::MKDIR => {
                let fid = body.u32().unwrap();
                let name = body.string().unwrap().to_vec();
                let number = files.len() as u64 + 1;
                let parent = files.get_mut(&fids[&fid]).unwrap();
                if parent.names.contains_key(&name) {
                    return Err(EEXIST);
                }
                parent.names.insert(name, number);
                let mode = if kind == kind::CREATE { FILE } else { DIRECTORY };
                files.insert(number, HostFile { mode, ..HostFile::default() });
                if kind == kind::CREATE {
                    fids.insert(fid, number);
                }
                Server::qid(reply, number).u32(0)
            }
            kind::UNLINKAT => {
                let directory = fids[&body.u32().unwrap()];
                let name = body.string().unwrap();
                files.get_mut(&directory).unwrap().names.remove(name).ok_or(ENOENT)?;
                reply
            }
            kind::RENAMEAT => {
                let from = fids[&body.u32().unwrap()];
                let old = body.string().unwrap();
                let to = fids[&body.u32().unwrap()];
                let new = body.string().unwrap();
                let number = files.get_mut(&from).unwrap().names.remove(old).ok_or(ENOENT)?;
                files.get_mut(&to).unwrap().names.insert(new.to_vec(), number);
                reply
            }
            kind::READ => {
                let file = &files[&fids[&body.u32().unwrap()]];
                let offset = body.u64().unwrap() as usize;
                let end = offset + body.u32().unwrap() as usize;
                reply.data(file.bytes.get(offset..end.min(file.bytes.len())).unwrap_or_default())
            }
            kind::WRITE => {
                let file = files.get_mut(&fids[&body.u32().unwrap()]).unwrap();
                let offset = body.u64().unwrap() as usize;
                let bytes = body.data().unwrap();
                let size = file.bytes.len().max(offset + bytes.len());
                file.bytes.resize(size, 0);
                file.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
                reply.u32(bytes.len() as u32)
            }
            kind::READDIR => {
                let directory = &files[&fids[&body.u32().unwrap()]];
                let offset = body.u64().unwrap() as usize;
                let mut entries = Message::new(0, 1 << 16).unwrap();
                let is_evil = *self.mood.lock().unwrap() == Mood::EvilNames;
                for (index, (name, number)) in directory.names.iter().enumerate().skip(offset) {
                    let name = if is_evil { b"../../etc/passwd".as_slice() } else { name };
                    let next = index as u64 + 1;
                    entries = Server::qid(entries, *number).u64(next).data_free(&[8]).string(name);
                }
                reply.data(&entries.finish()[HEADER..])
            }
            kind::STATFS => (0..7).fold(reply.u32(1).u32(4096), |reply, _| reply.u64(9)).u32(255),
            kind::CLUNK => {
                fids.remove(&body.u32().unwrap());
                reply
            }
            kind::FSYNC => reply,
            _ => return Err(95),
        };
        Ok(reply.finish())
    }
}

impl Exchange for Server {
    fn exchange(&self, message: Vec<u8>) -> Reply<'_> {
        Box::pin(async move {
            self.asked.lock().unwrap().push(message[4]);
            let mood = *self.mood.lock().unwrap();
            if mood == Mood::Silent {
                return Err(Errno::EIO);
            }
            let mut answer = self.answer(&message).unwrap_or_else(|errno| {
                Message::new(kind::RLERROR, 4).unwrap().u32(errno).finish()
            });
            match mood {
                Mood::Cut(length) => answer.truncate(length),
                Mood::Noise(byte) => answer.iter_mut().skip(HEADER).for_each(|b| *b = byte),
                Mood::WrongKind => answer[4] ^= 2,
                _ => {}
            }
            Ok(answer)
        })
    }

    fn longest(&self) -> (usize, usize) {
        (1 << 16, 1 << 16)
    }
}

fn share(server: &Arc<Server>, fresh_ns: u64) -> Arc<dyn FileSystem> {
    let options = Options { fresh_ns, core: CpuId::current() };
    block_on_host(RemoteFs::connect(server.clone(), options)).unwrap()
}

fn look_up(directory: &Arc<dyn Inode>, name: &[u8]) -> Result<Arc<dyn Inode>, Errno> {
    block_on_host(complete(|| directory.lookup(name)))
}

fn read(file: &Arc<dyn Inode>, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; length];
    let count = block_on_host(complete(|| file.read_at(offset, &mut bytes.as_mut_slice())))?;
    bytes.truncate(count);
    Ok(bytes)
}

fn new(content: NewContent<'_>) -> NewNode<'_> {
    NewNode { content, mode: 0o644, user: 0, group: 0 }
}

const LONG: u64 = u64::MAX / 2;

#[test]
fn names_and_contents_are_fetched_once_while_they_are_fresh() {
    let server = Server::new();
    let bytes: Vec<u8> = (0..200_000_u32).map(|index| (index % 251) as u8).collect();
    server.add(1, b"data", FILE, &bytes);
    let root = share(&server, LONG).root();
    let file = look_up(&root, b"data").unwrap();
    assert_eq!(file.metadata().size, 200_000);
    assert_eq!(read(&file, 0, 300_000).unwrap(), bytes);
    assert_eq!(read(&file, 199_990, 100).unwrap(), bytes[199_990..]);
    assert!(read(&file, 200_000, 100).unwrap().is_empty());
    let (walks, reads) = (server.count(kind::WALK), server.count(kind::READ));
    assert_eq!(look_up(&root, b"data").unwrap().id(), file.id());
    assert_eq!(look_up(&root, b"none").unwrap_err(), Errno::ENOENT);
    assert_eq!(look_up(&root, b"none").unwrap_err(), Errno::ENOENT);
    assert_eq!(read(&file, 4096, 4096).unwrap(), bytes[4096..8192]);
    assert_eq!(server.count(kind::WALK), walks + 1);
    assert_eq!(server.count(kind::READ), reads);
}

#[test]
fn what_the_host_changes_is_seen_when_it_is_not_fresh_any_more() {
    let server = Server::new();
    let number = server.add(1, b"data", FILE, b"old");
    let root = share(&server, 0).root();
    let file = look_up(&root, b"data").unwrap();
    assert_eq!(read(&file, 0, 10).unwrap(), b"old");
    server.files.lock().unwrap().get_mut(&number).unwrap().bytes = b"newer".to_vec();
    block_on_host(complete(|| file.refresh())).unwrap();
    assert_eq!(read(&file, 0, 10).unwrap(), b"newer");
}

#[test]
fn what_is_written_arrives_and_can_be_read_at_once() {
    let server = Server::new();
    let root = share(&server, LONG).root();
    let node = new(NewContent::Regular);
    let file = block_on_host(complete(|| root.create(b"new", &node))).unwrap();
    let bytes = vec![7_u8; 150_000];
    let write = |offset, bytes: &[u8]| {
        block_on_host(complete(|| file.write_at(offset, &mut &*bytes))).unwrap()
    };
    assert_eq!(write(0, &bytes), 150_000);
    assert_eq!(write(10, b"ferry"), 5);
    assert_eq!(file.metadata().size, 150_000);
    assert_eq!(&read(&file, 8, 8).unwrap(), b"\x07\x07ferry\x07");
    assert_eq!(write(11, b"E"), 1);
    assert_eq!(&read(&file, 10, 5).unwrap(), b"fErry");
    block_on_host(complete(|| file.sync())).unwrap();
    assert_eq!(server.files.lock().unwrap()[&2].bytes.len(), 150_000);
    assert_eq!(server.files.lock().unwrap()[&2].bytes[10..15], *b"fErry");
    block_on_host(complete(|| file.truncate(12))).unwrap();
    assert_eq!(read(&file, 10, 100).unwrap(), b"fE");
    assert_eq!(server.files.lock().unwrap()[&2].bytes.len(), 12);
}

#[test]
fn a_change_is_made_once_and_the_second_of_two_is_told() {
    let server = Server::new();
    let root = share(&server, 0).root();
    let node = new(NewContent::Directory);
    let make = || block_on_host(complete(|| root.create(b"d", &node)));
    let directory = make().unwrap();
    assert_eq!(make().unwrap_err(), Errno::EEXIST);
    assert_eq!(server.count(kind::MKDIR), 1);
    let file = new(NewContent::Regular);
    let file = block_on_host(complete(|| directory.create(b"f", &file))).unwrap();
    let (id, to) = (file.id(), root.clone());
    let moved = complete(|| directory.rename(b"f", id, &to, b"g", None, RenameFlags::empty()));
    block_on_host(moved).unwrap();
    assert_eq!(look_up(&directory, b"f").unwrap_err(), Errno::ENOENT);
    assert_eq!(look_up(&root, b"g").unwrap().id(), id);
    assert_eq!(server.count(kind::RENAMEAT), 1);
    let wrong = block_on_host(complete(|| root.unlink(b"g", directory.id())));
    assert_eq!(wrong.unwrap_err(), Errno::ESTALE);
    block_on_host(complete(|| root.unlink(b"g", id))).unwrap();
    assert_eq!(look_up(&root, b"g").unwrap_err(), Errno::ENOENT);
    let mode = AttributeChange { mode: Some(0o700), ..AttributeChange::default() };
    block_on_host(complete(|| directory.set_attributes(&mode))).unwrap();
    assert_eq!(directory.metadata().permissions.mode, 0o700);
}

#[test]
fn a_listing_has_every_entry_once() {
    let server = Server::new();
    for index in 0..500 {
        server.add(1, format!("file{index}").as_bytes(), FILE, b"");
    }
    let root = share(&server, LONG).root();
    let (mut names, mut cursor) = (Vec::new(), 0);
    loop {
        let mut room = 7;
        let before = names.len();
        block_on_host(complete(|| {
            root.read_directory(cursor, &mut |entry| {
                room -= 1;
                if room == 0 {
                    return false;
                }
                names.push(entry.name.to_vec());
                cursor = entry.next;
                true
            })
        }))
        .unwrap();
        if names.len() == before {
            break;
        }
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 502);
}

#[test]
fn a_hostile_server_gets_errors_and_nothing_else() {
    let mut moods = vec![Mood::WrongKind, Mood::Silent, Mood::EvilNames, Mood::Loop];
    moods.extend((0..40).map(Mood::Cut));
    moods.extend([0, 1, 0x2f, 0x7f, 0x80, 0xff].map(Mood::Noise));
    for mood in moods {
        let server = Server::new();
        server.add(1, b"data", FILE, b"some bytes");
        server.add(1, b"dir", DIRECTORY, b"");
        let root = share(&server, 0).root();
        let file = look_up(&root, b"data").unwrap();
        *server.mood.lock().unwrap() = mood;
        if !matches!(mood, Mood::EvilNames) {
            assert!(look_up(&root, b"dir").is_err(), "{mood:?}");
        }
        let list = || {
            root.read_directory(0, &mut |entry| {
                assert!(!entry.name.contains(&b'/'), "{mood:?}");
                true
            })
        };
        let listed = block_on_host(complete(list));
        assert!(listed.is_err() || mood == Mood::Loop || mood == Mood::Noise(0), "{mood:?}");
        // An error, or what the attributes say is there.
        if let Ok(bytes) = read(&file, 0, 100) {
            assert!(bytes.len() <= 100, "{mood:?}");
        }
        let _ = block_on_host(complete(|| root.create(b"new", &new(NewContent::Regular))));
        let _ = block_on_host(complete(|| file.truncate(3)));
        let _ = block_on_host(complete(|| root.unlink(b"data", file.id())));
        let refused = block_on_host(RemoteFs::connect(
            server.clone(),
            Options { fresh_ns: 0, core: CpuId::current() },
        ));
        let speaks = matches!(mood, Mood::EvilNames | Mood::Loop);
        assert_eq!(refused.is_ok(), speaks, "{mood:?}");
    }
}

#[test]
fn a_write_that_fails_later_is_told_once() {
    let server = Server::new();
    server.add(1, b"data", FILE, b"0123456789");
    let root = share(&server, LONG).root();
    let file = look_up(&root, b"data").unwrap();
    let open = || file.open(abi::fs::OpenFlags::RDWR, &crate::Identity::kernel());
    block_on_host(complete(open)).unwrap();
    *server.mood.lock().unwrap() = Mood::WrongKind;
    assert_eq!(block_on_host(complete(|| file.write_at(0, &mut b"x".as_slice()))), Ok(1));
    block_on_host(complete(|| file.sync())).unwrap_err();
    *server.mood.lock().unwrap() = Mood::Honest;
    let _ = block_on_host(complete(|| file.sync()));
    assert_eq!(block_on_host(complete(|| file.sync())), Ok(()));
}

#[test]
fn names_that_leave_the_directory_are_never_sent() {
    let server = Server::new();
    let root = share(&server, 0).root();
    let before = server.asked.lock().unwrap().len();
    for name in [b"..".as_slice(), b".", b"a/b", b"", b"a\0b"] {
        assert_eq!(look_up(&root, name).unwrap_err(), Errno::ENOENT);
        let made = block_on_host(complete(|| root.create(name, &new(NewContent::Regular))));
        assert_eq!(made.unwrap_err(), Errno::EINVAL);
    }
    assert_eq!(server.asked.lock().unwrap().len(), before);
}
