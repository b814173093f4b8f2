//! Building the plugin: by cargo, when something of it is newer than what there is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

use crate::run::source_root;
use crate::status::Unavailable;

/// Where cargo puts it, and what it is made of, from the root of the source tree.
const PLUGIN: &str = "target/release/libmodel_plugin.so";
const SOURCES: [&str; 3] = ["bench/model", "bench/plugin", "Cargo.lock"];

/// The plugin's file, up to date.
pub fn build() -> Result<PathBuf> {
    let root = source_root();
    let plugin = root.join(PLUGIN);
    let built = std::fs::metadata(&plugin).and_then(|file| file.modified()).ok();
    let changed = SOURCES.iter().filter_map(|source| newest(&root.join(source))).max();
    if built.is_some() && built >= changed {
        return Ok(plugin);
    }
    eprintln!("ferry: building the model of caches and TLBs");
    let output = Command::new("cargo")
        .args(["build", "--quiet", "--release", "--package", "model-plugin"])
        .current_dir(&root)
        .output()
        .map_err(|error| {
            Unavailable(format!("cannot run cargo, which builds the model: {error}"))
        })?;
    if !output.status.success() {
        bail!("cargo could not build the model:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    // Cargo leaves a file alone that only looks older than its sources.
    let file = std::fs::File::options()
        .append(true)
        .open(&plugin)
        .with_context(|| format!("cargo did not make {}", plugin.display()))?;
    file.set_modified(SystemTime::now())?;
    Ok(plugin)
}

/// When something in a folder, or a file, was changed last.
fn newest(path: &Path) -> Option<SystemTime> {
    if !path.is_dir() {
        return path.metadata().and_then(|file| file.modified()).ok();
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter_map(|entry| newest(&entry.path())).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_file_of_a_folder_counts() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("src");
        std::fs::create_dir(&below).unwrap();
        std::fs::write(below.join("old"), "").unwrap();
        let file = std::fs::File::create(below.join("new")).unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(60);
        file.set_modified(later).unwrap();
        assert_eq!(newest(directory.path()), Some(later));
        assert_eq!(newest(&directory.path().join("none")), None);
    }
}
