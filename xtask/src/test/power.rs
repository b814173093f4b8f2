//! Power cuts with a model of the disk's cache (`nbd`): Ferry works on a disk that remembers every write, and afterwards the
//! disk is had as a cut at many a moment would have left it. The journal is replayed, half of the time by this machine's Linux
//! and half by Ferry; then the file system is consistent, and what the guest was told to be durable is there.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::Bench;
use super::boot::CONFIGURATIONS;
use super::disk::shell;
use super::ext4::{check, image, kill_machine, random, text, tool, which};
use super::nbd::Server;
use crate::process;

/// Cuts of each load, and with `--all`: 300 even where one of the loads is left out.
const CUTS: (usize, usize) = (3, 100);
/// Disks that one machine replays.
const AT_ONCE: usize = 8;
/// What a replay by Linux may take.
const DEADLINE: Duration = Duration::from_secs(60);

type Check = fn(&Bench, &Path) -> Result<()>;

/// The checks, in order.
pub const CHECKS: &[(&str, Check)] = &[
    ("power-cuts-synced", |bench, at| cuts(bench, at, &SYNCED)),
    ("power-cuts-renamed", |bench, at| cuts(bench, at, &RENAMED)),
    ("power-cuts-many-files", |bench, at| cuts(bench, at, &MANY_FILES)),
    ("power-cuts-database", |bench, at| cuts(bench, at, &DATABASE)),
];

/// What the guest does, and what must be there afterwards.
struct Load {
    /// Packed beside `busybox`; the load is left out where this machine does not have it.
    program: Option<&'static str>,
    /// Says a number each time when everything up to it is durable, in the order of numbers.
    script: &'static str,
    /// Numbers until the power goes.
    numbers: u64,
    /// Checks the files when the guest has said a number last.
    verify: fn(&Path, u64) -> Result<()>,
}

const SYNCED: Load = Load {
    program: None,
    script: "i=0; while true; do i=$((i+1)); echo $i > new; sync new; mv new f$i; sync f$i; echo $i; \
        dd if=/dev/zero of=noise bs=10k count=$((i % 7)) 2> /dev/null; done",
    numbers: 40,
    verify: |files, last| {
        (1..=last).try_for_each(|number| expect(&files.join(format!("f{number}")), number))
    },
};

const RENAMED: Load = Load {
    program: None,
    script: "mkdir a b; i=0; while true; do i=$((i+1)); echo $i > new; sync new; mv new state; sync .; \
        mv a/* b 2> /dev/null || true; touch a/x$i; mv b c; mv c b; echo $i; done",
    numbers: 30,
    verify: |files, last| {
        if last == 0 {
            return Ok(());
        }
        let found = fs::read_to_string(files.join("state")).context("state is missing")?;
        let number: u64 = found.trim().parse().with_context(|| format!("state has {found:?}"))?;
        ensure!(number >= last, "state has {number}, after {last} was durable");
        Ok(())
    },
};

const MANY_FILES: Load = Load {
    program: None,
    script: "i=0; while true; do i=$((i+1)); mkdir d$i; for j in 1 2 3 4 5 6 7 8 9; do echo $i > d$i/$j; done; \
        sync; echo $i; [ $i -gt 9 ] && rm -r d$((i-9)); true; done",
    numbers: 25,
    verify: |files, last| {
        // Those before may have been removed by then.
        for number in last.saturating_sub(7).max(1)..=last {
            let directory = files.join(format!("d{number}"));
            (1..=9).try_for_each(|index| expect(&directory.join(index.to_string()), number))?;
        }
        Ok(())
    },
};

/// With `extra` the end of a transaction is durable: the directory is synced when its journal is gone.
const DATABASE: Load = Load {
    program: Some("sqlite3"),
    script: "(echo 'pragma synchronous=extra; create table if not exists t(n integer, x blob);'; i=0; \
        while [ $i -lt 200 ]; do i=$((i+1)); echo \"insert into t values($i, randomblob(3000));\"; \
        echo \".shell echo $i\"; done) > /tmp/commands; exec sqlite3 /mnt/db < /tmp/commands",
    numbers: 25,
    verify: |files, last| {
        let database = files.join("db");
        if last == 0 && !database.exists() {
            return Ok(());
        }
        let ask = |question: &str| tool("sqlite3", &[text(&database), question], &[0]);
        let state = ask("pragma integrity_check")?;
        ensure!(state.trim() == "ok", "the database is damaged: {state}");
        if last == 0 {
            return Ok(());
        }
        let found = ask("select count(*) from t")?;
        let count: u64 = found.trim().parse().with_context(|| format!("it counts {found:?}"))?;
        ensure!(count >= last, "the database has {count} rows, after {last} were durable");
        Ok(())
    },
};

