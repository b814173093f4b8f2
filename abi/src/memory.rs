//! Memory: protections, mapping flags, advice, and the auxiliary vector of a new program.
//!
//! Numbers of the Linux ABI on 64-bit machines that use the generic values (x86-64, AArch64,
//! RISC-V). Only what Ferry reads or writes is here; what a call does with an unknown bit is decided
//! where the call is handled.

use bitflags::bitflags;

bitflags! {
    /// Protection of a mapping (`PROT_*`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Protection: u32 {
        /// Pages may be read.
        const READ = 0x1;
        /// Pages may be written.
        const WRITE = 0x2;
        /// Pages may be executed.
        const EXECUTE = 0x4;
    }
}

/// `PROT_SEM`: accepted and without effect.
pub const PROT_SEM: u32 = 0x8;
/// `PROT_GROWSDOWN`: extend a change of protection down to the start of a growing mapping.
pub const PROT_GROWSDOWN: u32 = 0x0100_0000;
/// `PROT_GROWSUP`: the same upwards; no mapping of these machines grows up.
pub const PROT_GROWSUP: u32 = 0x0200_0000;

bitflags! {
    /// Flags of `mmap` (`MAP_*`) without the type in the low four bits.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct MapFlags: u32 {
        /// Exactly at the given address, replacing what is there.
        const FIXED = 0x10;
        /// Not backed by a file.
        const ANONYMOUS = 0x20;
        /// In the first 2 GiB (x86-64 only).
        const BIT32 = 0x40;
        /// Grows down like a stack.
        const GROWSDOWN = 0x100;
        /// Accepted and ignored (`ETXTBSY` was its meaning once).
        const DENYWRITE = 0x800;
        /// Accepted and ignored.
        const EXECUTABLE = 0x1000;
        /// Locked in memory.
        const LOCKED = 0x2000;
        /// No swap reservation.
        const NORESERVE = 0x4000;
        /// Bring pages in at once.
        const POPULATE = 0x8000;
        /// With `POPULATE`: do not read ahead.
        const NONBLOCK = 0x1_0000;
        /// A hint that this is a stack.
        const STACK = 0x2_0000;
        /// Huge pages.
        const HUGETLB = 0x4_0000;
        /// Synchronous page faults for persistent memory.
        const SYNC = 0x8_0000;
        /// Like `FIXED`, but fails when something is there.
        const FIXED_NOREPLACE = 0x10_0000;
        /// Contents need not be cleared (only without a memory management unit).
        const UNINITIALIZED = 0x400_0000;
    }
}

/// Mask of the mapping type in the flags of `mmap`.
pub const MAP_TYPE: u32 = 0x0f;
/// Changes are shared.
pub const MAP_SHARED: u32 = 0x01;
/// Changes are private.
pub const MAP_PRIVATE: u32 = 0x02;
/// Shared, and unknown flags are refused.
pub const MAP_SHARED_VALIDATE: u32 = 0x03;

/// `mremap`: may move.
pub const MREMAP_MAYMOVE: u32 = 1;
/// `mremap`: to the address given.
pub const MREMAP_FIXED: u32 = 2;
/// `mremap`: leave the old range mapped and empty.
pub const MREMAP_DONTUNMAP: u32 = 4;

/// `msync`: start writing back.
pub const MS_ASYNC: u32 = 1;
/// `msync`: drop other cached copies.
pub const MS_INVALIDATE: u32 = 2;
/// `msync`: write back and wait.
pub const MS_SYNC: u32 = 4;

/// `mlockall`: what is mapped now.
pub const MCL_CURRENT: u32 = 1;
/// `mlockall`: what will be mapped.
pub const MCL_FUTURE: u32 = 2;
/// `mlockall`: lock pages when they are brought in.
pub const MCL_ONFAULT: u32 = 4;
/// `mlock2`: lock pages when they are brought in.
pub const MLOCK_ONFAULT: u32 = 1;

/// Advice of `madvise`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Nothing to be done: an access pattern, a huge-page or a merging hint.
    Hint,
    /// Bring pages in.
    WillNeed,
    /// Drop private contents, keep the mapping.
    DontNeed,
    /// Contents may be dropped when memory is short.
    Free,
    /// Punch a hole into the file behind it.
    Remove,
    /// Not inherited by a child.
    DontFork,
    /// Undo `DontFork`.
    DoFork,
    /// Empty in a child.
    WipeOnFork,
    /// Undo `WipeOnFork`.
    KeepOnFork,
    /// Left out of a core dump.
    DontDump,
    /// Undo `DontDump`.
    DoDump,
    /// Bring pages in for reading.
    PopulateRead,
    /// Bring pages in for writing.
    PopulateWrite,
    /// Like `DontNeed`, for locked pages too.
    DontNeedLocked,
}

impl Advice {
    /// Decodes the number that `madvise` takes; `None` is `EINVAL`.
    pub const fn from_number(number: u32) -> Option<Advice> {
        Some(match number {
            // NORMAL, RANDOM, SEQUENTIAL, MERGEABLE, UNMERGEABLE, HUGEPAGE, NOHUGEPAGE, COLD, PAGEOUT
            0 | 1 | 2 | 12 | 13 | 14 | 15 | 20 | 21 => Advice::Hint,
            3 => Advice::WillNeed,
            4 => Advice::DontNeed,
            8 => Advice::Free,
            9 => Advice::Remove,
            10 => Advice::DontFork,
            11 => Advice::DoFork,
            16 => Advice::DontDump,
            17 => Advice::DoDump,
            18 => Advice::WipeOnFork,
            19 => Advice::KeepOnFork,
            22 => Advice::PopulateRead,
            23 => Advice::PopulateWrite,
            24 => Advice::DontNeedLocked,
            _ => return None,
        })
    }
}

