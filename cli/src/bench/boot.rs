//! Running a command with a deadline and taking its output.
//!
//! Whatever is wrong with the command ends up in one error: which command, how it ended, and the last
//! that it said.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

/// So many bytes of what a command said last are enough to understand its end.
const LAST_WORDS: usize = 400;
/// Output of a command that has ended comes within this time.
const DRAIN: Duration = Duration::from_secs(2);

/// What a command printed, and how long it took.
pub struct Finished {
    /// Standard output, lossily as text.
    pub output: String,
    /// From start to end.
    pub wall: Duration,
}

/// Runs a command until it ends; kills it at the deadline, which is an error, as is a status that is
/// not 0.
pub fn run(command: &mut Command, what: &str, deadline: Duration) -> Result<Finished> {
    Running::start(command, what, deadline)?.finish()
}

/// A command under way. Dropping it kills it.
pub struct Running {
    child: Child,
    what: String,
    start: Instant,
    deadline: Duration,
    lines: Receiver<String>,
    complaints: Receiver<String>,
    output: String,
}

impl Running {
    /// Starts a command, which has to end before the deadline.
    pub fn start(command: &mut Command, what: &str, deadline: Duration) -> Result<Running> {
        let start = Instant::now();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {what}"))?;
        let stdout = child.stdout.take().context("the command has no standard output")?;
        let stderr = child.stderr.take().context("the command has no standard error")?;
        Ok(Running {
            child,
            what: what.to_owned(),
            start,
            deadline,
            lines: lines_of(stdout),
            complaints: lines_of(stderr),
            output: String::new(),
        })
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the command has printed this line.
    pub fn wait_for_line(&mut self, wanted: &str) -> Result<()> {
        loop {
            let left = self.deadline.saturating_sub(self.start.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.output += &line;
                    if line.trim() == wanted {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Err(self.too_late()),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.failure(&format!("ended without saying {wanted:?}")));
                }
            }
        }
    }

    /// Waits for the end.
    pub fn finish(mut self) -> Result<Finished> {
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if self.start.elapsed() > self.deadline {
                return Err(self.too_late());
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let wall = self.start.elapsed();
        if !status.success() {
            return Err(self.failure(&format!("ended with {status}")));
        }
        drain(&self.lines, &mut self.output);
        Ok(Finished { output: std::mem::take(&mut self.output), wall })
    }

    fn too_late(&mut self) -> anyhow::Error {
        let text = format!(
            "did not end within {} s and was killed (--deadline gives it more)",
            self.deadline.as_secs()
        );
        self.failure(&text)
    }

    /// An error with the last words of the command, which is killed.
    fn failure(&mut self, how: &str) -> anyhow::Error {
        self.kill();
        drain(&self.lines, &mut self.output);
        let mut complaints = String::new();
        drain(&self.complaints, &mut complaints);
        let said = if complaints.trim().is_empty() { &self.output } else { &complaints };
        let what = &self.what;
        match last_words(said) {
            "" => anyhow!("{what} {how}; it said nothing"),
            words => anyhow!("{what} {how}; its last words: {words}"),
        }
    }

    fn kill(&mut self) {
        // Errors mean that it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The lines of a stream, each with its end, as they come.
fn lines_of(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while matches!(stream.read_until(b'\n', &mut line), Ok(1..)) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
            line.clear();
        }
    });
    lines
}

/// Takes what is left of the lines of a command that has ended.
fn drain(lines: &Receiver<String>, into: &mut String) {
    let end = Instant::now() + DRAIN;
    while let Ok(line) = lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
        *into += &line;
    }
}

/// The end of a text, from the start of a line if there is one.
pub fn last_words(text: &str) -> &str {
    let text = text.trim();
    let Some(mut start) = text.len().checked_sub(LAST_WORDS) else { return text };
    while !text.is_char_boundary(start) {
        start += 1;
    }
    let end = &text[start..];
    end.split_once('\n').map_or(end, |(_, lines)| lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn error_of(script: &str) -> String {
        match run(&mut shell(script), "the script", Duration::from_secs(1)) {
            Ok(_) => panic!("{script} did not fail"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_output_is_complete() {
        let finished = run(&mut shell("seq 1000"), "seq", Duration::from_secs(20)).unwrap();
        assert_eq!(finished.output.lines().count(), 1000);
    }

    #[test]
    fn a_line_is_waited_for_and_the_rest_is_kept() {
        let mut command = shell("echo boot; echo asleep; echo end");
        let mut running = Running::start(&mut command, "it", Duration::from_secs(20)).unwrap();
        running.wait_for_line("asleep").unwrap();
        assert_eq!(running.finish().unwrap().output, "boot\nasleep\nend\n");
    }

    #[test]
    fn who_hangs_is_killed_and_quoted() {
        let error = error_of("echo so far; exec sleep 60");
        assert!(error.contains("within 1 s") && error.contains("so far"), "{error}");
    }

    #[test]
    fn who_dies_is_quoted_by_its_complaints() {
        let error = error_of("echo noise; echo why >&2; exit 3");
        assert!(error.contains("exit status: 3") && error.ends_with("why"), "{error}");
    }

    #[test]
    fn a_line_that_does_not_come_is_an_error() {
        let mut command = shell("echo boot");
        let mut running = Running::start(&mut command, "it", Duration::from_secs(20)).unwrap();
        let error = running.wait_for_line("asleep").unwrap_err().to_string();
        assert!(error.contains("without saying \"asleep\""), "{error}");
    }

    #[test]
    fn last_words_are_whole_lines() {
        let text = format!("{}\nlast line", "x".repeat(LAST_WORDS));
        assert_eq!(last_words(&text), "last line");
        assert_eq!(last_words(" short\n"), "short");
    }
}
