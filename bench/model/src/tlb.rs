//! The TLBs of a CPU: small ones for data and for code, and a larger one behind both.
//!
//! An emulator's plugin does not see page sizes. Addresses of the kernel's half count as large pages
//! (2 MiB unless an option says otherwise) that survive a switch of the address space, those of the
//! user's half as pages of 4 KiB that do not: there are no address-space identifiers.

use crate::cache::Array;
use crate::sizes::Sizes;

const USER_PAGE_SHIFT: u32 = 12;
/// Marks keys of the kernel's half.
const KERNEL_KEY: u64 = 1 << 56;

/// What a translation needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The small TLB knew it.
    Hit,
    /// The larger TLB knew it.
    SecondLevel,
    /// The page tables had to be walked.
    Walk,
}

/// All TLBs of a CPU.
pub struct Tlbs {
    data: [Array; 2],
    code: [Array; 2],
    second: Array,
    kernel_page_shift: u32,
    /// The last page of data and of code: most accesses stay on a page.
    last: [u64; 2],
}

impl Tlbs {
    /// Empty ones.
    pub fn new(sizes: &Sizes) -> Tlbs {
        let array =
            |(entries, ways): (u64, u64)| Array::new((entries / ways) as usize, ways as usize);
        Tlbs {
            data: [array(sizes.dtlb), array(sizes.dtlb_large)],
            code: [array(sizes.itlb), array(sizes.itlb_large)],
            second: array(sizes.stlb),
            kernel_page_shift: sizes.kernel_page_shift,
            last: [u64::MAX; 2],
        }
    }

    /// Translates the address of an access, or of an instruction.
    #[inline]
    pub fn translate(&mut self, address: u64, is_code: bool) -> Lookup {
        let is_kernel = address >> 63 != 0;
        // Without the sign, which the mark stands for.
        let address = address << 8 >> 8;
        let key = match is_kernel {
            true => address >> self.kernel_page_shift | KERNEL_KEY,
            false => address >> USER_PAGE_SHIFT,
        };
        if self.last[usize::from(is_code)] == key {
            return Lookup::Hit;
        }
        self.last[usize::from(is_code)] = key;
        let is_large = is_kernel && self.kernel_page_shift != USER_PAGE_SHIFT;
        let first = if is_code { &mut self.code } else { &mut self.data };
        let first = &mut first[usize::from(is_large)];
        if first.touch(key).is_some() {
            return Lookup::Hit;
        }
        // What the larger one displaces may stay in the small ones.
        first.insert(key, false);
        if self.second.touch(key).is_some() {
            return Lookup::SecondLevel;
        }
        self.second.insert(key, false);
        Lookup::Walk
    }

    /// Another address space: the user's translations are gone.
    pub fn switch(&mut self) {
        self.last = [u64::MAX; 2];
        let all = self.data.iter_mut().chain(&mut self.code).chain([&mut self.second]);
        for array in all {
            array.retain(|key| key & KERNEL_KEY != 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: u64 = 0xffff_8000_0000_0000;

    fn tlbs() -> Tlbs {
        Tlbs::new(&Sizes::default())
    }

    #[test]
    fn pages_are_walked_for_once_and_data_and_code_apart() {
        let mut tlbs = tlbs();
        assert_eq!(tlbs.translate(0x1000, false), Lookup::Walk);
        assert_eq!(tlbs.translate(0x1ff8, false), Lookup::Hit);
        assert_eq!(tlbs.translate(0x1000, true), Lookup::SecondLevel);
        assert_eq!(tlbs.translate(0x2000, false), Lookup::Walk);
        assert_eq!(tlbs.translate(0x1000, false), Lookup::Hit);
    }

    #[test]
    fn as_many_pages_as_entries_fit_and_twice_as_many_do_not() {
        let mut tlbs = tlbs();
        let (entries, _) = Sizes::default().dtlb;
        let mut misses = |pages: u64| {
            let pass = |tlbs: &mut Tlbs| {
                (0..pages).filter(|page| tlbs.translate(page << 12, false) != Lookup::Hit).count()
            };
            pass(&mut tlbs);
            pass(&mut tlbs) as u64
        };
        assert_eq!(misses(entries), 0);
        assert_eq!(misses(2 * entries), 2 * entries);
    }

    #[test]
    fn a_switch_forgets_the_user_and_keeps_the_kernel() {
        let mut tlbs = tlbs();
        tlbs.translate(0x1000, false);
        tlbs.translate(KERNEL, false);
        tlbs.switch();
        assert_eq!(tlbs.translate(0x1000, false), Lookup::Walk);
        assert_eq!(tlbs.translate(KERNEL + 0x1f_ffff, false), Lookup::Hit);
        assert_eq!(tlbs.translate(KERNEL + 0x20_0000, false), Lookup::Walk);
    }
}
