//! Tracing of programs: requests, options and events of `ptrace`, and its records on 64-bit x86.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Requests of `ptrace`.
pub mod request {
    /// The parent traces the caller.
    pub const TRACEME: i32 = 0;
    /// Reads a word of memory.
    pub const PEEKTEXT: i32 = 1;
    /// Reads a word of memory.
    pub const PEEKDATA: i32 = 2;
    /// Reads a word of `struct user`.
    pub const PEEKUSER: i32 = 3;
    /// Writes a word of memory.
    pub const POKETEXT: i32 = 4;
    /// Writes a word of memory.
    pub const POKEDATA: i32 = 5;
    /// Writes a word of `struct user`.
    pub const POKEUSER: i32 = 6;
    /// Goes on.
    pub const CONT: i32 = 7;
    /// Kills.
    pub const KILL: i32 = 8;
    /// Goes on for one instruction.
    pub const SINGLESTEP: i32 = 9;
    /// Reads the general registers.
    pub const GETREGS: i32 = 12;
    /// Writes the general registers.
    pub const SETREGS: i32 = 13;
    /// Reads the floating-point registers.
    pub const GETFPREGS: i32 = 14;
    /// Writes the floating-point registers.
    pub const SETFPREGS: i32 = 15;
    /// Traces a thread, which stops.
    pub const ATTACH: i32 = 16;
    /// Traces no more; the thread goes on.
    pub const DETACH: i32 = 17;
    /// Goes on to the begin or end of the next call.
    pub const SYSCALL: i32 = 24;
    /// As the call `arch_prctl` of the tracee.
    pub const ARCH_PRCTL: i32 = 30;
    /// Goes on to the begin of the next call, which is not carried out.
    pub const SYSEMU: i32 = 31;
    /// Both `SYSEMU` and `SINGLESTEP`.
    pub const SYSEMU_SINGLESTEP: i32 = 32;
    /// Sets options.
    pub const SETOPTIONS: i32 = 0x4200;
    /// Reads the message of the last event.
    pub const GETEVENTMSG: i32 = 0x4201;
    /// Reads what is known of the signal that the tracee stopped for.
    pub const GETSIGINFO: i32 = 0x4202;
    /// Changes that.
    pub const SETSIGINFO: i32 = 0x4203;
    /// Reads a set of registers.
    pub const GETREGSET: i32 = 0x4204;
    /// Writes a set of registers.
    pub const SETREGSET: i32 = 0x4205;
    /// Traces a thread, which does not stop.
    pub const SEIZE: i32 = 0x4206;
    /// Stops a thread that was seized.
    pub const INTERRUPT: i32 = 0x4207;
    /// Leaves a stopped thread stopped and tells when it could go on.
    pub const LISTEN: i32 = 0x4208;
    /// Reads pending signals.
    pub const PEEKSIGINFO: i32 = 0x4209;
    /// Reads the signal mask.
    pub const GETSIGMASK: i32 = 0x420a;
    /// Writes the signal mask.
    pub const SETSIGMASK: i32 = 0x420b;
    /// Reads what call the tracee stopped for.
    pub const GET_SYSCALL_INFO: i32 = 0x420e;
    /// Reads the registration of restartable sequences.
    pub const GET_RSEQ_CONFIGURATION: i32 = 0x420f;
}

/// Options of `ptrace`.
pub mod option {
    /// Stops for calls are told by `SIGTRAP | 0x80`.
    pub const TRACESYSGOOD: u32 = 1;
    /// An event for each `fork`.
    pub const TRACEFORK: u32 = 1 << 1;
    /// An event for each `vfork`.
    pub const TRACEVFORK: u32 = 1 << 2;
    /// An event for each `clone`.
    pub const TRACECLONE: u32 = 1 << 3;
    /// An event for each `execve`.
    pub const TRACEEXEC: u32 = 1 << 4;
    /// An event for the end of a `vfork`.
    pub const TRACEVFORKDONE: u32 = 1 << 5;
    /// An event for the end of the thread.
    pub const TRACEEXIT: u32 = 1 << 6;
    /// An event for calls that a filter refers to the tracer.
    pub const TRACESECCOMP: u32 = 1 << 7;
    /// The tracee is killed when its tracer ends.
    pub const EXITKILL: u32 = 1 << 20;
    /// Those that there are.
    pub const ALL: u32 = 0xff | EXITKILL;
}

/// Events, in the third byte of a wait status.
pub mod event {
    /// After `fork`.
    pub const FORK: u32 = 1;
    /// After `vfork`.
    pub const VFORK: u32 = 2;
    /// After `clone`.
    pub const CLONE: u32 = 3;
    /// After `execve`.
    pub const EXEC: u32 = 4;
    /// After the child of a `vfork` gave back the memory.
    pub const VFORK_DONE: u32 = 5;
    /// Before the end.
    pub const EXIT: u32 = 6;
    /// A filter refers a call to the tracer.
    pub const SECCOMP: u32 = 7;
    /// A seized thread stopped, because it was told to or with its process.
    pub const STOP: u32 = 128;
}

/// Sets of registers.
pub mod register_set {
    /// General registers: `struct user_regs_struct`.
    pub const GENERAL: u64 = 1;
    /// Floating point as `fxsave` stores it.
    pub const FLOATING_POINT: u64 = 2;
    /// All extended state as `xsave` stores it.
    pub const EXTENDED: u64 = 0x202;
}

/// Bytes of `struct user`, whose words `PEEKUSER` reads.
pub const USER_SIZE: u64 = 928;
/// Where its debug registers begin; there are eight.
pub const USER_DEBUG_AT: u64 = 848;
/// Selector of code in user mode.
pub const USER_CODE: u64 = 0x33;
/// Selector of data in user mode.
pub const USER_DATA: u64 = 0x2b;

/// `struct user_regs_struct`
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are those of the registers")]
pub struct UserRegisters {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    /// Number of the call that the thread is in; all ones for none.
    pub call: u64,
    pub rip: u64,
    pub cs: u64,
    pub flags: u64,
    pub rsp: u64,
    pub ss: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    pub ds: u64,
    pub es: u64,
    pub fs: u64,
    pub gs: u64,
}

/// `struct ptrace_syscall_info`; how much of it counts depends on the kind.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CallInfo {
    /// 0 none, 1 entry, 2 exit, 3 filter.
    pub kind: u8,
    /// Zeros.
    pub padding: [u8; 3],
    /// `AUDIT_ARCH_…`
    pub architecture: u32,
    /// Where the program goes on.
    pub instruction_pointer: u64,
    /// Its stack.
    pub stack_pointer: u64,
    /// Number and arguments, or the result and whether it is an error.
    pub values: [u64; 7],
    /// What a filter says.
    pub detail: u64,
}

/// `struct ptrace_rseq_configuration`
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct SequenceConfiguration {
    /// Address of the record.
    pub address: u64,
    /// Its bytes.
    pub size: u32,
    /// What stands before abort addresses.
    pub signature: u32,
    /// Zeros.
    pub flags: u32,
    /// Zeros.
    pub padding: u32,
}
