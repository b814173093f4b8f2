//! Address spaces: what programs see as memory, how it is brought in, and how the kernel reads and
//! writes it on their behalf.
//!
//! ```text
//!  servers/memory   run_user      other servers          execve
//!      mmap ...      faults      copies in and out          |
//!        |             |               |                  load ── script, elf, image, stack, vdso
//!   map, remap,      fault         user, user_io            |
//!   advise, maps       |               |                    |
//!        └─────────────┴── space ──────┴────────────────────┘
//!                    areas + page table + counters, one lock
//!                            area      source (files, shared stores)
//! ```
//!
//! The rules: the lock of a space is held for short, bounded work; a source of pages is never asked
//! while it is held; a frame leaves a table before it is freed, with the cores' cached translations
//! dropped in between. Not here: swap, huge pages, memory of other nodes.

mod advise;
mod area;
mod attach;
mod change;
mod elf;
mod fault;
mod file_source;
mod force;
mod guard;
mod image;
mod layout;
mod load;
mod map;
mod maps;
mod pin;
mod placement;
mod remap;
mod script;
mod sites;
mod source;
mod space;
mod stack;
mod strings;
mod user;
mod user_io;
pub mod vdso;

pub use advise::Mark;
pub use area::{AreaFlags, Backing, Object};
pub use attach::{Attach, Attachment, Owner};
pub use base::memory::reserve::available as available_frames;
pub use change::Change;
pub use fault::{Access, FaultSignal};
pub use file_source::FileSource;
pub use layout::{Layout, PAGE, USER_END, is_page_aligned, is_user_range, page_ceil, page_floor};
pub use load::{Identity, LoadRequest, LoadedProgram, ProgramFile, ProgramLookup, load_program};
pub use map::{MapRequest, Place};
pub use maps::DumpArea;
pub use pin::{SharedPage, SharedPlace};
pub use placement::{NODES, Placement};
pub use remap::{Move, RemapRequest, Transfer};
pub use sites::Sites;
pub use source::{PageSource, SharedStore};
pub use space::{AddressSpace, Counters, LimitValues, MOST_AREAS, ProgramRegions};
pub use strings::{LONGEST_STRING, StringList, space_limit};
pub use user::{FutexKey, UserMemory};
pub use user_io::{IoVector, MOST_BYTES, MOST_VECTORS, ShortRange, UserSink, UserSource};

/// Pages that a handler touches before it gives the core to others.
pub const PAGES_AT_ONCE: u64 = 256;

#[cfg(test)]
mod elf_tests_support;
#[cfg(test)]
pub(crate) mod tests;
