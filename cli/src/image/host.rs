//! Packs files of the host into a tree, together with what they need to run.
//!
//! A path of the host becomes the same path of the guest, with the symbolic links on the way, so
//! that programs find what they were built to find. ELF files bring their dynamic linker and their
//! libraries, scripts their interpreter. What cannot be found is a warning, not an error: whether
//! the program gets along without it shows when it runs.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::elf::{Kind, inspect};
use super::libraries::{Loaded, Search, mentioned_libraries};
use super::tree::{Content, Node, Tree, components_reversed, file_type};

/// Symbolic links that one path of the host may lead through.
const LINK_LIMIT: usize = 40;
/// Scripts whose interpreter is a script, and so on.
const INTERPRETER_DEPTH: usize = 5;

/// Puts host files into a tree.
pub struct Packer<'tree> {
    tree: &'tree mut Tree,
    search: Search,
    /// ELF files whose needs are packed already.
    finished: HashSet<PathBuf>,
    /// What could not be found, for the user to read.
    pub warnings: Vec<String>,
    owners: Owners,
}

/// Who owns the files in the guest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// Root owns everything.
    Root,
    /// Whoever owns them on the host.
    AsOnHost,
}

impl<'tree> Packer<'tree> {
    /// A packer for `tree`, which finds libraries by `search`.
    pub fn new(tree: &'tree mut Tree, search: Search, owners: Owners) -> Packer<'tree> {
        Packer { tree, search, finished: HashSet::new(), warnings: Vec::new(), owners }
    }

    /// Packs a program or library at its own path, and all that it needs.
    pub fn add_program(&mut self, path: &Path) -> Result<()> {
        self.add_at_own_path(path)?;
        self.add_needs(path, INTERPRETER_DEPTH);
        Ok(())
    }

    /// Packs `--file HOST[:GUEST]`: a file or a whole directory, and all that the ELF files and
    /// scripts among them need.
    pub fn add_file(&mut self, host: &Path, guest: Option<&Path>) -> Result<()> {
        let host = std::path::absolute(host).with_context(|| format!("{}", host.display()))?;
        let metadata =
            fs::metadata(&host).with_context(|| format!("cannot pack {}", host.display()))?;
        if guest.is_none() {
            self.add_at_own_path(&host)?;
        }
        if metadata.is_dir() {
            let guest = guest.map_or(host.clone(), |guest| Path::new("/").join(guest));
            return self.add_directory(&host, &guest, true);
        }
        if let Some(guest) = guest {
            let node = self.node(&host, &metadata)?;
            self.insert(&Path::new("/").join(guest), node)?;
        }
        self.add_needs(&host, INTERPRETER_DEPTH);
        Ok(())
    }

    /// Packs the files, links and folders of a list, each at its own path, and what the programs
    /// among them need. What is listed and not there is a warning.
    pub fn add_listed(&mut self, paths: &[PathBuf]) -> Result<()> {
        for path in paths {
            match fs::symlink_metadata(path) {
                Ok(metadata) if metadata.is_dir() => {
                    self.tree.ensure_directory(path, metadata.mode() & 0o7777)?;
                }
                // A link may lead into another package, which may be absent.
                Ok(metadata) if metadata.is_symlink() && !path.exists() => {
                    let node = self.node(path, &metadata)?;
                    self.insert(path, node)?;
                }
                Ok(metadata) => {
                    self.add_at_own_path(path)?;
                    // Modules of interpreters begin like scripts at times, and are not run.
                    if metadata.mode() & 0o111 != 0 || is_library(path) {
                        self.add_needs(path, INTERPRETER_DEPTH);
                    }
                }
                Err(error) => self.warnings.push(format!("{}: {error}", path.display())),
            }
        }
        Ok(())
    }

    /// Packs everything below a directory, links as links. Other file systems are entered, sockets
    /// are left out.
    pub fn add_directory(&mut self, host: &Path, guest: &Path, with_needs: bool) -> Result<()> {
        let failed = || format!("cannot pack {}", host.display());
        let node = self.node(host, &fs::metadata(host).with_context(failed)?)?;
        self.insert(guest, node)?;
        let mut entries = fs::read_dir(host)
            .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            .with_context(failed)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, inside) = (entry.path(), guest.join(entry.file_name()));
            let metadata = entry.metadata().with_context(failed)?;
            if metadata.is_dir() {
                self.add_directory(&path, &inside, with_needs)?;
            } else if !metadata.file_type().is_socket() {
                let node = self.node(&path, &metadata)?;
                let is_file = node.is_file();
                self.insert(&inside, node)?;
                if is_file && with_needs {
                    self.add_needs(&path, INTERPRETER_DEPTH);
                }
            }
        }
        Ok(())
    }

    /// Packs one file (or an empty directory) of the host at its own path, and every symbolic link
    /// on the way to it.
    fn add_at_own_path(&mut self, path: &Path) -> Result<()> {
        let mut current = PathBuf::from("/");
        let mut pending = components_reversed(path);
        let mut links = 0;
        while let Some(component) = pending.pop() {
            if component == ".." {
                current.pop();
                continue;
            }
            current.push(component);
            let metadata = fs::symlink_metadata(&current)
                .with_context(|| format!("cannot pack {}", path.display()))?;
            if metadata.is_symlink() {
                links += 1;
                if links > LINK_LIMIT {
                    bail!("cannot pack {}: too many symbolic links", path.display());
                }
                let target = fs::read_link(&current)?;
                // Where the guest has a directory, the file goes in there.
                if !self.tree.find(&current).is_some_and(|(_, node)| node.is_directory()) {
                    self.insert(&current, Node::symlink(&target))?;
                }
                current.pop();
                if target.has_root() {
                    current = PathBuf::from("/");
                }
                pending.extend(components_reversed(&target));
            } else if metadata.is_dir() {
                self.tree.ensure_directory(&current, metadata.mode() & 0o7777)?;
            } else {
                let node = self.node(&current, &metadata)?;
                self.insert(&current, node)?;
            }
        }
        if self.tree.find(path).is_none() && current.parent().is_some() {
            self.insert(path, Node::symlink(&current))?;
        }
        Ok(())
    }

    /// Packs what a packed file needs to run: libraries, dynamic linker, interpreter.
    fn add_needs(&mut self, path: &Path, depth: usize) {
        match inspect(path) {
            Ok(Kind::Elf(needs)) => {
                let program = Loaded { path: path.to_path_buf(), needs };
                if let Some(interpreter) = program.needs.interpreter.clone() {
                    self.add_or_warn(&interpreter, path);
                }
                let is_dynamic = !program.needs.libraries.is_empty();
                let mut chain = vec![program];
                self.add_libraries(&mut chain);
                if is_dynamic {
                    self.add_opened_by_name(&mut chain);
                }
            }
            Ok(Kind::Script(interpreter, argument)) if depth > 0 => {
                self.add_interpreter(&interpreter, path, depth);
                if interpreter.file_name().is_some_and(|name| name == "env") {
                    let name = argument
                        .split_whitespace()
                        .find(|word| !word.starts_with('-') && !word.contains('='));
                    if let Some(found) = name.and_then(|name| find_in_path(Path::new(name))) {
                        self.add_interpreter(&found, path, depth);
                    }
                }
            }
            Ok(_) | Err(_) => {}
        }
    }

    fn add_interpreter(&mut self, interpreter: &Path, script: &Path, depth: usize) {
        // An interpreter that only the guest has, such as an applet of busybox, serves as well.
        if interpreter.exists() || self.tree.find(interpreter).is_none() {
            self.add_or_warn(interpreter, script);
            self.add_needs(interpreter, depth - 1);
        }
    }

    fn add_or_warn(&mut self, path: &Path, wanted_by: &Path) {
        if let Err(error) = self.add_at_own_path(path) {
            self.warnings.push(format!("{} needs it: {error:#}", wanted_by.display()));
        }
    }

    /// Packs the libraries of the last file of the chain, and theirs.
    fn add_libraries(&mut self, chain: &mut Vec<Loaded>) {
        let Some(requester) = chain.last().cloned() else { return };
        let is_musl = chain[0]
            .needs
            .interpreter
            .as_ref()
            .and_then(|path| path.file_name())
            .is_some_and(|name| name.to_string_lossy().starts_with("ld-musl"));
        for name in &requester.needs.libraries {
            // musl's dynamic linker is its C library.
            if is_musl && (name == "libc.so" || name.starts_with("libc.musl")) {
                continue;
            }
            let Some(found) = self.search.find(name, chain) else {
                let needer = requester.path.display();
                self.warnings
                    .push(format!("{needer} needs the library {name}, which is not there"));
                continue;
            };
            if !self.finished.insert(found.path.clone()) {
                continue;
            }
            self.add_or_warn(&found.path, &requester.path);
            if found.needs_link {
                let link = Path::new("/usr/lib/x86_64-linux-gnu").join(name);
                if self.tree.find(&link).is_none()
                    && let Err(error) = self.insert(&link, Node::symlink(&found.path))
                {
                    self.warnings.push(format!("{error:#}"));
                }
            }
            chain.push(Loaded { path: found.path, needs: found.needs });
            self.add_libraries(chain);
            self.add_opened_by_name(chain);
            chain.pop();
        }
    }

    /// Packs the libraries that the last file of the chain mentions by name, as for `dlopen`, and that
    /// this machine has. Whether the program opens them is not known, so absent ones are no warning.
    fn add_opened_by_name(&mut self, chain: &mut Vec<Loaded>) {
        let Some(requester) = chain.last().cloned() else { return };
        for name in mentioned_libraries(&requester.path) {
            if requester.needs.libraries.contains(&name) {
                continue;
            }
            let Some(found) = self.search.find(&name, chain) else { continue };
            if self.finished.insert(found.path.clone()) {
                self.add_or_warn(&found.path, &requester.path);
                chain.push(Loaded { path: found.path, needs: found.needs });
                self.add_libraries(chain);
                chain.pop();
            }
        }
    }

    fn insert(&mut self, path: &Path, node: Node) -> Result<()> {
        self.tree.insert(path, node)?;
        Ok(())
    }

    /// The node for a file of the host.
    fn node(&self, path: &Path, metadata: &Metadata) -> Result<Node> {
        let kind = metadata.file_type();
        let content = if kind.is_symlink() {
            let target = fs::read_link(path).with_context(|| path.display().to_string())?;
            Content::Bytes(std::os::unix::ffi::OsStringExt::into_vec(target.into_os_string()))
        } else if kind.is_file() {
            Content::Host(path.to_path_buf(), metadata.len())
        } else {
            Content::Empty
        };
        let device = match metadata.mode() & file_type::MASK {
            file_type::CHARACTER | file_type::BLOCK => {
                (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()))
            }
            _ => (0, 0),
        };
        let (user, group) = match self.owners {
            Owners::Root => (0, 0),
            Owners::AsOnHost => (metadata.uid(), metadata.gid()),
        };
        let modified_s = u32::try_from(metadata.mtime().max(0)).unwrap_or(u32::MAX);
        Ok(Node { mode: metadata.mode(), user, group, modified_s, device, content })
    }
}

