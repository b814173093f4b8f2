//! The vDSO: code that the kernel maps into every program so that it can read the time without a
//! system call, and the page of data that this code reads.
//!
//! The code is `hal/vdso`, linked into a small shared object when the kernel is built. Its frames and
//! the data page exist once and are shared by all programs: `[vvar]` is readable, `[vdso]`, directly
//! above it, readable and executable. The kernel changes the data page when the wall clock is set,
//! under a sequence counter (`update`); nobody else writes it.

use abi::Errno;
use abi::memory::Protection;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::memory::Frame;
use base::sync::{Mutex, Once, rank};

use super::area::{Area, AreaFlags, Backing, Object};
use super::layout::{PAGE, USER_END};
use super::source::{PageSource, new_identity};
use super::space::{AddressSpace, anonymous_area, rights_of};

/// The shared object.
static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/vdso.so"));

/// Offsets of the data page; `hal/vdso` reads the same.
mod field {
    pub const SEQUENCE: usize = 0;
    pub const SHIFT: usize = 4;
    pub const MULTIPLIER: usize = 8;
    pub const BASE_CYCLES: usize = 16;
    pub const BASE_NS: usize = 24;
    pub const WALL_OFFSET_NS: usize = 32;
    pub const HAS_CORE_NUMBER: usize = 40;
}

/// How cycles become nanoseconds, for the data page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Nanoseconds per cycle, times two to the power of `shift`.
    pub multiplier: u64,
    /// Bits that the product is shifted right by, 1 to 127; 0 switches the clock in user space off.
    pub shift: u32,
    /// Cycle counter at `base_ns`.
    pub base_cycles: u64,
    /// Nanoseconds since boot at `base_cycles`.
    pub base_ns: u64,
    /// Nanoseconds from the boot clock to the wall clock.
    pub wall_offset_ns: u64,
}

/// Frames that one of the two areas shows.
struct Pages {
    frames: Vec<Frame>,
    identity: u64,
}

impl PageSource for Pages {
    fn size(&self) -> u64 {
        self.frames.len() as u64 * PAGE
    }

    fn page(&self, index: u64) -> Result<Frame, Errno> {
        let frame = usize::try_from(index).ok().and_then(|index| self.frames.get(index));
        frame.cloned().ok_or(Errno::EFAULT)
    }

    fn identity(&self) -> u64 {
        self.identity
    }
}

/// What all programs share.
struct Shared {
    data: Arc<Object>,
    code: Arc<Object>,
    data_frame: Frame,
    /// Held while the data page is written.
    writer: Mutex<()>,
}

static SHARED: Once<Option<Shared>> = Once::new();

fn shared() -> Option<&'static Shared> {
    SHARED.call_once(|| make().ok()).as_ref()
}

fn make() -> Result<Shared, Errno> {
    let mut frames = Vec::new();
    for part in IMAGE.chunks(PAGE as usize) {
        let frame = Frame::zeroed()?;
        frame.write(0, part);
        frames.push(frame);
    }
    let data_frame = Frame::zeroed()?;
    let object = |frames: Vec<Frame>, name: &[u8]| {
        let source = Arc::new(Pages { frames, identity: new_identity() });
        Arc::new(Object { source, name: name.to_vec() })
    };
    Ok(Shared {
        data: object(alloc::vec![data_frame.clone()], b"[vvar]"),
        code: object(frames, b"[vdso]"),
        data_frame,
        writer: Mutex::new(&rank::WAIT_QUEUE, ()),
    })
}

/// Sets how the code of all programs reads the time, from now on.
pub fn update(clock: Clock) {
    let Some(shared) = shared() else { return };
    let _writer = shared.writer.lock();
    let page = &shared.data_frame;
    let sequence = page.load_u32(field::SEQUENCE);
    page.store_u32(field::SEQUENCE, sequence.wrapping_add(1));
    page.store_u32(field::SHIFT, clock.shift);
    page.store_u64(field::MULTIPLIER, clock.multiplier);
    page.store_u64(field::BASE_CYCLES, clock.base_cycles);
    page.store_u64(field::BASE_NS, clock.base_ns);
    page.store_u64(field::WALL_OFFSET_NS, clock.wall_offset_ns);
    page.store_u32(field::SEQUENCE, sequence.wrapping_add(2));
}

