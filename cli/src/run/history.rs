//! `ferry run --record FILE` and `--replay FILE`: the same run once more, instruction by instruction.
//!
//! Nothing of the order of events has to be written down, because there is only one: QEMU runs all cores in
//! turn in one thread and counts time in instructions, random numbers follow from a seed, the date is given,
//! and what comes from outside (the program, its input, credit for its output) reaches the machine only while
//! none of its cores has anything to do. A recording is therefore small: the seed, the date, what the machine
//! was made of, and a digest of all that it sent, by which a replay tells whether it went the same way.
//!
//! Reproduced is the order in which cores take requests, locks and entries, wake-ups, timers, faults and
//! random numbers. It is not the order of a machine whose cores run at the same time: a core runs until it
//! spins, halts, or a timer is due. Each recording takes another seed, and so another order. Disks and shares
//! answer when the host likes; they are refused.

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::machine::Determinism;
use crate::status::Usage;

/// Time between two looks at a machine that may be idle.
const PAUSE: Duration = Duration::from_millis(5);
/// Looks between which nothing may have happened.
const QUIET_LOOKS: u32 = 4;

/// What a machine was made of: names and values, both for people.
pub type Parts = BTreeMap<String, String>;

/// A recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct History {
    /// Version of this format.
    version: u32,
    /// What the machine was made of.
    parts: Parts,
    /// What made it run as it did.
    pub determinism: Determinism,
    /// Digest of what it said, and the exit status; none while it runs.
    said: Option<Said>,
    #[serde(skip)]
    file: PathBuf,
    #[serde(skip)]
    is_replayed: bool,
}

/// What a machine said to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// Digest of all frames.
    pub digest: String,
    /// Exit status.
    pub status: u8,
}

const VERSION: u32 = 1;

impl History {
    /// Begins a recording with a seed that the time gives.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written.
    pub fn record(file: &Path, parts: Parts) -> Result<History> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let date = humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + now).to_string();
        let determinism = Determinism {
            seed: now.subsec_nanos() ^ std::process::id(),
            date: date.trim_end_matches('Z').to_owned(),
        };
        let file = file.to_path_buf();
        let history =
            History { version: VERSION, parts, determinism, said: None, file, is_replayed: false };
        history.write()?;
        Ok(history)
    }

    /// Reads a recording, to be replayed.
    ///
    /// # Errors
    ///
    /// Where there is no such recording, or it is of another machine.
    pub fn replay(file: &Path, parts: &Parts) -> Result<History> {
        let wrong = |what: &dyn std::fmt::Display| {
            Usage(format!("{} is no recording of `ferry run --record`: {what}", file.display()))
        };
        let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
        let recorded: History = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
        if recorded.version != VERSION {
            return Err(wrong(&format_args!("version {}", recorded.version)).into());
        }
        if let Some((name, now, then)) = difference(parts, &recorded.parts) {
            let text = format!(
                "{} was recorded with another {name} ({then}, now {now}): give the same options and program",
                file.display()
            );
            return Err(Usage(text).into());
        }
        Ok(History { file: file.to_path_buf(), is_replayed: true, ..recorded })
    }

    /// The machine is gone: completes the recording, or says whether the replay went the same way. The exit
    /// status for it.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written.
    pub fn finish(mut self, said: Said) -> Result<u8> {
        let status = said.status;
        if !self.is_replayed {
            self.said = Some(said);
            self.write()?;
            return Ok(status);
        }
        match &self.said {
            None => {
                eprintln!("ferry: the recording did not come to its end: nothing to compare with")
            }
            Some(recorded) if *recorded == said => {
                eprintln!("ferry: the replay went the recorded way");
            }
            Some(recorded) => {
                let (then, now) = (recorded.status, said.status);
                eprintln!("ferry: the replay went another way (status {then} then, {now} now)");
                return Ok(crate::status::ASTRAY);
            }
        }
        Ok(status)
    }

    fn write(&self) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(&self.file, text)
            .with_context(|| format!("cannot write {}", self.file.display()))
    }
}

