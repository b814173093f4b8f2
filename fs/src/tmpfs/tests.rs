//! tmpfs through its own interface: content, limits, directories, renames.

use super::*;
use crate::inode::AttributeChange;
use crate::metadata::NodeKind;
use abi::fs::{AllocateFlags, RenameFlags};
use base::io::{Sink, Source};
use base::memory::Frame;

fn file_system(pages: u64, nodes: u64) -> Arc<TmpFs> {
    let options = Options { pages: Some(pages), nodes: Some(nodes), ..Options::default() };
    TmpFs::new(&options).unwrap()
}

fn new(content: NewContent<'_>) -> NewNode<'_> {
    NewNode { content, mode: 0o644, user: 0, group: 0 }
}

fn regular(directory: &Arc<dyn Inode>, name: &str) -> Arc<dyn Inode> {
    directory.create(name.as_bytes(), &new(NewContent::Regular)).unwrap()
}

fn directory(parent: &Arc<dyn Inode>, name: &str) -> Arc<dyn Inode> {
    parent.create(name.as_bytes(), &new(NewContent::Directory)).unwrap()
}

fn write(inode: &Arc<dyn Inode>, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
    let mut source = bytes;
    inode.write_at(offset, &mut source)
}

fn read(inode: &Arc<dyn Inode>, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0xaa; length];
    let mut sink: &mut [u8] = &mut buffer;
    let count = inode.read_at(offset, &mut sink).unwrap();
    buffer.truncate(count);
    buffer
}

fn names(directory: &Arc<dyn Inode>) -> Vec<String> {
    let mut names = Vec::new();
    let mut emit = |entry: crate::inode::DirectoryEntry<'_>| {
        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        true
    };
    directory.read_directory(0, &mut emit).unwrap();
    names
}

fn rename(
    from: &Arc<dyn Inode>,
    old: &str,
    to: &Arc<dyn Inode>,
    new: &str,
    flags: RenameFlags,
) -> Result<(), Errno> {
    let moved = from.lookup(old.as_bytes())?.id();
    let replaced = to.lookup(new.as_bytes()).ok().map(|inode| inode.id());
    from.rename(old.as_bytes(), moved, to, new.as_bytes(), replaced, flags)
}

const PLAIN: RenameFlags = RenameFlags::empty();

#[test]
fn bytes_come_back_and_holes_are_zeros() {
    let root = file_system(100, 100).root();
    let file = regular(&root, "file");
    assert_eq!(write(&file, 10_000, b"end"), Ok(3));
    assert_eq!(file.metadata().size, 10_003);
    assert_eq!(read(&file, 9_998, 100), b"\0\0end");
    assert_eq!(read(&file, 0, 5000), vec![0; 5000]);
    assert_eq!(read(&file, 10_003, 10), b"");
    assert_eq!(file.metadata().blocks, 8, "only the page that was written is there");
}

#[test]
fn what_is_cut_off_reads_as_zeros_when_the_file_grows_again() {
    let root = file_system(100, 100).root();
    let file = regular(&root, "file");
    write(&file, 0, &[7; 6000]).unwrap();
    file.truncate(100).unwrap();
    file.truncate(6000).unwrap();
    let content = read(&file, 0, 6000);
    assert_eq!(content[..100], [7; 100]);
    assert!(content[100..].iter().all(|&byte| byte == 0));
}

#[test]
fn borrowed_content_is_copied_only_where_it_changes() {
    static ARCHIVE: [u8; 9000] = [3; 9000];
    let file_system = file_system(100, 100);
    let file = regular(&file_system.root(), "file");
    let node = file.as_any().downcast_ref::<Node>().unwrap();
    node.borrow_content(&ARCHIVE).unwrap();
    assert_eq!(read(&file, 0, 10_000), ARCHIVE);
    assert_eq!(file_system.shared.used_pages.load(Ordering::Relaxed), 0);
    write(&file, 5000, b"x").unwrap();
    assert_eq!(file_system.shared.used_pages.load(Ordering::Relaxed), 1);
    let mut expected = ARCHIVE.to_vec();
    expected[5000] = b'x';
    assert_eq!(read(&file, 0, 10_000), expected);
    // The last page is short in the archive; as a frame it ends with zeros.
    let frame = file.page(2).unwrap();
    let mut page = [1; 4096];
    frame.read(0, &mut page);
    assert_eq!((page[..808].to_vec(), page[808]), (vec![3; 808], 0));
    file.truncate(4096).unwrap();
    file.truncate(9000).unwrap();
    assert!(read(&file, 4096, 5000).iter().all(|&byte| byte == 0));
}

