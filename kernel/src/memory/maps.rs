//! The text of `/proc/PID/maps` and `smaps`, a part at a time: there may be 65,530 lines of any length. And
//! what else tells of all areas and pages.

use abi::Errno;
use abi::memory::Protection;
use alloc::vec::Vec;
use base::memory::VirtAddr;
use core::fmt::Write;

use super::area::{Area, AreaFlags, Backing};
use super::layout::{PAGE, USER_END};
use super::space::{AddressSpace, Inner};

/// Column at which the name begins.
const NAME_COLUMN: usize = 73;
/// Bytes of text after which a part ends.
const PART: usize = 16 << 10;
/// Bytes that a line has at most before its name.
const HEAD: usize = 128;

/// An area of memory as a core dump has it.
pub struct DumpArea {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Rights of the program.
    pub protection: Protection,
}

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

impl AddressSpace {
    /// The areas of a program for a core dump, at most so many; what the kernel has put there and hides is
    /// left out.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn dump_areas(&self, most: usize) -> Result<Vec<DumpArea>, Errno> {
        let inner = self.lock();
        let mut areas = Vec::new();
        for (start, area) in inner.areas.overlapping(0..USER_END).take(most) {
            if area.flags.contains(AreaFlags::HIDDEN) {
                continue;
            }
            areas.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            areas.push(DumpArea { start, end: area.end, protection: area.protection });
        }
        Ok(areas)
    }
}

/// Pages, or tables for as much work, that one part of a survey looks at. A reader has 16 parts in a poll.
const SURVEYED_AT_ONCE: u64 = 2048;

/// Surveys that are under way at a time; beyond that, a reader whose survey was pushed out begins again.
const MOST_SURVEYS: usize = 8;

/// What readers of `smaps` and `smaps_rollup` have counted so far, by where they go on.
#[derive(Default)]
pub(super) struct Surveys {
    under_way: Vec<Survey>,
    oldest: usize,
}

struct Survey {
    cursor: u64,
    is_of_all: bool,
    /// Where what was counted begins.
    first: u64,
    sizes: Sizes,
}

impl Surveys {
    fn find(&self, cursor: u64, is_of_all: bool) -> Option<(u64, Sizes)> {
        let is_it = |survey: &&Survey| survey.cursor == cursor && survey.is_of_all == is_of_all;
        self.under_way.iter().find(is_it).map(|survey| (survey.first, survey.sizes))
    }

    fn note(
        &mut self,
        cursor: u64,
        is_of_all: bool,
        first: u64,
        sizes: Sizes,
    ) -> Result<(), Errno> {
        let survey = Survey { cursor, is_of_all, first, sizes };
        let is_it = |known: &&mut Survey| known.cursor == cursor && known.is_of_all == is_of_all;
        if let Some(known) = self.under_way.iter_mut().find(is_it) {
            *known = survey;
        } else if self.under_way.len() < MOST_SURVEYS {
            self.under_way.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            self.under_way.push(survey);
        } else if let Some(oldest) = self.under_way.get_mut(self.oldest % MOST_SURVEYS) {
            *oldest = survey;
            self.oldest += 1;
        }
        Ok(())
    }
}

/// What of a range is in memory, in bytes.
#[derive(Clone, Copy, Default)]
struct Sizes {
    /// All of it.
    size: u64,
    resident: u64,
    /// Each page divided by those who share it.
    proportional: u64,
    shared: u64,
    own: u64,
    own_dirty: u64,
    anonymous: u64,
    locked: u64,
    /// Of `proportional`, what `locked` has been told about.
    told: u64,
}

impl Sizes {
    /// All of an area has been counted.
    fn end(&mut self, start: u64, area: &Area) {
        self.size = area.end - start;
        if area.flags.contains(AreaFlags::LOCKED) {
            self.locked += self.proportional - self.told;
        }
        self.told = self.proportional;
    }

