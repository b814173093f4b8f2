//! Sizes of small objects.

use core::alloc::Layout;

use hal::PAGE_SIZE;

/// Sizes that are made: close enough to each other that little is wasted, and dividing a page well.
/// An object of a class is aligned to the largest power of two that divides its size.
const SIZES: [usize; CLASS_COUNT] =
    [16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1360, 2048];

/// Number of classes.
pub(super) const CLASS_COUNT: usize = 14;

const GRAIN: usize = 16;
const LARGEST: usize = 2048;

/// The smallest class for each size in grains.
const BY_SIZE: [u8; LARGEST / GRAIN + 1] = {
    let mut table = [0; LARGEST / GRAIN + 1];
    let mut grains = 0;
    let mut class = 0;
    while grains < table.len() {
        if grains * GRAIN > SIZES[class] {
            class += 1;
        }
        table[grains] = class as u8;
        grains += 1;
    }
    table
};

/// Powers of two of an alignment that small objects may have: 2^4 to 2^11.
const ALIGNS: usize = (LARGEST / GRAIN).ilog2() as usize + 1;

/// The smallest class from each on whose objects are aligned so: by power of two beyond that of a grain, and
/// class. `CLASS_COUNT` when there is none.
const BY_ALIGN: [[u8; CLASS_COUNT]; ALIGNS] = {
    let mut table = [[CLASS_COUNT as u8; CLASS_COUNT]; ALIGNS];
    let mut power = 0;
    while power < ALIGNS {
        let mut class = CLASS_COUNT;
        let mut found = CLASS_COUNT;
        while class > 0 {
            class -= 1;
            if SIZES[class].is_multiple_of(GRAIN << power) {
                found = class;
            }
            table[power][class] = found as u8;
        }
        power += 1;
    }
    table
};

/// A size of small objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Class(u8);

impl Class {
    /// The class for a layout; `None` when it is too large for one.
    #[inline]
    pub(super) fn of(layout: Layout) -> Option<Class> {
        let smallest = *BY_SIZE.get(layout.size().div_ceil(GRAIN))?;
        if layout.align() <= GRAIN {
            return Some(Class(smallest));
        }
        let power = layout.align().ilog2() - GRAIN.ilog2();
        let class = BY_ALIGN.get(power as usize)?[usize::from(smallest)];
        (usize::from(class) < CLASS_COUNT).then_some(Class(class))
    }

    /// All classes, the smallest first.
    pub(super) fn all() -> impl Iterator<Item = Class> {
        (0..CLASS_COUNT as u8).map(Class)
    }

    /// Place in tables.
    #[inline]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Bytes of an object.
    #[inline]
    pub(super) const fn size(self) -> usize {
        SIZES[self.0 as usize]
    }

    /// Objects in a page.
    #[inline]
    pub(super) const fn per_page(self) -> usize {
        PAGE_SIZE / self.size()
    }

    /// Objects that move between a magazine and the slabs at a time: about a page, 4 to 32.
    #[inline]
    pub(super) const fn batch(self) -> usize {
        let per_page = self.per_page();
        if per_page < 4 {
            4
        } else if per_page > 32 {
            32
        } else {
            per_page
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_fits_its_class() {
        for align in (0..=12).map(|shift| 1 << shift) {
            for size in 0..=4096 {
                let layout = Layout::from_size_align(size, align).unwrap();
                match Class::of(layout) {
                    Some(class) => {
                        assert!(class.size() >= size && class.size().is_multiple_of(align));
                    }
                    None => assert!(size > LARGEST || align > LARGEST),
                }
            }
        }
    }

    #[test]
    fn sizes_rise_and_are_made_of_grains() {
        assert!(SIZES.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(SIZES.iter().all(|size| size.is_multiple_of(GRAIN)));
    }
}
