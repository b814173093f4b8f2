//! The options of `ferry run`, their meaning, and the kernel's command line that follows from them.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use abi::trace::{EventKind, Events, LockScheme};
use anyhow::Result;
use policy::place::{CoreSet, Layout, LayoutError, Wishes};

use super::saved::Saved;
use crate::image::AddedFile;
use crate::image::program::GUEST_PATH;
use crate::machine::SharedDirectory;
use crate::status::Usage;

/// Most cores that Ferry runs on.
pub const MAX_CPUS: usize = 8;
const KERNEL_VARIABLE: &str = "FERRY_KERNEL";
/// Where the launcher's build puts the kernel, below the root of the source tree.
const KERNEL_PATH: &str = "target/kernel/x86_64-unknown-none/release/ferry-kernel";

/// Records that each core has room for while the tool does not come to take them.
const TRACE_RECORDS: u32 = 1 << 16;

/// Boot Ferry in QEMU and run one Linux program on it.
#[derive(Clone, clap::Args)]
#[command(
    override_usage = "ferry run [OPTIONS] -- PROGRAM [ARGS]...",
    after_help = "PROGRAM is one of this machine, or a script; it is packed with what it needs.\n\
        Exit status: the program's; 128+N killed by signal N; 124 timed out; 126 not\n\
        runnable; 127 not found; 69 something is not installed; 70 kernel panic; 74 the program\n\
        succeeded and its trace is not complete.\n\
        On a terminal, three times Ctrl-] stops Ferry itself.\n\n\
        Example:\n  ferry run --cpus 2 --file notes.txt:/tmp/notes -- busybox wc -l /tmp/notes"
)]
pub struct Arguments {
    /// Cores of the machine (1 to 8).
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = parse_cpus)]
    pub cpus: usize,
    /// The program's cores, as in 0,2-3 [default: all others; with --path auto, all].
    #[arg(long, value_name = "LIST", value_parser = parse_cores)]
    pub app_cores: Option<CoreSet>,
    /// Cores that serve its calls [default: the last].
    #[arg(long, value_name = "LIST", value_parser = parse_cores)]
    pub kernel_cores: Option<CoreSet>,
    /// Cores that look after devices and take their interrupts [default: the first that serves calls].
    #[arg(long, value_name = "LIST", value_parser = parse_cores)]
    pub interrupt_cores: Option<CoreSet>,
    /// Memory of the machine, in M or G.
    #[arg(long = "memory", value_name = "SIZE", default_value = "512M", value_parser = parse_memory)]
    pub memory_mib: u64,
    /// How system calls are carried: each by its cheapest path, or all by one.
    #[arg(
        long,
        value_name = "auto|local|remote|posted",
        default_value = "auto",
        value_enum,
        hide_possible_values = true
    )]
    pub path: CallPath,
    /// What is locked: each object (fine), a class of calls (coarse), or all of the kernel (giant, of
    /// three kinds).
    #[arg(
        long,
        value_name = "fine|coarse|giant-ticket|giant-clh|giant-mcs",
        default_value = "fine",
        value_parser = parse_locks
    )]
    pub locks: LockScheme,
    /// Use cores, path and locks that `ferry tune --save FILE` found.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["cpus", "app_cores", "kernel_cores", "interrupt_cores", "path", "locks"]
    )]
    pub layout: Option<PathBuf>,
    /// Set a variable, or pass this machine's value on.
    #[arg(long = "env", value_name = "K[=V]")]
    environment: Vec<String>,
    /// Working directory in the guest.
    #[arg(long = "cwd", value_name = "DIR", default_value = "/", value_parser = parse_directory)]
    pub working_directory: PathBuf,
    /// Stop after this time, with exit status 124.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub timeout: Option<Duration>,
    /// Add a file or folder, and what it needs to run.
    #[arg(long = "file", value_name = "HOST[:GUEST]", value_parser = AddedFile::parse)]
    pub files: Vec<AddedFile>,
    /// Add the files of an installed Debian package, and what its programs need.
    #[arg(long = "package", value_name = "NAME")]
    pub packages: Vec<String>,
    /// Use a prepared root, which then has PROGRAM too.
    #[arg(long, value_name = "DIR|FILE.cpio")]
    pub rootfs: Option<PathBuf>,
    /// Show a directory of this machine in the guest.
    #[arg(long = "share", value_name = "HOSTDIR:GUESTDIR[:ro]", value_parser = Share::parse)]
    pub shares: Vec<Share>,
    /// What the guest's root is: what is packed; all of this machine's, changed in memory only; or the ext4 on
    /// the first --disk.
    #[arg(
        long,
        value_name = "ram|host|disk",
        default_value = "ram",
        value_enum,
        hide_possible_values = true
    )]
    pub root: Root,
    /// Keep what the program puts into GUESTDIR in a directory of this machine.
    #[arg(long = "save", value_name = "GUESTDIR:HOSTDIR", value_parser = Share::parse_saved)]
    pub saved: Vec<Share>,
    /// Show messages: error, warn, info, debug or trace.
    #[arg(long = "log", value_name = "LEVEL", value_enum, hide_possible_values = true)]
    pub log_level: Option<LogLevel>,
    /// Keep the kernel's messages in a file.
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// Tell at the end what each core did.
    #[arg(long)]
    pub stats: bool,
    /// Tell at the end where the time of calls went.
    #[arg(long)]
    pub stages: bool,
    /// Record every call, into FILE.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Somebody looks at the records meanwhile (`ferry top`).
    #[arg(skip)]
    pub is_watched: bool,
    /// Record these alone: calls, locks, all, or kinds of events [default: all but allocations].
    #[arg(long, value_name = "LIST", requires = "trace", value_parser = parse_events)]
    pub trace_events: Option<Events>,
    /// Record what is needed to run exactly so again, into FILE (slow: one core at a time).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["replay", "trace", "model"])]
    pub record: Option<PathBuf>,
    /// Run again as it was recorded; with the same options and program.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["trace", "model"])]
    pub replay: Option<PathBuf>,
    /// Count with a model of caches and TLBs, into FILE.
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Give the model another size, as in l2=1024:16.
    #[arg(long, value_name = "NAME=SIZE:WAYS", requires = "model", hide = true)]
    pub model_size: Vec<String>,
    /// Write counters and stages to FILE, as JSON.
    #[arg(long, value_name = "FILE", hide = true)]
    pub figures: Option<PathBuf>,
    /// Boot another kernel.
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Add to the kernel's command line.
    #[arg(long, value_name = "TEXT", hide = true)]
    append: Option<String>,
    /// The program and its arguments.
    #[arg(value_name = "PROGRAM", required = true, last = true, hide = true)]
    pub program: Vec<OsString>,
}

