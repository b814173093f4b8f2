//! Paths against a model: a tree of names in which paths are resolved by the book, recursively and
//! without regard to speed. Both must give the same inode or the same error.

use super::*;
use crate::inode::{FileSystem, NewContent};
use crate::mount::{self, Mount};
use crate::tmpfs::{Options, TmpFs};
use crate::tree;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use proptest::prelude::*;

fn fresh() -> Location {
    let options = Options { pages: Some(100), nodes: Some(1000), ..Options::default() };
    let file_system: Arc<dyn FileSystem> = TmpFs::new(&options).unwrap();
    Location::root_of(&Mount::detached(file_system, "test", 0))
}

fn make(root: &Location, path: &str, content: NewContent<'_>) {
    let identity = Identity::kernel();
    let lookup = Lookup { root, start: root, identity: &identity };
    tree::create(lookup, path.as_bytes(), content, 0o755).unwrap();
}

fn walk_to(root: &Location, start: &Location, path: &str, follow: bool) -> Result<Location, Errno> {
    let identity = Identity::kernel();
    resolve(Lookup { root, start, identity: &identity }, path.as_bytes(), follow)
}

/// What the model knows of a node.
#[derive(Clone, Debug)]
enum Model {
    Directory(BTreeMap<String, Model>),
    File,
    Link(String),
}

fn model() -> Model {
    use Model::*;
    let directory = |entries: &[(&str, Model)]| {
        Directory(entries.iter().map(|(name, node)| (String::from(*name), node.clone())).collect())
    };
    directory(&[
        ("f", File),
        (
            "d",
            directory(&[
                ("f", File),
                ("e", directory(&[("up", Link("..".into())), ("f", File)])),
                ("abs", Link("/d/e".into())),
                ("slash", Link("e/".into())),
                ("file", Link("f".into())),
            ]),
        ),
        ("l", Link("d".into())),
        ("ll", Link("l/e".into())),
        ("dangling", Link("nowhere".into())),
        ("self", Link("self".into())),
        ("badfile", Link("f/".into())),
    ])
}

fn build(root: &Location, at: &str, node: &Model) {
    let Model::Directory(entries) = node else { return };
    for (name, node) in entries {
        let path = format!("{at}/{name}");
        match node {
            Model::Directory(_) => make(root, &path, NewContent::Directory),
            Model::File => make(root, &path, NewContent::Regular),
            Model::Link(target) => make(root, &path, NewContent::Symlink(target.as_bytes())),
        }
        build(root, &path, node);
    }
}

fn node_at<'a>(tree: &'a Model, place: &[String]) -> Option<&'a Model> {
    place.iter().try_fold(tree, |node, name| match node {
        Model::Directory(entries) => entries.get(name),
        _ => None,
    })
}

/// Resolves a path from a place (a list of names); gives the place it leads to.
fn expect(
    tree: &Model,
    start: &[String],
    path: &str,
    follow: bool,
    links: &mut usize,
) -> Result<Vec<String>, Errno> {
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    let mut place = if path.starts_with('/') { Vec::new() } else { start.to_vec() };
    let components: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    for (index, component) in components.iter().enumerate() {
        if !matches!(node_at(tree, &place), Some(Model::Directory(_))) {
            return Err(Errno::ENOTDIR);
        }
        let is_last = index + 1 == components.len();
        match *component {
            "." => {}
            ".." => {
                place.pop();
            }
            name => {
                let mut next = place.clone();
                next.push(name.into());
                let node = node_at(tree, &next).ok_or(Errno::ENOENT)?;
                let must_follow = !is_last || follow || path.ends_with('/');
                match node {
                    Model::Link(target) if must_follow => {
                        *links += 1;
                        if *links > LINK_LIMIT {
                            return Err(Errno::ELOOP);
                        }
                        place = expect(tree, &place, target, true, links)?;
                    }
                    _ => place = next,
                }
            }
        }
    }
    if path.ends_with('/') && !matches!(node_at(tree, &place), Some(Model::Directory(_))) {
        return Err(Errno::ENOTDIR);
    }
    Ok(place)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_path_leads_where_the_model_says(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("f"), Just("d"), Just("e"), Just("l"), Just("ll"), Just("up"), Just("abs"),
                Just("slash"), Just("file"), Just("dangling"), Just("self"), Just("badfile"),
                Just("."), Just(".."), Just(""), Just("missing"),
            ],
            0..7,
        ),
        is_absolute in any::<bool>(),
        has_slash in any::<bool>(),
        follow in any::<bool>(),
    ) {
        let tree = model();
        let root = fresh();
        build(&root, "", &tree);
        let mut path = parts.join("/");
        if is_absolute {
            path.insert(0, '/');
        }
        if has_slash {
            path.push('/');
        }
        let start_place = [String::from("d")];
        let start = walk_to(&root, &root, "d", true).unwrap();
        let expected = expect(&tree, &start_place, &path, follow, &mut 0);
        let found = walk_to(&root, &start, &path, follow);
        match (expected, found) {
            (Ok(place), Ok(found)) => {
                let direct = format!("/{}", place.join("/"));
                let direct = walk_to(&root, &root, &direct, false).unwrap();
                prop_assert_eq!(found.inode.id(), direct.inode.id(), "{}", path);
            }
            (expected, found) => {
                prop_assert_eq!(expected.err(), found.err(), "{}", path);
            }
        }
    }
}