    fn write(&self, text: &mut Vec<u8>, is_rollup: bool) {
        let mut line = |name: &str, bytes: u64| {
            // Writing to a vector cannot fail.
            let _ = writeln!(Bytes(text), "{name:<16}{:8} kB", bytes / 1024);
        };
        if !is_rollup {
            line("Size:", self.size);
            line("KernelPageSize:", PAGE);
            line("MMUPageSize:", PAGE);
        }
        line("Rss:", self.resident);
        line("Pss:", self.proportional);
        line("Pss_Dirty:", self.own_dirty);
        if is_rollup {
            line("Pss_Anon:", self.anonymous);
            line("Pss_File:", self.proportional.saturating_sub(self.anonymous));
            line("Pss_Shmem:", 0);
        }
        line("Shared_Clean:", self.shared);
        line("Shared_Dirty:", 0);
        line("Private_Clean:", self.own - self.own_dirty);
        line("Private_Dirty:", self.own_dirty);
        line("Referenced:", self.resident);
        line("Anonymous:", self.anonymous);
        for name in [
            "LazyFree:",
            "AnonHugePages:",
            "ShmemPmdMapped:",
            "FilePmdMapped:",
            "Shared_Hugetlb:",
            "Private_Hugetlb:",
            "Swap:",
            "SwapPss:",
        ] {
            line(name, 0);
        }
        line("Locked:", self.locked);
    }
}

impl AddressSpace {
    /// Adds what `/proc/PID/smaps` says, a part as for `maps`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn sizes_of_areas(&self, cursor: u64, text: &mut Vec<u8>) -> Result<Option<u64>, Errno> {
        /// Bytes that the lines below the first one have at most.
        const LINES: usize = 1024;
        let mut guard = self.lock();
        let inner = &*guard;
        let mut left = SURVEYED_AT_ONCE;
        let mut cut = None;
        for (start, area) in inner.areas.overlapping(cursor..u64::MAX) {
            if text.len() >= PART || left == 0 {
                return Ok(Some(start));
            }
            let known = if start < cursor { inner.surveys.find(cursor, false) } else { None };
            let (from, mut sizes) =
                known.map_or((start, Sizes::default()), |(_, sizes)| (cursor, sizes));
            let next = inner.survey(from, area, &mut sizes, &mut left);
            if next < area.end {
                cut = Some((next, start, sizes));
                break;
            }
            sizes.end(start, area);
            inner.write_line(start, area, text)?;
            text.try_reserve(LINES).map_err(|_| Errno::ENOMEM)?;
            sizes.write(text, false);
            let _ = write!(Bytes(text), "THPeligible:    0\nProtectionKey:         0\nVmFlags: ");
            for name in flag_names(area) {
                let _ = write!(Bytes(text), "{name} ");
            }
            text.push(b'\n');
        }
        let Some((next, start, sizes)) = cut else { return Ok(None) };
        guard.surveys.note(next, false, start, sizes)?;
        Ok(Some(next))
    }

    /// Adds what `/proc/PID/smaps_rollup` says, when all areas have been looked at from `cursor` on. Returns
    /// where to go on, if one part was not all.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn sizes_of_all(&self, cursor: u64, text: &mut Vec<u8>) -> Result<Option<u64>, Errno> {
        let mut guard = self.lock();
        let inner = &*guard;
        let known = inner.surveys.find(cursor, true);
        let lowest = inner.areas.iter().next().map_or(0, |(start, _)| start);
        let (from, first, mut sum) =
            known.map_or((0, lowest, Sizes::default()), |(first, sizes)| (cursor, first, sizes));
        let mut left = SURVEYED_AT_ONCE;
        let mut cut = None;
        for (start, area) in inner.areas.overlapping(from..u64::MAX) {
            let from = from.max(start);
            // An area that has pages is cut where there were enough; one without costs little.
            let next = inner.survey(from, area, &mut sum, &mut left);
            left = left.saturating_sub(1);
            if next == area.end {
                sum.end(start, area);
            }
            if left == 0 && (next < area.end || inner.areas.next_above(start).is_some()) {
                cut = Some(next);
                break;
            }
        }
        if let Some(next) = cut {
            guard.surveys.note(next, true, first, sum)?;
            return Ok(Some(next));
        }
        let end = inner.areas.iter().next_back().map_or(0, |(_, area)| area.end);
        let _ = writeln!(
            Bytes(text),
            "{first:08x}-{end:08x} ---p 00000000 00:00 0 {:>1$}",
            "[rollup]",
            NAME_COLUMN - 42
        );
        sum.write(text, true);
        Ok(None)
    }

    /// Words of `/proc/PID/pagemap` from a page on. Frames are told when `shows_frames`.
    pub fn page_words(&self, first_page: u64, count: usize, shows_frames: bool) -> Vec<u64> {
        const PRESENT: u64 = 1 << 63;
        const OF_FILE: u64 = 1 << 61;
        const ALONE: u64 = 1 << 56;
        let inner = self.lock();
        let pages = (first_page..).take(count).take_while(|page| *page < USER_END / PAGE);
        pages
            .map(|page| {
                let address = page * PAGE;
                let Some(state) = inner.table.peek(VirtAddr(address)) else { return 0 };
                let is_of_file = inner
                    .areas
                    .find(address)
                    .is_some_and(|(_, area)| matches!(area.backing, Backing::Object { .. }));
                let alone = if state.references == 1 { ALONE } else { 0 };
                let of_file = if is_of_file { OF_FILE } else { 0 };
                let frame = if shows_frames { state.frame.0 / PAGE } else { 0 };
                PRESENT | of_file | alone | frame
            })
            .collect()
    }
}