/// How system calls are carried.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum CallPath {
    /// Each call by its cheapest path; every core runs programs.
    Auto,
    Local,
    Remote,
    /// Without a trap where possible: written to a page shared with a kernel core.
    Posted,
}

/// What the guest's root is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Root {
    /// What is packed.
    Ram,
    /// This machine's, with changes in memory.
    Host,
    /// The first disk's.
    Disk,
}

/// How much the kernel says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    fn word(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

/// A directory of this machine that the guest sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The directory here.
    pub host: PathBuf,
    /// Where the guest sees it.
    pub guest: PathBuf,
    /// The guest may not change it.
    pub is_read_only: bool,
}

impl Share {
    fn parse(text: &str) -> Result<Share, String> {
        let (rest, is_read_only) = match text.strip_suffix(":ro") {
            Some(rest) => (rest, true),
            None => (text.strip_suffix(":rw").unwrap_or(text), false),
        };
        // A path of the guest is absolute, so the last `:/` stands between the two.
        let at = rest.rfind(":/").filter(|&at| at > 0);
        let at = at.ok_or("expected HOSTDIR:GUESTDIR[:ro] with an absolute GUESTDIR")?;
        Share::new(&rest[..at], &rest[at + 1..], is_read_only)
    }

    fn new(host: &str, guest: &str, is_read_only: bool) -> Result<Share, String> {
        let (host, guest) = (PathBuf::from(host), parse_directory(guest)?);
        let is_plain = guest.components().all(|part| {
            matches!(part, std::path::Component::RootDir | std::path::Component::Normal(_))
        });
        if !is_plain || guest == Path::new("/") {
            return Err("GUESTDIR must be a directory other than /, without `..`".to_string());
        }
        if !host.is_dir() {
            return Err(format!("{} is not a directory of this machine", host.display()));
        }
        Ok(Share { host, guest, is_read_only })
    }

