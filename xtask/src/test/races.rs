//! Three races that a checked kernel has on purpose (`/proc/ferry/race`): each is found by recording run after run until
//! it strikes, and strikes the same way in every replay.
//!
//! Replays are compared by what the program said, its status, and the first message of the panic with its time in
//! nanoseconds. What follows that message may differ (decision 0340).

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Bench;
use super::boot::{Boot, Configuration};
use super::run::Check;
use super::syscall;

/// What one run may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// Recordings after which a race should have been found: most strike in the first.
const MOST_RECORDINGS: usize = 12;
/// Rounds of each core in one recording.
const ROUNDS: &str = "400";
/// The status of `tests/stress/race.c` when its race struck.
const STRUCK: i32 = 1;
/// Replays of each race, in a sample and with `--all`.
const REPLAYS: usize = 3;
const ALL_REPLAYS: usize = 20;

/// The checks of the stage `run` that are here.
pub const CHECKS: &[(&str, Check)] = &[
    ("race-lost-wake-up", |bench| race(bench, "wait", "wake", "the wake-up was lost")),
    ("race-slot-taken-twice", |bench| race(bench, "slot", "slot", "is freed twice")),
    ("race-locks-in-two-orders", |bench| race(bench, "ab", "ba", "each waits for the other")),
];

fn race(bench: &Bench, word: &str, other: &str, message: &str) -> Result<()> {
    syscall::build(bench)?;
    let program = bench.programs().join("musl/race").display().to_string();
    let recording = bench.work.join(format!("{word}.recording")).display().to_string();
    let run = |option: &str| {
        let options = ["--app-cores", "0-1", "--kernel-cores", "1", option, &recording];
        let program = [program.as_str(), word, other, ROUNDS];
        let name = format!("race-{word}");
        bench.ferry.boot(&name, Configuration::new(2, "local"), &options, &program, b"", DEADLINE)
    };
    let mut found = None;
    for _ in 0..MOST_RECORDINGS {
        let boot = run("--record")?;
        let status = boot.finished.status;
        ensure!(matches!(status, 0 | STRUCK), "{}", boot.describe_machine());
        if status == STRUCK {
            found = Some(boot);
            break;
        }
    }
    let recorded = found.with_context(|| format!("no strike in {MOST_RECORDINGS} recordings"))?;
    let first = first_message(&recorded);
    ensure!(first.contains(message), "{first:?} is not about it\n{}", recorded.describe_machine());
    let replays = if bench.is_all { ALL_REPLAYS } else { REPLAYS };
    for replay in 1..=replays {
        let replayed = run("--replay")?;
        let (then, now) = (&recorded.finished.stdout, &replayed.finished.stdout);
        ensure!(then == now, "replay {replay} says {now:?}, not {then:?}");
        let now = first_message(&replayed);
        ensure!(first == now, "replay {replay} begins with {now:?}, not {first:?}");
    }
    Ok(())
}

/// The line of the log that tells of the first contained panic, with its time and core.
fn first_message(boot: &Boot) -> String {
    boot.log.lines().find(|line| line.contains("contained: ")).unwrap_or_default().to_string()
}
