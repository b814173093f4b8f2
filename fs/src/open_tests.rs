//! Opening: what is created, what is refused, and where links lead.

use super::*;
use crate::identity::NoCaller;
use crate::inode::FileSystem;
use crate::metadata::Permissions;
use crate::mount::{self, Mount};
use crate::pseudo::{self, Entry, PseudoFs};
use crate::tmpfs::{Options, TmpFs};
use alloc::vec::Vec;

fn fresh() -> Location {
    let options = Options { pages: Some(100), nodes: Some(100), ..Options::default() };
    let file_system: Arc<dyn FileSystem> = TmpFs::new(&options).unwrap();
    Location::root_of(&Mount::detached(file_system, "test", 0))
}

fn open_as(
    root: &Location,
    path: &str,
    flags: OpenFlags,
    identity: &Identity,
) -> Result<Arc<OpenFile>, Errno> {
    let request = Request::new(flags.bits(), 0o644, 0)?;
    open(Lookup { root, start: root, identity }, path.as_bytes(), request, &NoCaller)
}

fn open_path(root: &Location, path: &str, flags: OpenFlags) -> Result<Arc<OpenFile>, Errno> {
    open_as(root, path, flags, &Identity::kernel())
}

fn make(root: &Location, path: &str, content: NewContent<'_>) {
    let identity = Identity::kernel();
    tree::create(
        Lookup { root, start: root, identity: &identity },
        path.as_bytes(),
        content,
        0o755,
    )
    .unwrap();
}

const CREATE: OpenFlags = OpenFlags::CREAT.union(OpenFlags::WRONLY);

#[test]
fn files_are_created_and_exclusively_once() {
    let root = fresh();
    assert_eq!(open_path(&root, "f", OpenFlags::WRONLY).err(), Some(Errno::ENOENT));
    assert!(open_path(&root, "f", CREATE | OpenFlags::EXCL).is_ok());
    assert_eq!(open_path(&root, "f", CREATE | OpenFlags::EXCL).err(), Some(Errno::EEXIST));
    assert_eq!(open_path(&root, "g/", CREATE).err(), Some(Errno::EISDIR));
    assert_eq!(open_path(&root, "f/", OpenFlags::RDONLY).err(), Some(Errno::ENOTDIR));
    assert_eq!(open_path(&root, "/", CREATE).err(), Some(Errno::EISDIR));
    assert_eq!(open_path(&root, ".", OpenFlags::WRONLY).err(), Some(Errno::EISDIR));
}

#[test]
fn links_are_followed_unless_that_is_refused() {
    let root = fresh();
    make(&root, "link", NewContent::Symlink(b"target"));
    assert_eq!(open_path(&root, "link", CREATE | OpenFlags::EXCL).err(), Some(Errno::EEXIST));
    let created = open_path(&root, "link", CREATE).unwrap();
    let target = open_path(&root, "target", OpenFlags::RDONLY).unwrap();
    assert_eq!(created.inode().id(), target.inode().id());
    let nofollow = OpenFlags::NOFOLLOW;
    assert_eq!(open_path(&root, "link", nofollow).err(), Some(Errno::ELOOP));
    let place = open_path(&root, "link", nofollow | OpenFlags::PATH).unwrap();
    assert_eq!(place.inode().kind(), NodeKind::Symlink);
}