/// A file has a number, and nothing else.
fn expect(path: &Path, number: u64) -> Result<()> {
    let found = fs::read(path).with_context(|| format!("{} is missing", path.display()))?;
    let expected = format!("{number}\n");
    ensure!(found == expected.as_bytes(), "{} has {found:?}", path.display());
    Ok(())
}

/// A cut: the disk, and the last number that was said before.
struct Cut {
    path: PathBuf,
    last: u64,
}

fn cuts(bench: &Bench, directory: &Path, load: &Load) -> Result<()> {
    if load.program.is_some_and(|program| which(program).is_err()) {
        return Ok(());
    }
    let image = image(directory, 24)?;
    let server = Server::start(fs::read(&image)?, directory)?;
    let said = run(bench, &image, &server, load)?;
    let end = server.moment();
    // From the first number on; before it there is only the mount.
    let begin = said.first().context("the guest said nothing")?.1.min(end);
    let count = if bench.is_all { CUTS.1 } else { CUTS.0 };
    let mut cuts = Vec::new();
    for index in 0..count {
        let moment = begin + random((end - begin + 1) as u64) as usize;
        let last = said.iter().filter(|(_, at)| *at <= moment).map(|(number, _)| *number).max();
        let path = directory.join(format!("cut{index}"));
        fs::write(&path, server.cut(moment, || random(2) == 0))?;
        cuts.push(Cut { path, last: last.unwrap_or(0) });
    }
    let (by_linux, by_ferry) = cuts.split_at(count / 2);
    for cut in by_linux {
        replay_by_linux(directory, &cut.path)?;
    }
    for some in by_ferry.chunks(AT_ONCE) {
        replay_by_ferry(bench, some)?;
    }
    for cut in &cuts {
        let verified = check(&cut.path).and_then(|()| verify(directory, cut, load));
        verified.with_context(|| format!("after the cut {}", cut.path.display()))?;
        fs::remove_file(&cut.path)?;
    }
    Ok(())
}

/// Runs the load until it has said its numbers; each number and when it came.
fn run(bench: &Bench, image: &Path, server: &Server, load: &Load) -> Result<Vec<(u64, usize)>> {
    let mut command = bench.ferry.command(CONFIGURATIONS[5]);
    command.args([
        "--timeout",
        "120",
        "--disk",
        text(image),
        "--disk-server",
        text(server.socket()),
    ]);
    if let Some(program) = load.program {
        let path = which(program)?;
        command.args(["--file", text(&path)]);
    }
    let script = format!("mount -t ext4 /dev/vda /mnt; cd /mnt; {}", load.script);
    command.args(["--", "busybox", "sh", "-ec", &script]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run ferry")?;
    let output = child.stdout.take().context("ferry has no output")?;
    let (mut said, mut is_killed) = (Vec::new(), false);
    for line in BufReader::new(output).lines() {
        let number: u64 = line?.trim().parse().context("the guest says no number")?;
        // What the guest has said was durable before.
        said.push((number, server.moment()));
        if number >= load.numbers && !is_killed {
            is_killed = true;
            kill_machine(child.id())?;
        }
    }
    let finished = child.wait_with_output()?;
    if !is_killed {
        bail!("the machine ended by itself: {}", String::from_utf8_lossy(&finished.stderr));
    }
    Ok(said)
}

/// Mounts a disk here, which replays its journal; where that is not allowed, `e2fsck` does.
fn replay_by_linux(directory: &Path, disk: &Path) -> Result<()> {
    let place = directory.join("mounted");
    fs::create_dir_all(&place)?;
    let mut command = Command::new("unshare");
    let script = "mount -t ext4 -o loop \"$1\" \"$2\" && umount \"$2\"";
    command.args(["-m", "sh", "-c", script, "sh"]).arg(disk).arg(&place);
    if process::run(&mut command, b"", DEADLINE).is_ok_and(|finished| finished.succeeded()) {
        return Ok(());
    }
    tool("e2fsck", &["-fy", "-E", "journal_only", text(disk)], &[0, 1]).map(|_| ())
}

fn replay_by_ferry(bench: &Bench, cuts: &[Cut]) -> Result<()> {
    let mut options = Vec::new();
    for cut in cuts {
        options.extend(["--disk", text(&cut.path)]);
    }
    let letters: String = ('a'..).take(cuts.len()).map(|letter| format!("{letter} ")).collect();
    let script =
        format!("for disk in {letters}; do mount -t ext4 /dev/vd$disk /mnt; umount /mnt; done");
    shell(bench, &options, &script, "")
}

/// Takes all files out of a disk and looks at them.
fn verify(directory: &Path, cut: &Cut, load: &Load) -> Result<()> {
    let files = directory.join("files");
    drop(fs::remove_dir_all(&files));
    fs::create_dir_all(&files)?;
    let command = format!("rdump / {}", text(&files));
    tool("debugfs", &["-R", &command, text(&cut.path)], &[0])?;
    (load.verify)(&files, cut.last)
}
