//! An ext4 that Debian's `mke2fs` made, on a disk in memory; `e2fsck` has the last word.

use super::*;
use crate::block::BlockDevice;
use crate::inode::{AttributeChange, DirectoryEntry, FileSystem, Inode, NewContent, NewNode};
use crate::pending::complete;
use crate::remote::{Options, RemoteFs};
use base::device::{Disk, DiskGeometry};
use base::io::Source;
use base::task::block_on_host;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex as HostMutex;
use std::vec;

/// A disk in memory, with requests that fail from a count on.
pub(super) struct MemoryDisk {
    bytes: HostMutex<Vec<u8>>,
    /// How many writes still succeed.
    pub(super) writes_left: HostMutex<usize>,
    /// No flush succeeds.
    pub(super) cannot_flush: HostMutex<bool>,
    /// Writes and flushes so far.
    counts: HostMutex<(u64, u64)>,
}

impl MemoryDisk {
    pub(super) fn new(bytes: Vec<u8>) -> Arc<MemoryDisk> {
        Arc::new(MemoryDisk {
            bytes: HostMutex::new(bytes),
            writes_left: HostMutex::new(usize::MAX),
            cannot_flush: HostMutex::new(false),
            counts: HostMutex::new((0, 0)),
        })
    }

    pub(super) fn counts(&self) -> (u64, u64) {
        *self.counts.lock().unwrap()
    }

    /// Its bytes.
    pub(super) fn content(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }
}

impl MemoryDisk {
    fn range(&self, offset: u64, length: usize) -> core::ops::Range<usize> {
        offset as usize..offset as usize + length
    }
}

impl Disk for MemoryDisk {
    fn geometry(&self) -> DiskGeometry {
        DiskGeometry {
            size: self.bytes.lock().unwrap().len() as u64,
            sector_size: 512,
            is_read_only: false,
            has_cache: true,
            can_discard: false,
            can_write_zeroes: false,
        }
    }

    fn most_bytes(&self) -> usize {
        60 << 10
    }

    fn read(&self, offset: u64, length: usize) -> base::device::Reply<'_> {
        Box::pin(async move {
            base::task::yield_now().await;
            Ok(self.bytes.lock().unwrap()[self.range(offset, length)].to_vec())
        })
    }

    fn write<'a>(&'a self, offset: u64, bytes: &'a [u8]) -> base::device::Reply<'a> {
        Box::pin(async move {
            base::task::yield_now().await;
            self.counts.lock().unwrap().0 += 1;
            let mut left = self.writes_left.lock().unwrap();
            *left = left.checked_sub(1).ok_or(Errno::EIO)?;
            let range = self.range(offset, bytes.len());
            self.bytes.lock().unwrap()[range].copy_from_slice(bytes);
            Ok(Vec::new())
        })
    }

    fn flush(&self) -> base::device::Reply<'_> {
        self.counts.lock().unwrap().1 += 1;
        let cannot = *self.cannot_flush.lock().unwrap();
        Box::pin(async move { if cannot { Err(Errno::EIO) } else { Ok(Vec::new()) } })
    }

    fn discard(&self, _: u64, _: u64) -> base::device::Reply<'_> {
        Box::pin(async { Err(Errno::EOPNOTSUPP) })
    }

    fn write_zeroes(&self, _: u64, _: u64) -> base::device::Reply<'_> {
        Box::pin(async { Err(Errno::EOPNOTSUPP) })
    }
}

/// A fresh image with a file system of this size.
pub(super) fn image(name: &str, mebibytes: u64) -> PathBuf {
    image_with(name, mebibytes, &[])
}

/// The same with options of `mke2fs`.
fn image_with(name: &str, mebibytes: u64, options: &[&str]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("ferry-{}-{name}.img", std::process::id()));
    std::fs::write(&path, []).unwrap();
    let status = Command::new("/sbin/mke2fs")
        .args(["-q", "-F", "-t", "ext4"])
        .args(options)
        .arg(&path)
        .arg(format!("{mebibytes}M"))
        .status()
        .expect("e2fsprogs is installed");
    assert!(status.success());
    path
}