#[test]
fn a_link_may_lead_straight_to_a_file_that_is_opened_for_creation() {
    let root = fresh();
    let target = open_path(&root, "target", CREATE).unwrap().location().clone();
    struct Jump(Location);
    impl pseudo::Link for Jump {
        fn text(&self, _: &Identity) -> Result<Vec<u8>, Errno> {
            Ok(b"anything".to_vec())
        }
        fn follow(&self, _: &Identity) -> Result<crate::inode::LinkTarget, Errno> {
            Ok(crate::inode::LinkTarget::Place(self.0.clone()))
        }
    }
    struct Home(Arc<Jump>);
    impl pseudo::Directory for Home {
        fn lookup(&self, _: &[u8]) -> Result<Entry, Errno> {
            Ok(Entry::link(2, self.0.clone()))
        }
        fn list(&self, _: u64, _: &mut dyn FnMut(pseudo::Listed<'_>) -> bool) -> Result<(), Errno> {
            Ok(())
        }
    }
    make(&root, "proc", NewContent::Directory);
    let identity = Identity::kernel();
    let lookup = Lookup { root: &root, start: &root, identity: &identity };
    let at = crate::walk::resolve(lookup, b"proc", true).unwrap();
    let home = Entry::directory(1, Arc::new(Home(Arc::new(Jump(target.clone())))));
    mount::mount(&at, PseudoFs::new("jumps", 1, home), "jumps", 0).unwrap();
    let opened = open_path(&root, "proc/0", CREATE | OpenFlags::TRUNC).unwrap();
    assert_eq!(opened.inode().id(), target.inode.id());
    assert_eq!(open_path(&root, "proc/0/x", CREATE).err(), Some(Errno::ENOTDIR));
}

#[test]
fn permissions_count_except_for_who_creates() {
    let root = fresh();
    let somebody = Identity { user: 5, capabilities: 0, ..Identity::kernel() };
    assert!(open_as(&root, "mine", CREATE, &somebody).is_ok());
    open_path(&root, "theirs", CREATE).unwrap();
    assert_eq!(open_as(&root, "theirs", CREATE, &somebody).err(), Some(Errno::EACCES));
    let truncating = OpenFlags::RDONLY | OpenFlags::TRUNC;
    assert_eq!(open_as(&root, "theirs", truncating, &somebody).err(), Some(Errno::EACCES));
    assert!(open_as(&root, "theirs", OpenFlags::RDONLY, &somebody).is_ok());
    let unseen = OpenFlags::NOATIME;
    assert_eq!(open_as(&root, "theirs", unseen, &somebody).err(), Some(Errno::EPERM));
}

#[test]
fn nothing_is_written_on_a_read_only_mount() {
    let root = fresh();
    open_path(&root, "f", CREATE).unwrap();
    root.mount.set_flags(abi::fs::mount::MS_RDONLY);
    assert_eq!(open_path(&root, "f", OpenFlags::WRONLY).err(), Some(Errno::EROFS));
    assert_eq!(open_path(&root, "g", CREATE).err(), Some(Errno::EROFS));
    assert!(open_path(&root, "f", OpenFlags::RDONLY).is_ok());
}

#[test]
fn who_executes_and_who_writes_exclude_one_another() {
    let root = fresh();
    let writer = open_path(&root, "f", CREATE).unwrap();
    assert!(crate::file::deny_writes(writer.inode()).is_err());
    let inode = writer.inode().clone();
    drop(writer);
    let denial = crate::file::deny_writes(&inode).unwrap();
    assert_eq!(open_path(&root, "f", OpenFlags::WRONLY).err(), Some(Errno::ETXTBSY));
    drop(denial);
    assert!(open_path(&root, "f", OpenFlags::WRONLY).is_ok());
}

#[test]
fn flags_that_make_no_sense_are_refused() {
    let refused = [
        OpenFlags::CREAT | OpenFlags::DIRECTORY,
        OpenFlags::TMPFILE_BIT | OpenFlags::WRONLY,
        OpenFlags::TMPFILE,
    ];
    for flags in refused {
        assert_eq!(Request::new(flags.bits(), 0, 0).err(), Some(Errno::EINVAL), "{flags:?}");
    }
    let permissions = Permissions { mode: 0o600, user: 0, group: 0 };
    assert!(Request::new(OpenFlags::TMPFILE.bits() | 2, permissions.mode, 0).is_ok());
}

/// `path` belongs to `user`.
fn give(root: &Location, path: &str, user: u32) {
    let identity = Identity::kernel();
    let lookup = Lookup { root, start: root, identity: &identity };
    let location = crate::walk::resolve(lookup, path.as_bytes(), false).unwrap();
    tree::change_owner(&location, &identity, Some(user), Some(user)).unwrap();
}

fn set_mode(root: &Location, mode: u32) {
    tree::change_mode(root, &Identity::kernel(), mode).unwrap();
}

#[test]
fn links_of_others_in_a_shared_directory_are_not_followed() {
    let root = fresh();
    make(&root, "target", NewContent::Regular);
    make(&root, "link", NewContent::Symlink(b"target"));
    make(&root, "around", NewContent::Symlink(b"/link"));
    give(&root, "link", 7);
    give(&root, "around", 8);
    let open_by = |user, path| {
        let identity = Identity { user, ..Identity::kernel() };
        open_as(&root, path, OpenFlags::RDONLY, &identity).err()
    };
    set_mode(&root, 0o1777);
    assert_eq!(open_by(7, "link"), None);
    // Nobody is exempt, whatever his capabilities.
    assert_eq!(open_by(8, "link"), Some(Errno::EACCES));
    assert_eq!(open_by(8, "around"), Some(Errno::EACCES));
    for mode in [0o777, 0o1775] {
        set_mode(&root, mode);
        assert_eq!(open_by(8, "around"), None, "{mode:o}");
    }
    // The links of the directory's owner are as good as one's own.
    set_mode(&root, 0o1777);
    give(&root, "/", 7);
    assert_eq!(open_by(8, "link"), None);
}

#[test]
fn what_others_left_in_a_shared_directory_is_not_taken_for_new() {
    let root = fresh();
    make(&root, "file", NewContent::Regular);
    give(&root, "file", 7);
    let open_by = |user, flags| {
        let identity = Identity { user, ..Identity::kernel() };
        open_as(&root, "file", flags, &identity).err()
    };
    for (mode, expected) in [
        (0o1777, Some(Errno::EACCES)),
        (0o1775, Some(Errno::EACCES)),
        (0o777, None),
        (0o1755, None),
    ] {
        set_mode(&root, mode);
        assert_eq!(open_by(8, CREATE), expected, "{mode:o}");
        assert_eq!(open_by(7, CREATE), None);
        // Who does not want to make it knows that it is there.
        assert_eq!(open_by(8, OpenFlags::WRONLY), None);
    }
    set_mode(&root, 0o1777);
    give(&root, "/", 7);
    assert_eq!(open_by(8, CREATE), None);
}