#[test]
fn a_mapped_page_and_the_file_are_the_same_memory() {
    let root = file_system(100, 100).root();
    let file = regular(&root, "file");
    write(&file, 0, b"one").unwrap();
    let frame: Frame = file.page(0).unwrap();
    frame.write(0, b"two");
    assert_eq!(read(&file, 0, 3), b"two");
    write(&file, 0, b"six").unwrap();
    let mut bytes = [0; 3];
    frame.read(0, &mut bytes);
    assert_eq!(&bytes, b"six");
    assert_eq!(file.page(1).err(), Some(Errno::EFAULT), "past the end");
}

#[test]
fn limits_are_kept_and_given_back() {
    let file_system = file_system(2, 3);
    let root = file_system.root();
    let file = regular(&root, "file");
    assert_eq!(write(&file, 0, &[1; 10_000]), Ok(8192), "a short write up to the limit");
    assert_eq!(write(&file, 8192, b"x"), Err(Errno::ENOSPC));
    file.truncate(0).unwrap();
    assert_eq!(write(&file, 0, &[1; 8192]), Ok(8192));
    let second = regular(&root, "second");
    assert_eq!(root.create(b"third", &new(NewContent::Regular)).err(), Some(Errno::ENOSPC));
    root.unlink(b"second", second.id()).unwrap();
    drop(second);
    root.unlink(b"file", file.id()).unwrap();
    assert_eq!(read(&file, 0, 1), [1], "an open file lives on without a name");
    drop(file);
    let free = file_system.statistics();
    assert_eq!((free.free_blocks, free.free_inodes), (2, 2));
}

/// Gives some bytes and then stops, as a source does at a page that is missing.
struct Stopping<'a>(&'a [u8], usize);

impl Source for Stopping<'_> {
    fn read(&mut self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.1);
        self.1 -= count;
        Source::read(&mut self.0, &mut into[..count])
    }

    fn remaining(&self) -> usize {
        self.0.len()
    }
}

#[test]
fn a_source_that_stops_makes_a_short_write_and_no_garbage() {
    let root = file_system(100, 100).root();
    let file = regular(&root, "file");
    assert_eq!(file.write_at(0, &mut Stopping(&[5; 8192], 5000)), Ok(5000));
    assert_eq!(file.metadata().size, 5000);
    file.truncate(8192).unwrap();
    assert!(read(&file, 5000, 8192).iter().all(|&byte| byte == 0));
}

#[test]
fn appends_go_to_the_end() {
    let root = file_system(100, 100).root();
    let file = regular(&root, "file");
    for (text, start) in [(b"ab", 0), (b"cd", 2)] {
        let mut source: &[u8] = text;
        assert_eq!(file.append(&mut source), Ok((start, 2)));
    }
    assert_eq!(read(&file, 0, 10), b"abcd");
}

#[test]
fn punching_and_filling_change_what_is_allocated() {
    let root = file_system(100, 100).root();
    let file = regular(&root, "file");
    write(&file, 0, &[9; 3 * 4096]).unwrap();
    let punch = AllocateFlags::PUNCH_HOLE | AllocateFlags::KEEP_SIZE;
    file.allocate(punch, 4000, 4096 + 96, &mut Vec::new()).unwrap();
    assert_eq!(file.metadata().blocks, 16);
    let content = read(&file, 0, 3 * 4096);
    assert_eq!(content.iter().position(|&byte| byte == 0), Some(4000));
    assert_eq!(content.iter().filter(|&&byte| byte == 0).count(), 4192);
    assert_eq!((file.seek_content(0, true), file.seek_content(4096, false)), (Ok(4096), Ok(8192)));
    assert_eq!(file.seek_content(3 * 4096, false), Err(Errno::ENXIO));
    file.allocate(AllocateFlags::empty(), 0, 20_000, &mut Vec::new()).unwrap();
    assert_eq!((file.metadata().size, file.metadata().blocks), (20_000, 40));
}

