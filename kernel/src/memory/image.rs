//! Putting a program file into an empty address space: its segments, what follows them, and the
//! first contents of its stack.

use abi::Errno;
use abi::memory::Protection;
use alloc::sync::Arc;
use core::ops::Range;

use super::area::{Area, AreaFlags, Backing, Object};
use super::elf::{Program, Segment};
use super::fault::Access;
use super::layout::{LOWEST_ADDRESS, PAGE, USER_END, page_ceil, page_floor};
use super::space::{AddressSpace, anonymous_area};

/// Where a program ended up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// What was added to the addresses of the file.
    pub bias: u64,
    /// Where it starts.
    pub entry: u64,
    /// Its program headers; 0 when they are not in memory.
    pub headers: u64,
    /// Its executable part.
    pub code: Range<u64>,
    /// Its writable part.
    pub data: Range<u64>,
    /// One past its last byte.
    pub end: u64,
}

/// Maps all segments of a program. `base` is where a movable program goes.
///
/// # Errors
/// `ENOEXEC` when it does not fit there, `EPERM` when it lies too low, `ENOMEM`.
pub fn place(
    space: &AddressSpace,
    object: &Arc<Object>,
    program: &Program,
    base: u64,
) -> Result<Placed, Errno> {
    let extent = program.extent();
    let bias = if program.is_movable {
        let aligned = base & !(program.alignment - 1);
        aligned.wrapping_sub(extent.start & !(program.alignment - 1))
    } else {
        0
    };
    let mut placed = Placed {
        bias,
        entry: program.entry.wrapping_add(bias),
        headers: 0,
        code: 0..0,
        data: 0..0,
        end: 0,
    };
    if program.headers_address != 0 {
        placed.headers = program.headers_address.wrapping_add(bias);
    }
    if placed.entry >= USER_END {
        return Err(Errno::ENOEXEC);
    }
    for segment in &program.segments {
        let address = segment.address.wrapping_add(bias);
        let end = address.checked_add(segment.memory_size).ok_or(Errno::ENOEXEC)?;
        if end > USER_END - PAGE {
            return Err(Errno::ENOEXEC);
        }
        if address < LOWEST_ADDRESS {
            return Err(Errno::EPERM);
        }
        map_segment(space, object, segment, address)?;
        let range = address..end;
        placed.end = placed.end.max(end);
        if segment.protection.contains(Protection::EXECUTE) {
            extend(&mut placed.code, &range);
        }
        if segment.protection.contains(Protection::WRITE) {
            extend(&mut placed.data, &range);
        }
    }
    Ok(placed)
}

fn extend(range: &mut Range<u64>, by: &Range<u64>) {
    if range.is_empty() {
        *range = by.clone();
    } else {
        *range = range.start.min(by.start)..range.end.max(by.end);
    }
}

/// Maps the pages that come from the file, zeroes what follows in the last of them, and adds zero
/// pages for the rest.
fn map_segment(
    space: &AddressSpace,
    object: &Arc<Object>,
    segment: &Segment,
    address: u64,
) -> Result<(), Errno> {
    let start = page_floor(address);
    let file_end = address + segment.file_size;
    let file_pages_end = page_ceil(file_end).ok_or(Errno::ENOEXEC)?;
    let end = page_ceil(address + segment.memory_size).ok_or(Errno::ENOEXEC)?;
    let first_zero_page = if segment.file_size == 0 { start } else { file_pages_end };
    {
        let mut inner = space.lock();
        inner.remove_areas(start..end);
        if segment.file_size > 0 {
            let backing = Backing::Object {
                object: object.clone(),
                first_page: page_floor(segment.offset) / PAGE,
            };
            let area = Area { backing, ..anonymous_area(file_pages_end, segment.protection) };
            inner.add_area(start, area);
        }
        if first_zero_page < end {
            inner.add_area(first_zero_page, anonymous_area(end, segment.protection));
        }
    }
    // The rest of the last page of the file is zero where the program asks for more memory than the
    // file has; a read-only segment keeps the bytes of the file, as on Linux.
    let has_rest = segment.memory_size > segment.file_size && file_end < file_pages_end;
    if has_rest && segment.file_size > 0 && segment.protection.contains(Protection::WRITE) {
        space.fill_now(file_end, file_pages_end - file_end)?;
    }
    Ok(())
}

impl AddressSpace {
    /// Writes to a space that no program runs in yet.
    ///
    /// # Errors
    /// `EFAULT` when nothing writable is mapped there.
    pub(super) fn write_now(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let at = address.checked_add(done as u64).ok_or(Errno::EFAULT)?;
            let copied = self.copy_in(at, rest);
            done += copied;
            if copied < rest.len() {
                let next = at + copied as u64;
                self.fault_now(next, Access::WRITE).map_err(|error| error.errno(Errno::EFAULT))?;
            }
        }
        Ok(())
    }

    /// Zeroes part of one page of a space that no program runs in yet.
    fn fill_now(&self, address: u64, length: u64) -> Result<(), Errno> {
        static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];
        let length = usize::try_from(length).unwrap_or(0);
        self.write_now(address, ZEROS.get(..length).unwrap_or_default())
    }

    /// Adds a stack that ends at `top` and holds at least `used` bytes and room to begin with.
    ///
    /// # Errors
    /// `ENOMEM` when something lies there.
    pub(super) fn add_stack(&self, top: u64, used: u64, is_executable: bool) -> Result<(), Errno> {
        /// Bytes below the first stack pointer that are mapped from the start.
        const ROOM: u64 = 128 << 10;
        let limit = self.limits().stack;
        let size = page_ceil(used + ROOM.min(limit)).ok_or(Errno::ENOMEM)?;
        let start = top.checked_sub(size).ok_or(Errno::ENOMEM)?;
        let mut protection = Protection::READ | Protection::WRITE;
        protection.set(Protection::EXECUTE, is_executable);
        let mut inner = self.lock();
        if !inner.areas.is_free(start..top) {
            return Err(Errno::ENOMEM);
        }
        let area = Area { flags: AreaFlags::GROWS_DOWN, ..anonymous_area(top, protection) };
        inner.add_area(start, area);
        Ok(())
    }
}
