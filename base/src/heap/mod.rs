//! The kernel's global allocator.
//!
//! ```text
//!   up to 2 KiB   magazine of the core (no lock) <-> slabs: pages cut into objects of one size (HEAP)
//!   one page      frame cache of the core (no lock)
//!   more          runs of frames (FRAMES); at most 16 MiB
//! ```
//!
//! Slabs that become empty go back to the frames. When there is no memory the answer is null, which
//! fallible interfaces turn into `OutOfMemory`. Objects of up to 2 KiB may be freed on any core; they
//! land in the magazine of the core that frees them.

mod class;
mod emergency;
pub mod injection;
mod slab;
pub mod tree;

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hal::{Contract, MAX_CPUS, Machine, PAGE_SIZE, PhysAddr};

use crate::cpu::{CpuLocal, LocalSlot};
use crate::memory::allocator::{address_of, frames, give_frame, number_of, take_frame};
use crate::sync::Once;
use class::{CLASS_COUNT, Class};
use slab::Object;

#[cfg(target_os = "none")]
pub(crate) use emergency::{
    is_open as is_emergency_open, open as open_emergency, stock as stock_emergency,
};

/// The allocator. Its state is static: all values of this type are the same heap.
pub struct Heap;

#[cfg(target_os = "none")]
#[global_allocator]
static HEAP: Heap = Heap;

/// Pages of allocations beyond 2 KiB.
static LARGE_PAGES: AtomicUsize = AtomicUsize::new(0);

/// Frames that the heap holds now, for reports of leaks.
pub fn page_count() -> usize {
    LARGE_PAGES.load(Ordering::Relaxed) + slab::page_count()
}

/// Free objects of one class that a core keeps: a list through the objects.
struct Magazine {
    first: *mut Object,
    count: usize,
}

struct Magazines([Magazine; CLASS_COUNT]);

// SAFETY: free objects belong to whoever has the list.
unsafe impl Send for Magazines {}

static MAGAZINES: CpuLocal<Magazines> = CpuLocal::new(
    [const {
        LocalSlot::new(Magazines(
            [const { Magazine { first: ptr::null_mut(), count: 0 } }; CLASS_COUNT],
        ))
    }; MAX_CPUS],
);

impl Magazine {
    #[inline]
    fn pop(&mut self) -> Option<NonNull<Object>> {
        let object = NonNull::new(self.first)?;
        // SAFETY: objects in the list are free and belong to it.
        self.first = unsafe { object.as_ref() }.next;
        self.count -= 1;
        Some(object)
    }

    #[inline]
    fn push(&mut self, object: NonNull<Object>) {
        // SAFETY: the object is free and ours, and large enough for a link.
        unsafe { object.write(Object { next: self.first }) };
        self.first = object.as_ptr();
        self.count += 1;
    }
}

fn allocate_small(class: Class) -> *mut u8 {
    if injection::strikes() {
        return emergency::take(class);
    }
    let object = MAGAZINES.with(|magazines| {
        let magazine = &mut magazines.0[class.index()];
        if magazine.count == 0 {
            slab::take(class, class.batch(), |object| magazine.push(object));
        }
        magazine.pop()
    });
    match object {
        Some(object) => object.as_ptr().cast(),
        None => emergency::take(class),
    }
}

/// # Safety
/// The object came from `allocate_small` with this class and is not used any more.
unsafe fn free_small(object: NonNull<Object>, class: Class) {
    MAGAZINES.with(|magazines| {
        let magazine = &mut magazines.0[class.index()];
        if magazine.count >= 2 * class.batch() {
            // SAFETY: objects in the magazine came from slabs of this class and are free.
            unsafe { slab::give(class, class.batch(), || magazine.pop()) };
        }
        magazine.push(object);
    });
}

fn pages_of(layout: Layout) -> usize {
    // Runs are aligned to the next power of two of their length, so a longer one is aligned more.
    let pages = layout.size().div_ceil(PAGE_SIZE).max(1);
    if layout.align() > PAGE_SIZE { pages.max(layout.align() / PAGE_SIZE) } else { pages }
}

fn allocate_large(layout: Layout) -> *mut u8 {
    let pages = pages_of(layout);
    if injection::strikes() {
        return ptr::null_mut();
    }
    let number = if pages == 1 { take_frame() } else { frames().take_run(pages) };
    match number {
        Ok(number) => {
            LARGE_PAGES.fetch_add(pages, Ordering::Relaxed);
            Machine::phys_to_virt(address_of(number))
        }
        Err(_) => ptr::null_mut(),
    }
}

/// The frame that holds an address of the direct map.
fn frame_of(pointer: *const u8) -> u32 {
    let offset = (pointer as usize).wrapping_sub(Machine::phys_to_virt(PhysAddr(0)) as usize);
    number_of(PhysAddr(offset as u64))
}

/// Whether allocations are told to somebody.
static NOTES: AtomicBool = AtomicBool::new(false);
static ON_ALLOCATION: Once<fn(usize, usize)> = Once::new();

/// Size class of what is larger than 2 KiB, for those who are told of allocations.
pub const LARGE_CLASS: usize = CLASS_COUNT;

