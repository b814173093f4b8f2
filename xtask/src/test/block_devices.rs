//! Partitions and loop devices, with the tools of this machine in the guest.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Result, ensure};

use super::Bench;
use super::disk::{expect, shell};
use super::ext4::{check, text, tool};

type Check = fn(&Bench, &Path) -> Result<()>;

/// The checks, in order.
pub const CHECKS: &[(&str, Check)] = &[
    ("partitions", partitions),
    ("requests-to-disks", requests_to_disks),
    ("loop-devices", loop_devices),
    ("loop-devices-of-util-linux", loop_devices_of_util_linux),
];

const SECTOR: u64 = 512;
/// Kind of a partition of Linux, and of one that holds others.
const LINUX: u8 = 0x83;
const EXTENDED: u8 = 5;

/// Writes a table of partitions at a sector: kind, first sector and sectors of each.
fn put_table(disk: &File, sector: u64, entries: &[(u8, u32, u32)]) -> Result<()> {
    let mut bytes = [0; 66];
    for (entry, &(kind, start, size)) in bytes.chunks_exact_mut(16).zip(entries) {
        entry[4] = kind;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..16].copy_from_slice(&size.to_le_bytes());
    }
    bytes[64..].copy_from_slice(&[0x55, 0xaa]);
    disk.write_all_at(&bytes, sector * SECTOR + 446)?;
    Ok(())
}

/// An ext4 with one file, as bytes for a partition of so many sectors.
fn file_system(directory: &Path, sectors: u64) -> Result<Vec<u8>> {
    let (tree, image) = (directory.join("tree"), directory.join("part"));
    fs::create_dir_all(&tree)?;
    fs::write(tree.join("text"), "on a partition\n")?;
    File::create(&image)?.set_len(sectors * SECTOR)?;
    tool("mke2fs", &["-q", "-F", "-t", "ext4", "-d", text(&tree), text(&image)], &[0])?;
    Ok(fs::read(&image)?)
}

fn partitions(bench: &Bench, directory: &Path) -> Result<()> {
    const START: u64 = 2048;
    const SIZE: u64 = 16 * 2048;
    let path = directory.join("disk");
    let disk = File::create(&path)?;
    disk.set_len(64 << 20)?;
    let last = START + SIZE;
    put_table(
        &disk,
        0,
        &[(LINUX, START as u32, SIZE as u32), (0, 0, 0), (EXTENDED, last as u32, 40_000)],
    )?;
    put_table(&disk, last, &[(LINUX, 63, 1000), (EXTENDED, 5000, 3000)])?;
    put_table(&disk, last + 5000, &[(LINUX, 63, 2000)])?;
    disk.write_all_at(&file_system(directory, SIZE)?, START * SECTOR)?;
    let script = "awk '/vd/ { print $3, $4 }' /proc/partitions; \
        for part in 1 5 6; do cat /sys/block/vda/vda$part/start /sys/block/vda/vda$part/size; done; \
        cat /sys/class/block/vda5/partition /sys/dev/block/254:1/partition; \
        mount -t ext4 /dev/vda1 /mnt; cat /mnt/text; echo more > /mnt/more; grep -c '^/dev/vda1 /mnt' /proc/mounts; \
        mount -t ext4 /dev/vda /tmp 2> /dev/null || echo busy; \
        blockdev --rereadpt /dev/vda 2> /dev/null || echo in use; umount /mnt; \
        echo raw | dd of=/dev/vda6 conv=notrunc,fsync 2> /dev/null; \
        dd if=/dev/vda bs=512 skip=39879 count=1 2> /dev/null | head -c 4; \
        dd if=/dev/zero of=/dev/vda bs=1 seek=510 count=2 conv=notrunc 2> /dev/null; \
        blockdev --rereadpt /dev/vda; grep -c vda /proc/partitions; test ! -e /dev/vda1";
    let output = "65536 vda\n16384 vda1\n1 vda3\n500 vda5\n1000 vda6\n2048\n32768\n34879\n1000\n\
        39879\n2000\n5\n1\non a partition\n1\nbusy\nin use\nraw\n1\n";
    shell(bench, &["--disk", text(&path)], script, output)?;
    let bytes = fs::read(&path)?;
    let part = directory.join("part");
    let (start, end) = (START as usize * 512, (START + SIZE) as usize * 512);
    fs::write(&part, &bytes[start..end])?;
    check(&part)?;
    ensure!(&bytes[39_879 * 512..][..4] == b"raw\n", "what was written is elsewhere");
    Ok(())
}

