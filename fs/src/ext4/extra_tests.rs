//! Extended attributes, ranges, holes, files without names and pages of mappings, on an image that `e2fsck`
//! has the last word on.

use super::tests::{check, disk_of, image, make, mounted, names, read, write};
use crate::file::{DirectFile, File, Transfer};
use crate::inode::{AttributeChange, ExtendedAttributes, Inode, NewContent, NewNode};
use crate::metadata::{NodeKind, Timestamp};
use crate::pending::complete;
use abi::Errno;
use abi::fs::{AllocateFlags, RenameFlags, XattrFlags};
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::task::block_on_host;
use std::vec;

fn store(inode: &Arc<dyn Inode>) -> &dyn ExtendedAttributes {
    inode.extended().unwrap()
}

async fn set(
    inode: &Arc<dyn Inode>,
    name: &str,
    value: Option<&[u8]>,
    flags: u32,
) -> Result<(), Errno> {
    let flags = XattrFlags::from_bits(flags).unwrap();
    complete(|| store(inode).set(name.as_bytes(), value, flags)).await
}

async fn get(inode: &Arc<dyn Inode>, name: &str) -> Result<Vec<u8>, Errno> {
    complete(|| store(inode).get(name.as_bytes())).await.map(|value| value.to_vec())
}

async fn listed(inode: &Arc<dyn Inode>) -> usize {
    let mut count = 0;
    complete(|| {
        count = 0;
        store(inode).for_each_name(&mut |_| count += 1)
    })
    .await
    .unwrap();
    count
}

#[test]
fn extended_attributes_are_kept_in_the_inode_and_in_a_block() {
    let path = image("attributes", 16);
    let disk = disk_of(&path);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let file = make(&root, "file", NewContent::Regular).await;
        let directory = make(&root, "directory", NewContent::Directory).await;
        let large = [7; 800];
        assert_eq!(get(&file, "user.small").await, Err(Errno::ENODATA));
        assert_eq!(set(&file, "user.small", Some(b"one"), 0).await, Ok(()));
        assert_eq!(set(&file, "user.small", Some(b"two"), 1).await, Err(Errno::EEXIST));
        assert_eq!(set(&file, "user.small", Some(b"two"), 2).await, Ok(()));
        assert_eq!(set(&file, "user.none", Some(b"two"), 2).await, Err(Errno::ENODATA));
        assert_eq!(set(&file, "trusted.large", Some(&large), 0).await, Ok(()));
        assert_eq!(set(&file, "security.empty", Some(b""), 0).await, Ok(()));
        assert_eq!(set(&directory, "user.of-a-directory", Some(b"x"), 0).await, Ok(()));
        assert_eq!(set(&file, "user.huge", Some(&[1; 5000]), 0).await, Err(Errno::ENOSPC));
        assert_eq!(set(&file, "user.gone", Some(b"x"), 0).await, Ok(()));
        assert_eq!(set(&file, "user.gone", None, 2).await, Ok(()));
        assert_eq!(set(&file, "user.gone", None, 2).await, Err(Errno::ENODATA));
        drop((root, file, directory));
        complete(|| file_system.close()).await.unwrap();
        drop(file_system);

        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let file = complete(|| root.lookup(b"file")).await.unwrap();
        assert_eq!(get(&file, "user.small").await, Ok(b"two".to_vec()));
        assert_eq!(get(&file, "trusted.large").await, Ok(large.to_vec()));
        assert_eq!(get(&file, "security.empty").await, Ok(Vec::new()));
        assert_eq!(listed(&file).await, 3);
        complete(|| root.unlink(b"file", file.id())).await.unwrap();
        drop((root, file));
        complete(|| file_system.close()).await.unwrap();
    });
    check(path, &disk);
}

async fn allocate(
    file: &Arc<dyn Inode>,
    flags: AllocateFlags,
    offset: u64,
    length: u64,
) -> Result<u64, Errno> {
    complete(|| file.allocate(flags, offset, length, &mut Vec::new())).await
}

async fn seek(file: &Arc<dyn Inode>, offset: u64, hole: bool) -> Result<u64, Errno> {
    complete(|| file.seek_content(offset, hole)).await
}

