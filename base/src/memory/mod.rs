//! RAM: owned frames, contiguous runs, page tables.
//!
//! ```text
//!   Frame (owned, counted)   PageTable (owner of user mappings)   heap slabs   DMA
//!        \_______________________________|____________________________/_________/
//!                                  cache per core (128 frames; 32 at a time)
//!                                  buddy lists under one lock (rank FRAMES)
//! ```
//!
//! Everything is set up at first use from `Machine::boot_info`, so nothing must be called in order.

pub(crate) mod allocator;
pub(crate) mod buddy;
pub(crate) mod copy;
mod frame;
#[cfg(any(target_os = "none", test))]
mod functions;
pub mod reserve;
mod table;
#[cfg(test)]
mod table_tests;

use abi::Errno;

pub(crate) use allocator::free_contiguous;
pub use allocator::{FrameCounts, allocate_contiguous, frame_counts};
pub use frame::{Frame, zero_frame};
pub use hal::contract::PageRights;
pub use hal::{PAGE_SIZE, PhysAddr, VirtAddr};
pub use table::{Mapping, PageState, PageTable, ShareMode};
pub(crate) use table::{TableList, free_tables};

/// There is no RAM left for this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMemory;

impl From<OutOfMemory> for Errno {
    fn from(_: OutOfMemory) -> Errno {
        Errno::ENOMEM
    }
}

impl core::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("out of memory")
    }
}
