//! A disk as the root file system: `--root disk`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::Bench;
use super::boot::CONFIGURATIONS;
use super::disk::{content, expect};
use super::ext4::{check, file_on, image_of, text, tool, which};
use crate::process;

type Check = fn(&Bench, &Path) -> Result<()>;

/// The checks, in order.
pub const CHECKS: &[(&str, Check)] =
    &[("root-on-a-disk", root_on_a_disk), ("root-on-a-read-only-disk", root_on_a_read_only_disk)];

/// An image with a root that has little more than `busybox`.
fn root(directory: &Path, mebibytes: u64) -> Result<PathBuf> {
    let tree = directory.join("tree");
    for name in ["bin", "dev", "proc", "sys", "tmp", "run", "root", "etc"] {
        fs::create_dir_all(tree.join(name))?;
    }
    fs::copy(which("busybox")?, tree.join("bin/busybox"))?;
    symlink("busybox", tree.join("bin/sh"))?;
    fs::write(tree.join("etc/motd"), "from the disk\n")?;
    image_of(directory, mebibytes, &["-d", text(&tree)])
}

fn root_on_a_disk(bench: &Bench, directory: &Path) -> Result<()> {
    let image = root(directory, 32)?;
    let (shared, saved) = (directory.join("shared"), directory.join("saved"));
    fs::create_dir_all(&shared)?;
    fs::write(shared.join("in"), "shared\n")?;
    let share = format!("{}:/mnt/in", shared.display());
    let save = format!("/out:{}", saved.display());
    let disk = ["--root", "disk", "--disk", text(&image)];
    let script = "cat /etc/motd /mnt/in/in; echo kept > /root/kept; echo result > /out/result; \
        test -b /dev/vda; test -c /dev/null; test -d /proc/self; test -d /sys/devices; \
        grep -c '^/dev/vda / ext4 rw' /proc/mounts; grep -c '^tmpfs /run tmpfs' /proc/mounts; \
        mkdir /root/again; mount -t ext4 /dev/vda /root/again; cat /root/again/root/kept; \
        umount /root/again; cat /root/kept; umount / 2> /dev/null || echo stays; \
        exec 5> /root/open; rm /root/open; echo more >&5; (while true; do echo x; done) > /root/late &";
    let output = "from the disk\nshared\n1\n1\nkept\nkept\nstays\n";
    let options = [&disk[..], &["--share", &share, "--save", &save]].concat();
    // The program is looked for on the disk.
    expect(bench, &options, &["busybox", "sh", "-ec", script], output)?;
    check(&image)?;
    ensure!(file_on(&image, "/root/kept")? == b"kept\n", "kept differs");
    ensure!(content(&saved.join("result"))? == "result\n", "the result differs");
    expect(bench, &disk, &["/bin/sh", "-c", "busybox cat /root/kept"], "kept\n")?;
    check(&image)?;
    let run = |options: &[&str], status: i32, says: &str| -> Result<()> {
        let mut command = bench.ferry.command(CONFIGURATIONS[3]);
        command.args(options);
        let finished = process::run(&mut command, b"", super::disk::DEADLINE)?;
        ensure!(finished.status == status, "{}", finished.describe());
        ensure!(finished.stderr.contains(says), "{}", finished.describe());
        Ok(())
    };
    run(&[&disk[..], &["--", "no-such-program"]].concat(), 127, "no-such-program")?;
    run(&["--root", "disk", "--", "true"], 64, "needs a --disk")?;
    let empty = directory.join("empty");
    fs::write(&empty, vec![0; 1 << 20])?;
    run(&["--root", "disk", "--disk", text(&empty), "--", "true"], 126, "no ext4")
}

fn root_on_a_read_only_disk(bench: &Bench, directory: &Path) -> Result<()> {
    let image = root(directory, 16)?;
    tool("debugfs", &["-w", "-R", "rmdir sys", text(&image)], &[0])?;
    let before = fs::read(&image)?;
    let only_read = format!("{}:ro", image.display());
    let script = "cat /etc/motd; (echo x > /etc/new) 2> /dev/null || echo refused; \
        echo made > /tmp/made; cat /tmp/made; echo ran > /run/ran; cat /run/ran; test ! -e /sys; \
        grep -c '^/dev/vda / ext4 ro' /proc/mounts; mount -o remount,rw / 2> /dev/null || echo stays; \
        (echo x > /etc/new) 2> /dev/null || echo refused";
    let output = "from the disk\nrefused\nmade\nran\n1\nstays\nrefused\n";
    let options = ["--root", "disk", "--disk", &only_read];
    expect(bench, &options, &["busybox", "sh", "-ec", script], output)?;
    ensure!(fs::read(&image)? == before, "what is only read was changed");
    Ok(())
}