#[test]
fn ranges_are_reserved_punched_zeroed_cut_out_and_inserted() {
    const PAGE: u64 = 4096;
    let path = image("ranges", 32);
    let disk = disk_of(&path);
    let mut model: Vec<u8> = (0..40 * PAGE).map(|index| (index / 7 % 251) as u8).collect();
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let file = make(&root, "file", NewContent::Regular).await;
        write(&file, 0, &model).await;
        assert_eq!(seek(&file, 100, true).await, Ok(40 * PAGE));
        let hole = AllocateFlags::PUNCH_HOLE | AllocateFlags::KEEP_SIZE;
        allocate(&file, hole, 3 * PAGE - 5, 4 * PAGE).await.unwrap();
        model[(3 * PAGE - 5) as usize..(7 * PAGE - 5) as usize].fill(0);
        assert_eq!(read(&file, 0, 1 << 20).await, model);
        assert_eq!(seek(&file, 0, true).await, Ok(3 * PAGE));
        let data = seek(&file, 3 * PAGE, false).await.unwrap();
        assert!((6 * PAGE..7 * PAGE).contains(&data));
        allocate(&file, AllocateFlags::ZERO_RANGE, 10 * PAGE + 1, 2 * PAGE).await.unwrap();
        model[(10 * PAGE + 1) as usize..(12 * PAGE + 1) as usize].fill(0);
        assert_eq!(read(&file, 0, 1 << 20).await, model);
        allocate(&file, AllocateFlags::COLLAPSE_RANGE, 4 * PAGE, 4 * PAGE).await.unwrap();
        model.drain((4 * PAGE) as usize..(8 * PAGE) as usize);
        assert_eq!(read(&file, 0, 1 << 20).await, model);
        allocate(&file, AllocateFlags::INSERT_RANGE, 2 * PAGE, PAGE).await.unwrap();
        model.splice((2 * PAGE) as usize..(2 * PAGE) as usize, vec![0; PAGE as usize]);
        assert_eq!(read(&file, 0, 1 << 20).await, model);
        assert_eq!(file.metadata().size, 37 * PAGE);
        let refused = allocate(&file, AllocateFlags::COLLAPSE_RANGE, 100, PAGE).await;
        assert_eq!(refused, Err(Errno::EINVAL));

        let reserved = make(&root, "reserved", NewContent::Regular).await;
        allocate(&reserved, AllocateFlags::KEEP_SIZE, 0, 64 * PAGE).await.unwrap();
        assert_eq!(reserved.metadata().size, 0);
        assert!(reserved.metadata().blocks >= 64 * 8);
        allocate(&reserved, AllocateFlags::empty(), 0, 20 * PAGE).await.unwrap();
        assert_eq!(reserved.metadata().size, 20 * PAGE);
        assert_eq!(seek(&reserved, 0, false).await, Err(Errno::ENXIO));
        write(&reserved, 5 * PAGE, b"data").await;
        assert_eq!(seek(&reserved, 0, false).await, Ok(5 * PAGE));
        let hole = seek(&reserved, 5 * PAGE, true).await.unwrap();
        assert!(hole > 5 * PAGE && hole <= 6 * PAGE);
        let too_much = allocate(&reserved, AllocateFlags::empty(), 0, 1 << 30).await;
        assert_eq!(too_much, Err(Errno::ENOSPC));
        drop((root, file, reserved));
        complete(|| file_system.close()).await.unwrap();
        drop(file_system);
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let file = complete(|| root.lookup(b"file")).await.unwrap();
        assert_eq!(read(&file, 0, 1 << 20).await, model);
        drop((root, file));
        complete(|| file_system.close()).await.unwrap();
    });
    check(path, &disk);
}

async fn nameless(root: &Arc<dyn Inode>, is_linkable: bool) -> Arc<dyn Inode> {
    let new = NewNode { content: NewContent::Regular, mode: 0o600, user: 1, group: 2 };
    complete(|| root.create_nameless(&new, is_linkable)).await.unwrap()
}

#[test]
fn a_file_without_a_name_goes_or_gets_one() {
    let path = image("nameless", 16);
    let disk = disk_of(&path);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let (first, second) = (nameless(&root, true).await, nameless(&root, true).await);
        let third = nameless(&root, false).await;
        for (file, text) in [(&first, b"first"), (&second, b"other"), (&third, b"third")] {
            write(file, 0, text).await;
            complete(|| file.sync()).await.unwrap();
            assert_eq!(file.metadata().links, 0);
        }
        complete(|| root.read_directory(0, &mut |_| true)).await.unwrap();
        assert_eq!(names(&root), [".", "..", "lost+found"]);
        complete(|| root.link(b"named", &first)).await.unwrap();
        assert_eq!(first.metadata().links, 1);
        assert_eq!(complete(|| root.link(b"no", &third)).await, Err(Errno::ENOENT));
        assert_eq!(read(&second, 0, 100).await, b"other");
        drop((first, second));
        let named = complete(|| root.lookup(b"named")).await.unwrap();
        assert_eq!(read(&named, 0, 100).await, b"first");
        drop((root, named));
        // The third is still held.
        complete(|| file_system.close()).await.unwrap();
        drop((file_system, third));
    });
    check(path, &disk);
}

