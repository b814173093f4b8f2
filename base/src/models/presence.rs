//! Changes of mappings while a core is in user mode.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;

use super::bounded;
use crate::presence::{Generation, Presence};
use crate::task::doorbell::Doorbell;

const ROOT: u64 = 7;
const MAPPED: u64 = 1;

struct Machine {
    generation: Generation,
    presence: Presence,
    doorbell: Doorbell,
    /// The only entry of the page table.
    entry: AtomicU64,
    /// What the core's translation cache holds; the core's own.
    cached: AtomicU64,
    /// The page was handed to somebody else.
    reused: AtomicBool,
}

fn machine() -> Arc<Machine> {
    let machine = Machine {
        generation: Generation::new(),
        presence: Presence::new(),
        doorbell: Doorbell::new(),
        entry: AtomicU64::new(MAPPED),
        cached: AtomicU64::new(MAPPED),
        reused: AtomicBool::new(false),
    };
    machine.presence.note_loaded(ROOT, machine.generation.now());
    Arc::new(machine)
}

impl Machine {
    /// Enters user mode, uses the page if the translation says so, and leaves.
    fn stay(&self) {
        let stay = self.presence.begin_stay();
        self.doorbell.publish_in_user();
        if self.presence.is_stale(&self.generation) {
            self.cached.store(self.entry.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        if self.cached.load(Ordering::Relaxed) == MAPPED {
            assert!(!self.reused.load(Ordering::Relaxed), "the page is somebody else's");
        }
        self.presence.end_stay(stay);
        self.doorbell.publish_awake();
    }

    /// Takes the page away and gives it to somebody else.
    fn take_away(&self) {
        self.entry.store(0, Ordering::Relaxed);
        self.generation.advance();
        if let Some(stay) = self.presence.stay_in(ROOT) {
            while !self.presence.has_left(stay) {
                thread::yield_now();
            }
        }
        self.reused.store(true, Ordering::Relaxed);
    }
}

#[test]
fn loom_a_page_is_not_used_after_it_was_taken_away() {
    bounded(3, || {
        let machine = machine();
        let other = machine.clone();
        let thread = thread::spawn(move || other.take_away());
        machine.stay();
        machine.stay();
        thread.join().unwrap();
        machine.stay();
        assert_eq!(machine.cached.load(Ordering::Relaxed), 0);
    });
}
