//! Frames for the contents of user memory, files and pipes, with some kept back for the kernel.
//!
//! A program that takes all memory must be refused or killed while the kernel can still work: page
//! tables, small objects and the way out of the process all need frames. So what programs can fill comes from
//! here, and is refused when fewer than the reserve would be left. Counting free frames reads every core's
//! cache, so a core looks only once in `LOOK_INTERVAL` allocations; the reserve is larger than what
//! all cores can take between two looks.

use core::sync::atomic::{AtomicU32, Ordering};

use hal::MAX_CPUS;

use super::{Frame, OutOfMemory, frame_counts};
use crate::cpu::PerCpu;

/// Allocations between two looks at the number of free frames.
const LOOK_INTERVAL: u32 = 32;
/// Least reserve in frames.
const LEAST_RESERVE: usize = 512;
/// The reserve is this part of all frames, or `LEAST_RESERVE`.
const RESERVE_PART: usize = 64;

/// Allocations until this core looks again. Only its own core writes it.
static UNTIL_LOOK: PerCpu<AtomicU32> = PerCpu::new([const { AtomicU32::new(0) }; MAX_CPUS]);

/// Whether a frame may still be taken.
fn is_permitted() -> bool {
    let until = UNTIL_LOOK.here();
    let left = until.load(Ordering::Relaxed);
    if left > 0 {
        until.store(left - 1, Ordering::Relaxed);
        return true;
    }
    if available() == 0 {
        return false;
    }
    until.store(LOOK_INTERVAL, Ordering::Relaxed);
    true
}

/// Frames that may still be taken here.
pub fn available() -> usize {
    let counts = frame_counts();
    counts.free.saturating_sub(LEAST_RESERVE.max(counts.total / RESERVE_PART))
}

/// Frames that can be taken here at most.
pub fn most() -> u64 {
    let total = frame_counts().total;
    total.saturating_sub(LEAST_RESERVE.max(total / RESERVE_PART)) as u64
}

/// A zeroed frame; fails when only the kernel's reserve is left.
pub fn zeroed() -> Result<Frame, OutOfMemory> {
    if is_permitted() { Frame::zeroed() } else { Err(OutOfMemory) }
}

/// A frame that the caller overwrites completely; fails when only the kernel's reserve is left.
pub fn uninitialised() -> Result<Frame, OutOfMemory> {
    if is_permitted() { Frame::uninitialised() } else { Err(OutOfMemory) }
}

/// A copy of a frame; fails when only the kernel's reserve is left.
pub fn copy(of: &Frame) -> Result<Frame, OutOfMemory> {
    let frame = uninitialised()?;
    frame.copy_from(of);
    Ok(frame)
}
