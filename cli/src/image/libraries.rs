//! Where shared libraries are found: the search order of the dynamic linker, on paper.
//!
//! For one library name the directories are, in order: `DT_RPATH` of the file that needs it and of
//! those that loaded that file (unless there is a `DT_RUNPATH`), `LD_LIBRARY_PATH`, `DT_RUNPATH`,
//! the directories of `/etc/ld.so.conf`, the default directories. `ld.so.cache` is not read: it says
//! the same as `ld.so.conf`. Hardware-specific subfolders are left out; the plain library is there.

use std::fs;
use std::path::{Path, PathBuf};

use super::elf::{Kind, Needs, inspect};

/// Directories that the dynamic linkers of the common distributions search by themselves.
const DEFAULT_DIRECTORIES: &[&str] = &[
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// Larger files are not searched for names of libraries, in bytes.
const LARGEST_SEARCHED: u64 = 64 << 20;

/// How deep `include` lines of `ld.so.conf` may nest.
const INCLUDE_DEPTH: usize = 8;

/// The host's search directories.
#[derive(Debug, Default)]
pub struct Search {
    /// From the `LD_LIBRARY_PATH` that the program will see.
    pub library_path: Vec<PathBuf>,
    /// From `/etc/ld.so.conf`.
    configured: Vec<PathBuf>,
}

/// A file that is loaded, as far as the search is concerned.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Its path on the host.
    pub path: PathBuf,
    /// What it needs.
    pub needs: Needs,
}

/// Where a library was found.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// Its path on the host.
    pub path: PathBuf,
    /// What it needs in turn.
    pub needs: Needs,
    /// Only `ld.so.conf` names its directory: the guest, which has no `ld.so.cache`, needs a link
    /// in a default directory.
    pub needs_link: bool,
}

impl Search {
    /// The search of this host.
    pub fn of_host(library_path: Vec<PathBuf>) -> Search {
        let mut configured = Vec::new();
        read_configuration(Path::new("/etc/ld.so.conf"), INCLUDE_DEPTH, &mut configured);
        Search { library_path, configured }
    }

    /// Finds the library `name` that the last file of `chain` needs; the files before it are its
    /// loaders, the program first.
    pub fn find(&self, name: &str, chain: &[Loaded]) -> Option<Found> {
        if name.contains('/') {
            return usable(Path::new(name)).map(|needs| found(name.into(), needs, false));
        }
        let requester = chain.last()?;
        let mut directories = Vec::new();
        if requester.needs.runpath.is_none() {
            for loaded in chain.iter().rev() {
                directories.extend(loaded.needs.rpath.iter().flat_map(|dir| expand(dir, loaded)));
            }
        }
        directories.extend(self.library_path.iter().cloned());
        let runpath = requester.needs.runpath.iter().flatten();
        directories.extend(runpath.flat_map(|dir| expand(dir, requester)));
        if let Some(hit) = first_usable(&directories, name) {
            return Some(hit);
        }
        if requester.needs.skips_default_directories {
            return None;
        }
        let defaults: Vec<_> = DEFAULT_DIRECTORIES.iter().map(PathBuf::from).collect();
        match first_usable(&self.configured, name) {
            Some(hit) => {
                let directory = hit.path.parent().unwrap_or(Path::new("/"));
                let needs_link = !defaults.iter().any(|default| default == directory);
                Some(Found { needs_link, ..hit })
            }
            None => first_usable(&defaults, name),
        }
    }
}

fn found(path: PathBuf, needs: Needs, needs_link: bool) -> Found {
    Found { path, needs, needs_link }
}

fn first_usable(directories: &[PathBuf], name: &str) -> Option<Found> {
    directories.iter().find_map(|directory| {
        let path = directory.join(name);
        usable(&path).map(|needs| found(path, needs, false))
    })
}

/// What the file needs, when it is a library that an x86-64 program can load.
fn usable(path: &Path) -> Option<Needs> {
    match inspect(path) {
        Ok(Kind::Elf(needs)) => Some(needs),
        _ => None,
    }
}

/// Replaces `$ORIGIN` and `$LIB`; entries with other variables, and empty ones, give nothing.
/// `$LIB` differs between distributions, so it gives every choice.
fn expand(directory: &str, loaded: &Loaded) -> Vec<PathBuf> {
    let origin = loaded.path.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
    let text = directory.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
    let choices: Vec<String> = if text.contains("$LIB") || text.contains("${LIB}") {
        ["lib/x86_64-linux-gnu", "lib64", "lib"]
            .iter()
            .map(|lib| text.replace("${LIB}", lib).replace("$LIB", lib))
            .collect()
    } else {
        vec![text]
    };
    choices
        .into_iter()
        .filter(|path| path.starts_with('/') && !path.contains('$'))
        .map(PathBuf::from)
        .collect()
}

