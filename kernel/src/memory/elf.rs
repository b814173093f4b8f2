//! Reading ELF files: the header, the program headers and the name of the interpreter.
//!
//! Written from the ELF-64 specification and the System V ABI for x86-64. Nothing in a file is
//! trusted: every number is checked before it is used, and a file that is not a sound program for
//! this machine is `ENOEXEC`. Sections and symbols are never looked at.

use abi::Errno;
use abi::memory::Protection;
use alloc::vec::Vec;

use super::layout::{PAGE, USER_END, page_ceil, page_floor};
use super::source::PageSource;

/// Bytes of one program header.
pub const PROGRAM_HEADER_SIZE: u64 = 56;
/// Most bytes of all program headers, as on Linux.
const MOST_HEADER_BYTES: u64 = 65_536;
/// Longest interpreter name, its zero byte included.
const LONGEST_INTERPRETER: u64 = 4096;

const TYPE_EXECUTABLE: u16 = 2;
const TYPE_DYNAMIC: u16 = 3;
const THIS_MACHINE: u16 = abi::arch::x86_64::ELF_MACHINE;
const SEGMENT_LOAD: u32 = 1;
const SEGMENT_INTERPRETER: u32 = 3;
const SEGMENT_HEADERS: u32 = 6;
const SEGMENT_STACK: u32 = 0x6474_e551;

/// Part of the file that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Byte in the file.
    pub offset: u64,
    /// Address, before the load base is added.
    pub address: u64,
    /// Bytes from the file.
    pub file_size: u64,
    /// Bytes in memory; what the file does not fill is zero.
    pub memory_size: u64,
    /// Rights.
    pub protection: Protection,
}

impl Segment {
    /// One past the last byte in memory.
    pub fn end(&self) -> u64 {
        self.address + self.memory_size
    }
}

/// What a program file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// It may be loaded anywhere.
    pub is_movable: bool,
    /// Where it starts, before the load base is added.
    pub entry: u64,
    /// What is mapped, in the order of the file; at least one.
    pub segments: Vec<Segment>,
    /// Largest alignment of a segment, at least a page.
    pub alignment: u64,
    /// Address of the program headers in memory, before the load base is added; 0 when not mapped.
    pub headers_address: u64,
    /// Number of program headers.
    pub header_count: u64,
    /// Path of the interpreter.
    pub interpreter: Option<Vec<u8>>,
    /// The stack must be executable.
    pub is_stack_executable: bool,
}

/// A reader of little-endian numbers that cannot run past its end.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> Result<[u8; N], Errno> {
        let end = at.checked_add(N).ok_or(Errno::ENOEXEC)?;
        self.0.get(at..end).and_then(|bytes| bytes.try_into().ok()).ok_or(Errno::ENOEXEC)
    }

    fn u16(&self, at: usize) -> Result<u16, Errno> {
        Ok(u16::from_le_bytes(self.bytes(at)?))
    }

    fn u32(&self, at: usize) -> Result<u32, Errno> {
        Ok(u32::from_le_bytes(self.bytes(at)?))
    }

    fn u64(&self, at: usize) -> Result<u64, Errno> {
        Ok(u64::from_le_bytes(self.bytes(at)?))
    }
}

/// Reads the headers of a program. `start` is the beginning of the file, at least the ELF header when
/// the file is that long.
///
/// # Errors
/// `ENOEXEC` when it is not a sound program for this machine, `EIO` when it cannot be read, `ENOMEM`.
pub fn read_program(source: &dyn PageSource, start: &[u8]) -> Result<Program, Errno> {
    let header = Fields(start);
    // Magic number, 64 bits, little-endian, version 1.
    if header.bytes(0)? != [0x7f, b'E', b'L', b'F', 2, 1, 1] {
        return Err(Errno::ENOEXEC);
    }
    let kind = header.u16(16)?;
    let is_known = kind == TYPE_EXECUTABLE || kind == TYPE_DYNAMIC;
    if !is_known || header.u16(18)? != THIS_MACHINE {
        return Err(Errno::ENOEXEC);
    }
    let headers_offset = header.u64(32)?;
    let header_count = u64::from(header.u16(56)?);
    let header_bytes = header_count * PROGRAM_HEADER_SIZE;
    if u64::from(header.u16(54)?) != PROGRAM_HEADER_SIZE
        || header_count == 0
        || header_bytes > MOST_HEADER_BYTES
    {
        return Err(Errno::ENOEXEC);
    }
    let table = read_exactly(source, start, headers_offset, header_bytes)?;
    let mut program = Program {
        is_movable: kind == TYPE_DYNAMIC,
        entry: header.u64(24)?,
        segments: Vec::new(),
        alignment: PAGE,
        headers_address: 0,
        header_count,
        interpreter: None,
        is_stack_executable: false,
    };
    for bytes in table.chunks_exact(PROGRAM_HEADER_SIZE as usize) {
        let fields = Fields(bytes);
        let flags = fields.u32(4)?;
        match fields.u32(0)? {
            SEGMENT_LOAD => program.add_segment(&fields, flags, source.size())?,
            SEGMENT_INTERPRETER if program.interpreter.is_none() => {
                let (offset, length) = (fields.u64(8)?, fields.u64(32)?);
                program.interpreter = Some(read_interpreter(source, start, offset, length)?);
            }
            SEGMENT_HEADERS => program.headers_address = fields.u64(16)?,
            SEGMENT_STACK => program.is_stack_executable = flags & 1 != 0,
            _ => {}
        }
    }
    if program.segments.is_empty() {
        return Err(Errno::ENOEXEC);
    }
    program.find_headers(headers_offset, header_bytes);
    Ok(program)
}

