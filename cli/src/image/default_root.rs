//! The root file system that Ferry brings along: busybox with a link per applet, the files that
//! programs expect in `/etc`, and the usual empty directories. `/bin`, `/sbin`, `/lib` and `/lib64`
//! are links into `/usr`, as on Debian, so that paths of the host mean the same in the guest.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::host::find_in_path;
use super::tree::{Content, Node, Tree};
use crate::status::Unavailable;

/// Where Debian puts busybox, before and after the merge of `/bin` into `/usr/bin`.
const BUSYBOX_PATHS: &[&str] = &["/usr/bin/busybox", "/bin/busybox"];

const DIRECTORIES: &[(&str, u32)] = &[
    ("/dev", 0o755),
    ("/etc", 0o755),
    ("/home", 0o755),
    ("/mnt", 0o755),
    ("/proc", 0o555),
    ("/root", 0o700),
    ("/run", 0o755),
    ("/tmp", 0o1777),
    ("/usr/bin", 0o755),
    ("/usr/lib", 0o755),
    ("/usr/lib64", 0o755),
    ("/usr/sbin", 0o755),
    ("/var/log", 0o755),
    ("/var/tmp", 0o1777),
];

const LINKS: &[(&str, &str)] = &[
    ("/bin", "usr/bin"),
    ("/lib", "usr/lib"),
    ("/lib64", "usr/lib64"),
    ("/sbin", "usr/sbin"),
    ("/var/run", "/run"),
    ("/etc/mtab", "/proc/mounts"),
];

const FILES: &[(&str, &str)] = &[
    ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
    ("/etc/group", "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n"),
    ("/etc/hostname", "ferry\n"),
    ("/etc/hosts", "127.0.0.1 localhost ferry\n"),
    ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
    ("/etc/shells", "/bin/sh\n"),
];

/// The default root file system.
pub fn build() -> Result<Tree> {
    let busybox = find_busybox()?;
    let mut tree = Tree::default();
    for (path, permissions) in DIRECTORIES {
        tree.insert(Path::new(path), Node::directory(*permissions))?;
    }
    for (path, target) in LINKS {
        tree.insert(Path::new(path), Node::symlink(target))?;
    }
    for (path, text) in FILES {
        tree.insert(Path::new(path), Node::file(0o644, *text))?;
    }
    let metadata = std::fs::metadata(&busybox)
        .with_context(|| format!("cannot read {}", busybox.display()))?;
    let content = Content::Host(busybox.clone(), metadata.len());
    tree.insert(Path::new("/usr/bin/busybox"), Node { content, ..Node::file(0o755, "") })?;
    for applet in applets(&busybox)? {
        match applet.split_once('/') {
            Some(("sbin", name)) => {
                let link = Node::symlink("../bin/busybox");
                tree.insert(&Path::new("/usr/sbin").join(name), link)?;
            }
            Some((_, path)) if !path.ends_with("busybox") => {
                let name = path.rsplit('/').next().unwrap_or(path);
                let directory = if path.starts_with("sbin/") { "/usr/sbin" } else { "/usr/bin" };
                let target = if path.starts_with("sbin/") { "../bin/busybox" } else { "busybox" };
                tree.insert(&Path::new(directory).join(name), Node::symlink(target))?;
            }
            _ => {}
        }
    }
    Ok(tree)
}

fn find_busybox() -> Result<PathBuf> {
    BUSYBOX_PATHS
        .iter()
        .map(PathBuf::from)
        .find(|path| path.exists())
        .or_else(|| find_in_path(Path::new("busybox")))
        .ok_or_else(|| {
            Unavailable("busybox is not there; install the package busybox-static".into()).into()
        })
}

/// Paths of the applets, such as `bin/sh`, as busybox itself lists them.
fn applets(busybox: &Path) -> Result<Vec<String>> {
    let output = Command::new(busybox)
        .arg("--list-full")
        .env_clear()
        .output()
        .with_context(|| format!("cannot run {}", busybox.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_is_there_by_both_names() {
        let tree = build().unwrap();
        for path in ["/bin/sh", "/usr/bin/sh", "/bin/busybox", "/bin/ls"] {
            let (real, node) = tree.find(Path::new(path)).unwrap();
            assert_eq!(real, Path::new("/usr/bin/busybox"), "{path}");
            assert!(node.is_file());
        }
        assert_eq!(tree.find(Path::new("/tmp")).unwrap().1.mode & 0o7777, 0o1777);
    }
}
