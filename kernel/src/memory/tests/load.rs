//! Programs from file to ready space.

use super::*;
use crate::memory::elf_tests_support::{Header, file_of};
use abi::Errno;

struct Files(Vec<(&'static [u8], ProgramFile)>);

impl ProgramLookup for Files {
    async fn open(&self, path: &[u8]) -> Result<ProgramFile, Errno> {
        let found = self.0.iter().find(|(name, _)| *name == path);
        found.map(|(_, file)| file.clone()).ok_or(Errno::ENOENT)
    }

    fn identity(&self, _: &ProgramFile) -> Identity {
        Identity { user: 1, effective_user: 2, group: 3, effective_group: 4, is_secure: true }
    }
}

fn program_file(bytes: &[u8]) -> ProgramFile {
    ProgramFile { source: file_of(bytes), name: b"/bin/program".to_vec() }
}

fn request(file: ProgramFile) -> LoadRequest {
    LoadRequest {
        file,
        path: b"./program".to_vec(),
        arguments: StringList::from_slices(&[b"program", b"one"]).unwrap(),
        environment: StringList::from_slices(&[b"HOME=/"]).unwrap(),
        limits: LimitValues::default(),
        personality: 0,
        is_to_post: false,
    }
}

fn word(space: &Arc<AddressSpace>, address: u64) -> u64 {
    u64::from_le_bytes(read(space, address))
}

fn auxiliary(program: &LoadedProgram) -> Vec<(u64, u64)> {
    let mut at = program.stack_pointer;
    let arguments = word(&program.space, at);
    at += 8 * (arguments + 2);
    while word(&program.space, at) != 0 {
        at += 8;
    }
    at += 8;
    let mut vector = Vec::new();
    while word(&program.space, at) != 0 {
        vector.push((word(&program.space, at), word(&program.space, at + 8)));
        at += 16;
    }
    vector
}

#[test]
fn a_static_program_is_ready_to_run() {
    let mut header = Header::executable();
    header.load(0x40_0000, 0, 0x1800, 0x1800, 5);
    header.load(0x50_2800, 0x1800, 0x100, 0x3000, 6);
    header.entry = 0x40_1000;
    let mut bytes = header.bytes(0x2000);
    bytes[0x1000..0x1004].copy_from_slice(b"code");
    bytes[0x1800..0x1804].copy_from_slice(b"data");
    bytes[0x1900..0x1904].copy_from_slice(b"rest");
    let program = finish(load_program(request(program_file(&bytes)), &Files(Vec::new()))).unwrap();
    assert_eq!(program.entry, 0x40_1000);
    assert_eq!(&read::<4>(&program.space, 0x40_1000), b"code");
    assert_eq!(&read::<4>(&program.space, 0x50_2800), b"data");
    assert_eq!(read::<4>(&program.space, 0x50_2900), [0; 4], "what follows the data is zero");
    assert_eq!(read::<4>(&program.space, 0x50_5700), [0; 4]);
    assert_eq!(fault(&program.space, 0x50_6000, Access::READ), Err(FaultSignal::NotMapped));
    assert_eq!(program.stack_pointer % 16, 0);
    assert_eq!(word(&program.space, program.stack_pointer), 2);
    let vector = auxiliary(&program);
    let value = |key| vector.iter().find(|(k, _)| *k == key).map(|(_, value)| *value);
    use abi::memory::aux;
    assert_eq!(value(aux::ENTRY), Some(0x40_1000));
    assert_eq!(value(aux::PHDR), Some(0x40_0040));
    assert_eq!(value(aux::PHNUM), Some(2));
    assert_eq!(value(aux::BASE), Some(0));
    assert_eq!(
        (value(aux::UID), value(aux::EGID), value(aux::SECURE)),
        (Some(1), Some(4), Some(1))
    );
    let vdso = value(aux::SYSINFO_EHDR).unwrap();
    assert_eq!(&read::<4>(&program.space, vdso), b"\x7fELF");
    assert_eq!(&read::<10>(&program.space, value(aux::EXECFN).unwrap()), b"./program\0");
    let heap = program.space.heap();
    assert!(heap.start >= 0x50_6000 && heap.is_empty());
}

#[test]
fn a_dynamic_program_starts_in_its_interpreter() {
    let mut header = Header::movable();
    header.interpreter(b"/lib/ld.so\0");
    header.load(0, 0, 0x1000, 0x1000, 5);
    header.entry = 0x500;
    let bytes = header.bytes(0x1000);
    let mut linker = Header::movable();
    linker.load(0, 0, 0x1000, 0x1000, 5);
    linker.entry = 0x600;
    let files = Files(alloc::vec![(b"/lib/ld.so" as &[u8], program_file(&linker.bytes(0x1000)))]);
    let program = finish(load_program(request(program_file(&bytes)), &files)).unwrap();
    let vector = auxiliary(&program);
    let value = |key| vector.iter().find(|(k, _)| *k == key).unwrap().1;
    use abi::memory::aux;
    assert_eq!(program.entry, value(aux::BASE) + 0x600);
    assert_eq!(value(aux::ENTRY) % PAGE, 0x500);
    assert_eq!(value(aux::PHDR), value(aux::ENTRY) - 0x500 + 0x40);
    let missing = finish(load_program(request(program_file(&bytes)), &Files(Vec::new())));
    assert_eq!(missing.err(), Some(Errno::ENOENT));
    let broken = Files(alloc::vec![(b"/lib/ld.so" as &[u8], program_file(b"no program"))]);
    let broken = finish(load_program(request(program_file(&bytes)), &broken));
    assert_eq!(broken.err(), Some(Errno::ELIBBAD));
}

#[test]
fn a_script_is_run_by_its_interpreter() {
    let mut header = Header::executable();
    header.load(0x40_0000, 0, 0x1000, 0x1000, 5);
    header.entry = 0x40_0100;
    let shell = program_file(&header.bytes(0x1000));
    let files = Files(alloc::vec![(b"/bin/sh" as &[u8], shell)]);
    let script = program_file(b"#!/bin/sh -e\necho\n");
    let program = finish(load_program(request(script), &files)).unwrap();
    let space = &program.space;
    let sp = program.stack_pointer;
    assert_eq!(word(space, sp), 4);
    assert_eq!(&read::<8>(space, word(space, sp + 8)), b"/bin/sh\0");
    assert_eq!(&read::<3>(space, word(space, sp + 16)), b"-e\0");
    assert_eq!(&read::<10>(space, word(space, sp + 24)), b"./program\0");
    assert_eq!(&read::<4>(space, word(space, sp + 32)), b"one\0");
}

#[test]
fn endless_interpreters_and_other_files_are_refused() {
    let looping = Files(alloc::vec![(b"/loop" as &[u8], program_file(b"#!/loop\n"))]);
    let result = finish(load_program(request(program_file(b"#!/loop\n")), &looping));
    assert_eq!(result.err(), Some(Errno::ELOOP));
    for bytes in [b"".as_slice(), b"#!", b"\x7fELF", b"text\n"] {
        let result = finish(load_program(request(program_file(bytes)), &Files(Vec::new())));
        assert_eq!(result.err(), Some(Errno::ENOEXEC), "{bytes:?}");
    }
}

#[test]
fn too_many_arguments_are_refused() {
    let mut header = Header::executable();
    header.load(0x40_0000, 0, 0x1000, 0x1000, 5);
    let mut request = request(program_file(&header.bytes(0x1000)));
    let long = alloc::vec![b'x'; 100_000];
    for _ in 0..21 {
        request.arguments.push(&long).unwrap();
    }
    let result = finish(load_program(request, &Files(Vec::new())));
    assert_eq!(result.err(), Some(Errno::E2BIG));
}
