//! `ferry image create`: a Debian root on a disk.
//!
//! mmdebstrap installs packages from the archives that this machine's own apt uses, into a directory; downloads are
//! kept. `mke2fs` makes the file system from that directory. Of the same versions of packages comes the same disk:
//! names, times and numbers that differ from run to run are made the same.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::hash::Hasher;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use super::info::packages;
use super::tools::{Bar, MIB, Tool, find, parse_size};
use crate::status::Usage;

/// Steps that mmdebstrap tells of, beside those for packages.
const STEPS: u64 = 12;
/// What a disk has free, unless its size is given: a part of what is used, and this.
const LEAST_FREE: u64 = 256 * MIB;
/// The day that programs write down which ask for one (`SOURCE_DATE_EPOCH`), in seconds.
const FIXED_DAY: &str = "1577836800";

/// Make a disk with a Debian root that has these packages.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry image create --packages bash,python3 root.img\n  \
    ferry run --disk root.img --root disk -- python3 -V")]
pub struct Arguments {
    /// Packages, beside the smallest system that has apt.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = parse_package)]
    packages: Vec<String>,
    /// Size of the disk, in M or G [default: what is used, a quarter of it, and 256M].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,
    /// Replace a disk that is there.
    #[arg(long)]
    force: bool,
    /// The file of the disk.
    file: PathBuf,
}

/// A name of a package, with a version perhaps, and nothing that means something else to apt.
fn parse_package(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "+-.:~=".contains(c);
    let begins_well = text.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
    if begins_well && text.chars().all(is_plain) {
        Ok(text.to_string())
    } else {
        Err("expected names of packages, such as bash,python3".to_string())
    }
}

/// Where packages come from: lines of a list of sources, and the name of the suite.
#[derive(Debug, PartialEq, Eq)]
struct Archives {
    suite: String,
    lines: String,
}

impl Archives {
    /// Those of this machine's apt that are Debian's.
    fn of_host() -> Result<Archives> {
        let output = Command::new("apt-get")
            .args(["indextargets", "--format"])
            .arg("$(ORIGIN)\t$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)")
            .arg("Identifier: Packages")
            .output()
            .context("cannot ask apt for its archives")?;
        ensure!(output.status.success(), "apt does not tell its archives");
        Archives::of_listing(&String::from_utf8_lossy(&output.stdout)).context(
            "this machine's apt knows no archive of Debian; run `apt-get update`, or add one",
        )
    }

    fn of_listing(text: &str) -> Option<Archives> {
        let mut suite: Option<String> = None;
        let mut seen = BTreeSet::new();
        let mut lines = String::new();
        for line in text.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let ["Debian", address, release, component] = fields[..] else { continue };
            let is_main = !release.contains('-') && !release.contains('/');
            if is_main && suite.is_none() {
                suite = Some(release.to_string());
            }
            // Components of one line apt tells one by one.
            if seen.insert((address, release, component)) {
                lines.push_str(&format!("deb {address} {release} {component}\n"));
            }
        }
        Some(Archives { suite: suite?, lines })
    }
}

/// Carries out `ferry image create`.
pub fn run(arguments: &Arguments) -> Result<u8> {
    if !rustix::process::geteuid().is_root() {
        let text = "ferry image create installs packages as root does: run it as root";
        return Err(Usage(text.to_string()).into());
    }
    if arguments.file.exists() && !arguments.force {
        let text = format!("{} exists; --force replaces it", arguments.file.display());
        return Err(Usage(text).into());
    }
    if arguments.file.is_file() {
        drop(super::lock(&arguments.file, false)?);
    }
    find("mmdebstrap")?;
    let archives = Archives::of_host()?;
    let cache = cache_directory()?;
    let work = Work::new(&cache)?;
    let begin = SystemTime::now();
    let bar = Bar::steps(STEPS + 3);
    install(arguments, &archives, &cache, &work.root, &bar)?;
    bar.show("making times the same");
    let day = settle_times(&work.root, begin)?;
    bar.step();
    bar.show("making the file system");
    let fresh = arguments.file.with_extension("new-disk");
    let made = make(arguments, &work.root, &fresh, day);
    if made.is_err() {
        drop(fs::remove_file(&fresh));
    }
    made?;
    bar.step();
    fs::rename(&fresh, &arguments.file)
        .with_context(|| format!("cannot make {}", arguments.file.display()))?;
    Ok(0)
}

