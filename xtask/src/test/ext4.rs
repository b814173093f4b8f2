//! Disks and the ext4 on them: images by Debian's `mke2fs`, a load in the guest, then `e2fsck` and `debugfs` on
//! this machine, which know nothing of Ferry.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::Bench;
use super::boot::CONFIGURATIONS;
use super::disk::{content, expect, shell};
use crate::process;

/// What a tool of this machine may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// How often the power is cut.
const CUTS: usize = 2;

type Check = fn(&Bench, &Path) -> Result<()>;

/// The checks, in order.
pub const CHECKS: &[(&str, Check)] = &[
    ("disk-as-a-file", disk_as_a_file),
    ("disk-in-use", disk_in_use),
    ("ext4-under-load", ext4_under_load),
    ("ext4-is-left-clean", ext4_is_left_clean),
    ("ext4-content", ext4_content),
    ("share-content", share_content),
    ("ext4-full", ext4_full),
    ("ext4-power-cuts", ext4_power_cuts),
    ("ext4-on-a-failing-disk", ext4_on_a_failing_disk),
    ("ext4-of-an-enemy", ext4_of_an_enemy),
];

/// Runs a tool of this machine; gives what it says.
pub fn tool(name: &str, arguments: &[&str], good: &[i32]) -> Result<String> {
    let sbin = Path::new("/sbin").join(name);
    let program = if sbin.is_file() { sbin.as_path() } else { Path::new(name) };
    let mut command = Command::new(program);
    command.args(arguments);
    let finished = process::run(&mut command, b"", DEADLINE)
        .with_context(|| format!("{name} is missing: install the package e2fsprogs"))?;
    ensure!(good.contains(&finished.status), "{name} {arguments:?}:\n{}", finished.describe());
    Ok(finished.stdout)
}

/// An image of this size with an ext4 as Debian makes it.
pub fn image(directory: &Path, mebibytes: u64) -> Result<PathBuf> {
    image_of(directory, mebibytes, &[])
}

pub fn image_of(directory: &Path, mebibytes: u64, options: &[&str]) -> Result<PathBuf> {
    let path = directory.join("disk.img");
    File::create(&path)?.set_len(mebibytes << 20)?;
    let arguments = [&["-q", "-F", "-t", "ext4"], options, &[text(&path)]].concat();
    tool("mke2fs", &arguments, &[0])?;
    Ok(path)
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

/// The image is consistent, with nothing to be replayed or repaired.
pub fn check(image: &Path) -> Result<()> {
    let said = tool("e2fsck", &["-fn", text(image)], &[0])?;
    ensure!(!said.contains("recovering journal"), "it was not left clean:\n{said}");
    Ok(())
}

/// The bytes of a file on the image.
pub fn file_on(image: &Path, path: &str) -> Result<Vec<u8>> {
    let out = image.with_extension("out");
    drop(fs::remove_file(&out));
    tool("debugfs", &["-R", &format!("dump {path} {}", text(&out)), text(image)], &[0])?;
    fs::read(&out).with_context(|| format!("{path} is not on the image"))
}

fn disk_as_a_file(bench: &Bench, directory: &Path) -> Result<()> {
    let (first, second) = (directory.join("first"), directory.join("second"));
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|index| (index % 249) as u8).collect();
    fs::write(&first, &bytes[..2_999_808])?;
    fs::write(&second, vec![0; 1 << 20])?;
    let script = "test -b /dev/vda; dd if=/dev/vda bs=7 skip=1000 count=1 2> /dev/null | od -An -tu1; \
        echo text | dd of=/dev/vdb bs=1 seek=100000 conv=fsync,notrunc 2> /dev/null; \
        dd if=/dev/vdb bs=1 skip=100000 count=5 2> /dev/null; \
        blockdev --getsize64 /dev/vda; blockdev --getss /dev/vda; blockdev --getro /dev/vda; \
        blockdev --flushbufs /dev/vdb; blockdev --getsz /dev/vdb; \
        dd if=/dev/zero of=/dev/vdb bs=64k seek=15 count=2 2> /dev/null || echo full; \
        echo x > /dev/vda && echo written || true; tail -c 3 /dev/vda | od -An -tu1; \
        grep vd /proc/partitions";
    let output = "  28  29  30  31  32  33  34\ntext\n2999808\n512\n1\n2048\nfull\n \
        102 103 104\n 254        0       2929 vda\n 254       16       1024 vdb\n";
    let (one, two) = (format!("{}:ro", first.display()), second.display().to_string());
    shell(bench, &["--disk", &one, "--disk", &two], script, output)?;
    ensure!(fs::read(&first)? == bytes[..2_999_808], "what is only read was changed");
    let second = fs::read(&second)?;
    ensure!(second.len() == 1 << 20, "the disk has another size");
    ensure!(&second[100_000..100_005] == b"text\n", "the text is not on the disk");
    Ok(())
}

