//! Opening by path, with the checks of Linux in the order of Linux.

use crate::device;
use crate::file::{DirectFile, DirectoryFile, File, OpenFile, PathFile, RegularFile, WriteAccess};
use crate::identity::{Caller, Identity};
use crate::inode::NewContent;
use crate::metadata::{NodeKind, Wanted};
use crate::mount::Location;
use crate::notify::{self, fanotify::Subject};
use crate::protected;
use crate::tree::{self, check, inherit};
use crate::walk::{Last, Lookup, Resolve, Walker, resolve_restricted};
use abi::Errno;
use abi::fs::OpenFlags;
use abi::fs::mount::{MS_NODEV, MS_NOEXEC};
use abi::fs::notify::Events;
use alloc::sync::Arc;

/// How to open.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Flags, as `Request::new` left them.
    pub flags: OpenFlags,
    /// Permission bits of a file that is created, the caller's mask already applied.
    pub mode: u32,
    /// Restrictions on the walk.
    pub resolve: Resolve,
}

impl Request {
    /// Checks flags as `open` does: unknown ones are ignored, `O_PATH` leaves few of the others,
    /// `O_TMPFILE` wants writing, `O_CREAT` does not make directories.
    pub fn new(flags: u32, mode: u32, umask: u32) -> Result<Request, Errno> {
        let mut flags = OpenFlags::from_bits_truncate(flags);
        if flags.contains(OpenFlags::SYNC_BIT) {
            flags |= OpenFlags::DSYNC;
        }
        if flags.contains(OpenFlags::DIRECTORY | OpenFlags::CREAT) {
            return Err(Errno::EINVAL);
        }
        if flags.contains(OpenFlags::PATH) {
            flags &=
                OpenFlags::PATH | OpenFlags::DIRECTORY | OpenFlags::NOFOLLOW | OpenFlags::CLOEXEC;
        }
        if flags.contains(OpenFlags::TMPFILE_BIT)
            && (!flags.contains(OpenFlags::DIRECTORY) || !flags.writes())
        {
            return Err(Errno::EINVAL);
        }
        Ok(Request { flags, mode: mode & 0o7777 & !(umask & 0o777), resolve: Resolve::default() })
    }

    /// What the flags ask of the file's permissions.
    pub fn wanted(&self) -> Wanted {
        if self.flags.contains(OpenFlags::PATH) {
            return Wanted::NOTHING;
        }
        let by_mode = match self.flags.bits() & OpenFlags::ACCESS_MODE {
            0 => Wanted::READ,
            1 => Wanted::WRITE,
            _ => Wanted::READ.and(Wanted::WRITE),
        };
        if self.flags.contains(OpenFlags::TRUNC) { by_mode.and(Wanted::WRITE) } else { by_mode }
    }
}

/// Opens a path. The result of opening a FIFO is ready for use when `File::finish_open` says so.
pub fn open(
    lookup: Lookup<'_>,
    path: &[u8],
    request: Request,
    caller: &dyn Caller,
) -> Result<Arc<OpenFile>, Errno> {
    let flags = request.flags;
    if flags.contains(OpenFlags::TMPFILE_BIT) {
        return open_nameless(lookup, path, request);
    }
    let creates = flags.contains(OpenFlags::CREAT);
    let mut walker = Walker::restricted(lookup, path, request.resolve)?;
    let (location, is_new) = loop {
        let last = walker.to_last()?;
        if last != Last::Name {
            // A link may lead straight to a file (`/dev/stdout`); all else without a name is a directory.
            if creates && walker.at().inode.kind() == NodeKind::Directory {
                let is_new = flags.contains(OpenFlags::EXCL);
                return Err(if is_new { Errno::EEXIST } else { Errno::EISDIR });
            }
            if last == Last::DotDot {
                walker.go_up()?;
            }
            break (walker.into_location(), false);
        }
        if creates && walker.has_trailing_slash() {
            return Err(Errno::EISDIR);
        }
        let found = match walker.look_up_last() {
            Ok(found) => found,
            Err(Errno::ENOENT) if creates => match create(lookup.identity, &walker, request) {
                // Somebody else was faster: look again.
                Err(Errno::EEXIST) if !flags.contains(OpenFlags::EXCL) => continue,
                result => break (result?, true),
            },
            Err(error) => return Err(error),
        };
        if flags.contains(OpenFlags::CREAT | OpenFlags::EXCL) {
            return Err(Errno::EEXIST);
        }
        let is_link = found.inode.kind() == NodeKind::Symlink;
        if is_link && (!flags.contains(OpenFlags::NOFOLLOW) || walker.has_trailing_slash()) {
            walker.follow(&found)?;
            continue;
        }
        if walker.has_trailing_slash() && found.inode.kind() != NodeKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let kind = found.inode.kind();
        if creates && kind != NodeKind::Directory {
            let (directory, file) = (walker.at().inode.permissions(), found.inode.permissions());
            protected::check_existing(&directory, kind, &file, lookup.identity)?;
        }
        break (found, false);
    };
    if creates && location.inode.kind() == NodeKind::Directory {
        return Err(Errno::EISDIR);
    }
    if flags.contains(OpenFlags::DIRECTORY) && location.inode.kind() != NodeKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    open_location(location, request, lookup.identity, caller, is_new)
}

