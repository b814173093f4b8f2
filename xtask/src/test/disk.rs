//! Directories of the host in the guest: `--share`, `--root host`, `--save`; and disks (`ext4`).

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::boot::{Boot, CONFIGURATIONS};
use super::report::{Case, Filter, Report};
use super::{Bench, block_devices, ext4, failing_disk, power, root_disk};

/// What one boot may take.
pub const DEADLINE: Duration = Duration::from_secs(90);

type Check = fn(&Bench, &Path) -> Result<()>;

const CHECKS: &[(&str, Check)] = &[
    ("share-is-read-and-written", share_is_read_and_written),
    ("share-is-not-left", share_is_not_left),
    ("share-that-is-only-read", share_that_is_only_read),
    ("programs-on-a-share", programs_on_a_share),
    ("root-of-the-host", root_of_the_host),
    ("saved-results", saved_results),
];

/// Runs the stage.
pub fn run(bench: &Bench, filter: &Filter, report: &mut Report) -> Result<()> {
    report.progress("disk: directories of the host in the guest, disks");
    let mut cases = Vec::new();
    for (name, check) in CHECKS
        .iter()
        .chain(ext4::CHECKS)
        .chain(root_disk::CHECKS)
        .chain(block_devices::CHECKS)
        .chain(failing_disk::CHECKS)
        .chain(power::CHECKS)
        .filter(|(name, _)| filter.wants("disk", name))
    {
        let directory = bench.root.join("target/test-disk").join(name);
        // What an earlier run left.
        drop(fs::remove_dir_all(&directory));
        fs::create_dir_all(&directory)?;
        let failure = check(bench, &directory).err().map(|error| format!("{error:#}"));
        cases.push(Case::new(format!("disk/{name}"), failure));
    }
    report.add("disk", &cases);
    Ok(())
}

/// Boots a program; it has to end well and say this.
pub fn expect(bench: &Bench, options: &[&str], program: &[&str], output: &str) -> Result<()> {
    let boot: Boot =
        bench.ferry.boot("disk", CONFIGURATIONS[3], options, program, b"", DEADLINE)?;
    let contained = boot.contained_panics();
    ensure!(contained.is_empty(), "handlers panicked: {contained:?}");
    let status = boot.finished.status;
    ensure!(status == 0, "exit status {status}, not 0\n{}", boot.describe_machine());
    let got = &boot.finished.stdout;
    ensure!(got == output, "the output is {got:?}, not {output:?}");
    Ok(())
}

/// As `expect`, for a script.
pub fn shell(bench: &Bench, options: &[&str], text: &str, output: &str) -> Result<()> {
    expect(bench, options, &["busybox", "sh", "-ec", text], output)
}

