//! How often handlers were polled, and the longest poll, per call number: what `/proc/ferry/polls` tells.
//!
//! A handler gives the core back after a bounded piece of work, so a long call is many polls. Calls that
//! are answered at once have no poll. The time of a poll is taken in kernels with debug assertions only.

use core::sync::atomic::{AtomicU64, Ordering};

use policy::table::CALL_LIMIT;

/// Polls of the handlers of one call number.
struct Cell {
    count: AtomicU64,
    longest_ns: AtomicU64,
}

static CELLS: [Cell; CALL_LIMIT] =
    [const { Cell { count: AtomicU64::new(0), longest_ns: AtomicU64::new(0) } }; CALL_LIMIT];

/// Polls a handler.
#[inline]
pub fn count<R>(number: usize, poll: impl FnOnce() -> R) -> R {
    let Some(cell) = CELLS.get(number) else { return poll() };
    cell.count.fetch_add(1, Ordering::Relaxed);
    if !cfg!(debug_assertions) {
        return poll();
    }
    let begin_ns = base::time::now_ns();
    let result = poll();
    let taken_ns = base::time::now_ns().saturating_sub(begin_ns);
    if taken_ns > cell.longest_ns.load(Ordering::Relaxed) {
        cell.longest_ns.fetch_max(taken_ns, Ordering::Relaxed);
    }
    result
}

/// Number, polls and longest poll in nanoseconds of every call whose handler was polled.
pub fn all() -> impl Iterator<Item = (usize, u64, u64)> {
    CELLS.iter().enumerate().filter_map(|(number, cell)| {
        let count = cell.count.load(Ordering::Relaxed);
        (count > 0).then(|| (number, count, cell.longest_ns.load(Ordering::Relaxed)))
    })
}