/// Where downloads are kept.
fn cache_directory() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(std::env::var_os("HOME").unwrap_or("/root".into())).join(".cache"),
    };
    let cache = base.join("ferry");
    fs::create_dir_all(cache.join("packages"))
        .with_context(|| format!("cannot make {}", cache.display()))?;
    Ok(cache)
}

/// The directory that the system is installed in; it goes with this.
struct Work {
    root: PathBuf,
}

impl Work {
    fn new(cache: &Path) -> Result<Work> {
        let root = cache.join(format!("root-{}", std::process::id()));
        // What an earlier run of the same number left.
        drop(fs::remove_dir_all(&root));
        fs::create_dir(&root).with_context(|| format!("cannot make {}", root.display()))?;
        Ok(Work { root })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.root) {
            eprintln!("ferry: warning: cannot remove {}: {error}", self.root.display());
        }
    }
}

/// A word for the shell that runs mmdebstrap's hooks.
fn shell_word(path: &Path) -> Result<String> {
    let text = path.to_str().context("the cache's path is not UTF-8")?;
    Ok(format!("'{}'", text.replace('\'', "'\\''")))
}

/// Runs mmdebstrap; what it says moves the bar.
fn install(
    arguments: &Arguments,
    archives: &Archives,
    cache: &Path,
    root: &Path,
    bar: &Bar,
) -> Result<()> {
    let kept = shell_word(&cache.join("packages"))?;
    let archive = "\"$1\"/var/cache/apt/archives";
    let mut command = Command::new(find("mmdebstrap")?);
    command
        .args(["--mode=root", "--variant=minbase", "--format=directory", "--verbose"])
        .args(["--skip=download/empty", "--skip=essential/unlink"])
        .args(["--keyring=/usr/share/keyrings", "--aptopt=APT::Install-Recommends \"false\""])
        .arg(format!(
            "--setup-hook=mkdir -p {archive}/partial && find {kept} -name '*.deb' \
             -exec cp -t {archive} {{}} +"
        ))
        // What is not needed any more goes out of the cache after a month.
        .arg(format!(
            "--customize-hook=find {archive} -name '*.deb' -exec cp -u -t {kept} {{}} + && \
             find {kept} -name '*.deb' -atime +30 -delete"
        ))
        .arg("--customize-hook=echo ferry > \"$1\"/etc/hostname; : > \"$1\"/etc/resolv.conf; \
              : > \"$1\"/etc/fstab; rm -f \"$1\"/var/cache/ldconfig/aux-cache \"$1\"/var/lib/systemd/random-seed");
    if !arguments.packages.is_empty() {
        command.arg(format!("--include={}", arguments.packages.join(",")));
    }
    command.arg(&archives.suite).arg(root).arg("-");
    command.env("LC_ALL", "C.UTF-8").env("SOURCE_DATE_EPOCH", FIXED_DAY);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot run mmdebstrap")?;
    let mut input = child.stdin.take().context("mmdebstrap has no input")?;
    input.write_all(archives.lines.as_bytes()).context("mmdebstrap does not read its sources")?;
    drop(input);
    let messages = child.stderr.take().context("mmdebstrap has no messages")?;
    let mut last = Vec::new();
    for line in BufReader::new(messages).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).trim_end().to_string();
        follow(&line, bar);
        last.push(line);
        if last.len() > 20 {
            last.remove(0);
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("the packages cannot be installed; mmdebstrap says last:\n{}", last.join("\n"));
    }
    Ok(())
}

/// Moves the bar as a line of mmdebstrap, apt or dpkg says.
fn follow(line: &str, bar: &Bar) {
    if let Some(step) = line.strip_prefix("I: ") {
        // Hooks are told with all their text.
        if !step.starts_with("running --") {
            bar.show(step);
        }
        bar.step();
    } else if let Some(count) = newly_installed(line) {
        bar.extend(count);
    } else if line.starts_with("Setting up ") {
        bar.mention(line);
        bar.step();
    }
}