fn requests_to_disks(bench: &Bench, directory: &Path) -> Result<()> {
    let (first, second) = (directory.join("first"), directory.join("second"));
    fs::write(&first, vec![7; 1 << 20])?;
    fs::write(&second, vec![7; 1 << 20])?;
    let only_read = format!("{}:ro", second.display());
    let script = "blkdiscard -o 65536 -l 4096 /dev/vda && echo discarded; \
        head -c 4 /dev/vda | od -An -tu1; blkdiscard -z -o 4096 -l 8192 /dev/vda; \
        tail -c +4096 /dev/vda | head -c 3 | od -An -tu1; tail -c +12288 /dev/vda | head -c 3 | od -An -tu1; \
        blkdiscard -z -o 1 -l 512 /dev/vda 2> /dev/null || echo not whole; \
        blkdiscard -z /dev/vdb 2> /dev/null || echo read-only; blockdev --getss --getsize64 --getro /dev/vdb";
    let output = "discarded\n   7   7   7   7\n   7   0   0\n   0   7   7\nnot whole\n\
        read-only\n512\n1048576\n1\n";
    let options = ["--root", "host", "--disk", text(&first), "--disk", &only_read];
    expect(bench, &options, &["sh", "-c", script], output)?;
    let bytes = fs::read(&first)?;
    ensure!(bytes[4096..12_288].iter().all(|&byte| byte == 0), "there are no zeros on the disk");
    ensure!(bytes[12_288..65_536].iter().all(|&byte| byte == 7), "too much is zero");
    Ok(())
}

fn loop_devices(bench: &Bench, directory: &Path) -> Result<()> {
    let image = directory.join("image");
    fs::write(&image, file_system(directory, 16 * 2048)?)?;
    let share = format!("{}:/images", directory.display());
    let script = "cp /images/image /tmp/image; mkdir /a /b; \
        losetup /dev/loop3 /tmp/image; losetup /dev/loop3 /tmp/image 2> /dev/null || echo taken; \
        losetup /dev/loop3; cat /sys/block/loop3/size /sys/block/loop3/loop/backing_file; \
        mount -t ext4 /dev/loop3 /a; cat /a/text; echo new > /a/new; umount /a; losetup -d /dev/loop3; \
        losetup /dev/loop3 2> /dev/null || echo free; \
        mount -t ext4 -o loop /tmp/image /a; cat /a/new; ls /sys/block/*/loop/autoclear; umount /a; \
        i=0; while ls /sys/block/*/loop > /dev/null 2>&1 && [ $i -lt 500 ]; do usleep 10000; i=$((i+1)); done; \
        ls /sys/block/*/loop 2> /dev/null || echo none; \
        losetup -r -o 1024 /dev/loop0 /tmp/image; od -An -tx2 -j 56 -N 2 /dev/loop0; \
        (echo x > /dev/loop0) 2> /dev/null || echo read-only; losetup -d /dev/loop0; \
        losetup /dev/loop0 /tmp/image; losetup /dev/loop1 /dev/loop0; mount -t ext4 /dev/loop1 /b; \
        echo deep > /b/deep; umount /b; losetup -d /dev/loop1; losetup -d /dev/loop0; \
        mount -t ext4 -o loop /images/image /a; cat /a/text; echo far > /a/far; umount /a; \
        cp /tmp/image /images/copy";
    let output = "taken\n/dev/loop3: 0 /tmp/image\n32768\n/tmp/image\non a partition\nfree\nnew\n\
        /sys/block/loop0/loop/autoclear\nnone\n ef53\nread-only\non a partition\n";
    shell(bench, &["--share", &share], script, output)?;
    check(&image)?;
    let copy = directory.join("copy");
    check(&copy)?;
    ensure!(super::ext4::file_on(&copy, "/deep")? == b"deep\n", "deep differs");
    ensure!(super::ext4::file_on(&image, "/far")? == b"far\n", "far differs");
    Ok(())
}

/// What test suites of file systems do.
fn loop_devices_of_util_linux(bench: &Bench, _: &Path) -> Result<()> {
    let script = "cd /tmp; truncate -s 16M image; device=$(losetup -f --show image); echo $device; \
        mkfs.ext4 -q $device; mkdir -p dir; mount $device dir; echo text > dir/text; cat dir/text; \
        mkfs.ext4 -q -F $device 2> /dev/null || echo mounted; umount dir; \
        losetup -n -O NAME,OFFSET,AUTOCLEAR,RO $device | tr -s ' '; losetup -d $device; losetup -a; \
        e2fsck -fn image > /dev/null 2>&1 && echo clean; \
        mount -o loop,ro image dir; cat dir/text; (echo x > dir/new) 2> /dev/null || echo refused; umount dir; \
        truncate -s 32M parts; \
        printf '\\000\\000\\000\\000\\203\\000\\000\\000\\000\\010\\000\\000\\000\\020\\000\\000' | \
        dd of=parts bs=1 seek=446 conv=notrunc 2> /dev/null; \
        printf '\\125\\252' | dd of=parts bs=1 seek=510 conv=notrunc 2> /dev/null; \
        device=$(losetup -P -f --show parts); ls ${device}p1; cat /sys/class/block/${device#/dev/}p1/size; \
        mkfs.ext4 -q ${device}p1; mount ${device}p1 dir; echo part > dir/part; umount dir; losetup -d $device; \
        test ! -e ${device}p1 && echo gone";
    let output = "/dev/loop0\ntext\nmounted\n/dev/loop0 0 0 0\nclean\ntext\nrefused\n/dev/loop0p1\n4096\ngone\n";
    expect(bench, &["--root", "host"], &["sh", "-c", script], output)
}
