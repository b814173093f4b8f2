//! Registers of a user thread, with the floating-point state and segment bases that change hands
//! lazily.
//!
//! General registers are saved at every trap. The rest (`Extended`: floating point, FS and GS base) stays
//! in the core's registers when the thread traps, and is saved only when another thread enters user
//! mode on that core, or on `release`. A core that never runs user code never touches it.
//!
//! Who may touch an `Extended`:
//! 1. `live_on` is 0: whoever holds the `Context`.
//! 2. `live_on` is n + 1: only core n, whose area points to it; the memory is stale meanwhile.
//! 3. Only core n ends that: by a change of threads, by `release`, or by dropping the context there.
//!
//! A context that is dropped on another core while it is live is leaked rather than freed, as core n
//! will still save to it. The state has memory of its own, so a `Context` itself may move at any time.

extern crate alloc;

use alloc::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use core::ops::Range;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicU32, Ordering};

use super::core_area::CoreArea;
use super::cpu::{self, FEATURES};
use super::registers::{Registers, answered_by_registers};
use super::xsave;
use crate::contract::UserContext;

/// Floating-point state and segment bases; the state follows, `FEATURES.state_size()` bytes long.
#[repr(C, align(64))]
pub(super) struct Extended {
    live_on: AtomicU32,
    fs_base: u64,
    gs_base: u64,
}

impl Extended {
    fn layout() -> Layout {
        let size = size_of::<Self>() + FEATURES.state_size();
        // The size is at most 4 KiB + 64, so this cannot fail; the fallback keeps it free of panics.
        Layout::from_size_align(size, align_of::<Self>()).unwrap_or(Layout::new::<Self>())
    }

    fn area(this: *mut Self) -> *mut u8 {
        this.cast::<u8>().wrapping_add(size_of::<Self>())
    }

    /// Saves what is in the core's registers.
    ///
    /// # Safety
    /// `this` is live on the running core.
    unsafe fn save(this: *mut Self) {
        // SAFETY: rule 2: the running core alone may touch it.
        unsafe {
            (*this).fs_base = cpu::fs_base();
            (*this).gs_base = cpu::user_gs_base();
            cpu::save_state(Self::area(this));
            (*this).live_on.store(0, Ordering::Release);
        }
    }
}

/// Registers of a user thread.
pub struct Context {
    pub(super) registers: Registers,
    extended: NonNull<Extended>,
}

// SAFETY: a context is only used through `&mut` or by its owner; what is live on another core is
// guarded by the rules above.
unsafe impl Send for Context {}

impl Context {
    fn with(registers: Registers) -> Self {
        let layout = Extended::layout();
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(extended) = NonNull::new(memory.cast::<Extended>()) else {
            handle_alloc_error(layout)
        };
        Self { registers, extended }
    }

    /// Address of the state, to compare with what is live on a core.
    #[inline]
    pub(super) fn extended(&self) -> *mut Extended {
        self.extended.as_ptr()
    }

    fn live_on(&self) -> u32 {
        // SAFETY: the memory lives as long as the context; the field is atomic.
        unsafe { (*self.extended()).live_on.load(Ordering::Acquire) }
    }

    fn is_live_here(&self) -> bool {
        core::ptr::eq(CoreArea::here().live.get(), self.extended())
    }

    /// The state, when it is not live anywhere.
    fn state(&self) -> &[u8] {
        self.check_released();
        // SAFETY: rule 1; the memory behind the structure is `state_size` bytes.
        unsafe {
            core::slice::from_raw_parts(Extended::area(self.extended()), FEATURES.state_size())
        }
    }

    fn state_mut(&mut self) -> &mut [u8] {
        self.check_released();
        // SAFETY: as in `state`, and the context is borrowed for writing.
        unsafe {
            core::slice::from_raw_parts_mut(Extended::area(self.extended()), FEATURES.state_size())
        }
    }

    fn check_released(&self) {
        assert!(self.live_on() == 0, "floating-point state was not released before it was used");
    }