pub(super) fn disk_of(path: &PathBuf) -> Arc<MemoryDisk> {
    MemoryDisk::new(std::fs::read(path).unwrap())
}

fn options() -> Options {
    Options { fresh_ns: u64::MAX, core: CpuId::current() }
}

pub(super) async fn mounted(disk: &Arc<MemoryDisk>) -> Arc<dyn FileSystem> {
    let device = BlockDevice::new(0, disk.clone(), options());
    RemoteFs::mount_ext4(device, false, options()).await.unwrap()
}

/// What `e2fsck -fn` says; the image is removed.
pub(super) fn check(path: PathBuf, disk: &MemoryDisk) {
    std::fs::write(&path, &*disk.bytes.lock().unwrap()).unwrap();
    let output = Command::new("/sbin/e2fsck").arg("-fn").arg(&path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    std::fs::remove_file(&path).unwrap();
}

pub(super) async fn make(
    directory: &Arc<dyn Inode>,
    name: &str,
    content: NewContent<'_>,
) -> Arc<dyn Inode> {
    let new = NewNode { content, mode: 0o755, user: 1000, group: 100 };
    complete(|| directory.create(name.as_bytes(), &new)).await.unwrap()
}

pub(super) async fn write(file: &Arc<dyn Inode>, offset: u64, bytes: &[u8]) {
    let mut source = bytes;
    let mut at = offset;
    while source.remaining() > 0 {
        at += complete(|| file.write_at(at, &mut source)).await.unwrap() as u64;
    }
}

pub(super) async fn read(file: &Arc<dyn Inode>, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut done = 0;
    while done < length {
        let mut sink = &mut bytes[done..];
        let count = complete(|| file.read_at(offset + done as u64, &mut sink)).await.unwrap();
        if count == 0 {
            break;
        }
        done += count;
    }
    bytes.truncate(done);
    bytes
}

pub(super) fn names(directory: &Arc<dyn Inode>) -> Vec<String> {
    let mut names = Vec::new();
    let mut keep = |entry: DirectoryEntry<'_>| {
        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        true
    };
    directory.read_directory(0, &mut keep).unwrap();
    names.sort();
    names
}

use std::string::String;

#[test]
fn what_was_made_is_there_after_another_mount() {
    let path = image("made", 64);
    let disk = disk_of(&path);
    block_on_host(async {
        let long: Vec<u8> = (0..300_000_u32).map(|index| (index % 251) as u8).collect();
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let directory = make(&root, "directory", NewContent::Directory).await;
        let file = make(&directory, "file", NewContent::Regular).await;
        write(&file, 0, &long).await;
        let sparse = make(&root, "sparse", NewContent::Regular).await;
        write(&sparse, 1 << 30, b"far away").await;
        make(&root, "soft", NewContent::Symlink(b"directory/file")).await;
        make(&root, "pipe", NewContent::Fifo).await;
        complete(|| root.link(b"twin", &file)).await.unwrap();
        for index in 0..300 {
            let name = format!("entry-{index:04}");
            make(&directory, &name, NewContent::Regular).await;
        }
        complete(|| file.sync()).await.unwrap();
        let open = make(&root, "gone", NewContent::Regular).await;
        write(&open, 0, b"still here").await;
        complete(|| root.unlink(b"gone", open.id())).await.unwrap();
        assert_eq!(read(&open, 0, 100).await, b"still here");
        drop(open);
        let change = AttributeChange { mode: Some(0o640), ..AttributeChange::default() };
        complete(|| file.set_attributes(&change)).await.unwrap();
        drop((root, directory, file, sparse));
        complete(|| file_system.close()).await.unwrap();
        drop(file_system);

        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let directory = complete(|| root.lookup(b"directory")).await.unwrap();
        let file = complete(|| directory.lookup(b"file")).await.unwrap();
        let metadata = file.metadata();
        assert_eq!((metadata.size, metadata.links), (300_000, 2));
        assert_eq!(metadata.permissions, Permissions { mode: 0o640, user: 1000, group: 100 });
        assert_eq!(read(&file, 0, 400_000).await, long);
        let sparse = complete(|| root.lookup(b"sparse")).await.unwrap();
        assert!(sparse.metadata().blocks < 100);
        assert_eq!(read(&sparse, (1 << 30) - 4, 100).await, b"\0\0\0\0far away");
        let soft = complete(|| root.lookup(b"soft")).await.unwrap();
        let identity = crate::Identity::kernel();
        assert_eq!(complete(|| soft.read_link(&identity)).await.unwrap(), b"directory/file");
        assert_eq!(complete(|| root.lookup(b"gone")).await.err(), Some(Errno::ENOENT));
        complete(|| directory.read_directory(0, &mut |_| false)).await.unwrap();
        assert_eq!(names(&directory).len(), 303);
        let old = complete(|| root.lookup(b"pipe")).await.unwrap();
        assert_eq!(old.kind(), NodeKind::Fifo);
        complete(|| {
            let flags = abi::fs::RenameFlags::empty();
            root.rename(b"twin", file.id(), &directory, b"pair", None, flags)
        })
        .await
        .unwrap();
        complete(|| file.truncate(10)).await.unwrap();
        assert_eq!(read(&file, 0, 100).await, &long[..10]);
        drop((root, directory, file, sparse, soft, old));
        complete(|| file_system.close()).await.unwrap();
    });
    check(path, &disk);
}

