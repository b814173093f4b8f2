//! User mode: which address space is loaded on which core, and how a change of its mappings reaches
//! the cores that run in it.
//!
//! Whoever changes mappings waits until no core is in user mode with the old ones (`presence` says how
//! that works). A core in the kernel is left alone and flushes at its next entry: it uses translations of
//! user space for short copies only (`write_loaded` and its kin), which count as user mode. A core holds an `Arc` of the space whose root it has loaded, so tables are
//! never freed under it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::Cell;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};

use hal::{Contract, MAX_CPUS, Machine, PhysAddr, Trap, UserContext as Registers, VirtAddr};

use crate::cpu::{self, CpuId, CpuLocal, LocalSlot, PerCpu};
use crate::memory::{Frame, OutOfMemory, PageTable, TableList};
use crate::presence::{Generation, Presence};
use crate::sync::Once;
use crate::{memory, sync, task};

type MachineContext = <Machine as Contract>::Context;

/// An address space as the machine sees it: the root of its page table, and how often translations
/// became wrong. The tables live as long as this does.
pub struct SpaceHandle {
    root: PhysAddr,
    generation: Generation,
    /// Tables that were taken out and that some core may have walked when the `PageTable` went.
    left: Once<TableList>,
}

impl SpaceHandle {
    pub(crate) fn new(root: PhysAddr) -> SpaceHandle {
        SpaceHandle { root, generation: Generation::new(), left: Once::new() }
    }

    /// Frees these tables when the last core has left the space.
    pub(crate) fn leave(&self, tables: TableList) {
        self.left.call_once(|| tables);
    }

    /// Tells the cores that tables were taken out; the generation from which on a core does not know them.
    pub(crate) fn forget_tables(&self) -> u64 {
        let before = invalidate(self, None);
        let presence = PRESENCE.here();
        if presence.has_loaded(self.root.0) {
            presence.load(self.root.0, before + 1, || {
                // SAFETY: `LOADED` keeps the space.
                unsafe { Machine::load_root(self.root) };
            });
        }
        before + 1
    }

    /// Whether no core walks tables that were taken out before `generation` any more.
    pub(crate) fn have_cores_forgotten(&self, generation: u64) -> bool {
        CpuId::all().all(|core| PRESENCE.of(core).has_forgotten(self.root.0, generation))
    }

    /// The root table.
    pub fn root(&self) -> PhysAddr {
        self.root
    }

    /// How often translations became wrong.
    pub fn tlb_generation(&self) -> u64 {
        self.generation.now()
    }
}

impl Drop for SpaceHandle {
    fn drop(&mut self) {
        // SAFETY: the last handle goes: the page table is gone, and no core has the root loaded.
        unsafe { memory::free_tables(self.root) };
    }
}

/// The space whose root a core has loaded; keeps it. Only the core itself touches it.
static LOADED: CpuLocal<Option<Arc<SpaceHandle>>> =
    CpuLocal::new([const { LocalSlot::new(None) }; MAX_CPUS]);

static PRESENCE: PerCpu<Presence> = PerCpu::new([const { Presence::new() }; MAX_CPUS]);

/// Makes every translation of the space that any core has cached useless: no core is in user mode with
/// an old one when this returns, and none enters with one. `page` says that only one page changed, which
/// is cheaper for this core. Returns the generation before.
///
/// May be called with locks held: cores in user mode hold none, and leave at once when interrupted.
pub(crate) fn invalidate(space: &SpaceHandle, page: Option<VirtAddr>) -> u64 {
    let before = space.generation.advance();
    if let Some(page) = page
        && PRESENCE.here().forgets_one(space.root.0, before)
    {
        Machine::flush_page(page);
    }
    let here = CpuId::current();
    for core in CpuId::all().filter(|core| *core != here) {
        let presence = PRESENCE.of(core);
        if let Some(stay) = presence.stay_in(space.root.0) {
            Machine::send_ipi(core.index());
            while !presence.has_left(stay) {
                cpu::relax();
            }
        }
    }
    before
}

/// Makes every cached translation of the space useless. `PageTable` does this by itself whenever it
/// must.
pub fn shootdown(space: &SpaceHandle) {
    invalidate(space, None);
}

/// Bytes that are copied by the translations of a core at most: whoever changes mappings waits for it.
const MOST_AT_ONCE: usize = hal::PAGE_SIZE;

