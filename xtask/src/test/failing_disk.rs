//! Disks that stop taking writes or answer nothing any more, under a mounted ext4: who uses it is told, everybody else goes on.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use super::Bench;
use super::boot::CONFIGURATIONS;
use super::ext4::{check, file_on, image, text, tool};
use super::nbd::{Mood, Server};

type Check = fn(&Bench, &Path) -> Result<()>;

/// The checks, in order.
pub const CHECKS: &[(&str, Check)] =
    &[("ext4-without-a-journal", without_a_journal), ("ext4-on-a-silent-disk", on_a_silent_disk)];

/// Two disks: the first is that of a server, the second an image of its own.
struct Pair {
    first: std::path::PathBuf,
    second: std::path::PathBuf,
    server: Server,
}

fn pair(directory: &Path) -> Result<Pair> {
    let other = directory.join("other");
    fs::create_dir_all(&other)?;
    let (first, second) = (image(directory, 24)?, image(&other, 16)?);
    let server = Server::start(fs::read(&first)?, directory)?;
    Ok(Pair { first, second, server })
}

/// Runs a script on both disks. When it says `ready`, the server's mood changes; when it says `end`, the server goes.
/// Gives what else it says.
fn run(bench: &Bench, pair: &Pair, mood: Mood, script: &str) -> Result<Vec<String>> {
    let mut command = bench.ferry.command(CONFIGURATIONS[3]);
    let (first, second) = (text(&pair.first), text(&pair.second));
    command.args(["--timeout", "120", "--disk", first, "--disk", second]);
    command.args(["--disk-server", text(pair.server.socket())]);
    command.args(["--", "busybox", "sh", "-c", script]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run ferry")?;
    let output = child.stdout.take().context("ferry has no output")?;
    let mut said = Vec::new();
    for line in BufReader::new(output).lines() {
        match line?.as_str() {
            "ready" => pair.server.set_mood(mood),
            // The machine waits for its requests before it ends.
            "end" => pair.server.hang_up(),
            line => said.push(line.to_string()),
        }
    }
    let finished = child.wait_with_output()?;
    let errors = String::from_utf8_lossy(&finished.stderr);
    ensure!(finished.status.success(), "the machine said {said:?} and {errors}");
    Ok(said)
}

/// The second disk is whole, and has what was written to it afterwards.
fn check_second(pair: &Pair) -> Result<()> {
    check(&pair.second)?;
    ensure!(file_on(&pair.second, "/fine")? == b"fine\n", "the other disk was disturbed");
    Ok(())
}

fn without_a_journal(bench: &Bench, directory: &Path) -> Result<()> {
    let pair = pair(directory)?;
    let script = "mount -t ext4 /dev/vda /mnt; mkdir /tmp/other /tmp/bound; mount -t ext4 /dev/vdb /tmp/other; \
        mount --bind /mnt /tmp/bound; echo kept > /mnt/kept; sync; exec 5> /mnt/open; echo ready; \
        while dd if=/dev/zero of=/mnt/probe bs=4k count=1 conv=fsync 2> /tmp/said; do true; done; \
        grep -o 'Input/output error' /tmp/said; \
        (echo more >&5) 2>&1 | grep -o 'Read-only file system'; \
        (echo new > /mnt/new) 2>&1 | grep -o 'Read-only file system'; \
        (echo new > /tmp/bound/new) 2>&1 | grep -o 'Read-only file system'; \
        for call in 'rm kept' 'mkdir made' 'mv kept moved' 'chmod 700 kept' 'ln kept twin' 'truncate -s 1 kept'; do \
        (cd /mnt; $call 2> /dev/null) && echo changed; done; \
        grep -c -e '/mnt ext4 ro' -e '/tmp/bound ext4 ro' /proc/mounts; cat /mnt/kept; \
        mount -o remount,rw /mnt 2> /dev/null || echo stays; \
        echo fine > /tmp/other/fine; sync /tmp/other/fine && echo synced; \
        exec 5>&-; umount /tmp/bound; umount /mnt; umount /tmp/other; echo end";
    let said = run(bench, &pair, Mood::Failing, script)?;
    let refused = "Read-only file system";
    let expected =
        ["Input/output error", refused, refused, refused, "2", "kept", "stays", "synced"];
    ensure!(said == expected, "the guest said {said:?}");
    check_second(&pair)?;
    let left = directory.join("left");
    fs::write(&left, pair.server.content())?;
    tool("e2fsck", &["-fy", "-E", "journal_only", text(&left)], &[0, 1])?;
    check(&left)?;
    ensure!(file_on(&left, "/kept")? == b"kept\n", "what was synced is not there");
    Ok(())
}

fn on_a_silent_disk(bench: &Bench, directory: &Path) -> Result<()> {
    let pair = pair(directory)?;
    let script = "mount -t ext4 /dev/vda /mnt; mkdir /tmp/other; mount -t ext4 /dev/vdb /tmp/other; \
        dd if=/dev/zero of=/mnt/long bs=64k count=64 2> /dev/null; echo kept > /mnt/kept; sync; cat /mnt/kept; \
        [ $(cat /sys/block/vda/queue/io_timeout) -ge 10000 ] && echo patient; \
        echo 2000 > /sys/block/vda/queue/io_timeout; cat /sys/block/vda/queue/io_timeout; echo ready; \
        while echo 3 > /proc/sys/vm/drop_caches; cat /mnt/long 2> /tmp/said > /dev/null; do true; done; \
        grep -o 'Input/output error' /tmp/said; \
        while dd if=/dev/zero of=/mnt/probe bs=4k count=1 conv=fsync 2> /tmp/said; do true; done; \
        (echo new > /mnt/new) 2>&1 | grep -o 'Read-only file system'; \
        dd if=/dev/vda of=/dev/null bs=4k skip=5000 count=1 2>&1 | grep -o 'Input/output error'; \
        echo fine > /tmp/other/fine; sync /tmp/other/fine && echo synced; \
        umount /mnt; umount /tmp/other; echo end";
    let said = run(bench, &pair, Mood::Silent, script)?;
    let (failed, refused) = ("Input/output error", "Read-only file system");
    let expected = ["kept", "patient", "2000", failed, refused, failed, "synced"];
    ensure!(said == expected, "the guest said {said:?}");
    check_second(&pair)
}