    /// Parses `GUESTDIR:HOSTDIR`; the directory here is made when it is missing.
    fn parse_saved(text: &str) -> Result<Share, String> {
        let (guest, host) = text.split_once(':').ok_or("expected GUESTDIR:HOSTDIR")?;
        std::fs::create_dir_all(host).map_err(|error| format!("cannot make {host}: {error}"))?;
        Share::new(host, guest, false)
    }

    /// The word of the kernel's command line for share number `index`.
    fn word(&self, index: usize) -> String {
        let mut word = format!("ferry.share={}:", share_tag(index));
        for &byte in self.guest.as_os_str().as_bytes() {
            match byte {
                b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                    word.push(char::from(byte));
                }
                _ => word.push_str(&format!("%{byte:02x}")),
            }
        }
        if self.is_read_only {
            word.push_str(":ro");
        }
        word
    }
}

/// The tag by which the guest knows this machine's root.
const ROOT_TAG: &str = "ferry.root";

/// The tag by which the guest knows share number `index`.
pub fn share_tag(index: usize) -> String {
    format!("ferry.share{index}")
}

impl Arguments {
    /// The same with what `--layout` says.
    pub fn with_saved_layout(&self) -> Result<Cow<'_, Arguments>> {
        let Some(file) = &self.layout else { return Ok(Cow::Borrowed(self)) };
        let mut arguments = self.clone();
        Saved::read(file)?.apply(&mut arguments);
        Ok(Cow::Owned(arguments))
    }

    /// Which cores are for what.
    pub fn layout(&self) -> Result<Layout> {
        let wishes = Wishes {
            application: self.app_cores,
            kernel: self.kernel_cores,
            interrupt: self.interrupt_cores,
        };
        let chosen = Layout::choose(self.cpus, wishes, self.path == CallPath::Auto);
        Ok(chosen.map_err(|error| {
            Usage(match error {
                LayoutError::NoSuchCore => {
                    format!("a core list names a core that --cpus {} does not give", self.cpus)
                }
                LayoutError::NoApplicationCore => "--app-cores names no core".to_string(),
                LayoutError::NoKernelCore => "--kernel-cores names no core".to_string(),
                LayoutError::NoInterruptCore => "--interrupt-cores names no core".to_string(),
            })
        })?)
    }

    /// The kernel's command line.
    pub fn command_line(&self, layout: &Layout) -> String {
        let path = match self.path {
            CallPath::Auto => "auto",
            CallPath::Local => "local",
            CallPath::Remote => "remote",
            CallPath::Posted => "posted",
        };
        let mut line = format!(
            "ferry.path={path} ferry.app={} ferry.kernel={} ferry.interrupt={} ferry.log={}",
            core_list(layout.application),
            core_list(layout.kernel),
            core_list(layout.interrupt),
            self.log_level.unwrap_or(LogLevel::Warn).word()
        );
        if self.trace.is_some() || self.is_watched {
            line.push_str(&format!(" ferry.trace={TRACE_RECORDS}"));
            if let Some(events) = self.trace_events {
                line.push_str(&format!(" ferry.events={}", events.bits()));
            }
        }
        if self.locks != LockScheme::Fine {
            line.push_str(&format!(" ferry.locks={}", self.locks.name()));
        }
        if self.stages || self.figures.is_some() {
            line.push_str(" ferry.stages=1");
        }
        match self.root {
            Root::Ram => {}
            Root::Host => line.push_str(" ferry.root=host"),
            Root::Disk => line.push_str(" ferry.root=disk"),
        }
        for (index, share) in self.all_shares().enumerate() {
            line.push(' ');
            line.push_str(&share.word(index));
        }
        if let Some(more) = &self.append {
            line.push(' ');
            line.push_str(more);
        }
        line
    }

    /// What QEMU shares with the guest.
    pub fn shared_directories(&self) -> Vec<SharedDirectory> {
        let root = (self.root == Root::Host).then(|| SharedDirectory {
            path: PathBuf::from("/"),
            tag: ROOT_TAG.to_string(),
            is_read_only: true,
        });
        let shares = self.all_shares().enumerate().map(|(index, share)| SharedDirectory {
            path: share.host.clone(),
            tag: share_tag(index),
            is_read_only: share.is_read_only,
        });
        root.into_iter().chain(shares).collect()
    }

    fn all_shares(&self) -> impl Iterator<Item = &Share> {
        self.shares.iter().chain(&self.saved)
    }

    /// The program's environment: a small default, the options over it.
    pub fn environment(&self) -> Result<Vec<String>> {
        let mut variables = vec![
            format!("PATH={GUEST_PATH}"),
            "HOME=/root".to_string(),
            "USER=root".to_string(),
            "LOGNAME=root".to_string(),
        ];
        if let Ok(terminal) = std::env::var("TERM") {
            variables.push(format!("TERM={terminal}"));
        }
        for given in &self.environment {
            let (name, entry) = match given.split_once('=') {
                Some((name, _)) => (name, Some(given.clone())),
                None => {
                    let value = std::env::var(given).ok();
                    (given.as_str(), value.map(|value| format!("{given}={value}")))
                }
            };
            if name.is_empty() {
                let text = format!("--env {given:?}: the name of the variable is missing");
                return Err(Usage(text).into());
            }
            let prefix = format!("{name}=");
            variables.retain(|variable| !variable.starts_with(&prefix));
            variables.extend(entry);
        }
        Ok(variables)
    }

    /// The kernel's file: as the option says, else the environment, else where the build puts it.
    pub fn kernel(&self) -> PathBuf {
        self.kernel.clone().unwrap_or_else(default_kernel)
    }
}

