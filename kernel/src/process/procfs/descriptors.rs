//! `/proc/PID/fd` and `/proc/PID/fdinfo`.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use abi::fs::OpenFlags;
use fs::inode::LinkTarget;
use fs::pseudo::{Directory, Entry, Link, Listed};
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
    fn open_file(&self, descriptor: i32) -> Result<(Arc<OpenFile>, bool), Errno> {
        let files = self.thread()?.files();
        let file = files.get(descriptor).map_err(|_| Errno::ENOENT)?;
        let closes = files.close_on_exec(descriptor).unwrap_or(false);
        Ok((file, closes))
    }
}

impl Directory for Descriptors {
    fn lookup(&self, name: &[u8]) -> Result<Entry, Errno> {
        let descriptor = parse_number(name).ok_or(Errno::ENOENT)?;
        let thread = self.subject.thread().map_err(|_| Errno::ENOENT)?;
        let (file, _) = self.subject.open_file(descriptor)?;
        let number = number::of_descriptor(thread.tid().0, descriptor, self.is_information);
        let subject = self.subject.clone();
        let entry = if self.is_information {
            Entry::file(number, Arc::new(move || information(&subject, descriptor)))
        } else {
            let flags = file.flags();
            let mode = 0o100
                | if flags.reads() { 0o400 } else { 0 }
                | if flags.writes() { 0o200 } else { 0 };
            Entry::link(number, Arc::new(DescriptorLink { subject, descriptor })).with_mode(mode)
        };
        let owner = thread.credentials();
        Ok(entry.owned_by(owner.user.effective, owner.group.effective))
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
    fn text(&self, _: &Identity) -> Result<Vec<u8>, Errno> {
        let (file, _) = self.subject.open_file(self.descriptor)?;
        let root = self.subject.thread()?.directory().root();
        Ok(fs::mount::display_path(file.location(), &root))
    }

    fn follow(&self, _: &Identity) -> Result<LinkTarget, Errno> {
        let (file, _) = self.subject.open_file(self.descriptor)?;
        Ok(LinkTarget::Place(file.location().clone()))
    }
}

fn information(subject: &Subject, descriptor: i32) -> Result<Vec<u8>, Errno> {
    let (file, closes) = subject.open_file(descriptor)?;
    let mut flags = file.flags();
    flags.set(OpenFlags::CLOEXEC, closes);
    let location = file.location();
    let mut text = Text::default();
    put!(text, "pos:\t{}\nflags:\t0{:o}\n", file.position(), flags.bits());
    put!(text, "mnt_id:\t{}\nino:\t{}\n", location.mount.id(), location.inode.id().number);
    Ok(text.0)
}