fn disk_in_use(bench: &Bench, directory: &Path) -> Result<()> {
    let path = directory.join("disk");
    fs::write(&path, vec![0; 1 << 20])?;
    let file = File::open(&path)?;
    // What a run holds.
    file.lock()?;
    let mut command = bench.ferry.command(CONFIGURATIONS[3]);
    command.args(["--disk", text(&path), "--", "true"]);
    let finished = process::run(&mut command, b"", DEADLINE)?;
    ensure!(finished.status == 126, "{}", finished.describe());
    ensure!(finished.stderr.contains("in use by another run"), "{}", finished.describe());
    Ok(())
}

fn ext4_under_load(bench: &Bench, directory: &Path) -> Result<()> {
    // A directory of some thousand entries, which this machine fills.
    let many = directory.join("tree/many");
    fs::create_dir_all(&many)?;
    for number in 0..3000 {
        fs::write(many.join(format!("file-number-{number}")), format!("{number}\n"))?;
    }
    let tree = directory.join("tree");
    let image = image_of(directory, 192, &["-d", text(&tree)])?;
    let script = "mount -t ext4 /dev/vda /mnt; cd /mnt; grep -c 'vda /mnt ext4 rw' /proc/mounts; \
        ls many | wc -l; cat many/file-number-2??9 | tail -n 1; \
        i=0; while [ $i -lt 150 ]; do echo $i > many/made-here-$i; i=$((i+1)); done; \
        rm many/file-number-1??5 many/made-here-*3; ls many | wc -l; \
        cp /bin/busybox busybox; cmp busybox /bin/busybox; ./busybox echo runs; \
        mkdir -p a/b/c; mv many/file-number-1 a/b/c/moved; ln a/b/c/moved twin; ln -s a/b/c/moved soft; \
        cat soft twin; rm a/b/c/moved; cat twin; mv a/b z; ls z; \
        echo far | dd of=sparse bs=1M seek=3000 conv=notrunc 2> /dev/null; \
        stat -c '%s %h' sparse twin; [ $(stat -c %b sparse) -lt 100 ] && echo sparse; \
        exec 5> gone; echo here >&5; rm gone; echo more >&5; cat /proc/self/fd/5 | wc -l; exec 5>&-; \
        echo 0123456789 > cut; truncate -s 4 cut; truncate -s 8 cut; od -An -c cut; \
        chmod 640 twin; chown 7:8 twin; touch -d '2020-02-03 04:05:06' twin; stat -c '%a %u %g %Y' twin; \
        mkfifo pipe; mknod null c 1 3; stat -c '%F' pipe null; \
        mkdir full; touch full/x; rmdir full 2> /dev/null || echo not empty; rm full/x; rmdir full; \
        mv twin \"$(printf '%0255d' 7)\"; sync; df /mnt | grep -c vda; cd /; umount /mnt; \
        mount -t ext4 -o ro /dev/vda /mnt; (echo x > /mnt/new) 2> /dev/null || echo refused; \
        cat /mnt/many/made-here-149; mount -o remount,rw /mnt; echo late > /mnt/late; \
        mount -o remount,ro /mnt; (echo x > /mnt/new) 2> /dev/null || echo refused";
    let output = "1\n3000\n2999\n3035\nruns\n1\n1\n1\nc\n3145728004 1\n2 1\nsparse\n2\n   \
        0   1   2   3  \\0  \\0  \\0  \\0\n640 7 8 1580702706\nfifo\ncharacter special file\n\
        not empty\n1\nrefused\n149\nrefused\n";
    shell(bench, &["--disk", text(&image)], script, output)?;
    check(&image)?;
    let busybox = fs::read(which("busybox")?)?;
    ensure!(file_on(&image, "/busybox")? == busybox, "the copy differs");
    for (name, number) in [("file-number", 2), ("file-number", 2999), ("made-here", 148)] {
        let name = format!("/many/{name}-{number}");
        ensure!(file_on(&image, &name)? == format!("{number}\n").as_bytes(), "{name} differs");
    }
    for name in ["file-number-1115", "made-here-13"] {
        ensure!(file_on(&image, &format!("/many/{name}")).is_err(), "{name} was not removed");
    }
    ensure!(file_on(&image, "/late")? == b"late\n", "late differs");
    ensure!(file_on(&image, &format!("/{:0255}", 7))? == b"1\n", "the long name is missing");
    ensure!(file_on(&image, "/new").is_err(), "what was refused is there");
    Ok(())
}

