//! The whole machine on one page: what every platform gives to the rest of Ferry.
//!
//! The rules that hold for every implementation:
//! - Ferry runs with interrupts off in the kernel. They are on only in user mode and inside
//!   `wait_for_interrupt`. So a handler in the kernel only notes what came, and no lock needs to care.
//! - All RAM is mapped at `phys_to_virt`, readable and writable, never executable.
//! - The upper half of every page-table root is the kernel's and the same in all of them.
//! - A kernel core never touches user memory through user addresses.

use core::fmt;
use core::ops::Range;

/// Bytes in a page.
pub const PAGE_SIZE: usize = 4096;
/// Most cores that Ferry starts.
pub const MAX_CPUS: usize = 8;

/// A physical address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PhysAddr(pub u64);

/// A virtual address, of the kernel or of user space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VirtAddr(pub u64);

/// Number of cores found, at least 1 and at most `MAX_CPUS`.
pub type CpuCount = usize;

/// A range of physical memory, page-aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// First byte.
    pub start: PhysAddr,
    /// One past the last byte.
    pub end: PhysAddr,
}

/// A virtio-mmio device found on the command line (`virtio_mmio.device=SIZE@ADDRESS:IRQ`).
#[derive(Clone, Copy, Debug)]
pub struct MmioDevice {
    /// Registers.
    pub base: PhysAddr,
    /// Bytes of registers.
    pub size: usize,
    /// Interrupt line, as passed to `Contract::enable_line`.
    pub line: u32,
}

/// What the machine was started with. Lives for ever.
pub struct BootInfo {
    /// RAM that is free to use: neither the kernel image nor the initramfs nor firmware is in it.
    pub free_memory: &'static [MemoryRange],
    /// All RAM from the lowest to one past the highest physical byte, holes included.
    pub memory_end: PhysAddr,
    /// The initramfs; empty when there is none.
    pub initramfs: &'static [u8],
    /// Kernel command line; invalid UTF-8 is replaced by an empty one.
    pub command_line: &'static str,
    /// Cores that can be started.
    pub cpu_count: CpuCount,
    /// virtio-mmio devices.
    pub devices: &'static [MmioDevice],
    /// `Contract::cycles` at the first instruction of the kernel.
    pub start_cycles: u64,
}

/// Rights of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PageRights {
    /// May be written.
    pub write: bool,
    /// May be executed.
    pub execute: bool,
    /// May be reached from user mode.
    pub user: bool,
    /// User mode may only execute it; where the machine has no such pages, nothing is different.
    pub hidden: bool,
}

/// Where a trampoline finds its data, in bytes from the second segment base (`set_second_pointer`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrampolineOffsets {
    /// 32 bits: nobody looks at the syspage.
    pub parked: usize,
    /// 32 bits: looks at a status before it gives up.
    pub spin_limit: usize,
    /// Address of the entries.
    pub entries: usize,
    /// Address of the table of sites: return addresses, each in slot `address % site_slots`.
    pub sites: usize,
    /// Address of the trampoline itself.
    pub trampoline: usize,
    /// Bitmap of the calls that may be posted.
    pub permitted: usize,
    /// 32 bits, writable: calls posted so far.
    pub position: usize,
    /// Slots of the table of sites; a power of two.
    pub site_slots: usize,
    /// Number of the call by which the kernel finishes a posted one.
    pub finish_call: usize,
}

/// Reads code of a program at an address, and says how many bytes were there.
pub type ReadCode<'a> = &'a dyn Fn(u64, &mut [u8]) -> usize;

/// The code by which unmodified programs post their calls: two pages, the low one to be mapped at
/// address 0 and hidden. Where in it a thread is says what was done; offsets are bytes into the page of
/// the trampoline.
#[derive(Clone, Copy)]
pub struct PostTrampoline {
    /// Writes the contents of the low page.
    pub fill_low_page: fn(&mut [u8]),
    /// Writes the contents of the page of the trampoline.
    pub fill_code_page: fn(&mut [u8]),
    /// Where it finds its data.
    pub offsets: TrampolineOffsets,
    /// The instruction of a call that traps.
    pub trap: [u8; 2],
    /// What replaces it. It overwrites eight bytes below the stack pointer.
    pub patch: [u8; 2],
    /// Whether the function around a site, which ends at `after`, has no use for those bytes, before the
    /// call, in it and behind it. `read` reads code of the program and says how many bytes were there;
    /// the registers are those of a thread that has just made the call, as `general_registers` gives
    /// them.
    pub may_patch: fn(read: ReadCode<'_>, after: u64, registers: &[u64; 18]) -> bool,
    /// From here on the call is submitted.
    pub published: u64,
    /// From here on its result is in its register and the entry free.
    pub consumed: u64,
    /// From here on the position counts it.
    pub counted: u64,
    /// A call that was not posted has trapped.
    pub trapped: u64,
    /// The caller was no site.
    pub bad: u64,
}

/// One decoded entry of a page table, at any level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Frame that it points to.
    pub frame: PhysAddr,
    /// Its rights.
    pub rights: PageRights,
    /// Set by the machine when the page was read or written.
    pub accessed: bool,
    /// Set by the machine when the page was written.
    pub dirty: bool,
    /// Bits that software may use freely (0 to 7); the machine ignores them.
    pub software: u8,
}