#[test]
fn links_count_and_directories_count_their_children() {
    let root = file_system(100, 100).root();
    let file = regular(&root, "file");
    root.link(b"again", &file).unwrap();
    assert_eq!(file.metadata().links, 2);
    root.unlink(b"file", file.id()).unwrap();
    root.unlink(b"again", file.id()).unwrap();
    assert_eq!(file.metadata().links, 0);
    assert_eq!(root.link(b"back", &file), Err(Errno::ENOENT), "what is gone stays gone");
    let child = directory(&root, "child");
    assert_eq!((root.metadata().links, child.metadata().links), (3, 2));
    root.remove_directory(b"child", child.id()).unwrap();
    assert_eq!(root.metadata().links, 2);
    let late = child.create(b"late", &new(NewContent::Regular));
    assert_eq!(late.err(), Some(Errno::ENOENT), "nothing is made in a removed directory");
}

#[test]
fn a_nameless_file_can_get_a_name_once() {
    let root = file_system(100, 100).root();
    let file = root.create_nameless(&new(NewContent::Regular), true).unwrap();
    assert_eq!((file.metadata().links, names(&root).len()), (0, 2));
    root.link(b"named", &file).unwrap();
    assert_eq!(file.metadata().links, 1);
}

#[test]
fn only_empty_directories_are_removed_or_replaced() {
    let root = file_system(100, 100).root();
    let (full, empty) = (directory(&root, "full"), directory(&root, "empty"));
    regular(&full, "inside");
    assert_eq!(root.remove_directory(b"full", full.id()), Err(Errno::ENOTEMPTY));
    assert_eq!(rename(&root, "empty", &root, "full", PLAIN), Err(Errno::ENOTEMPTY));
    assert_eq!(rename(&root, "full", &root, "empty", PLAIN), Ok(()));
    assert_eq!(names(&root), [".", "..", "empty"]);
    assert_eq!(empty.metadata().links, 0);
    assert_eq!(root.metadata().links, 3);
}

#[test]
fn a_directory_does_not_move_into_itself() {
    let root = file_system(100, 100).root();
    let outer = directory(&root, "outer");
    let inner = directory(&outer, "inner");
    assert_eq!(rename(&root, "outer", &inner, "loop", PLAIN), Err(Errno::EINVAL));
    assert_eq!(rename(&root, "outer", &outer, "loop", PLAIN), Err(Errno::EINVAL));
}

#[test]
fn moving_a_directory_moves_its_parent() {
    let root = file_system(100, 100).root();
    let (from, to) = (directory(&root, "from"), directory(&root, "to"));
    let child = directory(&from, "child");
    rename(&from, "child", &to, "other", PLAIN).unwrap();
    assert_eq!(child.parent().unwrap().id(), to.id());
    let place = child.place().unwrap();
    assert_eq!((&*place.name, place.removed), (b"other".as_slice(), false));
    assert_eq!((from.metadata().links, to.metadata().links), (2, 3));
}

