//! Changes of mappings while a core is in user mode.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
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
    machine.presence.load(ROOT, machine.generation.now(), || {});
    Arc::new(machine)
}

impl Machine {
    /// Loading a root forgets what is cached and comes after what was stored before it. The core may walk
    /// the tables at once.
    fn forget(&self) {
        fence(Ordering::SeqCst);
        self.cached.store(self.entry.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The core walks, in the kernel, the table that it has found, to note that it was accessed.
    fn walk(&self) {
        if self.cached.load(Ordering::Relaxed) == MAPPED {
            assert!(!self.reused.load(Ordering::Relaxed), "the table is somebody else's");
        }
    }

    /// Enters user mode, uses the page if the translation says so, and leaves.
    fn stay(&self) {
        let stay = self.presence.begin_stay();
        self.doorbell.publish_in_user();
        if let Some(generation) = self.presence.is_stale(&self.generation) {
            self.presence.load(ROOT, generation, || self.forget());
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

/// Takes a table away and gives it to somebody else as soon as no core walks it; false if one may.
fn take_table(machine: &Machine) -> bool {
    machine.entry.store(0, Ordering::Relaxed);
    let generation = machine.generation.advance() + 1;
    let is_free = machine.presence.has_forgotten(ROOT, generation);
    if is_free {
        machine.reused.store(true, Ordering::Relaxed);
    }
    is_free
}

#[test]
fn loom_a_table_is_not_walked_after_it_went_to_somebody_else() {
    bounded(3, || {
        let machine = machine();
        let other = machine.clone();
        let thread = thread::spawn(move || take_table(&other));
        machine.walk();
        if let Some(generation) = machine.presence.is_stale(&machine.generation) {
            machine.presence.load(ROOT, generation, || machine.forget());
        }
        machine.walk();
        thread.join().unwrap();
    });
}

#[test]
fn loom_a_table_of_a_space_that_is_left_and_entered_again_is_not_walked() {
    bounded(3, || {
        let machine = machine();
        let other = machine.clone();
        let thread = thread::spawn(move || take_table(&other));
        machine.walk();
        machine.presence.load(0, 0, || {
            fence(Ordering::SeqCst);
            machine.cached.store(0, Ordering::Relaxed);
        });
        let generation = machine.generation.now();
        machine.presence.load(ROOT, generation, || machine.forget());
        machine.walk();
        let was_free = thread.join().unwrap();
        // It goes in the end, at the latest when the core has loaded the root once more.
        let generation = machine.generation.now();
        machine.presence.load(ROOT, generation, || machine.forget());
        assert!(was_free || machine.presence.has_forgotten(ROOT, generation));
    });
}