#[test]
fn a_full_disk_says_so_and_stays_whole() {
    let path = image("full", 8);
    let disk = disk_of(&path);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let file = make(&root, "large", NewContent::Regular).await;
        let piece = vec![7; 256 << 10];
        let mut error = None;
        for index in 0..64 {
            let mut source = piece.as_slice();
            let result = complete(|| file.write_at(index * (256 << 10), &mut source)).await;
            if let Err(reason) = result {
                error = Some(reason);
                break;
            }
        }
        assert_eq!(error, Some(Errno::ENOSPC));
        let _ = complete(|| file.sync()).await;
        complete(|| root.unlink(b"large", file.id())).await.unwrap();
        drop(file);
        let file = make(&root, "small", NewContent::Regular).await;
        write(&file, 0, b"fits").await;
        complete(|| file.sync()).await.unwrap();
        drop((root, file));
        complete(|| file_system.close()).await.unwrap();
    });
    check(path, &disk);
}

#[test]
fn a_disk_that_fails_is_an_error_of_fsync() {
    let path = image("failing", 16);
    let disk = disk_of(&path);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let file = make(&root, "file", NewContent::Regular).await;
        complete(|| file.sync()).await.unwrap();
        *disk.writes_left.lock().unwrap() = 0;
        write(&file, 0, b"lost").await;
        assert_eq!(complete(|| file.sync()).await, Err(Errno::EIO));
        // Every description that was there is told.
        let lost = file.lost_write().unwrap();
        assert_eq!((lost.count, lost.error), (1, Errno::EIO));
        drop((root, file));
        assert!(complete(|| file_system.close()).await.is_err());
    });
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_directory_that_was_synced_has_its_names_after_a_power_cut() {
    let path = image("synced", 16);
    let disk = disk_of(&path);
    std::fs::remove_file(path).unwrap();
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let file = make(&root, "old", NewContent::Regular).await;
        let flags = abi::fs::RenameFlags::empty();
        complete(|| root.rename(b"old", file.id(), &root, b"new", None, flags)).await.unwrap();
        complete(|| root.sync()).await.unwrap();
        let cut = MemoryDisk::new(disk.bytes.lock().unwrap().clone());
        let after = mounted(&cut).await;
        let found = after.root();
        assert!(complete(|| found.lookup(b"new")).await.is_ok());
        assert_eq!(complete(|| found.lookup(b"old")).await.err(), Some(Errno::ENOENT));
        drop(found);
        complete(|| after.close()).await.unwrap();
        drop((root, file));
        complete(|| file_system.close()).await.unwrap();
    });
}

#[test]
fn what_is_no_ext4_is_refused() {
    let disk = MemoryDisk::new(vec![0xa5; 4 << 20]);
    block_on_host(async {
        let device = BlockDevice::new(0, disk.clone(), options());
        let result = RemoteFs::mount_ext4(device, false, options()).await;
        assert_eq!(result.err(), Some(Errno::EINVAL));
    });
}

