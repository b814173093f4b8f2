//! Programs of the host that run on both kernels: an archive for each, with all that it needs and the
//! guest program as `/init`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::suite::App;
use crate::image::{AddedFile, Image};
use crate::run::source_root;

/// Debian's programs, not those that the user has put before them.
const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";

/// Writes the archive of a program; an error says what to install.
pub fn pack(app: &App, work: &Path, guest_program: &Path) -> Result<PathBuf> {
    let mut image = Image::with_default_root(Vec::new())?;
    for file in files_of(app)? {
        image.add_file(&file)?;
    }
    image.add_file(&AddedFile { host: guest_program.into(), guest: Some("/init".into()) })?;
    if let Some(warning) = image.warnings.first() {
        bail!("{} cannot be packed: {warning}", app.name);
    }
    let archive = work.join(format!("app-{}.cpio", app.name));
    image.write(std::fs::File::create(&archive)?)?;
    Ok(archive)
}

/// What the program's script prints.
fn files_of(app: &App) -> Result<Vec<AddedFile>> {
    let output = Command::new("sh")
        .args(["-c", app.files])
        .env("PATH", PATH)
        .current_dir(source_root())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let separator = if complaint.trim().is_empty() { "" } else { ": " };
        let (name, package) = (app.name, app.package);
        bail!(
            "{name} is not there as Debian has it{separator}{}; install the package {package}",
            complaint.trim()
        );
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| AddedFile::parse(line).map_err(anyhow::Error::msg)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_missing_names_its_package() {
        let app =
            App { name: "nothing", package: "nothing-bin", files: "command -v no-such-program" };
        let error = files_of(&app).unwrap_err().to_string();
        assert!(error.ends_with("install the package nothing-bin"), "{error}");
    }

    #[test]
    fn a_program_is_packed_with_the_guest_program() {
        let directory = tempfile::tempdir().unwrap();
        let guest_program = std::env::current_exe().unwrap();
        let app =
            App { name: "sh", package: "dash", files: "command -v sh; echo /etc/passwd:/copy" };
        let archive = pack(&app, directory.path(), &guest_program).unwrap();
        let mut image = Image::with_rootfs(&archive).unwrap();
        for path in ["/init", "/usr/bin/sh", "/copy"] {
            image.locate_program(Path::new(path), Path::new("/"), "").unwrap();
        }
    }
}
