//! Frames for user memory, with some kept back for the kernel.
//!
//! A program that takes all memory must be refused or killed while the kernel can still work: page
//! tables, buffers and the way out of the process all need frames. So user pages come from here, and
//! are refused when fewer than the reserve would be left. Counting free frames reads every core's
//! cache, so a core looks only once in `LOOK_INTERVAL` allocations; the reserve is larger than what
//! all cores can take between two looks.

use abi::Errno;
use base::cpu::PerCpu;
use base::memory::{Frame, frame_counts};
use core::sync::atomic::{AtomicU32, Ordering};

/// Allocations between two looks at the number of free frames.
const LOOK_INTERVAL: u32 = 32;
/// Least reserve in frames.
const LEAST_RESERVE: usize = 512;
/// The reserve is this part of all frames, or `LEAST_RESERVE`.
const RESERVE_PART: usize = 64;

/// Allocations until this core looks again. Only its own core writes it.
static UNTIL_LOOK: PerCpu<AtomicU32> = PerCpu::new([const { AtomicU32::new(0) }; hal::MAX_CPUS]);

/// Whether user memory may still be taken.
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

/// Frames that user memory may still take.
pub fn available() -> usize {
    let counts = frame_counts();
    counts.free.saturating_sub(LEAST_RESERVE.max(counts.total / RESERVE_PART))
}

/// Frames that all of user memory together may take at most.
pub fn most() -> u64 {
    let total = frame_counts().total;
    total.saturating_sub(LEAST_RESERVE.max(total / RESERVE_PART)) as u64
}

/// A zeroed frame for a user page.
///
/// # Errors
/// `ENOMEM` when only the kernel's reserve is left.
pub fn user_frame_zeroed() -> Result<Frame, Errno> {
    if !is_permitted() {
        return Err(Errno::ENOMEM);
    }
    Ok(Frame::zeroed()?)
}

/// A frame for a user page that the caller overwrites completely.
///
/// # Errors
/// `ENOMEM` when only the kernel's reserve is left.
pub fn user_frame_copy(of: &Frame) -> Result<Frame, Errno> {
    if !is_permitted() {
        return Err(Errno::ENOMEM);
    }
    let frame = Frame::uninitialised()?;
    frame.copy_from(of);
    Ok(frame)
}
