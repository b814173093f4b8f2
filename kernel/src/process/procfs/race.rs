//! `/proc/ferry/race`, in builds with debug assertions only: three races of textbooks, for tests of
//! `ferry run --record`, which has to find them and show them again and again.
//!
//! | words | bug | what the handler says when it strikes |
//! |---|---|---|
//! | `wait`, `wake` | who goes to sleep does not look once more whether it was woken | the wake-up was lost |
//! | `slot` | a free slot is looked for and taken in two steps | the slot is freed twice |
//! | `ab`, `ba` | two locks are taken in either order | each waits for the other |
//!
//! The handler panics then, which its writer sees as `EIO`. Everything is left as it was found.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use abi::Errno;
use base::cpu;
use fs::Identity;
use fs::pseudo::{Content, Entry};
use hal::{Contract, Machine};

/// Rounds for which the other side is waited for.
const PATIENCE: u32 = 2_000;
/// Rounds for which a waker waits for what it woke: longer, so that a sleeper who missed it gives up first.
const PATIENCE_OF_WAKERS: u32 = 3 * PATIENCE;
/// One of so many windows is open for long enough that another core may come in between.
const RARITY: u64 = 31;

/// The window of a race: now and then, others run here.
fn window() {
    if (Machine::cycles() >> 5).is_multiple_of(RARITY) {
        cpu::relax();
    }
}

/// Waits for so many rounds until it is so; false when it does not come to it.
fn wait_until(rounds: u32, mut is_so: impl FnMut() -> bool) -> bool {
    (0..rounds).any(|_| {
        let so = is_so();
        if !so {
            cpu::relax();
        }
        so
    })
}

static READY: AtomicBool = AtomicBool::new(false);
static SLEEPS: AtomicBool = AtomicBool::new(false);
static WOKEN: AtomicBool = AtomicBool::new(false);

fn wait() {
    if READY.swap(false, SeqCst) {
        return;
    }
    window();
    // Wrong: whoever made it ready in between saw nobody asleep.
    SLEEPS.store(true, SeqCst);
    let is_woken = wait_until(PATIENCE, || WOKEN.swap(false, SeqCst));
    SLEEPS.store(false, SeqCst);
    let is_ready = READY.swap(false, SeqCst);
    assert!(is_woken || !is_ready, "the wake-up was lost");
}

fn wake() {
    READY.store(true, SeqCst);
    if SLEEPS.swap(false, SeqCst) {
        WOKEN.store(true, SeqCst);
    }
    // The next one comes when this one has been taken, as a wake-up that comes later would hide the lost one.
    wait_until(PATIENCE_OF_WAKERS, || !READY.load(SeqCst));
}

/// Free slots, as bits.
static FREE: AtomicU32 = AtomicU32::new(0b11);
static OWNERS: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

fn slot() {
    let free = FREE.load(SeqCst);
    let slot = free.trailing_zeros();
    let Some(owners) = OWNERS.get(slot as usize) else { return };
    window();
    // Wrong: somebody else may have taken it in between.
    FREE.fetch_and(!(1 << slot), SeqCst);
    owners.fetch_add(1, SeqCst);
    window();
    let count = owners.fetch_sub(1, SeqCst);
    FREE.fetch_or(1 << slot, SeqCst);
    assert!(count == 1, "slot {slot} is freed twice");
}

static A: AtomicBool = AtomicBool::new(false);
static B: AtomicBool = AtomicBool::new(false);

fn both(first: &AtomicBool, second: &AtomicBool) {
    if !wait_until(PATIENCE, || !first.swap(true, SeqCst)) {
        return;
    }
    window();
    // Wrong: others take them the other way round.
    let has_both = wait_until(PATIENCE, || !second.swap(true, SeqCst));
    if has_both {
        second.store(false, SeqCst);
    }
    first.store(false, SeqCst);
    assert!(has_both, "two locks are held, and each waits for the other");
}

struct Race;

/// The file.
pub(super) fn entry(number: u64) -> Entry {
    Entry::file(number, Arc::new(Race)).with_mode(0o600)
}

impl Content for Race {
    fn generate(&self, _: &Identity) -> Result<Vec<u8>, Errno> {
        Ok(b"wait wake slot ab ba\n".to_vec())
    }

    fn write(&self, _: &Identity, _: u64, bytes: &[u8]) -> Result<usize, Errno> {
        match bytes.trim_ascii_end() {
            b"wait" => wait(),
            b"wake" => wake(),
            b"slot" => slot(),
            b"ab" => both(&A, &B),
            b"ba" => both(&B, &A),
            _ => return Err(Errno::EINVAL),
        }
        Ok(bytes.len())
    }
}