    /// Makes this thread's state live on the running core, and saves whose was.
    #[cold]
    #[inline(never)]
    pub(super) fn make_live(&mut self) {
        let core = CoreArea::here();
        self.check_released();
        let other = core.live.get();
        let this = self.extended();
        // SAFETY: `other` is live on this core (rule 2); `this` is nowhere (rule 1) and holds a valid
        // state, as it was reset, saved or checked.
        unsafe {
            if !other.is_null() {
                Extended::save(other);
            }
            cpu::set_fs_base((*this).fs_base);
            cpu::set_user_gs_base((*this).gs_base);
            cpu::load_state(Extended::area(this));
            (*this).live_on.store(core.number.get() as u32 + 1, Ordering::Relaxed);
        }
        core.live.set(this);
    }

    /// Saves the state if it is live on the running core.
    pub(super) fn release(&mut self) {
        if self.is_live_here() {
            // SAFETY: just checked.
            unsafe { Extended::save(self.extended()) };
            CoreArea::here().live.set(null_mut());
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.is_live_here() {
            CoreArea::here().live.set(null_mut());
        } else if self.live_on() != 0 {
            return;
        }
        // SAFETY: allocated with this layout; no core points to it any more.
        unsafe { dealloc(self.extended().cast(), Extended::layout()) };
    }
}

impl UserContext for Context {
    fn new(entry: u64, stack: u64) -> Self {
        let mut context = Self::with(Registers::new(entry, stack));
        context.reset_fpu();
        context
    }

    fn duplicate(&self) -> Self {
        let mut copy = Self::with(self.registers);
        copy.state_mut().copy_from_slice(self.state());
        // SAFETY: both are live nowhere (rule 1), which `state` has checked.
        unsafe {
            (*copy.extended()).fs_base = (*self.extended()).fs_base;
            (*copy.extended()).gs_base = (*self.extended()).gs_base;
        }
        copy
    }

    answered_by_registers!();

    fn thread_pointer(&self) -> u64 {
        if self.is_live_here() {
            return cpu::fs_base();
        }
        self.check_released();
        // SAFETY: rule 1.
        unsafe { (*self.extended()).fs_base }
    }

    fn set_thread_pointer(&mut self, value: u64) {
        if self.is_live_here() {
            return cpu::set_fs_base(value);
        }
        self.check_released();
        // SAFETY: rule 1.
        unsafe { (*self.extended()).fs_base = value };
    }

    fn second_pointer(&self) -> u64 {
        if self.is_live_here() {
            return cpu::user_gs_base();
        }
        self.check_released();
        // SAFETY: rule 1.
        unsafe { (*self.extended()).gs_base }
    }

    fn set_second_pointer(&mut self, value: u64) {
        if self.is_live_here() {
            return cpu::set_user_gs_base(value);
        }
        self.check_released();
        // SAFETY: rule 1.
        unsafe { (*self.extended()).gs_base = value };
    }

    fn fpu_size() -> usize {
        FEATURES.state_size()
    }

    fn fpu_parts(components: u64) -> [Range<usize>; 2] {
        xsave::parts(components, FEATURES.state_size(), FEATURES.reset_values().keys_offset)
    }

    fn fpu(&self) -> &[u8] {
        self.state()
    }

    fn read_fpu(&self, into: &mut [u8]) {
        for (to, from) in into.iter_mut().zip(self.state()) {
            *to = *from;
        }
    }

    fn write_fpu(&mut self, from: &[u8]) -> bool {
        let Some(from) = from.get(..FEATURES.state_size()) else { return false };
        let valid = xsave::is_valid(from, FEATURES.components(), FEATURES.mxcsr_mask());
        if valid {
            self.state_mut().copy_from_slice(from);
        }
        valid
    }

    fn fill_fpu(&mut self, fill: impl FnOnce(&mut [u8]) -> bool) -> bool {
        let state = self.state_mut();
        let valid =
            fill(state) && xsave::is_valid(state, FEATURES.components(), FEATURES.mxcsr_mask());
        if !valid {
            self.reset_fpu();
        }
        valid
    }

    fn reset_fpu(&mut self) {
        xsave::reset(self.state_mut(), &FEATURES.reset_values());
    }
}