/// Reads and changes whatever can be found; errors are welcome.
async fn explore(file_system: &Arc<dyn FileSystem>) {
    let mut found = vec![file_system.root()];
    let mut seen = 0;
    while let Some(inode) = found.pop() {
        seen += 1;
        if seen > 50 {
            break;
        }
        match inode.kind() {
            NodeKind::Directory => {
                let mut names = Vec::new();
                let read = complete(|| {
                    names.clear();
                    inode.read_directory(0, &mut |entry: DirectoryEntry<'_>| {
                        names.push(entry.name.to_vec());
                        names.len() < 100
                    })
                });
                let _ = read.await;
                for name in names.iter().filter(|name| *name != b"." && *name != b"..") {
                    found.extend(complete(|| inode.lookup(name)).await);
                }
                let new = NewNode { content: NewContent::Regular, mode: 0o644, user: 0, group: 0 };
                if let Ok(file) = complete(|| inode.create(b"new", &new)).await {
                    let _ = complete(|| file.write_at(5000, &mut b"text".as_slice())).await;
                    let _ = complete(|| file.sync()).await;
                    let _ = complete(|| inode.unlink(b"new", file.id())).await;
                }
            }
            NodeKind::Regular => {
                let mut bytes = vec![0; 100_000];
                let _ = complete(|| inode.read_at(0, &mut bytes.as_mut_slice())).await;
                let _ = complete(|| inode.truncate(10)).await;
            }
            NodeKind::Symlink => {
                let identity = crate::Identity::kernel();
                let _ = complete(|| inode.read_link(&identity)).await;
            }
            _ => {}
        }
    }
}

#[test]
fn noise_in_the_metadata_is_an_error_at_worst() {
    let path = image("noise", 4);
    survives_noise(path, 20);
}

#[test]
fn noise_that_no_sum_reveals_is_an_error_at_worst() {
    // What an enemy writes has the right sums; here there are none.
    let path = image_with("unsummed", 4, &["-O", "^metadata_csum"]);
    survives_noise(path, 60);
}

fn survives_noise(path: PathBuf, rounds: u64) {
    let disk = disk_of(&path);
    std::fs::remove_file(path).unwrap();
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let directory = make(&root, "directory", NewContent::Directory).await;
        for index in 0..20 {
            let file = make(&directory, &format!("file-{index}"), NewContent::Regular).await;
            write(&file, index * 3000, &[index as u8; 5000]).await;
        }
        make(&root, "link", NewContent::Symlink(&[b'x'; 100])).await;
        drop((root, directory));
        complete(|| file_system.close()).await.unwrap();
    });
    let whole = disk.bytes.lock().unwrap().clone();
    let mut state = 1_u64;
    let mut random = move |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (state >> 33) % limit
    };
    // Superblock, descriptors, inodes, directories, journal: where there is something at all.
    let written: Vec<usize> = (1024..whole.len()).filter(|&at| whole[at] != 0).collect();
    for round in 0..rounds {
        let mut bytes = whole.clone();
        for _ in 0..1 + round * 2 {
            let place = match random(3) {
                0 => 1024 + random(600 << 10) as usize,
                1 => 1024 + random(1024) as usize,
                _ => written[random(written.len() as u64) as usize],
            };
            bytes[place] = match random(3) {
                0 => 0xff,
                1 => bytes[place] ^ (1 << random(8)),
                _ => random(256) as u8,
            };
        }
        let disk = MemoryDisk::new(bytes);
        block_on_host(async {
            let device = BlockDevice::new(0, disk.clone(), options());
            let mounted = RemoteFs::mount_ext4(device, false, options()).await;
            if let Ok(file_system) = mounted {
                explore(&file_system).await;
                let _ = complete(|| file_system.close()).await;
            }
        });
    }
}