/// From now on, every allocation is told to this function, with its size class and its bytes. It must not
/// allocate.
pub fn note_allocations(on_allocation: fn(usize, usize)) {
    ON_ALLOCATION.call_once(|| on_allocation);
    NOTES.store(true, Ordering::Relaxed);
}

#[cold]
fn note(layout: Layout) {
    if let Some(on_allocation) = ON_ALLOCATION.get() {
        let class = Class::of(layout).map_or(LARGE_CLASS, Class::index);
        on_allocation(class, layout.size());
    }
}

// SAFETY: objects and runs are handed out once until they are given back, are as large and as aligned as
// the layout says (`class`, `pages_of`), and stay mapped. No function unwinds.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if NOTES.load(Ordering::Relaxed) {
            note(layout);
        }
        match Class::of(layout) {
            Some(class) => allocate_small(class),
            None => allocate_large(layout),
        }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let Some(object) = NonNull::new(pointer.cast::<Object>()) else { return };
        match Class::of(layout) {
            // SAFETY: by the caller's promise `pointer` came from `alloc` with this layout.
            Some(class) => unsafe { free_small(object, class) },
            None => {
                let pages = pages_of(layout);
                LARGE_PAGES.fetch_sub(pages, Ordering::Relaxed);
                let number = frame_of(pointer);
                if pages == 1 {
                    give_frame(number);
                } else {
                    frames().give_run(number, pages);
                }
            }
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let Ok(new_layout) = Layout::from_size_align(new_size, layout.align()) else {
            return ptr::null_mut();
        };
        let fits = match (Class::of(layout), Class::of(new_layout)) {
            (Some(old), Some(new)) => old == new,
            (None, None) => pages_of(layout) == pages_of(new_layout),
            _ => false,
        };
        if fits {
            return pointer;
        }
        // SAFETY: a fresh allocation, then a copy of what both hold, then the end of the old one, which
        // the caller gives up when the result is not null.
        unsafe {
            let new = self.alloc(new_layout);
            if !new.is_null() {
                ptr::copy_nonoverlapping(pointer, new, layout.size().min(new_size));
                self.dealloc(pointer, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    struct Block {
        pointer: *mut u8,
        layout: Layout,
        mark: u8,
    }

    // SAFETY: a block is owned memory.
    unsafe impl Send for Block {}

    impl Block {
        fn new(size: usize, align: usize, mark: u8) -> Block {
            let layout = layout(size, align);
            // SAFETY: the size is not zero.
            let pointer = unsafe { Heap.alloc(layout) };
            assert!(!pointer.is_null() && (pointer as usize).is_multiple_of(align));
            // SAFETY: just allocated.
            unsafe { pointer.write_bytes(mark, size) };
            Block { pointer, layout, mark }
        }
    }

    impl Drop for Block {
        fn drop(&mut self) {
            for index in [0, self.layout.size() / 2, self.layout.size() - 1] {
                // SAFETY: within the block.
                assert_eq!(unsafe { *self.pointer.add(index) }, self.mark, "somebody wrote here");
            }
            // SAFETY: allocated with this layout.
            unsafe { Heap.dealloc(self.pointer, self.layout) };
        }
    }

    #[test]
    fn blocks_of_all_sizes_keep_to_themselves_on_all_cores() {
        let (send, receive) = std::sync::mpsc::channel::<Block>();
        std::thread::scope(|scope| {
            for thread in 0..3_u32 {
                let send = send.clone();
                scope.spawn(move || {
                    let mut state = thread + 1;
                    let mut live = Vec::new();
                    for round in 0..4_000_u32 {
                        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        let size = 1
                            + (state >> 8) as usize % if round % 50 == 0 { 20_000 } else { 2_100 };
                        let align = 1 << (state >> 28);
                        live.push(Block::new(size, align.min(4096), state as u8));
                        if live.len() > 50 {
                            let block = live.swap_remove((state >> 16) as usize % live.len());
                            if round % 3 == 0 {
                                send.send(block).unwrap();
                            }
                        }
                    }
                });
            }
            drop(send);
            receive.into_iter().for_each(drop);
        });
    }

    #[test]
    fn growing_keeps_the_bytes() {
        let mut size = 8;
        let first = layout(size, 8);
        // SAFETY: each block is used within its size and freed once.
        unsafe {
            let mut pointer = Heap.alloc(first);
            pointer.cast::<u64>().write(0x0123_4567_89ab_cdef);
            while size < 100_000 {
                let bigger = size * 3 / 2;
                pointer = Heap.realloc(pointer, layout(size, 8), bigger);
                assert!(!pointer.is_null());
                assert_eq!(pointer.cast::<u64>().read(), 0x0123_4567_89ab_cdef);
                size = bigger;
            }
            Heap.dealloc(pointer, layout(size, 8));
        }
    }

    #[test]
    fn what_cannot_be_had_is_null() {
        // SAFETY: the sizes are not zero.
        unsafe {
            assert!(Heap.alloc(layout(1 << 30, 8)).is_null());
            let aligned = Heap.alloc(layout(100, 1 << 16));
            assert!((aligned as usize).is_multiple_of(1 << 16));
            Heap.dealloc(aligned, layout(100, 1 << 16));
        }
    }
}