fn create(identity: &Identity, walker: &Walker<'_>, request: Request) -> Result<Location, Errno> {
    let directory = walker.at();
    directory.mount.check_writable()?;
    check(&directory.inode, identity, Wanted::WRITE.and(Wanted::EXECUTE))?;
    let new = inherit(&directory.inode, identity, NewContent::Regular, request.mode);
    let inode = directory.inode.create(walker.last_name(), &new)?;
    notify::entry(&directory.inode, walker.last_name(), Subject::of(&inode), Events::CREATE);
    Ok(Location { mount: directory.mount.clone(), inode })
}

fn open_nameless(
    lookup: Lookup<'_>,
    path: &[u8],
    request: Request,
) -> Result<Arc<OpenFile>, Errno> {
    let follow = !request.flags.contains(OpenFlags::NOFOLLOW);
    let directory = resolve_restricted(lookup, path, follow, request.resolve)?;
    if directory.inode.kind() != NodeKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    directory.mount.check_writable()?;
    check(&directory.inode, lookup.identity, Wanted::WRITE.and(Wanted::EXECUTE))?;
    let new = inherit(&directory.inode, lookup.identity, NewContent::Regular, request.mode);
    let is_linkable = !request.flags.contains(OpenFlags::EXCL);
    let inode = directory.inode.create_nameless(&new, is_linkable)?;
    let location = Location { mount: directory.mount, inode };
    let file: Arc<dyn File> = match request.flags.contains(OpenFlags::DIRECT) {
        true => Arc::new(DirectFile::new(location.inode.clone())?),
        false => Arc::new(RegularFile::new(location.inode.clone())),
    };
    OpenFile::new(file, location, request.flags)
}

/// Opens what has been found. `is_new`: it has just been created for this, so its permissions do not
/// matter.
pub fn open_location(
    location: Location,
    request: Request,
    identity: &Identity,
    caller: &dyn Caller,
    is_new: bool,
) -> Result<Arc<OpenFile>, Errno> {
    let flags = request.flags;
    if flags.contains(OpenFlags::PATH) {
        return OpenFile::new(Arc::new(PathFile), location, flags);
    }
    let kind = location.inode.kind();
    let wanted = request.wanted();
    match kind {
        NodeKind::Symlink => return Err(Errno::ELOOP),
        NodeKind::Directory if wanted.includes(Wanted::WRITE) => return Err(Errno::EISDIR),
        NodeKind::CharacterDevice | NodeKind::BlockDevice
            if location.mount.flags() & MS_NODEV != 0 =>
        {
            return Err(Errno::EACCES);
        }
        _ => {}
    }
    if !is_new {
        check(&location.inode, identity, wanted)?;
        if kind == NodeKind::Regular && wanted.includes(Wanted::WRITE) {
            location.mount.check_writable()?;
        }
        if flags.contains(OpenFlags::NOATIME) && !identity.owns(location.inode.permissions().user) {
            return Err(Errno::EPERM);
        }
    }
    let file: Arc<dyn File> = match (location.inode.open(flags, identity)?, kind) {
        (Some(file), _) => file,
        (None, NodeKind::Regular) if flags.contains(OpenFlags::DIRECT) => {
            Arc::new(DirectFile::new(location.inode.clone())?)
        }
        (None, NodeKind::Regular) => Arc::new(RegularFile::new(location.inode.clone())),
        (None, NodeKind::Directory) => Arc::new(DirectoryFile),
        (None, NodeKind::CharacterDevice | NodeKind::BlockDevice) => {
            let number = location.inode.metadata().represented_device;
            device::open(kind, number, flags, caller)?
        }
        (None, _) => return Err(Errno::ENXIO),
    };
    let inode = location.inode.clone();
    let takes_direct = file.takes_direct();
    let opened = OpenFile::new(file, location, flags)?;
    if flags.contains(OpenFlags::DIRECT) && !takes_direct {
        return Err(Errno::EINVAL);
    }
    if flags.contains(OpenFlags::TRUNC) && kind == NodeKind::Regular && !is_new {
        let _access = WriteAccess::to(&inode)?;
        tree::resize(&inode, identity, 0)?;
    }
    opened.tell(Events::OPEN);
    Ok(opened)
}

/// Checks that a location can be executed: `EACCES` unless it is a regular file on a mount that
/// permits it and the identity has the right.
pub fn check_executable(location: &Location, identity: &Identity) -> Result<(), Errno> {
    if location.inode.kind() != NodeKind::Regular || location.mount.flags() & MS_NOEXEC != 0 {
        return Err(Errno::EACCES);
    }
    check(&location.inode, identity, Wanted::EXECUTE)
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