/// Of `0 upgraded, 12 newly installed, ...` the 12.
fn newly_installed(line: &str) -> Option<u64> {
    let (before, _) = line.split_once(" newly installed")?;
    before.rsplit(' ').next()?.parse().ok()
}

/// Gives everything that was written during the installation the time of the youngest file of a package. That time, in
/// seconds.
fn settle_times(root: &Path, begin: SystemTime) -> Result<i64> {
    // Clocks of file systems lag behind a little.
    let begin =
        begin.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs().cast_signed() - 2;
    let mut places = vec![root.to_path_buf()];
    let mut next = 0;
    let mut youngest = 0;
    let mut later = Vec::new();
    while let Some(place) = places.get(next).cloned() {
        next += 1;
        let metadata = fs::symlink_metadata(&place)?;
        if metadata.mtime() < begin {
            youngest = youngest.max(metadata.mtime());
        } else {
            later.push(place.clone());
        }
        if metadata.is_dir() {
            for entry in fs::read_dir(&place)? {
                places.push(entry?.path());
            }
        }
    }
    let time = Timespec { tv_sec: youngest, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    // From the bottom up: a directory's own time comes last.
    for place in later.iter().rev() {
        utimensat(CWD, place, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(youngest)
}

/// A number for a file system that is made of these packages: 16 bytes in the usual form.
fn identity(status: &str, size: u64) -> String {
    let mut words = [0; 2];
    for (index, word) in words.iter_mut().enumerate() {
        // Not for secrets: the same on every machine, which is all that is asked of it.
        #[expect(deprecated, reason = "the hash must not change from run to run")]
        let mut hasher = std::hash::SipHasher::new_with_keys(index as u64, size);
        for (name, version) in packages(status) {
            hasher.write(name.as_bytes());
            hasher.write(version.as_bytes());
        }
        *word = hasher.finish();
    }
    let text = format!("{:016x}{:016x}", words[0], words[1]);
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default().to_string();
    [
        part(0, 8),
        part(8, 12),
        format!("4{}", part(13, 16)),
        format!("8{}", part(17, 20)),
        part(20, 32),
    ]
    .join("-")
}

/// Makes the file system.
fn make(arguments: &Arguments, root: &Path, file: &Path, day: i64) -> Result<()> {
    let used = used_bytes(root)?;
    let size =
        arguments.size.unwrap_or_else(|| (used + used / 4 + LEAST_FREE).next_multiple_of(64 * MIB));
    let status = fs::read_to_string(root.join("var/lib/dpkg/status")).unwrap_or_default();
    let identity = identity(&status, size);
    File::create(file)
        .and_then(|disk| disk.set_len(size))
        .with_context(|| format!("cannot make {}", file.display()))?;
    let seed =
        format!("hash_seed={identity},root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0");
    Tool::new("mke2fs")
        .env("E2FSPROGS_FAKE_TIME", day.to_string())
        .args([
            "-q", "-F", "-t", "ext4", "-m", "1", "-L", "ferry", "-U", &identity, "-E", &seed, "-d",
        ])
        .arg(root)
        .arg(file)
        .run(&[0])
        .context("the packages do not fit: give the disk another --size")?;
    settle_inodes(file, day)
}

/// Bytes that the files of a directory take on a file system.
fn used_bytes(root: &Path) -> Result<u64> {
    const BLOCK: u64 = 4096;
    const INODE: u64 = 256;
    let mut places = vec![root.to_path_buf()];
    let mut used = 0;
    let mut seen = BTreeSet::new();
    while let Some(place) = places.pop() {
        let metadata = fs::symlink_metadata(&place)?;
        if metadata.is_dir() {
            for entry in fs::read_dir(&place)? {
                places.push(entry?.path());
            }
        }
        if seen.insert(metadata.ino()) {
            used += metadata.len().next_multiple_of(BLOCK) + INODE;
        }
    }
    Ok(used)
}

/// Sets the times that `mke2fs -d` takes from the directory and that nobody can choose there.
fn settle_inodes(file: &Path, day: i64) -> Result<()> {
    let header = Tool::new("dumpe2fs").arg("-h").arg(file).run(&[0])?.text;
    let number = |name: &str| -> Option<u64> {
        header.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    };
    let (all, free) = (number("Inode count:"), number("Free inodes:"));
    let last = all.zip(free).and_then(|(all, free)| all.checked_sub(free));
    let last = last.context("dumpe2fs does not tell the inodes")?;
    /// The root; the numbers from 3 to 10 are the file system's own.
    const ROOT: u64 = 2;
    const FIRST: u64 = 11;
    let mut script = String::new();
    for inode in [ROOT].into_iter().chain(FIRST..=last) {
        for field in ["atime", "ctime", "crtime"] {
            script.push_str(&format!("set_inode_field <{inode}> {field} @{day}\n"));
        }
    }
    let commands = file.with_extension("commands");
    fs::write(&commands, script)?;
    let outcome = Tool::new("debugfs")
        .env("E2FSPROGS_FAKE_TIME", day.to_string())
        .args(["-w", "-f"])
        .arg(&commands)
        .arg(file)
        .run(&[0]);
    drop(fs::remove_file(&commands));
    outcome?;
    // Inode by inode, so it says whether all is well.
    Tool::new("e2fsck")
        .env("E2FSPROGS_FAKE_TIME", day.to_string())
        .arg("-fn")
        .arg(file)
        .run(&[0])
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_those_of_debian() {
        let text = "Debian\thttp://a/debian/\tbookworm\tmain\n\
            Debian\thttp://a/debian/\tbookworm\tmain\n\
            Debian\thttp://a/security/\tbookworm-security\tmain\n\
            Other\thttp://b/\tbookworm\tmain\n";
        let archives = Archives::of_listing(text).unwrap();
        assert_eq!(archives.suite, "bookworm");
        let lines = "deb http://a/debian/ bookworm main\n\
            deb http://a/security/ bookworm-security main\n";
        assert_eq!(archives.lines, lines);
        assert_eq!(Archives::of_listing("Other\thttp://b/\tx\tmain\n"), None);
    }

    #[test]
    fn names_of_packages_are_plain() {
        assert!(parse_package("libstdc++6").is_ok());
        assert!(parse_package("bash=5.2.15-2+b7").is_ok());
        for wrong in ["", "-o", "a b", "a;b", "?essential", "$(x)"] {
            assert!(parse_package(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_same_packages_have_the_same_identity() {
        let status = "Package: a\nStatus: install ok installed\nVersion: 1\n";
        let text = identity(status, 1);
        assert_eq!(text, identity(status, 1));
        assert_ne!(text, identity(&status.replace('1', "2"), 1));
        assert_eq!(text.len(), 36);
    }

    #[test]
    fn what_apt_says_of_its_work_is_understood() {
        assert_eq!(newly_installed("0 upgraded, 12 newly installed, 0 to remove"), Some(12));
        assert_eq!(newly_installed("nothing"), None);
    }

    #[test]
    fn of_the_same_directory_comes_the_same_disk() {
        let directory = tempfile::tempdir().unwrap();
        let disk = |name: &str| {
            let root = directory.path().join(format!("{name}-root"));
            fs::create_dir_all(root.join("etc")).unwrap();
            fs::write(root.join("etc/old"), "old").unwrap();
            let time = Timespec { tv_sec: 1_600_000_000, tv_nsec: 0 };
            let times = Timestamps { last_access: time, last_modification: time };
            utimensat(CWD, root.join("etc/old"), &times, AtFlags::empty()).unwrap();
            let begin = SystemTime::now();
            fs::write(root.join("etc/new"), "new").unwrap();
            let day = settle_times(&root, begin).unwrap();
            assert_eq!(day, 1_600_000_000);
            let file = directory.path().join(name);
            let arguments = Arguments {
                packages: Vec::new(),
                size: Some(8 * MIB),
                force: false,
                file: file.clone(),
            };
            make(&arguments, &root, &file, day).unwrap();
            fs::read(file).unwrap()
        };
        let first = disk("first");
        // In another second.
        let begin = SystemTime::now();
        while begin.elapsed().unwrap() < Duration::from_millis(1100) {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(first == disk("second"));
    }
}