/// Names of libraries, as `libx.so.1`, that stand as strings of their own in an ELF file: it may open
/// them by name. Of the C library only what threads need is told; it names libraries of the network
/// otherwise. A file that cannot be read, or is larger than 64 MiB, gives none.
pub fn mentioned_libraries(path: &Path) -> Vec<String> {
    if path.file_name().is_some_and(|name| name == "libc.so.6") {
        return vec!["libgcc_s.so.1".to_string()];
    }
    if !fs::metadata(path).is_ok_and(|file| file.len() <= LARGEST_SEARCHED) {
        return Vec::new();
    }
    let Ok(bytes) = fs::read(path) else { return Vec::new() };
    let strings = bytes.split(|byte| *byte == 0).filter(|string| string.starts_with(b"lib"));
    let mut names: Vec<String> = strings
        .filter_map(|string| std::str::from_utf8(string).ok())
        .filter(|name| is_library_name(name))
        .map(str::to_string)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// `libNAME.so`, with or without a version.
fn is_library_name(name: &str) -> bool {
    let plain = |text: &str| {
        text.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-_.".contains(letter))
    };
    name.split_once(".so").is_some_and(|(stem, version)| {
        let is_version = version
            .strip_prefix('.')
            .is_some_and(|digits| digits.split('.').all(|part| part.parse::<u32>().is_ok()));
        stem.len() > 3 && plain(stem) && (version.is_empty() || is_version)
    })
}

/// Collects the directories of an `ld.so.conf`. Files that are missing or unreadable give nothing.
fn read_configuration(file: &Path, depth: usize, directories: &mut Vec<PathBuf>) {
    let Ok(text) = fs::read_to_string(file) else { return };
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or("").trim();
        if let Some(patterns) =
            line.strip_prefix("include").filter(|rest| rest.starts_with([' ', '\t']))
        {
            for pattern in patterns.split_whitespace().filter(|_| depth > 0) {
                let base = file.parent().unwrap_or(Path::new("/"));
                for included in expand_pattern(&base.join(pattern)) {
                    read_configuration(&included, depth - 1, directories);
                }
            }
        } else if line.starts_with('/') {
            directories.push(PathBuf::from(line));
        }
    }
}

/// Files that match a pattern with at most one `*`, in its last component (as `*.conf`).
fn expand_pattern(pattern: &Path) -> Vec<PathBuf> {
    let Some(name) = pattern.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let Some((prefix, suffix)) = name.split_once('*') else { return vec![pattern.to_path_buf()] };
    let directory = pattern.parent().unwrap_or(Path::new("/"));
    let mut files: Vec<_> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.len() >= prefix.len() + suffix.len()
                && name.starts_with(prefix)
                && name.ends_with(suffix)
        })
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(path: &str, needs: Needs) -> Loaded {
        Loaded { path: path.into(), needs }
    }

    fn copy_of_libc(directory: &Path, name: &str) -> PathBuf {
        let chain = [loaded("/bin/x", Needs::default())];
        let libc = Search::of_host(Vec::new()).find("libc.so.6", &chain).unwrap();
        let copy = directory.join(name);
        fs::copy(libc.path, &copy).unwrap();
        copy
    }

    #[test]
    fn the_c_library_is_found() {
        let chain = [loaded("/bin/x", Needs::default())];
        let libc = Search::of_host(Vec::new()).find("libc.so.6", &chain).unwrap();
        assert!(libc.path.ends_with("libc.so.6"));
        assert!(!libc.needs_link);
    }

    #[test]
    fn origin_is_the_directory_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let copy = copy_of_libc(directory.path(), "libown.so");
        let needs = Needs { runpath: Some(vec!["$ORIGIN".to_string()]), ..Needs::default() };
        let program = loaded(directory.path().join("program").to_str().unwrap(), needs);
        assert_eq!(Search::default().find("libown.so", &[program]).unwrap().path, copy);
    }

    #[test]
    fn names_of_libraries_are_found_among_strings() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("program");
        fs::write(&file, b"x\0libz.so.1\0libz.so.1\0liba-b.so\0no libc.so.6\0lib.so\0libx.so.y\0")
            .unwrap();
        assert_eq!(mentioned_libraries(&file), ["liba-b.so", "libz.so.1"]);
        assert_eq!(mentioned_libraries(&directory.path().join("none")), Vec::<String>::new());
    }

    #[test]
    fn rpath_is_inherited_and_runpath_is_not() {
        let directory = tempfile::tempdir().unwrap();
        copy_of_libc(directory.path(), "libown.so");
        let place = vec![directory.path().to_str().unwrap().to_string()];
        let library = loaded("/lib/liba.so", Needs::default());
        let by_rpath = Needs { rpath: place.clone(), ..Needs::default() };
        let by_runpath = Needs { runpath: Some(place), ..Needs::default() };
        let search = Search::default();
        assert!(search.find("libown.so", &[loaded("/p", by_rpath), library.clone()]).is_some());
        assert!(search.find("libown.so", &[loaded("/p", by_runpath), library]).is_none());
    }

    #[test]
    fn files_that_are_no_libraries_are_passed_over() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(first.path().join("libown.so"), "not a library").unwrap();
        let copy = copy_of_libc(second.path(), "libown.so");
        let library_path = vec![first.path().to_path_buf(), second.path().to_path_buf()];
        let search = Search { library_path, configured: Vec::new() };
        let chain = [loaded("/p", Needs::default())];
        assert_eq!(search.find("libown.so", &chain).unwrap().path, copy);
    }

    #[test]
    fn includes_of_the_configuration_are_followed() {
        let directory = tempfile::tempdir().unwrap();
        let main = directory.path().join("ld.so.conf");
        fs::create_dir(directory.path().join("more.d")).unwrap();
        fs::write(&main, "include more.d/*.conf\n/last # comment\ninclude ld.so.conf\n").unwrap();
        fs::write(directory.path().join("more.d/a.conf"), "# nothing\n/first\n").unwrap();
        fs::write(directory.path().join("more.d/b.txt"), "/never\n").unwrap();
        let mut found = Vec::new();
        read_configuration(&main, 1, &mut found);
        assert_eq!(found[..2], [PathBuf::from("/first"), PathBuf::from("/last")]);
        assert!(!found.contains(&PathBuf::from("/never")));
    }
}