/// A transaction gathers many operations: neither a flush nor a request for each block of metadata per file.
#[test]
fn small_files_share_transactions() {
    const FILES: u64 = 200;
    let path = image_with("small", 64, &["-b", "4096"]);
    let disk = disk_of(&path);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let (writes, flushes) = disk.counts();
        for index in 0..FILES {
            let file = make(&root, &format!("file-{index}"), NewContent::Regular).await;
            write(&file, 0, &[7; 1024]).await;
        }
        complete(|| root.sync()).await.unwrap();
        let (writes_after, flushes_after) = disk.counts();
        assert!(writes_after - writes < FILES * 2, "{} writes", writes_after - writes);
        assert!(flushes_after - flushes < FILES / 4, "{} flushes", flushes_after - flushes);
        drop(root);
        complete(|| file_system.close()).await.unwrap();
    });
    check(path, &disk);
}

/// A directory whose blocks lie in many places, and inodes in groups that `mke2fs` left uninitialised: `e2fsck` finds the
/// blocks counted and the bitmaps padded. Its changes come in transactions of a limited size.
#[test]
fn a_scattered_directory_over_many_groups_is_whole() {
    const ENTRIES: usize = 1200;
    // 512 inodes in each of eight groups.
    let path = image_with("scattered", 64, &["-b", "1024", "-N", "4096"]);
    let name = |index: usize| format!("an-entry-with-a-rather-long-name-{index:05}");
    let disk = disk_of(&path);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let directory = make(&root, "directory", NewContent::Directory).await;
        let (_, flushes) = disk.counts();
        for index in 0..ENTRIES {
            let file = make(&directory, &name(index), NewContent::Regular).await;
            if index % 8 == 0 {
                write(&file, 0, b"between blocks of the directory").await;
            }
        }
        // Each transaction has some dozens of changes.
        let flushes = disk.counts().1 - flushes;
        assert!((4..ENTRIES as u64 / 2).contains(&flushes), "{flushes} flushes");
        // The power is cut here, and the journal replayed.
        let cut = MemoryDisk::new(disk.content());
        let after = mounted(&cut).await;
        let found = after.root();
        let kept = complete(|| found.lookup(b"directory")).await.unwrap();
        assert!(complete(|| kept.lookup(name(0).as_bytes())).await.is_ok());
        drop((found, kept));
        complete(|| after.close()).await.unwrap();
        check(path.with_extension("cut"), &cut);
        drop((root, directory));
        complete(|| file_system.close()).await.unwrap();
    });
    check(path.with_extension("full"), &disk);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let directory = complete(|| root.lookup(b"directory")).await.unwrap();
        assert_eq!(complete(|| directory.lookup(b"an-entry")).await.err(), Some(Errno::ENOENT));
        for index in (0..ENTRIES).rev() {
            let name = name(index);
            let entry = complete(|| directory.lookup(name.as_bytes())).await.unwrap();
            complete(|| directory.unlink(name.as_bytes(), entry.id())).await.unwrap();
        }
        complete(|| root.remove_directory(b"directory", directory.id())).await.unwrap();
        drop((root, directory));
        complete(|| file_system.close()).await.unwrap();
    });
    check(path, &disk);
}

/// A directory with an index of hashes, which `e2fsck` looks at full and empty.
#[test]
fn a_large_directory_is_whole_full_and_empty() {
    const ENTRIES: usize = 1500;
    let path = image_with("large", 64, &["-b", "1024"]);
    let name = |index: usize| format!("an-entry-with-a-rather-long-name-{index:05}");
    let disk = disk_of(&path);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        for index in 0..ENTRIES {
            make(&root, &name(index), NewContent::Fifo).await;
        }
        drop(root);
        complete(|| file_system.close()).await.unwrap();
    });
    check(path.with_extension("full"), &disk);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        complete(|| root.read_directory(0, &mut |_| false)).await.unwrap();
        let mut listed = names(&root);
        listed.retain(|listed| listed.starts_with("an-entry"));
        assert_eq!(listed.len(), ENTRIES);
        for (index, listed) in listed.iter().enumerate() {
            assert_eq!(*listed, name(index));
            let entry = complete(|| root.lookup(listed.as_bytes())).await.unwrap();
            complete(|| root.unlink(listed.as_bytes(), entry.id())).await.unwrap();
        }
        drop(root);
        complete(|| file_system.close()).await.unwrap();
    });
    check(path, &disk);
}
