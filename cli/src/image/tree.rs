//! A file tree in memory: what an initramfs will hold.
//!
//! Paths are absolute guest paths. A node's key never runs through a symbolic link of the tree:
//! inserting `/lib/x` where `/lib` links to `usr/lib` puts the node at `/usr/lib/x`, as a kernel
//! would. Contents of host files stay on the host until the archive is written.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Symbolic links that one look-up may follow, as in Linux.
const LINK_LIMIT: usize = 40;

/// Type bits of `st_mode`.
pub mod file_type {
    /// All type bits.
    pub const MASK: u32 = 0o170_000;
    /// Directory.
    pub const DIRECTORY: u32 = 0o040_000;
    /// Regular file.
    pub const REGULAR: u32 = 0o100_000;
    /// Symbolic link.
    pub const SYMLINK: u32 = 0o120_000;
    /// Character device.
    pub const CHARACTER: u32 = 0o020_000;
    /// Block device.
    pub const BLOCK: u32 = 0o060_000;
}

/// Where the bytes of a regular file come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// None, for everything that is not a regular file or a symbolic link.
    Empty,
    /// These bytes: a small file, or the target of a symbolic link.
    Bytes(Vec<u8>),
    /// A file of the host with this length.
    Host(PathBuf, u64),
}

/// One file, directory, link or device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Time of last change, in seconds of the Unix epoch.
    pub modified_s: u32,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Its bytes.
    pub content: Content,
}

impl Node {
    /// A directory with these permissions.
    pub fn directory(permissions: u32) -> Node {
        Node::with(file_type::DIRECTORY | permissions, Content::Empty)
    }

    /// A regular file with these permissions and bytes.
    pub fn file(permissions: u32, bytes: impl Into<Vec<u8>>) -> Node {
        Node::with(file_type::REGULAR | permissions, Content::Bytes(bytes.into()))
    }

    /// A symbolic link to `target`.
    pub fn symlink(target: impl AsRef<Path>) -> Node {
        let target = target.as_ref().as_os_str().as_bytes().to_vec();
        Node::with(file_type::SYMLINK | 0o777, Content::Bytes(target))
    }

    fn with(mode: u32, content: Content) -> Node {
        Node { mode, user: 0, group: 0, modified_s: 0, device: (0, 0), content }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.mode & file_type::MASK == file_type::DIRECTORY
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.mode & file_type::MASK == file_type::REGULAR
    }

    /// The target, when it is a symbolic link.
    pub fn link_target(&self) -> Option<&Path> {
        match &self.content {
            Content::Bytes(target) if self.mode & file_type::MASK == file_type::SYMLINK => {
                Some(Path::new(std::ffi::OsStr::from_bytes(target)))
            }
            _ => None,
        }
    }
}

/// Why a path cannot be put into, or found in, a tree.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// A loop of symbolic links.
    #[error("too many symbolic links on the way to {0}")]
    TooManyLinks(PathBuf),
    /// A component on the way is a file.
    #[error("{0} is not a directory in the guest")]
    NotADirectory(PathBuf),
}

/// The tree: nodes by path, in order, parents before children. The root is not among them.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    nodes: BTreeMap<PathBuf, Node>,
}

