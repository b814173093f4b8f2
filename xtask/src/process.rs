//! Runs other programs with a deadline and keeps what they say.
//!
//! They stay in this tool's process group, so that Ctrl-C ends all; their standard input is empty
//! unless bytes are given. Output is read while they run, so that none blocks on a full pipe.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
    run_while_it_speaks(command, input, deadline, deadline)
}

/// Runs a program to its end, which comes early when it says nothing for `silence`.
pub fn run_while_it_speaks(
    command: &mut Command,
    input: &[u8],
    deadline: Duration,
    silence: Duration,
) -> Result<Finished> {
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
    let spoken = Spoken { begin: Instant::now(), last_ms: Arc::default() };
    let stdout = collect(child.stdout.take(), spoken.clone());
    let stderr = collect(child.stderr.take(), spoken.clone());
    let is_over = || spoken.begin.elapsed() > deadline || spoken.silence() > silence;
    let (status, timed_out) = wait_unless(&mut child, is_over)?;
    Ok(Finished { status, timed_out, stdout: text_of(stdout), stderr: text_of(stderr) })
}

/// When a program last said something.
#[derive(Clone)]
struct Spoken {
    begin: Instant,
    /// Milliseconds since the beginning.
    last_ms: Arc<AtomicU64>,
}

impl Spoken {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn silence(&self) -> Duration {
        let last_ms = self.last_ms.load(Ordering::Relaxed);
        Duration::from_millis(self.now_ms().saturating_sub(last_ms))
    }
}

fn collect(source: Option<impl Read + Send + 'static>, spoken: Spoken) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut buffer = [0; 1 << 16];
        let mut source = source;
        // What was read before an error is still worth showing.
        while let Some(Ok(count @ 1..)) = source.as_mut().map(|source| source.read(&mut buffer)) {
            bytes.extend_from_slice(&buffer[..count]);
            spoken.last_ms.store(spoken.now_ms(), Ordering::Relaxed);
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
    wait_unless(child, || begin.elapsed() > deadline)
}

/// Waits for the end of a program; once `is_over` it is asked to end, then killed.
fn wait_unless(child: &mut Child, is_over: impl Fn() -> bool) -> Result<(i32, bool)> {
    let mut asked: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            let signal = std::os::unix::process::ExitStatusExt::signal(&status);
            let code = status.code().or(signal.map(|signal| 128 + signal)).unwrap_or(-1);
            return Ok((code, asked.is_some()));
        }
        match asked {
            Some(asked) if asked.elapsed() > GRACE => child.kill()?,
            None if is_over() => {
                asked = Some(Instant::now());
                let id = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
                if let Some(id) = id {
                    // An error means that it has ended just now.
                    let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
                }
            }
            _ => {}
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

    #[test]
    fn a_program_that_falls_silent_is_ended_early() {
        let (silence, deadline) = (Duration::from_millis(200), Duration::from_secs(60));
        let script = "echo a; exec sleep 100";
        let finished = run_while_it_speaks(&mut shell(script), b"", deadline, silence).unwrap();
        assert!(finished.timed_out);
        assert_eq!(finished.stdout, "a\n");
    }
}
