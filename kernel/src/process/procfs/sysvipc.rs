//! `/proc/sysvipc`, and the settings of IPC in `/proc/sys/kernel`.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use abi::Errno;
use fs::Identity;
use fs::pseudo::{Content, Entry};

use super::directory::{Fixed, MakeEntry};
use super::{Text, put};
use crate::ipc::limits::{Limits, Setting};
use crate::ipc::space::Space;
use crate::ipc::{message, semaphore, shared_memory};
use crate::memory::PAGE;

/// Inode numbers of the directory's files, from its own.
const FIRST: u64 = 0x60;

const NAMES: &[(&str, MakeEntry)] = &[
    ("msg", |number| Entry::file(number, Arc::new(Objects(queues)))),
    ("sem", |number| Entry::file(number, Arc::new(Objects(sets)))),
    ("shm", |number| Entry::file(number, Arc::new(Objects(segments)))),
];

/// `/proc/sysvipc`
pub(super) fn directory(number: u64) -> Entry {
    Entry::directory(number, Arc::new(Fixed { first_number: number + FIRST, names: NAMES }))
}

/// The objects of one kind in the namespace of whoever reads.
struct Objects(fn(&Arc<Space>) -> Result<Vec<u8>, Errno>);

impl Content for Objects {
    fn generate(&self, reader: &Identity) -> Result<Vec<u8>, Errno> {
        (self.0)(&Space::of(reader))
    }
}

fn segments(space: &Arc<Space>) -> Result<Vec<u8>, Errno> {
    let mut text = Text::default();
    put!(
        text,
        "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      \
         atime      dtime      ctime                   rss                  swap\n"
    );
    for (id, it, resident) in shared_memory::list(space) {
        let owner = it.permission;
        put!(
            text,
            "{:10} {id:10}  {:4o} {:21} {:5} {:5}  {:5} {:5} {:5} {:5} {:5} ",
            owner.key,
            owner.mode,
            it.size,
            it.creator,
            it.last,
            it.attachments,
            owner.user,
            owner.group,
            owner.creator_user,
            owner.creator_group
        );
        let resident = resident * PAGE;
        put!(
            text,
            "{:10} {:10} {:10} {resident:21} {:21}\n",
            it.attached_s,
            it.detached_s,
            it.changed_s,
            0
        );
    }
    Ok(text.0)
}

fn sets(space: &Arc<Space>) -> Result<Vec<u8>, Errno> {
    let mut text = Text::default();
    put!(
        text,
        "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n"
    );
    for (id, it) in semaphore::list(space) {
        let owner = it.permission;
        put!(
            text,
            "{:10} {id:10}  {:4o} {:10} {:5} {:5} {:5} {:5} {:10} {:10}\n",
            owner.key,
            owner.mode,
            it.count,
            owner.user,
            owner.group,
            owner.creator_user,
            owner.creator_group,
            it.operated_s,
            it.changed_s
        );
    }
    Ok(text.0)
}

fn queues(space: &Arc<Space>) -> Result<Vec<u8>, Errno> {
    let mut text = Text::default();
    put!(
        text,
        "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      \
         stime      rtime      ctime\n"
    );
    for (id, it) in message::list(space) {
        let owner = it.permission;
        put!(
            text,
            "{:10} {id:10}  {:4o}  {:10} {:10} {:5} {:5} {:5} {:5} {:5} {:5} ",
            owner.key,
            owner.mode,
            it.bytes,
            it.messages,
            it.sender,
            it.receiver,
            owner.user,
            owner.group,
            owner.creator_user,
            owner.creator_group
        );
        put!(text, "{:10} {:10} {:10}\n", it.sent_s, it.received_s, it.changed_s);
    }
    Ok(text.0)
}

/// A setting of a namespace.
type Pick = fn(&Limits) -> &Setting;

/// Settings that one file shows, those of the namespace of whoever reads or writes it.
struct Settings(Vec<Pick>);

