//! Archives that are as they should be, and archives that are not.

use super::*;
use crate::inode::FileSystem;
use crate::mount::Mount;
use crate::tmpfs::{Options, TmpFs};
use proptest::prelude::*;

/// An entry to be packed.
#[derive(Clone, Debug)]
struct Packed {
    name: Vec<u8>,
    mode: u32,
    inode: u32,
    links: u32,
    data: Vec<u8>,
}

fn packed(name: &str, mode: u32, data: &[u8]) -> Packed {
    Packed { name: name.as_bytes().to_vec(), mode, inode: 0, links: 1, data: data.to_vec() }
}

fn append(archive: &mut Vec<u8>, entry: &Packed) {
    let fields = [
        entry.inode,
        entry.mode,
        1,
        2,
        entry.links,
        1_000_000,
        entry.data.len() as u32,
        0,
        0,
        1,
        3,
        entry.name.len() as u32 + 1,
        0,
    ];
    archive.extend_from_slice(b"070701");
    for field in fields {
        archive.extend_from_slice(format!("{field:08X}").as_bytes());
    }
    archive.extend_from_slice(&entry.name);
    archive.push(0);
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend_from_slice(&entry.data);
    archive.resize(archive.len().next_multiple_of(4), 0);
}

fn archive(entries: &[Packed]) -> Vec<u8> {
    let mut archive = Vec::new();
    for entry in entries {
        append(&mut archive, entry);
    }
    append(&mut archive, &packed("TRAILER!!!", 0, b""));
    archive.resize(archive.len().next_multiple_of(512), 0);
    archive
}

fn root() -> Location {
    let options = Options { pages: Some(1000), nodes: Some(1000), ..Options::default() };
    let file_system: Arc<dyn FileSystem> = TmpFs::new(&options).unwrap();
    Location::root_of(&Mount::detached(file_system, "test", 0))
}

/// Unpacks bytes that live as long as the test process does.
fn unpack_bytes(bytes: Vec<u8>) -> (Location, Result<Unpacked, Errno>) {
    let root = root();
    let result = unpack(bytes.leak(), &root);
    (root, result)
}

fn find(root: &Location, path: &str) -> Result<Arc<dyn Inode>, Errno> {
    let identity = Identity::kernel();
    let lookup = Lookup { root, start: root, identity: &identity };
    resolve(lookup, path.as_bytes(), false).map(|location| location.inode)
}

fn content(inode: &Arc<dyn Inode>) -> Vec<u8> {
    let mut buffer = vec![0; 100_000];
    let mut sink: &mut [u8] = &mut buffer;
    let count = inode.read_at(0, &mut sink).unwrap();
    buffer.truncate(count);
    buffer
}

#[test]
fn a_tree_comes_out_as_it_went_in() {
    let (root, result) = unpack_bytes(archive(&[
        packed(".", 0o040_700, b""),
        packed("bin", 0o040_755, b""),
        packed("./bin/tool", 0o104_755, &[7; 5000]),
        packed("/bin/sh", 0o120_777, b"tool"),
        packed("null", 0o020_666, b""),
        packed("deep/er/file", 0o100_600, b"x"),
    ]));
    assert_eq!(result, Ok(Unpacked { entries: 6, bytes: 5005 }));
    let tool = find(&root, "/bin/tool").unwrap();
    assert_eq!(content(&tool), [7; 5000]);
    let metadata = tool.metadata();
    assert_eq!((metadata.permissions.mode, metadata.permissions.user), (0o4755, 1));
    assert_eq!(metadata.modified.seconds, 1_000_000);
    assert_eq!(find(&root, "bin").unwrap().metadata().modified.seconds, 1_000_000);
    assert_eq!(root.inode.metadata().permissions.mode, 0o700);
    let link = find(&root, "bin/sh").unwrap();
    assert_eq!(link.read_link(&Identity::kernel()).unwrap(), b"tool");
    assert_eq!(find(&root, "null").unwrap().metadata().represented_device, make_device(1, 3));
    assert_eq!(content(&find(&root, "deep/er/file").unwrap()), b"x");
}

