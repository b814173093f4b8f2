//! Changing the tree by path: make, link, remove, rename; and attributes.
//!
//! Each function checks what Linux checks, in the same order, and then asks the directory's inode.
//! What was looked up may be gone when the inode acts; the inode then says `ESTALE` and the function
//! starts again.

use crate::file::WriteAccess;
use crate::identity::Identity;
use crate::inode::{AttributeChange, Inode, NewContent, NewNode};
use crate::metadata::{NodeKind, Permissions, Timestamp, Wanted, permit};
use crate::mount::{Location, is_below};
use crate::notify::{self, fanotify::Subject};
use crate::walk::{Last, Lookup, Walker};
use abi::Errno;
use abi::capability::Capability;
use abi::fs::notify::Events;
use abi::fs::{NAME_MAX, RenameFlags, S_ISGID, S_ISUID, S_ISVTX};
use alloc::sync::Arc;

/// How often a change is tried again when the tree changes under it.
const ATTEMPTS: usize = 1000;
/// A character device that everybody may make: it stands for a name that is gone.
const WHITEOUT_DEVICE: u64 = 0;

/// Checks what the identity may do with an inode.
pub fn check(inode: &Arc<dyn Inode>, identity: &Identity, wanted: Wanted) -> Result<(), Errno> {
    permit(inode.kind(), &inode.permissions(), identity, wanted)
        .or_else(|error| if inode.is_of_caller(identity) { Ok(()) } else { Err(error) })
}

const CHANGE: Wanted = Wanted::WRITE.and(Wanted::EXECUTE);

/// Owner, group and mode of what `identity` makes in `directory`: a set-group-id directory hands its
/// group down, and to directories the bit as well.
pub fn inherit<'a>(
    directory: &Arc<dyn Inode>,
    identity: &Identity,
    content: NewContent<'a>,
    mode: u32,
) -> NewNode<'a> {
    let parent = directory.permissions();
    let mut mode = mode & 0o7777;
    let mut group = identity.group;
    if parent.mode & S_ISGID != 0 {
        group = parent.group;
        if content.kind() == NodeKind::Directory {
            mode |= S_ISGID;
        } else if mode & (S_ISGID | 0o010) == S_ISGID | 0o010 && !identity.keeps_set_group(group) {
            mode &= !S_ISGID;
        }
    }
    NewNode { content, mode, user: identity.user, group }
}

/// Makes an inode that is not a regular file opened at once: `mkdir`, `mknod`, `symlink`. The mode
/// already lacks the bits of the caller's mask. `EPERM` for a device without privilege.
pub fn create(
    lookup: Lookup<'_>,
    path: &[u8],
    content: NewContent<'_>,
    mode: u32,
) -> Result<Location, Errno> {
    let mut walker = Walker::new(lookup, path)?;
    let is_directory = content.kind() == NodeKind::Directory;
    check_new_name(&mut walker, is_directory)?;
    let directory = walker.at().clone();
    check(&directory.inode, lookup.identity, CHANGE)?;
    let is_device = match content {
        NewContent::CharacterDevice(number) => number != WHITEOUT_DEVICE,
        NewContent::BlockDevice(_) => true,
        _ => false,
    };
    if is_device && !lookup.identity.is_capable(Capability::MakeNode) {
        return Err(Errno::EPERM);
    }
    let new = inherit(&directory.inode, lookup.identity, content, mode);
    let inode = directory.inode.create(walker.last_name(), &new)?;
    notify::entry(&directory.inode, walker.last_name(), Subject::of(&inode), Events::CREATE);
    Ok(Location { mount: directory.mount, inode })
}