/// Memory policies: on which nodes pages are taken (`set_mempolicy`, `mbind`).
pub mod placement {
    /// Where the policy of the thread or of the system says.
    pub const DEFAULT: u32 = 0;
    /// From these nodes, then from others.
    pub const PREFERRED: u32 = 1;
    /// From these nodes only.
    pub const BIND: u32 = 2;
    /// From these nodes in turn.
    pub const INTERLEAVE: u32 = 3;
    /// From the node of the processor.
    pub const LOCAL: u32 = 4;
    /// From these nodes, then from others, for more than one node.
    pub const PREFERRED_MANY: u32 = 5;
    /// Mode flag: pages move to where they are used.
    pub const NUMA_BALANCING: u32 = 1 << 13;
    /// Mode flag: nodes count from the first that is allowed.
    pub const RELATIVE_NODES: u32 = 1 << 14;
    /// Mode flag: nodes are never renumbered.
    pub const STATIC_NODES: u32 = 1 << 15;
    /// `get_mempolicy`: ask for a node instead of a policy.
    pub const GET_NODE: u64 = 1;
    /// `get_mempolicy`: ask about an address.
    pub const GET_ADDRESS: u64 = 2;
    /// `get_mempolicy`: ask which nodes are allowed.
    pub const GET_ALLOWED: u64 = 4;
    /// `mbind`: fail where pages lie elsewhere.
    pub const STRICT: u32 = 1;
    /// `mbind`, `move_pages`: move pages that nobody shares.
    pub const MOVE: u32 = 2;
    /// `mbind`, `move_pages`: move all pages.
    pub const MOVE_ALL: u32 = 4;
}

/// `membarrier` commands.
pub mod membarrier {
    /// Which commands are supported.
    pub const QUERY: u32 = 0;
    /// A barrier on all running threads of the system.
    pub const GLOBAL: u32 = 1;
    /// A barrier on the threads of registered processes.
    pub const GLOBAL_EXPEDITED: u32 = 1 << 1;
    /// Registers for `GLOBAL_EXPEDITED`.
    pub const REGISTER_GLOBAL_EXPEDITED: u32 = 1 << 2;
    /// A barrier on the threads of the caller's process.
    pub const PRIVATE_EXPEDITED: u32 = 1 << 3;
    /// Registers for `PRIVATE_EXPEDITED`.
    pub const REGISTER_PRIVATE_EXPEDITED: u32 = 1 << 4;
    /// As `PRIVATE_EXPEDITED`, and instruction fetch is serialised.
    pub const PRIVATE_EXPEDITED_SYNC_CORE: u32 = 1 << 5;
    /// Registers for `PRIVATE_EXPEDITED_SYNC_CORE`.
    pub const REGISTER_PRIVATE_EXPEDITED_SYNC_CORE: u32 = 1 << 6;
    /// As `PRIVATE_EXPEDITED`, and restartable sequences under way are aborted.
    pub const PRIVATE_EXPEDITED_RSEQ: u32 = 1 << 7;
    /// Registers for `PRIVATE_EXPEDITED_RSEQ`.
    pub const REGISTER_PRIVATE_EXPEDITED_RSEQ: u32 = 1 << 8;
    /// Flag: only the core of the third argument, for `PRIVATE_EXPEDITED_RSEQ`.
    pub const FLAG_CPU: u32 = 1;
    /// Which registrations are in force.
    pub const GET_REGISTRATIONS: u32 = 1 << 9;
}

/// Personality bit: no address-space randomisation.
pub const ADDR_NO_RANDOMIZE: u32 = 0x0004_0000;
/// Personality bit: readable mappings are executable too.
pub const READ_IMPLIES_EXEC: u32 = 0x0040_0000;

/// Keys of the auxiliary vector.
pub mod aux {
    /// End of the vector.
    pub const NULL: u64 = 0;
    /// Address of the program headers.
    pub const PHDR: u64 = 3;
    /// Bytes of one program header.
    pub const PHENT: u64 = 4;
    /// Number of program headers.
    pub const PHNUM: u64 = 5;
    /// Bytes of a page.
    pub const PAGESZ: u64 = 6;
    /// Load address of the interpreter.
    pub const BASE: u64 = 7;
    /// Flags.
    pub const FLAGS: u64 = 8;
    /// Entry point of the program.
    pub const ENTRY: u64 = 9;
    /// Real user.
    pub const UID: u64 = 11;
    /// Effective user.
    pub const EUID: u64 = 12;
    /// Real group.
    pub const GID: u64 = 13;
    /// Effective group.
    pub const EGID: u64 = 14;
    /// Address of the platform name.
    pub const PLATFORM: u64 = 15;
    /// Processor features.
    pub const HWCAP: u64 = 16;
    /// Ticks per second of `times`.
    pub const CLKTCK: u64 = 17;
    /// Whether the program gained privilege.
    pub const SECURE: u64 = 23;
    /// Address of 16 random bytes.
    pub const RANDOM: u64 = 25;
    /// More processor features.
    pub const HWCAP2: u64 = 26;
    /// Size of `struct rseq` that the kernel knows.
    pub const RSEQ_FEATURE_SIZE: u64 = 27;
    /// Alignment of `struct rseq`.
    pub const RSEQ_ALIGN: u64 = 28;
    /// Address of the file name of the program.
    pub const EXECFN: u64 = 31;
    /// Address of the vDSO.
    pub const SYSINFO_EHDR: u64 = 33;
    /// Smallest signal stack.
    pub const MINSIGSTKSZ: u64 = 51;
}
