//! Which file of the guest `PROGRAM` means, and packing it when it comes from the host.
//!
//! With the default root file system PROGRAM is a program of the host: a path, or a name that is
//! looked up in `PATH`. What the host does not have may be in the guest: the applets of busybox.
//! With a prepared root file system PROGRAM is a path, or a name looked up in the guest's `PATH`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::elf::{Kind, inspect};
use super::host::find_in_path;
use super::shims::behind;
use super::{Base, Image};
use crate::status::{self, NotStarted};

/// The `PATH` of programs in the guest, unless the user gives another.
pub const GUEST_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Image {
    /// Finds PROGRAM, packs it when it is the host's, and returns its absolute path in the guest.
    /// `working_directory` and `search_path` are those of the program.
    pub fn locate_program(
        &mut self,
        name: &Path,
        working_directory: &Path,
        search_path: &str,
    ) -> Result<PathBuf> {
        let in_guest = self.find_in_guest(name, working_directory, search_path);
        if let Base::Archive { listing: None, .. } = self.base {
            return Ok(working_directory.join(name));
        }
        if let Base::Tree { is_default: false } | Base::Archive { .. } = self.base {
            return in_guest.ok_or_else(|| not_found(name, "in the given root file system"));
        }
        let on_host = if has_slash(name) {
            Some(std::path::absolute(name)?).filter(|path| path.exists())
        } else {
            find_in_path(name)
        };
        match (on_host, in_guest) {
            (Some(path), _) => {
                let path = behind(&path).unwrap_or(path);
                refuse_what_cannot_run(&path)?;
                self.add_program(&path)?;
                self.warn_of_missing_folders(name, &path);
                Ok(path)
            }
            (None, Some(path)) => Ok(path),
            (None, None) if has_slash(name) => Err(not_found(name, "there")),
            (None, None) => Err(not_found(name, "in PATH, and not an applet of busybox either")),
        }
    }

    /// Interpreters find their own libraries beside themselves: says so when those are not packed.
    fn warn_of_missing_folders(&mut self, name: &Path, program: &Path) {
        let Some(folder) = folder_of_interpreter(program) else { return };
        if self.find(&folder).is_none() {
            let (name, folder) = (name.display(), folder.display());
            self.warnings.push(format!(
                "{name} reads {folder}, which is not packed: add --file {folder} or --package NAME, \
                 or use --root host"
            ));
        }
    }

    fn find_in_guest(&self, name: &Path, directory: &Path, search_path: &str) -> Option<PathBuf> {
        let is_file = |path: &PathBuf| self.find(path).is_some_and(|(_, node)| node.is_file());
        if has_slash(name) {
            return Some(directory.join(name)).filter(is_file);
        }
        search_path.split(':').map(|place| directory.join(place).join(name)).find(is_file)
    }
}

/// The folder of the host with the libraries of an interpreter at `program`.
fn folder_of_interpreter(program: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(program).ok()?;
    let prefix = real.parent()?.parent()?;
    let name = real.file_name()?.to_str()?;
    let folder = if name.starts_with("python") {
        prefix.join("lib").join(name)
    } else if name.starts_with("ruby") {
        prefix.join("lib/ruby")
    } else if name.starts_with("perl") {
        // Debian keeps apart what perl cannot do without.
        let least = prefix.join("lib/x86_64-linux-gnu/perl-base");
        if least.is_dir() { least } else { prefix.join("share/perl") }
    } else {
        return None;
    };
    folder.is_dir().then_some(folder)
}

fn has_slash(name: &Path) -> bool {
    name.as_os_str().as_encoded_bytes().contains(&b'/')
}

fn not_found(name: &Path, place: &str) -> anyhow::Error {
    let message = format!("{}: not {place}", name.display());
    NotStarted { status: status::NOT_FOUND, message }.into()
}

/// Says at once what the kernel would find out only after booting.
fn refuse_what_cannot_run(path: &Path) -> Result<()> {
    let refuse = |why: String| {
        let message = format!("{}: {why}", path.display());
        Err(NotStarted { status: status::NOT_RUNNABLE, message }.into())
    };
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        return refuse("is a directory".to_string());
    }
    if !metadata.is_file() {
        return refuse("is not a regular file".to_string());
    }
    if metadata.mode() & 0o111 == 0 {
        return refuse("is not executable".to_string());
    }
    match inspect(path) {
        Ok(Kind::ForeignElf(machine)) => {
            refuse(format!("is a program for {machine}; Ferry runs x86-64 programs"))
        }
        Ok(_) => Ok(()),
        Err(error) => refuse(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locate(name: &str) -> Result<PathBuf> {
        let mut image = Image::with_default_root(Vec::new())?;
        image.locate_program(Path::new(name), Path::new("/"), GUEST_PATH)
    }

    fn status_of(name: &str) -> u8 {
        status::of_error(&locate(name).unwrap_err())
    }

    #[test]
    fn busybox_and_its_applets_are_found() {
        assert!(locate("busybox").unwrap().ends_with("busybox"));
        assert!(locate("/bin/ash").unwrap().ends_with("ash"));
        assert!(locate("svok").unwrap().ends_with("svok"));
    }

    #[test]
    fn what_is_nowhere_gives_127() {
        assert_eq!(status_of("no-such-program"), 127);
        assert_eq!(status_of("./no-such-program"), 127);
        assert_eq!(status_of("/no/such/program"), 127);
    }

    #[test]
    fn what_cannot_run_gives_126() {
        assert_eq!(status_of("/etc"), 126);
        assert_eq!(status_of("/etc/passwd"), 126);
    }

    #[test]
    fn folders_of_interpreters_are_beside_them() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::create_dir_all(root.join("lib/python3.9")).unwrap();
        fs::write(root.join("bin/python3.9"), "").unwrap();
        fs::write(root.join("bin/tool"), "").unwrap();
        std::os::unix::fs::symlink("python3.9", root.join("bin/python3")).unwrap();
        let folder = folder_of_interpreter(&root.join("bin/python3"));
        assert_eq!(folder, Some(root.join("lib/python3.9")));
        assert_eq!(folder_of_interpreter(&root.join("bin/tool")), None);
    }

    #[test]
    fn in_a_prepared_root_the_guest_is_searched() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("usr/bin")).unwrap();
        fs::write(directory.path().join("usr/bin/tool"), "x").unwrap();
        let mut image = Image::with_rootfs(directory.path()).unwrap();
        let mut find = |name| image.locate_program(Path::new(name), Path::new("/usr"), GUEST_PATH);
        assert_eq!(find("tool").unwrap(), Path::new("/usr/bin/tool"));
        assert_eq!(find("bin/tool").unwrap(), Path::new("/usr/bin/tool"));
        assert_eq!(status::of_error(&find("ls").unwrap_err()), 127);
    }
}
