//! Slabs: pages cut into objects of one class, shared by all cores.
//!
//! The state of a slab lies in the record of its frame: `tag` says which class it is, `references` how
//! many objects are in use and which is the first free one, `next` and `previous` link the slabs of a
//! class that have free objects. All of it belongs to whoever holds the lock of the class.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};

use hal::{Contract, Machine, PAGE_SIZE};

use super::class::{CLASS_COUNT, Class};
use super::frame_of;
use crate::memory::allocator::{address_of, frames, give_frame, take_frame};
use crate::memory::buddy::Record;
use crate::sync::{Mutex, rank};

/// A free object.
pub(super) struct Object {
    /// The next free one in the same list.
    pub next: *mut Object,
}

const NONE: u32 = u32::MAX;
const NO_OBJECT: u32 = 0xffff;
const TAG: u32 = 0x5342_0000;

/// Slabs of a class that have free objects.
struct Partial {
    first: u32,
    count: usize,
}

static CLASSES: [Mutex<Partial>; CLASS_COUNT] =
    [const { Mutex::new(&rank::HEAP, Partial { first: NONE, count: 0 }) }; CLASS_COUNT];
static PAGES: AtomicUsize = AtomicUsize::new(0);

/// Pages that are slabs now.
pub(super) fn page_count() -> usize {
    PAGES.load(Ordering::Relaxed)
}

/// First free object (in grains of 16 bytes from the page's start) and objects in use.
#[derive(Clone, Copy)]
struct State {
    free: u32,
    used: u32,
}

impl State {
    fn of(record: &Record) -> State {
        let raw = record.references.load(Ordering::Relaxed);
        State { free: raw >> 16, used: raw & 0xffff }
    }

    fn store(self, record: &Record) {
        record.references.store(self.free << 16 | self.used, Ordering::Relaxed);
    }
}

fn record_of(page: u32) -> &'static Record {
    match frames().record(page) {
        Some(record) => record,
        None => unreachable!("slabs are made of frames"),
    }
}

impl Partial {
    fn link(&mut self, page: u32) {
        let record = record_of(page);
        record.next.store(self.first, Ordering::Relaxed);
        record.previous.store(NONE, Ordering::Relaxed);
        if self.first != NONE {
            record_of(self.first).previous.store(page, Ordering::Relaxed);
        }
        self.first = page;
        self.count += 1;
    }

    fn unlink(&mut self, page: u32) {
        let record = record_of(page);
        let next = record.next.load(Ordering::Relaxed);
        let previous = record.previous.load(Ordering::Relaxed);
        if next != NONE {
            record_of(next).previous.store(previous, Ordering::Relaxed);
        }
        if previous != NONE {
            record_of(previous).next.store(next, Ordering::Relaxed);
        } else {
            self.first = next;
        }
        self.count -= 1;
    }

    /// Takes a free object of the first slab.
    fn take(&mut self) -> Option<NonNull<Object>> {
        if self.first == NONE {
            return None;
        }
        let page = self.first;
        let record = record_of(page);
        let state = State::of(record);
        let offset = state.free as usize * 16;
        let start = Machine::phys_to_virt(address_of(page));
        let object = NonNull::new(start.wrapping_add(offset).cast::<Object>())?;
        // SAFETY: the object is free and in a slab whose lock we hold.
        let next = unsafe { object.as_ref() }.next;
        let free =
            if next.is_null() { NO_OBJECT } else { ((next as usize % PAGE_SIZE) / 16) as u32 };
        State { free, used: state.used + 1 }.store(record);
        if free == NO_OBJECT {
            self.unlink(page);
        }
        Some(object)
    }

    /// Gives an object back; the page when it has become empty and is not needed.
    ///
    /// # Safety
    /// The object came from a slab of this class and is not used any more.
    unsafe fn give(&mut self, object: NonNull<Object>) -> Option<u32> {
        let page = frame_of(object.as_ptr().cast());
        let record = record_of(page);
        let state = State::of(record);
        let next = if state.free == NO_OBJECT {
            self.link(page);
            ptr::null_mut()
        } else {
            let start = Machine::phys_to_virt(address_of(page));
            start.wrapping_add(state.free as usize * 16).cast()
        };
        // SAFETY: by the caller's promise the object is ours now.
        unsafe { object.write(Object { next }) };
        let free = ((object.as_ptr() as usize % PAGE_SIZE) / 16) as u32;
        State { free, used: state.used - 1 }.store(record);
        if state.used == 1 && self.count > 1 {
            self.unlink(page);
            return Some(page);
        }
        None
    }
}

/// Makes a slab of a fresh page.
fn cut(page: u32, class: Class) {
    let start = Machine::phys_to_virt(address_of(page));
    let mut next = ptr::null_mut();
    for index in (0..class.per_page()).rev() {
        let object = start.wrapping_add(index * class.size()).cast::<Object>();
        // SAFETY: within the page, which is ours and not shared yet.
        unsafe { object.write(Object { next }) };
        next = object;
    }
    let record = record_of(page);
    record.tag.store(TAG | class.index() as u32, Ordering::Relaxed);
    State { free: 0, used: 0 }.store(record);
}

/// Takes up to `count` objects, as many as can be had.
pub(super) fn take(class: Class, count: usize, mut each: impl FnMut(NonNull<Object>)) {
    let mut taken = 0;
    loop {
        {
            let mut partial = CLASSES[class.index()].lock();
            while taken < count
                && let Some(object) = partial.take()
            {
                each(object);
                taken += 1;
            }
        }
        // One fresh page at most: what it does not give is not needed yet.
        if taken > 0 {
            return;
        }
        // Frames have a lower rank than the heap, so they are taken between two turns of the lock.
        let Ok(page) = take_frame() else { return };
        PAGES.fetch_add(1, Ordering::Relaxed);
        cut(page, class);
        CLASSES[class.index()].lock().link(page);
    }
}

/// Gives up to `count` objects back, as many as `next` finds.
///
/// # Safety
/// The objects came from slabs of this class and are not used any more.
pub(super) unsafe fn give(
    class: Class,
    count: usize,
    mut next: impl FnMut() -> Option<NonNull<Object>>,
) {
    const MOST: usize = 32;
    let mut empty = [NONE; MOST];
    let mut found = 0;
    {
        let mut partial = CLASSES[class.index()].lock();
        for _ in 0..count.min(MOST) {
            let Some(object) = next() else { break };
            // SAFETY: by the caller's promise.
            if let Some(page) = unsafe { partial.give(object) } {
                empty[found] = page;
                found += 1;
            }
        }
    }
    for page in &empty[..found] {
        let record = record_of(*page);
        debug_assert_eq!(record.tag.load(Ordering::Relaxed), TAG | class.index() as u32);
        record.tag.store(0, Ordering::Relaxed);
        record.references.store(0, Ordering::Relaxed);
        PAGES.fetch_sub(1, Ordering::Relaxed);
        give_frame(*page);
    }
}
