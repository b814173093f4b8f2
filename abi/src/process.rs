//! Processes of the Linux ABI: flags of `clone`, `wait` and `prctl`, limits, usage, scheduling,
//! capabilities, system names. Plain data; layouts are those of 64-bit Linux.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The signal that the parent gets at the child's end, in the low byte of `clone`'s flags.
pub const CSIGNAL: u64 = 0xff;
/// `clone`: reset handlers to the default in the child (clone3 only).
pub const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
/// `clone3`: place the child in a given control group.
pub const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
/// New time namespace (shares a bit with the exit signal, so clone3 and unshare only).
pub const CLONE_NEWTIME: u64 = 0x80;
/// Share the address space.
pub const CLONE_VM: u64 = 0x100;
/// Share root, working directory and umask.
pub const CLONE_FS: u64 = 0x200;
/// Share the file table.
pub const CLONE_FILES: u64 = 0x400;
/// Share the table of signal handlers.
pub const CLONE_SIGHAND: u64 = 0x800;
/// Give the parent a descriptor of the child.
pub const CLONE_PIDFD: u64 = 0x1000;
/// Let a tracer of the caller trace the child.
pub const CLONE_PTRACE: u64 = 0x2000;
/// Suspend the caller until the child releases the address space.
pub const CLONE_VFORK: u64 = 0x4000;
/// The child gets the caller's parent.
pub const CLONE_PARENT: u64 = 0x8000;
/// A thread of the same process.
pub const CLONE_THREAD: u64 = 0x1_0000;
/// New mount namespace.
pub const CLONE_NEWNS: u64 = 0x2_0000;
/// Share System V semaphore undo values.
pub const CLONE_SYSVSEM: u64 = 0x4_0000;
/// Set the thread pointer.
pub const CLONE_SETTLS: u64 = 0x8_0000;
/// Store the child's number in the parent's memory.
pub const CLONE_PARENT_SETTID: u64 = 0x10_0000;
/// Clear a word and wake its futex when the child ends.
pub const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
/// Ignored.
pub const CLONE_DETACHED: u64 = 0x40_0000;
/// No tracer may force `CLONE_PTRACE`.
pub const CLONE_UNTRACED: u64 = 0x80_0000;
/// Store the child's number in the child's memory.
pub const CLONE_CHILD_SETTID: u64 = 0x100_0000;
/// New control-group namespace.
pub const CLONE_NEWCGROUP: u64 = 0x200_0000;
/// New host-name namespace.
pub const CLONE_NEWUTS: u64 = 0x400_0000;
/// New System V IPC namespace.
pub const CLONE_NEWIPC: u64 = 0x800_0000;
/// New user namespace.
pub const CLONE_NEWUSER: u64 = 0x1000_0000;
/// New process-number namespace.
pub const CLONE_NEWPID: u64 = 0x2000_0000;
/// New network namespace.
pub const CLONE_NEWNET: u64 = 0x4000_0000;
/// Share the input/output context.
pub const CLONE_IO: u64 = 0x8000_0000;

/// All flags that ask for a new namespace.
pub const CLONE_NAMESPACES: u64 = CLONE_NEWTIME
    | CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET;

/// `struct clone_args` of `clone3`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CloneArguments {
    /// `CLONE_…` without the exit signal.
    pub flags: u64,
    /// Where the descriptor of the child goes.
    pub pidfd: u64,
    /// Where the child's number goes in the child's memory.
    pub child_tid: u64,
    /// Where the child's number goes in the parent's memory.
    pub parent_tid: u64,
    /// Signal to the parent at the child's end.
    pub exit_signal: u64,
    /// Lowest byte of the child's stack.
    pub stack: u64,
    /// Bytes of the child's stack.
    pub stack_size: u64,
    /// The child's thread pointer.
    pub tls: u64,
    /// Array of wanted numbers.
    pub set_tid: u64,
    /// Entries of that array.
    pub set_tid_size: u64,
    /// Descriptor of a control group.
    pub cgroup: u64,
}