/// Why user mode was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trap {
    /// A system call; number and arguments are in the registers.
    SystemCall,
    /// An interrupt came; `Contract::take_pending` says which.
    Interrupt,
    /// A page was missing or not permitted.
    PageFault {
        /// The address that was accessed.
        address: VirtAddr,
        /// It was a write.
        write: bool,
        /// It was an instruction fetch.
        execute: bool,
        /// The page was there but not permitted.
        present: bool,
        /// The thread has denied itself the protection key of the page.
        by_key: bool,
    },
    /// Any other exception of the program: the signal, its `si_code` and its `si_addr`, as Linux says
    /// on this machine, with vector and error code for the frame.
    Fault {
        /// Signal number that Linux sends for it.
        signal: u8,
        /// `si_code` that Linux gives.
        code: i32,
        /// `si_addr` that Linux gives.
        address: VirtAddr,
        /// Machine's vector (for the signal frame's `trapno`).
        vector: u32,
        /// Machine's error code (for the signal frame's `err`).
        error: u32,
    },
}

/// Interrupts noted since the last look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pending {
    /// The one-shot timer fired.
    pub timer: bool,
    /// Another core called `send_ipi` to this one.
    pub ipi: bool,
    /// A device line fired.
    pub device: bool,
}

/// The machine. All functions may be called on any core unless they say otherwise.
pub trait Contract: 'static {
    /// Registers of a user thread, floating point included; `UserContext` gives access to them.
    type Context: UserContext;

    /// Name of the architecture as `uname -m` gives it.
    const NAME: &'static str;
    /// Code that makes system calls for ever and touches no memory; for measuring a trap.
    const TRAP_LOOP: &'static [u8];

    /// What the machine was started with.
    fn boot_info() -> &'static BootInfo;
    /// Starts all other cores; each calls `entry` with its number on a stack of its own. Core 0 calls
    /// this once. Returns when all have arrived or one is lost (which is logged and left out); the
    /// result is the number of running cores.
    fn start_cores(entry: fn(usize) -> !) -> CpuCount;
    /// Number of the running core, 0 to `cpu_count - 1`: one load.
    fn cpu_id() -> usize;

    /// The cycle counter, the same on all cores.
    fn cycles() -> u64;
    /// Cycles per second.
    fn cycles_per_second() -> u64;
    /// Nanoseconds since 1970 at the moment of the call, from the real-time clock (1 s resolution).
    fn wall_clock_ns() -> u64;
    /// Arms this core's one-shot timer for an absolute cycle count, or disarms it. A time that has
    /// passed fires at once.
    fn set_timer(deadline_cycles: Option<u64>);

    /// Enables interrupts and halts until one comes, with no gap between the two; interrupts are off
    /// again when it returns. Returns at once when one is pending already.
    fn wait_for_interrupt();
    /// Returns and clears what this core's handlers noted, from the kernel and from user mode.
    fn take_pending() -> Pending;
    /// Interrupts another core: ends its `wait_for_interrupt` or its stay in user mode.
    fn send_ipi(cpu: usize);
    /// Routes a device line to a core (edge-triggered) and unmasks it.
    fn enable_line(line: u32, cpu: usize);
    /// Says to the machine that this core spins. Cheap under an emulator too.
    fn relax();
    /// Hints that this core is about to read and write a cache line that another core wrote: one
    /// transfer instead of two. Any address may be given.
    fn prepare_write(line: *const u8);

    /// Where RAM at a physical address is mapped.
    fn phys_to_virt(address: PhysAddr) -> *mut u8;
    /// Maps device registers, uncached, and returns where.
    fn map_device(base: PhysAddr, size: usize) -> *mut u8;
    /// One past the highest user address.
    const USER_END: u64;
    /// Levels of a page table (4: 512 entries each, 9 bits of address each, 12 bits of offset).
    const TABLE_LEVELS: u32;
    /// Encodes an entry that points to a page (`leaf`) or to a lower table.
    fn encode_entry(entry: Entry, leaf: bool) -> u64;
    /// Decodes an entry; `None` when it is not present.
    fn decode_entry(raw: u64) -> Option<Entry>;
    /// Where an entry points to; `None` when it is not present.
    fn entry_frame(raw: u64) -> Option<PhysAddr> {
        Self::decode_entry(raw).map(|entry| entry.frame)
    }
    /// The page of a leaf entry that user mode may read, or write, and that is marked as accessed, or
    /// written, already; `None` for every other entry.
    fn used_page(raw: u64, write: bool) -> Option<PhysAddr> {
        let entry = Self::decode_entry(raw)?;
        let marked = entry.accessed && (entry.dirty || !write);
        let permitted = entry.rights.user && (entry.rights.write || !write);
        (marked && permitted).then_some(entry.frame)
    }
    /// What becomes of a leaf entry whose page gets one more owner, and the entry of that owner, which is
    /// accessed and not dirty. With `copy_on_write` both lose the right to write, and get the note `mark`
    /// where they had it. `None` when the entry is not present.
    fn shared_entry(raw: u64, copy_on_write: bool, mark: u8) -> Option<(u64, u64)> {
        let mut entry = Self::decode_entry(raw)?;
        let mut stays = raw;
        if copy_on_write && entry.rights.write {
            entry.rights.write = false;
            entry.software = mark & 7;
            stays = Self::encode_entry(entry, true);
        }
        let copy = Entry { accessed: true, dirty: false, ..entry };
        Some((stays, Self::encode_entry(copy, true)))
    }
    /// Fills the kernel's half of a fresh, zeroed root table.
    ///
    /// # Safety
    /// `root` is a frame that nobody else uses.
    unsafe fn prepare_root(root: PhysAddr);
    /// The root table that maps no user memory.
    fn kernel_root() -> PhysAddr;
    /// Loads a root table on this core, which drops the core's cached translations of user space.
    ///
    /// # Safety
    /// `root` was prepared and stays valid while loaded.
    unsafe fn load_root(root: PhysAddr);
    /// Drops this core's cached translation of one user page.
    fn flush_page(address: VirtAddr);
    /// Copies bytes where one side, or both, may be user memory, which is reached by the root table that is
    /// loaded, as user mode would with the rights of a new program. False when a page is missing or not
    /// permitted, after which a part may have been copied, and where the machine cannot do that.
    ///
    /// # Safety
    /// What lies below `USER_END` is user memory; the root that is loaded is that user's, and every
    /// translation of it that this core has is good until this returns. What lies above is RAM that
    /// stays mapped, and the caller may write to it.
    unsafe fn copy_user(to: *mut u8, from: *const u8, length: usize) -> bool;

    /// Runs the thread in user mode until it traps. The root table of its address space is loaded.
    ///
    /// # Safety
    /// `context` is this thread's alone, and was released (`release_fpu`) on the core where it ran
    /// before if that was another one. It may move in memory between calls.
    unsafe fn enter_user(context: &mut Self::Context) -> Trap;
    /// Saves the floating-point state of `context` if it is live in this core's registers, so that it
    /// may be read, changed or moved to another core. Must be called on the core where it ran; dropping
    /// a live context is allowed there too, and leaks its memory on any other core.
    fn release_fpu(context: &mut Self::Context);

    /// Bytes of a stack that `map_stack` takes.
    const STACK_SIZE: usize = 256 << 10;
    /// Makes `STACK_SIZE` bytes of RAM a stack, with a page below it that nobody may touch, and returns its
    /// top, aligned to 16 bytes; `None` when no page table is left. It stays a stack for ever.
    fn map_stack(memory: PhysAddr) -> Option<*mut u8>;
    /// Prepares a stack on which `function` is called with `argument`; gives its stack pointer.
    ///
    /// # Safety
    /// `top` is that of a stack that nobody else uses.
    unsafe fn prepare_stack(
        top: *mut u8,
        function: extern "C" fn(usize) -> !,
        argument: usize,
    ) -> u64;
    /// Goes on with what was left on another stack of this core, and returns when somebody goes on with this
    /// one. `save` receives the stack pointer of this one before; `bounds` are those of the other stack, for backtraces.
    ///
    /// # Safety
    /// `stack` was made by `prepare_stack` or saved here, on this core, and is gone on with once; the
    /// stack behind it is still there. No lock is held. `save` may be written.
    unsafe fn switch_stack(save: *mut u64, stack: u64, bounds: Range<u64>);
    /// Bounds of the stack that this core runs on, for backtraces.
    fn stack_bounds() -> Range<u64>;

    /// Writes to the machine's log device (serial port); waits for it.
    fn log_write(bytes: &[u8]);
    /// The code by which unmodified programs post calls, where the machine can have it.
    fn post_trampoline() -> Option<PostTrampoline>;
    /// Entropy from the processor if it has an instruction for it.
    fn random_u64() -> Option<u64>;
    /// Ends the machine.
    fn power_off() -> !;
    /// Frame-pointer walk from the caller's frame: calls `each` with return addresses, nearest first,
    /// at most 64, never faulting.
    fn backtrace(each: &mut dyn FnMut(u64));
}

