//! Programs of this machine that do the work, sizes, and the bar that says how far they are.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

use crate::status::Unavailable;

/// Bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;

/// A size in bytes; `M` and `G` are powers of 1024, a bare number is MiB.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let expected = || "expected a size from 1M to 16384G, such as 2G".to_string();
    let (digits, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(index) => text.split_at(index),
        None => (text, "M"),
    };
    let number: u64 = digits.parse().map_err(|_| expected())?;
    let unit = match unit {
        "M" | "m" | "MiB" => MIB,
        "G" | "g" | "GiB" => MIB << 10,
        _ => return Err(expected()),
    };
    let size = number.checked_mul(unit).filter(|size| (MIB..=MIB << 24).contains(size));
    size.ok_or_else(expected)
}

/// A program that is to be run.
pub struct Tool {
    name: &'static str,
    command: Command,
}

/// What a program has said, and its exit status.
pub struct Said {
    /// Standard output.
    pub text: String,
    /// Exit status.
    pub status: i32,
}

/// Where a program is: those of administrators are not in everybody's `PATH`.
pub fn find(name: &str) -> Result<PathBuf> {
    let places = ["/usr/sbin", "/sbin"].map(|directory| Path::new(directory).join(name));
    let found = places.into_iter().find(|path| path.is_file());
    found.or_else(|| crate::image::find_in_path(Path::new(name))).ok_or_else(|| {
        let package = if name == "mmdebstrap" { name } else { "e2fsprogs" };
        Unavailable(format!("{name} is not installed; install the package {package}")).into()
    })
}

impl Tool {
    /// A tool of e2fsprogs, with messages in English.
    pub fn new(name: &'static str) -> Tool {
        let program = find(name).unwrap_or_else(|_| name.into());
        let mut command = Command::new(program);
        command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        Tool { name, command }
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Tool {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Tool {
        self.command.args(arguments);
        self
    }

    /// Sets a variable.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Tool {
        self.command.env(name, value.into());
        self
    }

    /// Runs it. An error when its exit status is none of `good`, with what it said.
    pub fn run(mut self, good: &[i32]) -> Result<Said> {
        find(self.name)?;
        let output = self.command.output().with_context(|| format!("cannot run {}", self.name))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.code() {
            Some(status) if good.contains(&status) => Ok(Said { text, status }),
            _ => {
                let said = String::from_utf8_lossy(&output.stderr);
                bail!("{} failed ({}):\n{text}{}", self.name, output.status, said.trim_end())
            }
        }
    }
}

/// A bar on a terminal; elsewhere a line for each step.
pub struct Bar {
    bar: Option<ProgressBar>,
}

impl Bar {
    fn new(length: u64, template: &str) -> Bar {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(length).with_finish(ProgressFinish::AndClear);
            let style = ProgressStyle::with_template(template);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        Bar { bar }
    }

    /// A bar of steps.
    pub fn steps(length: u64) -> Bar {
        Bar::new(length, "{bar:24} {pos}/{len} {elapsed} {wide_msg}")
    }

    /// A bar of bytes.
    pub fn bytes(length: u64, what: &str) -> Bar {
        let bar = Bar::new(length, "{bar:24} {binary_bytes}/{binary_total_bytes} {wide_msg}");
        bar.show(what);
        bar
    }

    /// Says what is done now.
    pub fn show(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(what.to_string()),
            None => eprintln!("ferry image: {what}"),
        }
    }

    /// Says what is done now, where there is room for small steps.
    pub fn mention(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_string());
        }
    }

    /// So much is done.
    pub fn set(&self, position: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(position);
        }
    }

    /// One more step is done.
    pub fn step(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// There are so many steps more.
    pub fn extend(&self, steps: u64) {
        if let Some(bar) = &self.bar {
            bar.inc_length(steps);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("64"), Ok(64 * MIB));
        assert_eq!(parse_size("64M"), Ok(64 * MIB));
        assert_eq!(parse_size("2G"), Ok(2048 * MIB));
        for wrong in ["", "0", "M", "1.5G", "1T", "-1", "99999999999G"] {
            assert!(parse_size(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_tool_that_fails_tells_what_it_said() {
        let error = Tool::new("e2fsck").arg("-n").arg("/no/such/disk").run(&[0]).err().unwrap();
        assert!(error.to_string().contains("/no/such/disk"), "{error}");
    }
}
