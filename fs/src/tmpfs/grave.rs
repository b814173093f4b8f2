//! What is left of directories and large files that have ended, until it is freed.
//!
//! A tree may be as deep as its maker likes and a file as large as memory, so neither is freed by the
//! destructor of a node: that puts the entries or pages here. They are freed one by one without
//! recursion, a bounded number at a time: the first lot by whoever put them here, the rest by a task.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use base::cpu::CpuId;
use base::memory::Frame;
use base::sync::{Mutex, rank};
use base::task;
use core::sync::atomic::{AtomicBool, Ordering};

use super::directory::Entries;

/// Entries and pages that are freed in one go.
const AT_ONCE: usize = 512;
/// Files whose pages can wait here; those of more are freed at once.
const FILES: usize = 64;

/// Pages by index.
type Pages = BTreeMap<u64, Frame>;

/// Guarded by its lock. Nothing here allocates.
struct Grave {
    /// A list through `Entries::next_dead`.
    directories: Option<Box<Entries>>,
    files: [Pages; FILES],
    file_count: usize,
}

static GRAVE: Mutex<Grave> = Mutex::new(
    &rank::GRAVE,
    Grave { directories: None, files: [const { BTreeMap::new() }; FILES], file_count: 0 },
);
/// Somebody frees, and goes on until nothing is left.
static IS_DIGGING: AtomicBool = AtomicBool::new(false);

/// Takes the entries of a directory that has ended.
pub(super) fn take_entries(mut entries: Box<Entries>) {
    if entries.is_empty() {
        return;
    }
    let mut grave = GRAVE.lock();
    entries.next_dead = grave.directories.take();
    grave.directories = Some(entries);
    drop(grave);
    dig();
}

/// Takes the pages that a file, or what is like one, has no more.
pub fn take_pages(pages: Pages) {
    if pages.len() <= AT_ONCE {
        return;
    }
    let mut grave = GRAVE.lock();
    let at = grave.file_count;
    let Some(place) = grave.files.get_mut(at) else { return drop(grave) };
    *place = pages;
    grave.file_count += 1;
    drop(grave);
    dig();
}

/// Frees the first lot, and leaves the rest to a task.
fn dig() {
    if IS_DIGGING.swap(true, Ordering::Acquire) {
        // What a node being freed puts here comes to its turn, too.
        return;
    }
    if !free_some() {
        return;
    }
    // The host has nobody to run the task.
    let is_started = cfg!(target_os = "none")
        && task::spawn(CpuId::current(), async {
            while free_some() {
                task::yield_now().await;
            }
        })
        .is_ok();
    while !is_started && free_some() {}
}

/// Frees a bounded number of things. False when nothing is left; then nobody digs any more.
fn free_some() -> bool {
    for _ in 0..AT_ONCE {
        if free_one() {
            continue;
        }
        IS_DIGGING.store(false, Ordering::Release);
        // Who came in between saw that somebody digs.
        let is_left = !GRAVE.lock().is_empty();
        if !is_left || IS_DIGGING.swap(true, Ordering::Acquire) {
            return false;
        }
    }
    true
}

fn free_one() -> bool {
    let mut grave = GRAVE.lock();
    if let Some(mut entries) = grave.directories.take() {
        let node = entries.pop();
        if entries.is_empty() {
            grave.directories = entries.next_dead.take();
        } else {
            grave.directories = Some(entries);
        }
        drop(grave);
        drop(node);
        return true;
    }
    let Some(last) = grave.file_count.checked_sub(1) else { return false };
    let Some(pages) = grave.files.get_mut(last) else { return false };
    let page = pages.pop_first();
    if pages.is_empty() {
        grave.file_count = last;
    }
    drop(grave);
    drop(page);
    true
}

impl Grave {
    fn is_empty(&self) -> bool {
        self.directories.is_none() && self.file_count == 0
    }
}
