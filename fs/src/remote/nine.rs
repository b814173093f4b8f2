//! What can be asked of a server of 9P2000.L, one function per question.
//!
//! A `Handle` is a `fid`: a number by which the server knows a file. It is given up when it is dropped; the
//! message for that goes with the next question.

use super::server::{Attributes, Change, NewTime, is_plain_name};
use super::wire::{Body, HEADER, Message, kind};
use super::{Made, Owner};
use crate::listing::Entry;
use crate::metadata::{InodeId, Metadata, NodeKind, Permissions, Timestamp};
use abi::Errno;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::device::Exchange;
use base::sync::{Mutex, rank};
use core::sync::atomic::{AtomicU32, Ordering};

/// The version that is spoken.
const VERSION: &[u8] = b"9P2000.L";
/// No handle.
const NO_FID: u32 = u32::MAX;
/// Bytes of a read's or write's message besides the data.
const IO_HEADER: usize = HEADER + 4 + 8 + 4;
/// Smallest messages that are of any use.
const LEAST: usize = 8192;
/// All basic attributes and the time of creation.
const ATTRIBUTES: u64 = 0x7ff | 0x800;
/// Most entries of one directory.
const MOST_ENTRIES: usize = 1 << 20;

/// A connection with a server.
pub struct Client {
    channel: Arc<dyn Exchange>,
    /// Longest message, as agreed on.
    size: usize,
    device: u64,
    next_fid: AtomicU32,
    /// Handles that were dropped.
    dropped: Mutex<Vec<u32>>,
}

/// A file by the server's number for it.
pub struct Handle {
    client: Arc<Client>,
    fid: u32,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.client.dropped.lock().push(self.fid);
    }
}

impl Client {
    /// Agrees on a version and opens the root. `device` is the number of the file system here.
    pub async fn connect(
        channel: Arc<dyn Exchange>,
        device: u64,
    ) -> Result<(Arc<Client>, Handle, Attributes), Errno> {
        let (most, most_answer) = channel.longest();
        let size = most.min(most_answer).min(u32::MAX as usize);
        let message = Message::new(kind::VERSION, 32)?.u32(size as u32).string(VERSION);
        let answer = channel.exchange(message.finish()).await?;
        let mut body = Body::of(&answer, kind::VERSION)?;
        let agreed = usize::try_from(body.u32()?).map_err(|_| Errno::EIO)?;
        if body.string()? != VERSION || agreed < LEAST || agreed > size {
            return Err(Errno::EIO);
        }
        let client = Arc::new(Client {
            channel,
            size: agreed,
            device,
            next_fid: AtomicU32::new(1),
            dropped: Mutex::new(&rank::REMOTE_FILES, Vec::new()),
        });
        let root = client.new_handle();
        // As the superuser, from the root of what is shared.
        let message = Message::new(kind::ATTACH, 64)?.u32(root.fid).u32(NO_FID);
        client.ask(message.string(b"root").string(b"").u32(0), kind::ATTACH).await?;
        let attributes = client.attributes(&root).await?;
        Ok((client, root, attributes))
    }

    /// Most bytes of one read or write.
    pub fn most_bytes(&self) -> usize {
        self.size - IO_HEADER
    }

    fn new_handle(self: &Arc<Client>) -> Handle {
        let fid = self.next_fid.fetch_add(1, Ordering::Relaxed);
        Handle { client: self.clone(), fid }
    }

    async fn ask(&self, message: Message, kind: u8) -> Result<Vec<u8>, Errno> {
        loop {
            let dropped = self.dropped.lock().pop();
            let Some(fid) = dropped else { break };
            // Nobody needs the answer.
            let message = Message::new(kind::CLUNK, 4)?.u32(fid).finish();
            let _ = self.channel.exchange(message).await;
        }
        let answer = self.channel.exchange(message.finish()).await?;
        Body::of(&answer, kind)?;
        Ok(answer)
    }

    /// The file of a name in a directory.
    pub async fn walk(
        self: &Arc<Client>,
        directory: &Handle,
        name: &[u8],
    ) -> Result<(Handle, Attributes), Errno> {
        let handle = self.walk_names(directory, Some(name)).await?;
        let attributes = self.attributes(&handle).await?;
        Ok((handle, attributes))
    }

