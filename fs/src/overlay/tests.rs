//! A layer over a tree that is in memory itself, so that its answers come at once.

use super::*;
use crate::identity::Identity;
use crate::inode::AttributeChange;
use crate::metadata::Timestamp;
use crate::pending::complete;
use crate::tmpfs::Options;
use abi::fs::{OpenFlags, RenameFlags};
use base::task::block_on_host;

fn done<R>(operation: impl FnMut() -> Result<R, Errno>) -> Result<R, Errno> {
    block_on_host(complete(operation))
}

fn new(content: NewContent<'_>) -> NewNode<'_> {
    NewNode { content, mode: 0o755, user: 3, group: 4 }
}

fn write(file: &AnyInode, bytes: &[u8]) {
    assert_eq!(done(|| file.write_at(0, &mut &*bytes)), Ok(bytes.len()));
}

fn read(file: &AnyInode) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().size as usize];
    let count = done(|| file.read_at(0, &mut bytes.as_mut_slice())).unwrap();
    assert_eq!(count, bytes.len());
    bytes
}

fn names(directory: &AnyInode) -> Vec<String> {
    let mut names = Vec::new();
    done(|| {
        names.clear();
        directory.read_directory(0, &mut |entry| {
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            true
        })
    })
    .unwrap();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

/// A lower tree with `dir/file`, `dir/sub/deep` and `top`, and the root of a layer over it.
fn layers() -> (AnyInode, Arc<OverlayFs>, AnyInode) {
    let lower = TmpFs::new(&Options::default()).unwrap();
    let root = lower.root();
    let directory = root.create(b"dir", &new(NewContent::Directory)).unwrap();
    let file = directory.create(b"file", &new(NewContent::Regular)).unwrap();
    write(&file, &vec![5; (3 << 20) + 7]);
    let sub = directory.create(b"sub", &new(NewContent::Directory)).unwrap();
    write(&sub.create(b"deep", &new(NewContent::Regular)).unwrap(), b"deep");
    write(&root.create(b"top", &new(NewContent::Regular)).unwrap(), b"top");
    let lower: Arc<dyn FileSystem> = lower;
    let over = OverlayFs::new(&lower, TmpFs::new(&Options::default()).unwrap());
    let top = over.root();
    (root, over, top)
}

#[test]
fn a_file_is_copied_when_it_is_written_and_the_lower_one_stays() {
    let (lower, _over, root) = layers();
    let file = root.lookup(b"dir").unwrap().lookup(b"file").unwrap();
    let before = file.metadata();
    assert_eq!(done(|| file.write_at(1, &mut b"ferry".as_slice())), Ok(5));
    let after = file.metadata();
    assert_eq!(
        (after.id, after.size, after.permissions),
        (before.id, before.size, before.permissions)
    );
    assert_eq!(&read(&file)[..8], b"\x05ferry\x05\x05");
    assert_eq!(read(&file)[8..], vec![5; (3 << 20) - 1][..]);
    let below = lower.lookup(b"dir").unwrap().lookup(b"file").unwrap();
    assert_eq!(read(&below), vec![5; (3 << 20) + 7]);
    // Found again by name it is the same, however it was found before.
    drop(file);
    let again = root.lookup(b"dir").unwrap().lookup(b"file").unwrap();
    assert_eq!(again.metadata().id, before.id);
    assert_eq!(&read(&again)[..8], b"\x05ferry\x05\x05");
}

#[test]
fn what_is_removed_is_hidden_and_what_takes_its_place_is_empty() {
    let (lower, _over, root) = layers();
    let directory = root.lookup(b"dir").unwrap();
    let sub = directory.lookup(b"sub").unwrap();
    assert_eq!(done(|| directory.remove_directory(b"sub", sub.id())), Err(Errno::ENOTEMPTY));
    let deep = sub.lookup(b"deep").unwrap();
    done(|| sub.unlink(b"deep", deep.id())).unwrap();
    assert_eq!(sub.lookup(b"deep").unwrap_err(), Errno::ENOENT);
    assert!(names(&sub).is_empty());
    done(|| directory.remove_directory(b"sub", sub.id())).unwrap();
    assert_eq!(names(&directory), ["file"]);
    done(|| directory.create(b"sub", &new(NewContent::Directory)).map(|_| ())).unwrap();
    assert!(names(&directory.lookup(b"sub").unwrap()).is_empty());
    assert_eq!(directory.lookup(b"sub").unwrap().lookup(b"deep").unwrap_err(), Errno::ENOENT);
    assert_eq!(names(&lower.lookup(b"dir").unwrap().lookup(b"sub").unwrap()), ["deep"]);
}

#[test]
fn names_of_both_layers_are_listed_once() {
    let (_lower, _over, root) = layers();
    root.create(b"mine", &new(NewContent::Regular)).unwrap();
    let top = root.lookup(b"top").unwrap();
    done(|| top.set_attributes(&AttributeChange { mode: Some(0o600), ..Default::default() }))
        .unwrap();
    assert_eq!(names(&root), ["dir", "mine", "top"]);
    assert_eq!(root.create(b"top", &new(NewContent::Regular)).unwrap_err(), Errno::EEXIST);
    assert_eq!(root.lookup(b"top").unwrap().metadata().permissions.mode, 0o600);
}

#[test]
fn a_moved_file_leaves_nothing_and_a_lower_directory_is_not_moved() {
    let (_lower, _over, root) = layers();
    let directory = root.lookup(b"dir").unwrap();
    let top = root.lookup(b"top").unwrap();
    let file = directory.lookup(b"file").unwrap();
    let none = RenameFlags::empty();
    let (top_id, file_id) = (top.id(), file.id());
    done(|| root.rename(b"top", top_id, &directory, b"file", Some(file_id), none)).unwrap();
    assert_eq!(root.lookup(b"top").unwrap_err(), Errno::ENOENT);
    assert_eq!(read(&directory.lookup(b"file").unwrap()), b"top");
    assert_eq!(directory.lookup(b"file").unwrap().id(), top_id);
    let id = directory.id();
    assert_eq!(done(|| root.rename(b"dir", id, &root, b"other", None, none)), Err(Errno::EXDEV));
    let made = root.create(b"made", &new(NewContent::Directory)).unwrap();
    done(|| root.rename(b"made", made.id(), &directory, b"in", None, none)).unwrap();
    assert_eq!(names(&directory), ["file", "in", "sub"]);
    assert_eq!(names(&root), ["dir"]);
}

#[test]
fn a_truncated_open_copies_nothing_and_times_come_along() {
    let (_lower, _over, root) = layers();
    let directory = root.lookup(b"dir").unwrap();
    let file = directory.lookup(b"file").unwrap();
    let identity = Identity::kernel();
    done(|| file.open(OpenFlags::WRONLY | OpenFlags::TRUNC, &identity).map(|_| ())).unwrap();
    assert_eq!(file.metadata().size, 0);
    let top = root.lookup(b"top").unwrap();
    let long_ago = Timestamp { seconds: 1000, nanoseconds: 5 };
    let change = AttributeChange { modified: Some(long_ago), ..AttributeChange::default() };
    done(|| top.set_attributes(&change)).unwrap();
    done(|| top.open(OpenFlags::RDWR, &identity).map(|_| ())).unwrap();
    assert_eq!(top.metadata().modified, long_ago);
    assert_eq!(read(&top), b"top");
}

#[test]
fn links_share_one_copy() {
    let (_lower, _over, root) = layers();
    let top = root.lookup(b"top").unwrap();
    done(|| root.link(b"twin", &top)).unwrap();
    write(&root.lookup(b"twin").unwrap(), b"new");
    assert_eq!(read(&root.lookup(b"top").unwrap()), b"new");
    assert_eq!(root.lookup(b"top").unwrap().id(), root.lookup(b"twin").unwrap().id());
}

/// The root of a tmpfs, and where it is.
fn memory() -> (AnyInode, Location) {
    let file_system: Arc<dyn FileSystem> = TmpFs::new(&Options::default()).unwrap();
    let location = Location::root_of(&Mount::detached(file_system, "none", 0));
    (location.inode.clone(), location)
}

fn directory(parent: &AnyInode, name: &[u8]) -> AnyInode {
    parent.create(name, &new(NewContent::Directory)).unwrap()
}

fn file(parent: &AnyInode, name: &[u8], bytes: &[u8]) -> AnyInode {
    let file = parent.create(name, &new(NewContent::Regular)).unwrap();
    write(&file, bytes);
    file
}

#[test]
fn several_layers_are_merged_from_the_top_down() {
    let (bottom, bottom_place) = memory();
    let (middle, middle_place) = memory();
    let (upper, upper_place) = memory();
    let deep = directory(&bottom, b"shared");
    file(&deep, b"bottom", b"1");
    file(&deep, b"both", b"bottom");
    file(&deep, b"hidden", b"1");
    file(&bottom, b"gone", b"1");
    file(&directory(&bottom, b"closed"), b"below", b"1");
    file(&directory(&bottom, b"kind"), b"below", b"1");
    let over = directory(&middle, b"shared");
    file(&over, b"both", b"middle");
    make_whiteout(&over, b"hidden").unwrap();
    make_whiteout(&middle, b"gone").unwrap();
    let closed = directory(&middle, b"closed");
    closed.extended().unwrap().set(OPAQUE, Some(b"y"), XattrFlags::empty()).unwrap();
    file(&middle, b"kind", b"a file now");
    // What an earlier mount left in the upper layer.
    file(&directory(&upper, b"shared"), b"upper", b"1");
    let lowers = Vec::from([middle_place, bottom_place]);
    let layers = Layers { lowers, upper: Some(upper_place), options: String::new() };
    let tree = OverlayFs::of(layers);
    let root = tree.root();
    assert_eq!(names(&root), ["closed", "kind", "shared"]);
    let shared = root.lookup(b"shared").unwrap();
    assert_eq!(names(&shared), ["both", "bottom", "upper"]);
    assert_eq!(read(&shared.lookup(b"both").unwrap()), b"middle");
    assert_eq!(shared.lookup(b"hidden").unwrap_err(), Errno::ENOENT);
    assert!(names(&root.lookup(b"closed").unwrap()).is_empty());
    assert_eq!(root.lookup(b"kind").unwrap().kind(), NodeKind::Regular);
    let numbers: Vec<u64> = [b"both".as_slice(), b"bottom", b"upper"]
        .map(|name| shared.lookup(name).unwrap().id().number)
        .to_vec();
    assert!(numbers[0] != numbers[1] && numbers[1] != numbers[2], "{numbers:?}");
    // What is removed leaves a whiteout, and what comes instead hides what lies below.
    let both = shared.lookup(b"both").unwrap();
    done(|| shared.unlink(b"both", both.id())).unwrap();
    assert!(is_whiteout(&upper.lookup(b"shared").unwrap().lookup(b"both").unwrap()));
    for name in [b"bottom".as_slice(), b"upper"] {
        let inode = shared.lookup(name).unwrap();
        done(|| shared.unlink(name, inode.id())).unwrap();
    }
    done(|| root.remove_directory(b"shared", shared.id())).unwrap();
    assert!(is_whiteout(&upper.lookup(b"shared").unwrap()));
    done(|| root.create(b"shared", &new(NewContent::Directory)).map(|_| ())).unwrap();
    assert!(is_opaque(&upper.lookup(b"shared").unwrap()).unwrap());
    assert!(names(&root.lookup(b"shared").unwrap()).is_empty());
    assert_eq!(names(&deep), ["both", "bottom", "hidden"]);
}

#[test]
fn extended_attributes_come_along_and_without_an_upper_layer_nothing_changes() {
    let (lower, place) = memory();
    let (_, other) = memory();
    let (upper, upper_place) = memory();
    let below = file(&lower, b"file", b"text");
    let none = XattrFlags::empty();
    below.extended().unwrap().set(b"user.kept", Some(b"value"), none).unwrap();
    let lowers = Vec::from([place.clone()]);
    let layers = Layers { lowers, upper: Some(upper_place), options: String::new() };
    let tree = OverlayFs::of(layers);
    let copied = tree.root().lookup(b"file").unwrap();
    done(|| copied.set_attributes(&AttributeChange { mode: Some(0o600), ..Default::default() }))
        .unwrap();
    let above = upper.lookup(b"file").unwrap();
    assert_eq!(&*above.extended().unwrap().get(b"user.kept").unwrap(), b"value");
    assert_eq!(below.metadata().permissions.mode, 0o755);
    let layers = Layers { lowers: Vec::from([place, other]), upper: None, options: String::new() };
    let tree = OverlayFs::of(layers);
    assert!(tree.is_read_only() && tree.set_read_only(false) == Err(Errno::EROFS));
    let root = tree.root();
    assert_eq!(read(&root.lookup(b"file").unwrap()), b"text");
    let refused = done(|| root.create(b"new", &new(NewContent::Regular)).map(|_| ()));
    assert_eq!(refused, Err(Errno::EROFS));
}
