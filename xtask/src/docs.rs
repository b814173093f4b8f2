//! `ferry docs`: pages that are made from the sources, so that they cannot disagree with them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process;

/// The compatibility page.
pub const PAGE: &str = "docs/generated/syscalls.md";

/// Make the generated pages of the documentation.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry docs && git diff docs/generated")]
pub struct Arguments {}

/// Carries out `ferry docs`.
pub fn run(root: &Path) -> Result<()> {
    let page = root.join(PAGE);
    fs::create_dir_all(page.parent().unwrap_or(root))?;
    fs::write(&page, content()?).with_context(|| format!("cannot write {}", page.display()))?;
    println!("{PAGE}");
    Ok(())
}

/// Whether the pages are what would be made now.
pub fn is_current(root: &Path) -> Result<bool> {
    Ok(fs::read_to_string(root.join(PAGE)).is_ok_and(|page| content().is_ok_and(|now| now == page)))
}

/// The page as the tool, which has the route table, writes it.
fn content() -> Result<String> {
    let tool = std::env::current_exe()?.with_file_name("ferry");
    let mut command = Command::new(&tool);
    command.args(["syscalls", "--markdown"]);
    let finished = process::run(&mut command, b"", Duration::from_secs(60))
        .with_context(|| format!("{} is not built: use ./ferry docs", tool.display()))?;
    if !finished.succeeded() {
        bail!("the route table cannot be listed: {}", finished.describe());
    }
    Ok(finished.stdout)
}
