//! Boots Ferry for tests: `ferry run` with the checked kernel, in one of the configurations that
//! every system-call test has to pass in.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::process::{self, Finished};

/// What a machine may take beyond the time of its program: to boot, and to end.
const MARGIN: Duration = Duration::from_secs(20);
/// Lines of the kernel's log that are shown for a boot that failed.
const SHOWN_LINES: usize = 15;

/// In the message of a panic that a test asked for.
const ASKED_FOR: &str = "test hook";

/// Number of cores, call path and lock scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Cores of the machine.
    pub cpus: usize,
    /// `local`, `remote`, `posted` or `auto`.
    pub path: &'static str,
    /// The lock scheme.
    pub locks: &'static str,
}

/// One and two cores with every call path; with one core, nobody else could take what is posted.
pub const CONFIGURATIONS: [Configuration; 6] = [
    Configuration::new(1, "local"),
    Configuration::new(1, "remote"),
    Configuration::new(2, "local"),
    Configuration::new(2, "remote"),
    Configuration::new(2, "posted"),
    Configuration::new(2, "auto"),
];

/// Each lock scheme but the fine one, which is that of all others: the four paths with two cores among them.
pub const SCHEMES: [Configuration; 4] = [
    Configuration { locks: "coarse", ..Configuration::new(2, "auto") },
    Configuration { locks: "giant-ticket", ..Configuration::new(2, "local") },
    Configuration { locks: "giant-clh", ..Configuration::new(2, "remote") },
    Configuration { locks: "giant-mcs", ..Configuration::new(2, "posted") },
];

impl Configuration {
    /// With the lock scheme that is the default.
    pub const fn new(cpus: usize, path: &'static str) -> Configuration {
        Configuration { cpus, path, locks: "fine" }
    }

    /// Such as `2-remote`, or `2-remote-giant-clh`.
    pub fn name(self) -> String {
        let locks = match self.locks {
            "fine" => String::new(),
            other => format!("-{other}"),
        };
        format!("{}-{}{locks}", self.cpus, self.path)
    }
}

/// How to start Ferry.
#[derive(Clone, Debug)]
pub struct Ferry {
    /// The tool.
    pub tool: PathBuf,
    /// The kernel's ELF file.
    pub kernel: PathBuf,
    /// Where logs and prepared files go.
    pub work: PathBuf,
}

/// One boot and what came of it.
pub struct Boot {
    /// What the tool said and how it ended.
    pub finished: Finished,
    /// The kernel's log.
    pub log: String,
}

impl Ferry {
    /// `ferry run` in a configuration, without the program.
    pub fn command(&self, configuration: Configuration) -> Command {
        let mut command = Command::new(&self.tool);
        command.arg("run").arg("--kernel").arg(&self.kernel);
        command.args(["--cpus", &configuration.cpus.to_string(), "--path", configuration.path]);
        if configuration.locks != "fine" {
            command.args(["--locks", configuration.locks]);
        }
        command
    }

    /// Boots and runs a program until its end or the deadline. `name` is that of the log.
    pub fn boot(
        &self,
        name: &str,
        configuration: Configuration,
        options: &[&str],
        program: &[&str],
        input: &[u8],
        deadline: Duration,
    ) -> Result<Boot> {
        let command = self.prepared(name, configuration, options, program, deadline);
        self.run(command, input, deadline, deadline)
    }

    /// As `boot`, but a machine that says nothing for `silence` counts as hung.
    pub fn boot_while_it_speaks(
        &self,
        name: &str,
        configuration: Configuration,
        options: &[&str],
        program: &[&str],
        deadline: Duration,
        silence: Duration,
    ) -> Result<Boot> {
        let command = self.prepared(name, configuration, options, program, deadline);
        self.run(command, b"", deadline, silence)
    }

    fn prepared(
        &self,
        name: &str,
        configuration: Configuration,
        options: &[&str],
        program: &[&str],
        deadline: Duration,
    ) -> (Command, PathBuf) {
        let log =
            self.work.join(format!("{}-{}.log", name.replace('/', "-"), configuration.name()));
        let mut command = self.command(configuration);
        command.arg("--log-file").arg(&log);
        command.args(["--timeout", &deadline.as_secs_f64().to_string()]);
        command.args(options).arg("--").args(program);
        (command, log)
    }

    fn run(
        &self,
        (mut command, log): (Command, PathBuf),
        input: &[u8],
        deadline: Duration,
        silence: Duration,
    ) -> Result<Boot> {
        let (deadline, silence) = (deadline + MARGIN, silence + MARGIN);
        let finished = process::run_while_it_speaks(&mut command, input, deadline, silence)?;
        Ok(Boot { finished, log: read_lossy(&log) })
    }
}

fn read_lossy(path: &Path) -> String {
    std::fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

impl Boot {
    /// Panics of handlers that the kernel contained, each with its place. Their calls failed with an
    /// error and the rest went on, but every one is a mistake in the kernel, unless a test asked
    /// for it.
    pub fn contained_panics(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut lines = self.log.lines().peekable();
        while let Some(line) = lines.next() {
            let Some((_, message)) = line.split_once("contained: ") else { continue };
            let place =
                lines.peek().and_then(|next| next.split_once(" at ")).map(|(_, place)| place);
            if !message.contains(ASKED_FOR) {
                found.insert(format!("{} at {}", message.trim(), place.unwrap_or("?").trim()));
            }
        }
        found
    }

    /// The tool's messages and the end of the kernel's log.
    pub fn describe_machine(&self) -> String {
        let lines: Vec<&str> = self.log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
        let status = self.finished.status;
        let what = match status {
            124 => "the machine did not end in time".to_string(),
            _ if self.finished.timed_out => "the machine was silent for too long".to_string(),
            70 => "the kernel failed".to_string(),
            _ => format!("ferry ended with status {status}"),
        };
        format!("{what}\n{}\nkernel log:\n{}", self.finished.stderr.trim_end(), tail.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contained_panics_are_found_once_each() {
        let panic = "[0.3 1] contained: out of bounds\r\n[0.3 1] at a.rs:7:1\r\n";
        let asked = "[0.3 1] contained: test hook\r\n[0.3 1] at b.rs:1:1\r\n";
        let stdout = String::new();
        let finished = Finished { status: 0, timed_out: false, stdout, stderr: String::new() };
        let boot = Boot { finished, log: [panic, asked, panic].concat() };
        let expected = BTreeSet::from(["out of bounds at a.rs:7:1".to_string()]);
        assert_eq!(boot.contained_panics(), expected);
    }
}