/// Size of the first version of `CloneArguments`; less is an error.
pub const CLONE_ARGS_SIZE_VER0: u64 = 64;

/// Return at once when nothing has happened.
pub const WNOHANG: i32 = 1;
/// Report stopped children.
pub const WUNTRACED: i32 = 2;
/// Same bit as `WUNTRACED`, for `waitid`.
pub const WSTOPPED: i32 = 2;
/// Report ended children.
pub const WEXITED: i32 = 4;
/// Report continued children.
pub const WCONTINUED: i32 = 8;
/// Leave the child in its state.
pub const WNOWAIT: i32 = 0x0100_0000;
/// Only children of the calling thread.
pub const __WNOTHREAD: i32 = 0x2000_0000;
/// Children with and without `SIGCHLD`.
pub const __WALL: i32 = 0x4000_0000;
/// Only children without `SIGCHLD`.
pub const __WCLONE: i32 = i32::MIN;

/// `waitid`: any child.
pub const P_ALL: i32 = 0;
/// `waitid`: the child of this number.
pub const P_PID: i32 = 1;
/// `waitid`: any child of this group.
pub const P_PGID: i32 = 2;
/// `waitid`: the child of this descriptor.
pub const P_PIDFD: i32 = 3;

/// Number of resources that have limits.
pub const RLIMIT_COUNT: usize = 16;
/// No limit.
pub const RLIM_INFINITY: u64 = u64::MAX;

/// `struct rlimit64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ResourceLimit {
    /// The limit in force.
    pub soft: u64,
    /// What soft may be raised to.
    pub hard: u64,
}

/// `struct timeval` in `struct rusage`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct UsageTime {
    /// Seconds.
    pub seconds: i64,
    /// Microseconds below one second.
    pub microseconds: i64,
}

/// `struct rusage`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Usage {
    /// Time in user mode.
    pub user: UsageTime,
    /// Time in the kernel.
    pub system: UsageTime,
    /// Largest resident size in KiB.
    pub max_resident_kib: i64,
    /// Unused on Linux.
    pub shared_memory: i64,
    /// Unused on Linux.
    pub unshared_data: i64,
    /// Unused on Linux.
    pub unshared_stack: i64,
    /// Page faults served without input.
    pub minor_faults: i64,
    /// Page faults that waited for input.
    pub major_faults: i64,
    /// Unused on Linux.
    pub swaps: i64,
    /// Blocks read.
    pub blocks_in: i64,
    /// Blocks written.
    pub blocks_out: i64,
    /// Unused on Linux.
    pub messages_sent: i64,
    /// Unused on Linux.
    pub messages_received: i64,
    /// Unused on Linux.
    pub signals: i64,
    /// Times that the thread gave up its core.
    pub voluntary_switches: i64,
    /// Times that the thread lost its core.
    pub involuntary_switches: i64,
}

/// `getrusage`: the process.
pub const RUSAGE_SELF: i32 = 0;
/// `getrusage`: its reaped children.
pub const RUSAGE_CHILDREN: i32 = -1;
/// `getrusage`: the thread.
pub const RUSAGE_THREAD: i32 = 1;

/// `struct tms` of `times`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Ticks {
    /// User time in ticks of 10 ms.
    pub user: i64,
    /// System time.
    pub system: i64,
    /// User time of reaped children.
    pub children_user: i64,
    /// System time of reaped children.
    pub children_system: i64,
}

/// Ticks per second in `times` and `/proc`.
pub const TICKS_PER_SECOND: u64 = 100;

/// Length of one name in `struct new_utsname`, the final NUL included.
pub const NAME_LENGTH: usize = 65;

/// `struct new_utsname`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SystemNames {
    /// Name of the system.
    pub system: [u8; NAME_LENGTH],
    /// Host name.
    pub node: [u8; NAME_LENGTH],
    /// Release.
    pub release: [u8; NAME_LENGTH],
    /// Version.
    pub version: [u8; NAME_LENGTH],
    /// Architecture.
    pub machine: [u8; NAME_LENGTH],
    /// NIS domain name.
    pub domain: [u8; NAME_LENGTH],
}