/// Has `copy` use this core's own translations of the space, as user mode does, if the space is loaded
/// here: a stay like those of user mode, so that nobody takes a page away meanwhile.
#[inline]
fn with_translations(space: &SpaceHandle, copy: impl FnOnce() -> bool) -> bool {
    let presence = PRESENCE.here();
    if !presence.has_loaded(space.root.0) {
        return false;
    }
    let stay = presence.begin_stay();
    fence(Ordering::SeqCst);
    if let Some(generation) = presence.is_stale(&space.generation) {
        presence.load(space.root.0, generation, || {
            // SAFETY: `LOADED` keeps the space. Later changes see us and wait.
            unsafe { Machine::load_root(space.root) };
        });
    }
    let copied = copy();
    presence.end_stay(stay);
    copied
}

/// The place in user memory, if `length` bytes may be copied at once there.
#[inline]
fn user_place(address: VirtAddr, length: usize) -> Option<*mut u8> {
    let end = address.0.checked_add(length as u64)?;
    (length <= MOST_AT_ONCE && end <= Machine::USER_END).then_some(address.0 as *mut u8)
}

/// Copies up to a page of bytes to user memory of a space that this core has loaded. False, after perhaps
/// a part, when it has not, or when a page is not there to be written: then the page table knows
/// more (`PageTable::copy_in`).
#[inline]
pub fn write_loaded(space: &SpaceHandle, address: VirtAddr, from: &[u8]) -> bool {
    let Some(place) = user_place(address, from.len()) else { return false };
    // SAFETY: user memory of the space that is loaded, whose translations are good; `from` is ours.
    with_translations(space, || unsafe { Machine::copy_user(place, from.as_ptr(), from.len()) })
}

/// Likewise from user memory.
#[inline]
pub fn read_loaded(space: &SpaceHandle, address: VirtAddr, into: &mut [u8]) -> bool {
    let Some(place) = user_place(address, into.len()) else { return false };
    // SAFETY: as for `write_loaded`.
    with_translations(space, || unsafe { Machine::copy_user(into.as_mut_ptr(), place, into.len()) })
}

/// Whether pieces of these lengths may be copied at once.
fn are_few<'a>(mut pieces: impl Iterator<Item = &'a [u8]>) -> bool {
    let add = |sum: usize, piece: &[u8]| sum.checked_add(piece.len());
    pieces.try_fold(0, add).is_some_and(|sum| sum <= MOST_AT_ONCE)
}

/// As `write_loaded`, several pieces one after the other, of a page together.
pub fn write_loaded_pieces(space: &SpaceHandle, pieces: &[(VirtAddr, &[u8])]) -> bool {
    are_few(pieces.iter().map(|(_, from)| *from))
        && with_translations(space, || {
            pieces.iter().all(|(address, from)| {
                // SAFETY: as for `write_loaded`.
                user_place(*address, from.len()).is_some_and(|place| unsafe {
                    Machine::copy_user(place, from.as_ptr(), from.len())
                })
            })
        })
}

/// As `read_loaded`, several pieces.
pub fn read_loaded_pieces(space: &SpaceHandle, pieces: &mut [(VirtAddr, &mut [u8])]) -> bool {
    are_few(pieces.iter().map(|(_, into)| &**into))
        && with_translations(space, || {
            pieces.iter_mut().all(|(address, into)| {
                // SAFETY: as for `read_loaded`.
                user_place(*address, into.len()).is_some_and(|place| unsafe {
                    Machine::copy_user(into.as_mut_ptr(), place, into.len())
                })
            })
        })
}

/// Copies bytes of a frame, from `offset` on and within it, to user memory as `write_loaded` does.
#[inline]
pub fn write_loaded_from_frame(
    space: &SpaceHandle,
    address: VirtAddr,
    frame: &Frame,
    offset: usize,
    length: usize,
) -> bool {
    let Some(place) = user_place(address, length) else { return false };
    if offset > hal::PAGE_SIZE - length {
        return false;
    }
    // SAFETY: as for `write_loaded`; the bytes lie in the frame, which is RAM that others may change.
    with_translations(space, || unsafe {
        Machine::copy_user(place, frame.pointer().add(offset), length)
    })
}

/// Copies user memory into a frame as `read_loaded` does.
#[inline]
pub fn read_loaded_to_frame(
    space: &SpaceHandle,
    address: VirtAddr,
    frame: &Frame,
    offset: usize,
    length: usize,
) -> bool {
    let Some(place) = user_place(address, length) else { return false };
    if offset > hal::PAGE_SIZE - length {
        return false;
    }
    // SAFETY: as for `write_loaded_from_frame`.
    with_translations(space, || unsafe {
        Machine::copy_user(frame.pointer().add(offset), place, length)
    })
}

