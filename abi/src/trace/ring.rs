//! Rings of records in the guest's memory, from which the host takes them while the guest runs.
//!
//! A ring is a page of counters and behind it the records, a power of two of them. The kernel writes
//! records and then `HEAD`; the host takes them and then writes `TAIL`. Both only ever grow, and a record
//! for which there is no room is counted in `LOST` and not written.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Byte offset of the counter of records that were written: the kernel's.
pub const HEAD: usize = 0;
/// Byte offset of the counter of records that were taken: the host's.
pub const TAIL: usize = 64;
/// Byte offset of the counter of records that found no room: the kernel's.
pub const LOST: usize = 128;
/// Byte offset of the first record.
pub const RECORDS: usize = 4096;

/// Most cores whose rings can be told.
pub const MOST_RINGS: usize = 8;

/// Where the rings are: the payload of `FrameKind::Trace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Rings {
    /// Cores, and so rings.
    pub cores: u32,
    /// Records of each ring, a power of two.
    pub capacity: u32,
    /// Of the clock of stamps.
    pub ticks_per_second: u64,
    /// When the trace began, in nanoseconds since 1970.
    pub began_unix_ns: u64,
    /// Physical address of each ring.
    pub addresses: [u64; MOST_RINGS],
}