/// Says that the processor tells its core number to user mode.
pub fn enable_core_number() {
    if let Some(shared) = shared() {
        shared.data_frame.store_u32(field::HAS_CORE_NUMBER, 1);
    }
}

/// Maps data and code into a fresh space, their pages with them because every C library looks at
/// once, and returns where the code begins. `None` when there was no memory for it at boot.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn map(space: &AddressSpace) -> Result<Option<u64>, Errno> {
    let Some(shared) = shared() else { return Ok(None) };
    let code_pages = shared.code.source.size() / PAGE;
    let length = (1 + code_pages) * PAGE;
    let mut inner = space.lock();
    // Above the stack it needs no page table of its own.
    let above_stack = inner.layout.stack_top + PAGE;
    let start = if above_stack + length <= USER_END
        && inner.areas.is_free(above_stack..above_stack + length)
    {
        above_stack
    } else {
        inner.find_room(0, length, false).ok_or(Errno::ENOMEM)?
    };
    let parts = [
        (start, 1, &shared.data, Protection::READ),
        (start + PAGE, code_pages, &shared.code, Protection::READ | Protection::EXECUTE),
    ];
    for (start, pages, object, protection) in parts {
        let area = Area {
            allowed: protection,
            flags: AreaFlags::SPECIAL,
            backing: Backing::Object { object: object.clone(), first_page: 0 },
            ..anonymous_area(start + pages * PAGE, protection)
        };
        let rights = rights_of(&area, false);
        inner.add_area(start, area);
        for index in 0..pages {
            let frame = object.source.page(index)?;
            inner.put_page(start + index * PAGE, frame, rights, false)?;
        }
    }
    Ok(Some(start + PAGE))
}

/// Feature bits of the processor for `AT_HWCAP`: on x86-64 what CPUID leaf 1 gives in EDX.
pub fn processor_features() -> u64 {
    // FPU, TSC, MSR, CX8, CMOV, MMX, FXSR, SSE and SSE2: what every x86-64 processor has.
    const BASELINE: u64 =
        1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 15 | 1 << 23 | 1 << 24 | 1 << 25 | 1 << 26;
    BASELINE
}

#[cfg(test)]
mod tests {
    use super::super::elf;
    use super::*;

    #[test]
    fn the_image_is_one_movable_segment_without_relocations() {
        let frames = make().unwrap().code;
        let program = elf::read_program(frames.source.as_ref(), IMAGE).unwrap();
        assert!(program.is_movable);
        assert_eq!(program.segments.len(), 1);
        assert_eq!(program.segments[0].protection, Protection::READ | Protection::EXECUTE);
        assert_eq!(program.segments[0].file_size, program.segments[0].memory_size);
    }

    #[test]
    fn the_image_names_the_four_functions_and_their_version() {
        let has = |name: &[u8]| IMAGE.windows(name.len()).any(|window| window == name);
        for name in ["clock_gettime", "gettimeofday", "time", "getcpu"] {
            assert!(has(alloc::format!("\0__vdso_{name}\0").as_bytes()), "{name} is missing");
        }
        assert!(has(b"\0LINUX_2.6\0"));
    }

    #[test]
    fn an_update_leaves_an_even_sequence_and_the_new_values() {
        let clock =
            Clock { multiplier: 3, shift: 2, base_cycles: 10, base_ns: 20, wall_offset_ns: 30 };
        update(clock);
        update(clock);
        let page = &shared().unwrap().data_frame;
        assert_eq!(page.load_u32(field::SEQUENCE) % 2, 0);
        assert!(page.load_u32(field::SEQUENCE) >= 4);
        assert_eq!(page.load_u64(field::WALL_OFFSET_NS), 30);
        assert_eq!(page.load_u32(field::SHIFT), 2);
    }
}