impl Tree {
    /// The nodes in order: a directory comes before what is in it.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_path(), node))
    }

    /// The node at a path whose directory holds no symbolic link.
    #[cfg(test)]
    pub fn at(&self, path: &Path) -> Option<&Node> {
        self.nodes.get(path)
    }

    /// The node that a program finds at `path`, links followed, and where it really is.
    pub fn find(&self, path: &Path) -> Option<(PathBuf, &Node)> {
        let real = self.resolve(path, true).ok()?;
        let node = self.nodes.get(&real)?;
        Some((real, node))
    }

    /// Puts a node at `path`, creating missing directories, replacing what is there. A directory
    /// that exists keeps its children and takes the node's permissions.
    pub fn insert(&mut self, path: &Path, node: Node) -> Result<PathBuf, TreeError> {
        let real = self.resolve(path, node.is_directory())?;
        if real.parent().is_none() {
            return Ok(real);
        }
        self.make_parents(&real)?;
        if !node.is_directory() && self.nodes.get(&real).is_some_and(Node::is_directory) {
            self.nodes.retain(|path, _| !path.starts_with(&real));
        }
        self.nodes.insert(real.clone(), node);
        Ok(real)
    }

    /// Makes sure that a directory is at `path`; an existing one stays as it is.
    pub fn ensure_directory(&mut self, path: &Path, permissions: u32) -> Result<(), TreeError> {
        let real = self.resolve(path, true)?;
        match self.nodes.get(&real) {
            Some(node) if node.is_directory() => Ok(()),
            Some(_) => Err(TreeError::NotADirectory(real)),
            None => self.insert(&real, Node::directory(permissions)).map(drop),
        }
    }

    fn make_parents(&mut self, path: &Path) -> Result<(), TreeError> {
        let Some(parent) = path.parent().filter(|parent| parent.parent().is_some()) else {
            return Ok(());
        };
        match self.nodes.get(parent) {
            Some(node) if node.is_directory() => Ok(()),
            Some(_) => Err(TreeError::NotADirectory(parent.to_path_buf())),
            None => {
                self.make_parents(parent)?;
                self.nodes.insert(parent.to_path_buf(), Node::directory(0o755));
                Ok(())
            }
        }
    }

    /// Where `path` leads: `.` and `..` removed and links followed, the last component's link only
    /// when `follow_last`. Components that are not in the tree stay as they are.
    pub fn resolve(&self, path: &Path, follow_last: bool) -> Result<PathBuf, TreeError> {
        let mut real = PathBuf::from("/");
        let mut pending = components_reversed(path);
        let mut links = 0;
        while let Some(component) = pending.pop() {
            if component == ".." {
                real.pop();
                continue;
            }
            let candidate = real.join(&component);
            let target = self.nodes.get(&candidate).and_then(Node::link_target);
            match target {
                Some(target) if follow_last || !pending.is_empty() => {
                    links += 1;
                    if links > LINK_LIMIT {
                        return Err(TreeError::TooManyLinks(path.to_path_buf()));
                    }
                    if target.has_root() {
                        real = PathBuf::from("/");
                    }
                    pending.extend(components_reversed(target));
                }
                _ => real = candidate,
            }
        }
        Ok(real)
    }
}

/// The names and `..` of a path, last first, so that `pop` gives them in order.
pub fn components_reversed(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_os_string()),
            Component::ParentDir => Some(OsString::from("..")),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree_with_merged_usr() -> Tree {
        let mut tree = Tree::default();
        tree.insert(Path::new("/usr/lib"), Node::directory(0o755)).unwrap();
        tree.insert(Path::new("/lib"), Node::symlink("usr/lib")).unwrap();
        tree
    }

    #[test]
    fn inserting_through_a_link_lands_at_its_target() {
        let mut tree = tree_with_merged_usr();
        let real = tree.insert(Path::new("/lib/libc.so"), Node::file(0o644, "x")).unwrap();
        assert_eq!(real, Path::new("/usr/lib/libc.so"));
        assert!(tree.find(Path::new("/lib/../lib/./libc.so")).unwrap().1.is_file());
    }

    #[test]
    fn parents_come_before_children() {
        let mut tree = Tree::default();
        tree.insert(Path::new("/a/b/c"), Node::file(0o644, "")).unwrap();
        tree.insert(Path::new("/a-z"), Node::file(0o644, "")).unwrap();
        let order: Vec<_> = tree.iter().map(|(path, _)| path.to_str().unwrap()).collect();
        assert_eq!(order, ["/a", "/a/b", "/a/b/c", "/a-z"]);
    }

    #[test]
    fn a_loop_of_links_is_an_error() {
        let mut tree = Tree::default();
        tree.insert(Path::new("/a"), Node::symlink("b")).unwrap();
        tree.insert(Path::new("/b"), Node::symlink("/a")).unwrap();
        let looped = tree.insert(Path::new("/a/x"), Node::file(0o644, ""));
        assert_eq!(looped, Err(TreeError::TooManyLinks("/a/x".into())));
    }

    #[test]
    fn a_file_replaces_a_link_but_not_its_target() {
        let mut tree = Tree::default();
        tree.insert(Path::new("/busybox"), Node::file(0o755, "b")).unwrap();
        tree.insert(Path::new("/ls"), Node::symlink("busybox")).unwrap();
        tree.insert(Path::new("/ls"), Node::file(0o755, "l")).unwrap();
        assert_eq!(tree.at(Path::new("/busybox")), Some(&Node::file(0o755, "b")));
        assert_eq!(tree.at(Path::new("/ls")), Some(&Node::file(0o755, "l")));
    }

    #[test]
    fn a_file_is_no_directory() {
        let mut tree = Tree::default();
        tree.insert(Path::new("/f"), Node::file(0o644, "")).unwrap();
        let below = tree.insert(Path::new("/f/x"), Node::file(0o644, ""));
        assert_eq!(below, Err(TreeError::NotADirectory("/f".into())));
    }

    #[test]
    fn dot_dot_stops_at_the_root() {
        let tree = tree_with_merged_usr();
        assert_eq!(tree.resolve(Path::new("/../../lib"), true).unwrap(), Path::new("/usr/lib"));
        assert_eq!(tree.resolve(Path::new("/lib"), false).unwrap(), Path::new("/lib"));
    }
}
