//! `ferry image create | info | check | copy | resize`: disks with a root file system for `ferry run --root disk`.
//!
//! The file systems are made, checked and changed by e2fsprogs, the packages are installed by mmdebstrap. A disk that
//! somebody uses is refused, as `ferry run` refuses it.

mod create;
mod info;
pub mod lock;
mod tools;

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::SeekFrom as Part;

use lock::{DiskOption, LockedDisk};
use tools::{Bar, MIB, Tool, parse_size};

/// What can be done with a disk.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Make a disk with a Debian root that has these packages
    Create(create::Arguments),
    /// Tell what is on a disk
    Info {
        /// The disk.
        file: PathBuf,
    },
    /// Check the file system of a disk; exit status 4 when it has errors
    Check {
        /// Correct what is wrong.
        #[arg(long)]
        repair: bool,
        /// The disk.
        file: PathBuf,
    },
    /// Copy a disk, without its holes
    Copy {
        /// The disk.
        from: PathBuf,
        /// The new file.
        to: PathBuf,
    },
    /// Change the size of a disk and of the file system on it
    Resize {
        /// The disk.
        file: PathBuf,
        /// The new size, in M or G.
        #[arg(value_parser = parse_size)]
        size: u64,
    },
}

/// Carries out a command.
pub fn run(command: &Command) -> Result<u8> {
    match command {
        Command::Create(arguments) => create::run(arguments),
        Command::Info { file } => {
            let _lock = lock(file, true)?;
            print!("{}", info::describe(file)?);
            Ok(0)
        }
        Command::Check { repair, file } => check(file, *repair),
        Command::Copy { from, to } => copy(from, to),
        Command::Resize { file, size } => resize(file, *size),
    }
}

/// Locks a disk as a run does.
fn lock(file: &Path, is_read_only: bool) -> Result<LockedDisk> {
    let disk = DiskOption::new(file.to_path_buf(), is_read_only).map_err(anyhow::Error::msg)?;
    disk.lock()
}

fn check(file: &Path, repair: bool) -> Result<u8> {
    /// `e2fsck` has found errors and corrected all of them; that it left some is 4.
    const CORRECTED: i32 = 1;
    const LEFT: i32 = 4;
    let _lock = lock(file, !repair)?;
    let option = if repair { "-fy" } else { "-fn" };
    let said = Tool::new("e2fsck").arg(option).arg(file).run(&[0, CORRECTED, LEFT])?;
    print!("{}", said.text);
    Ok(if said.status == LEFT { LEFT as u8 } else { 0 })
}

/// Copies what is not a hole.
fn copy(from: &Path, to: &Path) -> Result<u8> {
    let _lock = lock(from, true)?;
    let mut source = File::open(from).with_context(|| format!("cannot open {}", from.display()))?;
    let size = source.seek(SeekFrom::End(0))?;
    let mut target = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(to)
        .with_context(|| format!("cannot create {}", to.display()))?;
    let outcome = copy_parts(&mut source, &mut target, size);
    if outcome.is_err() {
        // Half a disk is none.
        drop(std::fs::remove_file(to));
    }
    outcome.with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(0)
}

fn copy_parts(source: &mut File, target: &mut File, size: u64) -> Result<()> {
    target.set_len(size)?;
    let bar = Bar::bytes(size, "copying");
    let mut at = 0;
    while at < size {
        let begin = match rustix::fs::seek(&*source, Part::Data(at)) {
            Ok(begin) => begin,
            // Nothing but a hole is left.
            Err(rustix::io::Errno::NXIO) => break,
            // A device, or a file system that knows no holes.
            Err(_) => at,
        };
        let end = rustix::fs::seek(&*source, Part::Hole(begin)).unwrap_or(size);
        source.seek(SeekFrom::Start(begin))?;
        target.seek(SeekFrom::Start(begin))?;
        let mut part = Read::take(&mut *source, end - begin);
        loop {
            const STEP: u64 = 16 * MIB;
            let count = std::io::copy(&mut Read::take(&mut part, STEP), target)?;
            ensure!(count > 0 || part.limit() == 0, "the disk has become shorter");
            bar.set(end - part.limit());
            if part.limit() == 0 {
                break;
            }
        }
        at = end;
    }
    target.flush()?;
    target.sync_all()?;
    Ok(())
}

fn resize(file: &Path, size: u64) -> Result<u8> {
    let _lock = lock(file, false)?;
    ensure!(file.is_file(), "{} is a device, whose size is fixed", file.display());
    info::require_ext4(file)?;
    let old = std::fs::metadata(file)?.len();
    // What a resizing relies on. Errors that it has corrected are told as 1.
    Tool::new("e2fsck").arg("-fp").arg(file).run(&[0, 1])?;
    let grow = || -> Result<()> {
        if size > old {
            OpenOptions::new().write(true).open(file)?.set_len(size)?;
        }
        Tool::new("resize2fs").arg(file).arg(format!("{}K", size >> 10)).run(&[0])?;
        Ok(())
    };
    if let Err(error) = grow() {
        if size > old {
            OpenOptions::new().write(true).open(file)?.set_len(old)?;
        }
        return Err(error).with_context(|| format!("cannot resize {}", file.display()));
    }
    if size < old {
        OpenOptions::new().write(true).open(file)?.set_len(size)?;
    }
    if std::fs::metadata(file)?.len() != size {
        bail!("{} has another size than it should have", file.display());
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn a_copy_has_the_same_bytes_and_holes() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        let file = File::create(&from).unwrap();
        file.set_len(8 * MIB).unwrap();
        file.write_all_at(b"first", 0).unwrap();
        file.write_all_at(b"last", 8 * MIB - 4).unwrap();
        copy(&from, &to).unwrap();
        assert!(std::fs::read(&from).unwrap() == std::fs::read(&to).unwrap());
        assert!(std::fs::metadata(&to).unwrap().blocks() * 512 < MIB);
        // What is there is not overwritten.
        assert!(copy(&from, &to).is_err());
    }

    #[test]
    fn a_disk_grows_and_shrinks() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("disk");
        File::create(&file).unwrap().set_len(16 * MIB).unwrap();
        assert!(resize(&file, 32 * MIB).is_err());
        Tool::new("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&file).run(&[0]).unwrap();
        for size in [32 * MIB, 12 * MIB] {
            resize(&file, size).unwrap();
            assert_eq!(std::fs::metadata(&file).unwrap().len(), size);
            assert_eq!(check(&file, false).unwrap(), 0);
            assert!(info::describe(&file).unwrap().contains("ext4"));
        }
        // There is no room for so little.
        assert!(resize(&file, MIB / 4).is_err());
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 12 * MIB);
        assert_eq!(check(&file, false).unwrap(), 0);
    }
}
