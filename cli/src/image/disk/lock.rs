//! Disks of the host that are given to a guest or worked on: files and devices that one user has at a time.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};

use crate::status::NotStarted;

/// A disk that the guest has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskOption {
    /// The file here.
    path: PathBuf,
    /// The guest may not write it.
    is_read_only: bool,
}

/// A disk that nobody else uses while this lives.
pub struct LockedDisk {
    option: DiskOption,
    _lock: File,
}

impl DiskOption {
    /// Parses `FILE[:ro]`.
    pub fn parse(text: &str) -> Result<DiskOption, String> {
        let (path, is_read_only) = match text.strip_suffix(":ro") {
            Some(path) => (path, true),
            None => (text.strip_suffix(":rw").unwrap_or(text), false),
        };
        DiskOption::new(PathBuf::from(path), is_read_only)
    }

    /// A disk in this file. An error when it can be none.
    pub fn new(path: PathBuf, is_read_only: bool) -> Result<DiskOption, String> {
        let kind = std::fs::metadata(&path)
            .map_err(|error| format!("cannot use {}: {error}", path.display()))?
            .file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(format!("{} is neither a file nor a block device", path.display()));
        }
        Ok(DiskOption { path, is_read_only })
    }

    /// Checks that there is an ext4 on it, so that what is missing is said in time and by name.
    pub fn check_ext4(&self) -> Result<()> {
        /// Where a superblock has its magic number, and that number.
        const MAGIC: (u64, [u8; 2]) = (1024 + 56, [0x53, 0xef]);
        let path = self.path.display();
        let file =
            File::open(&self.path).with_context(|| format!("cannot open the disk {path}"))?;
        let (mut found, mut signature) = ([0; 2], [0; 2]);
        // Where a table of partitions has its signature: the guest looks for the ext4 in them.
        if file.read_exact_at(&mut signature, 510).is_ok() && signature == [0x55, 0xaa] {
            return Ok(());
        }
        match file.read_exact_at(&mut found, MAGIC.0) {
            Ok(()) if found == MAGIC.1 => Ok(()),
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => {
                Err(error).with_context(|| format!("cannot read the disk {path}"))
            }
            _ => {
                let message = format!("there is no ext4 on {path}; `ferry image create` makes one");
                Err(NotStarted { status: crate::status::NOT_RUNNABLE, message }.into())
            }
        }
    }

    /// Who on this machine has the disk mounted, or as a loop device.
    fn user_here(&self) -> Option<String> {
        let path = self.path.canonicalize().ok()?;
        for entry in std::fs::read_dir("/sys/block").ok()?.flatten() {
            let backing = entry.path().join("loop/backing_file");
            let name = entry.file_name();
            match std::fs::read(backing) {
                Ok(file) if file.trim_ascii_end() == path.as_os_str().as_bytes() => {
                    return Some(format!("the loop device {}", name.display()));
                }
                _ => {}
            }
        }
        let mounts = std::fs::read("/proc/mounts").ok()?;
        let is_source = |line: &&[u8]| {
            line.split(|&byte| byte == b' ').next() == Some(path.as_os_str().as_bytes())
        };
        let line = mounts.split(|&byte| byte == b'\n').find(is_source)?;
        let at = line.split(|&byte| byte == b' ').nth(1)?;
        Some(format!("the mount {}", at.escape_ascii()))
    }

    /// Locks the file: alone, or with others that only read it.
    pub fn lock(&self) -> Result<LockedDisk> {
        let path = self.path.display();
        if !self.is_read_only
            && let Some(user) = self.user_here()
        {
            let message = format!("the disk {path} is in use by {user} of this machine");
            return Err(NotStarted { status: crate::status::NOT_RUNNABLE, message }.into());
        }
        let file = OpenOptions::new()
            .read(true)
            .write(!self.is_read_only)
            .open(&self.path)
            .with_context(|| format!("cannot open the disk {path}"))?;
        let operation = match self.is_read_only {
            true => FlockOperation::NonBlockingLockShared,
            false => FlockOperation::NonBlockingLockExclusive,
        };
        match flock(&file, operation) {
            Ok(()) => Ok(LockedDisk { option: self.clone(), _lock: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let message = format!(
                    "the disk {path} is in use by another run; end that one, or give both `:ro`"
                );
                Err(NotStarted { status: crate::status::NOT_RUNNABLE, message }.into())
            }
            Err(error) => Err(error).with_context(|| format!("cannot lock the disk {path}")),
        }
    }
}

impl LockedDisk {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.option.path
    }

    /// Nobody may write it.
    pub fn is_read_only(&self) -> bool {
        self.option.is_read_only
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_locked_against_writers_and_shared_by_readers() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let written = DiskOption::parse(path).unwrap();
        let read = DiskOption::parse(&format!("{path}:ro")).unwrap();
        assert_eq!((written.is_read_only, read.is_read_only), (false, true));
        let held = written.lock().unwrap();
        assert!(written.lock().is_err());
        assert!(read.lock().err().unwrap().to_string().contains("in use"));
        drop(held);
        let _readers = [read.lock().unwrap(), read.lock().unwrap()];
        assert!(written.lock().is_err());
    }

    #[test]
    fn a_root_needs_an_ext4() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let disk = DiskOption::parse(file.path().to_str().unwrap()).unwrap();
        assert!(disk.check_ext4().unwrap_err().to_string().contains("no ext4"));
        file.as_file().set_len(4096).unwrap();
        assert!(disk.check_ext4().is_err());
        file.as_file().write_all_at(&[0x53, 0xef], 1080).unwrap();
        disk.check_ext4().unwrap();
    }

    #[test]
    fn what_is_no_disk_is_refused() {
        assert!(DiskOption::parse("/no/such/file").is_err());
        assert!(DiskOption::parse("/tmp:ro").is_err());
    }
}