/// The first part that differs, with its value now and then.
fn difference<'a>(now: &'a Parts, then: &'a Parts) -> Option<(&'a str, &'a str, &'a str)> {
    let value = |of: &'a Parts, name: &str| of.get(name).map_or("none", String::as_str);
    let names = now.keys().chain(then.keys());
    names
        .map(|name| (name.as_str(), value(now, name), value(then, name)))
        .find(|(_, now, then)| now != then)
}

/// A number that stands for the content of a file (not against malice).
///
/// # Errors
///
/// Where it cannot be read.
pub fn fingerprint(mut file: &File) -> Result<String> {
    file.rewind()?;
    let mut hasher = DefaultHasher::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        hasher.write(&buffer[..count]);
    }
    file.rewind()?;
    Ok(format!("{:016x}", hasher.finish()))
}

/// Waits until none of the cores of a deterministic machine has anything to do, and nothing comes by itself:
/// its threads sleep and go on sleeping. Returns too when the machine is gone.
pub fn wait_until_idle(process: u32) {
    let mut before = None;
    let mut quiet = 0;
    while quiet < QUIET_LOOKS {
        let Some(now) = activity(process) else { return };
        let is_quiet = now.sleeps && now.has_cores && before == Some(now.switches);
        quiet = if is_quiet { quiet + 1 } else { 0 };
        before = Some(now.switches);
        std::thread::sleep(PAUSE);
    }
}

struct Activity {
    /// All threads sleep.
    sleeps: bool,
    /// The thread of the cores is there.
    has_cores: bool,
    /// How often threads were given a processor.
    switches: u64,
}

/// What the threads of a process do (`proc(5)`); none when it is gone.
fn activity(process: u32) -> Option<Activity> {
    let process = procfs::process::Process::new(i32::try_from(process).ok()?).ok()?;
    let mut activity = Activity { sleeps: true, has_cores: false, switches: 0 };
    for task in process.tasks().ok()? {
        let status = task.ok()?.status().ok()?;
        activity.sleeps &= status.state.starts_with('S');
        activity.has_cores |= status.name.contains("CPU");
        activity.switches += status.voluntary_ctxt_switches.unwrap_or(0)
            + status.nonvoluntary_ctxt_switches.unwrap_or(0);
    }
    Some(activity)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(kernel: &str) -> Parts {
        [("kernel", kernel), ("cpus", "2")].map(|(name, value)| (name.into(), value.into())).into()
    }

    fn said(digest: &str) -> Said {
        Said { digest: digest.to_owned(), status: 70 }
    }

    #[test]
    fn a_replay_tells_whether_it_went_the_recorded_way() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run");
        let recording = History::record(&file, parts("a")).unwrap();
        let determinism = recording.determinism.clone();
        assert_eq!(recording.finish(said("x")).unwrap(), 70);
        let replay = || History::replay(&file, &parts("a")).unwrap();
        assert_eq!(replay().determinism, determinism);
        assert_eq!(replay().finish(said("x")).unwrap(), 70);
        assert_eq!(replay().finish(said("y")).unwrap(), crate::status::ASTRAY);
    }

    #[test]
    fn a_replay_of_another_machine_is_refused_with_what_differs() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run");
        History::record(&file, parts("a")).unwrap();
        let error = History::replay(&file, &parts("b")).err().unwrap().to_string();
        assert!(error.contains("another kernel (a, now b)"), "{error}");
        for text in ["", "{}", "no recording"] {
            std::fs::write(&file, text).unwrap();
            assert!(History::replay(&file, &parts("a")).is_err());
        }
    }

    #[test]
    fn a_recording_that_was_cut_off_anywhere_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run");
        History::record(&file, parts("a")).unwrap().finish(said("x")).unwrap();
        let whole = std::fs::read_to_string(&file).unwrap();
        assert!(History::replay(&file, &parts("a")).is_ok());
        for length in 0..whole.trim_end().len() {
            std::fs::write(&file, &whole[..length]).unwrap();
            let error = History::replay(&file, &parts("a")).err().unwrap().to_string();
            assert!(error.contains("is no recording of"), "{length}: {error}");
        }
    }
}