/// The kernel's file, unless an option names another.
pub fn default_kernel() -> PathBuf {
    std::env::var_os(KERNEL_VARIABLE).map_or_else(|| source_root().join(KERNEL_PATH), PathBuf::from)
}

/// The root of the source tree: the launcher says it; else it is above this program.
pub fn source_root() -> PathBuf {
    if let Some(root) = std::env::var_os("FERRY_ROOT") {
        return root.into();
    }
    let program = std::env::current_exe().unwrap_or_default();
    let above = program.ancestors().find(|directory| directory.join("policy/src").is_dir());
    above.unwrap_or(Path::new(".")).to_path_buf()
}

fn parse_cpus(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(cpus) if (1..=MAX_CPUS).contains(&cpus) => Ok(cpus),
        _ => Err(format!("expected a number from 1 to {MAX_CPUS}")),
    }
}

fn parse_locks(text: &str) -> Result<LockScheme, String> {
    let known = LockScheme::ALL.into_iter().find(|scheme| scheme.name() == text);
    known.ok_or_else(|| format!("expected {}", LockScheme::ALL.map(LockScheme::name).join(", ")))
}

/// Reads a list of what is to be recorded.
pub fn parse_events(text: &str) -> Result<Events, String> {
    let mut events = Events::LEAST;
    for word in text.split(',') {
        events = events.with(word).ok_or_else(|| {
            let kinds = EventKind::ALL.map(EventKind::name).join(", ");
            format!("{word:?} is none of calls, locks, all, usual, {kinds}")
        })?;
    }
    Ok(events)
}

pub fn parse_cores(text: &str) -> Result<CoreSet, String> {
    let core = |text: &str| match text.parse::<usize>() {
        Ok(core) if core < MAX_CPUS => Ok(core),
        _ => Err(format!("{text:?} is not a core from 0 to {}", MAX_CPUS - 1)),
    };
    let mut set = 0;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (core(first)?, core(last)?);
        if first > last {
            return Err(format!("{part:?} runs backwards"));
        }
        for index in first..=last {
            set |= 1 << index;
        }
    }
    Ok(CoreSet(set))
}

/// The list that `parse_cores` understands, such as `0,2-3`.
pub fn core_list(set: CoreSet) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for core in set.iter() {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == core => *last = core,
            _ => parts.push((core, core)),
        }
    }
    let words = parts.iter().map(|&(first, last)| match last == first {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    words.collect::<Vec<_>>().join(",")
}

/// A size in MiB; `K`, `M` and `G` are powers of 1024, a bare number is MiB, as for QEMU.
fn parse_memory(text: &str) -> Result<u64, String> {
    let text = text.trim_end_matches(['b', 'B']).trim_end_matches('i');
    let (digits, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(index) => text.split_at(index),
        None => (text, "M"),
    };
    let number: u64 = digits.parse().map_err(|_| "expected a size such as 512M".to_string())?;
    let mib = match unit {
        "k" | "K" => Some(number / 1024),
        "m" | "M" => Some(number),
        "g" | "G" => number.checked_mul(1024),
        "t" | "T" => number.checked_mul(1 << 20),
        _ => return Err(format!("{unit:?} is not a unit; use K, M or G")),
    };
    match mib {
        Some(mib @ 16..=1_048_576) => Ok(mib),
        _ => Err("expected 16M to 1024G".to_string()),
    }
}

/// A time in seconds, as options give it.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let expected = || "expected a positive number of seconds".to_string();
    let seconds: f64 = text.parse().map_err(|_| expected())?;
    if seconds <= 0.0 {
        return Err(expected());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| expected())
}