pub fn which(name: &str) -> Result<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&paths).map(|path| path.join(name));
    candidates.find(|path| path.is_file()).with_context(|| format!("{name} is not installed"))
}

fn ext4_is_left_clean(bench: &Bench, directory: &Path) -> Result<()> {
    let image = image(directory, 32)?;
    // Nobody unmounts: the end of the machine does.
    let script = "mount -t ext4 /dev/vda /mnt; echo kept > /mnt/kept; cd /mnt; \
        umount /mnt 2> /dev/null || echo busy; mount -t ext4 /dev/vda /tmp; cat /tmp/kept; \
        (cd /; umount /tmp); mkdir sub; exec 5> open; rm open; echo more >&5; \
        mount -t ext4 /dev/null /tmp 2> /dev/null || echo no disk; \
        mount -t ext4 /dev/vdb /tmp 2> /dev/null || echo none";
    shell(bench, &["--disk", text(&image)], script, "busy\nkept\nno disk\nnone\n")?;
    check(&image)?;
    ensure!(file_on(&image, "/kept")? == b"kept\n", "kept differs");
    Ok(())
}

/// The cases of system calls about files on an ext4.
fn ext4_content(bench: &Bench, directory: &Path) -> Result<()> {
    let image = image_of(directory, 64, &["-b", "4096"])?;
    let prepare = "mount -t ext4 /dev/vda /tmp; chmod 1777 /tmp";
    let programs = "content 'xattr values_are_kept create_and_replace names_are_listed'";
    cases(bench, &["--disk", text(&image)], prepare, programs)?;
    check(&image)
}

/// Shared mappings of files of the host.
fn share_content(bench: &Bench, directory: &Path) -> Result<()> {
    let share = format!("{}:/mnt", directory.display());
    let names = "a_shared_mapping_writes_to_the_file two_processes_share_a_mapping \
        a_private_mapping_keeps_its_writes rights_of_a_mapping_come_and_go \
        past_the_end_is_a_bus_error bytes_past_the_end_of_the_last_page_are_not_kept";
    cases(bench, &["--share", &share], "mount --bind /mnt /tmp", &format!("'content {names}'"))
}

/// Runs programs of tests/syscall in the guest, with /tmp as `prepare` makes it.
fn cases(bench: &Bench, options: &[&str], prepare: &str, programs: &str) -> Result<()> {
    super::syscall::build(bench)?;
    let added = format!("{}:/tests", bench.programs().display());
    let options = [options, &["--file", &added]].concat();
    let script = format!(
        "{prepare}; cd /tmp; for one in {programs}; do /tests/musl/$one < /dev/null > /said 2>&1 || \
         grep -v -e '^ok' -e '^skip' /said; done; cd /; echo done"
    );
    shell(bench, &options, &script, "done\n")
}

