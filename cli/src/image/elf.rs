//! What a host file is, as far as running it goes: an ELF program and what that needs, a script and
//! its interpreter, or something else. Files are read, never executed, and never trusted.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, ReadCache, ReadRef};

/// Longest `#!` line that Linux looks at.
const MAX_SHEBANG: u64 = 256;

/// Values of `EI_CLASS` and `EI_DATA` of every x86-64 file.
const CLASS_64_BIT: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;

/// What a file is.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    /// An x86-64 ELF file.
    Elf(Needs),
    /// An ELF file for another machine; the text says which.
    ForeignElf(String),
    /// Begins like an ELF file, but cannot be understood.
    BrokenElf,
    /// A script: the path of its interpreter, and the rest of the line.
    Script(PathBuf, String),
    /// Anything else.
    Other,
}

/// What an ELF file says that it needs. Search paths are as in the file, with their variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The program interpreter (dynamic linker), of dynamic programs only.
    pub interpreter: Option<PathBuf>,
    /// Names of shared libraries (`DT_NEEDED`).
    pub libraries: Vec<String>,
    /// `DT_RPATH`, split at colons; empty when `DT_RUNPATH` is there.
    pub rpath: Vec<String>,
    /// `DT_RUNPATH`, split at colons.
    pub runpath: Option<Vec<String>>,
    /// `DF_1_NODEFLIB`: the default directories are not searched.
    pub skips_default_directories: bool,
}

/// Looks at a file. An error means that it could not be read at all.
pub fn inspect(path: &Path) -> io::Result<Kind> {
    let mut file = File::open(path)?;
    let mut magic = [0; 4];
    let length = read_up_to(&mut file, &mut magic)?;
    if length == 4 && magic == elf::ELFMAG {
        return Ok(inspect_elf(file));
    }
    if magic.starts_with(b"#!") {
        let mut line = Vec::new();
        BufReader::new(File::open(path)?).take(MAX_SHEBANG).read_until(b'\n', &mut line)?;
        return Ok(inspect_shebang(&line[2..]));
    }
    Ok(Kind::Other)
}