/// Takes the walker to the directory in which a new name shall be made: `EEXIST` when the name is
/// there, `ENOENT` when slashes follow it and it shall not be a directory, `EROFS`.
fn check_new_name(walker: &mut Walker<'_>, is_directory: bool) -> Result<(), Errno> {
    if walker.to_last()? != Last::Name {
        return Err(Errno::EEXIST);
    }
    match walker.look_up_last() {
        Ok(_) => return Err(Errno::EEXIST),
        Err(Errno::ENOENT) => {}
        Err(error) => return Err(error),
    }
    if walker.has_trailing_slash() && !is_directory {
        return Err(Errno::ENOENT);
    }
    walker.at().mount.check_writable()
}

/// Gives an existing inode one more name.
pub fn link(lookup: Lookup<'_>, target: &Location, path: &[u8]) -> Result<(), Errno> {
    let mut walker = Walker::new(lookup, path)?;
    check_new_name(&mut walker, false)?;
    let directory = walker.at();
    if directory.mount.id() != target.mount.id() {
        return Err(Errno::EXDEV);
    }
    check_link_source(target, lookup.identity)?;
    check(&directory.inode, lookup.identity, CHANGE)?;
    if target.inode.kind() == NodeKind::Directory {
        return Err(Errno::EPERM);
    }
    directory.inode.link(walker.last_name(), &target.inode)?;
    notify::event_itself(&target.inode, Events::ATTRIB);
    let child = Subject::of(&target.inode);
    notify::entry(&directory.inode, walker.last_name(), child, Events::CREATE);
    Ok(())
}

/// `protected_hardlinks`: who does not own a file may link it only when it is a regular one without
/// set-id bits that he may read and write. Else a link keeps a vulnerable program, or a file that is
/// about to be removed, where its owner does not find it.
fn check_link_source(target: &Location, identity: &Identity) -> Result<(), Errno> {
    let permissions = target.inode.permissions();
    if identity.owns(permissions.user) {
        return Ok(());
    }
    let executes_as_group = S_ISGID | 0o010;
    let is_plain = target.inode.kind() == NodeKind::Regular
        && permissions.mode & S_ISUID == 0
        && permissions.mode & executes_as_group != executes_as_group;
    let access = Wanted::READ.and(Wanted::WRITE);
    if is_plain && permit(target.inode.kind(), &permissions, identity, access).is_ok() {
        return Ok(());
    }
    Err(Errno::EPERM)
}

/// The sticky bit: in such a directory only the owner of the entry or of the directory removes it.
fn check_sticky(
    directory: &Permissions,
    entry: &Arc<dyn Inode>,
    identity: &Identity,
) -> Result<(), Errno> {
    if directory.mode & S_ISVTX == 0 || identity.owns(directory.user) {
        return Ok(());
    }
    if identity.owns(entry.permissions().user) { Ok(()) } else { Err(Errno::EPERM) }
}

/// Linux's `may_delete`: permission, sticky bit, and whether the entry is a directory when and only
/// when one is wanted.
fn may_remove(
    directory: &Location,
    entry: &Location,
    identity: &Identity,
    wants_directory: bool,
) -> Result<(), Errno> {
    let permissions = directory.inode.permissions();
    permit(NodeKind::Directory, &permissions, identity, CHANGE)?;
    check_sticky(&permissions, &entry.inode, identity)?;
    match (wants_directory, entry.inode.kind() == NodeKind::Directory) {
        (true, false) => Err(Errno::ENOTDIR),
        (false, true) => Err(Errno::EISDIR),
        (true, true) if entry.is_mount_root() => Err(Errno::EBUSY),
        _ => Ok(()),
    }
}

/// Looks a name up without going down into what is mounted there.
fn entry_of(directory: &Location, name: &[u8]) -> Result<Location, Errno> {
    if name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    let inode = directory.inode.lookup(name)?;
    Ok(Location { mount: directory.mount.clone(), inode })
}

fn again_when_stale(mut attempt: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    for _ in 0..ATTEMPTS {
        match attempt() {
            Err(Errno::ESTALE) => {}
            result => return result,
        }
    }
    Err(Errno::EBUSY)
}