#[test]
fn exchange_swaps_a_file_and_a_directory() {
    let root = file_system(100, 100).root();
    let (left, right) = (directory(&root, "left"), directory(&root, "right"));
    let file = regular(&left, "x");
    let inside = directory(&right, "y");
    rename(&left, "x", &right, "y", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(left.lookup(b"x").unwrap().id(), inside.id());
    assert_eq!(right.lookup(b"y").unwrap().id(), file.id());
    assert_eq!((left.metadata().links, right.metadata().links), (3, 2));
}

#[test]
fn a_name_that_changed_meanwhile_is_stale() {
    let root = file_system(100, 100).root();
    let file = regular(&root, "file");
    root.unlink(b"file", file.id()).unwrap();
    regular(&root, "file");
    assert_eq!(root.unlink(b"file", file.id()), Err(Errno::ESTALE));
}

#[test]
fn a_listing_goes_on_where_it_stopped_whatever_happens() {
    let root = file_system(100, 1000).root();
    for index in 0..50 {
        regular(&root, &format!("file{index}"));
    }
    let mut seen = Vec::new();
    let mut cursor = 0;
    loop {
        let (before, start) = (seen.len(), cursor);
        let mut emit = |entry: crate::inode::DirectoryEntry<'_>| {
            if seen.len() == before + 7 {
                return false;
            }
            seen.push(String::from_utf8(entry.name.to_vec()).unwrap());
            cursor = entry.next;
            true
        };
        root.read_directory(start, &mut emit).unwrap();
        if seen.len() == before {
            break;
        }
        // Remove what has been seen and add something new.
        for name in &seen[before..] {
            if let Ok(inode) = root.lookup(name.as_bytes())
                && name.starts_with("file")
            {
                root.unlink(name.as_bytes(), inode.id()).unwrap();
            }
        }
        if before == 0 {
            regular(&root, "added");
        }
    }
    let files = seen.iter().filter(|name| name.starts_with("file")).count();
    let unique: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!((files, unique.len()), (50, seen.len()));
}

#[test]
fn sealed_files_refuse() {
    let file_system = file_system(100, 100);
    let label = String::from("/memfd:x (deleted)");
    let file = file_system.memory_file(label, Seals::empty(), 0o777, 0, 0).unwrap();
    write(&file, 0, b"data").unwrap();
    file.add_seals(Seals::SHRINK | Seals::GROW).unwrap();
    assert_eq!(file.truncate(2), Err(Errno::EPERM));
    assert_eq!(file.truncate(10), Err(Errno::EPERM));
    assert_eq!(write(&file, 2, b"xyz"), Err(Errno::EPERM));
    assert_eq!(write(&file, 0, b"atad"), Ok(4));
    file.add_seals(Seals::WRITE | Seals::SEAL).unwrap();
    assert_eq!(write(&file, 0, b"x"), Err(Errno::EPERM));
    assert_eq!(file.add_seals(Seals::EXEC), Err(Errno::EPERM));
    let plain = regular(&file_system.root(), "plain");
    assert_eq!(plain.seals(), Some(Seals::SEAL));
}

#[test]
fn attributes_change_and_the_change_time_with_them() {
    let root = file_system(100, 100).root();
    let file = regular(&root, "file");
    let before = file.metadata();
    let change =
        AttributeChange { mode: Some(0o4755), user: Some(7), ..AttributeChange::default() };
    file.set_attributes(&change).unwrap();
    let after = file.metadata();
    assert_eq!((after.permissions.mode, after.permissions.user), (0o4755, 7));
    assert_eq!(after.permissions.group, before.permissions.group);
    assert!(after.changed >= before.changed);
    assert_eq!(after.kind, NodeKind::Regular);
}

#[test]
fn options_are_understood_or_refused() {
    let options = Options::parse("size=1m,mode=700,uid=5,gid=6,nr_inodes=9").unwrap();
    assert_eq!((options.pages, options.nodes), (Some(256), Some(9)));
    assert_eq!((options.mode, options.user, options.group), (0o700, 5, 6));
    for bad in ["size=x", "size=99999999999999999999", "mode=9", "colour=red", "size=16777216t"] {
        assert_eq!(Options::parse(bad).err(), Some(Errno::EINVAL), "{bad}");
    }
}

/// A sink that takes a few bytes at a time.
struct Small(Vec<u8>, usize);

impl Sink for Small {
    fn write(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.1);
        self.0.extend_from_slice(&bytes[..count]);
        self.1 -= count;
        count
    }

    fn remaining(&self) -> usize {
        100_000 - self.0.len()
    }
}

#[test]
fn a_sink_that_stops_makes_a_short_read() {
    let root = file_system(100, 100).root();
    let file = regular(&root, "file");
    write(&file, 0, &[1; 10_000]).unwrap();
    let mut sink = Small(Vec::new(), 5000);
    assert_eq!(file.read_at(0, &mut sink), Ok(5000));
}

