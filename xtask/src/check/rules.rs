//! Rules of the house that no compiler knows: where unsafe code may be and that each use says why,
//! which macros never land, and where the architecture may be asked for.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::source::{code_only, find_word, line_number};

/// Folders that may say `unsafe` (DESIGN, principle 3).
const UNSAFE_FOLDERS: &[&str] = &["hal/", "base/", "user/rust/src/raw/"];
/// A crate with a folder of its own for unsafe code denies it elsewhere; `forbid` has no exceptions.
const DENYING_ROOT: &str = "user/rust/src/lib.rs";
/// Folders that hold no sources of Ferry.
const SKIPPED_FOLDERS: &[&str] = &["target", ".git", ".ferry"];
/// The only file that asks for the architecture.
const SELECT: &str = "hal/src/select.rs";
/// Macros that mean unfinished or forgotten work.
const FORBIDDEN_MACROS: &[&str] = &["todo", "unimplemented", "dbg"];
/// How far above an `unsafe` its reason may begin, in lines.
const REASON_DISTANCE: usize = 12;

/// All violations in the tree, one line each.
pub fn violations(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    list_sources(root, &mut files)?;
    let mut found = Vec::new();
    for file in files {
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned();
        found.extend(violations_in(&name, &text));
    }
    Ok(found)
}

pub(super) fn list_sources(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if entry.file_type()?.is_dir() {
            if !SKIPPED_FOLDERS.contains(&name.as_str()) {
                list_sources(&path, files)?;
            }
        } else if name.ends_with(".rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

/// Violations in one file; `name` is its path from the root of the tree.
fn violations_in(name: &str, text: &str) -> Vec<String> {
    let code = code_only(text);
    let mut found = Vec::new();
    let mut complain = |at: usize, what: &str| {
        found.push(format!("{name}:{}: {what}", line_number(text, at)));
    };
    let may_be_unsafe = UNSAFE_FOLDERS.iter().any(|folder| name.starts_with(folder));
    for at in find_word(&code, "unsafe") {
        if is_lint_name(&code, at) {
            continue;
        }
        if !may_be_unsafe {
            complain(at, "unsafe code is only for hal, base and user/rust/src/raw");
        } else if needs_reason(&code, at) && !has_reason(text, at) {
            complain(at, "unsafe without a SAFETY: comment that says why it holds");
        }
    }
    for name in FORBIDDEN_MACROS {
        for at in find_word(&code, name) {
            if code[at + name.len()..].starts_with('!') {
                complain(at, &format!("{name}! does not land"));
            }
        }
    }
    if name != SELECT {
        for at in find_word(&code, "target_arch") {
            complain(at, "only hal/src/select.rs asks for the architecture");
        }
    }
    let is_root = ["/src/lib.rs", "/src/main.rs"].iter().any(|root| name.ends_with(root));
    let lint =
        if name == DENYING_ROOT { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
    if is_root && !may_be_unsafe && !code.contains(lint) {
        complain(0, &format!("the crate has to say {lint}"));
    }
    found
}

/// `unsafe` as an attribute such as `#[unsafe(no_mangle)]`.
fn is_lint_name(code: &str, at: usize) -> bool {
    code[at + "unsafe".len()..].starts_with('(')
}

/// Blocks and implementations give a reason. Functions only pass the duty on: what theirs is says
/// the docstring, which a lint asks for.
fn needs_reason(code: &str, at: usize) -> bool {
    let rest = code[at + "unsafe".len()..].trim_start();
    rest.starts_with('{') || rest.starts_with("impl")
}

/// Whether the same line or the comment above gives the reason.
fn has_reason(text: &str, at: usize) -> bool {
    let line = line_number(text, at);
    let first = line.saturating_sub(REASON_DISTANCE);
    text.lines().skip(first).take(line - first).any(|line| line.contains("SAFETY:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_code_outside_the_floor_is_found() {
        let text = "#![forbid(unsafe_code)]\nfn f() { unsafe { g() } }\n";
        let expected =
            ["kernel/src/lib.rs:2: unsafe code is only for hal, base and user/rust/src/raw"];
        assert_eq!(violations_in("kernel/src/lib.rs", text), expected);
    }

    #[test]
    fn unsafe_code_needs_its_reason() {
        assert_eq!(violations_in("hal/src/a.rs", "fn f() { unsafe { g() } }\n").len(), 1);
        let with = "// SAFETY: g only adds.\nunsafe { g() }\n";
        assert!(violations_in("hal/src/a.rs", with).is_empty());
        assert_eq!(violations_in("base/src/a.rs", "unsafe impl Send for A {}\n").len(), 1);
        let names = "#[unsafe(no_mangle)] extern fn f() {}\ntype F = unsafe fn(u8);\n";
        assert!(violations_in("hal/src/a.rs", names).is_empty());
    }

    #[test]
    fn crates_above_the_floor_forbid_unsafe_code() {
        assert_eq!(violations_in("fs/src/lib.rs", "pub mod a;\n").len(), 1);
        assert!(violations_in("fs/src/a.rs", "pub mod a;\n").is_empty());
        assert!(violations_in("hal/src/lib.rs", "pub mod a;\n").is_empty());
    }

    #[test]
    fn unfinished_work_is_found_but_not_its_mention() {
        let text = "fn f() { todo!() }\n// todo!()\nlet s = \"dbg!(x)\";\n";
        assert_eq!(violations_in("fs/src/a.rs", text), ["fs/src/a.rs:1: todo! does not land"]);
    }

    #[test]
    fn the_architecture_is_asked_for_in_one_file() {
        let text = "#[cfg(target_arch = \"x86_64\")] mod a;\n";
        assert_eq!(violations_in("base/src/a.rs", text).len(), 1);
        assert!(violations_in(SELECT, text).is_empty());
    }
}