/// Whether the name is that of a shared library; those need not be executable.
fn is_library(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".so") || name.contains(".so.")
}

/// Finds a program in the directories of the host's `PATH`.
pub fn find_in_path(name: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|candidate| {
            fs::metadata(candidate).is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn pack(fill: impl FnOnce(&mut Packer<'_>)) -> (Tree, Vec<String>) {
        let mut tree = Tree::default();
        let search = Search::of_host(Vec::new());
        let mut packer = Packer::new(&mut tree, search, Owners::Root);
        fill(&mut packer);
        let warnings = packer.warnings;
        (tree, warnings)
    }

    #[test]
    fn a_dynamic_program_brings_its_linker_and_libraries() {
        let program = std::env::current_exe().unwrap();
        let (tree, warnings) = pack(|packer| packer.add_program(&program).unwrap());
        assert_eq!(warnings, Vec::<String>::new());
        assert!(tree.find(&program).unwrap().1.is_file());
        assert!(tree.find(Path::new("/lib64/ld-linux-x86-64.so.2")).unwrap().1.is_file());
        assert!(tree.iter().any(|(path, node)| path.ends_with("libc.so.6") && node.is_file()));
    }

    #[test]
    fn links_on_the_way_are_packed_as_links() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir(root.join("real")).unwrap();
        fs::write(root.join("real/file"), "x").unwrap();
        symlink("real", root.join("alias")).unwrap();
        symlink("file", root.join("real/link")).unwrap();
        let (tree, _) = pack(|packer| packer.add_file(&root.join("alias/link"), None).unwrap());
        assert!(tree.at(&root.join("alias")).unwrap().link_target().is_some());
        let found = tree.find(&root.join("alias/link")).unwrap();
        assert!(found.1.is_file());
        assert_eq!(found.0, root.join("real/file"));
    }

    #[test]
    fn a_script_brings_its_interpreter() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        fs::write(&script, "#!/usr/bin/env sh\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let (tree, _) = pack(|packer| packer.add_program(&script).unwrap());
        assert!(tree.find(Path::new("/usr/bin/env")).unwrap().1.is_file());
        assert!(tree.iter().any(|(path, _)| path.ends_with("sh")));
    }

    #[test]
    fn a_missing_interpreter_is_a_warning() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        fs::write(&script, "#!/no/such/interpreter\n").unwrap();
        let (_, warnings) = pack(|packer| packer.add_program(&script).unwrap());
        assert!(warnings[0].contains("/no/such/interpreter"), "{warnings:?}");
    }

    #[test]
    fn a_directory_is_packed_with_everything_below() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("a/b")).unwrap();
        fs::write(directory.path().join("a/b/file"), "x").unwrap();
        symlink("nowhere", directory.path().join("a/dangling")).unwrap();
        let guest = Some(Path::new("data"));
        let (tree, _) = pack(|packer| packer.add_file(directory.path(), guest).unwrap());
        assert!(tree.at(Path::new("/data/a/b/file")).unwrap().is_file());
        assert!(tree.at(Path::new("/data/a/dangling")).unwrap().link_target().is_some());
    }
}