    async fn walk_names(
        self: &Arc<Client>,
        from: &Handle,
        name: Option<&[u8]>,
    ) -> Result<Handle, Errno> {
        let handle = self.new_handle();
        let count = u16::from(name.is_some());
        let room = 12 + name.map_or(0, <[u8]>::len);
        let mut message = Message::new(kind::WALK, room)?.u32(from.fid).u32(handle.fid).u16(count);
        if let Some(name) = name {
            message = message.string(name);
        }
        let answer = match self.ask(message, kind::WALK).await {
            Ok(answer) => answer,
            Err(error) => {
                // The server knows no such handle.
                core::mem::forget(handle);
                return Err(error);
            }
        };
        let mut body = Body::of(&answer, kind::WALK)?;
        if body.u16()? != count {
            return Err(Errno::EIO);
        }
        Ok(handle)
    }

    /// Attributes of a file.
    pub async fn attributes(&self, handle: &Handle) -> Result<Attributes, Errno> {
        let message = Message::new(kind::GETATTR, 12)?.u32(handle.fid).u64(ATTRIBUTES);
        let answer = self.ask(message, kind::GETATTR).await?;
        let mut body = Body::of(&answer, kind::GETATTR)?;
        body.u64()?;
        let qid = body.qid()?;
        let mode = body.u32()?;
        let (user, group) = (body.u32()?, body.u32()?);
        let (links, device, size) = (body.u64()?, body.u64()?, body.u64()?);
        let (block_size, blocks) = (body.u64()?, body.u64()?);
        let mut time = || -> Result<Timestamp, Errno> {
            let (seconds, nanoseconds) = (body.u64()?, body.u64()?);
            let nanoseconds = u32::try_from(nanoseconds).ok().filter(|&ns| ns < 1_000_000_000);
            let nanoseconds = nanoseconds.ok_or(Errno::EIO)?;
            Ok(Timestamp { seconds: seconds.cast_signed(), nanoseconds })
        };
        let (accessed, modified, changed) = (time()?, time()?, time()?);
        let metadata = Metadata {
            id: InodeId { device: self.device, number: qid.path },
            kind: NodeKind::from_mode(mode).ok_or(Errno::EIO)?,
            permissions: Permissions { mode: mode & 0o7777, user, group },
            links,
            size: if i64::try_from(size).is_ok() { size } else { return Err(Errno::EIO) },
            blocks,
            block_size: u32::try_from(block_size).unwrap_or(4096).clamp(512, 1 << 20),
            represented_device: device,
            accessed,
            modified,
            changed,
            born: changed,
        };
        Ok(Attributes { number: qid.path, metadata })
    }

    /// Changes attributes.
    pub async fn change(&self, handle: &Handle, change: &Change) -> Result<(), Errno> {
        let mut valid = 0;
        let mut note = |is_there: bool, bits: u32| valid |= if is_there { bits } else { 0 };
        note(change.mode.is_some(), 1);
        note(change.user.is_some(), 2);
        note(change.group.is_some(), 4);
        note(change.size.is_some(), 8);
        let times = [NewTime::parts(change.accessed), NewTime::parts(change.modified)];
        note(change.accessed.is_some(), 0x10);
        note(change.modified.is_some(), 0x20);
        note(times[0].is_some(), 0x80);
        note(times[1].is_some(), 0x100);
        let [accessed, modified] = times.map(Option::unwrap_or_default);
        let message = Message::new(kind::SETATTR, 60)?
            .u32(handle.fid)
            .u32(valid)
            .u32(change.mode.unwrap_or(0))
            .u32(change.user.unwrap_or(0))
            .u32(change.group.unwrap_or(0))
            .u64(change.size.unwrap_or(0))
            .u64(accessed.0)
            .u64(accessed.1)
            .u64(modified.0)
            .u64(modified.1);
        self.ask(message, kind::SETATTR).await.map(|_| ())
    }

    /// A second handle of the same file, opened with these flags of `open`.
    pub async fn open(self: &Arc<Client>, file: &Handle, flags: u32) -> Result<Handle, Errno> {
        let handle = self.walk_names(file, None).await?;
        let message = Message::new(kind::OPEN, 8)?.u32(handle.fid).u32(flags);
        self.ask(message, kind::OPEN).await?;
        Ok(handle)
    }

    /// As `open`, for reading, and for writing if `writes`.
    pub async fn open_file(
        self: &Arc<Client>,
        file: &Handle,
        writes: bool,
    ) -> Result<Handle, Errno> {
        const READ: u32 = 0;
        const WRITE: u32 = 1;
        const READ_WRITE: u32 = 2;
        match self.open(file, if writes { READ_WRITE } else { READ }).await {
            // The host permits this user to write and not to read.
            Err(Errno::EACCES) if writes => self.open(file, WRITE).await,
            result => result,
        }
    }

