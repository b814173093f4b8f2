//! How much may wait to be written back: `dirty_*` of `/proc/sys/vm`.
//!
//! What counts are the bytes of all disks and shares that are on their way, and the pages that were written to through mappings.
//! Beyond the background limit pages are written back at once, beyond the other one who writes has to wait for that.

use super::content::PAGE;
use super::{Found, Question, Remote};
use crate::inode::to_be_synced;
use abi::Errno;
use alloc::sync::Arc;
use base::time;
use base::wait::WaitQueue;
use core::sync::atomic::{AtomicU64, Ordering};

/// `dirty_bytes`: where writers wait, in bytes; 0 when `RATIO` says it.
pub static BYTES: AtomicU64 = AtomicU64::new(0);
/// `dirty_ratio`: the same in hundredths of the memory; 0 when `BYTES` says it.
pub static RATIO: AtomicU64 = AtomicU64::new(20);
/// `dirty_background_bytes`: where writing back begins, in bytes.
pub static BACKGROUND_BYTES: AtomicU64 = AtomicU64::new(0);
/// `dirty_background_ratio`: the same in hundredths of the memory.
pub static BACKGROUND_RATIO: AtomicU64 = AtomicU64::new(10);
/// `dirty_expire_centisecs`: how old a page may become before it is written back.
pub static EXPIRE: AtomicU64 = AtomicU64::new(3000);
/// `dirty_writeback_centisecs`: how often old pages are looked for; 0 for never.
pub static INTERVAL: AtomicU64 = AtomicU64::new(500);

/// Least limit, in bytes: a few pages for every writer.
const LEAST: u64 = 64 * PAGE;
const CENTISECOND_NS: u64 = 10_000_000;
/// How often to look whether pages are to be looked for again, in nanoseconds.
const IDLE_NS: u64 = 5_000_000_000;

/// Bytes that wait, of all file systems.
static WAITING: AtomicU64 = AtomicU64::new(0);

fn limit(bytes: &AtomicU64, ratio: &AtomicU64) -> u64 {
    match bytes.load(Ordering::Relaxed) {
        0 => {
            let memory = base::memory::frame_counts().total as u64 * PAGE;
            (memory / 100).saturating_mul(ratio.load(Ordering::Relaxed))
        }
        bytes => bytes,
    }
}

/// Where writers wait, in bytes.
fn most() -> u64 {
    limit(&BYTES, &RATIO).max(LEAST)
}

/// Woken when less waits than before.
static RELIEF: WaitQueue = WaitQueue::new();
/// How long to wait before everything is looked at again, in nanoseconds, and how often.
const ROUND_NS: u64 = 100_000_000;
const ROUNDS: u32 = 100;

/// Has everything written back and waits until there is room again, though not for ever: a disk may have stopped.
pub(super) async fn relief() {
    for _ in 0..ROUNDS {
        for file_system in to_be_synced() {
            file_system.write_back();
        }
        let has_room = RELIEF.wait_until(|| (!is_too_much()).then_some(()));
        let deadline_ns = time::now_ns().saturating_add(ROUND_NS);
        if time::with_deadline(has_room, Some(deadline_ns)).await.is_ok() {
            return;
        }
    }
}

fn relieve(bytes: u64) {
    WAITING.fetch_sub(bytes, Ordering::Relaxed);
    RELIEF.wake_all();
}

/// Whether who writes has to wait until something has been written back.
pub(super) fn is_too_much() -> bool {
    let waiting = WAITING.load(Ordering::Relaxed);
    // Most of the time, without counting the memory.
    waiting >= LEAST && waiting >= most()
}

/// Whether pages are to be written back at once. Never later than writers wait.
pub(super) fn is_much() -> bool {
    let most = most();
    let background = match limit(&BACKGROUND_BYTES, &BACKGROUND_RATIO) {
        background if background < most => background,
        _ => most / 2,
    };
    WAITING.load(Ordering::Relaxed) > background
}

/// How long until old pages are looked for again, and how old they are then; `None` where nobody looks.
pub(super) fn times_ns() -> (u64, Option<u64>) {
    let in_ns = |value: &AtomicU64| value.load(Ordering::Relaxed).saturating_mul(CENTISECOND_NS);
    match in_ns(&INTERVAL) {
        0 => (IDLE_NS, None),
        interval => (interval, Some(in_ns(&EXPIRE))),
    }
}

impl Remote {
    /// So many more bytes are on their way.
    pub(super) fn add_queued(&self, bytes: u64) {
        self.queued.fetch_add(bytes, Ordering::Relaxed);
        WAITING.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes are on their way no more.
    pub(super) fn remove_queued(&self, bytes: u64) {
        self.queued.fetch_sub(bytes, Ordering::Relaxed);
        relieve(bytes);
    }

    /// One more page is dirty.
    pub(super) fn add_dirty(&self) {
        self.dirty.fetch_add(1, Ordering::Relaxed);
        WAITING.fetch_add(PAGE, Ordering::Relaxed);
    }

    /// So many dirty pages are dirty no more.
    pub(super) fn count_dirty(&self, pages: usize) {
        self.dirty.fetch_sub(pages as u64, Ordering::Relaxed);
        relieve(pages as u64 * PAGE);
    }
}

impl Remote {
    /// Waits until less than too much waits to be written back. `EIOCBQUEUED` meanwhile.
    pub(super) fn wait_for_room(self: &Arc<Remote>) -> Result<(), Errno> {
        let wait = |_| async {
            relief().await;
            Ok(Found::Nothing)
        };
        self.ask(Question::Room, wait).map(|_| ())
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // What nobody will write any more waits no more.
        let bytes = *self.queued.get_mut() + *self.dirty.get_mut() * PAGE;
        relieve(bytes);
    }
}