/// The text of a file of this machine.
pub fn content(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn share_is_read_and_written(bench: &Bench, directory: &Path) -> Result<()> {
    fs::create_dir(directory.join("in"))?;
    fs::write(directory.join("in/text"), "from the host\n")?;
    let long: Vec<u8> = (0..1_000_003_u32).map(|index| (index % 253) as u8).collect();
    fs::write(directory.join("long"), &long)?;
    symlink("in/text", directory.join("link"))?;
    fs::write(directory.join("gone"), "")?;
    let share = format!("{}:/mnt/share", directory.display());
    let text = "cd /mnt/share; cat in/text; cat link; ls; \
        cp long copy; cmp long copy; echo one > out; echo two >> out; cat out; \
        mkdir -p made/deep; mv out made/deep/moved; ln made/deep/moved made/twin; \
        ln -s twin made/soft; cat made/soft; chmod 600 made/twin; rm gone; rm -r in; \
        echo 0123456789 > cut; truncate -s 4 cut; cat cut; echo; ls made; \
        test ! -e gone; test ! -e in; sync";
    let output = "from the host\nfrom the host\ngone\nin\nlink\nlong\none\ntwo\none\ntwo\n0123\n\
        deep\nsoft\ntwin\n";
    shell(bench, &["--share", &share], text, output)?;
    ensure!(fs::read(directory.join("copy"))? == long, "the copy differs");
    ensure!(content(&directory.join("made/deep/moved"))? == "one\ntwo\n", "moved differs");
    ensure!(content(&directory.join("cut"))? == "0123", "cut differs");
    let mode = fs::metadata(directory.join("made/twin"))?.permissions().mode();
    ensure!(mode & 0o777 == 0o600, "the mode is {mode:o}");
    ensure!(fs::read_link(directory.join("made/soft"))? == Path::new("twin"), "soft differs");
    ensure!(!directory.join("gone").exists() && !directory.join("in").exists(), "not removed");
    Ok(())
}

fn share_is_not_left(bench: &Bench, directory: &Path) -> Result<()> {
    fs::write(directory.join("secret"), "secret\n")?;
    fs::create_dir_all(directory.join("shared/sub"))?;
    symlink("../secret", directory.join("shared/up"))?;
    symlink(directory.join("secret"), directory.join("shared/absolute"))?;
    let share = format!("{}:/mnt", directory.join("shared").display());
    // Links are followed in the guest's own tree, where there is no such file.
    let text = "cd /mnt; for name in up absolute ../secret sub/../../secret; do \
        cat $name 2> /dev/null && echo left; done; ls sub/../..| grep -x mnt; \
        mv sub /tmp/sub; ls";
    shell(bench, &["--share", &share], text, "mnt\nabsolute\nup\n")?;
    ensure!(content(&directory.join("secret"))? == "secret\n", "the secret was changed");
    Ok(())
}

fn share_that_is_only_read(bench: &Bench, directory: &Path) -> Result<()> {
    fs::write(directory.join("text"), "stays\n")?;
    let share = format!("{}:/mnt:ro", directory.display());
    let text = "cd /mnt; cat text; for call in 'rm text' 'touch new' 'mkdir new' 'mv text new' \
        'chmod 777 text' 'truncate -s 0 text'; do $call 2> /dev/null && echo changed; done; \
        mount -o remount,rw /mnt; (echo x > text) 2> /dev/null && cat text && sync; true";
    let boot = bench.ferry.boot(
        "disk",
        CONFIGURATIONS[3],
        &["--share", &share],
        &["busybox", "sh", "-c", text],
        b"",
        DEADLINE,
    )?;
    ensure!(boot.finished.stdout.starts_with("stays\n"), "{:?}", boot.finished.stdout);
    ensure!(!boot.finished.stdout.contains("changed"), "{:?}", boot.finished.stdout);
    // Whatever the guest thinks, QEMU refuses.
    ensure!(content(&directory.join("text"))? == "stays\n", "the text was changed");
    Ok(())
}

fn programs_on_a_share(bench: &Bench, directory: &Path) -> Result<()> {
    fs::write(directory.join("script"), "#!/bin/sh\necho script $1\n")?;
    fs::set_permissions(directory.join("script"), fs::Permissions::from_mode(0o755))?;
    let share = format!("{}:/mnt", directory.display());
    let text = "cp /bin/busybox /mnt/busybox; /mnt/busybox echo runs; /mnt/script arg; \
        /mnt/busybox cmp /bin/busybox /mnt/busybox; echo x > /mnt/late; /mnt/busybox cat /mnt/late";
    shell(bench, &["--share", &share], text, "runs\nscript arg\nx\n")
}

fn root_of_the_host(bench: &Bench, directory: &Path) -> Result<()> {
    let kept = directory.join("kept");
    fs::write(&kept, "as it was\n")?;
    let kept = kept.display();
    // A dynamic program of the host, its libraries and files, with nothing packed.
    let text = format!(
        "cat {kept}; echo changed > {kept}; cat {kept}; rm {kept}; test ! -e {kept}; \
         mkdir {kept}; ls -A {kept}; cmp /etc/passwd /etc/passwd && echo same"
    );
    let output = "as it was\nchanged\nsame\n";
    expect(bench, &["--root", "host"], &["sh", "-ec", &text], output)?;
    ensure!(content(&directory.join("kept"))? == "as it was\n", "the host was changed");
    Ok(())
}

fn saved_results(bench: &Bench, directory: &Path) -> Result<()> {
    let save = format!("/out:{}", directory.join("results").display());
    shell(bench, &["--save", &save], "echo result > /out/file; mkdir /out/sub", "")?;
    ensure!(content(&directory.join("results/file"))? == "result\n", "the result differs");
    ensure!(directory.join("results/sub").is_dir(), "the directory is missing");
    Ok(())
}