    /// Makes something; gives a handle of it, its attributes, and for a file a handle that is open for
    /// reading and writing.
    pub async fn make(
        self: &Arc<Client>,
        directory: &Handle,
        name: &[u8],
        owner: Owner,
        content: Made,
    ) -> Result<(Handle, Attributes, Option<Handle>), Errno> {
        let Owner { mode, user, group } = owner;
        let mut open = None;
        match content {
            Made::File => open = Some(self.create(directory, name, mode, group).await?),
            Made::Directory => self.make_directory(directory, name, mode, group).await?,
            Made::Link(target) => self.make_link(directory, name, &target, group).await?,
            Made::Node(kind, number) => {
                self.make_node(directory, name, kind | mode, number, group).await?;
            }
        }
        let (handle, mut attributes) = self.walk(directory, name).await?;
        let made = attributes.metadata.permissions;
        if made.user != user || made.group != group {
            // Who serves may have no right to give files away; then they are his.
            let owner = Change { user: Some(user), group: Some(group), ..Change::default() };
            if self.change(&handle, &owner).await.is_ok() {
                attributes = self.attributes(&handle).await?;
            }
        }
        Ok((handle, attributes, open))
    }

    /// Makes a file; gives a handle that is open for reading and writing.
    pub async fn create(
        self: &Arc<Client>,
        directory: &Handle,
        name: &[u8],
        mode: u32,
        group: u32,
    ) -> Result<Handle, Errno> {
        const READ_WRITE_EXCLUSIVE: u32 = 2 | 0o200;
        let handle = self.walk_names(directory, None).await?;
        let message = Message::new(kind::CREATE, 20 + name.len())?.u32(handle.fid).string(name);
        let message = message.u32(READ_WRITE_EXCLUSIVE).u32(mode).u32(group);
        self.ask(message, kind::CREATE).await?;
        Ok(handle)
    }

    /// Makes a directory.
    pub async fn make_directory(
        &self,
        directory: &Handle,
        name: &[u8],
        mode: u32,
        group: u32,
    ) -> Result<(), Errno> {
        let message = Message::new(kind::MKDIR, 20 + name.len())?.u32(directory.fid).string(name);
        self.ask(message.u32(mode).u32(group), kind::MKDIR).await.map(|_| ())
    }

    /// Makes a symbolic link.
    pub async fn make_link(
        &self,
        directory: &Handle,
        name: &[u8],
        target: &[u8],
        group: u32,
    ) -> Result<(), Errno> {
        let room = 20 + name.len() + target.len();
        let message = Message::new(kind::SYMLINK, room)?.u32(directory.fid).string(name);
        self.ask(message.string(target).u32(group), kind::SYMLINK).await.map(|_| ())
    }

    /// Makes a device, pipe or socket; `mode` says which.
    pub async fn make_node(
        &self,
        directory: &Handle,
        name: &[u8],
        mode: u32,
        device: u64,
        group: u32,
    ) -> Result<(), Errno> {
        let (major, minor) = (abi::fs::device_major(device), abi::fs::device_minor(device));
        let message = Message::new(kind::MKNOD, 24 + name.len())?.u32(directory.fid).string(name);
        let message = message.u32(mode).u32(major).u32(minor).u32(group);
        self.ask(message, kind::MKNOD).await.map(|_| ())
    }

    /// Gives a file one more name.
    pub async fn link(&self, directory: &Handle, file: &Handle, name: &[u8]) -> Result<(), Errno> {
        let message = Message::new(kind::LINK, 12 + name.len())?.u32(directory.fid).u32(file.fid);
        self.ask(message.string(name), kind::LINK).await.map(|_| ())
    }

    /// Removes a name; of a directory when and only when `is_directory`.
    pub async fn unlink(
        &self,
        directory: &Handle,
        name: &[u8],
        is_directory: bool,
    ) -> Result<(), Errno> {
        let flags = if is_directory { abi::fs::AT_REMOVEDIR } else { 0 };
        let message = Message::new(kind::UNLINKAT, 12 + name.len())?.u32(directory.fid);
        self.ask(message.string(name).u32(flags), kind::UNLINKAT).await.map(|_| ())
    }

    /// Moves a name.
    pub async fn rename(
        &self,
        (from, old): (&Handle, &[u8]),
        (to, new): (&Handle, &[u8]),
    ) -> Result<(), Errno> {
        let room = 16 + old.len() + new.len();
        let message = Message::new(kind::RENAMEAT, room)?.u32(from.fid).string(old);
        self.ask(message.u32(to.fid).string(new), kind::RENAMEAT).await.map(|_| ())
    }

