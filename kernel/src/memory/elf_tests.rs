//! Sound and hostile program files.

extern crate std;

use super::super::elf_tests_support::{Header, file_of};
use super::*;

fn read(bytes: &[u8]) -> Result<Program, Errno> {
    let source = file_of(bytes);
    read_program(source.as_ref(), &bytes[..bytes.len().min(256)])
}

fn example() -> Header {
    let mut header = Header::executable();
    header.load(0x40_0000, 0, 0x1000, 0x1000, 5);
    header.load(0x40_1000, 0x1000, 0x800, 0x2000, 6);
    header
}

#[test]
fn segments_are_read_as_they_stand() {
    let program = read(&example().bytes(0x1800)).unwrap();
    assert!(!program.is_movable);
    assert_eq!(program.header_count, 2);
    assert_eq!(program.headers_address, 0x40_0040);
    assert_eq!(program.extent(), 0x40_0000..0x40_3000);
    assert_eq!(program.segments[1].memory_size, 0x2000);
    assert_eq!(program.segments[1].protection, Protection::READ | Protection::WRITE);
}

#[test]
fn foreign_files_are_refused() {
    let good = example().bytes(0x1800);
    // Magic, class, byte order, version, type, machine, size of a program header.
    for at in [0, 4, 5, 6, 16, 18, 54] {
        let mut bytes = good.clone();
        bytes[at] ^= 0x7f;
        assert_eq!(read(&bytes), Err(Errno::ENOEXEC), "byte {at}");
    }
}

#[test]
fn segments_that_make_no_sense_are_refused() {
    let cases: [(u64, u64, u64, u64); 6] = [
        (0x40_0000, 0, 0x1000, 0xfff),
        (0x40_0001, 0, 0x1000, 0x1000),
        (u64::MAX - 0xfff, 0, 0x1000, 0x1000),
        (0x40_0000, 0, 0x1000, u64::MAX),
        (USER_END, 0, 0, PAGE),
        (0x40_0000, u64::MAX - 0xfff, 0x1000, 0x1000),
    ];
    for (address, offset, file, memory) in cases {
        let mut header = Header::executable();
        header.load(address, offset, file, memory, 5);
        assert_eq!(read(&header.bytes(0x1000)), Err(Errno::ENOEXEC), "{address:#x}");
    }
}

#[test]
fn every_truncation_is_refused_or_sound() {
    let good = example().bytes(0x1800);
    for length in 0..good.len() {
        assert_eq!(read(&good[..length]), Err(Errno::ENOEXEC), "{length} bytes");
    }
}

#[test]
fn interpreters_must_end_within_their_segment() {
    let with = |name: &[u8]| {
        let mut header = example();
        header.interpreter(name);
        read(&header.bytes(0x1800)).map(|program| program.interpreter)
    };
    assert_eq!(with(b"/ld\0"), Ok(Some(b"/ld".to_vec())));
    assert_eq!(with(b"/ld"), Err(Errno::ENOEXEC));
    assert_eq!(with(b"\0"), Err(Errno::ENOEXEC));
}

/// Changes of one to eight bytes in the headers of real programs: the result is an error or a program
/// whose numbers can be used without overflow.
#[test]
fn mutated_headers_never_get_through_unsound() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut interpreted = example();
    interpreted.interpreter(b"/lib64/ld-linux-x86-64.so.2\0");
    let mut files = alloc::vec![example().bytes(0x1800), interpreted.bytes(0x1800)];
    for path in ["/bin/true", "/bin/sh", "/usr/bin/env"] {
        files.extend(std::fs::read(path));
    }
    for file in files {
        let head = file.len().min(0x400);
        for _ in 0..4000 {
            let mut bytes = file[..file.len().min(0x4000)].to_vec();
            for _ in 0..=next() % 8 {
                let at = (next() as usize) % head;
                bytes[at] = [0, 0xff, 0x7f, 0x80, next() as u8][next() as usize % 5];
            }
            let Ok(program) = read(&bytes) else { continue };
            assert!(program.alignment.is_power_of_two());
            let extent = program.extent();
            assert!(extent.start <= extent.end && extent.end <= USER_END);
            for segment in &program.segments {
                assert!(segment.end() <= USER_END && segment.file_size <= segment.memory_size);
                assert!(segment.offset + segment.file_size <= bytes.len() as u64);
            }
        }
    }
}
