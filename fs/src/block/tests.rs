//! Tables of partitions, right ones and wrong ones.

use super::table::{MOST, Partition, crc32, read};
use abi::Errno;
use alloc::vec;
use alloc::vec::Vec;

const SECTOR: usize = 512;

fn partitions(disk: &[u8]) -> Vec<Partition> {
    let mut reads = 0;
    let mut at = |offset: u64, bytes: &mut [u8]| {
        reads += 1;
        assert!(reads < 1000, "it goes on and on");
        let offset = offset as usize;
        let part = disk.get(offset..offset + bytes.len()).ok_or(Errno::EIO)?;
        bytes.copy_from_slice(part);
        Ok(())
    };
    read(disk.len() as u64, SECTOR as u64, &mut at).unwrap()
}

/// A table at a sector: entries of mark, kind, start and size.
fn put_mbr(disk: &mut [u8], sector: usize, entries: &[(u8, u8, u32, u32)]) {
    let table = &mut disk[sector * SECTOR..][..SECTOR];
    for (index, &(mark, kind, start, size)) in entries.iter().enumerate() {
        let entry = &mut table[446 + index * 16..][..16];
        (entry[0], entry[4]) = (mark, kind);
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..16].copy_from_slice(&size.to_le_bytes());
    }
    table[510..].copy_from_slice(&[0x55, 0xaa]);
}

fn in_sectors(number: u32, start: u64, size: u64) -> Partition {
    Partition { number, start: start * SECTOR as u64, size: size * SECTOR as u64 }
}

#[test]
fn primary_and_logical_partitions_are_found() {
    let mut disk = vec![0; 1000 * SECTOR];
    put_mbr(&mut disk, 0, &[(0x80, 0x83, 10, 90), (0, 0, 0, 0), (0, 5, 200, 500)]);
    put_mbr(&mut disk, 200, &[(0, 0x83, 10, 50), (0, 5, 100, 60)]);
    put_mbr(&mut disk, 300, &[(0, 0x83, 10, 20)]);
    let expected = [
        in_sectors(1, 10, 90),
        in_sectors(3, 200, 2),
        in_sectors(5, 210, 50),
        in_sectors(6, 310, 20),
    ];
    assert_eq!(partitions(&disk), expected);
}

#[test]
fn a_disk_without_a_table_has_no_partitions() {
    assert!(partitions(&vec![0; 100 * SECTOR]).is_empty());
    assert!(partitions(&vec![0; SECTOR]).is_empty());
    let mut disk = vec![0; 100 * SECTOR];
    // The first sector of a file system.
    put_mbr(&mut disk, 0, &[(0x12, 0x83, 10, 20)]);
    assert!(partitions(&disk).is_empty());
}

#[test]
fn what_overlaps_or_lies_beyond_the_end_is_left_out() {
    let mut disk = vec![0; 100 * SECTOR];
    let entries = [(0, 0x83, 10, 20), (0, 0x83, 29, 5), (0, 0x83, 100, 5), (0, 0x83, 90, 50)];
    put_mbr(&mut disk, 0, &entries);
    // As on Linux, what begins within the disk ends with it.
    assert_eq!(partitions(&disk), [in_sectors(1, 10, 20), in_sectors(4, 90, 10)]);
    put_mbr(
        &mut disk,
        0,
        &[(0, 0x83, 0, 20), (0, 0x83, u32::MAX, u32::MAX), (0, 0x83, 5, 0), (0, 0, 0, 0)],
    );
    assert!(partitions(&disk).is_empty());
}

#[test]
fn a_chain_that_leads_back_ends() {
    let mut disk = vec![0; 1000 * SECTOR];
    put_mbr(&mut disk, 0, &[(0, 5, 100, 800)]);
    put_mbr(&mut disk, 100, &[(0, 0x83, 10, 20), (0, 5, 100, 100)]);
    put_mbr(&mut disk, 200, &[(0, 0x83, 10, 20), (0, 5, 0, 100)]);
    let expected = [in_sectors(1, 100, 2), in_sectors(5, 110, 20), in_sectors(6, 210, 20)];
    assert_eq!(partitions(&disk), expected);
    // With nothing in it that could overlap.
    put_mbr(&mut disk, 100, &[(0, 0, 0, 0), (0, 5, 100, 100)]);
    put_mbr(&mut disk, 200, &[(0, 0, 0, 0), (0, 5, 0, 100)]);
    assert_eq!(partitions(&disk).len(), 1);
}

