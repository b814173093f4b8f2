//! Root file systems: what the program finds when it runs.
//!
//! `Image` gathers a default or a prepared root file system, the program and the files that the user
//! adds, and writes all as one initramfs. `program` finds out which file of the guest is to run.

pub mod command;
mod cpio;
mod default_root;
pub mod disk;
mod elf;
mod host;
mod libraries;
mod package;
pub mod program;
mod shims;
mod tree;

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use cpio::CpioError;
pub use host::find_in_path;
use host::{Owners, Packer};
use libraries::Search;
use tree::{Node, Tree};

/// Capacity of the buffer through which an archive is written, in bytes.
const WRITE_BUFFER: usize = 1 << 18;

/// A file that the user adds: `--file HOST[:GUEST]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedFile {
    /// The file or directory of the host.
    pub host: PathBuf,
    /// Where it goes in the guest; the same path when absent.
    pub guest: Option<PathBuf>,
}

impl AddedFile {
    /// Parses `HOST[:GUEST]`. A name that exists with its colon is taken as it is.
    pub fn parse(text: &str) -> Result<AddedFile, String> {
        if text.is_empty() {
            return Err("the name of a file is missing".to_string());
        }
        match text.split_once(':') {
            Some((host, guest)) if !Path::new(text).exists() => {
                if host.is_empty() || guest.is_empty() {
                    return Err(format!("expected HOST:GUEST, not {text:?}"));
                }
                Ok(AddedFile { host: host.into(), guest: Some(guest.into()) })
            }
            _ => Ok(AddedFile { host: text.into(), guest: None }),
        }
    }
}

/// A root file system in the making.
pub struct Image {
    base: Base,
    /// What is added to a prepared archive, or everything.
    tree: Tree,
    /// What could not be found, for the user to read.
    pub warnings: Vec<String>,
    search_path: Vec<PathBuf>,
    owners: Owners,
}

/// What an image starts from.
enum Base {
    /// Nothing but the tree; `is_default` tells whether it began as the default root file system.
    Tree { is_default: bool },
    /// A prepared archive; the listing is absent when the archive cannot be understood.
    Archive { path: PathBuf, listing: Option<cpio::Listing> },
}

impl Image {
    /// The default root file system. `library_path` is the `LD_LIBRARY_PATH` of the program.
    pub fn with_default_root(library_path: Vec<PathBuf>) -> Result<Image> {
        Ok(Image {
            base: Base::Tree { is_default: true },
            tree: default_root::build()?,
            warnings: Vec::new(),
            search_path: library_path,
            owners: Owners::Root,
        })
    }

    /// Nothing: the guest's files are elsewhere.
    pub fn empty() -> Image {
        Image {
            base: Base::Tree { is_default: false },
            tree: Tree::default(),
            warnings: Vec::new(),
            search_path: Vec::new(),
            owners: Owners::Root,
        }
    }

    /// A prepared root file system: a directory or an uncompressed cpio archive.
    pub fn with_rootfs(rootfs: &Path) -> Result<Image> {
        let metadata = std::fs::metadata(rootfs)
            .with_context(|| format!("cannot use --rootfs {}", rootfs.display()))?;
        let mut image = Image {
            base: Base::Tree { is_default: false },
            tree: Tree::default(),
            warnings: Vec::new(),
            search_path: Vec::new(),
            // Only root can have prepared other owners.
            owners: if rustix::process::geteuid().is_root() {
                Owners::AsOnHost
            } else {
                Owners::Root
            },
        };
        if metadata.is_dir() {
            let mut packer = Packer::new(&mut image.tree, Search::default(), image.owners);
            packer.add_directory(rootfs, Path::new("/"), false)?;
            for (path, permissions) in [("/dev", 0o755), ("/proc", 0o555), ("/tmp", 0o1777)] {
                if image.tree.find(Path::new(path)).is_none() {
                    image.tree.insert(Path::new(path), Node::directory(permissions))?;
                }
            }
        } else {
            let mut file =
                File::open(rootfs).with_context(|| format!("cannot open {}", rootfs.display()))?;
            let listing = match cpio::list(&mut file) {
                Ok(listing) => Some(listing),
                Err(error) => {
                    let message = format!("{}: {error}", rootfs.display());
                    image.warnings.push(format!("{message}; the kernel gets it as it is"));
                    None
                }
            };
            image.base = Base::Archive { path: rootfs.to_path_buf(), listing };
        }
        Ok(image)
    }

    /// Adds a file or directory of the host and what the programs in it need.
    pub fn add_file(&mut self, file: &AddedFile) -> Result<()> {
        self.pack(|packer| packer.add_file(&file.host, file.guest.as_deref()))
    }

    /// Adds the files of an installed Debian package, and what its programs need.
    pub fn add_package(&mut self, name: &str) -> Result<()> {
        let files = package::files(name)?;
        self.pack(|packer| packer.add_listed(&files))
    }

