//! What is on a disk: its file system, and the packages of a Debian root.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};

use super::tools::{MIB, Tool};
use crate::status::NotStarted;

/// An error that says so when there is no ext4.
pub fn require_ext4(file: &Path) -> Result<()> {
    /// Where a superblock has its magic number, and that number.
    const MAGIC: (u64, [u8; 2]) = (1024 + 56, [0x53, 0xef]);
    let disk = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    let mut found = [0; 2];
    // What is too short has none.
    let _ = disk.read_exact_at(&mut found, MAGIC.0);
    if found == MAGIC.1 {
        return Ok(());
    }
    let message = format!("there is no ext4 on {}", file.display());
    Err(NotStarted { status: crate::status::NOT_RUNNABLE, message }.into())
}

/// What is known, a line each.
pub fn describe(file: &Path) -> Result<String> {
    require_ext4(file)?;
    let header = Tool::new("dumpe2fs").arg("-h").arg(file).run(&[0])?.text;
    let field = |name: &str| {
        let value =
            |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_string());
        header.lines().find_map(value)
    };
    let number = |name: &str| field(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let block = number("Block size");
    let mebibytes = |blocks: u64| format!("{} MiB", (blocks * block).div_ceil(MIB));
    let mut text = String::new();
    let mut row = |name: &str, value: String| text.push_str(&format!("{name:<12}  {value}\n"));
    row("file system", "ext4".to_string());
    row("size", mebibytes(number("Block count")));
    row("free", mebibytes(number("Free blocks")));
    row("free inodes", format!("{} of {}", number("Free inodes"), number("Inode count")));
    row("state", field("Filesystem state").unwrap_or_default());
    let features = field("Filesystem features").unwrap_or_default();
    let is_replayed = !features.split(' ').any(|feature| feature == "needs_recovery");
    row("journal", (if is_replayed { "empty" } else { "to be replayed" }).to_string());
    row("identity", field("Filesystem UUID").unwrap_or_default());
    let read = |path: &str| {
        let command = format!("cat {path}");
        Tool::new("debugfs").args(["-R", &command]).arg(file).run(&[0]).map(|said| said.text)
    };
    if let Some(name) = read("/usr/lib/os-release").ok().as_deref().and_then(system_name) {
        row("system", name);
    }
    let status = read("/var/lib/dpkg/status").unwrap_or_default();
    let packages = packages(&status);
    if !packages.is_empty() {
        text.push_str(&format!("\n{} packages:\n", packages.len()));
        for (name, version) in packages {
            text.push_str(&format!("  {name} {version}\n"));
        }
    }
    Ok(text)
}

/// The readable name of a system.
fn system_name(text: &str) -> Option<String> {
    let value = |line: &str| Some(line.strip_prefix("PRETTY_NAME=")?.trim_matches('"').to_string());
    text.lines().find_map(value)
}

/// Name and version of each installed package, from dpkg's list.
pub fn packages(status: &str) -> Vec<(&str, &str)> {
    status
        .split("\n\n")
        .filter(|entry| entry.contains("\nStatus: install ok installed"))
        .filter_map(|entry| {
            let value = |name: &str| entry.lines().find_map(|line| line.strip_prefix(name));
            Some((value("Package: ")?, value("Version: ")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read_from_the_list_of_dpkg() {
        let status = "Package: bash\nStatus: install ok installed\nVersion: 5.2-1\nDescription: x\n\n\
            Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n\
            Package: dash\nStatus: install ok installed\nVersion: 0.5\n";
        assert_eq!(packages(status), [("bash", "5.2-1"), ("dash", "0.5")]);
    }

    #[test]
    fn the_name_of_a_system_has_no_quotes() {
        let text = "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(system_name(text).as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
    }
}
