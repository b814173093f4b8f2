//! Messages of 9P2000.L: how they are put together and taken apart.
//!
//! ```text
//! size[4] type[1] tag[2] body…        little-endian; strings are length[2] and bytes
//! ```
//!
//! What comes in was written by somebody else: every step checks what is left, and what does not fit is
//! `EIO`.

use abi::Errno;
use alloc::vec::Vec;

/// Bytes before the body.
pub const HEADER: usize = 7;

/// Types of messages; the answer to one is the next number.
pub mod kind {
    /// Answer to anything: an error number.
    pub const RLERROR: u8 = 7;
    /// Numbers of the file system.
    pub const STATFS: u8 = 8;
    /// Opens a handle.
    pub const OPEN: u8 = 12;
    /// Makes and opens a file.
    pub const CREATE: u8 = 14;
    /// Makes a symbolic link.
    pub const SYMLINK: u8 = 16;
    /// Makes a device, pipe or socket.
    pub const MKNOD: u8 = 18;
    /// Reads a symbolic link.
    pub const READLINK: u8 = 22;
    /// Attributes.
    pub const GETATTR: u8 = 24;
    /// Changes attributes.
    pub const SETATTR: u8 = 26;
    /// Entries of a directory.
    pub const READDIR: u8 = 40;
    /// Makes what was written durable.
    pub const FSYNC: u8 = 50;
    /// One more name for a file.
    pub const LINK: u8 = 70;
    /// Makes a directory.
    pub const MKDIR: u8 = 72;
    /// Moves a name.
    pub const RENAMEAT: u8 = 74;
    /// Removes a name.
    pub const UNLINKAT: u8 = 76;
    /// Agrees on version and size.
    pub const VERSION: u8 = 100;
    /// The root.
    pub const ATTACH: u8 = 104;
    /// From one handle along names to another.
    pub const WALK: u8 = 110;
    /// Reads.
    pub const READ: u8 = 116;
    /// Writes.
    pub const WRITE: u8 = 118;
    /// Gives a handle up.
    pub const CLUNK: u8 = 120;
}

/// A message that is put together.
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// A message of a type, with room for a body of so many bytes.
    pub fn new(kind: u8, room: usize) -> Result<Message, Errno> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(HEADER + room).map_err(|_| Errno::ENOMEM)?;
        bytes.extend_from_slice(&[0, 0, 0, 0, kind, 0, 0]);
        Ok(Message { bytes })
    }

    /// Two bytes.
    pub fn u16(mut self, value: u16) -> Message {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Four bytes.
    pub fn u32(mut self, value: u32) -> Message {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Eight bytes.
    pub fn u64(mut self, value: u64) -> Message {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A string; one that is too long for its length field is cut, which no name of a walk is.
    pub fn string(self, text: &[u8]) -> Message {
        let text = text.get(..usize::from(u16::MAX)).unwrap_or(text);
        let mut message = self.u16(text.len() as u16);
        message.bytes.extend_from_slice(text);
        message
    }

    /// Bytes behind a count of four bytes.
    pub fn data(self, bytes: &[u8]) -> Message {
        let mut message = self.u32(bytes.len() as u32);
        message.bytes.extend_from_slice(bytes);
        message
    }

    /// Bytes without a count.
    #[cfg(test)]
    pub fn data_free(mut self, bytes: &[u8]) -> Message {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// The message, with its size in front.
    pub fn finish(mut self) -> Vec<u8> {
        let size = (self.bytes.len() as u32).to_le_bytes();
        if let Some(place) = self.bytes.get_mut(..4) {
            place.copy_from_slice(&size);
        }
        self.bytes
    }
}

/// What is left of an answer.
pub struct Body<'a> {
    rest: &'a [u8],
}

/// What names a file on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qid {
    /// Unique among all files of the server.
    pub path: u64,
}

impl<'a> Body<'a> {
    /// The body of the answer to a message of type `kind`. The error that the server tells; `EIO` when the
    /// answer is that to something else or its size is not the one it says.
    pub fn of(answer: &'a [u8], kind: u8) -> Result<Body<'a>, Errno> {
        let mut body = Body { rest: answer };
        let size = body.u32()?;
        let answered = body.u8()?;
        body.u16()?;
        if usize::try_from(size) != Ok(answer.len()) {
            return Err(Errno::EIO);
        }
        if answered == kind::RLERROR {
            // An error number outside Linux's, or one that means something inside this kernel.
            let errno = Errno::from_number(body.u32()?).filter(|errno| errno.number() < 512);
            return Err(errno.unwrap_or(Errno::EIO));
        }
        if answered == kind + 1 { Ok(body) } else { Err(Errno::EIO) }
    }

    /// A part of an answer.
    pub fn part(bytes: &'a [u8]) -> Body<'a> {
        Body { rest: bytes }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next so many bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Errno> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Errno::EIO)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Errno> {
        self.bytes(N)?.try_into().map_err(|_| Errno::EIO)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, Errno> {
        self.array().map(|[byte]| byte)
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16, Errno> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, Errno> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, Errno> {
        self.array().map(u64::from_le_bytes)
    }

    /// A string.
    pub fn string(&mut self) -> Result<&'a [u8], Errno> {
        let length = self.u16()?;
        self.bytes(usize::from(length))
    }

    /// Bytes behind a count of four bytes.
    pub fn data(&mut self) -> Result<&'a [u8], Errno> {
        let length = self.u32()?;
        self.bytes(usize::try_from(length).map_err(|_| Errno::EIO)?)
    }

    /// What names a file.
    pub fn qid(&mut self) -> Result<Qid, Errno> {
        self.u8()?;
        self.u32()?;
        Ok(Qid { path: self.u64()? })
    }
}