#[test]
fn a_rename_leaves_a_whiteout_or_exchanges() {
    let path = image("whiteout", 16);
    let disk = disk_of(&path);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let file = make(&root, "file", NewContent::Regular).await;
        let directory = make(&root, "directory", NewContent::Directory).await;
        let flags = RenameFlags::WHITEOUT;
        complete(|| root.rename(b"file", file.id(), &directory, b"moved", None, flags))
            .await
            .unwrap();
        let whiteout = complete(|| root.lookup(b"file")).await.unwrap();
        assert_eq!(whiteout.kind(), NodeKind::CharacterDevice);
        assert_eq!(whiteout.metadata().represented_device, 0);
        let (one, other) = (whiteout.id(), directory.id());
        let flags = RenameFlags::EXCHANGE;
        complete(|| root.rename(b"file", one, &root, b"directory", Some(other), flags))
            .await
            .unwrap();
        let now = complete(|| root.lookup(b"file")).await.unwrap();
        assert_eq!(now.id(), other);
        assert!(complete(|| now.lookup(b"moved")).await.is_ok());
        drop((root, file, directory, whiteout, now));
        complete(|| file_system.close()).await.unwrap();
    });
    check(path, &disk);
}

#[test]
fn pages_of_mappings_are_written_back() {
    let path = image("mapped", 16);
    let disk = disk_of(&path);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let file = make(&root, "file", NewContent::Regular).await;
        write(&file, 0, &[b'a'; 10_000]).await;
        complete(|| file.sync()).await.unwrap();
        let before = file.metadata().modified;
        assert!(file.tracks_writes());
        for (index, text) in [(0, b"first"), (2, b"third")] {
            let frame = complete(|| file.page(index)).await.unwrap();
            assert_eq!(complete(|| file.page_written(index, &frame)).await, Ok(true));
            frame.write(100, text);
        }
        assert!(file.metadata().modified > before);
        let other = base::memory::Frame::zeroed().unwrap();
        assert_eq!(complete(|| file.page_written(1, &other)).await, Ok(false));
        assert_eq!(read(&file, 100, 5).await, b"first");
        complete(|| file.sync()).await.unwrap();
        let frame = complete(|| file.page(1)).await.unwrap();
        assert_eq!(complete(|| file.page_written(1, &frame)).await, Ok(true));
        frame.write(0, b"second");
        drop((root, file));
        complete(|| file_system.close()).await.unwrap();
        drop(file_system);

        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let file = complete(|| root.lookup(b"file")).await.unwrap();
        assert_eq!(file.metadata().size, 10_000);
        for (offset, text) in [(100, "first"), (4096, "second"), (8292, "third")] {
            assert_eq!(read(&file, offset, text.len()).await, text.as_bytes());
        }
        drop((root, file));
        complete(|| file_system.close()).await.unwrap();
    });
    check(path, &disk);
}

#[test]
fn who_writes_too_much_waits_and_old_pages_are_written_back() {
    use crate::remote::dirty;
    let path = image("limits", 32);
    let disk = disk_of(&path);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        // Other tests of this process are held up too, and nothing else.
        dirty::BYTES.store(1 << 20, core::sync::atomic::Ordering::Relaxed);
        for index in 0..80 {
            let file = make(&root, &alloc::format!("file{index}"), NewContent::Regular).await;
            write(&file, 0, &vec![index; 150_000]).await;
            let waiting = file_system.cached().writeback;
            assert!(waiting <= (1 << 20) / 4096 + 40, "{waiting} pages wait");
        }
        dirty::BYTES.store(0, core::sync::atomic::Ordering::Relaxed);
        let file = complete(|| root.lookup(b"file79")).await.unwrap();
        assert_eq!(read(&file, 149_990, 100).await, [79; 10]);
        complete(|| file_system.sync()).await.unwrap();
        let frame = complete(|| file.page(0)).await.unwrap();
        assert_eq!(complete(|| file.page_written(0, &frame)).await, Ok(true));
        assert_eq!(file_system.cached().dirty, 1);
        file_system.write_back();
        while file_system.cached().dirty > 0 {
            base::task::yield_now().await;
        }
        drop((root, file));
        complete(|| file_system.close()).await.unwrap();
    });
    check(path, &disk);
}

