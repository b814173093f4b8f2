//! `ferry image`: writes the initramfs that `ferry run` would boot, to look at or to boot elsewhere; and what
//! there is for disks (`disk`).

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::program::GUEST_PATH;
use super::{AddedFile, Image, disk};

/// Make disks with a root file system, or write an initramfs with programs and what they need.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Example:\n  ferry image --output root.cpio --file data:/srv/data -- python3 sqlite3\n  \
    ferry run --rootfs root.cpio -- python3 -V"
)]
pub struct Arguments {
    #[command(subcommand)]
    disk: Option<disk::Command>,
    /// Where to write the archive (newc cpio, not compressed).
    #[arg(long, short, value_name = "FILE", required = true)]
    output: Option<PathBuf>,
    /// Add a file or directory of the host, and what the programs in it need.
    #[arg(long = "file", value_name = "HOST[:GUEST]", value_parser = AddedFile::parse)]
    files: Vec<AddedFile>,
    /// Add the files of an installed Debian package, and what its programs need.
    #[arg(long = "package", value_name = "NAME")]
    packages: Vec<String>,
    /// Start from a prepared root file system instead of the default one.
    #[arg(long, value_name = "DIR|FILE.cpio")]
    rootfs: Option<PathBuf>,
    /// Programs to put in: paths, or names that are looked up in PATH.
    #[arg(value_name = "PROGRAM", last = true)]
    programs: Vec<PathBuf>,
}

/// Carries out `ferry image`.
pub fn run(arguments: &Arguments) -> Result<u8> {
    if let Some(command) = &arguments.disk {
        return disk::run(command);
    }
    let output = arguments.output.as_ref().context("no --output given")?;
    let mut image = match &arguments.rootfs {
        Some(rootfs) => Image::with_rootfs(rootfs)?,
        None => Image::with_default_root(Vec::new())?,
    };
    for file in &arguments.files {
        image.add_file(file)?;
    }
    for package in &arguments.packages {
        image.add_package(package)?;
    }
    for program in &arguments.programs {
        image.locate_program(program, Path::new("/"), GUEST_PATH)?;
    }
    let out =
        File::create(output).with_context(|| format!("cannot create {}", output.display()))?;
    image.write(out)?;
    for warning in &image.warnings {
        eprintln!("ferry: warning: {warning}");
    }
    Ok(0)
}
