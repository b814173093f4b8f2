//! The kernel's log: every byte of the serial port goes to a file, and with `--log` its lines to
//! standard error as they come.
//!
//! After an ordinary run the file becomes `last.log`; after a panic it keeps its own name, so that
//! the next run does not wipe the evidence. `--log-file` overrides both.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;

use anyhow::{Context, Result};

use super::options::{LogLevel, source_root};
use super::session::Event;
use super::terminal;

/// Logs of panics that are kept.
const KEPT_PANICS: usize = 10;
/// Longest line that is held back until its end comes, in bytes.
const MAX_LINE: usize = 4096;
/// The bit of standard error among the terminals.
const TERMINAL_STDERR: u32 = 1 << 2;
const PANIC_PREFIX: &str = "panic-";

/// The file that a run's log goes to.
pub struct LogFile {
    file: File,
    path: PathBuf,
    is_users: bool,
}

impl LogFile {
    /// Creates the file: where the user wants it, else in `.ferry/log` of the source tree, else in
    /// the directory for temporary files.
    pub fn create(wanted: Option<&Path>) -> Result<LogFile> {
        if let Some(path) = wanted {
            let file = File::create(path)
                .with_context(|| format!("cannot create the log {}", path.display()))?;
            return Ok(LogFile { file, path: path.to_path_buf(), is_users: true });
        }
        let directory = source_root().join(".ferry/log");
        let name = format!("{}.log", std::process::id());
        let preferred = fs::create_dir_all(&directory)
            .and_then(|()| File::create(directory.join(&name)))
            .map(|file| (file, directory.join(&name)));
        let (file, path) = preferred.or_else(|_| {
            let path = std::env::temp_dir().join(format!("ferry-{name}"));
            let file = File::create(&path).context("cannot create a file for the kernel's log")?;
            anyhow::Ok((file, path))
        })?;
        Ok(LogFile { file, path, is_users: false })
    }

    /// A second handle for the thread that writes it.
    fn writer(&self) -> Result<File> {
        self.file.try_clone().context("cannot write the kernel's log")
    }

    /// Adds a line of the tool's own.
    pub fn note(&mut self, text: &str) {
        // The log is best effort: a full disk must not end the program.
        drop(writeln!(self.file, "ferry: {text}"));
    }

    /// What the kernel has said so far.
    pub fn text(&self) -> String {
        fs::read(&self.path)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Keeps the log of a run that went wrong, and returns its name.
    pub fn keep(self) -> PathBuf {
        if self.is_users {
            return self.path;
        }
        let seconds = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |time| time.as_secs());
        let name = format!("{PANIC_PREFIX}{seconds}-{}.log", std::process::id());
        let kept = self.path.with_file_name(name);
        forget_oldest(self.path.parent().unwrap_or(Path::new(".")));
        match fs::rename(&self.path, &kept) {
            Ok(()) => kept,
            Err(_) => self.path,
        }
    }

    /// Ends the log of an ordinary run.
    pub fn finish(self) {
        if !self.is_users {
            let in_tree =
                self.path.ancestors().nth(2).is_some_and(|above| above.ends_with(".ferry"));
            let result = match in_tree {
                true => fs::rename(&self.path, self.path.with_file_name("last.log")),
                false => fs::remove_file(&self.path),
            };
            // Another run may have tidied up already.
            drop(result);
        }
    }
}

/// Deletes the oldest logs of panics, so that they do not pile up.
fn forget_oldest(directory: &Path) {
    let is_panic = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PANIC_PREFIX))
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut panics: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_panic).collect();
    panics.sort();
    let excess = (panics.len() + 1).saturating_sub(KEPT_PANICS);
    for path in panics.into_iter().take(excess) {
        drop(fs::remove_file(path));
    }
}

/// Starts the thread that receives the log. It reports a panic as soon as that is complete, and the
/// end of the serial port.
pub fn receive(
    mut serial: UnixStream,
    log: &LogFile,
    shown: Option<LogLevel>,
    events: Sender<Event>,
) -> Result<()> {
    let mut file = log.writer()?;
    // A terminal may be raw, so the carriage return is ours to give.
    let is_terminal = terminal::mask() & TERMINAL_STDERR != 0;
    let line_end = if is_terminal { "\r\n" } else { "\n" };
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        let mut line = Vec::new();
        while let Ok(count @ 1..) = serial.read(&mut bytes) {
            drop(file.write_all(&bytes[..count]));
            for byte in &bytes[..count] {
                if *byte != b'\n' && line.len() < MAX_LINE {
                    line.push(*byte);
                    continue;
                }
                let text = String::from_utf8_lossy(&line).trim_end_matches('\r').to_string();
                line.clear();
                if shown.is_some() {
                    drop(write!(std::io::stderr(), "{text}{line_end}"));
                }
                if super::panic::is_end(&text) {
                    drop(events.send(Event::Panicked));
                }
            }
        }
        drop(events.send(Event::SerialClosed));
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_panics_are_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        for index in 0..KEPT_PANICS + 3 {
            fs::write(directory.path().join(format!("{PANIC_PREFIX}{index:02}.log")), "").unwrap();
        }
        fs::write(directory.path().join("last.log"), "").unwrap();
        forget_oldest(directory.path());
        let names = fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(names, KEPT_PANICS, "one less than the limit, and last.log");
        assert!(!directory.path().join(format!("{PANIC_PREFIX}00.log")).exists());
    }

    #[test]
    fn the_users_log_stays_where_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("my.log");
        let mut log = LogFile::create(Some(&path)).unwrap();
        log.note("hello");
        assert_eq!(log.text(), "ferry: hello\n");
        assert_eq!(log.keep(), path);
    }
}
