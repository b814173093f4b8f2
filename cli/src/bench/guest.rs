//! Guest programs: building them, packing them for the peer, and reading what they print.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::boot::last_words;
use super::suite::Suite;
use crate::image::{AddedFile, Image};
use crate::run::source_root;

/// Builds the guest program of a suite, static.
pub fn compile(suite: &Suite, work: &Path) -> Result<PathBuf> {
    let root = source_root();
    let program = work.join(suite.name);
    let mut command = Command::new("cc");
    command.args(["-O2", "-static", "-pthread", "-o"]).arg(&program);
    for folder in suite.headers {
        command.arg("-I").arg(root.join(folder));
    }
    command.args(suite.sources.iter().map(|source| root.join(source)));
    let status =
        command.status().context("cannot run cc: install the packages gcc and libc6-dev")?;
    if !status.success() {
        bail!("cc could not build {}: {status}", suite.sources.join(", "));
    }
    Ok(program)
}

/// Builds an example of the crate `base` for the host.
pub fn build_example(name: &str) -> Result<PathBuf> {
    let root = source_root();
    let status = Command::new("cargo")
        .args(["build", "--quiet", "--release", "-p", "base", "--example", name])
        .current_dir(&root)
        .status()
        .context("cannot run cargo, which builds the native part")?;
    if !status.success() {
        bail!("cargo could not build the example {name}: {status}");
    }
    Ok(root.join("target/release/examples").join(name))
}

/// Programs that stand in the place of Ferry's process 1 on the peer: name and script.
const SCRIPTS: [(&str, &str); 2] = [
    ("run-true", "#!/bin/busybox sh\n/bin/true\nexec /bin/busybox poweroff -f\n"),
    ("run-echo", "#!/bin/busybox sh\n/bin/busybox echo alive\nexec /bin/busybox poweroff -f\n"),
];

/// Initramfs archives for the peer.
pub struct Images {
    /// The guest program is process 1.
    pub program: PathBuf,
    /// `/run-true` runs `true`, `/run-echo` runs `busybox echo alive`; both switch off then.
    pub scripts: PathBuf,
}

impl Images {
    /// Both start from the root file system that `ferry run` uses.
    pub fn pack(work: &Path, program: &Path) -> Result<Images> {
        let pack = |path: PathBuf, files: &[(PathBuf, &str)]| -> Result<PathBuf> {
            let mut image = Image::with_default_root(Vec::new())?;
            for (host, guest) in files {
                image.add_file(&AddedFile { host: host.clone(), guest: Some(guest.into()) })?;
            }
            image.write(std::fs::File::create(&path)?)?;
            Ok(path)
        };
        let mut scripts = Vec::new();
        for (name, text) in SCRIPTS {
            let path = work.join(name);
            std::fs::write(&path, text)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
            scripts.push((path, name));
        }
        Ok(Images {
            program: pack(program.with_extension("cpio"), &[(program.to_owned(), "/init")])?,
            scripts: pack(work.join("scripts.cpio"), &scripts)?,
        })
    }
}

/// The figures in the output of a program; an error unless it came to its end.
pub fn figures(output: &str) -> Result<Vec<(String, f64)>> {
    if !output.lines().any(|line| line.trim() == "end") {
        let words = last_words(output);
        bail!("the guest program did not come to its end; its last words: {words}");
    }
    let mut figures = Vec::new();
    for line in output.lines() {
        if let ["case", name, _unit, value] = line.split_whitespace().collect::<Vec<_>>()[..] {
            let value = value.parse().with_context(|| format!("{line:?} has no figure"))?;
            figures.push((name.to_owned(), value));
        }
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_and_other_lines_left_alone() {
        let output = "[ 0.3] PCI: x\r\ncase getppid ns 12.5\r\nend\r\n";
        assert_eq!(figures(output).unwrap(), [("getppid".to_owned(), 12.5)]);
    }

    #[test]
    fn output_without_an_end_is_an_error() {
        assert!(figures("case getppid ns 12.5\n").is_err());
    }

    #[test]
    fn a_figure_that_is_no_number_is_an_error() {
        assert!(figures("case getppid ns fast\nend\n").is_err());
    }
}