#[test]
fn archives_may_follow_one_another_and_replace_files() {
    let mut bytes = archive(&[packed("file", 0o100_644, b"old"), packed("gone", 0o100_644, b"")]);
    bytes.extend(archive(&[packed("file", 0o100_644, b"new"), packed("gone", 0o040_755, b"")]));
    let (root, result) = unpack_bytes(bytes);
    assert!(result.is_ok());
    assert_eq!(content(&find(&root, "file").unwrap()), b"new");
    assert_eq!(find(&root, "gone").unwrap().kind(), NodeKind::Directory);
}

#[test]
fn hard_links_share_the_data_of_the_last() {
    let one =
        |name: &str, data: &[u8]| Packed { inode: 9, links: 2, ..packed(name, 0o100_644, data) };
    let (root, result) = unpack_bytes(archive(&[one("a", b""), one("b", b"data")]));
    assert!(result.is_ok());
    let (a, b) = (find(&root, "a").unwrap(), find(&root, "b").unwrap());
    assert_eq!((a.id(), a.metadata().links), (b.id(), 2));
    assert_eq!(content(&a), b"data");
}

#[test]
fn names_do_not_lead_out_of_the_tree() {
    let (root, result) = unpack_bytes(archive(&[packed("../../etc", 0o100_644, b"x")]));
    assert!(result.is_ok());
    assert!(find(&root, "etc").is_ok());
}

#[test]
fn nothing_at_all_is_an_empty_tree() {
    assert_eq!(unpack_bytes(Vec::new()).1, Ok(Unpacked::default()));
    assert_eq!(unpack_bytes(vec![0; 1000]).1, Ok(Unpacked::default()));
}

#[test]
fn damage_is_an_error() {
    let good = archive(&[packed("file", 0o100_644, &[1; 1000])]);
    let mut wrong_magic = good.clone();
    wrong_magic[5] = b'9';
    let mut wrong_digit = good.clone();
    wrong_digit[20] = b'x';
    let mut huge = good.clone();
    huge[54..62].copy_from_slice(b"FFFFFFFF");
    let mut no_name = good.clone();
    no_name[94..102].copy_from_slice(b"00000000");
    let mut long_name = good.clone();
    long_name[94..102].copy_from_slice(b"00FFFFFF");
    let cut = good[..500].to_vec();
    for bytes in [wrong_magic, wrong_digit, huge, no_name, long_name, cut, b"\x1f\x8b\x08".to_vec()]
    {
        assert_eq!(unpack_bytes(bytes).1, Err(Errno::EIO));
    }
    let unknown_kind = archive(&[packed("file", 0o030_644, b"")]);
    assert_eq!(unpack_bytes(unknown_kind).1, Err(Errno::EIO));
}

fn any_entry() -> impl Strategy<Value = Packed> {
    let name = "[a-c/.]{1,12}";
    let kind = prop_oneof![
        Just(0o040_755u32),
        Just(0o100_644),
        Just(0o120_777),
        Just(0o010_644),
        Just(0o020_600)
    ];
    let data = proptest::collection::vec(any::<u8>(), 0..40);
    (name, kind, data, 0..3u32, 1..3u32).prop_map(|(name, mode, data, inode, links)| {
        // A link target without NULs, as archives have them.
        let data = if mode == 0o120_777 { b"../a".to_vec() } else { data };
        Packed { inode, links, ..packed(&name, mode, &data) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_list_of_entries_gives_a_tree_or_an_error(
        entries in proptest::collection::vec(any_entry(), 0..12),
    ) {
        let (_, result) = unpack_bytes(archive(&entries));
        prop_assert!(matches!(result, Ok(_) | Err(Errno::EIO)), "{result:?}");
    }

    #[test]
    fn a_damaged_archive_gives_a_tree_or_an_error(
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        end in any::<proptest::sample::Index>(),
    ) {
        let mut bytes = archive(&[
            packed("dir", 0o040_755, b""),
            packed("dir/file", 0o100_644, &[1; 300]),
            packed("link", 0o120_777, b"dir/file"),
        ]);
        for (index, value) in flips {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        bytes.truncate(end.index(bytes.len()) + 1);
        let (_, result) = unpack_bytes(bytes);
        prop_assert!(matches!(result, Ok(_) | Err(Errno::EIO)), "{result:?}");
    }

    #[test]
    fn bytes_that_are_no_archive_give_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 1..300),
    ) {
        let is_blank = bytes.iter().all(|&byte| byte == 0);
        prop_assert_eq!(unpack_bytes(bytes).1.is_ok(), is_blank);
    }
}