/// A disk of 200 sectors with a GPT of these first and last sectors, twice.
fn gpt(partitions: &[(u64, u64)]) -> Vec<u8> {
    let mut disk = vec![0; 200 * SECTOR];
    put_mbr(&mut disk, 0, &[(0, 0xee, 1, 199)]);
    let mut entries = vec![0; 8 * 128];
    for (index, (first, last)) in partitions.iter().enumerate() {
        let entry = &mut entries[index * 128..][..128];
        entry[..32].fill(7);
        entry[32..40].copy_from_slice(&first.to_le_bytes());
        entry[40..48].copy_from_slice(&last.to_le_bytes());
    }
    for (place, entries_at) in [(1_u64, 2_u64), (199, 197)] {
        disk[entries_at as usize * SECTOR..][..entries.len()].copy_from_slice(&entries);
        let header = &mut disk[place as usize * SECTOR..][..SECTOR];
        header[..8].copy_from_slice(b"EFI PART");
        header[12..16].copy_from_slice(&92_u32.to_le_bytes());
        header[24..32].copy_from_slice(&place.to_le_bytes());
        header[40..48].copy_from_slice(&10_u64.to_le_bytes());
        header[48..56].copy_from_slice(&190_u64.to_le_bytes());
        header[72..80].copy_from_slice(&entries_at.to_le_bytes());
        header[80..84].copy_from_slice(&8_u32.to_le_bytes());
        header[84..88].copy_from_slice(&128_u32.to_le_bytes());
        header[88..92].copy_from_slice(&crc32(&entries).to_le_bytes());
        let sum = crc32(&header[..92]);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
    }
    disk
}

#[test]
fn the_sum_is_the_usual_one() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
}

#[test]
fn a_gpt_is_read_from_its_copy_when_the_first_is_damaged() {
    let whole = gpt(&[(10, 19), (50, 190)]);
    let expected = [in_sectors(1, 10, 10), in_sectors(2, 50, 141)];
    assert_eq!(partitions(&whole), expected);
    for damaged in [SECTOR + 40, 2 * SECTOR + 3] {
        let mut disk = whole.clone();
        disk[damaged] ^= 1;
        assert_eq!(partitions(&disk), expected);
        disk[199 * SECTOR + 50] ^= 1;
        assert!(partitions(&disk).is_empty());
    }
}

#[test]
fn entries_of_a_gpt_that_make_no_sense_are_left_out() {
    let disk = gpt(&[(10, 9), (5, 20), (30, 40), (40, 50), (60, 191), (70, u64::MAX), (80, 80)]);
    assert_eq!(partitions(&disk), [in_sectors(3, 30, 11), in_sectors(7, 80, 1)]);
}

#[test]
fn noise_does_no_harm() {
    let mut state = 1_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut logical = vec![0; 200 * SECTOR];
    put_mbr(&mut logical, 0, &[(0, 0x83, 10, 20), (0, 5, 50, 150)]);
    put_mbr(&mut logical, 50, &[(0, 0x83, 5, 20), (0, 5, 50, 50)]);
    put_mbr(&mut logical, 100, &[(0, 0x83, 5, 20), (0, 5, 75, 50)]);
    for whole in [gpt(&[(10, 19), (50, 190)]), logical] {
        for _ in 0..3000 {
            let mut disk = whole.clone();
            for _ in 0..=random() % 6 {
                let sector = [0, 1, 2, 50, 100, 125, 199][random() as usize % 7] * SECTOR;
                let within = if random() % 2 == 0 {
                    random() as usize % 96
                } else {
                    440 + random() as usize % 72
                };
                disk[sector + within] = random() as u8;
            }
            let found = partitions(&disk);
            assert!(found.len() <= MOST);
            for (index, one) in found.iter().enumerate() {
                assert!(one.start > 0 && one.size > 0);
                assert!(one.start + one.size <= disk.len() as u64);
                let is_apart = |other: &Partition| {
                    one.start + one.size <= other.start || other.start + other.size <= one.start
                };
                assert!(found[index + 1..].iter().all(is_apart), "{found:?}");
            }
        }
    }
}
