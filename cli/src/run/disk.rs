//! Disks of the guest: files and devices of this machine (`--disk`).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::image::disk::lock::{DiskOption, LockedDisk};
use crate::machine::quoted;
use crate::status::Usage;

/// The options of `ferry run` for disks.
#[derive(Clone, clap::Args)]
pub struct DiskArguments {
    /// Give the guest a disk: the first is /dev/vda, the next /dev/vdb.
    #[arg(long = "disk", value_name = "FILE[:ro]", value_parser = DiskOption::parse)]
    disks: Vec<DiskOption>,
    /// Requests to the disks that fail, as QEMU's blkdebug reads it.
    #[arg(long, value_name = "FILE", hide = true)]
    disk_errors: Option<PathBuf>,
    /// A server of network block devices that answers for the first disk.
    #[arg(long, value_name = "SOCKET", hide = true, conflicts_with = "disk_errors")]
    disk_server: Option<PathBuf>,
}

impl DiskArguments {
    /// Locks all disks; they stay locked while the result lives.
    pub fn lock(&self) -> Result<Vec<LockedDisk>> {
        self.disks.iter().map(DiskOption::lock).collect()
    }

    /// Checks that the first disk can be a root.
    pub fn check_root(&self) -> Result<()> {
        let Some(disk) = self.disks.first() else {
            return Err(Usage("--root disk needs a --disk, whose ext4 it is".to_string()).into());
        };
        disk.check_ext4()
    }

    /// The options of QEMU for locked disks.
    pub fn options(&self, locked: &[LockedDisk]) -> Vec<OsString> {
        let backing = |index: usize| match (&self.disk_server, &self.disk_errors) {
            (Some(socket), _) if index == 0 => Backing::Server(socket),
            (_, Some(errors)) => Backing::Failing(errors),
            _ => Backing::File,
        };
        let options = |(index, disk): (usize, &LockedDisk)| arguments(disk, index, backing(index));
        locked.iter().enumerate().flat_map(options).collect()
    }
}

/// What answers for a disk.
#[derive(Clone, Copy)]
enum Backing<'a> {
    /// Its file.
    File,
    /// Its file, with errors that a configuration of QEMU's `blkdebug` tells.
    Failing(&'a Path),
    /// A server behind a socket.
    Server(&'a Path),
}

/// The options of QEMU for disk number `index`. A flush of the guest reaches the host's disk.
fn arguments(disk: &LockedDisk, index: usize, backing: Backing<'_>) -> [OsString; 4] {
    let mut drive = OsString::from(format!(
        "if=none,id=disk{index},format=raw,cache=writeback,discard=unmap,werror=report,rerror=report"
    ));
    if disk.is_read_only() {
        drive.push(",readonly=on");
    }
    let mut path = disk.path();
    match backing {
        Backing::File => drive.push(",file="),
        Backing::Failing(errors) => {
            drive.push(",file.driver=blkdebug,file.config=");
            drive.push(quoted(errors.as_os_str()));
            drive.push(",file.image.driver=file,file.image.filename=");
        }
        Backing::Server(socket) => {
            drive.push(",file.driver=nbd,file.server.type=unix,file.server.path=");
            path = socket;
        }
    }
    drive.push(quoted(path.as_os_str()));
    let device = format!("virtio-blk-device,drive=disk{index}");
    ["-drive".into(), drive, "-device".into(), device.into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_needs_a_disk() {
        let none = DiskArguments { disks: Vec::new(), disk_errors: None, disk_server: None };
        assert!(none.check_root().is_err());
    }
}
