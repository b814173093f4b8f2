//! `ferry docs`: pages that are made from the sources, so that they cannot disagree with them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process;

/// The compatibility page.
pub const PAGE: &str = "docs/generated/syscalls.md";

/// The page of locks, of which one part is generated.
const LOCKS: &str = "docs/locks.md";
/// Where the classes of locks are listed.
const RANKS: &str = "base/src/sync/rank.rs";
/// Around the generated part.
const BEGIN: &str = "<!-- ranks: made by ./ferry docs, not to be edited -->\n";
const END: &str = "<!-- end of ranks -->\n";

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
    let locks = with_ranks(root)?;
    fs::write(root.join(LOCKS), locks).with_context(|| format!("cannot write {LOCKS}"))?;
    println!("{LOCKS}");
    Ok(())
}

/// The page of locks with the table of ranks as the sources have it.
fn with_ranks(root: &Path) -> Result<String> {
    let read = |name: &str| {
        fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"))
    };
    let (page, source) = (read(LOCKS)?, read(RANKS)?);
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let Some((before, after)) = parts else {
        bail!("{LOCKS} has lost the marks around its table of ranks");
    };
    Ok(format!("{before}{BEGIN}{}{END}{after}", table_of_ranks(&source)))
}

/// A row for each line such as `PIPE = 90;`, with the text of the comment above it.
fn table_of_ranks(source: &str) -> String {
    let mut table = String::from("\n| rank | class | guards |\n|--:|---|---|\n");
    let mut comment = String::new();
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            if !comment.is_empty() {
                comment.push(' ');
            }
            comment.push_str(text.trim());
            continue;
        }
        let row = line.strip_suffix(';').and_then(|line| line.split_once(" = "));
        if let Some((name, rank)) = row
            && rank.parse::<u16>().is_ok()
        {
            let what = comment.trim_end_matches('.');
            table.push_str(&format!("| {rank} | `{name}` | {what} |\n"));
        }
        comment.clear();
    }
    table + "\n"
}

/// Whether the pages are what would be made now.
pub fn is_current(root: &Path) -> Result<bool> {
    let is = |name: &str, made: Result<String>| {
        fs::read_to_string(root.join(name)).is_ok_and(|page| made.is_ok_and(|now| now == page))
    };
    Ok(is(PAGE, content()) && is(LOCKS, with_ranks(root)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_rows_with_their_comments() {
        let source = "/// Not of a row.\nstruct A;\nclasses! {\n    /// One\n    /// thing.\n    PIPE = 90;\n}\nX = y;\n";
        assert!(table_of_ranks(source).ends_with("|---|---|\n| 90 | `PIPE` | One thing |\n\n"));
    }
}
