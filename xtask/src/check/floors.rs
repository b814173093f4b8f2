//! The floors inside crates: which modules may name which. A module may name those of its own floor and of the
//! floors below; what it needs from above is handed in.
//!
//! Read from the sources, tests left out: every path that begins with `crate::`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::rules::list_sources;
use super::source::{code_only, find_word, line_number};

/// A floor: its name and its modules.
type Floor = (&'static str, &'static [&'static str]);

/// A crate with floors.
struct Building {
    /// Where its modules lie.
    sources: &'static str,
    /// The uppermost first.
    floors: &'static [Floor],
}

const BUILDINGS: &[Building] = &[
    Building { sources: "kernel/src", floors: KERNEL },
    Building { sources: "fs/src", floors: FS },
];

const KERNEL: &[Floor] = &[
    ("boot and init", &["boot", "calibration", "init", "main", "options", "root"]),
    ("cores", &["core_loop", "run_user"]),
    ("paths", &["choice", "dispatch", "request"]),
    ("servers", &["servers"]),
    (
        "objects",
        &[
            "call", "console", "devices", "futex", "ipc", "posted", "process", "signal", "socket",
            "time",
        ],
    ),
    ("memory", &["memory"]),
    ("record", &["counters", "injection", "locks", "machine", "polls", "stages", "trace"]),
];

const FS: &[Floor] = &[
    ("paths", &["cpio", "device", "extended", "open", "tree", "walk"]),
    ("file systems", &["block", "ext4", "overlay", "pseudo", "remote", "tmpfs"]),
    ("kinds of files", &["anonymous", "epoll", "eventfd", "pipe", "terminal"]),
    (
        "inodes, mounts and open files",
        &["context", "file", "inode", "lease", "listing", "mount", "notify"],
    ),
    ("waiting and locks", &["lock", "mapped", "pending", "poll"]),
    ("names and types", &["identity", "metadata", "protected"]),
];

/// All names of modules on higher floors, and modules without a floor, one line each.
pub fn violations(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for building in BUILDINGS {
        found.extend(building.violations(root)?);
    }
    Ok(found)
}

impl Building {
    fn violations(&self, root: &Path) -> Result<Vec<String>> {
        let directory = root.join(self.sources);
        let mut files = Vec::new();
        list_sources(&directory, &mut files)?;
        let mut found = Vec::new();
        for file in files {
            let inside = file.strip_prefix(&directory).unwrap_or(&file);
            if inside == Path::new("lib.rs") || is_test(inside) {
                continue;
            }
            let text = std::fs::read_to_string(&file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            let name = format!("{}/{}", self.sources, inside.display());
            found.extend(self.violations_in(&name, &module_of(inside), &text));
        }
        Ok(found)
    }

    fn floor_of(&self, module: &str) -> Option<usize> {
        self.floors.iter().position(|(_, modules)| modules.contains(&module))
    }

    fn violations_in(&self, file: &str, module: &str, text: &str) -> Vec<String> {
        let Some(own) = self.floor_of(module) else {
            return vec![format!(
                "{file}: module {module} has no floor (xtask/src/check/floors.rs)"
            )];
        };
        let code = code_only(text);
        let code =
            code.split_once("#[cfg(test)]\nmod tests").map_or(code.as_str(), |(code, _)| code);
        let mut found = Vec::new();
        for at in find_word(code, "crate") {
            let Some(path) = code[at..].strip_prefix("crate::") else { continue };
            for named in first_names(path) {
                let Some(floor) = self.floor_of(named).filter(|floor| *floor < own) else {
                    continue;
                };
                let (line, upper, lower) =
                    (line_number(text, at), self.floors[floor].0, self.floors[own].0);
                found.push(format!(
                    "{file}:{line}: {module} (floor \"{lower}\") names {named} (floor \"{upper}\"), which is above it"
                ));
            }
        }
        found
    }
}

/// The module of the crate that a source file belongs to.
fn module_of(file: &Path) -> String {
    let first = file.iter().next().unwrap_or_default();
    PathBuf::from(first).with_extension("").display().to_string()
}

fn is_test(file: &Path) -> bool {
    let is_of_tests = |name: &str| name == "tests" || name == "testing" || name.contains("_tests");
    file.iter().any(|part| is_of_tests(&Path::new(part).with_extension("").display().to_string()))
}

/// The first segments of a path, or of all paths of a group in braces.
fn first_names(path: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    let Some(group) = path.strip_prefix('{') else {
        names.insert(word(path));
        return names;
    };
    let (mut depth, mut begin) = (0, 0);
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => {
                names.insert(word(&group[begin..at]));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.insert(word(&group[begin..at]));
                begin = at + 1;
            }
            _ => {}
        }
    }
    names
}

/// The word at the beginning.
fn word(text: &str) -> &str {
    let text = text.trim_start();
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> Building {
        Building { sources: "kernel/src", floors: KERNEL }
    }

    #[test]
    fn names_of_upper_floors_are_found() {
        let text = "use crate::servers::file;\nuse crate::{memory::{A, boot}, run_user};\n";
        let found = kernel().violations_in("f.rs", "process", text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("f.rs:1: process (floor \"objects\") names servers"));
        assert!(found[1].starts_with("f.rs:2:") && found[1].contains("names run_user"));
    }

    #[test]
    fn the_own_floor_and_lower_ones_may_be_named() {
        let text = "use crate::signal;\nfn f() { crate::memory::g(); }\n// crate::boot\n";
        assert_eq!(kernel().violations_in("f.rs", "process", text), Vec::<String>::new());
    }

    #[test]
    fn tests_may_name_what_they_like() {
        let text = "use crate::memory;\n#[cfg(test)]\nmod tests { use crate::boot; }\n";
        assert_eq!(kernel().violations_in("f.rs", "process", text), Vec::<String>::new());
        assert!(is_test(Path::new("memory/tests/load.rs")) && is_test(Path::new("a/tests.rs")));
        assert!(!is_test(Path::new("memory/load.rs")));
    }

    #[test]
    fn a_module_without_a_floor_is_found() {
        assert_eq!(kernel().violations_in("misc.rs", "misc", "").len(), 1);
    }
}
