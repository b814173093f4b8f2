//! Runs other programs with a deadline and keeps what they say.
//!
//! They stay in this tool's process group, so that Ctrl-C ends all; their standard input is empty
//! unless bytes are given. Output is read while they run, so that none blocks on a full pipe.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// How often an end is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// What a program gets between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// What a program left behind.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Exit status; 128 + N when killed by signal N.
    pub status: i32,
    /// Whether it was ended at the deadline.
    pub timed_out: bool,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Finished {
    /// Whether it ended by itself and well.
    pub fn succeeded(&self) -> bool {
        self.status == 0 && !self.timed_out
    }

    /// Everything it said, and how it ended, to be shown for a failure.
    pub fn describe(&self) -> String {
        let end = match self.timed_out {
            true => "ended at the deadline".to_string(),
            false => format!("exit status {}", self.status),
        };
        format!("{}{}({end})", with_line_end(&self.stdout), with_line_end(&self.stderr))
    }
}

fn with_line_end(text: &str) -> String {
    match text.is_empty() || text.ends_with('\n') {
        true => text.to_string(),
        false => format!("{text}\n"),
    }
}

/// Runs a program to its end.
pub fn run(command: &mut Command, input: &[u8], deadline: Duration) -> Result<Finished> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {name}"))?;
    let stdin = child.stdin.take();
    let input = input.to_vec();
    // A program that does not read its input ends this thread by a closed pipe.
    std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&input)));
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let (status, timed_out) = wait(&mut child, deadline)?;
    Ok(Finished { status, timed_out, stdout: text_of(stdout), stderr: text_of(stderr) })
}

fn collect(source: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut source) = source {
            // What was read before an error is still worth showing.
            let _ = source.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn text_of(thread: JoinHandle<Vec<u8>>) -> String {
    String::from_utf8_lossy(&thread.join().unwrap_or_default()).into_owned()
}

/// Waits for the end of a program; at the deadline it is asked to end, then killed.
pub fn wait(child: &mut Child, deadline: Duration) -> Result<(i32, bool)> {
    let begin = Instant::now();
    let mut asked = false;
    loop {
        if let Some(status) = child.try_wait()? {
            let signal = std::os::unix::process::ExitStatusExt::signal(&status);
            let code = status.code().or(signal.map(|signal| 128 + signal)).unwrap_or(-1);
            return Ok((code, asked));
        }
        if begin.elapsed() > deadline + GRACE {
            child.kill()?;
        } else if begin.elapsed() > deadline && !asked {
            asked = true;
            let id = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
            if let Some(id) = id {
                // An error means that it has ended just now.
                let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn streams_and_status_are_kept() {
        let script = "cat; echo oops >&2; exit 3";
        let finished = run(&mut shell(script), b"hello", Duration::from_secs(20)).unwrap();
        assert_eq!((finished.status, finished.timed_out), (3, false));
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("hello", "oops\n"));
    }

    #[test]
    fn the_deadline_ends_a_program() {
        let finished = run(&mut shell("exec sleep 100"), b"", Duration::from_millis(50)).unwrap();
        assert!(finished.timed_out);
        assert_eq!(finished.status, 128 + 15);
    }
}