/// Registers of a user thread, floating point included. Small and movable: the registers themselves stay
/// where they are, because the core may keep floating-point state for them (`release`).
pub struct UserContext {
    registers: NonNull<MachineContext>,
    /// Core whose registers may hold floating-point state of this thread.
    live_on: Cell<Option<CpuId>>,
}

// SAFETY: the registers belong to this value alone; what may be left on a core is fetched or reported
// before they are freed.
unsafe impl Send for UserContext {}

impl UserContext {
    fn of(registers: MachineContext) -> UserContext {
        let registers = NonNull::from(Box::leak(Box::new(registers)));
        UserContext { registers, live_on: Cell::new(None) }
    }

    /// Like `new`, for callers that can go on without memory.
    pub fn try_new(entry: u64, stack: u64) -> Result<UserContext, OutOfMemory> {
        Ok(UserContext::of(MachineContext::new(entry, stack)))
    }

    #[allow(clippy::mut_from_ref, reason = "private; the value is not `Sync` and lends nothing")]
    fn registers(&self) -> &mut MachineContext {
        // SAFETY: the box is ours. `UserContext` is not `Sync` and no method keeps or returns the
        // reference, so no two exist at a time.
        unsafe { &mut *self.registers.as_ptr() }
    }

    /// The registers with their floating-point state in memory.
    #[allow(clippy::mut_from_ref, reason = "as for `registers`")]
    fn complete(&self) -> &mut MachineContext {
        if let Some(core) = self.live_on.take() {
            if core == CpuId::current() {
                Machine::release_fpu(self.registers());
            } else {
                log::error!("registers of a thread of core {} used elsewhere", core.index());
            }
        }
        self.registers()
    }
}

impl Drop for UserContext {
    fn drop(&mut self) {
        let movable = self.live_on.get().is_none_or(|core| core == CpuId::current());
        if movable {
            self.complete();
            // SAFETY: the box is ours and no core keeps anything for it.
            drop(unsafe { Box::from_raw(self.registers.as_ptr()) });
        } else {
            // Freed memory must not be written by that core; better lose it.
            log::error!("registers of a thread freed on a core that it did not run on");
        }
    }
}

macro_rules! read {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty, $how:ident;)*) => {
        $(#[inline] fn $name(&self $(, $argument: $type)*) -> $result {
            self.$how().$name($($argument),*)
        })*
    };
}

macro_rules! write {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty, $how:ident;)*) => {
        $(#[inline] fn $name(&mut self $(, $argument: $type)*) -> $result {
            self.$how().$name($($argument),*)
        })*
    };
}

impl Registers for UserContext {
    fn new(entry: u64, stack: u64) -> Self {
        UserContext::of(MachineContext::new(entry, stack))
    }

    fn duplicate(&self) -> Self {
        UserContext::of(self.complete().duplicate())
    }

    fn fpu_size() -> usize {
        MachineContext::fpu_size()
    }

    fn fpu_parts(components: u64) -> [Range<usize>; 2] {
        MachineContext::fpu_parts(components)
    }

    read! {
        fn call_number() -> usize, registers;
        fn call_arguments() -> [u64; 6], registers;
        fn instruction_pointer() -> u64, registers;
        fn stack_pointer() -> u64, registers;
        fn thread_pointer() -> u64, registers;
        fn second_pointer() -> u64, registers;
        fn general_registers() -> [u64; 18], registers;
        fn fpu() -> &[u8], complete;
        fn read_fpu(into: &mut [u8]) -> (), complete;
    }

    fn fill_fpu(&mut self, fill: impl FnOnce(&mut [u8]) -> bool) -> bool {
        self.complete().fill_fpu(fill)
    }

    write! {
        fn set_return_value(value: u64) -> (), registers;
        fn restart_call(number: usize) -> (), registers;
        fn set_instruction_pointer(value: u64) -> (), registers;
        fn set_stack_pointer(value: u64) -> (), registers;
        fn set_thread_pointer(value: u64) -> (), registers;
        fn set_second_pointer(value: u64) -> (), registers;
        fn set_c_argument(index: usize, value: u64) -> (), registers;
        fn set_general_registers(registers: &[u64; 18]) -> (), registers;
        fn write_fpu(from: &[u8]) -> bool, complete;
        fn reset_fpu() -> (), complete;
    }
}

/// Brings the floating-point state of a thread into memory, so that the thread may go to another core.
/// Must be called on the core where it ran.
pub fn release(context: &mut UserContext) {
    context.complete();
}

