//! User mode: which address space is loaded on which core, and how a change of its mappings reaches
//! the cores that run in it.
//!
//! ```text
//!   core that enters                            core that changes mappings
//!   publish "in user mode of S" (fence)         change entries
//!   generation of S changed? flush, look again  generation += 1 (fence)
//!   enter user mode                             for each core in user mode of S: interrupt it and
//!   trap; publish "in the kernel"                 wait until it has left
//! ```
//!
//! One of the two sees the other. A core in the kernel never uses translations of user space, so it is
//! left alone and flushes at its next entry. A core holds an `Arc` of the space whose root it has
//! loaded, so tables are never freed under it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use hal::{Contract, MAX_CPUS, Machine, PhysAddr, Trap, UserContext as Registers, VirtAddr};

use crate::cpu::{self, CpuId, CpuLocal, LocalSlot, PerCpu};
use crate::memory::{OutOfMemory, PageTable};
use crate::{memory, sync, task};

type MachineContext = <Machine as Contract>::Context;

/// An address space as the machine sees it: the root of its page table, and how often translations
/// became wrong. The tables live as long as this does.
pub struct SpaceHandle {
    root: PhysAddr,
    generation: AtomicU64,
}

impl SpaceHandle {
    pub(crate) fn new(root: PhysAddr) -> SpaceHandle {
        SpaceHandle { root, generation: AtomicU64::new(1) }
    }

    /// The root table.
    pub fn root(&self) -> PhysAddr {
        self.root
    }

    /// How often translations became wrong.
    pub fn tlb_generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
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

/// What others see of a core; written by the core alone.
struct Presence {
    /// Odd while in user mode; grows with every entry and exit.
    stay: AtomicU64,
    /// Root of the loaded space, 0 for none; changes only while `stay` is even.
    root: AtomicU64,
    /// The generation of the loaded space that this core's translations are good for; nobody else
    /// looks at it.
    generation: AtomicU64,
}

static PRESENCE: PerCpu<Presence> = PerCpu::new(
    [const {
        Presence { stay: AtomicU64::new(0), root: AtomicU64::new(0), generation: AtomicU64::new(0) }
    }; MAX_CPUS],
);

/// Makes every translation of the space that any core has cached useless: no core is in user mode with
/// an old one when this returns, and none enters with one. `page` says that only one page changed, which
/// is cheaper for this core.
///
/// May be called with locks held: cores in user mode hold none, and leave at once when interrupted.
pub(crate) fn invalidate(space: &SpaceHandle, page: Option<VirtAddr>) {
    let before = space.generation.fetch_add(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if let Some(page) = page {
        let ours = PRESENCE.here();
        if ours.root.load(Ordering::Relaxed) == space.root.0
            && ours.generation.load(Ordering::Relaxed) == before
        {
            Machine::flush_page(page);
            ours.generation.store(before + 1, Ordering::Relaxed);
        }
    }
    let here = CpuId::current();
    for core in CpuId::all().filter(|core| *core != here) {
        let presence = PRESENCE.of(core);
        let stay = presence.stay.load(Ordering::Acquire);
        if stay % 2 == 1 && presence.root.load(Ordering::Acquire) == space.root.0 {
            Machine::send_ipi(core.index());
            while presence.stay.load(Ordering::Acquire) == stay {
                cpu::relax();
            }
        }
    }
}

/// Makes every cached translation of the space useless. `PageTable` does this by itself whenever it
/// must.
pub fn shootdown(space: &SpaceHandle) {
    invalidate(space, None);
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

    read! {
        fn call_number() -> usize, registers;
        fn call_arguments() -> [u64; 6], registers;
        fn instruction_pointer() -> u64, registers;
        fn stack_pointer() -> u64, registers;
        fn thread_pointer() -> u64, registers;
        fn second_pointer() -> u64, registers;
        fn general_registers() -> [u64; 18], registers;
        fn read_fpu(into: &mut [u8]) -> (), complete;
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

/// Runs the thread in user mode until it traps. Returns `Trap::Interrupt` without entering when a task
/// of this core is ready and no time slice has an end (`time::interrupt_at`), or when `stay_out` says
/// so. Whoever gives `stay_out` a reason rings this core's doorbell afterwards, and so is not missed.
#[inline]
pub fn run(
    context: &mut UserContext,
    space: &Arc<SpaceHandle>,
    stay_out: impl FnOnce() -> bool,
) -> Trap {
    sync::assert_none_held();
    let here = CpuId::current();
    if context.live_on.get().is_some_and(|core| core != here) {
        // The thread moved without `release`: its floating-point state is out of reach.
        panic!("a thread came with its registers on another core");
    }
    context.live_on.set(Some(here));
    let presence = PRESENCE.here();
    if presence.root.load(Ordering::Relaxed) != space.root.0 && !load(presence, space) {
        return Trap::Interrupt;
    }
    let stay = presence.stay.load(Ordering::Relaxed);
    presence.stay.store(stay + 1, Ordering::Relaxed);
    // One full fence, in there, orders both publications before both looks.
    let enter = task::enter_user_mode() && !stay_out();
    let trap = if enter {
        let generation = space.generation.load(Ordering::SeqCst);
        if presence.generation.load(Ordering::Relaxed) != generation {
            presence.generation.store(generation, Ordering::Relaxed);
            // SAFETY: `LOADED` keeps the space. Changes after the load above see us and interrupt us.
            unsafe { Machine::load_root(space.root) };
        }
        // SAFETY: the context is this thread's alone, stays in its box, and its space is loaded.
        unsafe { Machine::enter_user(context.registers()) }
    } else {
        Trap::Interrupt
    };
    presence.stay.store(stay + 2, Ordering::Release);
    task::leave_user_mode();
    trap
}

/// Loads another space; false when letting go of the one before freed its tables, which took time.
#[cold]
fn load(presence: &Presence, space: &Arc<SpaceHandle>) -> bool {
    let generation = space.generation.load(Ordering::SeqCst);
    let released = LOADED.with(|loaded| loaded.replace(space.clone()));
    presence.generation.store(generation, Ordering::Relaxed);
    presence.root.store(space.root.0, Ordering::Relaxed);
    // SAFETY: the root was prepared by `PageTable::new`, and the `Arc` in `LOADED` keeps it.
    unsafe { Machine::load_root(space.root) };
    released.is_none_or(|released| Arc::strong_count(&released) > 1)
}

/// Loads the root that maps no user memory and lets go of the space that this core has loaded. Call it
/// before parking and when a thread ends.
pub fn leave_space() {
    let released = LOADED.with(|loaded| {
        let released = loaded.take();
        if released.is_some() {
            PRESENCE.here().root.store(0, Ordering::Relaxed);
            // SAFETY: the kernel's root lives for ever.
            unsafe { Machine::load_root(Machine::kernel_root()) };
        }
        released
    });
    drop(released);
}

/// The handle of a page table; a convenience for `run`.
pub fn handle_of(table: &PageTable) -> &Arc<SpaceHandle> {
    table.handle()
}
