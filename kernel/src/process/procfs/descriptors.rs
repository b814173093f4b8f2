//! `/proc/PID/fd` and `/proc/PID/fdinfo`.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use abi::fs::OpenFlags;
use fs::inode::LinkTarget;
use fs::pseudo::{Content, Directory, Entry, Link, Listed};
use fs::{Identity, NodeKind, OpenFile};

use super::directory::parse_number;
use super::process::Subject;
use super::{Text, number, put};
use crate::process::thread;

/// The directory of all descriptors of a process.
pub(super) struct Descriptors {
    pub(super) subject: Subject,
    /// Texts about them, not links to them.
    pub(super) is_information: bool,
}

/// A link to an open file.
struct DescriptorLink {
    subject: Subject,
    descriptor: i32,
}

impl Subject {
    /// An open file, and whether it is closed by `execve`, for those who may look into the subject.
    fn open_file(
        &self,
        descriptor: i32,
        identity: &Identity,
    ) -> Result<(Arc<OpenFile>, bool), Errno> {
        let files = self.look_into(identity)?.files;
        let file = files.get(descriptor).map_err(|_| Errno::ENOENT)?;
        let closes = files.close_on_exec(descriptor).unwrap_or(false);
        Ok((file, closes))
    }
}

impl Directory for Descriptors {
    fn lookup(&self, name: &[u8]) -> Result<Entry, Errno> {
        let descriptor = parse_number(name).ok_or(Errno::ENOENT)?;
        let thread = self.subject.thread().map_err(|_| Errno::ENOENT)?;
        let file = thread.files().get(descriptor).map_err(|_| Errno::ENOENT)?;
        let number = number::of_descriptor(thread.tid().0, descriptor, self.is_information);
        let subject = self.subject.clone();
        let entry = if self.is_information {
            Entry::file(number, Arc::new(Information { subject, descriptor })).with_mode(0o400)
        } else {
            let flags = file.flags();
            let mode = 0o100
                | if flags.reads() { 0o400 } else { 0 }
                | if flags.writes() { 0o200 } else { 0 };
            Entry::link(number, Arc::new(DescriptorLink { subject, descriptor })).with_mode(mode)
        };
        Ok(self.subject.own(entry).open_to(thread.process.pid.0))
    }

    fn list(&self, after: u64, emit: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<(), Errno> {
        let thread: Arc<thread::Thread> = self.subject.thread().map_err(|_| Errno::ENOENT)?;
        let kind = if self.is_information { NodeKind::Regular } else { NodeKind::Symlink };
        for (descriptor, _, _) in thread.files().list() {
            let cursor = u64::from(descriptor.unsigned_abs()) + 1;
            let name = descriptor.to_string();
            let number = number::of_descriptor(thread.tid().0, descriptor, self.is_information);
            let listed = Listed { name: name.as_bytes(), number, kind, cursor };
            if cursor > after && !emit(listed) {
                break;
            }
        }
        Ok(())
    }
}

impl Link for DescriptorLink {
    fn text(&self, identity: &Identity) -> Result<Vec<u8>, Errno> {
        let (file, _) = self.subject.open_file(self.descriptor, identity)?;
        let root = self.subject.thread()?.directory().root();
        Ok(fs::mount::display_path(file.location(), &root))
    }

    fn follow(&self, identity: &Identity) -> Result<LinkTarget, Errno> {
        let (file, _) = self.subject.open_file(self.descriptor, identity)?;
        Ok(LinkTarget::Place(file.location().clone()))
    }
}

/// What `fdinfo` says of one descriptor.
struct Information {
    subject: Subject,
    descriptor: i32,
}

impl Content for Information {
    fn admit(&self, opener: &Identity) -> Result<(), Errno> {
        self.subject.look_into(opener).map(|_| ())
    }

    fn generate(&self, opener: &Identity) -> Result<Vec<u8>, Errno> {
        let (file, closes) = self.subject.open_file(self.descriptor, opener)?;
        Ok(information(&file, closes))
    }
}

fn information(file: &OpenFile, closes: bool) -> Vec<u8> {
    let mut flags = file.flags();
    flags.set(OpenFlags::CLOEXEC, closes);
    let location = file.location();
    let mut text = Text::default();
    put!(text, "pos:\t{}\nflags:\t0{:o}\n", file.position(), flags.bits());
    put!(text, "mnt_id:\t{}\nino:\t{}\n", location.mount.id(), location.inode.id().number);
    text.0.extend_from_slice(file.file().information().as_bytes());
    text.0
}