    /// The text of a symbolic link.
    pub async fn read_link(&self, handle: &Handle) -> Result<Vec<u8>, Errno> {
        let message = Message::new(kind::READLINK, 4)?.u32(handle.fid);
        let answer = self.ask(message, kind::READLINK).await?;
        let text = Body::of(&answer, kind::READLINK)?.string()?;
        if text.is_empty() || text.len() >= abi::fs::PATH_MAX || text.contains(&0) {
            return Err(Errno::EIO);
        }
        Ok(text.to_vec())
    }

    /// Up to `length` bytes of an open file from an offset on; fewer at its end.
    pub async fn read(
        &self,
        handle: &Handle,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
        while bytes.len() < length {
            let wanted = (length - bytes.len()).min(self.most_bytes());
            let at = offset.saturating_add(bytes.len() as u64);
            let message = Message::new(kind::READ, 16)?.u32(handle.fid).u64(at).u32(wanted as u32);
            let answer = self.ask(message, kind::READ).await?;
            let data = Body::of(&answer, kind::READ)?.data()?;
            if data.len() > wanted {
                return Err(Errno::EIO);
            }
            if data.is_empty() {
                break;
            }
            bytes.extend_from_slice(data);
        }
        Ok(bytes)
    }

    /// Writes all of `bytes` to an open file.
    pub async fn write(&self, handle: &Handle, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let part = rest.get(..self.most_bytes()).unwrap_or(rest);
            let at = offset.saturating_add(done as u64);
            let message = Message::new(kind::WRITE, 16 + part.len())?.u32(handle.fid).u64(at);
            let answer = self.ask(message.data(part), kind::WRITE).await?;
            let count = usize::try_from(Body::of(&answer, kind::WRITE)?.u32()?).unwrap_or(0);
            if count == 0 || count > part.len() {
                return Err(Errno::EIO);
            }
            done += count;
        }
        Ok(())
    }

    /// Makes what was written to an open file durable.
    pub async fn sync(&self, handle: &Handle) -> Result<(), Errno> {
        let message = Message::new(kind::FSYNC, 8)?.u32(handle.fid).u32(0);
        self.ask(message, kind::FSYNC).await.map(|_| ())
    }

    /// All entries of a directory but `.` and `..`. `EIO` when a name could lead elsewhere.
    pub async fn entries(self: &Arc<Client>, directory: &Handle) -> Result<Vec<Entry>, Errno> {
        const READ_DIRECTORY: u32 = 0o200_000;
        let handle = self.open(directory, READ_DIRECTORY).await?;
        let mut entries = Vec::new();
        let (mut offset, mut seen) = (0, 0);
        loop {
            let wanted = self.most_bytes() as u32;
            let message = Message::new(kind::READDIR, 16)?.u32(handle.fid).u64(offset).u32(wanted);
            let answer = self.ask(message, kind::READDIR).await?;
            let mut body = Body::part(Body::of(&answer, kind::READDIR)?.data()?);
            if body.is_empty() {
                return Ok(entries);
            }
            while !body.is_empty() {
                let qid = body.qid()?;
                offset = body.u64()?;
                let kind = body.u8()?;
                let name = body.string()?;
                seen += 1;
                if seen > MOST_ENTRIES {
                    // Perhaps the same ones again and again.
                    return Err(Errno::EIO);
                }
                if name == b"." || name == b".." {
                    continue;
                }
                if !is_plain_name(name) {
                    return Err(Errno::EIO);
                }
                let kind = NodeKind::from_mode(u32::from(kind) << 12).unwrap_or(NodeKind::Regular);
                entries.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                entries.push(Entry { name: Arc::from(name), number: qid.path, kind });
            }
        }
    }

    /// Numbers of the file system behind a handle: block size, blocks, free blocks, files, free files.
    pub async fn statistics(&self, handle: &Handle) -> Result<[u64; 5], Errno> {
        let message = Message::new(kind::STATFS, 4)?.u32(handle.fid);
        let answer = self.ask(message, kind::STATFS).await?;
        let mut body = Body::of(&answer, kind::STATFS)?;
        body.u32()?;
        let block_size = u64::from(body.u32()?);
        let blocks = body.u64()?;
        body.u64()?;
        let available = body.u64()?;
        Ok([block_size, blocks, available, body.u64()?, body.u64()?])
    }
}
