//! Where things lie in a fresh address space, and by how much they are moved at random.
//!
//! The shape is that of Linux on x86-64, because programs and debuggers know it: the program at the
//! bottom (position-independent ones at two thirds of the space), the heap after it, the stack at the
//! top, and in between a region for `mmap` that is filled from the top down. `Layout` is plain data,
//! computed once per program start; a child of `fork` inherits it.

use base::memory::PAGE_SIZE;

/// Bytes in a page, as an address difference.
pub const PAGE: u64 = PAGE_SIZE as u64;
/// One past the highest user address.
pub const USER_END: u64 = <hal::Machine as hal::Contract>::USER_END;
/// Lowest address that an unprivileged `mmap` may use, so that a null pointer stays a fault.
pub const LOWEST_ADDRESS: u64 = 0x1_0000;
/// Unmapped bytes kept below a growing stack.
pub const STACK_GUARD: u64 = 256 * PAGE;
/// Where `MAP_32BIT` mappings lie.
pub const LOW_REGION: core::ops::Range<u64> = 0x4000_0000..0x8000_0000;
/// Where position-independent programs are loaded before randomisation.
const DYNAMIC_BASE: u64 = (USER_END / 3 * 2) & !(PAGE - 1);
/// Random pages added to the base of `mmap` and of position-independent programs.
const MAPPING_RANDOM_PAGES: u64 = 1 << 28;
/// Random pages taken from the top of the stack.
const STACK_RANDOM_PAGES: u64 = 1 << 22;
/// Random bytes between the end of the program and the heap.
const BREAK_RANDOM: u64 = 0x0200_0000;

/// Rounds down to a page.
pub const fn page_floor(address: u64) -> u64 {
    address & !(PAGE - 1)
}

/// Rounds up to a page; `None` past the end of the number range.
pub const fn page_ceil(address: u64) -> Option<u64> {
    match address.checked_add(PAGE - 1) {
        Some(value) => Some(page_floor(value)),
        None => None,
    }
}

/// Whether `address` starts a page.
pub const fn is_page_aligned(address: u64) -> bool {
    address & (PAGE - 1) == 0
}

/// Whether `[address, address + length)` lies in user space.
pub const fn is_user_range(address: u64, length: u64) -> bool {
    match address.checked_add(length) {
        Some(end) => end <= USER_END,
        None => false,
    }
}

/// The fixed points of one address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// One past the highest byte of the stack.
    pub stack_top: u64,
    /// Mappings without an address are placed below this, from the top down.
    pub mmap_base: u64,
    /// Where a position-independent program goes.
    pub dynamic_base: u64,
    /// Bytes between the end of the program's data and the start of the heap.
    pub break_gap: u64,
}

impl Layout {
    /// Chooses the points. `random` gives random numbers; `None` places everything at its default, as
    /// the personality flag `ADDR_NO_RANDOMIZE` asks for. `stack_limit` bytes are left for the stack.
    pub fn choose(random: Option<&mut dyn FnMut() -> u64>, stack_limit: u64) -> Layout {
        let mut moved = [0; 4];
        if let Some(random) = random {
            moved.fill_with(random);
        }
        let [stack, mmap, dynamic, heap] = moved;
        let stack_top = USER_END - (stack % STACK_RANDOM_PAGES) * PAGE;
        let largest_gap = page_floor(USER_END / 6 * 5);
        let gap = stack_limit
            .saturating_add(STACK_GUARD + STACK_RANDOM_PAGES * PAGE)
            .clamp(128 << 20, largest_gap);
        let mmap_base = page_floor(USER_END - gap - (mmap % MAPPING_RANDOM_PAGES) * PAGE);
        Layout {
            stack_top,
            mmap_base,
            dynamic_base: DYNAMIC_BASE + (dynamic % MAPPING_RANDOM_PAGES) * PAGE,
            break_gap: page_floor(heap % BREAK_RANDOM),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_randomness_the_layout_is_fixed() {
        let first = Layout::choose(None, 8 << 20);
        assert_eq!(first, Layout::choose(None, 8 << 20));
        assert_eq!(first.stack_top, USER_END);
        assert_eq!(first.break_gap, 0);
    }

    #[test]
    fn extremes_of_randomness_stay_ordered_and_aligned() {
        for value in [0, 1, u64::MAX, 0x5555_5555_5555_5555] {
            for limit in [0, 8 << 20, 1 << 40, u64::MAX] {
                let layout = Layout::choose(Some(&mut || value), limit);
                assert!(layout.mmap_base < layout.stack_top);
                assert!(layout.stack_top <= USER_END);
                assert!(layout.mmap_base > LOWEST_ADDRESS);
                for point in [layout.stack_top, layout.mmap_base, layout.dynamic_base] {
                    assert!(is_page_aligned(point), "{point:#x} is not aligned");
                }
            }
        }
    }

    #[test]
    fn user_ranges_end_at_the_end_of_user_space() {
        assert!(is_user_range(USER_END - 8, 8));
        assert!(!is_user_range(USER_END - 8, 9));
        assert!(!is_user_range(u64::MAX, 2));
    }
}
