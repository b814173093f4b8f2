//! `/proc/PID/ns`: links to the namespaces of a thread.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use fs::inode::LinkTarget;
use fs::pseudo::{Directory, Entry, Link, Listed};
use fs::{Identity, NodeKind};

use super::process::Subject;
use crate::process::namespace::{Kind, LINKS, Namespace};

/// The directory. Inode numbers of the links follow its own.
pub(super) struct Links {
    pub(super) subject: Subject,
    pub(super) first_number: u64,
}

/// Links lie this far above the other files of a process.
const OFFSET: u64 = 0x1000;

impl Directory for Links {
    fn lookup(&self, name: &[u8]) -> Result<Entry, Errno> {
        let found = (1..).zip(LINKS).find(|(_, (known, _))| known.as_bytes() == name);
        let (index, (_, kind)) = found.ok_or(Errno::ENOENT)?;
        self.subject.process().map_err(|_| Errno::ENOENT)?;
        let link = NamespaceLink { subject: self.subject.clone(), kind };
        let number = self.first_number + OFFSET + index;
        Ok(self.subject.own(Entry::link(number, Arc::new(link))))
    }

    fn list(&self, after: u64, emit: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<(), Errno> {
        self.subject.process().map_err(|_| Errno::ENOENT)?;
        for (index, (name, _)) in (1..).zip(LINKS) {
            let number = self.first_number + OFFSET + index;
            let listed =
                Listed { name: name.as_bytes(), number, kind: NodeKind::Symlink, cursor: index };
            if index > after && !emit(listed) {
                break;
            }
        }
        Ok(())
    }
}

/// A link that leads straight to a namespace.
struct NamespaceLink {
    subject: Subject,
    kind: Kind,
}

impl NamespaceLink {
    fn namespace(&self, identity: &Identity) -> Result<Namespace, Errno> {
        let gone = |error| if error == Errno::ESRCH { Errno::ENOENT } else { error };
        let inside = self.subject.look_into(identity).map_err(gone)?;
        Ok(inside.namespaces.get(self.kind))
    }
}

impl Link for NamespaceLink {
    fn text(&self, identity: &Identity) -> Result<Vec<u8>, Errno> {
        let namespace = self.namespace(identity)?;
        Ok(format!("{}:[{}]", self.kind.name(), namespace.number()).into_bytes())
    }

    fn follow(&self, identity: &Identity) -> Result<LinkTarget, Errno> {
        Ok(LinkTarget::Place(self.namespace(identity)?.location()))
    }
}