fn ext4_full(bench: &Bench, directory: &Path) -> Result<()> {
    let image = image(directory, 16)?;
    let script = "cd /proc/sys/vm; cat dirty_ratio; echo 1048576 > dirty_bytes; cat dirty_ratio dirty_bytes; \
        (echo 4096 > dirty_bytes) 2> /dev/null || echo too few; cd /; mount -t ext4 /dev/vda /mnt; \
        dd if=/dev/zero of=/mnt/large bs=64k 2>&1 | grep -o 'No space left on device'; sync; \
        rm /mnt/large; echo fits > /mnt/small; sync /mnt/small; cat /mnt/small; umount /mnt";
    let output = "20\n0\n1048576\ntoo few\nNo space left on device\nfits\n";
    shell(bench, &["--disk", text(&image)], script, output)?;
    check(&image)?;
    ensure!(file_on(&image, "/small")? == b"fits\n", "small differs");
    Ok(())
}

/// A number below `limit` that nobody can foresee.
pub fn random(limit: u64) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish() % limit
}

fn ext4_power_cuts(bench: &Bench, directory: &Path) -> Result<()> {
    let image = image(directory, 64)?;
    let mut kept = Vec::new();
    for round in 0..CUTS {
        let script = format!(
            "mount -t ext4 /dev/vda /mnt; mkdir /mnt/{round}; cd /mnt/{round}; i=0; \
             while true; do i=$((i+1)); echo {round} $i > new; sync new; mv new f$i; sync f$i; echo $i; \
             dd if=/dev/zero of=noise bs=10k count=$((i % 7)) 2> /dev/null; done"
        );
        let count = cut(bench, &image, &script, 3 + random(12))?;
        kept.extend((1..=count).map(|index| (round, index)));
        // Each second time the journal is left for Ferry to replay.
        if round % 2 == 1 {
            continue;
        }
        let copy = image.with_extension("copy");
        fs::copy(&image, &copy)?;
        tool("e2fsck", &["-fy", "-E", "journal_only", text(&copy)], &[0, 1])?;
        check(&copy).with_context(|| format!("after cut {round}"))?;
        verify(&copy, &kept)?;
    }
    let script = "mount -t ext4 /dev/vda /mnt; echo end > /mnt/end";
    shell(bench, &["--disk", text(&image)], script, "")?;
    check(&image)?;
    verify(&image, &kept)
}

/// Whether everything that was said to be durable is there.
fn verify(image: &Path, kept: &[(usize, u64)]) -> Result<()> {
    let script = image.with_extension("commands");
    let lines: String =
        kept.iter().map(|(round, index)| format!("cat /{round}/f{index}\n")).collect();
    fs::write(&script, lines)?;
    let said = tool("debugfs", &["-f", text(&script), text(image)], &[0])?;
    let got: Vec<&str> = said.lines().filter(|line| !line.starts_with("debugfs")).collect();
    let expected: Vec<String> =
        kept.iter().map(|(round, index)| format!("{round} {index}")).collect();
    ensure!(got == expected, "what was synced is not there: {got:?}, not {expected:?}");
    Ok(())
}

