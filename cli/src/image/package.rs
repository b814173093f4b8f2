//! `--package NAME`: the files of an installed Debian package, without its documentation.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Folders that no program reads to do its work.
const DOCUMENTATION: &[&str] =
    &["/usr/share/doc", "/usr/share/man", "/usr/share/info", "/usr/share/lintian"];

/// The paths that the package manager lists for the package: files, links and folders. The packages
/// it depends on are not among them.
///
/// # Errors
/// When there is no `dpkg-query`, or when it knows no such package.
pub fn files(name: &str) -> Result<Vec<PathBuf>> {
    let output = Command::new("dpkg-query")
        .args(["--listfiles", "--", name])
        .stdin(Stdio::null())
        .output()
        .context("--package needs dpkg-query, which cannot be run")?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        let reason = reason.lines().next().unwrap_or_default();
        bail!("cannot pack the package {name}: {reason}");
    }
    let listed = String::from_utf8_lossy(&output.stdout);
    Ok(chosen(&listed))
}

/// The paths of a listing that are packed. Lines about diversions are no paths.
fn chosen(listed: &str) -> Vec<PathBuf> {
    listed
        .lines()
        .filter(|line| line.len() > 1 && line.starts_with('/') && *line != "/.")
        .map(PathBuf::from)
        .filter(|path| !DOCUMENTATION.iter().any(|folder| path.starts_with(Path::new(folder))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_and_remarks_are_left_out() {
        let listed = "/.\n/usr/bin/x\npackage diverts others to: /usr/bin/y\n/usr/share/doc/x\n\
            /usr/share/doc/x/copyright\n/usr/share/docs\n";
        assert_eq!(chosen(listed), [Path::new("/usr/bin/x"), Path::new("/usr/share/docs")]);
    }

    #[test]
    fn a_package_that_is_not_installed_is_an_error() {
        let message = files("no-such-package-anywhere").unwrap_err().to_string();
        assert!(message.contains("no-such-package-anywhere"), "{message}");
    }
}
