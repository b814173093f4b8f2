//! Directories and positions: getdents, lseek, getcwd, chdir, chroot, umask.

use abi::Errno;
use abi::fs::{AT_FDCWD, DIRENT64_HEADER};
use alloc::vec::Vec;
use fs::inode::DirectoryEntry;
use fs::metadata::Wanted;
use fs::{Location, NodeKind, mount, tree};

use super::fanotify;
use super::support::{resolve, usable};
use crate::call::{Call, SysResult};
use crate::process::{Capability, Thread};

/// Most bytes of entries that one call gives.
const LONGEST_ANSWER: usize = 64 * 1024;

pub fn lseek(call: &Call) -> SysResult {
    let file = usable(call, 0)?;
    let whence = call.int(2);
    if !(0..=4).contains(&whence) {
        return Err(Errno::EINVAL);
    }
    file.seek(call.argument(1) as i64, whence)
}

/// A seek that succeeds; else `lseek` says why not.
pub fn seek_at_once(thread: &Thread, arguments: &[u64; 6]) -> Option<u64> {
    let [descriptor, offset, whence, ..] = *arguments;
    let file = thread.file(descriptor as i32).ok().filter(|file| !file.is_path_only())?;
    let whence = Some(whence as i32).filter(|whence| (0..=4).contains(whence))?;
    file.seek(offset as i64, whence).ok()
}

/// Bytes of `struct linux_dirent` around the name: the header, the end of the name, the type.
const OLD_HEADER: usize = 18;

/// Appends an entry if it fits; false when it does not.
fn append(buffer: &mut Vec<u8>, limit: usize, entry: &DirectoryEntry<'_>, is_new: bool) -> bool {
    let header = if is_new { DIRENT64_HEADER } else { OLD_HEADER };
    // The name ends with a NUL; in the old structure the type stands at its very end.
    let least = header + entry.name.len() + if is_new { 1 } else { 2 };
    let length = least.next_multiple_of(8);
    let start = buffer.len();
    if start + length > limit {
        return false;
    }
    let Ok(short_length) = u16::try_from(length) else { return false };
    buffer.extend_from_slice(&entry.number.to_ne_bytes());
    buffer.extend_from_slice(&entry.next.to_ne_bytes());
    buffer.extend_from_slice(&short_length.to_ne_bytes());
    if is_new {
        buffer.push(entry.kind.directory_type());
    }
    buffer.extend_from_slice(entry.name);
    buffer.resize(start + length, 0);
    if !is_new && let Some(last) = buffer.last_mut() {
        *last = entry.kind.directory_type();
    }
    true
}

pub async fn getdents(call: &Call, is_new: bool) -> SysResult {
    let file = usable(call, 0)?;
    if file.inode().kind() != NodeKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    fanotify::ask_before_read(call, &file).await?;
    let limit = usize::try_from(call.unsigned(2)).unwrap_or(LONGEST_ANSWER).min(LONGEST_ANSWER);
    let mut buffer = Vec::new();
    let mut has_more = false;
    let before = file.position();
    file.read_directory(&mut |entry| {
        let fits = append(&mut buffer, limit, &entry, is_new);
        has_more |= !fits;
        fits
    })?;
    if buffer.is_empty() {
        if !has_more && file.inode().metadata().links == 0 {
            return Err(Errno::ENOENT);
        }
        return if has_more { Err(Errno::EINVAL) } else { Ok(0) };
    }
    if let Err(error) = call.user().write_bytes(call.argument(1), &buffer).await {
        // The entries were not delivered: give them again next time.
        let back = i64::try_from(before).unwrap_or(0);
        file.seek(back, abi::fs::seek::SEEK_SET)?;
        return Err(error);
    }
    Ok(buffer.len() as u64)
}

pub async fn getcwd(call: &Call) -> SysResult {
    let (root, current) = call.thread.directory().places();
    let (path, is_reachable) = mount::path_of(&current, &root);
    let mut path = path.ok_or(Errno::ENOENT)?;
    if !is_reachable {
        path = [b"(unreachable)", path.as_slice()].concat();
    }
    path.push(0);
    if path.len() as u64 > call.argument(1) {
        return Err(Errno::ERANGE);
    }
    call.user().write_bytes(call.argument(0), &path).await?;
    Ok(path.len() as u64)
}

fn check_directory(call: &Call, location: &Location) -> Result<(), Errno> {
    if location.inode.kind() != NodeKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    tree::check(&location.inode, &call.thread.identity(), Wanted::EXECUTE)
}

pub async fn chdir(call: &Call) -> SysResult {
    let (location, _) = resolve(call, AT_FDCWD, 0, true).await?;
    check_directory(call, &location)?;
    call.thread.directory().set_current(location);
    Ok(0)
}

pub fn fchdir(call: &Call) -> SysResult {
    let file = call.file(0)?;
    check_directory(call, file.location())?;
    call.thread.directory().set_current(file.location().clone());
    Ok(0)
}

pub async fn chroot(call: &Call) -> SysResult {
    let (location, _) = resolve(call, AT_FDCWD, 0, true).await?;
    check_directory(call, &location)?;
    call.thread.credentials().require(Capability::ChangeRoot)?;
    call.thread.directory().set_root(location);
    Ok(0)
}

pub fn umask(call: &Call) -> SysResult {
    Ok(u64::from(call.thread.directory().set_umask(call.unsigned(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &[u8]) -> DirectoryEntry<'_> {
        DirectoryEntry { name, number: 7, kind: NodeKind::Directory, next: 9 }
    }

    #[test]
    fn entries_have_the_layout_of_linux() {
        let mut buffer = Vec::new();
        assert!(append(&mut buffer, 100, &entry(b"abc"), true));
        assert_eq!(buffer.len(), 24);
        assert_eq!(buffer[16..19], [24, 0, 4]);
        assert_eq!(&buffer[19..24], b"abc\0\0");
        buffer.clear();
        assert!(append(&mut buffer, 100, &entry(b"abcdef"), false));
        assert_eq!(buffer.len(), 32);
        assert_eq!((&buffer[18..25], buffer[31]), (b"abcdef\0".as_slice(), 4));
    }

    #[test]
    fn an_entry_that_does_not_fit_is_left_out_whole() {
        let mut buffer = Vec::new();
        assert!(append(&mut buffer, 47, &entry(b"a"), true));
        assert!(!append(&mut buffer, 47, &entry(b"b"), true));
        assert_eq!(buffer.len(), 24);
    }
}