/// Runs a script and kills the machine when it has said so many numbers; the last one that it said.
fn cut(bench: &Bench, image: &Path, script: &str, lines: u64) -> Result<u64> {
    let mut command = bench.ferry.command(CONFIGURATIONS[5]);
    command.args(["--timeout", "60", "--disk", text(image), "--", "busybox", "sh", "-ec", script]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run ferry")?;
    let output = child.stdout.take().context("ferry has no output")?;
    let (mut last, mut is_killed) = (0, false);
    for line in BufReader::new(output).lines() {
        last = line?.trim().parse().context("the guest says no number")?;
        if last >= lines && !is_killed {
            is_killed = true;
            // Somewhere in the next round, or the one after it.
            std::thread::sleep(Duration::from_micros(random(30_000)));
            kill_machine(child.id())?;
        }
    }
    let finished = child.wait_with_output()?;
    if !is_killed {
        bail!("the machine ended by itself: {}", String::from_utf8_lossy(&finished.stderr));
    }
    Ok(last)
}

/// Kills the QEMU that a `ferry run` has started.
pub fn kill_machine(ferry: u32) -> Result<()> {
    let children = content(Path::new(&format!("/proc/{ferry}/task/{ferry}/children")))?;
    let machine = children.split_ascii_whitespace().next().context("ferry has no machine")?;
    tool("kill", &["-9", machine], &[0]).map(|_| ())
}

fn ext4_on_a_failing_disk(bench: &Bench, directory: &Path) -> Result<()> {
    let image = image(directory, 32)?;
    let source = directory.join("source");
    fs::write(&source, vec![b'x'; 40_000])?;
    let copy = |name: &str| format!("write {} {name}\n", source.display());
    let commands = directory.join("commands");
    fs::write(&commands, [copy("unreadable"), copy("unwritable"), copy("good")].concat())?;
    tool("debugfs", &["-w", "-f", text(&commands), text(&image)], &[0])?;
    let sector = |name: &str| -> Result<u64> {
        let said = tool("debugfs", &["-R", &format!("bmap {name} 3"), text(&image)], &[0])?;
        let block: u64 = said.trim().parse().with_context(|| format!("no block: {said:?}"))?;
        let unit = tool("dumpe2fs", &["-h", text(&image)], &[0])?;
        let size = unit.lines().find_map(|line| line.strip_prefix("Block size:"));
        Ok(block * size.context("no block size")?.trim().parse::<u64>()? / 512)
    };
    let errors = directory.join("errors");
    let inject = |event: &str, sector: u64| {
        format!("[inject-error]\nevent = \"{event}\"\nerrno = \"5\"\nsector = \"{sector}\"\n")
    };
    let rules =
        [inject("read_aio", sector("unreadable")?), inject("write_aio", sector("unwritable")?)];
    fs::write(&errors, rules.concat())?;
    let script = "mount -t ext4 /dev/vda /mnt; cd /mnt; wc -c < good; \
        cat unreadable 2>&1 > /dev/null | grep -o 'Input/output error'; \
        dd if=/dev/zero of=unwritable bs=40000 count=1 conv=notrunc,fsync 2>&1 | grep -o 'Input/output error'; \
        wc -c < good; cd /; umount /mnt";
    let options = ["--disk", text(&image), "--disk-errors", text(&errors)];
    shell(bench, &options, script, "40000\nInput/output error\nInput/output error\n40000\n")?;
    // The volume takes no changes after a write that failed, until it is mounted again.
    let script = "mount -t ext4 /dev/vda /mnt; cd /mnt; wc -c < good; wc -c < unreadable; \
        echo fine > other; sync other; cd /; umount /mnt";
    shell(bench, &["--disk", text(&image)], script, "40000\n40000\n")?;
    check(&image)?;
    ensure!(file_on(&image, "/other")? == b"fine\n", "other differs");
    Ok(())
}

/// Images with noise in their metadata: whatever comes of them, the machine goes on.
fn ext4_of_an_enemy(bench: &Bench, directory: &Path) -> Result<()> {
    let image = image(directory, 16)?;
    let script = "mount -t ext4 /dev/vda /mnt; mkdir -p /mnt/a/b; cp /bin/busybox /mnt/a; \
        for i in 1 2 3 4 5 6 7 8 9; do echo $i > /mnt/a/b/$i; done";
    shell(bench, &["--disk", text(&image)], script, "")?;
    let whole = fs::read(&image)?;
    let mut options = Vec::new();
    let mut images = Vec::new();
    for number in 0..6 {
        let mut bytes = whole.clone();
        // The superblock, the group descriptors, the inodes: what the first blocks are.
        for _ in 0..(1 << number) {
            let place = 1024 + random(400 << 10) as usize;
            bytes[place] ^= 1 << random(8);
        }
        let path = directory.join(format!("noise{number}"));
        fs::write(&path, bytes)?;
        images.push(path);
    }
    for path in &images {
        options.extend(["--disk", text(path)]);
    }
    let script = "for disk in a b c d e f; do mount -t ext4 /dev/vd$disk /mnt 2> /dev/null && { \
        find /mnt > /dev/null 2>&1; cat /mnt/a/* /mnt/a/b/* > /dev/null 2>&1; \
        echo new > /mnt/a/new; rm -r /mnt/a; sync; umount /mnt; } 2> /dev/null; done; echo alive";
    expect(bench, &options, &["busybox", "sh", "-c", script], "alive\n")
}