/// `VmFlags` of an area.
fn flag_names(area: &Area) -> impl Iterator<Item = &'static str> {
    let has = |right| area.protection.contains(right);
    let may = |right| area.allowed.contains(right);
    let is = |flag| area.flags.contains(flag);
    [
        (has(Protection::READ), "rd"),
        (has(Protection::WRITE), "wr"),
        (has(Protection::EXECUTE), "ex"),
        (is(AreaFlags::SHARED), "sh"),
        (may(Protection::READ), "mr"),
        (may(Protection::WRITE), "mw"),
        (may(Protection::EXECUTE), "me"),
        (is(AreaFlags::SHARED), "ms"),
        (is(AreaFlags::GROWS_DOWN), "gd"),
        (is(AreaFlags::LOCKED), "lo"),
        (is(AreaFlags::DONT_FORK), "dc"),
        (area.is_accounted(), "ac"),
        (is(AreaFlags::NO_RESERVE), "nr"),
        (is(AreaFlags::WIPE_ON_FORK), "wf"),
        (is(AreaFlags::DONT_DUMP), "dd"),
        (true, "sd"),
    ]
    .into_iter()
    .filter(|(holds, _)| *holds)
    .map(|(_, name)| name)
}

struct Bytes<'a>(&'a mut Vec<u8>);

impl Write for Bytes<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl Inner {
    /// Counts pages of `area` from `from` on, as long as some are `left`. Returns where the rest begins.
    fn survey(&self, from: u64, area: &Area, sizes: &mut Sizes, left: &mut u64) -> u64 {
        let zero = self.zero_address();
        let is_of_file = matches!(area.backing, Backing::Object { .. });
        let (reached, rest) = self.table.part(VirtAddr(from)..VirtAddr(area.end), *left);
        *left = rest;
        let end = if rest == 0 { reached.0.min(area.end) } else { area.end };
        self.table.for_each(VirtAddr(from)..VirtAddr(end), |_, state| {
            if state.frame == zero {
                return;
            }
            let owners = u64::from(state.references.max(1));
            sizes.resident += PAGE;
            sizes.proportional += PAGE / owners;
            if owners > 1 {
                sizes.shared += PAGE;
            } else {
                sizes.own += PAGE;
                sizes.own_dirty += if state.dirty { PAGE } else { 0 };
            }
            // A page of a private mapping that nobody shares is a copy.
            let is_anonymous = !is_of_file || (area.is_private() && owners == 1);
            sizes.anonymous += if is_anonymous { PAGE } else { 0 };
        });
        end
    }

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
                (first_page * PAGE, source.device(), source.inode())
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
