//! Records: what a command measured, with all that is needed to do it again, in a directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::calibration::Calibration;
use super::modelled::Modelled;
use super::outcome::Outcome;
use crate::run::source_root;

/// Version of the record; another one cannot be compared with.
pub const FORMAT: u32 = 2;
const FILE: &str = "results.json";

/// What a command measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// `FORMAT` of the tool that wrote it.
    pub format: u32,
    /// The command line.
    pub command: Vec<String>,
    /// Seconds since 1970 at its start.
    pub started: u64,
    /// Where and with what.
    pub circumstances: Circumstances,
    /// Repeats that were asked for.
    pub repeats: u32,
    /// The results.
    pub outcomes: Vec<Outcome>,
    /// What failed, in words.
    pub failures: Vec<String>,
    /// What the model of caches and TLBs counted; not timed, and never mixed with what is.
    #[serde(default)]
    pub modelled: Vec<Modelled>,
    /// What Ferry measured of the machine at its boots.
    #[serde(default)]
    pub calibration: Vec<Calibration>,
}

/// Where and with what something was measured; empty where that could not be told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Circumstances {
    /// Model of the processor.
    pub processor: String,
    /// Processors that the tool may use.
    pub processors: usize,
    /// The host's kernel.
    pub host: String,
    /// Version of QEMU.
    pub qemu: String,
    /// The peer's kernel.
    pub peer: String,
    /// Version of the C compiler.
    pub compiler: String,
    /// The host's load when it began: programs that wanted a processor, the mean of a minute.
    pub load: f64,
    /// The commit, with `+` when there are changes on top.
    pub commit: String,
}

impl Circumstances {
    /// Those of this command.
    pub fn look() -> Circumstances {
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model =
            cpus.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
        let mut commit = first_line("git", &["rev-parse", "--short=12", "HEAD"]);
        if !first_line("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty() {
            commit.push('+');
        }
        let boot = std::fs::read_dir(source_root().join("target/bench/peer/boot"));
        let kernels = boot.into_iter().flatten().flatten();
        let kernels = kernels.map(|entry| entry.file_name().to_string_lossy().into_owned());
        Circumstances {
            processor: model.unwrap_or_default().trim().to_owned(),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            host: first_line("uname", &["-sr"]),
            qemu: first_line("qemu-system-x86_64", &["--version"]),
            peer: kernels.filter(|name| name.starts_with("vmlinuz-")).max().unwrap_or_default(),
            compiler: first_line("cc", &["--version"]),
            load: load(&std::fs::read_to_string("/proc/loadavg").unwrap_or_default()),
            commit,
        }
    }

    /// What to say when the host has other things to do; `None` when it has not.
    ///
    /// Both virtual processors have to run at the same time for one to find the other spinning.
    pub fn warning(&self) -> Option<String> {
        (self.load > 0.3).then(|| {
            format!(
                "the host is busy (load {:.1} on {} processors): figures of calls that another core \
                 carries out are of little use",
                self.load, self.processors
            )
        })
    }
}

fn load(text: &str) -> f64 {
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(source_root()).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_owned()
}

impl Record {
    /// A record of this command, without results yet.
    pub fn begin(repeats: u32) -> Record {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Record {
            format: FORMAT,
            command: std::env::args().skip(1).collect(),
            started: now.map_or(0, |time| time.as_secs()),
            circumstances: Circumstances::look(),
            repeats,
            outcomes: Vec::new(),
            failures: Vec::new(),
            modelled: Vec::new(),
            calibration: Vec::new(),
        }
    }

    /// Commit, processor and QEMU, on one line.
    pub fn summary(&self) -> String {
        let of = &self.circumstances;
        format!(
            "{}, {}, {}, {}, {} repeats",
            self.date(),
            of.commit,
            of.processor,
            of.qemu,
            self.repeats
        )
    }

    /// When it began, in universal time.
    pub fn date(&self) -> String {
        let time = UNIX_EPOCH + Duration::from_secs(self.started);
        humantime::format_rfc3339_seconds(time).to_string()
    }