impl Program {
    fn add_segment(&mut self, fields: &Fields, flags: u32, file: u64) -> Result<(), Errno> {
        let segment = Segment {
            offset: fields.u64(8)?,
            address: fields.u64(16)?,
            file_size: fields.u64(32)?,
            memory_size: fields.u64(40)?,
            protection: protection_of(flags),
        };
        let alignment = fields.u64(48)?;
        let end = segment.address.checked_add(segment.memory_size).and_then(page_ceil);
        let file_end = segment.offset.checked_add(segment.file_size);
        let is_sound = segment.file_size <= segment.memory_size
            && end.is_some_and(|end| end <= USER_END)
            && file_end.is_some_and(|end| end <= file)
            && segment.address % PAGE == segment.offset % PAGE;
        if !is_sound {
            return Err(Errno::ENOEXEC);
        }
        if segment.memory_size == 0 {
            return Ok(());
        }
        // As on Linux, an alignment that is no power of two counts as none.
        if alignment.is_power_of_two() && alignment < USER_END / 4 {
            self.alignment = self.alignment.max(alignment);
        }
        self.segments.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.segments.push(segment);
        Ok(())
    }

    /// Without a segment for them the program headers are where the segment that holds their bytes of
    /// the file puts them.
    fn find_headers(&mut self, offset: u64, length: u64) {
        let holder = self.segments.iter().find(|segment| {
            segment.offset <= offset
                && offset.saturating_add(length) <= segment.offset + segment.file_size
        });
        if let Some(segment) = holder {
            self.headers_address = segment.address + (offset - segment.offset);
        }
    }

    /// First and one past the last page of all segments, before the load base is added.
    pub fn extent(&self) -> core::ops::Range<u64> {
        let start = self.segments.iter().map(|segment| page_floor(segment.address)).min();
        let end = self.segments.iter().filter_map(|segment| page_ceil(segment.end())).max();
        start.unwrap_or(0)..end.unwrap_or(0)
    }
}

fn protection_of(flags: u32) -> Protection {
    let mut protection = Protection::empty();
    protection.set(Protection::EXECUTE, flags & 1 != 0);
    protection.set(Protection::WRITE, flags & 2 != 0);
    protection.set(Protection::READ, flags & 4 != 0);
    protection
}

/// Reads the path of the interpreter: 2 to 4096 bytes that end with their only needed zero byte.
fn read_interpreter(
    source: &dyn PageSource,
    start: &[u8],
    offset: u64,
    length: u64,
) -> Result<Vec<u8>, Errno> {
    if !(2..=LONGEST_INTERPRETER).contains(&length) {
        return Err(Errno::ENOEXEC);
    }
    let mut path = read_exactly(source, start, offset, length)?;
    if path.last() != Some(&0) {
        return Err(Errno::ENOEXEC);
    }
    let end = path.iter().position(|byte| *byte == 0).unwrap_or(0);
    path.truncate(end);
    Ok(path)
}

/// Reads a range of the file, from the bytes that are there already where they hold it.
fn read_exactly(
    source: &dyn PageSource,
    start: &[u8],
    offset: u64,
    length: u64,
) -> Result<Vec<u8>, Errno> {
    let end = offset.checked_add(length).ok_or(Errno::ENOEXEC)?;
    if end > source.size() {
        return Err(Errno::ENOEXEC);
    }
    let length = usize::try_from(length).map_err(|_| Errno::ENOEXEC)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
    let in_start =
        usize::try_from(offset).ok().and_then(|at| start.get(at..at.checked_add(length)?));
    if let Some(known) = in_start {
        bytes.extend_from_slice(known);
        return Ok(bytes);
    }
    bytes.resize(length, 0);
    if source.read_at(offset, &mut bytes)? != length {
        return Err(Errno::ENOEXEC);
    }
    Ok(bytes)
}

#[cfg(test)]
#[path = "elf_tests.rs"]
mod tests;
