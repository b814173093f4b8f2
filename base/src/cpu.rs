//! Core numbers, data per core.
//!
//! The kernel runs with interrupts off and without preemption, so between two points of kernel code
//! the core does not change, and what only one core touches needs no lock. In host tests a thread
//! plays a core, and several threads may play the same one; `CpuLocal` stays sound there.

use core::cell::UnsafeCell;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::sync::atomic::{AtomicBool, Ordering};

pub use hal::MAX_CPUS;
use hal::{Contract, Machine};

/// The number of a core that may exist: below `MAX_CPUS`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CpuId(u8);

impl CpuId {
    /// The core that boots.
    pub const FIRST: CpuId = CpuId(0);

    /// The core that runs this code.
    #[inline]
    pub fn current() -> CpuId {
        CpuId((Machine::cpu_id() % MAX_CPUS) as u8)
    }

    /// Its index, below `MAX_CPUS`.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The core with this index; `None` when there can be no such core.
    pub const fn new(index: usize) -> Option<CpuId> {
        if index < MAX_CPUS { Some(CpuId(index as u8)) } else { None }
    }

    /// All cores that the machine has.
    pub fn all() -> impl Iterator<Item = CpuId> {
        (0..Machine::boot_info().cpu_count.min(MAX_CPUS)).map(|index| CpuId(index as u8))
    }
}

/// Says to the machine that this core spins. Host threads give way now and then, because the thread
/// that they wait for may need this core to go on.
#[inline]
pub fn relax() {
    Machine::relax();
    #[cfg(not(target_os = "none"))]
    {
        use std::cell::Cell;
        std::thread_local!(static TURNS: Cell<u32> = const { Cell::new(0) });
        let turn = TURNS.try_with(|turns| turns.replace(turns.get().wrapping_add(1))).unwrap_or(0);
        if turn % 64 == 63 {
            std::thread::yield_now();
        }
    }
}

#[repr(align(128))]
struct CacheAligned<T>(T);

/// One value per core, each on cache lines of its own.
pub struct PerCpu<T> {
    values: [CacheAligned<T>; MAX_CPUS],
}

impl<T> PerCpu<T> {
    /// One value for each core, by index.
    pub const fn new(values: [T; MAX_CPUS]) -> PerCpu<T> {
        let values = ManuallyDrop::new(values);
        let source = (&raw const values).cast::<T>();
        let mut aligned = MaybeUninit::<[CacheAligned<T>; MAX_CPUS]>::uninit();
        let target = aligned.as_mut_ptr().cast::<CacheAligned<T>>();
        let mut index = 0;
        while index < MAX_CPUS {
            // SAFETY: both arrays have `MAX_CPUS` items; each is moved exactly once, and the source is
            // never dropped.
            unsafe { target.add(index).write(CacheAligned(source.add(index).read())) };
            index += 1;
        }
        // SAFETY: every item was written above.
        PerCpu { values: unsafe { aligned.assume_init() } }
    }

    /// The value of the running core.
    #[inline]
    pub fn here(&self) -> &T {
        self.of(CpuId::current())
    }

    /// The value of one core.
    #[inline]
    pub fn of(&self, cpu: CpuId) -> &T {
        &self.values[cpu.index()].0
    }
}

/// One value per core that only its own core touches.
///
/// Rule of access: whoever set `busy` of a slot has its value; only code on that core does.
pub struct CpuLocal<T> {
    slots: PerCpu<Slot<T>>,
}

struct Slot<T> {
    busy: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: a value is reached only through `with`, which gives it to one user at a time.
unsafe impl<T: Send> Sync for Slot<T> {}

struct Occupied<'a>(&'a AtomicBool);

impl Drop for Occupied<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl<T> CpuLocal<T> {
    /// One value for each core. `slot` makes the items of the array.
    pub(crate) const fn new(values: [LocalSlot<T>; MAX_CPUS]) -> CpuLocal<T> {
        let values = ManuallyDrop::new(values);
        // SAFETY: `LocalSlot` is a transparent wrapper of `Slot`, so both arrays have the same layout;
        // the original is never dropped.
        let slots = unsafe { (&raw const values).cast::<[Slot<T>; MAX_CPUS]>().read() };
        CpuLocal { slots: PerCpu::new(slots) }
    }

    /// Lends this core's value. A second loan inside the first is a mistake and panics (on the host,
    /// where another thread may have it, it waits).
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let slot = self.slots.here();
        #[cfg(target_os = "none")]
        {
            assert!(!slot.busy.load(Ordering::Relaxed), "core-local value borrowed twice");
            slot.busy.store(true, Ordering::Relaxed);
        }
        #[cfg(not(target_os = "none"))]
        while slot.busy.swap(true, Ordering::Acquire) {
            relax();
        }
        let _occupied = Occupied(&slot.busy);
        // SAFETY: `busy` was clear and is set now; on the bare machine only this core looks at this
        // slot and it cannot be interrupted by other kernel code; on the host the swap excludes others.
        f(unsafe { &mut *slot.value.get() })
    }
}

/// One item of a `CpuLocal`.
#[repr(transparent)]
pub(crate) struct LocalSlot<T>(Slot<T>);

impl<T> LocalSlot<T> {
    /// An item with this value.
    pub(crate) const fn new(value: T) -> LocalSlot<T> {
        LocalSlot(Slot { busy: AtomicBool::new(false), value: UnsafeCell::new(value) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_beyond_the_limit_do_not_exist() {
        assert_eq!(CpuId::new(MAX_CPUS), None);
        assert_eq!(CpuId::new(MAX_CPUS - 1).map(CpuId::index), Some(MAX_CPUS - 1));
    }

    #[test]
    fn values_of_cores_keep_their_order_and_their_distance() {
        let values = PerCpu::new(core::array::from_fn::<usize, MAX_CPUS, _>(|index| index * 3));
        for index in 0..MAX_CPUS {
            assert_eq!(CpuId::new(index).map(|cpu| *values.of(cpu)), Some(index * 3));
        }
        let first = values.of(CpuId(0)) as *const usize as usize;
        let second = values.of(CpuId(1)) as *const usize as usize;
        assert!(second - first >= 64);
    }

    #[test]
    fn local_values_are_never_lent_twice_at_a_time() {
        static COUNTERS: CpuLocal<u64> = CpuLocal::new([const { LocalSlot::new(0) }; MAX_CPUS]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        COUNTERS.with(|value| *value += 1);
                    }
                });
            }
        });
        let total: u64 = COUNTERS
            .slots
            .values
            .iter()
            // SAFETY: all threads that used the counters have ended.
            .map(|slot| unsafe { *slot.0.value.get() })
            .sum();
        assert_eq!(total, 40_000);
    }
}
