//! Running a command with a deadline and taking its output.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

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
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {what}"))?;
    let mut stdout = child.stdout.take().context("the command has no standard output")?;
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stdout.read_to_end(&mut bytes);
        bytes
    });
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > deadline {
            child.kill()?;
            child.wait()?;
            bail!("{what} did not end within {} s", deadline.as_secs());
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let wall = start.elapsed();
    let output = reader.join().unwrap_or_default();
    if !status.success() {
        bail!("{what} ended with {status}");
    }
    Ok(Finished { output: String::from_utf8_lossy(&output).into_owned(), wall })
}