fn read_up_to(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

fn inspect_shebang(line: &[u8]) -> Kind {
    let text = line.trim_ascii();
    let split = text.iter().position(|byte| *byte == b' ' || *byte == b'\t');
    let (interpreter, rest) = text.split_at(split.unwrap_or(text.len()));
    if interpreter.is_empty() {
        return Kind::Other;
    }
    let interpreter = PathBuf::from(std::ffi::OsString::from_vec(interpreter.to_vec()));
    Kind::Script(interpreter, String::from_utf8_lossy(rest.trim_ascii()).into_owned())
}

fn inspect_elf(file: File) -> Kind {
    let cache = ReadCache::new(file);
    let data = &cache;
    let Ok(&[_, _, _, _, class, encoding]) = data.read_bytes_at(0, 6) else {
        return Kind::BrokenElf;
    };
    if (class, encoding) != (CLASS_64_BIT, LITTLE_ENDIAN) {
        return Kind::ForeignElf("a 32-bit or big-endian machine".to_string());
    }
    let Ok(header) = elf::FileHeader64::<Endianness>::parse(data) else { return Kind::BrokenElf };
    let endian = Endianness::Little;
    match header.e_machine(endian) {
        elf::EM_X86_64 => {}
        elf::EM_AARCH64 => return Kind::ForeignElf("AArch64".to_string()),
        elf::EM_RISCV => return Kind::ForeignElf("RISC-V".to_string()),
        machine => return Kind::ForeignElf(format!("machine {machine:?}")),
    }
    needs(header, endian, data).map_or(Kind::BrokenElf, Kind::Elf)
}

/// Reads the dynamic section; `None` when the file contradicts itself.
fn needs<'data, R: ReadRef<'data>>(
    header: &elf::FileHeader64<Endianness>,
    endian: Endianness,
    data: R,
) -> Option<Needs> {
    let segments = header.program_headers(endian, data).ok()?;
    let mut needs = Needs::default();
    let mut dynamic = None;
    for segment in segments {
        match segment.interpreter(endian, data) {
            Ok(Some(path)) => {
                needs.interpreter = Some(std::ffi::OsString::from_vec(path.to_vec()).into());
            }
            Ok(None) => {}
            Err(_) => return None,
        }
        if let Some(entries) = segment.dynamic(endian, data).ok()? {
            dynamic = Some(entries);
        }
    }
    let Some(entries) = dynamic else { return Some(needs) };
    let value = |tag| entries.iter().find(|e| e.d_tag(endian) == tag).map(|e| e.d_val(endian));
    let strings = value(elf::DT_STRTAB).unwrap_or(0);
    let strings_length = value(elf::DT_STRSZ).unwrap_or(0);
    // The table is given by address; the segment that is loaded there tells the offset in the file.
    let strings_offset = segments
        .iter()
        .filter(|segment| segment.p_type(endian) == elf::PT_LOAD)
        .find_map(|segment| {
            let within = strings.checked_sub(segment.p_vaddr(endian))?;
            (within < segment.p_filesz(endian))
                .then(|| within.checked_add(segment.p_offset(endian)))?
        });
    let text = |offset: u64| -> Option<String> {
        if offset >= strings_length {
            return None;
        }
        let start = strings_offset?;
        let range = start.checked_add(offset)?..start.checked_add(strings_length)?;
        let bytes = data.read_bytes_at_until(range, 0).ok()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    let split = |paths: String| paths.split(':').map(str::to_string).collect::<Vec<_>>();
    for entry in entries {
        let value = entry.d_val(endian);
        match entry.d_tag(endian) {
            elf::DT_NULL => break,
            elf::DT_NEEDED => needs.libraries.push(text(value)?),
            elf::DT_RPATH => needs.rpath = split(text(value)?),
            elf::DT_RUNPATH => needs.runpath = Some(split(text(value)?)),
            elf::DT_FLAGS_1 => {
                needs.skips_default_directories = value & elf::DF_1_NODEFLIB.0 != 0;
            }
            _ => {}
        }
    }
    if needs.runpath.is_some() {
        needs.rpath.clear();
    }
    Some(needs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn inspect_bytes(bytes: &[u8]) -> Kind {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        inspect(file.path()).unwrap()
    }

    #[test]
    fn scripts_name_their_interpreter() {
        let plain = Kind::Script("/bin/sh".into(), String::new());
        assert_eq!(inspect_bytes(b"#!/bin/sh\necho\n"), plain);
        assert_eq!(inspect_bytes(b"#! \t/bin/sh"), plain);
        let env = Kind::Script("/usr/bin/env".into(), "-S python3 -u".to_string());
        assert_eq!(inspect_bytes(b"#!/usr/bin/env -S python3 -u \n"), env);
        assert_eq!(inspect_bytes(b"#!\n"), Kind::Other);
    }

    #[test]
    fn other_files_are_other() {
        assert_eq!(inspect_bytes(b""), Kind::Other);
        assert_eq!(inspect_bytes(b"hello"), Kind::Other);
        assert_eq!(inspect_bytes(b"\x7fELF"), Kind::BrokenElf);
    }

    #[test]
    fn the_test_program_itself_is_dynamic() {
        let Kind::Elf(needs) = inspect(&std::env::current_exe().unwrap()).unwrap() else {
            panic!("a test program is an ELF file");
        };
        assert!(needs.interpreter.is_some());
        assert!(needs.libraries.iter().any(|name| name.starts_with("libc.")), "{needs:?}");
    }

    #[test]
    fn damaged_elf_files_never_panic() {
        let original = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let head = &original[..original.len().min(4096)];
        for length in
            [0, 4, 16, 63, 64, 100, 200, 1000, 4096].into_iter().filter(|l| *l <= head.len())
        {
            drop(inspect_bytes(&head[..length]));
        }
        for index in 0..256.min(head.len()) {
            let mut damaged = head.to_vec();
            damaged[index] ^= 0xff;
            drop(inspect_bytes(&damaged));
        }
    }

    #[test]
    fn other_machines_are_named() {
        let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        bytes.truncate(4096);
        bytes[18] = 183;
        assert_eq!(inspect_bytes(&bytes), Kind::ForeignElf("AArch64".to_string()));
    }
}
