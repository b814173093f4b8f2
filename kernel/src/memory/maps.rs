//! The text of `/proc/PID/maps`, a part at a time: there may be 65,530 lines of any length.

use abi::Errno;
use abi::memory::Protection;
use alloc::vec::Vec;
use core::fmt::Write;

use super::area::{Area, AreaFlags, Backing};
use super::space::{AddressSpace, Inner};

/// Column at which the name begins.
const NAME_COLUMN: usize = 73;
/// Bytes of text after which a part ends.
const PART: usize = 16 << 10;
/// Bytes that a line has at most before its name.
const HEAD: usize = 128;

impl AddressSpace {
    /// Adds the lines of areas from address `cursor` on until there is enough for one part of the text.
    /// Returns where the next part begins.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn maps(&self, cursor: u64, text: &mut Vec<u8>) -> Result<Option<u64>, Errno> {
        let inner = self.lock();
        for (start, area) in inner.areas.overlapping(cursor..u64::MAX) {
            if text.len() >= PART {
                return Ok(Some(start));
            }
            inner.write_line(start, area, text)?;
        }
        Ok(None)
    }
}

struct Bytes<'a>(&'a mut Vec<u8>);

impl Write for Bytes<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl Inner {
    fn write_line(&self, start: u64, area: &Area, text: &mut Vec<u8>) -> Result<(), Errno> {
        let name = self.name_of(start, area);
        // A line feed takes four bytes.
        text.try_reserve(HEAD + 4 * name.len()).map_err(|_| Errno::ENOMEM)?;
        let begin = text.len();
        let has = |right, letter| if area.protection.contains(right) { letter } else { '-' };
        let read = has(Protection::READ, 'r');
        let write = has(Protection::WRITE, 'w');
        let execute = has(Protection::EXECUTE, 'x');
        let kind = if area.is_private() { 'p' } else { 's' };
        let (offset, device, inode) = match &area.backing {
            Backing::Object { object, first_page } if !area.flags.contains(AreaFlags::SPECIAL) => {
                let source = &object.source;
                (first_page * super::layout::PAGE, source.device(), source.inode())
            }
            _ => (0, 0, 0),
        };
        let major = (device >> 8) & 0xfff;
        let minor = (device & 0xff) | ((device >> 12) & 0xfff00);
        // Writing to a vector cannot fail, and there is room.
        let _ = write!(
            Bytes(text),
            "{start:08x}-{:08x} {read}{write}{execute}{kind} {offset:08x} {major:02x}:{minor:02x} \
             {inode} ",
            area.end
        );
        if !name.is_empty() {
            while text.len() - begin < NAME_COLUMN {
                text.push(b' ');
            }
            for byte in name {
                match byte {
                    b'\n' => text.extend_from_slice(b"\\012"),
                    other => text.push(*other),
                }
            }
        }
        text.push(b'\n');
        Ok(())
    }

    fn name_of<'a>(&self, start: u64, area: &'a Area) -> &'a [u8] {
        match &area.backing {
            Backing::Object { object, .. } => &object.name,
            Backing::Anonymous => {
                let is_heap = start < self.break_end && area.end > self.break_start;
                let stack = self.regions.stack_start;
                if is_heap {
                    b"[heap]"
                } else if start <= stack && stack < area.end {
                    b"[stack]"
                } else {
                    b""
                }
            }
        }
    }
}
