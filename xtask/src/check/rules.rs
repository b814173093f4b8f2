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
/// Folders of the kernel's own code, where a tree grows through `TREE` only.
const KERNEL_FOLDERS: &[&str] =
    &["base/src/", "drivers/src/", "fs/src/", "kernel/src/", "net/src/"];
/// Where insertions into trees find their memory first.
const TREE: &str = "base/src/heap/tree.rs";
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
    if KERNEL_FOLDERS.iter().any(|folder| name.starts_with(folder))
        && name != TREE
        && !is_test(name)
    {
        for at in insertions_into_trees(&code) {
            complain(at, "insertions into B-trees go through base::heap::tree");
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

/// Whether a file holds tests or models alone.
fn is_test(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.contains("tests") || name.contains("/tests/") || name.contains("/models/")
}

/// Where a map or set that a file declares grows by itself: `entry`, and what adds to a variable, field
/// or static that is declared as one. What follows `mod tests` is not looked at.
fn insertions_into_trees(code: &str) -> Vec<usize> {
    let code = code.find("mod tests {").map_or(code, |end| &code[..end]);
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut names: Vec<String> = Vec::new();
    for kind in ["BTreeMap", "BTreeSet"] {
        for at in find_word(code, kind) {
            // The declaration before it: `name: BTreeMap<…>`, `name: Mutex<BTreeMap<…>>`, `&mut` of it.
            let start =
                code[..at].rfind([';', '{', '}', '(', ',', '|']).map_or(0, |before| before + 1);
            if let Some((name, _)) = code[start..at].split_once(':') {
                let name: String = name.chars().rev().take_while(|&c| is_name(c)).collect();
                // A guard of a static is called like it.
                names.push(name.chars().rev().collect::<String>().to_lowercase());
            }
        }
    }
    if names.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for method in ["insert", "entry", "split_off", "append", "extend"] {
        for at in find_word(code, method) {
            let Some(before) = code[..at].strip_suffix('.') else { continue };
            let Some(arguments) = code[at + method.len()..].strip_prefix('(') else { continue };
            let receiver: String = before.chars().rev().take_while(|&c| is_name(c)).collect();
            let receiver: String = receiver.chars().rev().collect();
            let is_tree = !receiver.is_empty() && names.contains(&receiver.to_lowercase());
            if is_tree || (method == "entry" && !arguments.starts_with(')')) {
                found.push(at);
            }
        }
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
    fn trees_grow_where_memory_was_found_first() {
        let field = "struct A {\n    by_name: BTreeMap<u64, u8>,\n}\nfn f(a: &mut A) { a.by_name.insert(1, 2); }\n";
        let expected = ["fs/src/a.rs:4: insertions into B-trees go through base::heap::tree"];
        assert_eq!(violations_in("fs/src/a.rs", field), expected);
        let guard = "static USED: Mutex<BTreeMap<u32, u64>> = new();\nfn f() { let mut used = USED.lock(); used.entry(1).or_default(); }\n";
        assert_eq!(violations_in("net/src/a.rs", guard).len(), 1);
        let local = "fn f() { let mut left: BTreeSet<u8> = BTreeSet::new(); left.extend(0..9); }\n";
        assert_eq!(violations_in("kernel/src/a.rs", local).len(), 1);
        let well = "struct A { names: BTreeMap<u8, u8>, flags: Flags }\nfn f(a: &mut A) { tree::insert(&mut a.names, 1, 2); a.flags.insert(3); }\n";
        assert!(violations_in("kernel/src/a.rs", well).is_empty());
        assert!(violations_in("xtask/src/a.rs", field).is_empty());
        let in_tests = format!("#[cfg(test)]\nmod tests {{\n{field}}}\n");
        assert!(violations_in("kernel/src/a.rs", &in_tests).is_empty());
    }

    #[test]
    fn the_architecture_is_asked_for_in_one_file() {
        let text = "#[cfg(target_arch = \"x86_64\")] mod a;\n";
        assert_eq!(violations_in("base/src/a.rs", text).len(), 1);
        assert!(violations_in(SELECT, text).is_empty());
    }
}