    /// The virtual CPUs that the command line asked for.
    pub fn cpus(&self) -> Option<&str> {
        let mut words = self.command.iter();
        while let Some(word) = words.next() {
            match word.strip_prefix("--cpus") {
                Some("") => return words.next().map(String::as_str),
                Some(rest) => return rest.strip_prefix('='),
                None => {}
            }
        }
        None
    }

    /// The names of the suites that it has outcomes of, in their order.
    pub fn suites(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for outcome in &self.outcomes {
            if !names.contains(&outcome.suite.as_str()) {
                names.push(&outcome.suite);
            }
        }
        names
    }

    /// Where it is kept unless the user says otherwise.
    pub fn default_directory(&self, suites: &[String]) -> PathBuf {
        let name = format!("{}-{}", suites.join("-"), self.started);
        source_root().join("target/bench/results").join(name)
    }

    /// Writes it, in place of what an earlier repeat wrote.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let cannot = || format!("cannot write results into {}", directory.display());
        std::fs::create_dir_all(directory).with_context(cannot)?;
        let text = serde_json::to_string_pretty(self)? + "\n";
        let unfinished = directory.join("results.json.new");
        std::fs::write(&unfinished, text).with_context(cannot)?;
        std::fs::rename(&unfinished, directory.join(FILE)).with_context(cannot)
    }

    /// Reads one: a directory of results, or the file in it.
    pub fn read(path: &Path) -> Result<Record> {
        let file = if path.is_dir() { path.join(FILE) } else { path.to_path_buf() };
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read the results {}", file.display()))?;
        let no_results = || {
            format!(
                "{} holds no results of `ferry bench`: name a results directory",
                file.display()
            )
        };
        let value: serde_json::Value = serde_json::from_str(&text).with_context(no_results)?;
        let format = value.get("format").and_then(serde_json::Value::as_u64);
        match format.with_context(no_results)? {
            format if format == u64::from(FORMAT) => {}
            format => bail!(
                "{} was written by another version of the tool (format {format}; this one has \
                 {FORMAT}): measure again with this version, or compare with that one",
                file.display()
            ),
        }
        serde_json::from_value(value).with_context(no_results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let mut record = Record::begin(3);
        record.failures.push("one".to_owned());
        record.write(directory.path()).unwrap();
        record.write(directory.path()).unwrap();
        assert_eq!(Record::read(directory.path()).unwrap(), record);
        assert_eq!(Record::read(&directory.path().join(FILE)).unwrap(), record);
    }

    #[test]
    fn a_record_says_when_and_with_how_many_processors_it_was_made() {
        let mut record = Record::begin(3);
        record.started = 1_795_273_644;
        assert_eq!(record.date(), "2026-11-21T15:07:24Z");
        for (words, cpus) in [("null --cpus 4", Some("4")), ("--cpus=2", Some("2")), ("null", None)]
        {
            record.command = words.split(' ').map(str::to_owned).collect();
            assert_eq!(record.cpus(), cpus);
        }
        record.started = u64::from(u32::MAX);
        assert!(record.summary().contains("2106") && record.suites().is_empty());
    }

    #[test]
    fn records_of_another_version_are_refused_with_both_versions() {
        let directory = tempfile::tempdir().unwrap();
        let mut record = Record::begin(3);
        record.format = 77;
        record.write(directory.path()).unwrap();
        let message = format!("{:#}", Record::read(directory.path()).unwrap_err());
        assert!(message.contains("77") && message.contains("measure again"), "{message}");
    }

    #[test]
    fn a_busy_host_is_warned_of() {
        assert_eq!(load("9.77 8.46 6.99 7/355 1234\n"), 9.77);
        assert_eq!(load(""), 0.0);
        let mut here = Circumstances { load: 9.77, processors: 2, ..Circumstances::default() };
        assert!(here.warning().unwrap().contains("load 9.8 on 2 processors"));
        here.load = 0.1;
        assert_eq!(here.warning(), None);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let empty = format!("{{\"format\": {FORMAT}}}");
        for text in ["[1, 2]", &empty, "no JSON"] {
            std::fs::write(directory.path().join(FILE), text).unwrap();
            let message = format!("{:#}", Record::read(directory.path()).unwrap_err());
            assert!(message.contains("holds no results"), "{message}");
        }
        assert!(Record::read(&directory.path().join("none")).is_err());
    }
}
