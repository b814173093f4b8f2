//! Programs behind shims: small files in `PATH` that only start a version manager, which starts the
//! program. The guest has no version manager, so the program itself is packed. Known are managers
//! that answer `which NAME`: pyenv, rbenv, nodenv, goenv, asdf and rustup.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Managers whose shims are in a folder `shims`.
const MANAGERS: &[&str] = &["pyenv", "rbenv", "nodenv", "goenv", "asdf"];

/// The program that `path` stands for when it is a shim; `None` when it is a program itself, or when
/// its manager does not know which program is meant.
pub fn behind(path: &Path) -> Option<PathBuf> {
    let manager = manager_of(path)?;
    let answer = Command::new(manager)
        .arg("which")
        .arg(path.file_name()?)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(answer.stdout).ok()?;
    let program = PathBuf::from(text.trim_end());
    (program.is_absolute() && program.is_file() && program != path).then_some(program)
}

/// The manager that `path` would start.
fn manager_of(path: &Path) -> Option<PathBuf> {
    let folder = path.parent()?;
    if folder.file_name()? == "shims" {
        let root = folder.parent()?;
        let places = ["libexec", "bin"].iter().map(|place| root.join(place));
        return places
            .flat_map(|place| MANAGERS.iter().map(move |manager| place.join(manager)))
            .find(|manager| manager.is_file());
    }
    // rustup's shims are links to rustup, or copies of it of the same length.
    let rustup = folder.join("rustup");
    let (shim, manager) = (fs::metadata(path).ok()?, fs::metadata(&rustup).ok()?);
    let is_shim = path.file_name()? != "rustup" && shim.len() == manager.len();
    let is_same = (shim.dev(), shim.ino()) == (manager.dev(), manager.ino());
    (is_shim && (is_same || same_contents(path, &rustup))).then_some(rustup)
}

fn same_contents(one: &Path, other: &Path) -> bool {
    matches!((fs::read(one), fs::read(other)), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write_script(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn the_manager_says_what_a_shim_stands_for() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("versions/1/bin/tool");
        write_script(&program, "#!/bin/sh\n");
        let manager =
            format!("#!/bin/sh\n[ \"$*\" = 'which tool' ] && echo {}\n", program.display());
        write_script(&directory.path().join("libexec/pyenv"), &manager);
        let shim = directory.path().join("shims/tool");
        write_script(&shim, "#!/bin/sh\n");
        assert_eq!(behind(&shim), Some(program));
        let unknown = directory.path().join("shims/other");
        write_script(&unknown, "#!/bin/sh\n");
        assert_eq!(behind(&unknown), None);
    }

    #[test]
    fn programs_themselves_stand_for_nothing_else() {
        assert_eq!(behind(Path::new("/bin/sh")), None);
        let directory = tempfile::tempdir().unwrap();
        write_script(&directory.path().join("shims/tool"), "#!/bin/sh\n");
        assert_eq!(behind(&directory.path().join("shims/tool")), None);
    }
}