    /// Adds a program of the host and what it needs.
    fn add_program(&mut self, path: &Path) -> Result<()> {
        self.pack(|packer| packer.add_program(path))
    }

    fn pack(&mut self, add: impl FnOnce(&mut Packer<'_>) -> Result<()>) -> Result<()> {
        let search = Search::of_host(self.search_path.clone());
        let mut packer = Packer::new(&mut self.tree, search, Owners::Root);
        add(&mut packer)?;
        self.warnings.append(&mut packer.warnings);
        Ok(())
    }

    /// The file system that the guest will see, as far as it is known.
    fn find(&self, path: &Path) -> Option<(PathBuf, &Node)> {
        let archived = match &self.base {
            Base::Archive { listing: Some(listing), .. } => listing.tree.find(path),
            _ => None,
        };
        self.tree.find(path).or(archived)
    }

    /// Writes the initramfs to `out`.
    pub fn write(&self, out: File) -> Result<()> {
        let mut out = BufWriter::with_capacity(WRITE_BUFFER, out);
        let first_inode = match &self.base {
            Base::Tree { .. } => 1,
            Base::Archive { path, listing } => {
                self.copy_archive(path, listing.as_ref(), &mut out)?
            }
        };
        if self.is_archive_as_it_is() {
            out.flush()?;
            return Ok(());
        }
        cpio::write_tree(&mut out, &self.tree, first_inode)
            .context("cannot write the initramfs")?;
        out.flush().context("cannot write the initramfs")
    }

    fn is_archive_as_it_is(&self) -> bool {
        matches!(self.base, Base::Archive { .. }) && self.tree.iter().next().is_none()
    }

    /// Copies a prepared archive, without its trailer when records will follow; returns the first
    /// inode number for those.
    fn copy_archive(
        &self,
        path: &Path,
        listing: Option<&cpio::Listing>,
        out: &mut BufWriter<File>,
    ) -> Result<u32> {
        let failed = || format!("cannot read {}", path.display());
        let mut archive = File::open(path).with_context(failed)?;
        if self.is_archive_as_it_is() {
            std::io::copy(&mut archive, out).with_context(failed)?;
            return Ok(0);
        }
        let Some(listing) = listing else {
            bail!("{} is no cpio archive; no file can be added to it", path.display());
        };
        let records = std::io::Read::take(archive, listing.records_length);
        std::io::copy(&mut { records }, out).map_err(CpioError::Archive).with_context(failed)?;
        Ok(listing.next_inode)
    }

    /// Writes the initramfs into memory; the file has no name and vanishes with its last user.
    pub fn write_to_memory(&self) -> Result<(File, u64)> {
        let memory = rustix::fs::memfd_create("ferry-initramfs", rustix::fs::MemfdFlags::CLOEXEC)
            .context("cannot get memory for the initramfs")?;
        let mut file = File::from(memory);
        self.write(file.try_clone()?)?;
        let length = file.seek(SeekFrom::End(0))?;
        Ok((file, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_files_are_split_at_the_first_colon() {
        let parsed = AddedFile::parse("data:/srv/data").unwrap();
        assert_eq!((parsed.host, parsed.guest), ("data".into(), Some("/srv/data".into())));
        assert_eq!(AddedFile::parse("data").unwrap().guest, None);
        assert!(AddedFile::parse(":x").is_err());
        assert!(AddedFile::parse("x:").is_err());
        assert!(AddedFile::parse("").is_err());
    }

    #[test]
    fn a_prepared_archive_takes_further_files() {
        let directory = tempfile::tempdir().unwrap();
        let archive = directory.path().join("root.cpio");
        let mut first = Image::with_default_root(Vec::new()).unwrap();
        first.write(File::create(&archive).unwrap()).unwrap();
        first.tree = Tree::default();

        let extra = directory.path().join("extra");
        std::fs::write(&extra, "hello").unwrap();
        let mut second = Image::with_rootfs(&archive).unwrap();
        second.add_file(&AddedFile { host: extra, guest: Some("/extra".into()) }).unwrap();
        let (mut file, length) = second.write_to_memory().unwrap();
        let listing = cpio::list(&mut file).unwrap();
        assert!(listing.tree.find(Path::new("/bin/sh")).is_some());
        assert!(listing.tree.find(Path::new("/extra")).is_some());
        assert!(length > std::fs::metadata(&archive).unwrap().len());
    }

    #[test]
    fn an_archive_that_is_none_is_passed_on_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let archive = directory.path().join("root.cpio");
        std::fs::write(&archive, "070701 nonsense").unwrap();
        let image = Image::with_rootfs(&archive).unwrap();
        assert_eq!(image.warnings.len(), 1);
        assert_eq!(image.write_to_memory().unwrap().1, 15);
    }
}