/// Runs the thread in user mode until it traps; `None` when it was not entered because `may_enter` said so, or
/// because another space had to be let go of. `may_enter` is told whether tasks of this core are ready: then
/// the stay needs an end (`time::interrupt_at`). Whoever gives it a reason to stay out rings this core's
/// doorbell afterwards, and so is not missed.
#[inline]
pub fn run(
    context: &mut UserContext,
    space: &Arc<SpaceHandle>,
    may_enter: impl FnOnce(bool) -> bool,
) -> Option<Trap> {
    sync::assert_none_held();
    let here = CpuId::current();
    if context.live_on.get().is_some_and(|core| core != here) {
        // The thread moved without `release`: its floating-point state is out of reach.
        panic!("a thread came with its registers on another core");
    }
    context.live_on.set(Some(here));
    let presence = PRESENCE.here();
    if !presence.has_loaded(space.root.0) && !load(presence, space) {
        return None;
    }
    let stay = presence.begin_stay();
    // One full fence, in there, orders both publications before both looks.
    let enter = may_enter(task::enter_user_mode());
    let trap = enter.then(|| {
        if let Some(generation) = presence.is_stale(&space.generation) {
            presence.load(space.root.0, generation, || {
                // SAFETY: `LOADED` keeps the space. Later changes see us and interrupt us.
                unsafe { Machine::load_root(space.root) };
            });
        }
        // SAFETY: the context is this thread's alone, stays in its box, and its space is loaded.
        unsafe { Machine::enter_user(context.registers()) }
    });
    presence.end_stay(stay);
    task::leave_user_mode();
    trap
}

/// Loads another space; false when letting go of the one before freed its tables, which took time.
#[cold]
fn load(presence: &Presence, space: &Arc<SpaceHandle>) -> bool {
    let generation = space.generation.now();
    let released = LOADED.with(|loaded| loaded.replace(space.clone()));
    presence.load(space.root.0, generation, || {
        // SAFETY: the root was prepared by `PageTable::new`, and the `Arc` in `LOADED` keeps it.
        unsafe { Machine::load_root(space.root) };
    });
    released.is_none_or(|released| Arc::strong_count(&released) > 1)
}

/// Loads the root that maps no user memory and lets go of the space that this core has loaded. Call it
/// before parking and when a thread ends.
pub fn leave_space() {
    let released = LOADED.with(|loaded| {
        let released = loaded.take();
        if released.is_some() {
            PRESENCE.here().load(0, 0, || {
                // SAFETY: the kernel's root lives for ever.
                unsafe { Machine::load_root(Machine::kernel_root()) };
            });
        }
        released
    });
    drop(released);
}

/// The handle of a page table; a convenience for `run`.
pub fn handle_of(table: &PageTable) -> &Arc<SpaceHandle> {
    table.handle()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{run_ready, spawn};
    use core::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn registers_are_the_threads_own_wherever_the_value_goes() {
        let mut context = UserContext::new(0x40_1000, 0x7fff_0000);
        context.set_return_value(5);
        context.set_thread_pointer(0x1234_5000);
        let mut copy = context.duplicate();
        copy.set_return_value(6);
        copy.set_instruction_pointer(0x40_2000);
        let moved = [context, copy];
        assert_eq!(moved[0].instruction_pointer(), 0x40_1000);
        assert_eq!(moved[1].instruction_pointer(), 0x40_2000);
        assert!(moved.iter().all(|context| context.thread_pointer() == 0x1234_5000));
        assert_eq!(moved.iter().map(UserContext::call_number).collect::<Vec<_>>(), [5, 6]);
    }

    /// The host has no user mode: entering it would end the test.
    #[test]
    fn a_core_stays_out_of_user_mode_when_it_has_something_else_to_do() {
        let table = PageTable::new().unwrap();
        let mut context = UserContext::new(0, 0);
        assert_eq!(run(&mut context, table.handle(), |_| false), None);
        let ran = Arc::new(AtomicBool::new(false));
        let flag = ran.clone();
        spawn(CpuId::current(), async move { flag.store(true, Ordering::Relaxed) }).unwrap();
        assert_eq!(run(&mut context, table.handle(), |is_any_ready| !is_any_ready), None);
        assert!(!ran.load(Ordering::Relaxed));
        while run_ready() {}
        leave_space();
        assert!(ran.load(Ordering::Relaxed));
        assert_eq!(Arc::strong_count(table.handle()), 1);
    }
}