#[test]
fn names_and_paths_have_limits() {
    let root = fresh();
    let long_name = "n".repeat(256);
    assert_eq!(walk_to(&root, &root, &long_name, true).err(), Some(Errno::ENAMETOOLONG));
    let long_path = "./".repeat(2048);
    assert_eq!(walk_to(&root, &root, &long_path, true).err(), Some(Errno::ENAMETOOLONG));
    assert!(walk_to(&root, &root, &long_path[..4094], true).is_ok());
}

#[test]
fn search_permission_is_needed_on_the_way() {
    let root = fresh();
    make(&root, "open", NewContent::Directory);
    make(&root, "open/closed", NewContent::Directory);
    make(&root, "open/closed/file", NewContent::Regular);
    let closed = walk_to(&root, &root, "open/closed", true).unwrap();
    tree::change_mode(&closed, &Identity::kernel(), 0o644).unwrap();
    let somebody = Identity { user: 5, capabilities: 0, ..Identity::kernel() };
    let lookup = Lookup { root: &root, start: &root, identity: &somebody };
    assert!(resolve(lookup, b"open/closed", true).is_ok());
    assert_eq!(resolve(lookup, b"open/closed/file", true).err(), Some(Errno::EACCES));
    assert_eq!(resolve(lookup, b"open/closed/missing", true).err(), Some(Errno::EACCES));
}

#[test]
fn mounts_hide_what_is_below_and_dot_dot_leaves_them() {
    let root = fresh();
    make(&root, "mnt", NewContent::Directory);
    make(&root, "mnt/hidden", NewContent::Regular);
    let at = walk_to(&root, &root, "mnt", true).unwrap();
    let upper = fresh();
    make(&upper, "shown", NewContent::Directory);
    let mounted = mount::mount(&at, upper.mount.file_system().clone(), "upper", 0).unwrap();
    assert_eq!(walk_to(&root, &root, "mnt/hidden", true).err(), Some(Errno::ENOENT));
    let shown = walk_to(&root, &root, "mnt/shown", true).unwrap();
    assert_eq!(shown.mount.id(), mounted.id());
    assert!(walk_to(&root, &shown, "../..", true).unwrap().is_same(&root));
    assert_eq!(mount::path_of(&shown, &root), (Some(b"/mnt/shown".to_vec()), true));
    let top = walk_to(&root, &root, "mnt", true).unwrap();
    assert_eq!(mount::unmount(top.clone(), false), Err(Errno::EBUSY), "somebody is in it");
    drop((shown, mounted));
    assert_eq!(mount::unmount(top, false), Ok(()));
    assert!(walk_to(&root, &root, "mnt/hidden", true).is_ok());
}

#[test]
fn a_bind_mount_shows_the_same_inodes() {
    let root = fresh();
    for name in ["a", "a/inner", "b"] {
        make(&root, name, NewContent::Directory);
    }
    let (a, b) =
        (walk_to(&root, &root, "a", true).unwrap(), walk_to(&root, &root, "b", true).unwrap());
    mount::bind(&b, &a, true).unwrap();
    let inner = walk_to(&root, &root, "b/inner", true).unwrap();
    assert_eq!(inner.inode.id(), walk_to(&root, &root, "a/inner", true).unwrap().inode.id());
    assert_eq!(mount::path_of(&inner, &root).0.unwrap(), b"/b/inner");
    assert!(walk_to(&root, &inner, "..", true).unwrap().is_mount_root());
}

#[test]
fn a_new_root_is_not_left() {
    let root = fresh();
    make(&root, "jail", NewContent::Directory);
    make(&root, "jail/link", NewContent::Symlink(b"/../.."));
    let jail = walk_to(&root, &root, "jail", true).unwrap();
    assert!(walk_to(&jail, &jail, "../../..", true).unwrap().is_same(&jail));
    assert!(walk_to(&jail, &jail, "link", true).unwrap().is_same(&jail));
}

#[test]
fn restrictions_are_kept() {
    let root = fresh();
    make(&root, "d", NewContent::Directory);
    make(&root, "d/out", NewContent::Symlink(b".."));
    let d = walk_to(&root, &root, "d", true).unwrap();
    let identity = Identity::kernel();
    let lookup = Lookup { root: &root, start: &d, identity: &identity };
    let go = |path: &[u8], resolve: Resolve| {
        let mut walker = Walker::restricted(lookup, path, resolve)?;
        walker.to_last()?;
        Ok(())
    };
    let beneath = Resolve { beneath: true, ..Resolve::default() };
    assert_eq!(go(b"../d/x", beneath), Err(Errno::EXDEV));
    assert_eq!(go(b"out/x", beneath), Err(Errno::EXDEV));
    assert_eq!(go(b"/d", beneath), Err(Errno::EXDEV));
    let no_links = Resolve { no_links: true, ..Resolve::default() };
    assert_eq!(go(b"out/x", no_links), Err(Errno::ELOOP));
    assert_eq!(go(b"x", no_links), Ok(()));
}