/// Registers of a user thread.
pub trait UserContext: Sized + Send {
    /// A fresh thread: starts at `entry` with `stack`; everything else zero, floating point at reset.
    fn new(entry: u64, stack: u64) -> Self;
    /// A copy for a new thread or process. Floating-point state is copied too; the original must have
    /// been released (`Contract::release_fpu`).
    fn duplicate(&self) -> Self;
    /// System-call number.
    fn call_number(&self) -> usize;
    /// System-call arguments.
    fn call_arguments(&self) -> [u64; 6];
    /// Sets what the system call returns.
    fn set_return_value(&mut self, value: u64);
    /// Sets the registers so that the call that trapped last is executed again, with this number.
    fn restart_call(&mut self, number: usize);
    /// Program counter.
    fn instruction_pointer(&self) -> u64;
    /// Sets the program counter.
    fn set_instruction_pointer(&mut self, value: u64);
    /// Stack pointer.
    fn stack_pointer(&self) -> u64;
    /// Sets the stack pointer.
    fn set_stack_pointer(&mut self, value: u64);
    /// Base of thread-local storage.
    fn thread_pointer(&self) -> u64;
    /// Sets the base of thread-local storage.
    fn set_thread_pointer(&mut self, value: u64);
    /// The second base that user code can address by (x86-64: GS); a machine without one keeps a number.
    fn second_pointer(&self) -> u64;
    /// Sets the second base.
    fn set_second_pointer(&mut self, value: u64);
    /// Sets argument `index` (0 to 2) as the calling convention of C passes it (for signal handlers).
    fn set_c_argument(&mut self, index: usize, value: u64);
    /// General registers in the order of the machine's `struct sigcontext` (x86-64: r8-r15, rdi, rsi,
    /// rbp, rbx, rdx, rax, rcx, rsp, rip, eflags).
    fn general_registers(&self) -> [u64; 18];
    /// Sets them, forcing whatever must not be in user hands (flags, privilege) to safe values.
    fn set_general_registers(&mut self, registers: &[u64; 18]);
    /// Bytes of floating-point state in the standard (non-compacted) XSAVE format; at most 4096.
    fn fpu_size() -> usize;
    /// Where a state that has these components (`XSTATE_BV`) has its bytes: the first part begins at 0 and
    /// has the header, the second may be empty. What lies in neither is at reset.
    fn fpu_parts(components: u64) -> [Range<usize>; 2];
    /// The floating-point state (the context must have been released). Bytes of components that its
    /// header leaves out mean nothing.
    fn fpu(&self) -> &[u8];
    /// Copies the floating-point state out (the context must have been released).
    fn read_fpu(&self, into: &mut [u8]);
    /// Sets the floating-point state; `false` and no change when the bytes are not a valid state.
    fn write_fpu(&mut self, from: &[u8]) -> bool;
    /// Has `fill` write the floating-point state in place: the parts that `fpu_parts` names for the
    /// components in the header that it writes. At reset, and `false`, when `fill` says `false` or has left no
    /// valid state.
    fn fill_fpu(&mut self, fill: impl FnOnce(&mut [u8]) -> bool) -> bool;
    /// Resets the floating-point state.
    fn reset_fpu(&mut self);
}

impl fmt::LowerHex for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

impl fmt::LowerHex for PhysAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}
