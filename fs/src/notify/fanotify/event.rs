//! One event: what it tells, which events become one, and how it is laid out for a reader.

use super::super::Actor;
use super::group::Question;
use crate::metadata::InodeId;
use crate::mount::Location;
use abi::fs::fanotify::{FileEvents, InitFlags, METADATA, METADATA_VERSION, NO_DESCRIPTOR, record};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;

/// Type of a handle that has only the file itself.
pub const HANDLE_TYPE: i32 = 1;
/// Bytes of a handle.
pub const HANDLE_SIZE: usize = 12;

/// The handle of a file, as `name_to_handle_at` gives it: generation, number.
pub fn handle_of(id: InodeId) -> [u8; HANDLE_SIZE] {
    let mut bytes = [0; HANDLE_SIZE];
    let (_, number) = bytes.split_at_mut(4);
    number.copy_from_slice(&id.number.to_ne_bytes());
    bytes
}

/// Appends the handle of a file as `/proc/PID/fdinfo` shows it.
pub fn describe_handle(text: &mut String, id: InodeId) {
    // Writing to a string has no errors.
    let _ = write!(text, "fhandle-bytes:{HANDLE_SIZE:x} fhandle-type:{HANDLE_TYPE:x} f_handle:");
    for byte in handle_of(id) {
        let _ = write!(text, "{byte:02x}");
    }
}

/// The identity of the file system of a device number, as `statfs` gives it.
pub fn file_system_id(device: u64) -> [i32; 2] {
    [(device & 0x7fff_ffff) as i32, (device >> 32) as i32]
}

/// A directory and a name in it.
pub type Named = (InodeId, Option<Arc<[u8]>>);

/// Files that are told by their handles.
#[derive(Clone, PartialEq, Eq)]
pub struct Inodes {
    /// The directory, with the name if names are told.
    pub directory: Option<Named>,
    /// Directory and name after a move.
    pub moved_to: Option<Named>,
    /// The file, or the directory if that is all that is told.
    pub object: Option<InodeId>,
}

/// What an event is about.
#[derive(Clone)]
pub enum About {
    /// Lost events.
    Nothing,
    /// A file that its reader gets a descriptor for.
    Path(Location),
    /// Files that are told by their handles.
    Inodes(Inodes),
}

/// An event.
#[derive(Clone)]
pub struct Event {
    /// What happened, perhaps several things.
    pub events: FileEvents,
    /// Who did it.
    pub actor: Actor,
    /// To what.
    pub about: About,
    /// Who waits for an answer.
    pub question: Option<Arc<Question>>,
}

impl Event {
    /// Whether `self`, which waits to be read, can tell of `new` as well.
    pub(super) fn takes(&self, new: &Event) -> bool {
        let kinds = FileEvents::ONDIR | FileEvents::RENAME;
        if self.question.is_some()
            || new.question.is_some()
            || self.actor != new.actor
            || self.events & kinds != new.events & kinds
        {
            return false;
        }
        match (&self.about, &new.about) {
            (About::Path(old), About::Path(new)) => old.is_same(new),
            (About::Inodes(old), About::Inodes(new)) => old == new,
            _ => false,
        }
    }

    /// The event as bytes: `struct fanotify_event_metadata` with these descriptors, and the records after it. `process`
    /// is the number that the reader sees.
    pub fn encode(&self, flags: InitFlags, descriptor: i32, pidfd: i32, process: i32) -> Vec<u8> {
        let mut bytes = Vec::from([0; METADATA]);
        if let About::Inodes(inodes) = &self.about {
            self.put_inodes(&mut bytes, inodes, flags);
        }
        if flags.contains(InitFlags::REPORT_PIDFD) {
            put_head(&mut bytes, record::PIDFD, 8);
            bytes.extend_from_slice(&pidfd.to_ne_bytes());
        }
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let mut put = |at: usize, part: &[u8]| {
            if let Some(place) = bytes.get_mut(at..at + part.len()) {
                place.copy_from_slice(part);
            }
        };
        put(0, &length.to_ne_bytes());
        put(4, &[METADATA_VERSION]);
        put(6, &(METADATA as u16).to_ne_bytes());
        put(8, &u64::from((self.events & FileEvents::TOLD).bits()).to_ne_bytes());
        put(16, &descriptor.to_ne_bytes());
        put(20, &process.to_ne_bytes());
        bytes
    }

    /// Bytes that the event takes.
    pub fn size(&self, flags: InitFlags) -> usize {
        self.encode(flags, NO_DESCRIPTOR, NO_DESCRIPTOR, 0).len()
    }

    fn put_inodes(&self, bytes: &mut Vec<u8>, inodes: &Inodes, flags: InitFlags) {
        let Inodes { directory, moved_to, object } = inodes;
        if let Some((id, name)) = directory {
            let kind = if self.events.contains(FileEvents::RENAME) {
                record::OLD_NAME
            } else if name.is_some() {
                record::DIRECTORY_AND_NAME
            } else {
                record::DIRECTORY
            };
            put_file(bytes, kind, *id, name.as_deref());
        }
        if let Some((id, name)) = moved_to {
            put_file(bytes, record::NEW_NAME, *id, name.as_deref());
        }
        let Some(object) = object else { return };
        let is_directory = self.events.contains(FileEvents::ONDIR);
        let is_only = flags & InitFlags::FILE_IDS == InitFlags::REPORT_FID;
        if is_only || directory.is_some() || moved_to.is_some() {
            put_file(bytes, record::FILE, *object, None);
        } else if flags.contains(InitFlags::REPORT_NAME) && is_directory {
            put_file(bytes, record::DIRECTORY_AND_NAME, *object, Some(b"."));
        } else if is_directory || self.events.intersects(FileEvents::OF_ENTRIES) {
            put_file(bytes, record::DIRECTORY, *object, None);
        } else {
            put_file(bytes, record::FILE, *object, None);
        }
    }
}

fn put_head(bytes: &mut Vec<u8>, kind: u8, length: usize) {
    bytes.extend_from_slice(&[kind, 0]);
    bytes.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
}

/// `struct fanotify_event_info_fid`: head, file system, handle, name; filled up to a multiple of 4.
fn put_file(bytes: &mut Vec<u8>, kind: u8, id: InodeId, name: Option<&[u8]>) {
    const BEFORE_NAME: usize = 4 + 8 + 8 + HANDLE_SIZE;
    let name_size = name.map_or(0, |name| name.len() + 1);
    let length = (BEFORE_NAME + name_size).next_multiple_of(4);
    let end = bytes.len() + length;
    put_head(bytes, kind, length);
    for word in file_system_id(id.device) {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    bytes.extend_from_slice(&(HANDLE_SIZE as u32).to_ne_bytes());
    bytes.extend_from_slice(&HANDLE_TYPE.to_ne_bytes());
    bytes.extend_from_slice(&handle_of(id));
    bytes.extend_from_slice(name.unwrap_or_default());
    bytes.resize(end, 0);
}
