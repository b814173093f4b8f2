//! Disks of the guest: files and devices of this machine (`--disk`).

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};

use super::NotStarted;
use crate::machine::quoted;

/// The options of `ferry run` for disks.
#[derive(Clone, clap::Args)]
pub struct DiskArguments {
    /// Give the guest a disk: the first is /dev/vda, the next /dev/vdb.
    #[arg(long = "disk", value_name = "FILE[:ro]", value_parser = DiskOption::parse)]
    disks: Vec<DiskOption>,
    /// Requests to the disks that fail, as QEMU's blkdebug reads it.
    #[arg(long, value_name = "FILE", hide = true)]
    disk_errors: Option<PathBuf>,
}

impl DiskArguments {
    /// Locks all disks; they stay locked while the result lives.
    pub fn lock(&self) -> Result<Vec<LockedDisk>> {
        self.disks.iter().map(DiskOption::lock).collect()
    }

    /// The options of QEMU for locked disks.
    pub fn options(&self, locked: &[LockedDisk]) -> Vec<OsString> {
        let errors = self.disk_errors.as_deref();
        let options = |(index, disk): (usize, &LockedDisk)| disk.arguments(index, errors);
        locked.iter().enumerate().flat_map(options).collect()
    }
}

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
    fn parse(text: &str) -> Result<DiskOption, String> {
        let (path, is_read_only) = match text.strip_suffix(":ro") {
            Some(path) => (path, true),
            None => (text.strip_suffix(":rw").unwrap_or(text), false),
        };
        let path = PathBuf::from(path);
        let kind = std::fs::metadata(&path)
            .map_err(|error| format!("cannot use {}: {error}", path.display()))?
            .file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(format!("{} is neither a file nor a block device", path.display()));
        }
        Ok(DiskOption { path, is_read_only })
    }

    /// Locks the file: alone, or with others that only read it.
    fn lock(&self) -> Result<LockedDisk> {
        let path = self.path.display();
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
    /// The options of QEMU for disk number `index`. A flush of the guest reaches the host's disk. `errors` is a
    /// configuration of QEMU's `blkdebug`: which requests fail.
    fn arguments(&self, index: usize, errors: Option<&Path>) -> [OsString; 4] {
        let mut drive = OsString::from(format!(
            "if=none,id=disk{index},format=raw,cache=writeback,discard=unmap,werror=report,rerror=report"
        ));
        if self.option.is_read_only {
            drive.push(",readonly=on");
        }
        match errors {
            None => drive.push(",file="),
            Some(errors) => {
                drive.push(",file.driver=blkdebug,file.config=");
                drive.push(quoted(errors.as_os_str()));
                drive.push(",file.image.driver=file,file.image.filename=");
            }
        }
        drive.push(quoted(self.option.path.as_os_str()));
        let device = format!("virtio-blk-device,drive=disk{index}");
        ["-drive".into(), drive, "-device".into(), device.into()]
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
    fn what_is_no_disk_is_refused() {
        assert!(DiskOption::parse("/no/such/file").is_err());
        assert!(DiskOption::parse("/tmp:ro").is_err());
    }
}
