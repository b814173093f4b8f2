//! Where the source tree is, and how its files are listed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The root of the source tree: the directory that holds the folder of this crate.
pub fn root() -> Result<PathBuf> {
    let manifest = std::env::var_os("FERRY_ROOT")
        .map(PathBuf::from)
        .or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf))
        .context("cannot tell where the source tree of Ferry is; set FERRY_ROOT")?;
    manifest
        .canonicalize()
        .with_context(|| format!("the source tree {} is not there", manifest.display()))
}