/// `struct sysinfo`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SystemInfo {
    /// Seconds since boot.
    pub uptime_seconds: i64,
    /// Load averages, as fixed-point numbers with 16 fraction bits.
    pub loads: [u64; 3],
    /// Usable memory.
    pub total_memory: u64,
    /// Free memory.
    pub free_memory: u64,
    /// Shared memory.
    pub shared_memory: u64,
    /// Memory in buffers.
    pub buffer_memory: u64,
    /// Swap space.
    pub total_swap: u64,
    /// Free swap space.
    pub free_swap: u64,
    /// Number of processes.
    pub processes: u16,
    /// Padding.
    pub padding: u16,
    /// Padding.
    pub padding_2: u32,
    /// High memory.
    pub total_high: u64,
    /// Free high memory.
    pub free_high: u64,
    /// Bytes of a memory unit.
    pub memory_unit: u32,
    /// Padding.
    pub padding_3: u32,
}

/// `struct __user_cap_header_struct`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CapabilityHeader {
    /// Version of the layout.
    pub version: u32,
    /// Which thread; 0 for the caller.
    pub pid: i32,
}

/// `struct __user_cap_data_struct`: 32 capabilities of each set.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CapabilityData {
    /// In force.
    pub effective: u32,
    /// May be put in force.
    pub permitted: u32,
    /// Kept across `execve`.
    pub inheritable: u32,
}

/// Capability layout with 32 bits.
pub const CAPABILITY_VERSION_1: u32 = 0x1998_0330;
/// Capability layout with 64 bits, deprecated.
pub const CAPABILITY_VERSION_2: u32 = 0x2007_1026;
/// Capability layout with 64 bits.
pub const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// `struct sched_param`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SchedulingParameters {
    /// Real-time priority; 0 for ordinary policies.
    pub priority: i32,
}

/// `struct sched_attr`, second version.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SchedulingAttributes {
    /// Bytes of this structure.
    pub size: u32,
    /// `SCHED_…`.
    pub policy: u32,
    /// `SCHED_FLAG_…`.
    pub flags: u64,
    /// Nice value.
    pub nice: i32,
    /// Real-time priority.
    pub priority: u32,
    /// Runtime of the deadline policy.
    pub runtime_ns: u64,
    /// Deadline of the deadline policy.
    pub deadline_ns: u64,
    /// Period of the deadline policy.
    pub period_ns: u64,
    /// Lowest utilisation that is assumed.
    pub least_utilisation: u32,
    /// Highest utilisation that is assumed.
    pub most_utilisation: u32,
}

/// The ordinary policy.
pub const SCHED_OTHER: i32 = 0;
/// Real time, first in, first out.
pub const SCHED_FIFO: i32 = 1;
/// Real time, in turn.
pub const SCHED_RR: i32 = 2;
/// Ordinary, for batch work.
pub const SCHED_BATCH: i32 = 3;
/// Ordinary, below everything else.
pub const SCHED_IDLE: i32 = 5;
/// Earliest deadline first.
pub const SCHED_DEADLINE: i32 = 6;
/// Flag with a policy: children get the ordinary one.
pub const SCHED_RESET_ON_FORK: i32 = 0x4000_0000;

/// `getpriority`: a process.
pub const PRIO_PROCESS: i32 = 0;
/// `getpriority`: a group.
pub const PRIO_PGRP: i32 = 1;
/// `getpriority`: a user.
pub const PRIO_USER: i32 = 2;