fn parse_directory(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    if path.has_root() && !path.as_os_str().as_bytes().contains(&0) {
        Ok(path.to_path_buf())
    } else {
        Err("expected an absolute path of the guest".to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Tool {
        #[command(flatten)]
        run: Arguments,
    }

    fn parse(options: &[&str]) -> Arguments {
        let line = ["ferry"].iter().chain(options).chain(&["--", "true", "--version"]);
        Tool::try_parse_from(line).map_err(|error| error.to_string()).unwrap().run
    }

    fn command_line(options: &[&str]) -> String {
        let arguments = parse(options);
        arguments.command_line(&arguments.layout().unwrap())
    }

    #[test]
    fn by_default_all_cores_run_programs_and_the_last_serves_calls_too() {
        let line = "ferry.path=auto ferry.app=0-1 ferry.kernel=1 ferry.interrupt=1 ferry.log=warn";
        assert_eq!(command_line(&[]), line);
        let line = "ferry.path=remote ferry.app=0 ferry.kernel=1 ferry.interrupt=1 ferry.log=warn";
        assert_eq!(command_line(&["--path", "remote"]), line);
        assert_eq!(parse(&[]).program, ["true", "--version"]);
    }

    #[test]
    fn shares_are_named_and_their_paths_escaped() {
        let line = command_line(&["--share", "/tmp:/mnt/a b", "--share", "/:/host:ro"]);
        let words = "ferry.share=ferry.share0:/mnt/a%20b ferry.share=ferry.share1:/host:ro";
        assert!(line.ends_with(words), "{line}");
        let share = Share::parse("/tmp:/tmp:/x").unwrap_err();
        assert!(share.contains("/tmp:/tmp is not a directory"), "{share}");
        for wrong in ["/tmp", "/tmp:mnt", ":/mnt", "/tmp:/", "/tmp:/a/../b", "/no/such:/mnt"] {
            assert!(Share::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn one_core_has_all_roles() {
        let line = command_line(&["--cpus", "1"]);
        assert!(line.contains("ferry.app=0 ferry.kernel=0 ferry.interrupt=0"), "{line}");
    }

    #[test]
    fn interrupt_cores_run_no_programs_and_serve_no_calls_unless_that_is_said() {
        let line = command_line(&["--cpus", "4", "--interrupt-cores", "3", "--path", "remote"]);
        assert!(line.contains("ferry.app=0-1 ferry.kernel=2 ferry.interrupt=3"), "{line}");
    }

    #[test]
    fn core_lists_are_read_and_written() {
        for list in ["0", "0-3", "1,3", "0,2-3,5-7"] {
            assert_eq!(core_list(parse_cores(list).unwrap()), list);
        }
        for wrong in ["", "8", "3-1", "a", "0,", "-1", "1-"] {
            assert!(parse_cores(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_core_that_is_not_there_is_refused() {
        assert!(parse(&["--app-cores", "2"]).layout().is_err());
        assert!(parse(&["--cpus", "4", "--app-cores", "0-2"]).layout().is_ok());
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_memory("512M"), Ok(512));
        assert_eq!(parse_memory("2G"), Ok(2048));
        assert_eq!(parse_memory("1GiB"), Ok(1024));
        assert_eq!(parse_memory("64"), Ok(64));
        for wrong in ["", "M", "1X", "0", "-1", "1.5G", "99999999999G"] {
            assert!(parse_memory(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn times_are_positive() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "x", "inf", "NaN"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn variables_of_the_user_replace_the_defaults() {
        let variables = parse(&["--env", "HOME=/tmp", "--env", "A=b=c"]).environment().unwrap();
        assert!(variables.contains(&"HOME=/tmp".to_string()));
        assert!(variables.contains(&"A=b=c".to_string()));
        assert!(!variables.contains(&"HOME=/root".to_string()));
        assert!(parse(&["--env", "=x"]).environment().is_err());
    }
}