#[test]
fn times_to_the_nanosecond_survive_another_mount() {
    let path = image("times", 16);
    let disk = disk_of(&path);
    let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
    let mut told = Vec::new();
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let file = make(&root, "file", NewContent::Regular).await;
        let change = AttributeChange {
            accessed: Some(time(1_000_000_000, 123_456_789)),
            modified: Some(time(5_000_000_000, 999_999_999)),
            ..AttributeChange::default()
        };
        complete(|| file.set_attributes(&change)).await.unwrap();
        let metadata = file.metadata();
        assert_eq!(metadata.accessed, time(1_000_000_000, 123_456_789));
        assert_eq!(metadata.modified, time(5_000_000_000, 999_999_999));
        let written = make(&root, "written", NewContent::Regular).await;
        write(&written, 0, b"text").await;
        let before = written.metadata();
        complete(|| written.sync()).await.unwrap();
        assert_eq!(written.metadata().modified, before.modified);
        for file in [&file, &written] {
            let one = file.metadata();
            told.push((one.accessed, one.modified, one.changed, one.born));
        }
        drop((root, file, written));
        complete(|| file_system.close()).await.unwrap();
        drop(file_system);

        let file_system = mounted(&disk).await;
        let root = file_system.root();
        for (name, told) in [("file", told[0]), ("written", told[1])] {
            let file = complete(|| root.lookup(name.as_bytes())).await.unwrap();
            let one = file.metadata();
            assert_eq!((one.accessed, one.modified, one.changed, one.born), told);
        }
        drop(root);
        complete(|| file_system.close()).await.unwrap();
    });
    check(path, &disk);
}

#[test]
fn transfers_past_the_cache_have_to_be_aligned() {
    let path = image("direct", 16);
    let disk = disk_of(&path);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let file = make(&root, "file", NewContent::Regular).await;
        let direct = DirectFile::new(file.clone()).unwrap();
        let block = [7; 1024];
        let put = |offset, length: usize| {
            let (direct, block) = (&direct, &block);
            complete(move || {
                direct.write(offset, &mut block.get(..length).unwrap(), Transfer::PLAIN)
            })
        };
        assert_eq!(put(512, 1024).await, Ok(1024));
        assert_eq!(put(100, 1024).await, Err(Errno::EINVAL));
        assert_eq!(put(512, 1000).await, Err(Errno::EINVAL));
        assert_eq!(read(&file, 512, 2000).await, block);
        drop((root, file, direct));
        complete(|| file_system.close()).await.unwrap();
    });
    check(path, &disk);
}

#[test]
fn cached_pages_are_counted_and_dropped_unless_they_are_dirty() {
    let path = image("dropped", 16);
    let disk = disk_of(&path);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let file = make(&root, "file", NewContent::Regular).await;
        write(&file, 0, &[b'a'; 5 * 4096]).await;
        let frame = complete(|| file.page(1)).await.unwrap();
        complete(|| file.page_written(1, &frame)).await.unwrap();
        frame.write(0, b"dirty");
        drop(frame);
        assert_eq!(read(&file, 0, 5 * 4096).await.len(), 5 * 4096);
        let counts = file_system.cached();
        assert_eq!((counts.pages, counts.dirty), (5, 1));
        let is_cached = |index| {
            let mut frames = [None];
            file.pages_present(index, &mut frames);
            frames[0].is_some()
        };
        file.drop_cached(3..4);
        assert_eq!([0, 1, 2, 3, 4].map(is_cached), [true, true, true, false, true]);
        file_system.drop_cached();
        assert_eq!([0, 1, 2, 3, 4].map(is_cached), [false, true, false, false, false]);
        complete(|| file.sync()).await.unwrap();
        assert_eq!(file_system.cached().dirty, 0);
        file_system.drop_cached();
        assert!(!is_cached(1));
        assert_eq!(read(&file, 4096, 6).await, b"dirtya");
        drop((root, file));
        complete(|| file_system.close()).await.unwrap();
    });
    check(path, &disk);
}

#[test]
fn reserved_blocks_go_with_the_file() {
    let path = image("given-back", 16);
    let disk = disk_of(&path);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let names = ["kept-size", "empty", "whole", "zeroed", "open"];
        let mut files = Vec::new();
        for name in names {
            let file = make(&root, name, NewContent::Regular).await;
            let flags = match name {
                "whole" | "open" => AllocateFlags::empty(),
                "zeroed" => AllocateFlags::ZERO_RANGE,
                _ => AllocateFlags::KEEP_SIZE,
            };
            if name != "empty" {
                write(&file, 0, &[b'x'; 5000]).await;
            }
            allocate(&file, flags, 100, 64 * 4096).await.unwrap();
            files.push(file);
        }
        complete(|| file_system.sync()).await.unwrap();
        for (name, file) in names.iter().zip(&files) {
            complete(|| root.unlink(name.as_bytes(), file.id())).await.unwrap();
        }
        let open = files.pop();
        drop((root, files));
        // One is given back when the mount ends.
        complete(|| file_system.close()).await.unwrap();
        drop(open);
    });
    check(path, &disk);
}