/// `arch_prctl`: set the GS base.
pub const ARCH_SET_GS: i32 = 0x1001;
/// `arch_prctl`: set the FS base.
pub const ARCH_SET_FS: i32 = 0x1002;
/// `arch_prctl`: get the FS base.
pub const ARCH_GET_FS: i32 = 0x1003;
/// `arch_prctl`: get the GS base.
pub const ARCH_GET_GS: i32 = 0x1004;
/// `arch_prctl`: whether `cpuid` is permitted.
pub const ARCH_GET_CPUID: i32 = 0x1011;
/// `arch_prctl`: permit or forbid `cpuid`.
pub const ARCH_SET_CPUID: i32 = 0x1012;

/// `getrandom`: do not wait for entropy.
pub const GRND_NONBLOCK: u32 = 1;
/// `getrandom`: the blocking pool.
pub const GRND_RANDOM: u32 = 2;
/// `getrandom`: also before the generator is seeded.
pub const GRND_INSECURE: u32 = 4;

/// Numbers of `prctl` operations.
pub mod prctl {
    #![allow(missing_docs, reason = "the names are those of the Linux manual")]
    pub const PR_SET_PDEATHSIG: i32 = 1;
    pub const PR_GET_PDEATHSIG: i32 = 2;
    pub const PR_GET_DUMPABLE: i32 = 3;
    pub const PR_SET_DUMPABLE: i32 = 4;
    pub const PR_GET_UNALIGN: i32 = 5;
    pub const PR_SET_UNALIGN: i32 = 6;
    pub const PR_GET_KEEPCAPS: i32 = 7;
    pub const PR_SET_KEEPCAPS: i32 = 8;
    pub const PR_GET_TIMING: i32 = 13;
    pub const PR_SET_TIMING: i32 = 14;
    pub const PR_SET_NAME: i32 = 15;
    pub const PR_GET_NAME: i32 = 16;
    pub const PR_GET_SECCOMP: i32 = 21;
    pub const PR_SET_SECCOMP: i32 = 22;
    pub const PR_CAPBSET_READ: i32 = 23;
    pub const PR_CAPBSET_DROP: i32 = 24;
    pub const PR_GET_TSC: i32 = 25;
    pub const PR_SET_TSC: i32 = 26;
    pub const PR_GET_SECUREBITS: i32 = 27;
    pub const PR_SET_SECUREBITS: i32 = 28;
    pub const PR_SET_TIMERSLACK: i32 = 29;
    pub const PR_TASK_PERF_EVENTS_DISABLE: i32 = 31;
    pub const PR_TASK_PERF_EVENTS_ENABLE: i32 = 32;
    pub const PR_MCE_KILL: i32 = 33;
    pub const PR_MCE_KILL_GET: i32 = 34;
    pub const PR_GET_SPECULATION_CTRL: i32 = 52;
    pub const PR_SET_SPECULATION_CTRL: i32 = 53;
    pub const PR_SET_IO_FLUSHER: i32 = 57;
    pub const PR_GET_IO_FLUSHER: i32 = 58;
    pub const PR_GET_TIMERSLACK: i32 = 30;
    pub const PR_SET_MM: i32 = 35;
    pub const PR_SET_CHILD_SUBREAPER: i32 = 36;
    pub const PR_GET_CHILD_SUBREAPER: i32 = 37;
    pub const PR_SET_NO_NEW_PRIVS: i32 = 38;
    pub const PR_GET_NO_NEW_PRIVS: i32 = 39;
    pub const PR_GET_TID_ADDRESS: i32 = 40;
    pub const PR_SET_THP_DISABLE: i32 = 41;
    pub const PR_GET_THP_DISABLE: i32 = 42;
    pub const PR_CAP_AMBIENT: i32 = 47;
    pub const PR_SET_VMA: i32 = 0x53_56_4d_41;
    pub const PR_SET_PTRACER: i32 = 0x59_61_6d_61;
}

const _: () = {
    assert!(size_of::<CloneArguments>() == 88);
    assert!(size_of::<Usage>() == 144);
    assert!(size_of::<SystemInfo>() == 112);
    assert!(size_of::<SystemNames>() == 390);
    assert!(size_of::<SchedulingAttributes>() == 56);
};