#[test]
fn the_newest_entry_comes_first() {
    let root = file_system(100, 100).root();
    for name in ["a", "b", "c"] {
        regular(&root, name);
    }
    let b = root.lookup(b"b").unwrap();
    root.unlink(b"b", b.id()).unwrap();
    regular(&root, "b");
    assert_eq!(names(&root), [".", "..", "b", "c", "a"]);
}

/// Waits until nothing is left: a thread of another test may be the one that frees it.
fn becomes_empty(shared: &Shared) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let nodes = shared.used_nodes.load(Ordering::Relaxed);
        let pages = shared.used_pages.load(Ordering::Relaxed);
        if (nodes, pages) == (0, 0) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{nodes} nodes and {pages} pages are left");
        std::thread::yield_now();
    }
}

#[test]
fn a_deep_tree_ends_without_recursion() {
    let fs = file_system(1000, 100_000);
    let shared = fs.shared.clone();
    let mut here = fs.root();
    for _ in 0..20_000 {
        here = directory(&here, "d");
    }
    regular(&here, "f");
    drop(here);
    drop(fs);
    becomes_empty(&shared);
}

#[test]
fn a_wide_tree_and_a_large_file_end_whole() {
    let fs = file_system(10_000, 10_000);
    let shared = fs.shared.clone();
    let root = fs.root();
    for index in 0..2000 {
        regular(&directory(&root, &format!("d{index}")), "f");
    }
    let file = regular(&root, "large");
    let (mut at, end) = (0, 2000 * PAGE_SIZE as u64);
    while at < end {
        at += file.allocate(AllocateFlags::empty(), at, end - at, &mut Vec::new()).unwrap();
    }
    drop(file);
    drop(root);
    drop(fs);
    becomes_empty(&shared);
}

#[test]
fn what_has_no_room_changes_nothing_and_holes_cost_nothing() {
    let fs = file_system(100, 10);
    let file = regular(&fs.root(), "f");
    let page = PAGE_SIZE as u64;
    assert_eq!(
        file.allocate(AllocateFlags::empty(), 0, 200 * page, &mut Vec::new()),
        Err(Errno::ENOSPC)
    );
    assert_eq!((file.metadata().blocks, file.metadata().size), (0, 0));
    assert_eq!(write(&file, 1 << 40, b"end"), Ok(3));
    assert_eq!(write(&file, 5 * page, b"begin"), Ok(5));
    let punch = AllocateFlags::PUNCH_HOLE | AllocateFlags::KEEP_SIZE;
    assert_eq!(file.allocate(punch, 0, 1 << 41, &mut Vec::new()), Ok(1 << 41));
    assert_eq!((file.metadata().blocks, file.metadata().size), (0, (1 << 40) + 3));
}

#[test]
fn an_allocation_that_fails_midway_is_undone_and_keeps_what_was_written_meanwhile() {
    let fs = file_system(1000, 10);
    let (file, other) = (regular(&fs.root(), "f"), regular(&fs.root(), "other"));
    let page = PAGE_SIZE as u64;
    assert_eq!(write(&file, 10 * page, b"before"), Ok(6));
    let size = file.metadata().size;
    let mut made = Vec::new();
    let end = 800 * page;
    let at = file.allocate(AllocateFlags::empty(), 0, end, &mut made).unwrap();
    // The size grows with the last piece only.
    assert!(at < end && file.metadata().size == size);
    assert_eq!(write(&file, 20 * page, b"meanwhile"), Ok(9));
    // Somebody else takes the room.
    let mut taken = 0;
    while taken < 600 * page {
        taken += other
            .allocate(AllocateFlags::empty(), taken, 600 * page - taken, &mut Vec::new())
            .unwrap();
    }
    assert_eq!(file.allocate(AllocateFlags::empty(), at, end - at, &mut made), Err(Errno::ENOSPC));
    assert_eq!(made.first(), Some(&(0..10)));
    made.into_iter().for_each(|range| file.give_back(range));
    assert_eq!(file.metadata().blocks, 2 * page / 512);
    assert_eq!(read(&file, 20 * page, 9), b"meanwhile");
}
