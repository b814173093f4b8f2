//! The shared pages, as atomics: whoever is on the other side may write at any moment. The contract
//! is docs/abi/syspage.md, the layouts are asserted against `abi::syspage`.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::syspage::{self, ENTRY_COUNT, feature, pass_mark, status};

/// Entries of a syspage, as positions count them.
pub(crate) const COUNT: u32 = ENTRY_COUNT as u32;

/// Number, flags and pass mark are one word.
#[repr(C, align(64))]
pub(crate) struct Entry {
    pub(crate) status: AtomicU32,
    pub(crate) what: AtomicU32,
    pub(crate) arguments: [AtomicU64; 6],
    pub(crate) result: AtomicU64,
}

/// A syspage.
#[repr(C, align(4096))]
pub(crate) struct Entries([Entry; ENTRY_COUNT]);

/// What the kernel tells.
#[repr(C, align(4096))]
pub(crate) struct Control {
    version: AtomicU32,
    pub(crate) features: AtomicU32,
    pub(crate) parked: AtomicU32,
    entry_count: AtomicU32,
    syspage_limit: AtomicU32,
    pub(crate) spin_limit: AtomicU32,
    reserved: [AtomicU64; 5],
    pub(crate) permitted: [AtomicU64; 8],
    pub(crate) head: AtomicU32,
}

const _: () = {
    assert!(size_of::<Entries>() == 4096 && size_of::<Control>() == 4096);
    assert!(offset_of!(Entry, what) == offset_of!(syspage::Entry, number));
    assert!(offset_of!(Entry, arguments) == offset_of!(syspage::Entry, arguments));
    assert!(offset_of!(Entry, result) == offset_of!(syspage::Entry, result));
    assert!(offset_of!(Control, features) == offset_of!(syspage::ControlPage, features));
    assert!(offset_of!(Control, parked) == offset_of!(syspage::ControlPage, parked));
    assert!(offset_of!(Control, spin_limit) == offset_of!(syspage::ControlPage, spin_limit));
    assert!(offset_of!(Control, permitted) == offset_of!(syspage::ControlPage, permitted));
    assert!(offset_of!(Control, head) == offset_of!(syspage::ControlPage, head));
};

impl Entries {
    #[inline]
    pub(crate) fn at(&self, position: u32) -> &Entry {
        &self.0[position as usize % ENTRY_COUNT]
    }

    #[inline]
    pub(crate) fn status(&self, position: u32) -> u32 {
        self.at(position).status.load(Ordering::Acquire)
    }

    /// Goes past an entry that is in use.
    pub(crate) fn pass(&self, position: u32) {
        let what = &self.at(position).what;
        let mark = u32::from(pass_mark(position)) << 24;
        what.store(what.load(Ordering::Relaxed) & 0x00ff_ffff | mark, Ordering::Relaxed);
    }

    /// Fills a free entry and gives it to the kernel.
    #[inline]
    pub(crate) fn publish(&self, position: u32, number: u16, flags: u8, arguments: &[u64; 6]) {
        let entry = self.at(position);
        for (word, argument) in entry.arguments.iter().zip(arguments) {
            word.store(*argument, Ordering::Relaxed);
        }
        entry.what.store(u32::from(number) | u32::from(flags) << 16, Ordering::Relaxed);
        entry.status.store(status::SUBMITTED, Ordering::Release);
    }

    /// The result of an entry that is done. It goes on to say so: to write *free* would cost a
    /// transfer of its line.
    #[inline]
    pub(crate) fn take(&self, position: u32) -> Option<i64> {
        if self.status(position) != status::DONE {
            return None;
        }
        Some(self.at(position).result.load(Ordering::Relaxed).cast_signed())
    }

    /// Nothing is in the entry.
    pub(crate) fn clear(&self, position: u32) {
        self.at(position).status.store(status::FREE, Ordering::Relaxed);
    }
}

impl Control {
    #[inline]
    pub(crate) fn permits(&self, number: usize) -> bool {
        self.permitted
            .get(number / 64)
            .is_some_and(|word| word.load(Ordering::Relaxed) >> (number % 64) & 1 != 0)
    }

    #[inline]
    pub(crate) fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Relaxed) != 0
    }

    #[inline]
    pub(crate) fn is_scanned(&self) -> bool {
        self.features.load(Ordering::Relaxed) & feature::SCANNED != 0
    }
}

#[cfg(test)]
pub(crate) mod made {
    //! Shared pages without a kernel.

    use super::*;

    impl Default for Entries {
        fn default() -> Entries {
            Entries(std::array::from_fn(|_| Entry {
                status: AtomicU32::new(status::FREE),
                what: AtomicU32::new(0),
                arguments: Default::default(),
                result: AtomicU64::new(0),
            }))
        }
    }

    impl Control {
        /// With a spin limit that lets tests take both ways.
        pub(crate) fn new(features: u32, is_parked: bool, permitted: [u64; 8]) -> Control {
            Control {
                version: AtomicU32::new(syspage::VERSION),
                features: AtomicU32::new(features),
                parked: AtomicU32::new(u32::from(is_parked)),
                entry_count: AtomicU32::new(COUNT),
                syspage_limit: AtomicU32::new(1),
                spin_limit: AtomicU32::new(50),
                reserved: Default::default(),
                permitted: permitted.map(AtomicU64::new),
                head: AtomicU32::new(0),
            }
        }
    }
}