/// Removes a name that is not a directory's.
pub fn unlink(lookup: Lookup<'_>, path: &[u8]) -> Result<(), Errno> {
    let mut walker = Walker::new(lookup, path)?;
    if walker.to_last()? != Last::Name {
        return Err(Errno::EISDIR);
    }
    let directory = walker.at();
    directory.mount.check_writable()?;
    again_when_stale(|| {
        let entry = entry_of(directory, walker.last_name())?;
        if walker.has_trailing_slash() {
            let is_directory = entry.inode.kind() == NodeKind::Directory;
            return Err(if is_directory { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        may_remove(directory, &entry, lookup.identity, false)?;
        if entry.is_mount_point() {
            return Err(Errno::EBUSY);
        }
        directory.inode.unlink(walker.last_name(), entry.inode.id())?;
        notify::event_itself(&entry.inode, Events::ATTRIB);
        // The news of its end come before those of its name.
        let child = Subject::of(&entry.inode);
        drop(entry);
        notify::entry(&directory.inode, walker.last_name(), child, Events::DELETE);
        Ok(())
    })
}

/// Removes an empty directory.
pub fn remove_directory(lookup: Lookup<'_>, path: &[u8]) -> Result<(), Errno> {
    let mut walker = Walker::new(lookup, path)?;
    match walker.to_last()? {
        Last::Here => return Err(Errno::EBUSY),
        Last::Dot => return Err(Errno::EINVAL),
        Last::DotDot => return Err(Errno::ENOTEMPTY),
        Last::Name => {}
    }
    let directory = walker.at();
    directory.mount.check_writable()?;
    again_when_stale(|| {
        let entry = entry_of(directory, walker.last_name())?;
        may_remove(directory, &entry, lookup.identity, true)?;
        if entry.is_mount_point() {
            return Err(Errno::EBUSY);
        }
        directory.inode.remove_directory(walker.last_name(), entry.inode.id())?;
        let child = Subject::of(&entry.inode);
        drop(entry);
        notify::entry(&directory.inode, walker.last_name(), child, Events::DELETE);
        Ok(())
    })
}

/// Moves a name. The two paths may start at different places.
pub fn rename(
    old: Lookup<'_>,
    old_path: &[u8],
    new: Lookup<'_>,
    new_path: &[u8],
    flags: RenameFlags,
) -> Result<(), Errno> {
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    if exchange && flags.intersects(RenameFlags::NOREPLACE | RenameFlags::WHITEOUT) {
        return Err(Errno::EINVAL);
    }
    let mut from = Walker::new(old, old_path)?;
    let from_last = from.to_last()?;
    let mut to = Walker::new(new, new_path)?;
    let to_last = to.to_last()?;
    if from.at().mount.id() != to.at().mount.id() {
        return Err(Errno::EXDEV);
    }
    if from_last != Last::Name {
        return Err(Errno::EBUSY);
    }
    if to_last != Last::Name {
        let kept = flags.contains(RenameFlags::NOREPLACE);
        return Err(if kept { Errno::EEXIST } else { Errno::EBUSY });
    }
    from.at().mount.check_writable()?;
    again_when_stale(|| rename_once(old.identity, &from, &to, flags))
}

fn rename_once(
    identity: &Identity,
    from: &Walker<'_>,
    to: &Walker<'_>,
    flags: RenameFlags,
) -> Result<(), Errno> {
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    let (from_directory, to_directory) = (from.at(), to.at());
    let moved = entry_of(from_directory, from.last_name())?;
    let replaced = match entry_of(to_directory, to.last_name()) {
        Ok(_) if flags.contains(RenameFlags::NOREPLACE) => return Err(Errno::EEXIST),
        Ok(entry) => Some(entry),
        Err(Errno::ENOENT) if exchange => return Err(Errno::ENOENT),
        Err(Errno::ENOENT) => None,
        Err(error) => return Err(error),
    };
    let moves_directory = moved.inode.kind() == NodeKind::Directory;
    let replaces_directory =
        replaced.as_ref().is_some_and(|entry| entry.inode.kind() == NodeKind::Directory);
    if exchange && !replaces_directory && to.has_trailing_slash() {
        return Err(Errno::ENOTDIR);
    }
    if !moves_directory && (from.has_trailing_slash() || (!exchange && to.has_trailing_slash())) {
        return Err(Errno::ENOTDIR);
    }
    if moves_directory && is_below(&to_directory.inode, &moved.inode) {
        return Err(Errno::EINVAL);
    }
    if let Some(entry) = &replaced
        && replaces_directory
        && is_below(&from_directory.inode, &entry.inode)
    {
        return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
    }
    if let Some(entry) = &replaced
        && entry.inode.id() == moved.inode.id()
    {
        return Ok(());
    }
    may_remove(from_directory, &moved, identity, moves_directory)?;
    match &replaced {
        None => check(&to_directory.inode, identity, CHANGE)?,
        Some(entry) => {
            let wants = if exchange { replaces_directory } else { moves_directory };
            may_remove(to_directory, entry, identity, wants)?;
        }
    }
    if from_directory.inode.id() != to_directory.inode.id() {
        // The `..` of a moved directory changes, which is a write to it.
        if moves_directory {
            check(&moved.inode, identity, Wanted::WRITE)?;
        }
        if exchange && let Some(entry) = replaced.as_ref().filter(|_| replaces_directory) {
            check(&entry.inode, identity, Wanted::WRITE)?;
        }
    }
    if moved.is_mount_point() || replaced.as_ref().is_some_and(Location::is_mount_point) {
        return Err(Errno::EBUSY);
    }
    from_directory.inode.rename(
        from.last_name(),
        moved.inode.id(),
        &to_directory.inode,
        to.last_name(),
        replaced.as_ref().map(|entry| entry.inode.id()),
        flags,
    )?;
    let old_place = (&from_directory.inode, from.last_name());
    let new_place = (&to_directory.inode, to.last_name());
    notify::moved(old_place, new_place, &moved.inode);
    if let Some(entry) = &replaced {
        if exchange {
            notify::moved(new_place, old_place, &entry.inode);
        } else {
            notify::event_itself(&entry.inode, Events::ATTRIB);
        }
    }
    Ok(())
}

/// `chmod`.
pub fn change_mode(location: &Location, identity: &Identity, mode: u32) -> Result<(), Errno> {
    location.mount.check_writable()?;
    if location.inode.kind() == NodeKind::Symlink {
        return Err(Errno::EOPNOTSUPP);
    }
    let permissions = location.inode.permissions();
    if !identity.owns(permissions.user) {
        return Err(Errno::EPERM);
    }
    let mut mode = mode & 0o7777;
    if !identity.keeps_set_group(permissions.group) {
        mode &= !S_ISGID;
    }
    let change = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
    location.inode.set_attributes(&change)?;
    notify::event(&location.inode, Events::ATTRIB);
    Ok(())
}

/// `chown`: a missing id stays. Set-id bits of anything but directories are lost.
pub fn change_owner(
    location: &Location,
    identity: &Identity,
    user: Option<u32>,
    group: Option<u32>,
) -> Result<(), Errno> {
    location.mount.check_writable()?;
    let permissions = location.inode.permissions();
    let is_free = identity.is_capable(Capability::ChangeOwner);
    let is_owner = identity.user == permissions.user;
    let may_user = user.is_none_or(|user| is_free || (is_owner && user == permissions.user));
    let may_group = group.is_none_or(|group| {
        let permitted = identity.is_in_group(group) || group == permissions.group;
        is_free || (is_owner && permitted)
    });
    if !may_user || !may_group {
        return Err(Errno::EPERM);
    }
    let mode = match location.inode.kind() {
        NodeKind::Directory => permissions.mode,
        _ => without_set_id(&permissions, identity),
    };
    // Taking bits away is a change of the mode.
    if mode != permissions.mode && !identity.owns(permissions.user) {
        return Err(Errno::EPERM);
    }
    location.inode.set_attributes(&AttributeChange {
        mode: Some(mode).filter(|&mode| mode != permissions.mode),
        user,
        group,
        ..AttributeChange::default()
    })?;
    notify::event(&location.inode, Events::ATTRIB);
    Ok(())
}

/// The mode after a change by somebody who must not keep set-id bits alive: set-user-id goes;
/// set-group-id goes where it means execution, or when the identity is not in the group.
pub fn without_set_id(permissions: &Permissions, identity: &Identity) -> u32 {
    let mut mode = permissions.mode & !S_ISUID;
    if mode & 0o010 != 0 || !identity.keeps_set_group(permissions.group) {
        mode &= !S_ISGID;
    }
    mode
}

/// A time for `utimensat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTime {
    /// The present.
    Now,
    /// As it is.
    Keep,
    /// This one.
    At(Timestamp),
}

/// `utimensat`: sets access and modification time.
pub fn change_times(
    location: &Location,
    identity: &Identity,
    accessed: NewTime,
    modified: NewTime,
) -> Result<(), Errno> {
    if accessed == NewTime::Keep && modified == NewTime::Keep {
        return Ok(());
    }
    location.mount.check_writable()?;
    let permissions = location.inode.permissions();
    if !identity.owns(permissions.user) {
        if accessed != NewTime::Now || modified != NewTime::Now {
            return Err(Errno::EPERM);
        }
        permit(location.inode.kind(), &permissions, identity, Wanted::WRITE)?;
    }
    let now = Timestamp::now();
    let pick = |time| match time {
        NewTime::Now => Some(now),
        NewTime::Keep => None,
        NewTime::At(time) => Some(time),
    };
    location.inode.set_attributes(&AttributeChange {
        accessed: pick(accessed),
        modified: pick(modified),
        is_now: [accessed == NewTime::Now, modified == NewTime::Now],
        ..AttributeChange::default()
    })?;
    let happened = match (accessed, modified) {
        (NewTime::Keep, _) => Events::MODIFY,
        (_, NewTime::Keep) => Events::ACCESS,
        _ => Events::ATTRIB,
    };
    notify::event(&location.inode, happened);
    Ok(())
}

/// Whether `truncate` by path may set a size: only regular files have one.
pub fn check_truncate(location: &Location, identity: &Identity) -> Result<(), Errno> {
    match location.inode.kind() {
        NodeKind::Regular => {}
        NodeKind::Directory => return Err(Errno::EISDIR),
        _ => return Err(Errno::EINVAL),
    }
    location.mount.check_writable()?;
    check(&location.inode, identity, Wanted::WRITE)?;
    WriteAccess::to(&location.inode).map(|_| ())
}

/// Sets the size of a regular file that may be written, and takes its set-id bits as a write does.
pub fn resize(inode: &Arc<dyn Inode>, identity: &Identity, size: u64) -> Result<(), Errno> {
    inode.truncate(size)?;
    notify::event(inode, Events::MODIFY);
    drop_set_id(inode, identity)
}

/// Takes the set-id bits of a file that somebody has written who may not keep them.
pub fn drop_set_id(inode: &Arc<dyn Inode>, identity: &Identity) -> Result<(), Errno> {
    if identity.is_capable(Capability::FileSetId) {
        return Ok(());
    }
    let permissions = inode.permissions();
    if permissions.mode & (S_ISUID | S_ISGID) == 0 {
        return Ok(());
    }
    let mode = without_set_id(&permissions, identity);
    if mode == permissions.mode {
        return Ok(());
    }
    inode.set_attributes(&AttributeChange { mode: Some(mode), ..AttributeChange::default() })
}