impl Content for Settings {
    fn generate(&self, reader: &Identity) -> Result<Vec<u8>, Errno> {
        let space = Space::of(reader);
        let mut text = Text::default();
        for (index, pick) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\t" };
            put!(text, "{separator}{}", pick(&space.limits).get());
        }
        put!(text, "\n");
        Ok(text.0)
    }

    fn write(&self, writer: &Identity, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        if offset != 0 {
            return Ok(bytes.len());
        }
        let space = Space::of(writer);
        for (pick, word) in self.0.iter().zip(words(bytes)?) {
            let value = word.parse().map_err(|_| Errno::EINVAL)?;
            if !pick(&space.limits).set(value) {
                return Err(Errno::EINVAL);
            }
        }
        Ok(bytes.len())
    }
}

fn words(bytes: &[u8]) -> Result<impl Iterator<Item = &str>, Errno> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text = core::str::from_utf8(bytes.get(..end).unwrap_or_default());
    Ok(text.map_err(|_| Errno::EINVAL)?.split_ascii_whitespace())
}

/// The number that the next object is to have.
struct NextNumber {
    get: fn(&Arc<Space>) -> i32,
    set: fn(&Arc<Space>, i32),
}

impl Content for NextNumber {
    fn generate(&self, reader: &Identity) -> Result<Vec<u8>, Errno> {
        let mut text = Text::default();
        put!(text, "{}\n", (self.get)(&Space::of(reader)));
        Ok(text.0)
    }

    fn write(&self, writer: &Identity, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        if offset == 0
            && let Some(word) = words(bytes)?.next()
        {
            let id: i32 = word.parse().map_err(|_| Errno::EINVAL)?;
            if id < 0 {
                return Err(Errno::EINVAL);
            }
            (self.set)(&Space::of(writer), id);
        }
        Ok(bytes.len())
    }
}

fn settings(number: u64, settings: Vec<Pick>) -> Entry {
    Entry::file(number, Arc::new(Settings(settings))).with_mode(0o644)
}

fn next_number(number: u64, get: fn(&Arc<Space>) -> i32, set: fn(&Arc<Space>, i32)) -> Entry {
    Entry::file(number, Arc::new(NextNumber { get, set })).with_mode(0o644)
}

/// `/proc/sys/fs/mqueue`
pub(super) const MESSAGE_QUEUES: &[(&str, MakeEntry)] = &[
    ("msg_default", |number| settings(number, vec![|limits| &limits.mq_msg_default])),
    ("msg_max", |number| settings(number, vec![|limits| &limits.mq_msg_max])),
    ("msgsize_default", |number| settings(number, vec![|limits| &limits.mq_msgsize_default])),
    ("msgsize_max", |number| settings(number, vec![|limits| &limits.mq_msgsize_max])),
    ("queues_max", |number| settings(number, vec![|limits| &limits.mq_queues_max])),
];

pub(super) fn msgmax(number: u64) -> Entry {
    settings(number, vec![|limits| &limits.msgmax])
}

pub(super) fn msgmnb(number: u64) -> Entry {
    settings(number, vec![|limits| &limits.msgmnb])
}

pub(super) fn msgmni(number: u64) -> Entry {
    settings(number, vec![|limits| &limits.msgmni])
}

pub(super) fn sem(number: u64) -> Entry {
    settings(
        number,
        vec![|limits| &limits.semmsl, |limits| &limits.semmns, |limits| &limits.semopm, |limits| {
            &limits.semmni
        }],
    )
}

pub(super) fn shmall(number: u64) -> Entry {
    settings(number, vec![|limits| &limits.shmall])
}

pub(super) fn shmmax(number: u64) -> Entry {
    settings(number, vec![|limits| &limits.shmmax])
}

pub(super) fn shmmni(number: u64) -> Entry {
    settings(number, vec![|limits| &limits.shmmni])
}

pub(super) fn msg_next_id(number: u64) -> Entry {
    next_number(number, message::wanted, message::set_wanted)
}

pub(super) fn sem_next_id(number: u64) -> Entry {
    next_number(number, semaphore::wanted, semaphore::set_wanted)
}

pub(super) fn shm_next_id(number: u64) -> Entry {
    next_number(number, shared_memory::wanted, shared_memory::set_wanted)
}
